"""Which rows two writers changed, and the vector that holds both: against plain sets of rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.transaction.conflicts.decided_rows import (
    DecidedRows,
    about,
    all_deleted,
    decided_alike,
)

FILE = DataFile(file_path="a.parquet", record_count=12, file_size_in_bytes=1, partition=("p",))
ROWS = st.sets(st.integers(0, 11))


def positions(rows) -> np.ndarray:
    return np.array(sorted(rows), np.int64)


@given(base=ROWS, mine=ROWS, seen=ROWS, theirs=ROWS, with_seen=st.booleans())
def test_rows_of_two_writers_on_one_base(base, mine, seen, theirs, with_seen):
    """Both decide on rows that are live in the base; the one that is first has its vector there."""
    mine, seen, theirs = mine - base, seen - base - mine, theirs - base
    current = base | theirs
    rows = DecidedRows(FILE, positions(mine), positions(seen))
    overlap = (current & (mine | seen if with_seen else mine)) - base
    found = decided_alike(rows, positions(current), with_seen=with_seen)
    assert set(found.tolist()) == overlap
    union = all_deleted(rows, positions(current))
    assert union.tolist() == sorted(base | theirs | mine)
    if not overlap:  # each row went once: what both deleted adds up
        assert len(union) == len(base) + len(theirs) + len(mine)


@given(st.sampled_from(["named", "bounded", "nameless"]), st.booleans(), st.booleans())
def test_deletes_are_about_the_files_that_they_may_name(form, same_path, same_partition):
    path = b"a.parquet" if same_path else b"b.parquet"
    bounds = {2147483546: path} if form == "bounded" else {}
    wide = {2147483546: b"z"} if form == "bounded" and not same_path else bounds
    delete = DataFile(
        content=CONTENT_POSITION_DELETES,
        file_path="d",
        record_count=1,
        file_size_in_bytes=1,
        partition=("p",) if same_partition else ("q",),
        lower_bounds=bounds,
        upper_bounds=wide,
        referenced_data_file=path.decode() if form == "named" else None,
    )
    wanted = same_path if form != "nameless" else same_partition
    assert (about([delete], FILE) == [delete]) == wanted
