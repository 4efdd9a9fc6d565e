"""One request's own arithmetic: its tokens by position, its limit, and when it is done."""

import pytest

from tokenpool_engine.request import STUCK, Finish, Picked, Request, Sampling


def request(
    answer: int = 4,
    stop_ids: frozenset[int] = frozenset(),
    output: tuple[int, ...] = (),
    sampling: Sampling | None = None,
) -> Request:
    return Request("r", (10, 11, 12), answer, sampling or Sampling(), stop_ids, list(output))


@pytest.mark.parametrize(
    ("start", "stop", "wanted"),
    [
        (0, 3, [10, 11, 12]),
        (1, 2, [11]),
        (2, 4, [12, 20]),
        (0, 5, [10, 11, 12, 20, 21]),
        (3, 5, [20, 21]),
        (4, 5, [21]),
        (3, 3, []),
    ],
)
def test_tokens_by_position_go_from_the_prompt_into_the_output(start: int, stop: int, wanted: list[int]) -> None:
    assert request(output=(20, 21)).tokens(start, stop) == wanted


def test_counts() -> None:
    one = request(answer=4, output=(20,))
    assert (one.known, one.limit) == (4, 7)


@pytest.mark.parametrize(
    ("computed", "output", "wanted"), [(0, (), 7), (2, (), 5), (3, (20,), 3), (5, (20, 21, 22), 1)]
)
def test_outstanding_is_prompt_and_answer_to_come(computed: int, output: tuple[int, ...], wanted: int) -> None:
    one = request(output=output)
    one.computed = computed
    assert one.outstanding == wanted


def test_it_ends_at_its_length() -> None:
    one = request(answer=2)
    one.append(Picked(20))
    assert (one.output, one.finish) == ([20], None)
    one.append(Picked(21))
    assert (one.output, one.finish) == ([20, 21], Finish.LENGTH)


def test_a_stop_token_ends_it_and_is_not_given_out_even_as_the_last_one() -> None:
    one = request(answer=2, stop_ids=frozenset({2}))
    one.append(Picked(20))
    one.append(Picked(2))
    assert (one.output, one.finish) == ([20], Finish.STOP)


def test_a_request_may_begin_with_output_that_counts_for_its_length() -> None:
    one = request(answer=4, output=(20, 21))
    assert (one.known, one.limit, one.outstanding) == (5, 7, 5)
    one.append(Picked(22))
    one.append(Picked(23))
    assert (one.output, one.finish) == ([20, 21, 22, 23], Finish.LENGTH)


def test_what_was_picked_is_kept_only_for_log_probabilities() -> None:
    plain, asked = request(), request(sampling=Sampling(0.0, logprobs=1))
    for one in (plain, asked):
        one.append(Picked(20, -0.5, ((20, -0.5),)))
    assert (plain.picked, asked.picked) == ([], [Picked(20, -0.5, ((20, -0.5),))])


def test_a_request_that_no_token_may_follow_ends_in_an_error_of_its_own() -> None:
    one = request(output=(20,))
    one.append(STUCK)
    assert (one.output, one.finish) == ([20], Finish.ERROR)
    assert one.trouble.startswith("the response_format allows no token")
