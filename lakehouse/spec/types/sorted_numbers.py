"""Distinct values in order: positions, ids, keys.

`numpy.unique` hashes since NumPy 2.3, which takes thirty times as long as sorting where most of
many integers differ.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

One = TypeVar("One", bound=np.generic)


def distinct(values: npt.NDArray[One]) -> npt.NDArray[One]:
    """The distinct values, ascending.

    >>> distinct(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered: npt.NDArray[One] = np.sort(values)
    if len(ordered) < 2:
        return ordered
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def union(left: npt.NDArray[One], right: npt.NDArray[One]) -> npt.NDArray[One]:
    """The distinct values of both, ascending.

    >>> union(np.array([3, 1]), np.array([2, 3])).tolist()
    [1, 2, 3]
    """
    return distinct(np.concatenate([left, right]))


def common(left: npt.NDArray[One], right: npt.NDArray[One]) -> npt.NDArray[One]:
    """The distinct values that both have, ascending.

    >>> common(np.array([3, 1, 1]), np.array([2, 1])).tolist()
    [1]
    """
    return np.intersect1d(distinct(left), distinct(right), assume_unique=True)
