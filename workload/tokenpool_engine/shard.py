"""The assembled shard: model, engine, limits and the stage it is in. Server and admin read it."""

import os
from dataclasses import dataclass
from typing import Any

import torch

from tokenpool_engine import loader, memory
from tokenpool_engine.cache import Ledger
from tokenpool_engine.engine import Engine, monotonic
from tokenpool_engine.failure import Reason, StartError
from tokenpool_engine.metrics import Metrics
from tokenpool_engine.runner import Runner, cache_shape
from tokenpool_engine.scheduler import Scheduler
from tokenpool_engine.settings import Serve

PAGE_TOKENS = 32
LARGEST_CACHE_TOKENS = 1 << 24


@dataclass(frozen=True)
class Limits:
    """What one request may ask for, in tokens."""

    model_length: int
    queue_tokens: int


@dataclass(frozen=True)
class Parts:
    """Everything that exists once the model is loaded."""

    engine: Engine
    metrics: Metrics
    tokenizer: Any
    stop_ids: frozenset[int]
    limits: Limits
    vocabulary: int


@dataclass
class Shard:
    """The process's state as others see it."""

    served_name: str
    stage: str = "starting"
    draining: bool = False
    parts: Parts | None = None

    @property
    def not_ready(self) -> str:
        """Why the shard takes no requests now; empty while it does."""
        if self.draining:
            return "draining"
        if self.parts is None:
            return self.stage
        return self.parts.engine.trouble()


def build(settings: Serve, shard: Shard) -> Parts:
    """Load the model and put the engine together; blocks, so call it in a thread. Raises StartError."""
    torch.set_num_threads(settings.threads or usable_cpus())
    shard.stage = "loading weights"
    try:
        loaded = loader.load(settings.model, settings.dtype)
        shard.stage = "making the KV cache"
        ledger = Ledger(_pages(settings, loaded), PAGE_TOKENS)
        runner = Runner(loaded, ledger.capacity_tokens, PAGE_TOKENS)
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise StartError(
            Reason.OUT_OF_MEMORY, f"{settings.model} does not fit: {error}; lower shards.kvCacheTokens"
        ) from error
    budget = settings.token_budget or (1024 if loaded.device.type == "cuda" else 512)
    metrics = Metrics(ledger, budget, monotonic)
    scheduler = Scheduler(ledger, budget, settings.max_sequences)
    length = min(settings.max_model_length or loaded.max_length, loaded.max_length, ledger.capacity_tokens)
    return Parts(
        engine=Engine(scheduler, runner, metrics, monotonic),
        metrics=metrics,
        tokenizer=loaded.tokenizer,
        stop_ids=loaded.stop_ids,
        limits=Limits(length, settings.queue_tokens),
        vocabulary=loaded.model.config.vocab_size,
    )


def _pages(settings: Serve, loaded: loader.Loaded) -> int:
    """Pages of the KV cache: as told, or what fits into free memory."""
    shape = cache_shape(loaded)
    wanted = settings.kv_cache_tokens
    if wanted is None:
        # No more than all sequences at full length could use.
        most = settings.max_sequences * min(settings.max_model_length or loaded.max_length, loaded.max_length)
        wanted = min(memory.cache_tokens(loaded.device, shape.bytes_per_token), most, LARGEST_CACHE_TOKENS)
    if wanted < PAGE_TOKENS:
        raise StartError(Reason.OUT_OF_MEMORY, "no memory is left for the KV cache; give the shard more")
    return wanted // PAGE_TOKENS


def usable_cpus() -> int:
    """CPUs of the container's quota, at least one."""
    allowed = len(os.sched_getaffinity(0))
    quota = memory.cpu_quota()
    return max(min(allowed, int(quota)) if quota else allowed, 1)
