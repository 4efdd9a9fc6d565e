"""How a process joins the ranks of its shard: torch.distributed with NCCL between GPUs and gloo between CPUs.

All ranks live in one pod. They meet in a file and talk over the loopback device, so no port is opened to anybody else.
"""

import os
from datetime import timedelta
from typing import Final

import torch
from torch import distributed

# Loading may take a rank longer than another one by minutes. A dead rank is noticed otherwise, and at once.
PATIENCE: Final = timedelta(hours=1)


def join(number: int, size: int, meeting: str) -> None:
    """Become a rank; returns once all are there. `meeting` is the path of a file that only these ranks use."""
    os.environ |= {"LOCAL_RANK": str(number), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    device = torch.device("cuda", number) if torch.cuda.is_available() else None
    if device:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if device else "gloo",
        store=distributed.FileStore(meeting, size),  # type: ignore[attr-defined]
        rank=number,
        world_size=size,
        timeout=PATIENCE,
        device_id=device,
    )


def leave() -> None:
    """Leave the group, if this process is in one."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
