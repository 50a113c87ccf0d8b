"""Points in time as users read them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")


def timestamps(milliseconds: Sequence[int | None]) -> pa.Array:
    """Milliseconds since the epoch as `timestamp[us, UTC]`."""
    return pa.array(
        [None if value is None else value * 1000 for value in milliseconds], pa.int64()
    ).cast(TIMESTAMP)
