"""A rank other than 0: a process that loads its part of the model and computes what rank 0 tells it.

It decides nothing. `python -m tokenpool_engine.compute.rank`, started by rank 0 and by nobody else. It ends when told,
when something fails (after saying what), and when rank 0 is gone, be it in the middle of a step that can never finish.
"""

import argparse
import json
import logging
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NoReturn

from tokenpool_engine.compute.orders import STOP, Compute, Load, MakeCache, decode

log = logging.getLogger(__name__)

FAILED: Final = 1
ORPHANED: Final = 3


def main() -> None:
    """Live as a rank until the end of the process."""
    parser = argparse.ArgumentParser(prog="rank")
    for name in ("wire", "number", "size", "threads"):
        parser.add_argument(name, type=int)
    parser.add_argument("meeting")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Who stops the shard stops rank 0, which goes on with what runs and needs this rank for it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    wire = Connection(given.wire)
    orders: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(wire, orders), name="orders", daemon=True).start()
    try:
        _obey(wire, orders, given)
    except BaseException as error:
        log.exception("rank %d failed", given.number)
        wire.send_bytes(json.dumps(_failure(error)).encode())
        _end(FAILED)


def _listen(wire: Connection, orders: "SimpleQueue[bytes]") -> None:
    """Take orders in. Its own thread, so that rank 0 can end this one, or be gone, also while a step waits for it."""
    while True:
        try:
            frame = wire.recv_bytes()
        except (EOFError, OSError):
            log.error("rank 0 is gone")
            _end(ORPHANED)
        if frame == STOP:
            _end(0)
        orders.put(frame)


def _obey(wire: Connection, orders: "SimpleQueue[bytes]", given: argparse.Namespace) -> NoReturn:
    """Join the others, then do what comes; says `done` after everything but a step."""
    import torch

    from tokenpool_engine.compute import group, loader
    from tokenpool_engine.compute.stock import Stock
    from tokenpool_engine.compute.tuning import Tuning

    torch.set_num_threads(given.threads)
    wire.send_bytes(b"{}")
    group.join(given.number, given.size, given.meeting)
    loaded = model = None
    while True:
        match decode(orders.get()):
            case Load(folder, dtype, matmul_precision, cudnn_benchmark):
                Tuning(matmul_precision, cudnn_benchmark).apply()
                loaded = loader.load(Path(folder), dtype, given.size)
                wire.send_bytes(b"{}")
            case MakeCache(pages, page_tokens) if loaded:
                model = Stock(loaded.model, pages, page_tokens)
                wire.send_bytes(b"{}")
            case Compute(rows) if model:
                model.logits(rows)
            case order:
                raise ValueError(f"{order} came too early")


def _failure(error: BaseException) -> dict[str, str]:
    """What rank 0 tells of it: a reason if there is one, and a sentence."""
    from tokenpool_engine.failure import Reason, StartError

    if isinstance(error, StartError):
        return {"reason": error.reason, "message": str(error).removeprefix(f"{error.reason}: ")}
    name = type(error).__name__
    short = isinstance(error, MemoryError) or "OutOfMemory" in name or "allocate" in str(error)
    return {"reason": Reason.OUT_OF_MEMORY if short else Reason.RANK_LOST, "message": f"{name}: {error}"}


def _end(code: int) -> NoReturn:
    """End without the libraries' farewells, which wait for the other ranks."""
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
