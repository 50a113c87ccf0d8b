"""What a delete is called in the history, and which isolation level it obeys (spec: Snapshots, operation)."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh
from lakehouse.errors import ValidationConflictError

SCHEMA = pa.schema({"id": pa.int64(), "s": pa.string()})


@pytest.fixture
def table(tmp_path):
    made = lh.load_catalog(tmp_path.as_uri()).create_table("raw.t", SCHEMA)
    made.append(rows((1, "a"), (2, "b")))
    made.append(rows((9, "z")))
    return made


def rows(*values):
    return pa.table({"id": [one for one, _ in values], "s": [one for _, one in values]})


@pytest.mark.parametrize(
    ("where", "operation", "left"),
    [
        ("id = 9", "delete", [1, 2]),
        ("id >= 0", "delete", []),
        ("s = 'z' and id > 0", "delete", [1, 2]),
        ("id = 1", "overwrite", [2, 9]),
        ("id = 1 or id = 9", "overwrite", [2]),
    ],
)
def test_a_copy_on_write_delete_that_only_drops_files_is_a_delete(table, where, operation, left):
    snapshot = table.delete(where)
    assert snapshot.operation == snapshot.summary["operation"] == operation
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left


def test_an_overwrite_that_adds_nothing_is_a_delete(table):
    assert table.overwrite(rows(), "id = 9").operation == "delete"
    assert table.overwrite(rows((3, "c")), "id = 4").operation == "overwrite"


@pytest.mark.parametrize("where", ["id = 1", "id = 9"], ids=["rewrites", "drops"])
@pytest.mark.parametrize("level", ["snapshot", "serializable"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_delete_obeys_the_isolation_level_of_deletes(table, where, level, mode):
    table.set_properties(
        {
            "write.delete.isolation-level": level,
            "write.update.isolation-level": "snapshot" if level != "snapshot" else "serializable",
            "write.delete.mode": mode,
        }
    )
    stale = lh.load_catalog(table.catalog.warehouse).load_table("raw.t")
    table.append(rows((1, "a"), (9, "z")))
    if level == "serializable":
        with pytest.raises(ValidationConflictError, match="added 1 file"):
            stale.delete(where)
    else:
        stale.delete(where)
        assert stale.scan().count() == 4
