"""Medians, percentiles and spread of a few numbers. Pure."""

from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("a percentile of nothing")
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def median(values: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    return percentile(values, 50)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest."""
    return min(values), max(values)
