"""Switches of torch that are set once per process, on every rank alike."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tuning:
    """Which float32 products may be rounded (None: what the device is good at), and whether cuDNN tries its kernels."""

    matmul_precision: str | None = None
    cudnn_benchmark: bool = False

    def apply(self) -> None:
        """Set them."""
        # On GPUs TensorFloat32 is many times faster, and exact enough for what was trained so; weights in 16 bits, the
        # usual case, are not concerned.
        precision = self.matmul_precision or ("high" if torch.cuda.is_available() else None)
        if precision:
            torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = self.cudnn_benchmark
