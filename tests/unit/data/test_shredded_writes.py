"""Variants that we write shredded: DuckDB reads the files, brute force over values the bounds."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakehouse as lh
from lakehouse.data.reading.parquet_reader import ParquetTaskReader
from lakehouse.spec.schema.iceberg_types import VariantType
from lakehouse.storage.location import local_path
from lakehouse.table.table import Table
from tests.unit.data.test_variants import decoded, value

SCHEMA = Schema(
    NestedField(1, "i", LongType(), required=False),
    NestedField(2, "v", VariantType(), required=False),
)
SHRED = {"format-version": "3", "write.parquet.shred-variants": "true"}
ZONED = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
KINDS: tuple[Any, ...] = (
    lambda chance: chance.randrange(-(2 ** chance.choice((6, 14, 30, 62))), 100),
    lambda chance: Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-chance.choice((2, 2, 3))),
    lambda chance: Decimal(f"{10**36 + chance.randrange(10**30)}.5"),
    lambda chance: chance.choice((-0.0, 0.0, 1.5, float("nan"), float("inf"))),
    lambda chance: chance.random() < 0.5,
    lambda chance: dt.date(1969, 12, 30) + dt.timedelta(days=chance.randrange(4)),
    lambda chance: dt.time(23, 59, 59, chance.randrange(10**6)),
    lambda chance: ZONED + dt.timedelta(microseconds=chance.randrange(4)),
    lambda chance: (ZONED - dt.timedelta(chance.randrange(9))).replace(tzinfo=None),
    lambda chance: chance.randbytes(chance.randrange(20)),
    lambda chance: chance.choice(("", "é" * 40, "\U0010ffff" * 17, "ab")),
    lambda chance: UUID(int=chance.getrandbits(128)),
    lambda chance: [chance.randrange(9), {"deep": chance.randrange(2**40)}],
)


@pytest.fixture
def lake(tmp_path: Path) -> lh.Lakehouse:
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    return lake


def encoded(values: list[Any]) -> pa.Array:
    pairs = [None if one is None else lh.encode_variant(one) for one in values]
    rows = [pair and {"metadata": pair[0], "value": pair[1]} for pair in pairs]
    return pa.array(rows, pa.struct([("metadata", pa.binary()), ("value", pa.binary())]))


def written(lake: lh.Lakehouse, name: str, values: list[Any], **properties: str) -> Table:
    given = {name.replace("_", "-"): text for name, text in properties.items()}
    table = lake.create_table(f"d.{name}", SCHEMA, properties=SHRED | given)
    table.append(pa.table({"i": range(len(values)), "v": encoded(values)}))
    return table.refresh()


def files_of(table: Table) -> list[str]:
    return [local_path(file.file_path) for file in table.scan().plan().files]


def like(found: Any) -> str:
    """A value without the order of its names, and with the one NaN that there is."""
    if isinstance(found, dict):
        return repr([(name, like(found[name])) for name in sorted(found)])
    return repr([like(one) for one in found] if isinstance(found, list) else found)


def some_values(chance: random.Random) -> list[Any]:
    """Rows most of which share fields, each mostly of a type of its own."""
    fields = {f"f{at}": chance.choice(KINDS) for at in range(4)}
    fields |= dict.fromkeys(("a.b", "it's", "", "a\0b", "value", "typed_value", "list"), KINDS[0])

    def row() -> Any:
        if chance.random() < 0.2:
            return chance.choice((None, value(chance)))
        found = {
            name: value(chance) if name == "f0" and chance.random() < 0.1 else make(chance)
            for name, make in fields.items()
            if chance.random() < 0.9
        }
        return found | {"in": {"f1": fields["f1"](chance), "none": None}}

    return [row() for _ in range(chance.choice((5, 30, 130)))]


@pytest.mark.parametrize("seed", range(8))
def test_what_is_shredded_is_read_alike_by_us_and_by_duckdb(lake: lh.Lakehouse, seed: int):
    values = some_values(random.Random(seed))
    table = written(lake, "t", values)
    twin = written(lake, "twin", values, **{"write.parquet.shred-variants": "false"})
    (shredded,), (plain,) = files_of(table), files_of(twin)
    assert "typed_value" in str(pq.read_metadata(shredded).schema)
    assert "typed_value" not in str(pq.read_metadata(plain).schema)
    read = decoded(table.scan().to_arrow().sort_by("i")["v"])
    assert [like(one) for one in read] == [like(one) for one in values]
    sql = "SELECT i, v::VARCHAR FROM '{}' ORDER BY i"
    ours, theirs = (duckdb.sql(sql.format(path)).fetchall() for path in (shredded, plain))
    assert ours == theirs
    table.compact()
    assert [like(one) for one in decoded(table.refresh().scan().to_arrow().sort_by("i")["v"])] == [
        like(one) for one in values
    ]


def leaves_of(found: Any, path: str = "$") -> list[tuple[str, Any]]:
    """Values that are no objects, by normalized path; arrays as they are."""
    if not isinstance(found, dict):
        return [(path, found)]
    escaped = ((name.replace("'", "\\'").replace("\0", "\\u0000"), one)
               for name, one in found.items())  # fmt: skip
    return [leaf for name, one in escaped for leaf in leaves_of(one, f"{path}['{name}']")]


def comparable(found: Any) -> Any:
    return found.encode() if isinstance(found, str) else found  # by code points


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mode", ["truncate(16)", "full"])
def test_bounds_hold_every_value_of_a_path_that_has_values_of_one_type(
    lake: lh.Lakehouse, seed: int, mode: str
):
    values = some_values(random.Random(seed))
    name = "write.metadata.metrics.column.v"
    (file,) = written(lake, "t", values, **{name: mode}).inspect.files().to_pylist()
    assert (dict(file["value_counts"])[2], dict(file["null_value_counts"])[2]) == (
        len(values), values.count(None),
    )  # fmt: skip
    lower, upper = (bounds_in(dict(file[side])[2]) for side in ("lower_bounds", "upper_bounds"))
    assert lower.keys() == upper.keys()
    under: dict[str, list[Any]] = {}
    for path, one in (leaf for row in values if row is not None for leaf in leaves_of(row)):
        under.setdefault(path, []).append(one)
    for path, low in lower.items():
        known = [one for one in under[path] if one is not None]
        assert {type(one) for one in known} == {type(low)} == {type(upper[path])}
        numbers = [comparable(one) for one in known if one == one]  # no NaN
        assert comparable(low) <= min(numbers) <= max(numbers) <= comparable(upper[path])
        if mode == "full" or not isinstance(low, str | bytes):
            assert (low, upper[path]) == (
                min(known, key=comparable),
                max(known, key=comparable),
            ) or (isinstance(low, float))
    assert lower


def bounds_in(raw: bytes) -> dict[str, Any]:
    """The object of which metadata and value lie behind each other: DuckDB reads it too."""
    for end in range(3, len(raw)):
        try:
            found = lh.decode_variant(raw[:end], raw[end:])
        except Exception:  # noqa: BLE001, S112 - not here
            continue
        if isinstance(found, dict) and b"".join(lh.encode_variant(found))[:end] == raw[:end]:
            return found
    raise AssertionError(raw)


def test_files_and_row_groups_without_a_match_are_skipped(
    lake: lh.Lakehouse, monkeypatch: pytest.MonkeyPatch
):
    read: Counter[str] = Counter()
    whole = ParquetTaskReader.batches

    def counted(self, group):
        read["row groups"] += 1
        return whole(self, group)

    monkeypatch.setattr(ParquetTaskReader, "batches", counted)
    values = [
        {
            "n": at,
            "in": {"t": f"t{at:03}", "x": 1 if at < 90 else "one"},
            "d": Decimal(at).scaleb(-1),
        }
        for at in range(100)
    ]
    table = written(lake, "t", values, **{"write.parquet.row-group-limit": "10"})
    table.append(pa.table({"i": [100], "v": encoded([{"n": 1000, "in": {"t": "z"}}])}))
    table = table.refresh()
    for where, found, groups, skipped in (
        ("variant_get(v, '$.n', 'bigint') BETWEEN 15 AND 25", 11, 2, 1),
        ("variant_get(v, '$.in.t', 'string') = 't042'", 1, 1, 1),
        ("NOT variant_get(v, '$.n', 'int') > 3", 4, 1, 1),
        ("variant_get(v, '$.n', 'int') = 1000", 1, 1, 1),
        ("variant_get(v, '$.n', 'int') = 2000", 0, 0, 2),
        ("variant_get(v, '$.d', 'double') <= 0.15", 2, 2, 0),
        ("variant_get(v, '$.in.nowhere', 'int') = 1 OR i = 55", 1, 11, 0),
        ("i = 55 AND variant_get(v, '$.n', 'int') < 40", 0, 0, 1),
    ):
        read.clear()
        scan = table.scan(where=where)
        assert scan.to_arrow().num_rows == found, where
        assert (read["row groups"], scan.plan().report.data_files.skipped_by_metrics) == (
            groups, skipped,
        ), where  # fmt: skip


def test_row_groups_with_values_of_two_types_are_read(lake: lh.Lakehouse):
    values: list[Any] = [{"n": at} for at in range(5)] + [{"n": "five"}] + [{"n": None}] * 4
    table = written(lake, "t", values, **{"write.parquet.row-group-limit": "5"})
    with pytest.raises(lh.LakehouseError, match="five"):
        table.scan(where="variant_get(v, '$.n', 'int') = 50").to_arrow()
    assert table.scan(where="variant_get(v, '$.n', 'int') = 3 AND i < 5").count() == 1


def test_the_first_rows_decide_what_is_shredded(lake: lh.Lakehouse):
    values = [{"early": 1}] * 3 + [{"late": "x"}] * 30
    for buffer, fields in (("3", ["early"]), ("33", ["late"]), ("30", ["early", "late"])):
        table = written(
            lake, f"t{buffer}", values, **{"write.parquet.variant-inference-buffer-size": buffer}
        )
        kind = pq.read_schema(*files_of(table)).field("v").type.field("typed_value").type
        assert [field.name for field in kind] == fields
        assert decoded(table.scan().to_arrow().sort_by("i")["v"]) == values
    with pytest.raises(lh.LakehouseError, match="variant-inference-buffer-size"):
        written(lake, "zero", values, **{"write.parquet.variant-inference-buffer-size": "0"})
