"""Existing files join a table: `add_files` and `import_hive`, read by pyiceberg too."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table import StaticTable

import lakehouse as lh
from lakehouse.spec.partitioning.partition_terms import HIVE_NULL, is_hidden, partition_texts

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("amount", pa.float64()),
        pa.field("place", pa.struct([("city", pa.string())])),
    ]
)
PARTITIONED = pa.schema([*SCHEMA, pa.field("dt", pa.date32()), pa.field("region", pa.string())])


@pytest.fixture
def catalog(tmp_path):
    return lh.load_catalog(f"file://{tmp_path}/warehouse", **{"allowed-locations": str(tmp_path)})


def rows(*ids: int) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": n, "amount": n / 2, "place": {"city": f"c{n}"}} for n in ids], schema=SCHEMA
    )


def parquet(folder, name: str, data: pa.Table) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, folder / name)
    return str(folder / name)


def ids(table: lh.Table, **scan) -> list[int]:
    return sorted(table.scan(**scan).to_arrow()["id"].to_pylist())


def read_by_pyiceberg(table: lh.Table) -> list[dict]:
    return sorted(
        StaticTable.from_metadata(table.metadata_location).scan().to_arrow().to_pylist(),
        key=lambda row: row["id"],
    )


@pytest.mark.parametrize("version", [2, 3])
def test_files_without_ids_are_read_by_name(catalog, tmp_path, version):
    table = catalog.create_table("raw.t", SCHEMA, format_version=version)
    table.append(rows(1))
    path = parquet(tmp_path / "old", "a.parquet", rows(2, 3).select(["place", "id"]))
    before = (tmp_path / "old" / "a.parquet").read_bytes()
    snapshot = table.add_files([path])
    assert (tmp_path / "old" / "a.parquet").read_bytes() == before
    assert snapshot.summary["added-records"] == "2"
    assert f"file://{path}" in [file.file_path for file in table.scan().plan().files]
    expected = [
        {"id": 1, "amount": 0.5, "place": {"city": "c1"}},
        {"id": 2, "amount": None, "place": {"city": "c2"}},
        {"id": 3, "amount": None, "place": {"city": "c3"}},
    ]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert read_by_pyiceberg(table) == expected
    assert ids(table, where="id >= 3") == [3]
    assert table.scan(where="id >= 4").plan().files[:] == []


def test_names_of_imported_columns_stand_after_renames(catalog, tmp_path):
    table = catalog.create_table("raw.t", SCHEMA)
    table.add_files([parquet(tmp_path, "a.parquet", rows(1))])
    with table.update_schema() as schema:
        schema.rename_column("amount", "price")
        schema.rename_column("place.city", "town")
        schema.add_column("extra", "string")
    table.add_files(
        [parquet(tmp_path, "b.parquet", pa.table({"id": [2], "amount": [1.0], "extra": ["x"]}))]
    )
    expected = [
        {"id": 1, "price": 0.5, "place": {"town": "c1"}, "extra": None},
        {"id": 2, "price": 1.0, "place": None, "extra": "x"},
    ]
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert read_by_pyiceberg(table) == expected
    town = pa.table({"id": [3], "price": [1.5], "place": [{"town": "c3"}]})
    table.add_files([parquet(tmp_path, "c.parquet", town)])
    expected.append({"id": 3, "price": 1.5, "place": {"town": "c3"}, "extra": None})
    assert sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == expected
    assert read_by_pyiceberg(table) == expected
    with table.update_schema() as schema:
        schema.add_column("amount", "double")
    assert table.scan(select="amount").to_arrow()["amount"].to_pylist() == [None] * 3
    with pytest.raises(lh.LakehouseError, match="amount"):
        table.add_files([parquet(tmp_path, "d.parquet", rows(3))])


def test_a_name_that_has_moved_to_another_column_stands_for_neither(catalog, tmp_path):
    table = catalog.create_table("raw.t", pa.schema({"id": pa.int64(), "a": pa.int64()}))
    table.add_files([parquet(tmp_path, "a.parquet", pa.table({"id": [1], "a": [10]}))])
    with table.update_schema() as schema:
        schema.rename_column("id", "key")
        schema.rename_column("a", "id")
    with pytest.raises(lh.InvalidSchemaError, match=r"'id' is field 1, but now field 2"):
        table.add_files([parquet(tmp_path, "b.parquet", pa.table({"id": [2]}))])
    assert table.scan().to_arrow().to_pylist() == [{"key": 1, "id": 10}]


def test_what_cannot_be_taken_in_is_refused_and_nothing_changes(catalog, tmp_path):
    table = catalog.create_table("raw.t", SCHEMA, partition_by=["bucket(4, id)"])
    ours = catalog.create_table("raw.other", SCHEMA)
    ours.append(rows(1))
    with_ids = ours.scan().plan().files[0].file_path
    good = parquet(tmp_path, "good.parquet", rows(7, 7))
    table.add_files([good])
    cases = {
        "field ids": with_ids,
        "nonsense": parquet(tmp_path, "stray.parquet", pa.table({"id": [1], "nonsense": [1]})),
        "lacks: place.zip": parquet(
            tmp_path, "nested.parquet", pa.table({"place": [{"city": "c", "zip": 1}]})
        ),
        "cannot be read as long": parquet(tmp_path, "type.parquet", pa.table({"id": ["one"]})),
        "more than one partition": parquet(tmp_path, "mixed.parquet", rows(1, 2)),
        "nulls among": parquet(tmp_path, "nulls.parquet", pa.table({"id": pa.array([1, None])})),
        "already": good,
        "No file": str(tmp_path / "absent.parquet"),
    }
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and no more")
    cases["torn"] = str(tmp_path / "torn.parquet")
    version = table.metadata_location
    for message, path in cases.items():
        with pytest.raises(lh.LakehouseError, match=message):
            table.add_files([path])
    with pytest.raises(lh.InvalidInputError, match="twice"):
        table.add_files([parquet(tmp_path, "x.parquet", rows(8))] * 2)
    with pytest.raises(lh.InvalidInputError, match="no files"):
        table.add_files([])
    assert table.refresh().metadata_location == version
    assert ids(table) == [7, 7]


INSTANT = dt.datetime(2026, 6, 9, 10, tzinfo=dt.timezone(dt.timedelta(hours=2)))
LOCAL = dt.datetime(2026, 6, 9, 8)  # noqa: DTZ001 - without a zone on purpose
ZONED, NAIVE = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


@pytest.mark.parametrize("unit", ["us", "ns"])
@pytest.mark.parametrize(("column", "held"), [(NAIVE, ZONED), (ZONED, NAIVE)])
@pytest.mark.parametrize("nested", [False, True])
def test_instants_are_no_local_times(catalog, tmp_path, column, held, nested, unit):
    """What `append` refuses, `add_files` and `import_hive` refuse, too."""

    def typed(kind):
        at = pa.timestamp(unit, tz=kind.tz)
        return pa.schema({"at": pa.list_(pa.struct({"x": at})) if nested else at})

    version = 3 if unit == "ns" else 2
    table = catalog.create_table("raw.t", typed(column), format_version=version)
    value = INSTANT if held.tz else LOCAL
    data = pa.table({"at": [[{"x": value}] if nested else value]}, schema=typed(held))
    path = parquet(tmp_path / "old", "a.parquet", data)
    with pytest.raises(lh.InvalidSchemaError, match="is timestamp"):
        table.append(data)
    with pytest.raises(lh.InvalidSchemaError, match="in which zone"):
        table.add_files([path])
    with pytest.raises(lh.InvalidSchemaError, match="in which zone"):
        table.import_hive(str(tmp_path / "old"))


@pytest.mark.parametrize("column", [NAIVE, ZONED])
@pytest.mark.parametrize("held", [NAIVE, ZONED])
def test_timestamps_of_96_bits_say_nothing_of_zones(catalog, tmp_path, column, held):
    table = catalog.create_table("raw.t", pa.schema({"at": column}))
    value = INSTANT if held.tz else LOCAL
    path = str(tmp_path / "old.parquet")
    pq.write_table(
        pa.table({"at": pa.array([value], held)}), path, use_deprecated_int96_timestamps=True
    )
    table.add_files([path])
    (found,) = table.scan().to_arrow()["at"].to_pylist()
    assert found.replace(tzinfo=None) == LOCAL


def test_partitions_come_from_the_footer(catalog, tmp_path):
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("ts", pa.timestamp("us", tz="UTC"))])
    table = catalog.create_table("raw.t", schema, partition_by=["day(ts)", "truncate(10, id)"])
    start = dt.datetime(2026, 6, 9, tzinfo=dt.UTC)
    day = pa.table({"id": [10, 19], "ts": [start, start + dt.timedelta(hours=23)]}, schema=schema)
    table.add_files([parquet(tmp_path, "day.parquet", day)])
    (file,) = table.scan().plan().files
    assert file.partition == ((start.date() - dt.date(1970, 1, 1)).days, 10)
    assert table.scan(where="ts >= '2026-06-10T00:00:00+00:00'").plan().files[:] == []
    late = pa.table({"id": [10, 11], "ts": [start, start + dt.timedelta(hours=24)]}, schema=schema)
    with pytest.raises(lh.InvalidInputError, match="ts_day"):
        table.add_files([parquet(tmp_path, "late.parquet", late)])


def test_a_step_that_is_tried_again_takes_files_in_once(catalog, tmp_path):
    table = catalog.create_table("raw.t", SCHEMA)
    paths = [parquet(tmp_path, "a.parquet", rows(1))]
    first = table.add_files(paths, commit_id="run-1")
    again = catalog.load_table("raw.t").add_files(paths, commit_id="run-1")
    assert again.snapshot_id == first.snapshot_id
    assert ids(catalog.load_table("raw.t")) == [1]
    assert pq.read_table(paths[0]).num_rows == 1


@pytest.mark.parametrize("spelling", ["same", "other"])
@pytest.mark.parametrize("between", ["nothing", "compaction", "append"])
def test_two_handles_take_a_file_in_once(catalog, tmp_path, spelling, between):
    """The second one looked through the table too early; its commit looks again."""
    table, late = catalog.create_table("raw.t", SCHEMA), catalog.load_table("raw.t")
    path = parquet(tmp_path, "a.parquet", rows(1))
    table.add_files([path, parquet(tmp_path, "b.parquet", rows(2))])
    if between == "compaction":
        table.compact(lh.CompactionOptions(rewrite_all=True))
    elif between == "append":
        table.append(rows(3))
    again = path if spelling == "same" else Path(path).as_uri()
    other = parquet(tmp_path, "c.parquet", rows(4))
    with pytest.raises(lh.ValidationConflictError, match="would count twice"):
        late.add_files([other, again])
    assert ids(table.refresh()) == ([1, 2, 3] if between == "append" else [1, 2])
    assert Path(path).exists()
    late.add_files([other])
    assert 4 in ids(late)


def test_two_handles_import_a_folder_once(catalog, tmp_path):
    table = catalog.create_table("raw.t", SCHEMA)
    late = catalog.load_table("raw.t")
    parquet(tmp_path / "old", "part-0.parquet", rows(1))
    table.import_hive((tmp_path / "old").as_uri())
    with pytest.raises(lh.ValidationConflictError, match="would count twice"):
        late.import_hive(str(tmp_path / "old"))
    assert ids(table) == [1]


def hive(root, days=("2026-06-08", "2026-06-09"), regions=("eu", "us/ca", "50%", None)) -> int:
    number = 0
    for day in days:
        for region in regions:
            number += 1
            folder = (
                root
                / f"dt={day}"
                / f"region={HIVE_NULL if region is None else quote(region, safe='')}"
            )
            parquet(folder, "part-0.parquet", rows(number))
    (root / "_SUCCESS").write_bytes(b"")
    (root / "_temporary").mkdir()
    (root / "_temporary" / "half.parquet").write_bytes(b"half a file")
    return number


@pytest.mark.parametrize(
    "wanted", [{"region": "us/ca"}, {"dt": "2026-06-09"}, {"region": "50%", "dt": "2026-06-08"}]
)
def test_partitions_of_a_hive_folder_are_taken_in_alone(catalog, tmp_path, wanted):
    hive(tmp_path / "old")
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=["dt", "region"])
    table.import_hive(str(tmp_path / "old"), partitions=wanted)
    kinds = ds.partitioning(pa.schema({"dt": pa.string(), "region": pa.string()}), flavor="hive")
    rows = ds.dataset(tmp_path / "old", partitioning=kinds).to_table().to_pylist()
    assert ids(table) == sorted(row["id"] for row in rows if row.items() >= wanted.items())
    for none in ({"region": "nowhere"}, {"nope": "1"}):
        with pytest.raises(lh.InvalidInputError, match=r"no files to add|no partition 'nope'"):
            table.import_hive(str(tmp_path / "old"), partitions=none)


@pytest.mark.parametrize("version", [2, 3])
def test_a_hive_folder_becomes_a_table_without_being_rewritten(catalog, tmp_path, version):
    count = hive(tmp_path / "old")
    table = catalog.create_table(
        "raw.t", PARTITIONED, partition_by=["dt", "region"], format_version=version
    )
    table.import_hive(str(tmp_path / "old"))
    got = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    days, regions = (dt.date(2026, 6, 8), dt.date(2026, 6, 9)), ("eu", "us/ca", "50%", None)
    assert [(row["dt"], row["region"]) for row in got] == [
        (day, region) for day in days for region in regions
    ]
    assert read_by_pyiceberg(table) == got
    assert {file.file_path for file in table.scan().plan().files} == {
        f"file://{path}" for path in (tmp_path / "old").glob("dt=*/*/*")
    }
    assert len(table.scan(where="dt = '2026-06-09' and region = 'us/ca'").plan().files) == 1
    assert ids(table, where="region is null") == [4, 8]
    with table.update_partition_spec() as spec:
        spec.remove("region")
    table.append(table.scan(where="id = 1").to_arrow())
    table.delete("id = 2")
    assert ids(table) == sorted([*range(1, count + 1), 1])[:2] + list(range(3, count + 1))
    table.compact(lh.CompactionOptions(min_input_files=2))
    assert {row["region"] for row in table.scan().to_arrow().to_pylist()} == set(regions)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("year=2026/part.parquet", "no column"),
        ("amount=1/part.parquet", "no identity"),
        ("dt=yesterday/region=eu/part.parquet", "yesterday"),
        ("dt=2026-06-09/part.csv", "Parquet"),
        ("dt=2026-06-09/nine/part.parquet", "column=value"),
        ("dt=2026-06-09/dt=2026-06-09/part.parquet", "twice"),
    ],
)
def test_a_hive_folder_that_would_lose_something_is_refused(catalog, tmp_path, layout, message):
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=["dt", "region"])
    path = tmp_path / "old" / layout
    parquet(path.parent, path.name, rows(1))
    with pytest.raises(lh.LakehouseError, match=message):
        table.import_hive(str(tmp_path / "old"))
    assert table.refresh().current_snapshot() is None


def test_a_partition_column_that_is_also_in_the_file_must_agree(catalog, tmp_path):
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=["dt", "region"])
    both = rows(1).append_column("region", pa.array(["eu"]))
    parquet(tmp_path / "good" / "dt=2026-06-09" / "region=eu", "a.parquet", both)
    table.import_hive(str(tmp_path / "good"))
    assert table.scan(where="region = 'eu'").count() == 1
    parquet(tmp_path / "bad" / "dt=2026-06-09" / "region=us", "a.parquet", both)
    with pytest.raises(lh.InvalidInputError, match="in the path and, otherwise"):
        table.import_hive(str(tmp_path / "bad"))


@pytest.mark.parametrize("way", ["file", "folder"])
def test_folders_above_what_is_named_tell_partitions_too(catalog, tmp_path, way):
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=["dt", "region"])
    folder = tmp_path / "region=xx" / "id=7" / "dt=2026-06-09" / "region=us%2Fca"
    path = parquet(folder, "a.parquet", rows(1))
    if way == "file":
        table.add_files([path])
    else:
        table.import_hive(str(folder))
    (row,) = table.scan().to_arrow().to_pylist()
    assert (row["id"], row["dt"], row["region"]) == (1, dt.date(2026, 6, 9), "us/ca")
    assert table.scan(where="region is null").plan().files[:] == []


def test_a_column_of_an_added_file_counts_and_not_its_folder(catalog, tmp_path):
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=["region"])
    own = rows(1).append_column("region", pa.array(["eu"]))
    table.add_files([parquet(tmp_path / "region=us", "a.parquet", own)])
    assert table.scan().to_arrow()["region"].to_pylist() == ["eu"]
    days = catalog.create_table("raw.days", PARTITIONED, partition_by=["dt"])
    unclear = parquet(tmp_path / "dt=day", "b.parquet", rows(2))
    with pytest.raises(lh.InvalidInputError, match="'day' is no value"):
        days.add_files([unclear])


@pytest.mark.parametrize("terms", [[], ["bucket(4, region)"], ["truncate(1, region)"], ["dt"]])
@pytest.mark.parametrize("way", ["file", "folder"])
def test_a_folder_whose_value_would_be_lost_is_refused(catalog, tmp_path, terms, way):
    table = catalog.create_table("raw.t", PARTITIONED, partition_by=terms)
    path = parquet(tmp_path / "region=eu", "a.parquet", rows(1))
    take, what = (
        (table.add_files, [path]) if way == "file" else (table.import_hive, str(Path(path).parent))
    )
    with pytest.raises(lh.InvalidInputError, match="'region' is no identity partition field"):
        take(what)
    assert table.metadata.current_snapshot_id is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.int32(), "-7", -7),
        (pa.int64(), "9007199254740993", 9007199254740993),
        (pa.bool_(), "true", True),
        (pa.decimal128(9, 2), "-1.50", Decimal("-1.50")),
        (pa.date32(), "1969-12-31", dt.date(1969, 12, 31)),
        (
            pa.timestamp("us"),
            "2026-06-09 12:30:00.5",
            dt.datetime.fromisoformat("2026-06-09T12:30:00.5"),
        ),
        (pa.string(), "2026", "2026"),
        (
            pa.uuid(),
            "f79c3e09-677c-4bbd-a479-512f87f77651",
            uuid.UUID("f79c3e09-677c-4bbd-a479-512f87f77651"),
        ),
        (pa.float64(), "2.5", 2.5),
    ],
)
def test_texts_become_values_of_the_column(catalog, tmp_path, kind, text, value):
    table = catalog.create_table(
        "raw.t", pa.schema([*SCHEMA, pa.field("k", kind)]), partition_by=["k"]
    )
    parquet(tmp_path / "old" / f"k={quote(text, safe='')}", "a.parquet", rows(1))
    table.import_hive(str(tmp_path / "old"))
    assert table.scan().to_arrow()["k"].to_pylist() == [value]


@given(values=st.dictionaries(st.text(min_size=1), st.none() | st.text(min_size=1), max_size=3))
def test_paths_of_any_text_are_taken_apart(values):
    names = [
        f"{quote(name, safe='')}={HIVE_NULL if value is None else quote(value, safe='')}"
        for name, value in values.items()
    ]
    path = "/".join([*names, "part-0.parquet"])
    assert partition_texts(path) == values
    assert is_hidden(path) == any(name.startswith(".") for name in values)


LONG = pa.schema({"x": pa.int64()})
ELEMENTS = pa.schema({"x": pa.list_(pa.int64())})
TEXT = pa.schema({"x": pa.string()})
REQUIRED = pa.schema([pa.field("x", pa.int64(), nullable=False)])
WITHIN = pa.schema({"x": pa.struct([pa.field("y", pa.int64(), nullable=False)])})
NO_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())
TWO = pa.array([1])
UNREADABLE = {
    "unsigned": (LONG, pa.table({"x": pa.array([2**63], pa.uint64())})),
    "unsigned element": (ELEMENTS, pa.table({"x": pa.array([[2**63]], pa.list_(pa.uint64()))})),
    "unsigned int": (pa.schema({"x": pa.int32()}), pa.table({"x": pa.array([2**31], pa.uint32())})),
    "null": (REQUIRED, pa.table({"x": [1, None]})),
    "null within": (
        WITHIN,
        pa.table({"x": pa.array([{"y": None}], pa.struct({"y": pa.int64()}))}),
    ),
    "no text": (TEXT, pa.table({"x": NO_TEXT})),
    "too late": (
        pa.schema({"x": pa.timestamp("us")}),
        pa.table({"x": pa.array([2**60], pa.timestamp("ms"))}),
    ),
    "twice": (LONG, pa.Table.from_arrays([TWO, TWO], names=["x", "x"])),
    "twice within": (
        pa.schema({"x": pa.struct({"y": pa.int64()})}),
        pa.table({"x": pa.StructArray.from_arrays([TWO, TWO], names=["y", "y"])}),
    ),
}


@pytest.mark.parametrize(
    ("case", "statistics"),
    [
        *((case, True) for case in UNREADABLE),
        # without them a footer gives no hint of bytes that are no text
        *((case, False) for case in UNREADABLE if case != "no text"),
    ],
)
def test_a_file_that_no_scan_could_read_is_refused_by_name(catalog, tmp_path, case, statistics):
    schema, data = UNREADABLE[case]
    table = catalog.create_table("raw.rows", schema)
    path = str(tmp_path / "bad.parquet")
    pq.write_table(data, path, write_statistics=statistics)
    with pytest.raises(lh.InvalidSchemaError, match=r"bad\.parquet"):
        table.add_files([path])
    assert table.refresh().scan().count() == 0


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (LONG, pa.table({"x": pa.array([2**63 - 1, None], pa.uint64())})),
        (REQUIRED, pa.table({"x": pa.array([1, 2])})),
        (
            pa.schema({"x": pa.decimal128(20, 0)}),
            pa.table({"x": pa.array([2**64 - 1, 0, None], pa.uint64())}),
        ),
        (pa.schema({"x": pa.float32()}), pa.table({"x": pa.array([1.5], pa.float16())})),
        (pa.schema({"x": pa.timestamp("us")}), pa.table({"x": pa.array([5], pa.timestamp("ms"))})),
        (WITHIN, pa.table({"x": pa.array([None, {"y": 1}], pa.struct({"y": pa.int64()}))})),
    ],
)
def test_doubtful_files_whose_values_fit_are_taken(catalog, tmp_path, schema, data, statistics):
    table = catalog.create_table("raw.rows", schema)
    path = str(tmp_path / "good.parquet")
    pq.write_table(data, path, write_statistics=statistics)
    assert table.add_files([path]).rows_inserted == data.num_rows
    assert table.scan().to_arrow().to_pylist() == data.cast(schema).to_pylist()


def test_doubtful_columns_with_dictionaries_inside_in_several_row_groups_are_taken(
    catalog, tmp_path
):
    names, numbers = pa.array(["a", "b"]), pa.array([1, 2], pa.uint32())
    fields = [pa.field("name", pa.string()), pa.field("number", pa.int32())]
    table = catalog.create_table("raw.rows", pa.schema({"x": pa.struct(fields)}))
    values = pa.StructArray.from_arrays([names.dictionary_encode(), numbers], ["name", "number"])
    path = str(tmp_path / "good.parquet")
    pq.write_table(pa.table({"x": values}), path, row_group_size=1, write_statistics=False)
    table.add_files([path])
    assert table.scan().to_arrow()["x"].to_pylist() == values.to_pylist()
