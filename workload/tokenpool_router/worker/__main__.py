"""`python -m tokenpool_router.worker`: started by the control process, never by hand."""

import argparse
import asyncio
import gc
import logging
import sys

import uvloop

from tokenpool_router.gauges import Gauges
from tokenpool_router.settings import parse
from tokenpool_router.worker.run import run

# What a request leaves behind is freed by counting; the collector only has to find the few rings of parsers and owners.
COLLECT_EVERY = 20_000


def main() -> None:
    """Serve until told to drain, or until the control process is gone."""
    flags = argparse.ArgumentParser(add_help=False)
    flags.add_argument("--link-fd", type=int, required=True)
    flags.add_argument("--gauges-fd", type=int, required=True)
    flags.add_argument("--row", type=int, required=True)
    own, rest = flags.parse_known_args(sys.argv[1:])
    settings = parse(rest)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    gauges = Gauges(own.gauges_fd)
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, 20, 50)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(settings, own.link_fd, gauges, own.row))


if __name__ == "__main__":
    main()
