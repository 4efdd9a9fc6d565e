"""What can be wrong with a shard's start, as one line that the operator puts into the pool's condition."""

import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

EXIT_CODE = 2


class Reason(StrEnum):
    """Stable words; they become the reason of a condition."""

    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_UNSUPPORTED = "ModelUnsupported"
    MODEL_INVALID = "ModelInvalid"
    DOWNLOAD_FAILED = "DownloadFailed"
    OUT_OF_MEMORY = "OutOfMemory"
    TENSOR_PARALLEL = "TensorParallelImpossible"
    RANK_LOST = "RankLost"
    ENGINE_FAILED = "EngineFailed"


class StartError(Exception):
    """The shard cannot start until somebody acts, or cannot go on."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {' '.join(message.split())}")
        self.reason = reason


def give_up(error: StartError, leave: Callable[[int], NoReturn] = sys.exit) -> NoReturn:
    """Tell the kubelet and the log, and exit by `leave`."""
    target = Path(os.environ.get("TERMINATION_LOG", "/dev/termination-log"))
    try:
        target.write_text(f"{error}\n")
    except OSError:
        # Not in a pod. The same line goes to standard error in any case.
        print(f"({target} cannot be written)", file=sys.stderr)
    print(error, file=sys.stderr)
    sys.stderr.flush()
    leave(EXIT_CODE)
