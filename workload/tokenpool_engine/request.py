"""One request in the engine's terms: token ids in, token ids out. No text, no HTTP, no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple, Protocol

# Below this, dividing by the temperature leaves the range of float32; there is only the best token anyway.
COLDEST: Final = 1e-5


class Finish(StrEnum):
    """Why a request ended, in OpenAI's words where it has one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class Picked(NamedTuple):
    """The next token; with its log probability and the likeliest tokens (id, log probability) where asked for."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


# What a request gets when no token may follow, which only a grammar can bring about.
STUCK: Final = Picked(-1)


class Guide(Protocol):
    """Says which tokens may follow. One request's own, since it remembers how far it has read."""

    def allowed(self, output: Sequence[int]) -> bytes | None:
        """One bit a token, lowest bit first, of what may follow the output; None when nothing can."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is picked. Temperature 0 is greedy; what narrows a draw then does not matter."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    """How many of the likeliest tokens come with each picked one; None: no log probabilities at all."""
    min_tokens: int = 0
    """Stop ids are not picked before the output has as many."""
    guide: Guide | None = field(default=None, compare=False)

    @property
    def is_greedy(self) -> bool:
        """The best token is taken, whatever the random number."""
        return self.temperature < COLDEST

    @cached_property
    def has_penalties(self) -> bool:
        """Earlier tokens change the scores of later ones."""
        return bool(self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1)

    @cached_property
    def changes_scores(self) -> bool:
        """The model's logits are not what is picked from."""
        return bool(self.has_penalties or self.logit_bias or self.min_tokens or self.guide)

    @cached_property
    def is_plain(self) -> bool:
        """The token with the highest logit is the whole answer."""
        return self.is_greedy and not self.changes_scores and self.logprobs is None


@dataclass(eq=False)
class Request:
    """A request and how far it is. Mutated only by the scheduler, on the engine's thread.

    It may begin with output: what another shard has generated already. `max_tokens` bounds both together.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    output: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    reached: int = 0
    """The most that `computed` ever was: what lies below is computed again after a preemption."""
    finish: Finish | None = None
    picked: list[Picked] = field(default_factory=list)
    """What is not handed out yet, where log probabilities were asked for."""
    trouble: str = ""
    """Why it ended with an error of its own."""

    @property
    def known(self) -> int:
        """Tokens that exist: prompt and output."""
        return len(self.prompt) + len(self.output)

    @property
    def limit(self) -> int:
        """Tokens that may ever be in the cache."""
        return len(self.prompt) + self.max_tokens

    @property
    def outstanding(self) -> int:
        """Prompt tokens not yet computed plus tokens that may still be generated."""
        return max(len(self.prompt) - self.computed, 0) + self.max_tokens - len(self.output)

    @cached_property
    def prompt_ids(self) -> frozenset[int]:
        """The different tokens of the prompt."""
        return frozenset(self.prompt)

    def tokens(self, start: int, stop: int) -> list[int]:
        """Ids of positions start … stop - 1."""
        size = len(self.prompt)
        if start >= size:
            return self.output[start - size : stop - size]
        return list(self.prompt[start:stop]) + self.output[: max(stop - size, 0)]

    def append(self, picked: Picked) -> None:
        """Take the next token and see whether the request is done. A stop token is not part of the output."""
        if picked.token < 0:
            self.finish, self.trouble = Finish.ERROR, "the response_format allows no token after what was generated"
            return
        if picked.token in self.stop_ids:
            self.finish = Finish.STOP
            return
        self.output.append(picked.token)
        if self.sampling.logprobs is not None:
            self.picked.append(picked)
        if len(self.output) >= self.max_tokens:
            self.finish = Finish.LENGTH
