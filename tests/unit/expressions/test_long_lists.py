"""Long lists of IN against rows and against bounds, beside brute force in Python."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakehouse.expressions.bound_filter import any_within, is_one_of

_INT, _LONG = (1 << 31) - 1, (1 << 63) - 1


def _numbers(rng: random.Random, most: int, count: int) -> list[int]:
    ends = [-most - 1, -most, most - 1, most, 0, -1]
    near = rng.randrange(-most // 2, most // 2)
    far = rng.random() < 0.5
    some = [rng.randint(-most - 1, most) if far else near + rng.randrange(50) for _ in range(count)]
    return some + (rng.sample(ends, 2) if rng.random() < 0.5 else [])


def _texts(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choices("ab\uffff\U0001f600", k=rng.randrange(3))) for _ in range(count)]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.float64()])
def test_what_is_in_a_list_and_between_bounds(kind: pa.DataType):
    rng = random.Random(str(kind))

    def some(count: int) -> list[Any]:
        if pa.types.is_integer(kind):
            return _numbers(rng, _INT if kind == pa.int32() else _LONG, count)
        if pa.types.is_floating(kind):
            return [rng.choice([0.0, -0.0, 1.5, -1.5, 1e300]) for _ in range(count)]
        return [text if kind == pa.string() else text.encode() for text in _texts(rng, count)]

    told = 0
    for _ in range(150):
        values = tuple(some(rng.randrange(1, 30)))
        rows = [None if rng.random() < 0.1 else value for value in [*some(20), *values]]
        rng.shuffle(rows)
        for without in (rows, [value for value in rows if value is not None]):
            found = is_one_of(pa.array(without, kind), values, null=True)
            assert found.tolist() == [value is None or value in values for value in without]
        lower = [None if rng.random() < 0.2 else value for value in some(10)][:10]
        upper = [None if rng.random() < 0.2 else value for value in some(10)][:10]
        wanted = [
            any(
                (low is None or low <= value) and (high is None or value <= high)
                for value in values
            )
            for low, high in zip(lower, upper, strict=True)
        ]
        between = any_within(values, pa.array(lower, kind), pa.array(upper, kind), 10)
        if between is None:
            assert pa.types.is_floating(kind)
            continue
        assert between.tolist() == wanted
        told += np.count_nonzero(~between)
        above = any_within(values, pa.array(lower, kind), None, 10)
        assert above.tolist() == [low is None or low <= max(values) for low in lower]
    assert told > 50 or pa.types.is_floating(kind)
