"""Puts a shard together: weights, KV cache, scheduler, engine. Importing it loads torch, which takes seconds."""

import os

import torch

from tokenpool_engine.cache import Ledger
from tokenpool_engine.compute import ladder, loader, memory, trial
from tokenpool_engine.compute.choose import Room, choose
from tokenpool_engine.compute.native import PAGE_TOKENS, Native
from tokenpool_engine.compute.padded import MOST_GATHERED
from tokenpool_engine.compute.parallel import team
from tokenpool_engine.compute.runner import Runner
from tokenpool_engine.compute.shape import cache_shape
from tokenpool_engine.compute.sparing import give_back
from tokenpool_engine.compute.tuning import Tuning
from tokenpool_engine.engine import Engine, monotonic
from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.metrics import Metrics
from tokenpool_engine.scheduler import Scheduler
from tokenpool_engine.settings import Serve
from tokenpool_engine.shard import Limits, Parts, Shard

LARGEST_CACHE_TOKENS = 1 << 24


def build(settings: Serve, shard: Shard) -> Parts:
    """Load the model and put the engine together; blocks, so call it in a thread. Raises StartError."""
    threads = settings.threads or max(usable_cpus() // settings.tensor_parallel, 1)
    torch.set_num_threads(threads)
    ranks = team(settings.tensor_parallel, threads, Tuning(settings.matmul_precision, settings.cudnn_benchmark))
    shard.enter("loading weights")
    try:
        loaded = ranks.load(settings.model, settings.dtype)
        shard.enter("proving and packing the model")
        budget = settings.token_budget or (1024 if loaded.device.type == "cuda" else 512)
        ledger = Ledger(_pages(settings, loaded, budget), PAGE_TOKENS)
        length = min(settings.max_model_length or loaded.max_length, loaded.max_length, ledger.capacity_tokens)
        sequences = min(settings.max_sequences, budget)
        room = Room(ledger.pages, length, threads, budget, sequences, settings.cuda_graphs)
        model = ranks.guard(lambda: choose(loaded, room, ranks, int8=settings.quantization == "int8"))
    except (MemoryError, RuntimeError) as error:
        if not is_memory_shortage(error):
            raise
        raise StartError(
            Reason.OUT_OF_MEMORY,
            f"{settings.model} does not fit: {str(error) or type(error).__name__}; lower shards.kvCacheTokens",
        ) from error
    give_back()
    if isinstance(model, Native):
        ledger.kept_at_first = ledger.pages // 8
    metrics = Metrics(ledger, budget, monotonic, settings.served_name)
    scheduler = Scheduler(ledger, budget, settings.max_sequences)
    runner = Runner(model)
    metrics.padding = lambda: runner.padded_rows
    return Parts(
        engine=Engine(scheduler, runner, metrics, monotonic),
        metrics=metrics,
        tokenizer=loaded.tokenizer,
        stop_ids=loaded.stop_ids,
        limits=Limits(length, settings.queue_tokens),
        vocabulary=loaded.model.config.vocab_size,
        ranks=ranks if ranks.size > 1 else None,
    )


def is_memory_shortage(error: Exception) -> bool:
    """Whether memory was short. torch has a type for the device's, but says it of main memory in words only."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "allocate" in str(error)


def _pages(settings: Serve, loaded: loader.Loaded, budget: int) -> int:
    """Pages of the KV cache: as told, or what fits into free memory."""
    wanted = settings.kv_cache_tokens
    if wanted is None:
        # No more than all sequences at full length could use.
        length = min(settings.max_model_length or loaded.max_length, loaded.max_length)
        wanted = min(_fitting(settings, loaded, budget, length), settings.max_sequences * length, LARGEST_CACHE_TOKENS)
    if wanted < PAGE_TOKENS:
        raise StartError(Reason.OUT_OF_MEMORY, "no memory is left for the KV cache; give the shard more")
    return wanted // PAGE_TOKENS


def _fitting(settings: Serve, loaded: loader.Loaded, budget: int, length: int) -> int:
    """Tokens for which there is memory: on one GPU measured by a trial, else in a share of what is free."""
    bytes_per_token = cache_shape(loaded.model).bytes_per_token(loaded.model.dtype.itemsize)
    if loaded.device.type == "cuda" and settings.tensor_parallel == 1:
        # A context longer than this has no place in the cache either.
        length = min(length, max(memory.free_bytes(loaded.device) // bytes_per_token, PAGE_TOKENS))
        sequences = min(settings.max_sequences, budget)
        step_bytes = trial.step_bytes(loaded, budget, sequences, length, PAGE_TOKENS)
        recorded = ladder.rungs(sequences, -(-length // PAGE_TOKENS), MOST_GATHERED) if settings.cuda_graphs else ()
        return memory.cache_bytes(memory.measure(loaded.device, step_bytes), len(recorded)) // bytes_per_token
    # Ranks without a GPU of their own share the pod's memory.
    sharing = settings.tensor_parallel if loaded.device.type == "cpu" else 1
    return memory.cache_tokens(loaded.device, bytes_per_token * sharing)


def usable_cpus() -> int:
    """CPUs of the container's quota, at least one."""
    allowed = len(os.sched_getaffinity(0))
    quota = memory.cpu_quota()
    return max(min(allowed, int(quota)) if quota else allowed, 1)
