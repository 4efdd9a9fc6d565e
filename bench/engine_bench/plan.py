"""What is measured, in which order, with how many requests? Pure: keys and numbers, no engine is started here."""

from dataclasses import dataclass

BUDGETS = (128, 256, 512, 1024, 2048)
VLLM, SERVE, OURS = "vllm", "transformers-serve", "ours"


@dataclass(frozen=True)
class Point:
    """One load on a running server. `watched`: memory is read every second, which costs the server a little."""

    key: str
    clients: int
    requests: int
    in_groups: bool = False
    watched: bool = False


@dataclass(frozen=True)
class Visit:
    """A server of `engine` with `model` is started, meets its points in order, and is stopped."""

    model: str
    engine: str
    points: tuple[Point, ...]

    @property
    def key(self) -> str:
        """What results are filed under."""
        return f"{self.model} {self.engine}"


@dataclass(frozen=True)
class Sizes:
    """Requests for 1, 8, 32 and 64 clients. Enough that filling and emptying the batch weigh little."""

    one: int
    eight: int
    many: int
    most: int


FULL = Sizes(one=12, eight=48, many=160, most=256)
QUICK = Sizes(one=4, eight=16, many=96, most=128)


def points(sizes: Sizes) -> dict[int, Point]:
    """The ordinary points, by number of clients."""
    requests = {1: sizes.one, 8: sizes.eight, 32: sizes.many, 64: sizes.most}
    return {clients: Point(str(clients), clients, count) for clients, count in requests.items()}


def batching(sizes: Sizes) -> list[Visit]:
    """One at a time, static, dynamic: a fresh server each, so that each one's peak memory is its own."""
    one = Point("1", 1, sizes.one, watched=True)
    static = Point("32", 32, sizes.many, in_groups=True, watched=True)
    dynamic = Point("32", 32, sizes.many, watched=True)
    named = {"one-at-a-time": one, "static": static, "dynamic": dynamic}
    return [Visit("58m", f"ours-{name}", (point,)) for name, point in named.items()]


def quick() -> list[Visit]:
    """About two minutes: one model, one peer."""
    at = points(QUICK)
    three = (at[1], at[8], at[32])
    return [
        Visit("58m", OURS, (*three, at[64])),
        Visit("58m", VLLM, three),
        Visit("58m", "ours-int8", three),
        Visit("58m", "ours-two-shards", (at[64],)),
        *batching(QUICK),
    ]


def full() -> list[Visit]:
    """One round of everything; rounds are repeated, so engines take turns."""
    at = points(FULL)
    three = (at[1], at[8], at[32])
    return [
        Visit("58m", OURS, (*three, at[64])),
        Visit("58m", VLLM, three),
        Visit("58m", SERVE, (at[32],)),
        Visit("58m", "ours-int8", three),
        Visit("58m", "ours-two-shards", (at[64],)),
        *batching(FULL),
        *(Visit("58m", f"ours-budget-{budget}", (at[32],)) for budget in BUDGETS),
        Visit("smollm2", OURS, three),
        Visit("smollm2", VLLM, three),
        Visit("smollm2", SERVE, (at[32],)),
    ]
