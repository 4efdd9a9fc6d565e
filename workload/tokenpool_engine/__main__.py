"""`tokenpool-engine serve` and `tokenpool-engine download`."""

import asyncio
import logging
import os
import sys

from tokenpool_engine.failure import StartError, give_up
from tokenpool_engine.settings import Download, Serve, parse


def main() -> None:
    """Run the command; a start that cannot succeed ends in one line for the operator."""
    settings = parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if isinstance(settings, Download):
            from tokenpool_engine.download import download

            download(settings)
        else:
            import uvloop

            from tokenpool_engine.process import serve

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(settings))
    except StartError as error:
        # With several ranks, the libraries' farewells at an ordinary exit wait for the others, which may be gone.
        if isinstance(settings, Serve) and settings.tensor_parallel > 1:
            give_up(error, os._exit)
        give_up(error)


if __name__ == "__main__":
    main()
