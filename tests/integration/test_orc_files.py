"""ORC data files of others in a table: read as others, deleted from, compacted to Parquet."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import lakehouse as lh
from lakehouse.errors import CorruptMetadataError, UnsupportedFeatureError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from lakehouse.table import Table
from tests.integration.maintenance_support import lake_in_memory

NOON = dt.datetime(2026, 1, 31, 12, 0, 0, 5)  # noqa: DTZ001


def column(name: str, kind: pa.DataType, field_id: int, **attributes: str) -> pa.Field:
    told = {f"iceberg.{key.replace('_', '-')}": text for key, text in attributes.items()}
    return pa.field(name, kind, metadata={"iceberg.id": str(field_id), **told})


def orc_file(table: Table, name: str, rows: pa.Table, **file: Any) -> DataFile:
    """A file that another engine would have written into the table's folder."""
    sink = pa.BufferOutputStream()
    orc.write_table(rows, sink, stripe_size=64, batch_size=2)
    path, data = f"{table.location}/data/{name}.orc", sink.getvalue().to_pybytes()
    table.storage.write(path, data)
    return DataFile(
        file_path=path,
        file_format="ORC",
        record_count=rows.num_rows,
        file_size_in_bytes=len(data),
        **file,
    )


def test_every_type_is_read_by_field_ids_and_becomes_parquet():
    inside = StructType(NestedField(12, "x", StringType(), required=False))
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "at", TimestampType(), required=False),
        NestedField(3, "instant", TimestamptzType(), required=False),
        NestedField(4, "key", UUIDType(), required=False),
        NestedField(5, "time", TimeType(), required=False),
        NestedField(6, "fixed", FixedType(2), required=False),
        NestedField(7, "items", ListType(11, inside, element_required=False), required=False),
        NestedField(8, "map", MapType(13, StringType(), 14, UUIDType()), required=False),
        NestedField(9, "nanos", TimestampNanoType(), required=False),
        NestedField(10, "later", StringType(), required=False),
    )
    table = lake_in_memory().create_table("raw.orc", schema, properties={"format-version": "3"})
    names = pa.struct([column("renamed", pa.string(), 12), column("dropped", pa.int64(), 99)])
    pairs = pa.map_(
        column("key", pa.string(), 13).with_nullable(False),
        column("value", pa.binary(), 14, binary_type="UUID"),
    )
    columns = [
        (column("time", pa.int64(), 5, long_type="TIME"), [1_000_001, None, 0]),
        (column("number", pa.int32(), 1), [1, 2, 3]),
        (column("at", pa.timestamp("ns"), 2), [NOON, None, NOON]),
        (column("instant", pa.timestamp("ns", "UTC"), 3), [NOON, None, NOON]),
        (column("key", pa.binary(), 4, binary_type="UUID"), [uuid.UUID(int=7).bytes, None, None]),
        (column("fixed", pa.binary(), 6, binary_type="FIXED", length="2"), [b"ab", None, b"cd"]),
        (column("items", pa.list_(column("element", names, 11)), 7),
         [[{"renamed": "a", "dropped": 1}], [], None]),
        (column("map", pairs, 8), [[("k", uuid.UUID(int=9).bytes)], [], None]),
        (column("nanos", pa.timestamp("ns"), 9), pa.array([1, None, -1], pa.timestamp("ns"))),
    ]  # fmt: skip
    given = pa.Table.from_arrays(
        [pa.array(values, one.type) for one, values in columns],
        schema=pa.schema([one for one, _ in columns]),
    )
    table.transaction().append([orc_file(table, "a", given)]).commit()
    table = table.refresh()
    rows = table.scan().to_arrow()
    assert rows.column("nanos").cast(pa.int64()).to_pylist() == [1, None, -1]
    zoned = NOON.replace(tzinfo=dt.UTC)
    assert rows.drop_columns(["nanos"]).to_pylist() == [
        {"id": 1, "at": NOON, "instant": zoned, "key": uuid.UUID(int=7),
         "time": dt.time(0, 0, 1, 1), "fixed": b"ab", "items": [{"x": "a"}],
         "map": [("k", uuid.UUID(int=9))], "later": None},
        {"id": 2, "at": None, "instant": None, "key": None, "time": None, "fixed": None,
         "items": [], "map": [], "later": None},
        {"id": 3, "at": NOON, "instant": zoned, "key": None, "time": dt.time(0), "fixed": b"cd",
         "items": None, "map": None, "later": None},
    ]  # fmt: skip
    assert table.scan(where="time > time '00:00:01'").to_arrow()["id"].to_pylist() == [1]
    table.delete("id = 2")
    table = table.refresh()
    expected = table.scan().to_arrow()
    assert expected["id"].to_pylist() == [1, 3]
    table.compact(CompactionOptions(rewrite_all=True))
    assert [one.file_format for one in table.refresh().scan().plan().files] == ["parquet"]
    assert table.scan().to_arrow().equals(expected)


def test_deletes_reach_orc_files_and_may_be_in_orc_themselves():
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "k", LongType()))
    table = lake_in_memory().create_table(
        "raw.deleted", schema, properties={"write.delete.mode": "merge-on-read"}
    )
    numbers = pa.schema([column("id", pa.int64(), 1), column("k", pa.int64(), 2)])
    given = pa.table([range(12), [n % 3 for n in range(12)]], schema=numbers)
    data = orc_file(table, "data", given)
    table.transaction().append([data]).commit()
    table = table.refresh()
    table.delete("id = 7")
    positions = pa.schema([column("file_path", pa.string(), 2147483546),
                           column("pos", pa.int64(), 2147483545)])  # fmt: skip
    by_position = orc_file(
        table,
        "positions",
        pa.table([[data.file_path] * 2, [4, 9]], schema=positions),
        content=CONTENT_POSITION_DELETES,
    )
    by_value = orc_file(
        table,
        "values",
        pa.table([[2]], schema=pa.schema([column("k", pa.int64(), 2)])),
        content=CONTENT_EQUALITY_DELETES,
        equality_ids=(2,),
    )
    table.refresh().transaction().row_delta(delete_files=[by_position, by_value]).commit()
    table = table.refresh()
    kept = [n for n in range(12) if n not in (4, 7, 9) and n % 3 != 2]
    assert table.scan().to_arrow()["id"].to_pylist() == kept
    assert table.scan().count() == len(kept)


def test_what_pyarrow_cannot_read_is_refused_and_damage_is_named():
    schema = Schema(NestedField(1, "at", TimestampType(), required=False))
    table = lake_in_memory().create_table("raw.old", schema)
    fields = pa.schema([column("at", pa.timestamp("us"), 1)])
    old = pa.table([pa.array([dt.datetime(3000, 1, 1)], pa.timestamp("us"))], schema=fields)  # noqa: DTZ001
    table.transaction().append([orc_file(table, "old", old)]).commit()
    with pytest.raises(UnsupportedFeatureError, match="before 1677 or after 2262"):
        table.refresh().scan().to_arrow()
    broken = orc_file(table, "broken", pa.table([[NOON]], schema=fields))
    broken = replace(broken, file_path=f"{table.location}/data/zeros.orc")
    table.storage.write(broken.file_path, b"ORC" + bytes(200))
    table.refresh().overwrite(pa.table({"at": pa.array([], pa.timestamp("us"))}))
    table.refresh().transaction().append([broken]).commit()
    with pytest.raises(CorruptMetadataError, match="not readable ORC"):
        table.refresh().scan().to_arrow()


@pytest.mark.spark
def test_files_of_orcs_java_library_are_read_by_a_name_mapping(spark, tmp_path: Path):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = spark.sql(
        """SELECT id, decimal(id / 4) AS n, cast('1.25' AS decimal(9, 2)) AS d,
        timestamp '2026-07-01 00:00:00Z' AS tz,
        date '1969-12-31' AS day, named_struct('x', array(map('k', id))) AS s,
        cast(id AS string) AS text, 1.5D AS number, id % 2 = 0 AS even FROM range(20)"""
    ).coalesce(1)
    frame.write.orc(str(tmp_path / "orc"))
    expected = frame.toArrow()
    spark.conf.unset("spark.sql.session.timeZone")
    lake = lh.load_catalog(tmp_path / "lake")
    lake.create_namespace("d")
    table = lake.create_table("d.t", expected.schema)
    mapping = [{"field-id": one.field_id, "names": [one.name]} for one in table.schema().fields]
    inside = table.schema().find_field("s.x")
    mapping[5]["fields"] = [{"field-id": inside.field_id, "names": ["x"]}]
    table.set_properties({"schema.name-mapping.default": json.dumps(mapping)})
    (path,) = (tmp_path / "orc").glob("*.orc")
    copied = f"{table.location}/data/spark.orc"
    table.storage.write(copied, path.read_bytes())
    file = DataFile(
        file_path=copied, file_format="ORC", record_count=20,
        file_size_in_bytes=path.stat().st_size,
    )  # fmt: skip
    table.refresh().transaction().append([file]).commit()
    rows = lake.load_table("d.t").scan().to_arrow()
    assert rows.to_pylist() == expected.to_pylist()
    assert rows["d"][0].as_py() == Decimal("1.25")
