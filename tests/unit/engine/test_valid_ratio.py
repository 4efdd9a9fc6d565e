"""The share of computed rows that brought a request forward."""

import pytest

from tokenpool_engine.cache import Ledger
from tokenpool_engine.metrics import Metrics


@pytest.mark.parametrize(
    ("rows", "recomputed", "padded", "ratio"),
    [(0, 0, 0, 1.0), (100, 0, 0, 1.0), (100, 25, 0, 0.75), (100, 0, 25, 0.8), (100, 25, 50, 0.5)],
)
def test_neither_what_was_computed_again_nor_padding_counts(
    rows: int, recomputed: int, padded: int, ratio: float
) -> None:
    metrics = Metrics(Ledger(4, 32), 64, lambda: 0.0)
    metrics.rows, metrics.recomputed, metrics.padding = rows, recomputed, lambda: padded
    assert metrics.valid_ratio() == pytest.approx(ratio)
    assert metrics.padded_rows() == padded
