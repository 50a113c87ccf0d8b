"""`lakehouse forget`: a census of decoded bytes by readers that are not ours."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import DecimalType, IcebergType, LongType, StringType
from typer.testing import CliRunner

import lakehouse as lh
from lakehouse.cli import app
from lakehouse.delta_log.delta_log import follow
from lakehouse.errors import (
    CorruptMetadataError,
    InvalidExpressionError,
    InvalidInputError,
    LakehouseError,
    MaintenanceRefusedError,
)
from lakehouse.ingestion.reading.formats.record_chunks import REJECTS_SCHEMA
from lakehouse.ingestion.source_tables import REST_DOC
from lakehouse.lake import Lakehouse
from lakehouse.orchestration import SqlModel
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.lineage.forget import FORGOTTEN, forget, forgotten, traces_in
from lakehouse.orchestration.lineage.value_traces import Key
from lakehouse.table import Table
from tests.orchestration.test_why import stored

DAY = dt.date(1987, 6, 5)
VALUES: dict[str, tuple[pa.DataType, Any, Any, str]] = {
    "text": (pa.string(), "ann.smith@example.com", "bob@example.com", "'ann.smith@example.com'"),
    "quoted": (pa.string(), 'o"brien é', "b", "'o\"brien é'"),
    "int": (pa.int32(), 1234567, 7, "1234567"),
    # negative: no count and no size of a manifest is equal by chance
    "short int": (pa.int64(), -42, 7, "-42"),
    "decimal": (pa.decimal128(12, 2), Decimal("98765.40"), Decimal("1.00"), "98765.40"),
    "uuid": (
        pa.uuid(),
        uuid.UUID("12345678-1234-5678-1234-567812345678").bytes,
        uuid.UUID(int=7).bytes,
        "'12345678-1234-5678-1234-567812345678'",
    ),
    "binary": (pa.binary(), b"\x01\xfesecret", b"b", "X'01FE736563726574'"),
    "date": (pa.date32(), DAY, dt.date(2000, 1, 1), "DATE '1987-06-05'"),
    "time": (
        pa.timestamp("us"),
        dt.datetime.fromisoformat("1987-06-05T04:03:02"),
        dt.datetime.fromisoformat("2000-01-01"),
        "TIMESTAMP '1987-06-05 04:03:02'",
    ),
    "double": (pa.float64(), 1234.5678, 1.0, "1234.5678"),
}


def leaves(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        for one in (*value.keys(), *value.values()):
            yield from leaves(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves(one)
    else:
        yield value


def serialized(value: Any) -> list[object]:
    """As files hold it: itself, and as single-value bytes."""
    found: list[object] = [value]
    if isinstance(value, str):
        found += [value.encode(), value[:16], value[:16].encode()]
    elif isinstance(value, int):
        found += [value.to_bytes(size, "little", signed=True) for size in (4, 8)]
    elif isinstance(value, Decimal):
        whole = int(value.scaleb(2))
        found += [whole.to_bytes(size, "big") for size in (3, 4)]
    elif isinstance(value, dt.datetime):
        micros = (value - dt.datetime.fromisoformat("1970-01-01")) // dt.timedelta(microseconds=1)
        found += [micros, micros.to_bytes(8, "little")]
    elif isinstance(value, dt.date):
        days = (value - dt.date(1970, 1, 1)).days
        found += [days, days.to_bytes(4, "little")]
    elif isinstance(value, bytes) and len(value) == 16:
        found += [uuid.UUID(bytes=value), str(uuid.UUID(bytes=value))]
    return found


def census(folder: Path, value: Any) -> list[str]:
    """Files with the value: pyarrow and fastavro decode them, text is searched."""
    wanted, found = serialized(value), []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if data[:4] == b"PAR1":
            file = pq.ParquetFile(io.BytesIO(data))
            decoded: list[object] = file.read().to_pylist()
            statistics = [
                file.metadata.row_group(group).column(at).statistics
                for group in range(file.num_row_groups)
                for at in range(file.metadata.num_columns)
            ]
            decoded += [[one.min, one.max] for one in statistics if one and one.has_min_max]
        elif data[:3] == b"Obj":
            decoded = list(fastavro.reader(io.BytesIO(data)))
        else:
            plain = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            decoded = [plain.decode(errors="replace")]
        for one in leaves(decoded):
            inside = isinstance(one, str) and isinstance(value, str) and value in one
            if inside or any(type(one) is type(mine) and one == mine for mine in wanted):
                found.append(f"{path.relative_to(folder)}: {one!r}")
    return found


def people(lake: Lakehouse, kind: str, **properties: str) -> None:
    """Rows of two people in several files, some gone already, in partitions by who they are."""
    arrow, mine, other, _ = VALUES[kind]
    by_person = [] if kind in ("double", "binary", "quoted") else ["person"]
    schema = pa.schema([pa.field("person", arrow), pa.field("n", pa.int64())])
    table = lake.create_table("raw.p", schema, partition_by=by_person, properties=properties)

    def rows(*who: Any) -> pa.Table:
        storage = pa.binary(16) if kind == "uuid" else arrow
        column = pa.array(who, storage)
        typed = pa.ExtensionArray.from_storage(arrow, column) if kind == "uuid" else column
        return pa.table({"person": typed, "n": list(range(len(who)))}, schema)

    table.append(rows(mine, other, mine))
    table.append(rows(other, other, mine))
    table.delete("n = 2")
    table.append(rows(other))


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("kind", VALUES)
def test_no_file_holds_the_value(kind: str, mode: str, tmp_path: Path) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    people(lake, kind, **{"write.delete.mode": mode})
    lake.load_table("raw.p").compute_statistics()
    _, mine, other, literal = VALUES[kind]
    before = lake.load_table("raw.p").scan("n < 9").to_arrow().num_rows
    held = {line.split(": ")[0] for line in census(tmp_path, mine)}
    assert held, "the census sees nothing"
    planned = forgotten(lake, {}, f"person = {literal}", ["raw.p"])
    assert [one.rows for one in planned.tables] == [1]
    # a plan does nothing, and what is searched afterwards is seen before
    _, reached, others = traces_in(lake.load_table("raw.p"), planned.tables[0].key)
    assert {one.removeprefix(f"{tmp_path.as_uri()}/") for one in reached | others} >= held
    done = forgotten(lake, {}, f"person = {literal}", ["raw.p"], apply=True)
    assert census(tmp_path, mine) == []
    assert (done.left, done.unreachable) == ({}, {})
    assert done.searched >= len(list((tmp_path / "warehouse/raw/p").rglob("*.parquet")))
    kept = lake.load_table("raw.p").scan().to_arrow()["person"].to_pylist()
    assert len(kept) == before - 1
    assert len(set(kept)) == 1
    (row,) = lake.load_table(FORGOTTEN).scan().to_arrow().to_pylist()
    assert (row["column"], row["rows"], row["files_left"]) == ("person", 1, 0)
    assert json.loads(row["tables"]) == {"raw.p": 1}
    assert other is not None


RAW = pa.schema(
    [
        pa.field("user_id", pa.int64()),
        pa.field("rest", pa.string(), metadata={"doc": REST_DOC}),
        pa.field("landing_file", pa.string(), nullable=False),
        pa.field("landing_line", pa.int64(), nullable=False),
    ]
)


@pytest.fixture
def pipeline(tmp_path: Path) -> tuple[Lakehouse, dict[str, DerivedTable]]:
    """A raw table, its quarantine, a table of its rows, and counts of these."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    lines = [
        (42, None),
        (7, None),
        (None, '{"user_id": "42"}'),
        (8, '{"amount": 42, "user_id": 8}'),
    ]
    rows = [
        {"user_id": who, "rest": rest, "landing_file": "a.jsonl", "landing_line": number}
        for number, (who, rest) in enumerate(lines, 1)
    ]
    lake.create_table("raw.e", RAW).append(pa.Table.from_pylist(rows, RAW))
    records = ['{"user_id": 42, "v": "x"}', '{"user_id": 7, "v": 42}', '{"user_id": 42, "v', "9"]
    rejects = [
        {
            "landing_file": "b.jsonl",
            "landing_line": number,
            "reason": "type conflict",
            "record": one,
        }
        for number, one in enumerate(records, 1)
    ]
    quarantine = lake.create_table("raw.e_quarantine", REJECTS_SCHEMA)
    quarantine.append(pa.Table.from_pylist(rejects, REJECTS_SCHEMA))
    derived = stored(
        lake,
        SqlModel(
            name="clean.e", sql="SELECT user_id, landing_line FROM raw.e", engine="datafusion"
        ),
        SqlModel(name="marts.n", sql="SELECT count(*) AS n FROM clean.e", engine="datafusion"),
    )
    return lake, derived


def test_quarantine_rescued_fields_and_derived_tables(pipeline: Any, tmp_path: Path) -> None:
    lake, derived = pipeline
    done = forgotten(lake, derived, "user_id = 42", ["raw.e"], apply=True)
    assert {one.name: one.rows for one in done.tables} == {
        "raw.e": 2,
        "clean.e": 1,
        "raw.e_quarantine": 2,
    }
    assert done.follow == ("marts.n",)
    assert done.landing == {"a.jsonl": 2, "b.jsonl": 2}
    assert (done.left, done.unreachable) == ({}, {})
    left = {
        name: lake.load_table(name).scan().to_arrow()["landing_line"].to_pylist()
        for name in ("raw.e", "raw.e_quarantine")
    }
    assert left == {"raw.e": [2, 4], "raw.e_quarantine": [2, 4]}
    assert "42" not in json.dumps(done.to_dict()["tables"])
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        text = str(pq.read_table(path).to_pylist())
        assert '"user_id": 42' not in text
        assert "'user_id': 42" not in text


def test_tags_and_branches_are_named_and_nothing_is_done(pipeline: Any) -> None:
    lake, _ = pipeline
    table = lake.load_table("raw.e")
    table.create_tag("audited")
    table.create_branch("dev")
    planned = forgotten(lake, {}, "user_id = 42", ["raw.e"])
    assert planned.tables[0].blocked_by == ("audited", "dev")
    with pytest.raises(MaintenanceRefusedError, match=r"raw\.e by audited, dev"):
        forgotten(lake, {}, "user_id = 42", ["raw.e"], apply=True)
    assert lake.load_table("raw.e").scan("user_id = 42").count() == 1
    assert not lake.table_exists(FORGOTTEN)


def test_a_file_that_nothing_reaches_is_named(pipeline: Any, tmp_path: Path) -> None:
    lake, _ = pipeline
    copy = tmp_path / "warehouse/raw/e/data/left-by-a-writer.parquet"
    pq.write_table(lake.load_table("raw.e").scan().to_arrow(), copy)
    done = forgotten(lake, {}, "user_id = 42", ["raw.e"], apply=True)
    assert done.left == {}
    ((file, found),) = done.unreachable.items()
    assert file.endswith("left-by-a-writer.parquet")
    assert found[0] == "1 values of user_id"


def test_conditions_that_name_no_values(pipeline: Any) -> None:
    lake, _ = pipeline
    for where in ("user_id > 42", "user_id = 42 or landing_line = 1", "user_id is null"):
        with pytest.raises(InvalidInputError, match="say one column and its values"):
            forgotten(lake, {}, where, ["raw.e"])
    with pytest.raises(InvalidInputError, match="name the tables"):
        forgotten(lake, {}, "user_id = 42", [])


def delta_values(folder: Path) -> list[object]:
    """What a log of Delta's says of files, whose statistics are JSON in JSON."""
    adds: list[Any] = []
    for path in (folder / "_delta_log").iterdir():
        if path.name.endswith(".checkpoint.parquet"):
            adds += pq.read_table(path)["add"].to_pylist()
        elif path.suffix == ".json":
            adds += [json.loads(line).get("add") for line in path.read_text().splitlines()]
    return [one for add in adds if add for one in leaves(json.loads(add["stats"]))]


@pytest.mark.parametrize("followed", [True, False])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("text", "ann.smith@exampl"),
        ("quoted", 'o"brien é'),
        ("short int", -42),
        ("decimal", 98765.4),
        ("date", "1987-06-05"),
        ("time", "1987-06-05T04:03:02.000000"),
    ],
)
def test_the_log_of_delta_is_cut(
    kind: str,
    said: object,
    followed: bool,
    tmp_path: Path,
) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    people(lake, kind, **({"write.delta-log": "true"} if followed else {}))
    table, folder = lake.load_table("raw.p"), tmp_path / "warehouse/raw/p"
    follow(table.catalog, table.version)
    where = f"person = {VALUES[kind][3]}"
    key = forgotten(lake, {}, where, ["raw.p"]).tables[0].key
    assert said in delta_values(folder)
    logs = [one for one in traces_in(table, key)[2] if "/_delta_log/" in one]
    assert logs, "what is in the log is seen"
    version = deltalake.DeltaTable(folder).version()
    done = forgotten(lake, {}, where, ["raw.p"], apply=True)
    assert said not in delta_values(folder)
    assert census(folder / "_delta_log", VALUES[kind][1]) == []
    assert (done.left, done.unreachable) == ({}, {})
    for times in (1, 2):  # the log goes on, by the numbers that readers know
        seen = deltalake.DeltaTable(folder)
        assert seen.version() > version
        rows = deltalake.QueryBuilder().register("t", seen).execute("SELECT n FROM t").read_all()
        assert sorted(pa.table(rows)["n"].to_pylist()) == sorted([0, 0, 1, 1] * times)
        table = lake.load_table("raw.p")
        table.append(table.scan().to_arrow())
        follow(table.catalog, table.version)


def test_a_log_that_another_engine_wrote_stands_in_the_way(pipeline: Any, tmp_path: Path) -> None:
    lake, _ = pipeline
    deltalake.write_deltalake(tmp_path / "warehouse/raw/e", pa.table({"user_id": [42]}))
    with pytest.raises(CorruptMetadataError, match="another engine"):
        forgotten(lake, {}, "user_id = 42", ["raw.e"], apply=True)
    assert lake.load_table("raw.e").scan("user_id = 42").count() == 1


def test_remembered_deletes_are_forgotten(tmp_path: Path) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("lsn", pa.int64())])
    table = lake.create_table("raw.t", schema)
    told = pa.table({"id": [1234567, 7, 1234567], "lsn": [1, 1, 2], "op": ["c", "c", "d"]})
    table.apply_changes(told, ["id"], ["lsn"], "op = 'd'")
    assert census(tmp_path, 1234567), "the delete is remembered"
    done = forgotten(lake, {}, "id = 1234567", ["raw.t"], apply=True)
    assert {one.name: one.rows for one in done.tables} == {"raw.t": 0, "raw.t_deletes": 1}
    assert census(tmp_path, 1234567) == []


def test_a_data_path_elsewhere_is_searched(tmp_path: Path) -> None:
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    elsewhere = tmp_path / "warehouse/elsewhere"
    people(lake, "short int", **{"write.data.path": elsewhere.as_uri()})
    pq.write_table(pa.table({"person": [42]}), elsewhere / "left-by-a-writer.parquet")
    done = forgotten(lake, {}, "person = 42", ["raw.p"], apply=True)
    assert done.left == {}
    assert [one.rpartition("/")[2] for one in done.unreachable] == ["left-by-a-writer.parquet"]


def test_texts_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    """Bounds keep 16 characters: of others once their files are without the value."""
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri())
    schema = pa.schema([pa.field("person", pa.string())])
    table = lake.create_table("raw.p", schema, properties={"write.delta-log": "true"})
    links = [f"https://example.com/people/{number}" for number in (1, 2)]
    table.append(pa.table({"person": links}))
    done = forgotten(lake, {}, f"person = '{links[0]}'", ["raw.p"], apply=True)
    assert (done.left, done.unreachable) == ({}, {})
    # a manifest of a file that is gone tells of somebody
    (manifest,) = table.refresh().inspect.manifests()["path"].to_pylist()
    local = Path(manifest.removeprefix("file://"))
    (data,) = table.scan().plan().files
    Path(data.file_path.removeprefix("file://")).unlink()
    found = traces_in(table, done.tables[0].key)[1]
    assert [Path(one.removeprefix("file://")).name for one in found if ".avro" in one] == [
        local.name
    ]


RECORDS = [
    (42, '{"user_id": 42.0}'),
    (42, '{"user_id": 4.2e1}'),
    (42, '{"user_id": "042"}'),
    (42, '{"user_id": 42, "user_id": 7}'),
    (42, '{"uid": 42}'),
    (42, '{"user_id": {"id": [42]}}'),
    (42, "42.0,x"),
    (42, "+42,x"),
    (Decimal("98765.40"), '{"user_id": 98765.400}'),
    ("Ann/Smith", r'{"v": "Ann\/Smith"}'),
    ("Ann/Smith", r'{"user_id": "Ann\/Sm'.replace("Sm", 'Smith", "v')),
    ("bob", r'{"user_id": "\u0062ob"}'),
    ("\U0001f600 Zoë Q", json.dumps({"v": "\U0001f600 Zoë Q"})),
    ("ÅSA LIND", '{"v": "ÅSA LIND, Åre"}'),
    ("ÅSA LIND", '{"v": "åsa lind"}'),
]
TYPES: dict[type, IcebergType] = {
    int: LongType(),
    str: StringType(),
    Decimal: DecimalType(12, 2),
}


@pytest.mark.parametrize(("value", "record"), RECORDS, ids=str)
def test_records_spell_a_value_in_many_ways(value: Any, record: str) -> None:
    key = Key("user_id", 1, TYPES[type(value)], (value,), ("uid",))
    assert key.may_be_in(pa.array([record, None])).to_pylist() == [True, False]
    assert key.in_text(record)


@pytest.mark.parametrize(
    "record",
    [
        '{"v": 42}',
        '{"user_id": 421}',
        "421,x",
        "-42,x",
        "x42",
        "3.42",
        '{"user_id": "x"}',
        "[" * 9999,
    ],
    ids=str,
)
def test_records_of_others(record: str) -> None:
    assert not Key("user_id", 1, LongType(), (42,)).in_text(record)


def test_every_kind_of_file_is_read(pipeline: Any, tmp_path: Path) -> None:
    """As other writers leave files in a table's folder."""
    lake, _ = pipeline
    table = lake.load_table("raw.e")
    folder = tmp_path / "warehouse/raw/e/data"
    whole = {"name": "r", "type": "record", "fields": [{"name": "user_id", "type": "long"}]}
    with (folder / "a.avro").open("wb") as file:
        fastavro.writer(file, whole, [{"user_id": 7}, {"user_id": 42}])
    odd = {"name": "r", "type": "record", "fields": [{"name": "partition", "type": "string"}]}
    with (folder / "b.avro").open("wb") as file:
        fastavro.writer(file, odd, [{"partition": "7"}])
    (folder / "c.txt").write_text("ÅSA LIND")
    (folder / "d.crc").write_bytes(gzip.compress("ÅSA LIND".encode()))
    found = traces_in(table, Key("user_id", 1, LongType(), (42,)))[2]
    assert {one.rpartition("/")[2] for one in found} == {"a.avro"}
    found = traces_in(table, Key("user_id", 1, StringType(), ("ÅSA LIND",)))[2]
    assert {one.rpartition("/")[2] for one in found} == {"c.txt", "d.crc"}
    orc.write_table(pa.table({"user_id": [42]}), folder / "e.orc")
    with pytest.raises(LakehouseError, match=r"e\.orc cannot be searched"):
        traces_in(table, Key("user_id", 1, LongType(), (42,)))


def test_files_of_a_table_that_was_taken_over_are_named(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    deltalake.write_deltalake(theirs, pa.table({"person": [42, 7]}))
    places: dict[str, Any] = {"allowed-locations": theirs.as_uri()}
    lake = lh.load_catalog((tmp_path / "warehouse").as_uri(), **places)
    lake.import_delta(str(theirs), "raw.p")
    done = forgotten(lake, {}, "person = 42", ["raw.p"], apply=True)
    assert lake.load_table("raw.p").scan("person = 42").count() == 0
    assert done.left == {}
    ((file, found),) = done.unreachable.items()
    assert (Path(file.removeprefix("file://")).parent, found) == (theirs, ("1 values of person",))


def test_a_branch_of_the_lake_does_not_hide_main(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = pipeline
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEHOUSE_BRANCH", "dev")
    options = ["--catalog", lake.warehouse, "--where", "user_id = 42", "--table", "raw.e"]
    done = CliRunner().invoke(app, ["forget", *options, "--apply"])
    assert done.exit_code == 0, done.output
    assert lake.load_table("raw.e").scan("user_id = 42").count() == 0
    assert list(lake.load_table("raw.e").refs()) == ["main"]


def test_without_definitions_the_plan_says_so(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = pipeline
    monkeypatch.chdir(tmp_path)
    assert dict(forget(lake, "user_id = 42", ["raw.e"]).facts())["derived tables"]


def test_without_tables_it_is_all_that_have_the_column(
    pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, _ = pipeline
    monkeypatch.chdir(tmp_path)
    names = lake.list_tables()
    having = {one for one in names if "user_id" in lake.load_table(one).schema().column_names}
    assert len(having) > 1
    found = {table.name for table in forget(lake, "user_id = 42", []).tables}
    assert found == having | {f"{n}_quarantine" for n in having} & set(names)
    with pytest.raises(InvalidInputError, match="no table has such a column"):
        forget(lake, "nobody = 42", [])
    with pytest.raises(InvalidExpressionError):
        forget(lake, "user_id =", [])


STEPS = ("delete", "compact", "rewrite_manifests", "expire_snapshots", "remove_orphan_files")


@pytest.mark.parametrize("step", [*STEPS, "set_properties", "remove_properties"])
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("at", ["raw.e", pytest.param("raw.e_quarantine", marks=pytest.mark.slow)])
def test_a_death_in_the_middle_is_made_good(
    step: str, mode: str, at: str, pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the step has committed, nothing else happens; it is carried out again."""
    lake, derived = pipeline
    for name in ("raw.e", "raw.e_quarantine", "clean.e"):
        changed = {"write.delete.mode": mode, "write.delta-log": "true", "note": "of 42"}
        lake.load_table(name).set_properties(changed)
        lake.load_table(name).remove_properties("note")
    real = getattr(Table, step)

    def died(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)
        if self.name == at:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(Table, step, died)
        forgotten(lake, derived, "user_id = 42", ["raw.e"], apply=True)
    done = forgotten(lake, derived, "user_id = 42", ["raw.e"], apply=True)
    assert (done.left, done.unreachable) == ({}, {})
    for name in ("raw.e", "raw.e_quarantine", "clean.e"):
        assert "write.metadata.previous-versions-max" not in lake.load_table(name).properties
    for path in (tmp_path / "warehouse").rglob("*.parquet"):
        text = str(pq.read_table(path).to_pylist())
        assert '"user_id": 42' not in text
        assert "'user_id': 42" not in text
