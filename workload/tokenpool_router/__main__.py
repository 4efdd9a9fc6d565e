"""`tokenpool-router`: the control process, which starts the workers."""

import asyncio
import logging
import sys

import uvloop

from tokenpool_router.control.process import CannotStart, run
from tokenpool_router.settings import parse


def main() -> None:
    """Run the router until it is told to stop."""
    settings = parse(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(settings, sys.argv[1:]))
        except* CannotStart as errors:
            sys.exit(f"error: {errors.exceptions[0]}")


if __name__ == "__main__":
    main()
