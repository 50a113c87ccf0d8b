"""Avro data files of landing writers in a table: read as others, compacted to Parquet."""

from __future__ import annotations

import datetime as dt
import io
import math
import uuid
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from lakehouse.errors import CorruptMetadataError, InvalidSchemaError, UnsupportedFeatureError
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.spec.manifests.data_file import (
    CONTENT_EQUALITY_DELETES,
    CONTENT_POSITION_DELETES,
    DataFile,
)
from tests.integration.maintenance_support import contents, events, lake_in_memory, rows

EVENTS_AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": ["null", "long"], "field-id": 1, "default": None},
        {"name": "was_called_zone", "type": ["null", "string"], "field-id": 2, "default": None},
        {"name": "amount", "type": ["null", "double"], "field-id": 3, "default": None},
    ],
}


def land(table, name, schema, records, *, partition=(), codec="deflate"):
    """Append an Avro file as a writer of another engine would."""
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec=codec)
    path = f"{table.location}/data/{name}.avro"
    table.storage.write(path, sink.getvalue())
    file = DataFile(
        file_path=path,
        file_format="AVRO",
        partition=partition,
        spec_id=table.metadata.default_spec_id,
        record_count=len(records),
        file_size_in_bytes=len(sink.getvalue()),
    )
    table.transaction().append([file]).commit()
    return table.refresh()


def formats(table):
    return sorted(file.file_format.upper() for file in table.refresh().scan().plan().files)


def test_landed_files_are_read_and_become_parquet():
    table = events(lake_in_memory())
    table.append(rows([1, 2], region="r0"))
    for number, codec in enumerate(("null", "deflate", "bzip2", "xz")):
        records = [
            {"id": 10 * number + row, "was_called_zone": "r0", "amount": None} for row in range(5)
        ]
        land(table, f"landed{number}", EVENTS_AVRO, records, partition=("r0",), codec=codec)
    table.delete("id = 11")
    expected = contents(table)
    assert len(expected) == 2 + 4 * 5 - 1
    assert table.scan("id = 32 and region = 'r0'").to_arrow().to_pylist() == [
        {"id": 32, "region": "r0", "amount": None}
    ]
    result = table.compact(CompactionOptions(min_input_files=2))
    assert (result.added_files, formats(table)) == (1, ["PARQUET"])
    assert contents(table) == expected
    first = table.snapshots()[1].snapshot_id
    assert len(table.scan(snapshot_id=first).to_arrow()) == 7


def test_one_landed_file_alone_is_worth_rewriting():
    table = land(
        events(lake_in_memory()),
        "one",
        EVENTS_AVRO,
        [{"id": 1, "was_called_zone": "r0", "amount": 1.0}],
        partition=("r0",),
    )
    assert table.compact().rewritten_files == 1
    assert formats(table) == ["PARQUET"]
    assert table.compact().rewritten_files == 0


def test_deletes_and_evolution_reach_landed_files():
    table = events(lake_in_memory(), properties={"write.delete.mode": "merge-on-read"})
    land(
        table,
        "a",
        EVENTS_AVRO,
        [{"id": n, "was_called_zone": "r0", "amount": float(n)} for n in range(6)],
        partition=("r0",),
    )
    table.delete("id = 3 or amount > 4.5")
    assert [file.file_format for file in table.scan().plan().files] == ["avro"], (
        "only a delete file was added"
    )
    with table.update_schema() as update:
        update.rename_column("amount", "paid")
        update.add_column("note", "string")
    read = table.scan().to_arrow().to_pylist()
    assert read == [{"id": n, "region": "r0", "paid": float(n), "note": None} for n in (0, 1, 2, 4)]
    table.compact(CompactionOptions(rewrite_all=True))
    assert table.scan().to_arrow().to_pylist() == read


TYPES = Schema(
    NestedField(1, "flag", BooleanType(), required=False),
    NestedField(2, "small", IntegerType(), required=True),
    NestedField(3, "big", LongType(), required=False),
    NestedField(4, "half", FloatType(), required=False),
    NestedField(5, "share", DoubleType(), required=False),
    NestedField(6, "price", DecimalType(38, 4), required=False),
    NestedField(7, "day", DateType(), required=False),
    NestedField(8, "clock", TimeType(), required=False),
    NestedField(9, "local", TimestampType(), required=False),
    NestedField(10, "at", TimestamptzType(), required=False),
    NestedField(11, "text", StringType(), required=False),
    NestedField(12, "raw", BinaryType(), required=False),
    NestedField(13, "code", FixedType(4), required=False),
    NestedField(14, "key", UUIDType(), required=False),
    # items are required: pyiceberg 0.12 encodes an optional one without the union that its schema
    # declares
    NestedField(15, "tags", ListType(16, StringType(), element_required=True), required=False),
    NestedField(
        17, "counts", MapType(18, StringType(), 19, LongType(), value_required=True), required=False
    ),
    NestedField(
        20,
        "by_number",
        MapType(21, IntegerType(), 22, StringType(), value_required=True),
        required=False,
    ),
    NestedField(
        23, "who", StructType(NestedField(24, "name", StringType(), required=False)), required=False
    ),
)
FULL = {
    "flag": True,
    "small": -(2**31),
    "big": 2**63 - 1,
    "half": 0.5,
    "share": math.pi,
    "price": Decimal("-1234567890123456789012345678901234.5678"),
    "day": dt.date(1, 1, 1),
    "clock": dt.time(23, 59, 59, 999_999),
    "local": dt.datetime(1900, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - a timestamp without a zone
    "at": dt.datetime(2300, 1, 1, tzinfo=dt.UTC),
    "text": "naïve ☃",
    "raw": b"\x00\xff",
    "code": b"abcd",
    "key": uuid.UUID(int=7),
    "tags": ["a", ""],
    "counts": {"one": 1, "none": 0},
    "by_number": {1: "x", -2: "y"},
    "who": {"name": None},
}


def internal(value, name):
    """As pyiceberg's Avro encoder takes it: microseconds and days since the epoch."""
    epoch = dt.datetime(1970, 1, 1)  # noqa: DTZ001
    if name == "day":
        return value.toordinal() - dt.date(1970, 1, 1).toordinal()
    if name == "clock":
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    if name in ("local", "at"):
        return (value.replace(tzinfo=None) - epoch) // dt.timedelta(microseconds=1)
    return Record(*value.values()) if name == "who" else value.bytes if name == "key" else value


def test_every_type_as_pyiceberg_writes_it(tmp_path):
    """The encoder is pyiceberg's own, with the Iceberg schema in Avro that the spec describes."""
    path = str(tmp_path / "typed.avro")
    empty = dict.fromkeys(FULL) | {"small": 0}
    table = lake_in_memory().create_table("raw.typed", TYPES)
    with AvroOutputFile(PyArrowFileIO().new_output(path), table.schema(), "typed") as output:
        written = [
            {name: None if v is None else internal(v, name) for name, v in one.items()}
            for one in (FULL, empty)
        ]
        output.write_block([Record(*one.values()) for one in written])
    data = (tmp_path / "typed.avro").read_bytes()
    location = f"{table.location}/data/typed.avro"
    table.storage.write(location, data)
    file = DataFile(
        file_path=location, file_format="avro", record_count=2, file_size_in_bytes=len(data)
    )
    table.transaction().append([file]).commit()

    def read():
        found = table.refresh().scan().to_arrow().to_pylist()
        for one in found:
            one["counts"] = None if one["counts"] is None else dict(one["counts"])
            one["by_number"] = None if one["by_number"] is None else dict(one["by_number"])
        return sorted(found, key=lambda one: one["small"])

    assert read() == [FULL, empty]
    assert (
        AvroSchemaConversion()
        .avro_to_iceberg(fastavro.reader(io.BytesIO(data)).writer_schema)
        .highest_field_id
        == 24
    )
    table.compact()
    assert formats(table) == ["PARQUET"]
    assert read() == [FULL, empty]


def test_nulls_inside_lists_and_maps():
    schema = Schema(
        NestedField(1, "tags", ListType(3, StringType(), element_required=False), required=False),
        NestedField(
            2,
            "counts",
            MapType(4, StringType(), 5, LongType(), value_required=False),
            required=False,
        ),
    )
    avro = {
        "type": "record",
        "name": "r",
        "fields": [
            {
                "name": "tags",
                "field-id": 1,
                "type": ["null", {"type": "array", "items": ["null", "string"], "element-id": 3}],
            },
            {
                "name": "counts",
                "field-id": 2,
                "type": {"type": "map", "values": ["long", "null"], "key-id": 4, "value-id": 5},
            },
        ],
    }
    table = lake_in_memory().create_table("raw.nested", schema)
    land(
        table,
        "nested",
        avro,
        [{"tags": ["a", None], "counts": {"x": None}}, {"tags": None, "counts": {}}],
    )
    expected = [{"tags": ["a", None], "counts": [("x", None)]}, {"tags": None, "counts": []}]
    assert table.scan().to_arrow().to_pylist() == expected
    table.compact()
    assert table.scan().to_arrow().to_pylist() == expected


def test_files_without_ids_are_read_by_the_name_mapping():
    plain = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
    }
    table = events(lake_in_memory(), partition_by=())
    land(table, "plain", plain, [{"id": 5, "region": "eu"}])
    with pytest.raises(InvalidSchemaError, match="name-mapping"):
        table.scan().to_arrow()
    mapping = '[{"field-id":1,"names":["id"]},{"field-id":2,"names":["region"]}]'
    table.set_properties({"schema.name-mapping.default": mapping})
    assert table.scan().to_arrow().to_pylist() == [{"id": 5, "region": "eu", "amount": None}]


def test_damage_and_unknown_types_are_errors_that_name_the_file():
    table = events(lake_in_memory(), partition_by=())
    union = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "id", "type": ["long", "string"], "field-id": 1}],
    }
    land(table, "union", union, [{"id": 5}])
    with pytest.raises(UnsupportedFeatureError, match=r"union\.avro"):
        table.scan().to_arrow()
    table = events(lake_in_memory(), partition_by=())
    land(
        table,
        "cut",
        EVENTS_AVRO,
        [{"id": n, "was_called_zone": "x", "amount": 0.0} for n in range(100)],
        codec="null",
    )
    location = f"{table.location}/data/cut.avro"
    data = bytearray(table.storage.read(location))
    data[len(data) // 2] ^= 0xFF
    for damaged in (data[: len(data) // 2], b"not avro at all", data[:-1]):
        table.storage.write(location, bytes(damaged))
        with pytest.raises(CorruptMetadataError, match=r"cut\.avro"):
            table.scan().to_arrow()


def test_lists_of_structs_that_are_all_empty():
    """A block without a single struct has structs of no rows."""
    item = StructType(NestedField(3, "n", LongType(), required=True))
    schema = Schema(
        NestedField(1, "items", ListType(2, item, element_required=True), required=False)
    )
    record = {
        "type": "record",
        "name": "r2",
        "fields": [{"name": "n", "type": "long", "field-id": 3}],
    }
    avro = {
        "type": "record",
        "name": "r",
        "fields": [
            {
                "name": "items",
                "field-id": 1,
                "type": ["null", {"type": "array", "items": record, "element-id": 2}],
            }
        ],
    }
    table = lake_in_memory().create_table("raw.lists", schema)
    for number, items in enumerate(([None, []], [[], []], [None], [[{"n": 1}], []])):
        records = [{"items": one} for one in items]
        land(table, f"f{number}", avro, records, partition=())
    found = [one["items"] for one in table.scan().to_arrow().to_pylist()]
    assert sorted(map(str, found)) == sorted(map(str, [None, [], [], [], None, [{"n": 1}], []]))


def long_field(name: str, field_id: int) -> dict[str, object]:
    return {"name": name, "type": "long", "field-id": field_id}


def avro_deletes(table, name: str, fields, records, **file) -> DataFile:
    sink = io.BytesIO()
    schema = {"type": "record", "name": name, "fields": fields}
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec="deflate")
    path = f"{table.location}/data/{name}.avro"
    table.storage.write(path, sink.getvalue())
    return DataFile(
        file_path=path,
        file_format="AVRO",
        record_count=len(records),
        file_size_in_bytes=len(sink.getvalue()),
        **file,
    )


@pytest.mark.parametrize("named", [True, False], ids=["with field ids", "by name alone"])
def test_deletes_in_avro_files_are_applied(named):
    """Java and Flink write delete files in Avro where `write.delete.format.default` says so."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "k", LongType()))
    table = lake_in_memory().create_table("raw.deleted", schema)
    table.append(pa.table({"id": range(10), "k": [n % 3 for n in range(10)]}))
    path = table.scan().plan().files[0].file_path
    fields = [
        {"name": "file_path", "type": "string", **({"field-id": 2147483546} if named else {})},
        {"name": "pos", "type": "long", **({"field-id": 2147483545} if named else {})},
    ]
    by_position = avro_deletes(
        table,
        "positions",
        fields,
        [{"file_path": path, "pos": 4}, {"file_path": path, "pos": 9}],
        content=CONTENT_POSITION_DELETES,
    )
    by_value = avro_deletes(
        table,
        "values",
        [long_field("k", 2)],
        [{"k": 2}],
        content=CONTENT_EQUALITY_DELETES,
        equality_ids=(2,),
    )
    table.transaction().row_delta(delete_files=[by_position, by_value]).commit()
    kept = [n for n in range(10) if n not in (4, 9) and n % 3 != 2]
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == kept
    assert table.scan().count() == len(kept)
    table.compact(CompactionOptions(rewrite_all=True))
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == kept
