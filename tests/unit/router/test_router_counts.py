"""What a worker counts, and under which names."""

import pytest

from tokenpool_router import series
from tokenpool_router.journey.counts import Counts


@pytest.mark.parametrize("one", series.ALL, ids=lambda one: one.name)
def test_every_series_of_the_catalogue_has_a_counter(one: series.Series) -> None:
    assert Counts().value(one) == 0


def test_what_is_counted_is_reported_by_name_and_label() -> None:
    counts = Counts()
    counts.requests.add(1, "200")
    counts.requests.add(2, "200")
    counts.retries.add()
    counts.queue_seconds.observe(0.02)
    counts.queue_seconds.observe(0.03)
    report = counts.report()
    assert report["counters"] == [[series.REQUESTS.name, ["200"], 3], [series.RETRIES.name, [], 1]]
    [(name, labels, buckets, total)] = report["histograms"]
    assert (name, labels, sum(buckets), total) == (series.QUEUE_SECONDS.name, [], 2, 0.05)
    assert counts.value(series.QUEUE_SECONDS) == 2
