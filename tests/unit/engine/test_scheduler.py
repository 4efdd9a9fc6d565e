"""What each step holds, by hand and over random histories of requests that come, run, fail and are cancelled."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenpool_engine.cache import Ledger
from tokenpool_engine.request import Finish, Picked, Request
from tokenpool_engine.scheduler import Scheduler, Step

BUDGET, SEQUENCES, PAGE = 16, 4, 4


def request(name: str, prompt: int, answer: int, stop_ids: frozenset[int] = frozenset()) -> Request:
    return Request(name, tuple(range(1, prompt + 1)), answer, stop_ids=stop_ids)


def scheduler(pages: int = 32) -> Scheduler:
    return Scheduler(Ledger(pages, PAGE), BUDGET, SEQUENCES)


def shape(step: Step) -> list[tuple[str, int, int, bool]]:
    return [(part.request.id, part.start, part.stop, part.samples) for part in step.slices]


def run(subject: Scheduler, step: Step, token: int = 7) -> None:
    subject.commit(step, {part.request.id: Picked(token) for part in step.slices if part.samples})


def test_a_prompt_goes_in_chunks_and_decodes_come_first() -> None:
    subject = scheduler()
    subject.submit(request("long", 30, 3))
    step = subject.plan()
    assert shape(step) == [("long", 0, 16, False)]
    run(subject, step)
    subject.submit(request("short", 2, 2))
    step = subject.plan()
    assert shape(step) == [("long", 16, 30, True), ("short", 0, 2, True)]
    run(subject, step)
    subject.submit(Request("next", (9,) * 20, 1))
    step = subject.plan()
    assert shape(step) == [("long", 30, 31, True), ("short", 2, 3, True), ("next", 0, 14, False)]


def test_a_request_ends_at_its_length_and_gives_its_pages_back() -> None:
    subject = scheduler()
    one = request("one", 3, 2)
    subject.submit(one)
    run(subject, subject.plan(), token=5)
    assert (one.output, one.finish) == ([5], None)
    run(subject, subject.plan(), token=6)
    assert (one.output, one.finish) == ([5, 6], Finish.LENGTH)
    assert subject.is_idle
    subject.ledger.check()
    assert subject.ledger.reserved_tokens == 0


def test_a_stop_token_ends_a_request_and_is_not_part_of_it() -> None:
    subject = scheduler()
    one = request("one", 3, 9, stop_ids=frozenset({2}))
    subject.submit(one)
    run(subject, subject.plan(), token=8)
    run(subject, subject.plan(), token=2)
    assert (one.output, one.finish) == ([8], Finish.STOP)


def test_nobody_overtakes_a_request_that_waits_for_room() -> None:
    subject = scheduler(pages=10)
    subject.submit(request("first", 16, 4))
    subject.submit(Request("big", tuple(range(60, 90)), 2))
    subject.submit(request("small", 1, 1))
    assert [part.request.id for part in subject.plan().slices] == ["first"]
    assert [waiting.id for waiting in subject.waiting] == ["big", "small"]


def test_what_can_never_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        scheduler(pages=2).submit(request("huge", 30, 30))


def test_who_finds_no_page_takes_those_of_the_youngest_which_starts_again_where_pages_were_kept() -> None:
    subject = scheduler(pages=6)
    old, young = request("old", 8, 12), Request("young", tuple(range(50, 58)), 6)
    subject.submit(old)
    subject.submit(young)
    run(subject, subject.plan())
    assert shape(subject.plan()) == [("old", 8, 9, True), ("young", 8, 9, True)]
    for _ in range(4):
        run(subject, subject.plan())
    # Six pages: three for the 12 tokens of each. The thirteenth token of the old one needs a fourth.
    assert shape(subject.plan()) == [("old", 12, 13, True)]
    assert (list(subject.waiting), subject.preemptions) == ([young], 1)
    while old.finish is None:
        run(subject, subject.plan())
    assert shape(subject.plan()) == [("young", 4, 13, True)]
    while young.finish is None:
        run(subject, subject.plan())
    assert (old.output, young.output) == ([7] * 12, [7] * 6)


def test_a_common_beginning_is_computed_once() -> None:
    subject = scheduler()
    subject.submit(request("first", 11, 2))
    run(subject, subject.plan())
    subject.submit(request("second", 12, 1))
    assert shape(subject.plan()) == [("first", 11, 12, True), ("second", 8, 12, True)]
    assert subject.ledger.shared_tokens == 8


def test_what_a_failed_step_computed_is_shared_with_nobody() -> None:
    subject = scheduler()
    one = request("one", 12, 3)
    subject.submit(one)
    run(subject, subject.plan())
    subject.fail(subject.plan())
    subject.submit(request("two", 12, 3))
    assert shape(subject.plan()) == [("two", 0, 12, True)]


def test_a_failed_step_ends_its_own_requests_only() -> None:
    subject = scheduler()
    subject.submit(request("one", 16, 4))
    subject.submit(Request("two", (9,) * 16, 4))
    step = subject.plan()
    assert [failed.id for failed in subject.fail(step)] == ["one"]
    assert [part.request.id for part in subject.plan().slices] == ["two"]


def test_outstanding_tokens_are_prompt_and_answer_still_to_come() -> None:
    subject = scheduler()
    subject.submit(request("one", 20, 5))
    assert subject.outstanding_tokens == 25
    run(subject, subject.plan())
    assert subject.outstanding_tokens == 9
    run(subject, subject.plan())
    assert subject.outstanding_tokens == 4


ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 40), st.integers(1, 12)),
    st.tuples(st.just("step"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("cancel"), st.integers(0, 20), st.just(0)),
    st.tuples(st.just("fail"), st.just(0), st.just(0)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ACTIONS, max_size=50))
def test_invariants_over_any_history(history: list[tuple[str, int, int]]) -> None:
    subject = scheduler(pages=16)
    everyone: list[Request] = []
    cached: dict[int, tuple[int, ...]] = {}
    for number, (kind, first, second) in enumerate(history):
        if kind == "submit":
            beginning = number % 3 * 100  # many begin as others do
            prompt = tuple(range(beginning + 1, beginning + 1 + first))
            one = Request(f"r{number}", prompt, second, stop_ids=frozenset({0}))
            everyone.append(one)
            subject.submit(one)
        elif kind == "cancel" and everyone:
            subject.cancel(everyone[first % len(everyone)])
        else:
            step = subject.plan()
            assert_step(subject, step)
            compute(step, cached)
            if kind == "fail":
                subject.fail(step)
            else:
                run(subject, step, token=first)
        subject.ledger.check()
    for _ in range(len(everyone) * 60):
        if subject.is_idle:
            break
        step = subject.plan()
        assert_step(subject, step)
        assert step.slices, "there is work, so every step does some"
        compute(step, cached)
        run(subject, step)
    assert subject.is_idle
    assert subject.ledger.reserved_tokens == 0
    assert all(one.finish and len(one.output) <= one.max_tokens for one in everyone)


def compute(step: Step, cached: dict[int, tuple[int, ...]]) -> None:
    """Stands for the tensors: `cached` is what each page holds. What a slice looks at must be its own tokens."""
    for part in step.slices:
        tokens = part.request.tokens(0, part.stop)
        for place in range(part.start, part.stop):
            page = part.pages[place // PAGE]
            before = cached.get(page, ())[: place % PAGE]
            cached[page] = (*before, tokens[place])
    for part in step.slices:
        tokens = part.request.tokens(0, part.stop)
        for start in range(0, part.stop, PAGE):
            own = tuple(tokens[start : start + PAGE])
            assert cached[part.pages[start // PAGE]][: len(own)] == own


def assert_step(subject: Scheduler, step: Step) -> None:
    assert subject.outstanding_tokens == sum(one.outstanding for one in (*subject.waiting, *subject.running))
    assert step.size <= BUDGET
    assert len(subject.running) <= SEQUENCES
    in_step = {part.request.id for part in step.slices}
    decoding = [one for one in subject.running if one.known - one.computed == 1]
    assert {one.id for one in decoding} <= in_step, "a decode waits for nobody"
    for part in step.slices:
        assert part.start == part.request.computed < part.stop <= part.request.known
        assert part.samples == (part.stop == part.request.known)
        assert len(part.pages) * PAGE >= part.stop
