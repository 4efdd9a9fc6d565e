"""The fair queue, the drain rate, and when to come back."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpool_router.waiting import DrainRate, FairQueue, Priority, QueueFull, Ticket, retry_after


def served(queue: FairQueue[str], count: int = 1000) -> str:
    """Who gets what it waits for, in order."""
    found = ""
    while count and (ticket := queue.peek()):
        queue.serve(ticket)
        found, count = found + ticket.item, count - 1
    return found


def test_one_caller_is_served_in_the_order_of_coming() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    for item in "abc":
        queue.push(item, tokens=10)
    assert (len(queue), queue.tokens) == (3, 30)
    assert served(queue) == "abc"
    assert (len(queue), queue.tokens, queue.peek()) == (0, 0, None)


def test_callers_take_turns_by_tokens_and_weight_not_by_requests() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    for _ in range(30):
        queue.push("a", tokens=10, caller="many small")
        queue.push("b", tokens=100, caller="few large")
        queue.push("c", tokens=10, caller="double", weight=2.0)
    order = served(queue, 33)
    assert [order.count(one) for one in "abc"] == [11, 2, 20], "10 tokens, 20 tokens a turn"


def test_priorities_are_strict() -> None:
    queue: FairQueue[str] = FairQueue(1000)
    for item, priority in (("l", Priority.LOW), ("n", Priority.NORMAL), ("h", Priority.HIGH), ("m", Priority.NORMAL)):
        queue.push(item, tokens=10, caller=item, priority=priority)
    assert served(queue) == "hnml"


def test_who_was_away_has_no_credit() -> None:
    queue: FairQueue[str] = FairQueue(10_000)
    for _ in range(20):
        queue.push("a", tokens=10, caller="a")
    assert served(queue, 10) == "a" * 10
    for _ in range(10):
        queue.push("b", tokens=10, caller="b")
    order = served(queue)
    assert order[:10].count("b") in (5, 6)


def test_it_is_bounded_in_tokens_and_who_leaves_makes_room_and_pays_nothing() -> None:
    queue: FairQueue[str] = FairQueue(100)
    first = queue.push("a", tokens=60, caller="x")
    with pytest.raises(QueueFull):
        queue.push("b", tokens=41, caller="y")
    queue.leave(first)
    queue.leave(first)
    assert (len(queue), queue.tokens) == (0, 0)
    queue.push("b", tokens=100, caller="y")
    assert served(queue) == "b"


@given(
    st.lists(
        st.tuples(st.sampled_from("pslx"), st.integers(0, 50), st.sampled_from("abc"), st.sampled_from([*Priority])),
        max_size=80,
    )
)
def test_sums_are_right_and_everybody_is_served_once_over_any_history(
    history: list[tuple[str, int, str, Priority]],
) -> None:
    queue: FairQueue[int] = FairQueue(400)
    waiting: dict[int, Ticket[int]] = {}
    for number, (action, tokens, caller, priority) in enumerate(history):
        if action in "px":
            try:
                waiting[number] = queue.push(
                    number, tokens=tokens, caller=caller, priority=priority, weight=1 + tokens % 3
                )
            except QueueFull:
                assert queue.tokens + tokens > 400
        elif action == "s" and (ticket := queue.peek()):
            best = min([*Priority].index(one.priority) for one in waiting.values())
            assert [*Priority].index(ticket.priority) == best
            mine = [n for n, one in waiting.items() if (one.caller, one.priority) == (ticket.caller, ticket.priority)]
            assert ticket.item == min(mine)
            queue.serve(waiting.pop(ticket.item))
        elif action == "l" and waiting:
            queue.leave(waiting.pop(sorted(waiting)[tokens % len(waiting)]))
        assert (len(queue), queue.tokens) == (len(waiting), sum(one.tokens for one in waiting.values()))
        assert (queue.peek() is None) == (not waiting)


@given(st.integers(1, 4), st.lists(st.integers(1, 100), min_size=60, max_size=60))
def test_two_callers_that_always_wait_get_tokens_in_proportion_to_their_weights(weight: int, sizes: list[int]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue(1_000_000)
    for size in sizes:
        queue.push(("a", size), tokens=size, caller="a")
        for _ in range(weight):
            queue.push(("b", size), tokens=size, caller="b", weight=float(weight))
    got = {"a": 0, "b": 0}
    for _ in range(len(sizes)):
        ticket = queue.peek()
        assert ticket
        queue.serve(ticket)
        got[ticket.item[0]] += ticket.item[1]
        assert abs(got["a"] - got["b"] / weight) <= 2 * max(sizes)


def test_the_drain_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = DrainRate()
    assert rate.rate(100.0) == 0
    rate.add(50, 100.0)
    assert rate.rate(100.0) == 50, "a first second is not shorter than a second"
    rate.add(150, 102.0)
    assert rate.rate(104.0) == 200 / 4
    for second in range(3, 30):
        rate.add(100, 100.0 + second)
    assert rate.rate(129.0) == pytest.approx(100)
    assert rate.rate(139.0) == 0
    rate.add(10, 500.0)
    assert rate.rate(500.0) == 10, "after a pause it begins anew"


@pytest.mark.parametrize(
    ("backlog", "rate", "least", "most"), [(1000, 100, 10, 15), (1, 100, 1, 1.5), (10**9, 1, 60, 90), (500, 0, 5, 7.5)]
)
def test_when_to_come_back(backlog: int, rate: float, least: float, most: float) -> None:
    found = [retry_after(backlog, rate, Random(seed)) for seed in range(200)]
    assert least <= min(found) < least * 1.05
    assert most * 0.95 < max(found) <= most
