"""How is each engine started? Every one with its best known settings and with room for the same work.

Room: 64 requests of 512 tokens at the same time. vLLM takes whole GiB for its cache; one holds that for both models.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.cache import cache_folder
from cluster.processes import without_proxies
from engine_bench.server import Launch, free_port
from engine_bench.weights import Model

LENGTH, SEQUENCES, BUDGET = 512, 64, 1024
SERVED_NAME = "m"
# What the operator gives a shard's pod; a test compares.
POD_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}
# Left from the shell or the Makefile they would be another engine's settings; without bytecode every start is slower.
NOT_PASSED_ON = ("OMP_", "KMP_", "GOMP_", "MKL_", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "LD_PRELOAD", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Engine:
    """`launches` gives one server, or several that share the machine. `as_text`: it takes no token ids and no
    `ignore_eos`, so it gets texts and the model's copy without an end token.
    """

    name: str
    launches: Callable[[Model], list[Launch]]
    as_text: bool = False


def ours(*flags: str, name: str = "ours", servers: int = 1) -> Engine:
    """The shard engine as a pod starts it, with further flags."""
    return Engine(name, lambda model: [_ours(model, flags) for _ in range(servers)])


def _ours(model: Model, flags: tuple[str, ...]) -> Launch:
    port, admin = free_port(), free_port()
    command = [sys.executable, "-m", "tokenpool_engine", "serve", "--model", str(model.directory)]
    command += ["--served-name", SERVED_NAME, "--dtype", "bfloat16", "--host", "127.0.0.1"]
    command += ["--max-model-length", str(LENGTH), "--max-sequences", str(SEQUENCES)]
    command += ["--kv-cache-tokens", str(LENGTH * SEQUENCES), "--drain-seconds", "1"]
    command += ["--port", str(port), "--admin-port", str(admin), *flags]
    return Launch(command, environment(POD_ENVIRONMENT), SERVED_NAME, port, admin, "/readyz", [5, 6, 7])


def vllm(place: Path) -> Engine:
    """vLLM's CPU build, tuned: Intel's OpenMP preloaded, threads bound to the cores (10 to 17 % over its defaults)."""
    return Engine("vLLM-CPU", lambda model: [_vllm(place, model)])


def _vllm(place: Path, model: Model) -> Launch:
    port = free_port()
    command = [str(place / "bin/python"), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model.directory)]
    command += ["--served-model-name", SERVED_NAME, "--dtype", "bfloat16", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", str(LENGTH), "--max-num-seqs", str(SEQUENCES)]
    command += ["--max-num-batched-tokens", str(BUDGET)]
    settings = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": ranges(os.sched_getaffinity(0)),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache_folder() / "vllm"),
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": str(place / "lib/libiomp5.so"),
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
    }
    return Launch(command, environment(settings), SERVED_NAME, port, port, "/health", [5, 6, 7])


def transformers_serve(place: Path) -> Engine:
    """The server of transformers with continuous batching; it takes text only, and its model is named as the folder."""
    return Engine("transformers serve", lambda model: [_transformers_serve(place, model)], as_text=True)


def _transformers_serve(place: Path, model: Model) -> Launch:
    port, page = free_port(), 32
    command = [str(place / "bin/python"), str(place / "bin/transformers"), "serve", str(model.endless)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "bfloat16"]
    command += ["--continuous-batching", "--attn-implementation", "sdpa", "--cb-max-batch-tokens", str(BUDGET)]
    command += ["--cb-block-size", str(page), "--cb-num-blocks", str(LENGTH * SEQUENCES // page)]
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}
    return Launch(command, environment(settings), str(model.endless), port, port, "/health", "one two three")


def environment(settings: dict[str, str]) -> dict[str, str]:
    """This process's variables without those that tune an engine, and with its own."""
    kept = {name: value for name, value in without_proxies(os.environ).items() if not name.startswith(NOT_PASSED_ON)}
    return kept | settings


def ranges(cores: set[int]) -> str:
    """Cores as `0-3,6`."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
