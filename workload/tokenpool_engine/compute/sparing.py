"""Keeps what a shard never uses out of its memory."""

import ctypes
import sys

import torch


def import_sparingly() -> None:
    """Before transformers is imported: without a GPU nothing needs triton, whose library takes 70 MB.

    torch and transformers take it for not installed, as it is on machines that it does not exist for.
    """
    if not torch.cuda.is_available():
        sys.modules.setdefault("triton", None)  # type: ignore[arg-type]


def give_back() -> None:
    """After loading: memory that was freed and that the allocator still holds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of the GNU C library
    if trim:
        trim(0)
