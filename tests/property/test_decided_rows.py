"""Which rows two writers changed, and the vector that holds both: against plain sets of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lakehouse.spec.manifests.data_file import CONTENT_POSITION_DELETES, DataFile
from lakehouse.transaction.decided_rows import (
    DecidedRows,
    RowIds,
    about,
    all_deleted,
    decided_alike,
    follow,
)

FILE = DataFile(file_path="a.parquet", record_count=12, file_size_in_bytes=1, partition=("p",))
ROWS = st.sets(st.integers(0, 11))


def positions(rows) -> np.ndarray:
    return np.array(sorted(rows), np.int64)


@given(base=ROWS, mine=ROWS, seen=ROWS, theirs=ROWS)
def test_rows_of_two_writers_on_one_base(base, mine, seen, theirs):
    """Both decide on rows that are live in the base; the one that is first has its vector there."""
    mine, seen, theirs = mine - base, seen - base - mine, theirs - base
    current = base | theirs
    rows = DecidedRows(FILE, positions(mine), positions(seen))
    overlap = (current & (mine | seen)) - base
    assert set(decided_alike(rows, positions(current)).tolist()) == overlap
    union = all_deleted(rows, positions(current))
    assert union.tolist() == sorted(base | theirs | mine)
    if not theirs & mine:  # each row went once: what both deleted adds up
        assert len(union) == len(base) + len(theirs) + len(mine)


@given(st.data())
def test_rows_are_followed_into_the_files_that_have_them(data):
    """Two files become others in any arrangement; some rows are gone, others have no id."""
    rows = data.draw(st.permutations(range(24)))
    gone = data.draw(st.sets(st.sampled_from(rows), max_size=6))
    idless = data.draw(st.sets(st.sampled_from(rows), max_size=1))
    cuts = sorted(data.draw(st.lists(st.integers(0, 24), max_size=3)))
    kept = [row for row in rows if row not in gone]
    old = [layout("old", n, list(range(n * 12, n * 12 + 12)), idless) for n in range(2)]
    new = [
        layout("new", n, kept[start:end], idless)
        for n, (start, end) in enumerate(zip([0, *cuts], [*cuts, 24], strict=True))
    ]
    mine = data.draw(st.sets(st.sampled_from(rows), min_size=1, max_size=5))
    seen = data.draw(st.sets(st.sampled_from(rows), max_size=5)) - mine
    moved = [
        (
            DecidedRows(
                one.data_file,
                positions(row - n * 12 for row in mine if row // 12 == n),
                positions(row - n * 12 for row in seen if row // 12 == n),
            ),
            one,
        )
        for n, one in enumerate(old)
    ]
    found = follow(moved, new)
    if (mine | seen) & (gone | idless):
        assert found is None
        return
    place = {one.data_file.file_path: one for one in new}
    for wanted, at in ((mine, "gone"), (seen, "seen")):
        assert wanted == {
            int(place[one.path].ids[list(place[one.path].positions).index(position)]) - 100
            for one in found
            for position in getattr(one, at)
        }
    assert all(list(one.gone) == sorted(one.gone) for one in found)


def layout(name: str, number: int, rows: list[int], idless: set[int]) -> RowIds:
    """A file with these rows, in this order; the id of a row is 100 more than its number."""
    file = replace(FILE, file_path=f"{name}-{number}", record_count=max(1, len(rows)))
    with_id = [(at, row + 100) for at, row in enumerate(rows) if row not in idless]
    at, ids = np.array(with_id, np.int64).reshape(-1, 2).T
    return RowIds(file, at, ids)


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
    # bounds of several paths exclude no file of the partition
    wanted = same_path or (same_partition and form != "named")
    wanted = same_partition if form == "nameless" else wanted
    assert (about([delete], FILE) == [delete]) == wanted
