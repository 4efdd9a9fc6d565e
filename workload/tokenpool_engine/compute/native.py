"""Binds cpu_kernel.c: a Llama-shaped model packed for it, and one call a step. ctypes gives the interpreter lock back
for the whole call, so that HTTP is served while a step computes.
"""

import ctypes
import mmap
import os
import time
from array import array
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from tokenpool_engine.compute.llama import Llama
from tokenpool_engine.compute.rows import Rows, Span

PAGE_TOKENS: Final = 32
COLUMNS: Final = 32
NEEDED: Final = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni", "fma"})
LIBRARY: Final = Path(os.environ.get("TOKENPOOL_CPU_KERNEL") or Path(__file__).with_name("cpu_kernel.so"))
FMA, DOT, INT8 = 0, 1, 2
TRIAL_ROWS: Final = 96


class _Linear(Structure):
    _fields_ = (
        ("depth", c_int32),
        ("columns", c_int32),
        ("panels", c_void_p),
        ("scales", c_void_p),
        ("offsets", c_void_p),
    )


class _Layer(Structure):
    _fields_ = (
        *((name, _Linear) for name in ("qkv", "out", "gate_up", "down")),
        *((name, c_void_p) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm", "qkv_bias")),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("window", c_int64),
    )


class _Model(Structure):
    _fields_ = (
        *((n, c_int32) for n in ("layers", "hidden", "inner", "heads", "kv_heads", "head_size", "vocabulary", "kind")),
        ("epsilon", c_float),
        ("scaling", c_float),
        *((name, c_void_p) for name in ("embedding", "cosine", "sine", "norm")),
        ("layer", POINTER(_Layer)),
        ("head", _Linear),
    )


class _Step(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("rows", "spans", "samples")),
        *((name, c_void_p) for name in ("ids", "pages", "sample_rows", "span", "logits", "best")),
    )


class Unsuitable(Exception):
    """The kernel cannot be used; the text says why."""


def load_kernel() -> Any:
    """The compiled kernel. Raises Unsuitable."""
    lacking = sorted(NEEDED - cpu_flags())
    if lacking:
        raise Unsuitable(f"this CPU lacks {', '.join(lacking)}")
    try:
        found = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        raise Unsuitable(f"the compiled kernel cannot be loaded: {error}") from error
    found.tokenpool_open.restype = c_void_p
    found.tokenpool_open.argtypes = (POINTER(_Model), c_int32, c_int32)
    found.tokenpool_step.argtypes = (c_void_p, POINTER(_Step))
    found.tokenpool_close.argtypes = (c_void_p,)
    found.tokenpool_pack.argtypes = (c_void_p, c_int32, c_int32, c_void_p)
    found.tokenpool_pack_int8.argtypes = (c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_void_p)
    return found


def cpu_flags() -> frozenset[str]:
    """What the CPU says that it can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line for line in lines if line.startswith("flags")), "").split())


def refuse_shape(model: Llama) -> None:
    """Raises Unsuitable for sizes that do not fill whole panels."""
    width = (model.heads + 2 * model.kv_heads) * model.head_size
    sizes = {"hidden": model.hidden, "inner": model.inner, "head": model.head_size, "fused heads": width}
    odd = [f"{name} size {size}" for name, size in sizes.items() if size % COLUMNS]
    if odd:
        raise Unsuitable(f"{', '.join(odd)}: no multiple of {COLUMNS}")


class Native:
    """A model packed for the kernel, with its cache of `pages` pages; steps of up to `max_rows` rows."""

    page_tokens = PAGE_TOKENS

    def __init__(
        self, model: Llama, pages: int, threads: int, max_rows: int, *, int8: bool = False, kind: int | None = None
    ) -> None:
        refuse_shape(model)
        self._library = load_kernel()
        self._kept: list[Any] = []
        self.vocabulary = model.vocabulary
        self._max_rows, self._positions = max_rows, len(model.cosine)
        self._page_size = model.kv_heads * PAGE_TOKENS * model.head_size
        self._keys = [_untouched(pages * self._page_size) for _ in model.layers]
        self._values = [_untouched(pages * self._page_size) for _ in model.layers]
        self._model = self._describe(model, INT8 if int8 else FMA)
        if not int8:
            self._model.kind = self._faster_kind() if kind is None else kind
        self._context = self._open(self._model, threads)

    def _open(self, model: _Model, threads: int) -> int:
        context: int | None = self._library.tokenpool_open(ctypes.byref(model), threads, self._max_rows)
        if not context:
            raise MemoryError("no memory to allocate for steps")
        return context

    def _faster_kind(self) -> int:
        """Rounded activations only where they are clearly faster: on this CPU, by measurement, with the first layer."""
        if "avx512_bf16" not in cpu_flags():
            return FMA
        one_layer = _Model.from_buffer_copy(self._model)
        one_layer.layers = 1
        seconds: dict[int, float] = {}
        for kind in (FMA, DOT):
            one_layer.kind = kind
            self._context = self._open(one_layer, 1)
            seconds[kind] = min(self._trial() for _ in range(4))
            self.close()
        return DOT if seconds[DOT] * 1.15 < seconds[FMA] else FMA

    def _trial(self) -> float:
        """Seconds of a step of some rows."""
        count = min(TRIAL_ROWS, self._max_rows)
        rows = Rows(
            array("i", [0] * count), (Span(0, count, 0, 0),), array("i", range(-(-count // PAGE_TOKENS))), array("i")
        )
        began = time.perf_counter()
        self._step(rows, None)
        return time.perf_counter() - began

    def close(self) -> None:
        """End the worker threads."""
        if self._context:
            self._library.tokenpool_close(self._context)
            self._context = 0

    def logits(self, rows: Rows) -> Tensor:
        """float32 [samples, vocabulary]."""
        out = torch.empty((len(rows.sample_rows), self.vocabulary), dtype=torch.float32)
        self._step(rows, out)
        return out

    def best(self, rows: Rows) -> list[int]:
        """The best id of each row that samples."""
        return self._step(rows, None)

    def clear(self, pages: list[int]) -> None:
        """Zero these pages."""
        for tensor in (*self._keys, *self._values):
            tensor.view(-1, self._page_size)[sorted(set(pages))] = 0

    def _step(self, rows: Rows, logits: Tensor | None) -> list[int]:
        count = len(rows.sample_rows)
        if len(rows.ids) > self._max_rows:
            raise ValueError(f"a step of {len(rows.ids)} rows; {self._max_rows} were agreed")
        if max((span.start + span.size for span in rows.spans), default=0) > self._positions:
            raise ValueError(f"a position beyond the {self._positions} that were agreed")
        spans = array("i", [number for span in rows.spans for number in span])
        best = array("i", [0] * count)
        step = _Step(
            len(rows.ids), len(rows.spans), count, *map(_address, (rows.ids, rows.pages, rows.sample_rows, spans))
        )
        step.logits = None if logits is None else logits.data_ptr()
        step.best = _address(best)
        if self._library.tokenpool_step(self._context, ctypes.byref(step)):
            raise MemoryError("no memory to allocate for the step's attention")
        if -1 in best:
            raise ValueError("the model's logits are not numbers")
        return best.tolist()

    def _describe(self, model: Llama, kind: int) -> _Model:
        """The model in the kernel's terms, packed. Its memory lives as long as this object."""
        layers = (_Layer * len(model.layers))()
        for index in range(len(model.layers)):
            layers[index] = self._layer(model, index, kind)
        return _Model(
            len(model.layers),
            model.hidden,
            model.inner,
            model.heads,
            model.kv_heads,
            model.head_size,
            model.vocabulary,
            kind,
            model.epsilon,
            model.scaling,
            self._embedding(model, kind),
            self._keep(model.cosine.float()),
            self._keep(model.sine.float()),
            self._keep(model.norm.float()),
            layers,
            self._linear(model.head, kind),
        )

    def _embedding(self, model: Llama, kind: int) -> int | None:
        """Null where the head's panels hold the same numbers."""
        if kind != INT8 and model.embedding.data_ptr() == model.head.data_ptr():
            return None
        # A view of the file would keep all of it mapped.
        return self._keep(model.embedding.to(torch.bfloat16, copy=True))

    def _layer(self, model: Llama, index: int, kind: int) -> _Layer:
        layer = model.layers[index]
        gate_up = torch.stack([part.view(-1, COLUMNS, model.hidden) for part in (layer.gate, layer.up)], dim=1)
        vectors = (layer.attention_norm, layer.mlp_norm, layer.query_norm, layer.key_norm, layer.qkv_bias)
        return _Layer(
            self._linear(layer.qkv, kind),
            self._linear(layer.out, kind),
            self._linear(gate_up.flatten(0, 2), kind),
            self._linear(layer.down, kind),
            *(None if vector is None else self._keep(vector.float()) for vector in vectors),
            self._keys[index].data_ptr(),
            self._values[index].data_ptr(),
            layer.window or 0,
        )

    def _linear(self, weight: Tensor, kind: int) -> _Linear:
        """Pack [out, in] weights into panels of 32 outputs."""
        rows, depth = weight.shape
        full = -(-rows // COLUMNS) * COLUMNS
        source = weight.bfloat16().contiguous()
        if kind != INT8:
            panels = torch.empty(full * depth, dtype=torch.bfloat16)
            self._library.tokenpool_pack(source.data_ptr(), rows, depth, panels.data_ptr())
            return _Linear(depth, rows, self._keep(panels), None, None)
        panels = torch.empty(full * depth, dtype=torch.int8)
        scales, offsets = torch.empty(full, dtype=torch.float32), torch.empty(full, dtype=torch.int32)
        self._library.tokenpool_pack_int8(
            source.data_ptr(), rows, depth, panels.data_ptr(), scales.data_ptr(), offsets.data_ptr()
        )
        return _Linear(depth, rows, *map(self._keep, (panels, scales, offsets)))

    def _keep(self, tensor: Tensor) -> int:
        """Its address; the tensor stays."""
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


def _untouched(size: int) -> Tensor:
    """Zeros that take memory only where something was written: torch's own are written at once."""
    memory = mmap.mmap(-1, 2 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.bfloat16)


def _address(numbers: "array[int]") -> int:
    return numbers.buffer_info()[0]
