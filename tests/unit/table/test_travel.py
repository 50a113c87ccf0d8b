"""Which schema reads a snapshot: its own by id, the table's current one at a branch's head."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakehouse as lh


@pytest.fixture
def table(tmp_path):
    catalog = lh.load_catalog(f"file://{tmp_path}/warehouse")
    table = catalog.create_table("raw.t", pa.schema([("id", pa.int64()), ("old", pa.string())]))
    table.append(pa.table({"id": [1, 2], "old": ["a", "b"]}))
    table.create_branch("audit")
    table.create_tag("then")
    with table.update_schema() as schema:
        schema.rename_column("old", "new")
        schema.add_column("extra", "int")
    return table


def test_a_snapshot_asked_for_is_read_with_its_own_schema(table):
    head = table.current_snapshot()
    for asked in ({"snapshot_id": head.snapshot_id}, {"as_of": head.timestamp_ms}, {"ref": "then"}):
        assert table.scan(**asked).to_arrow().column_names == ["id", "old"]
        assert table.scan(where="old = 'a'", **asked).count() == 1


def test_heads_of_branches_are_read_with_the_present_schema(table):
    for ref in ("main", "audit"):
        assert table.scan(ref=ref).to_arrow().column_names == ["id", "new", "extra"]
        assert table.scan(where="new = 'a' and extra is null", ref=ref).count() == 1


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_deletes_on_a_branch_speak_the_present_schema(table, mode):
    table.set_properties({"write.delete.mode": mode})
    table.delete("new = 'a'", branch="audit")
    assert table.scan(ref="audit", select="id").to_arrow()["id"].to_pylist() == [2]
    assert table.scan(select="id").count() == 2
