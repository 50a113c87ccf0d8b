"""How sure a share of few questions is: Wilson's intervals and McNemar's exact test."""

from __future__ import annotations

from collections.abc import Mapping

from scipy.stats import binomtest


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    found = binomtest(right, of).proportion_ci(0.95, method="wilson")
    return round(float(found.low), 4), round(float(found.high), 4)


def mcnemar(first: Mapping[str, bool], second: Mapping[str, bool]) -> dict[str, float]:
    """Two conditions on the same questions: who alone was right how often, and the exact p."""
    only_first = sum(first[key] and not second[key] for key in first)
    only_second = sum(second[key] and not first[key] for key in first)
    pairs = only_first + only_second
    p = binomtest(only_first, pairs).pvalue if pairs else 1.0
    return {"only_first": only_first, "only_second": only_second, "p": round(float(p), 5)}
