"""Models whose greedy answers are compared with transformers' own `generate`, and what drives scheduler and runner.

Weights are random but scaled so that an answer depends on every token before it: an ordinary initialization repeats one
token for ever, and then a wrong mask or position goes unnoticed.
"""

import copy
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    Gemma3TextConfig,
    GemmaConfig,
    Glm4Config,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    Olmo2Config,
    OlmoConfig,
    Phi3Config,
    PhiConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
)

from tokenpool_engine.cache import Ledger
from tokenpool_engine.request import Picked, Request, Sampling
from tokenpool_engine.scheduler import Scheduler, Step

PAGE_TOKENS = 8
MAX_LENGTH = 256
ANSWER_TOKENS = 16
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
COMMON: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "max_position_embeddings": MAX_LENGTH,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
GROUPED = {**COMMON, **HEADS}
# Models that have no grouped heads, or no head size of their own.
PLAIN = {**COMMON, "num_attention_heads": 4}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2}


def rope(kind: str, **parameters: Any) -> dict[str, Any]:
    """Settings of scaled rotary positions."""
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **parameters}}


CONFIGS: dict[str, Any] = {
    "llama": LlamaConfig(**{**GROUPED, "num_key_value_heads": 4}),
    "llama, grouped heads": LlamaConfig(**GROUPED),
    "llama, one key head": LlamaConfig(**{**GROUPED, "num_key_value_heads": 1}),
    "llama, tied embeddings": LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "llama, rope llama3": LlamaConfig(
        **GROUPED,
        **rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32),
    ),
    "llama, rope linear": LlamaConfig(**GROUPED, **rope("linear")),
    "llama, rope dynamic": LlamaConfig(**GROUPED, **rope("dynamic")),
    "llama, rope yarn": LlamaConfig(**GROUPED, **rope("yarn", original_max_position_embeddings=MAX_LENGTH // 2)),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen2, a window in some layers": Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=12, max_window_layers=1
    ),
    "qwen3": Qwen3Config(**GROUPED),
    "mistral, window": MistralConfig(**GROUPED, sliding_window=12),
    "gemma": GemmaConfig(**GROUPED),
    "gemma3": Gemma3TextConfig(
        **GROUPED,
        sliding_window=12,
        layer_types=["sliding_attention", "full_attention"],
        query_pre_attn_scalar=1,
    ),
    "gpt2": GPT2Config(
        vocab_size=128,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=MAX_LENGTH,
        bos_token_id=None,
        eos_token_id=None,
    ),
    "gpt-neox": GPTNeoXConfig(**PLAIN),
    "phi": PhiConfig(**PLAIN, num_key_value_heads=2),
    "phi3": Phi3Config(**{**PLAIN, "pad_token_id": 0}, num_key_value_heads=2),
    "phi3, rope longrope": Phi3Config(
        **{**PLAIN, "pad_token_id": 0},
        num_key_value_heads=2,
        original_max_position_embeddings=MAX_LENGTH // 2,
        **rope(
            "longrope",
            short_factor=[1.0, 1.5, 2.0, 2.5],
            long_factor=[4.0] * 4,
            original_max_position_embeddings=MAX_LENGTH // 2,
        ),
    ),
    "olmo": OlmoConfig(**PLAIN, num_key_value_heads=2, clip_qkv=2.0),
    "olmo2": Olmo2Config(**PLAIN, num_key_value_heads=2),
    "granite": GraniteConfig(**PLAIN, num_key_value_heads=2, attention_multiplier=0.3, residual_multiplier=0.5),
    "cohere2, a window in some layers": Cohere2Config(
        **{**PLAIN, "pad_token_id": 0},
        num_key_value_heads=2,
        sliding_window=12,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "glm4": Glm4Config(**{**GROUPED, "pad_token_id": 0}),
    "qwen2-moe": Qwen2MoeConfig(
        **PLAIN,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        shared_expert_intermediate_size=24,
    ),
    "mixtral": MixtralConfig(**EXPERTS, num_local_experts=4),
    "qwen3-moe": Qwen3MoeConfig(**EXPERTS, num_experts=4, moe_intermediate_size=24),
}


def _prompts() -> dict[str, tuple[int, ...]]:
    chance = random.Random(3)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(chance.randrange(1, 127) for _ in range(count))

    ragged = {f"of {length}": tokens(length) for length in (1, 37, 5, 60, 16, 9)}
    prefix = tokens(5 * PAGE_TOKENS)
    return ragged | {"shared, one": prefix + tokens(3), "shared, other": prefix + tokens(11), "prefix alone": prefix}


PROMPTS = _prompts()


@dataclass(frozen=True)
class Play:
    """How requests meet the engine: waves, each of which comes when the one before is done; budget and pages."""

    waves: tuple[tuple[str, ...], ...]
    budget: int = 512
    pages: int = 128
    shares: bool = False
    preempts: bool = False


RAGGED = tuple(name for name in PROMPTS if name.startswith("of"))
PLAYS = {
    "alone": Play((("of 37",), ("of 1",))),
    "batched": Play((RAGGED,)),
    "chunked": Play((RAGGED,), budget=11),
    "a prefix shared at once": Play((("shared, one", "of 9", "shared, other"),), budget=32),
    "a prefix shared afterwards": Play(
        (("shared, one",), ("shared, other", "prefix alone", "of 5")), budget=32, shares=True
    ),
    # Room for the longest request and little more, so that the others have to wait or to give way.
    "few pages": Play((RAGGED,), budget=24, pages=12, shares=True, preempts=True),
}


class Computer(Protocol):
    """What computes steps."""

    def run(self, step: Step) -> dict[str, Picked]:
        """Request id → next token, for slices that sample."""


@dataclass(frozen=True)
class Model:
    """Random weights, and what the model itself answers to the prompts."""

    config: Any
    reference: Any
    wanted: dict[str, list[int]]


@cache
def model(name: str) -> Model:
    """The model of a row of `CONFIGS`."""
    # A model keeps and changes the config that it is made from, so each gets its own.
    config = copy.deepcopy(CONFIGS[name])
    torch.manual_seed(1)
    reference = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    enliven(reference)
    return Model(config, reference, {name: generate(reference, prompt) for name, prompt in PROMPTS.items()})


@torch.no_grad()
def enliven(model: Any) -> None:
    """Weights of such a size that attention chooses and layers outweigh embeddings; biases and norms do something."""
    embeddings = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    for parameter in model.parameters():
        if parameter.dim() > 1:
            size = 0.5 if id(parameter) in embeddings else 3.0
            torch.nn.init.normal_(parameter, std=size * parameter.shape[-1] ** -0.5)
        else:
            parameter.add_(torch.randn_like(parameter) * 0.2)


def generate(model: Any, prompt: Sequence[int], tokens: int = ANSWER_TOKENS) -> list[int]:
    """The greedy answer of transformers itself."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    found: list[int] = output[0, len(prompt) :].tolist()
    return found


def tells(answers: Collection[Sequence[int]]) -> bool:
    """Whether these answers can tell right from wrong: those that repeat one token and are all alike cannot."""
    kinds = [len(set(answer)) for answer in answers]
    return sum(kinds) / len(kinds) > 5 and len({token for answer in answers for token in answer}) > 20


def play(runner: Computer, one: Play) -> dict[str, list[int]]:
    """Answers by prompt."""
    waves = [[Request(name, PROMPTS[name], ANSWER_TOKENS, Sampling(0.0)) for name in wave] for wave in one.waves]
    scheduler = drive(runner, waves, one.budget, one.pages)
    # A play that does not bring about what it is named after proves nothing.
    assert (scheduler.preemptions > 0) == one.preempts
    assert (scheduler.ledger.shared_tokens > 0) == one.shares
    return {request.id: request.output for wave in waves for request in wave}


def wanted(model: Model, one: Play) -> dict[str, list[int]]:
    """What `play` should give."""
    return {name: model.wanted[name] for wave in one.waves for name in wave}


def drive(runner: Computer, waves: Sequence[Sequence[Request]], budget: int, pages: int) -> Scheduler:
    """Run every wave to its end, as the engine's loop does; the scheduler knows what it took."""
    ledger = Ledger(pages, PAGE_TOKENS)
    scheduler = Scheduler(ledger, budget, max_sequences=8)
    for wave in waves:
        for request in wave:
            scheduler.submit(request)
        while not scheduler.is_idle:
            step = scheduler.plan()
            scheduler.commit(step, runner.run(step))
    ledger.check()
    return scheduler
