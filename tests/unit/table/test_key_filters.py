"""Key filters leave out files, never rows: merges with them do what merges without them do.

Judged by brute force over rows, and by pyiceberg's reader of Puffin.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table.puffin import PuffinFile
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.data.statistics.key_filters import (
    BLOB_TYPE,
    SplitBlockFilter,
    key_hashes,
    load_key_filters,
)
from lakehouse.spec.metadata.table_metadata import THETA_SKETCH as SKETCH

FILES, ROWS = 4, 40
DAY = dt.date(2026, 1, 1)
# keys that lie anywhere in every file, so that bounds rule out none
KEYS = {
    "int": (pa.int32(), lambda n: (n * 7919) % 100_003),
    "long": (pa.int64(), lambda n: (n * 7919) % 100_003 + (1 << 40)),
    "string": (pa.string(), lambda n: f"k{(n * 7919) % 100_003:06d} ü"),
    "binary": (pa.binary(), lambda n: ((n * 7919) % 100_003).to_bytes(4, "big")),
    "uuid": (pa.uuid(), lambda n: uuid.UUID(int=((n * 7919) % 100_003) << 64)),
    "date": (pa.date32(), lambda n: DAY + dt.timedelta(days=(n * 7919) % 10_007)),
}


def rows(kind, numbers, value):
    arrow, key = KEYS[kind]
    keys = [key(number) for number in numbers]
    if kind == "uuid":
        keys = pa.array([key.bytes for key in keys], pa.binary(16)).cast(arrow)
    return pa.table(
        {"id": pa.array(keys, arrow) if kind != "uuid" else keys, "v": [value] * len(numbers)}
    )


def pairs(data):
    ids, values = data["id"].to_pylist(), data["v"].to_pylist()
    return [(str(one), value) for one, value in zip(ids, values, strict=True)]


def content(table):
    return sorted(pairs(table.scan(select=["id", "v"]).to_arrow()))


def make(tmp_path, kind="long", version=3, mode="merge-on-read", files=FILES):
    table = lh.load_catalog(str(tmp_path / "warehouse")).create_table(
        "raw.t",
        rows(kind, [0], 0).schema,
        format_version=version,
        properties={"write.merge.mode": mode, "write.delete.mode": mode},
    )
    for number in range(files):
        table.append(rows(kind, range(number * ROWS, (number + 1) * ROWS), 0))
    return table


def opened(table, data):
    return table.plan_upsert(data, keys=["id"]).files_opened


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(("version", "mode"), [(2, "copy-on-write"), (3, "merge-on-read")])
def test_upserts_open_the_files_that_hold_their_keys(tmp_path, kind, mode, version):
    table = make(tmp_path, kind, version, mode)
    plain = content(table)
    data = rows(kind, [3, 3 * ROWS + 1, 9_999], 7)
    assert opened(table, data) == FILES, "bounds rule out none"
    made = table.compute_key_filters(["id"])
    assert (made.files, made.files_read, made.rows_read) == (FILES, FILES, FILES * ROWS)
    assert opened(table, data) == 2
    done = table.upsert(data, keys=["id"])
    assert (done.rows_updated, done.rows_inserted) == (2, 1)
    assert content(table) == sorted({**dict(plain), **dict(pairs(data))}.items())
    new = 3 if mode == "copy-on-write" else 1
    also = mode == "merge-on-read"
    assert opened(table, rows(kind, [3], 8)) == new + also, "new files have no filter yet"
    again = table.compute_key_filters(["id"])
    assert again.files_read < again.files
    assert opened(table, rows(kind, [3], 8)) <= 2


def test_a_filter_knows_deleted_rows_too(tmp_path):
    """Somebody may take the delete back, and the file stays what it is."""
    table = make(tmp_path)
    full = table.current_snapshot().snapshot_id
    table.delete(where=f"id = {KEYS['long'][1](3)}")
    table.compute_key_filters(["id"])
    field = table.schema().find_field("id")
    found = load_key_filters(
        table.metadata,
        table.current_snapshot().snapshot_id,
        field.field_id,
        field.field_type,
        table.storage,
    )
    keys = key_hashes(rows("long", [3], 0)["id"].combine_chunks(), field.field_type)
    assert sum(found.may_hold(one, keys) for one in found.by_file) == 1
    assert len(found.by_file) == FILES
    table.rollback_to(full)
    assert table.upsert(rows("long", [3], 7), keys=["id"]).rows_updated == 1


def test_a_widened_column_keeps_its_filters_and_another_type_loses_them(tmp_path):
    table = make(tmp_path, "int")
    table.compute_key_filters(["id"])
    with table.update_schema() as update:
        update.update_column("id", "long")
    data = pa.table({"id": pa.array([KEYS["int"][1](3), 1 << 40], pa.int64()), "v": [7, 7]})
    assert opened(table, data) == 1
    done = table.upsert(data, keys=["id"])
    assert (done.rows_updated, done.rows_inserted) == (1, 1)


def test_a_column_of_the_same_name_is_another_column(tmp_path):
    table = make(tmp_path)
    table.compute_key_filters(["id"])
    with table.update_schema() as update:
        update.drop_column("id")
    with table.update_schema() as update:
        update.add_column("id", "long")
    assert opened(table, rows("long", [3], 7)) == FILES


def test_later_files_and_compacted_ones_are_read(tmp_path):
    table = make(tmp_path)
    table.compute_key_filters(["id"])
    table.append(rows("long", range(900, 940), 0))
    assert table.upsert(rows("long", [901, 3], 7), keys=["id"]).rows_updated == 2
    table.compact()
    assert table.upsert(rows("long", [902, 4], 8), keys=["id"]).rows_updated == 2
    assert len(content(table)) == (FILES + 1) * ROWS


def test_null_and_composite_keys(tmp_path):
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64())])
    table = lh.load_catalog(str(tmp_path / "w")).create_table("raw.t", schema, format_version=3)
    for number in range(4):
        table.append(
            pa.table({"a": [1, 9, None], "b": [f"x{number}", "z", None], "v": [0, 0, 0]}, schema)
        )
    table.compute_key_filters(["a", "b"])
    same = pa.table({"a": [1, None], "b": ["x2", None], "v": [5, 5]}, schema)
    plan = table.plan_upsert(same, keys=["a", "b"])
    assert (plan.files_opened, plan.rows_updated, plan.rows_inserted) == (1, 1, 1)
    on = "t.a IS NOT DISTINCT FROM s.a AND t.b IS NOT DISTINCT FROM s.b"
    merge = table.merge(same, on=on).when_matched_update_all().plan()
    assert (merge.files_opened, merge.rows_updated) == (4, 5), "null is a key then: no filter tells"


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "footer"])
def test_filters_that_cannot_be_read_are_not_used(tmp_path, damage, caplog):
    table = make(tmp_path)
    made = table.compute_key_filters(["id"])
    data = table.storage.read(made.location)
    if damage == "gone":
        table.storage.delete([made.location])
    else:
        at = {"cut": None, "flipped": data.index(b".parquet") + 300, "footer": len(data) - 60}[
            damage
        ]
        bad = bytearray(data if at else data[:200])
        if at:
            bad[at] ^= 0xFF
        table.storage.write(made.location, bytes(bad))
    with caplog.at_level(logging.WARNING):
        assert opened(table, rows("long", [3], 7)) == FILES
    assert "are not used" in caplog.text
    assert table.upsert(rows("long", [3], 7), keys=["id"]).rows_updated == 1


def test_sketches_and_filters_share_the_file(tmp_path):
    table = make(tmp_path)
    table.compute_statistics(["v"])
    table.compute_key_filters(["id"])
    last = table.compute_statistics(["id"])
    (record,) = table.metadata.statistics
    assert record["statistics-path"] == last.location
    blobs = PuffinFile(table.storage.read(last.location)).footer.blobs
    found = {(blob.type, tuple(blob.fields)) for blob in blobs}
    assert found == {(SKETCH, (1,)), (SKETCH, (2,)), (BLOB_TYPE, (1,))}
    assert {(one["type"], tuple(one["fields"])) for one in record["blob-metadata"]} == found
    assert opened(table, rows("long", [3], 7)) == 1


def test_many_keys_and_large_filters_are_not_read(tmp_path):
    table = make(tmp_path)
    made = table.compute_key_filters(["id"])
    table.storage.write(made.location, b"nobody reads this")
    many = rows("long", range(10_000, 11_200), 1)
    assert opened(table, many) == FILES


def test_keys_of_other_types_are_refused(tmp_path):
    schema = pa.schema([("x", pa.float64()), ("d", pa.decimal128(9, 2)), ("id", pa.int64())])
    table = lh.load_catalog(str(tmp_path / "w")).create_table("raw.t", schema)
    with pytest.raises(lh.errors.InvalidInputError, match="no snapshot"):
        table.compute_key_filters(["id"])
    table.append(pa.table({"x": [1.0], "d": [Decimal("1.00")], "id": [1]}, schema))
    with pytest.raises(lh.errors.InvalidSchemaError, match=r"raw\.t: .* of x, d, no: .* are id"):
        table.compute_key_filters(["x", "d", "no"])
    assert table.refresh().metadata.statistics == ()


def test_the_command_shows_what_it_reads_and_made(tmp_path):
    make(tmp_path)
    run = CliRunner().invoke
    place = ["raw.t", "--keys", "id", "--catalog", str(tmp_path / "warehouse")]
    shown = run(app, ["analyze", *place, "--dry-run"]).output
    assert f"files to read  {FILES}, {FILES * ROWS} rows" in shown
    assert "statistics file" in run(app, ["analyze", *place]).output
    assert "files to read  0, 0 rows" in run(app, ["analyze", *place, "--dry-run"]).output
    assert run(app, ["analyze", *place, "--column", "v"]).exit_code


@pytest.mark.parametrize("count", [0, 1, 17, 5_000])
def test_a_filter_holds_what_was_added_and_little_else(count):
    rng = np.random.default_rng(count)
    keys = rng.integers(0, 2**64, count, np.uint64)
    found = SplitBlockFilter.from_bytes(SplitBlockFilter.of(keys).to_bytes())
    assert found.may_hold(keys).all()
    others = rng.integers(0, 2**64, 100_000, np.uint64)
    assert found.may_hold(others).mean() < (0.002 if count > 100 else 0.01)


@pytest.mark.slow
def test_random_upserts_do_what_they_do_without_filters(tmp_path):
    """Held fixed: one key column. Varied: where keys are, deletes, compaction, new filters."""
    rng = random.Random(5)
    table = make(tmp_path, "string", files=3)
    expected = {KEYS["string"][1](one): 0 for one in range(3 * ROWS)}
    saved = 0
    for step in range(25):
        numbers = rng.sample(range(3 * ROWS + 60), 4)
        data = rows("string", numbers, step)
        saved += len(table.scan().plan().files) - opened(table, data)
        table.upsert(data, keys=["id"])
        expected |= {KEYS["string"][1](number): step for number in numbers}
        if rng.random() < 0.2:
            gone = KEYS["string"][1](rng.choice(numbers))
            table.delete(where=f"id = '{gone}'")
            del expected[gone]
        if rng.random() < 0.2:
            table.compute_key_filters(["id"])
        if rng.random() < 0.1:
            table.compact()
    assert content(table) == sorted(expected.items())
    assert saved > 20
