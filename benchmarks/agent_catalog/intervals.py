"""How sure a share of few questions is: Wilson's intervals and McNemar's exact test."""

from __future__ import annotations

from collections.abc import Mapping
from math import comb, sqrt
from statistics import NormalDist


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    z, share = NormalDist().inv_cdf(0.975), right / of
    middle, half = share + z * z / (2 * of), z * sqrt((share * (1 - share) + z * z / (4 * of)) / of)
    low, high = ((middle + side) / (1 + z * z / of) for side in (-half, half))
    return round(max(low, 0.0), 4), round(min(high, 1.0), 4)


def mcnemar(first: Mapping[str, bool], second: Mapping[str, bool]) -> dict[str, float]:
    """Two conditions on the same questions: who alone was right how often, and the exact p."""
    only_first = sum(first[key] and not second[key] for key in first)
    only_second = sum(second[key] and not first[key] for key in first)
    pairs = only_first + only_second
    fewer = sum(comb(pairs, count) for count in range(min(only_first, only_second) + 1))
    p = min(1.0, 2 * fewer / 2**pairs)
    return {"only_first": only_first, "only_second": only_second, "p": round(p, 5)}
