"""One request in the engine's terms: token ids in, token ids out. No text, no HTTP, no torch."""

from dataclasses import dataclass, field
from enum import StrEnum

# Below this, dividing by the temperature leaves the range of float32; there is only the best token anyway.
COLDEST = 1e-5


class Finish(StrEnum):
    """Why a request ended, in OpenAI's words where it has one."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True)
class Sampling:
    """How the next token is picked. Temperature 0 is greedy; the rest then does not matter."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    @property
    def is_plain(self) -> bool:
        """The best token, and nothing else is asked for."""
        return self.temperature < COLDEST


@dataclass(eq=False)
class Request:
    """A request and how far it is. Mutated only by the scheduler, on the engine's thread."""

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    output: list[int] = field(default_factory=list)
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    finish: Finish | None = None

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

    def tokens(self, start: int, stop: int) -> list[int]:
        """Ids of positions start … stop - 1."""
        size = len(self.prompt)
        if start >= size:
            return self.output[start - size : stop - size]
        return list(self.prompt[start:stop]) + self.output[: max(stop - size, 0)]

    def append(self, token: int) -> None:
        """Take the next token and see whether the request is done. A stop token is not part of the output."""
        if token in self.stop_ids:
            self.finish = Finish.STOP
            return
        self.output.append(token)
        if len(self.output) >= self.max_tokens:
            self.finish = Finish.LENGTH
