"""`tokenpool-router`."""

import asyncio
import logging
import sys

import uvloop

from tokenpool_router.process import run
from tokenpool_router.settings import parse


def main() -> None:
    """Run the router until it is told to stop."""
    settings = parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings))


if __name__ == "__main__":
    main()
