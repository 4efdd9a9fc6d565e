import pytest

from tokenpool_kube.backoff import Backoff


def test_doubles_up_to_a_cap_and_starts_again_after_success() -> None:
    backoff = Backoff(chance=lambda: 1.0)
    assert [backoff.next_seconds() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 16, 16]
    backoff.reset()
    assert backoff.next_seconds() == 0.5


def test_never_overflows() -> None:
    backoff = Backoff()
    assert max(backoff.next_seconds() for _ in range(2000)) <= 16


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 0.25), (0.5, 0.375), (1.0, 0.5)])
def test_jitter_takes_off_up_to_half(chance: float, seconds: float) -> None:
    assert Backoff(chance=lambda: chance).next_seconds() == seconds


@pytest.mark.parametrize(("retry_after", "seconds"), [(7, 7.5), (0.1, 0.6), (10**6, 300.5)])
def test_retry_after_comes_on_top_and_is_bounded(retry_after: float, seconds: float) -> None:
    assert Backoff(chance=lambda: 1.0).next_seconds(retry_after) == seconds
