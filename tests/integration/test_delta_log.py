"""Tables read as Delta: every version of the log by delta-rs, the newest by DuckDB.

Held fixed: local disk (but for one test), one schema at first. Varied: format version,
merge-on-read and copy-on-write, sizes of vectors, partitions and their change, columns added,
dropped and widened, branches, rollback, compaction, expiry, who follows and when, what other
processes did meanwhile, versions between checkpoints.
`python -m tests.integration.test_delta_log --rounds 1000` runs more histories.
"""

from __future__ import annotations

import argparse
import datetime as dt
import decimal
import functools
import json
import random
import shutil
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import deltalake
import duckdb
import duckdb_extensions
import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

import lakehouse as lh
from lakehouse.catalog.branch_catalog import BranchCatalog
from lakehouse.data.deletes.deletion_vector import encode_vector
from lakehouse.delta_log import delta_log
from lakehouse.delta_log.delta_actions import inline_vector
from lakehouse.delta_log.delta_log import DeltaLog, follow
from lakehouse.delta_log.following import DeltaFollowedCatalog
from lakehouse.errors import CorruptMetadataError, InvalidInputError, UnsupportedFeatureError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.maintenance.relocation import relocate
from lakehouse.spec.metadata.table_updates import SetCurrentSchema
from lakehouse.storage.storage_protocol import DeleteReport
from tests.integration.test_maintenance_compaction import equality_delete
from tests.seeds import seeds
from tests.servers import ServeProcess

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "group": pa.int32(),
        "grüße_1": pa.string(),
        "amount": pa.decimal128(12, 2),
        "at": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"),
        "day": pa.date32(),
        "ratio": pa.float64(),
        "raw": pa.binary(),
        "flag": pa.bool_(),
        "nested": pa.struct({"x": pa.int32(), "tags": pa.list_(pa.string())}),
        "pairs": pa.map_(pa.string(), pa.int64()),
    }
)
DELTA = {"write.delta-log": "true"}


def made(chance, first, count, schema=SCHEMA):
    """Rows with ids from `first`; each other value is null now and then."""

    def or_null(value):
        return None if chance.random() < 0.1 else value

    at = dt.datetime(1969, 12, 30, tzinfo=dt.UTC)
    rows = []
    for number in range(first, first + count):
        moment = at + dt.timedelta(minutes=37 * number, microseconds=chance.randrange(10**6))
        rows.append(
            {
                "id": number,
                "group": or_null(number % 5),
                "grüße_1": or_null(f"ü{number}%/ " * chance.randrange(4)),
                "amount": or_null(decimal.Decimal(number * 7 - 50) / 100),
                "at": or_null(moment),
                "local": or_null(moment.replace(tzinfo=None)),
                "day": or_null(moment.date()),
                "ratio": or_null(chance.choice([0.1 * number, float("nan"), -0.0, float("inf")])),
                "raw": or_null(bytes([number % 256])),
                "flag": or_null(number % 2 == 0),
                "nested": or_null({"x": or_null(number), "tags": or_null(["a", None])}),
                "pairs": or_null([("k", number)]),
                "extra": or_null(number),
            }
        )
    return pa.Table.from_pylist(
        [{name: row[name] for name in schema.names} for row in rows], schema
    )


def plain(rows: pa.Table):
    """Rows that can be compared, whatever engine read them; by id."""

    def value(one):
        if isinstance(one, float):
            return "NaN" if one != one else one
        if isinstance(one, dt.datetime) and one.tzinfo is not None:
            return one.astimezone(dt.UTC)
        if isinstance(one, dict):
            return {key: value(inner) for key, inner in one.items()}
        return one

    listed = [{name: value(cell) for name, cell in row.items()} for row in rows.to_pylist()]
    return sorted(listed, key=lambda row: row["id"])


def by_delta_rs(table, version=None, condition="true"):
    folder = table.location.removeprefix("file://")
    found = deltalake.DeltaTable(folder, version=version)
    query = deltalake.QueryBuilder().register("t", found)
    batches = query.execute(f"SELECT * FROM t WHERE {condition}")
    return plain(pa.table(batches.read_all()))


def by_duckdb(table, condition="true"):
    folder = table.location.removeprefix("file://")
    text = f"SELECT * FROM delta_scan('{folder}') WHERE {condition}"
    with duck_with_delta().cursor() as connection:
        return plain(connection.execute(text).to_arrow_table())


@functools.cache
def duck_with_delta():
    """One engine, which remembers nothing of the files that it read."""
    connection = duckdb.connect()
    duckdb_extensions.import_extension("delta", con=connection)
    connection.execute("LOAD delta; SET GLOBAL timezone = 'UTC'")
    connection.execute("SET GLOBAL enable_external_file_cache = false")
    return connection


def log_of(table):
    return DeltaLog(table.catalog.storage(table.location), table.location)


class History:
    """Random changes of a table of two format versions, with what other engines see of it."""

    def __init__(self, folder, seed):
        self.chance = random.Random(seed)
        self.lake = lh.load_catalog(f"file://{folder}")
        modes = self.chance.choice(["merge-on-read", "copy-on-write", "merge-on-read"])
        self.table = self.lake.create_table(
            "a.t",
            SCHEMA,
            partition_by=self.chance.choice(
                [(), ("day(at)",), ("bucket(3, id)", "flag"), ("truncate(3, grüße_1)",)]
            ),
            format_version=self.chance.choice([2, 3]),
            properties={
                "write.delete.mode": modes,
                "write.update.mode": modes,
                "write.merge.mode": modes,
                "write.delete.granularity": self.chance.choice(["file", "partition"]),
                **DELTA,
            },
        )
        self.schema = SCHEMA
        self.ids = 0
        self.has_had_extra = False

    def rows(self, count):
        found = made(self.chance, self.ids, count, self.schema)
        self.ids += count
        return found

    def step(self):
        kinds = {
            self.append: 4,
            self.delete: 4,
            self.upsert: 2,
            self.overwrite: 1,
            self.compact: 1,
            self.rollback: 1,
            self.add_column: 1,
            self.drop_column: 0.5,
            self.widen: 0.5,
            self.repartition: 0.5,
            self.on_a_branch: 1,
            self.delete_by_value: 1,
            self.late: 1,
            self.property: 0.5,
            self.expire: 0.5,
        }
        kind = self.chance.choices(list(kinds), list(kinds.values()))[0]
        kind()
        return kind.__name__

    def append(self):
        self.table.append(self.rows(self.chance.choice([1, 30, 400])))

    def delete(self):
        if self.chance.random() < 0.3:
            self.table.delete(f"id % {self.chance.randrange(2, 9)} = 0")
        else:
            self.table.delete(f"id = {self.chance.randrange(max(self.ids, 1))}")

    def upsert(self):
        first = self.chance.randrange(max(self.ids, 1))
        self.table.upsert(made(self.chance, first, 20, self.schema), keys=["id"])
        self.ids = max(self.ids, first + 20)

    def overwrite(self):
        self.table.overwrite(self.rows(10), where='"group" = 1')

    def compact(self):
        self.table.compact(lh.CompactionOptions(min_input_files=2, delete_ratio_threshold=0.01))

    def rollback(self):
        line = list(self.table.metadata.ancestors(self.table.metadata.current_snapshot_id))
        if len(line) > 1:
            self.table.rollback_to(self.chance.choice(line).snapshot_id)

    def add_column(self):
        if not self.has_had_extra:
            with self.table.update_schema() as change:
                change.add_column("extra", "int")
            self.schema = self.schema.append(pa.field("extra", pa.int32()))
            self.has_had_extra = True  # once: a name that comes again is refused

    def drop_column(self):
        if "raw" in self.schema.names:
            with self.table.update_schema() as change:
                change.drop_column("raw")
            self.schema = self.schema.remove(self.schema.get_field_index("raw"))

    def widen(self):
        place = self.schema.get_field_index("group")
        if self.schema.field(place).type == pa.int32():
            with self.table.update_schema() as change:
                change.update_column("group", "long")
            self.schema = self.schema.set(place, pa.field("group", pa.int64()))

    def repartition(self):
        terms = self.chance.choice([("month(at)",), ("truncate(20, id)",), ()])
        with self.table.update_partition_spec() as change:
            change.set(*terms)

    def on_a_branch(self):
        name = f"b{self.chance.randrange(10**9)}"
        if self.table.metadata.current_snapshot_id is not None:
            self.table.create_branch(name)
            self.table.append(self.rows(3), branch=name)

    def delete_by_value(self):
        files = [task.data_file for task in self.table.scan().plan().tasks]
        if files and self.ids:
            victim = self.chance.choice(files)
            ids = [self.chance.randrange(self.ids) for _ in range(5)]
            name = f"eq{self.chance.randrange(10**9)}"
            delete = equality_delete(self.table, victim, ids, name)
            self.table.transaction().row_delta((), [delete]).commit()
            self.table = self.table.refresh()

    def late(self):
        """Commits whose writer dies before the log follows."""
        self.lake = lh.load_catalog(self.lake.catalog.uri)
        behind = lh.Lakehouse(self.lake.catalog.inside).load_table("a.t")
        behind.append(self.rows(5))
        self.table = behind
        self.add_column()
        behind.delete(f"id = {self.chance.randrange(self.ids)}")
        delta_log._KNOWN.clear()
        self.table = self.lake.load_table("a.t")
        self.table.append(self.rows(2))

    def property(self):
        self.table.set_properties({"owner": str(self.ids)})

    def expire(self):
        self.table.expire_snapshots(retain_last=2, older_than=dt.datetime.now(dt.UTC))

    def check(self):
        table = self.table = self.table.refresh()
        expected = plain(table.scan().to_arrow())
        assert by_duckdb(table) == expected
        assert by_delta_rs(table) == expected
        some = f"id >= {self.ids // 2} AND day < DATE '1970-01-20'"
        filtered = plain(table.scan(where=some).to_arrow())
        assert by_duckdb(table, some) == filtered
        assert by_delta_rs(table, condition=some) == filtered

    def check_versions(self):
        """Each version that has its snapshot yet, as of that snapshot."""
        versions = log_of(self.table).versions()
        numbers = [version.version for version in versions]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        times = [version.timestamp_ms for version in versions]
        assert times == sorted(times)
        firsts = {version.snapshot_id: version.version for version in reversed(versions)}
        for version in self.chance.sample(versions, min(5, len(versions))):
            snapshot_id = version.snapshot_id
            if snapshot_id is None or not self.table.metadata.snapshot_or_none(snapshot_id):
                continue
            shown = by_delta_rs(self.table, version.version)
            rows = plain(self.table.scan(snapshot_id=snapshot_id).to_arrow())
            if shown and version.version != firsts[snapshot_id]:  # the schema was changed since
                rows = [{name: row.get(name) for name in shown[0]} for row in rows]
            assert shown == rows, version


def run(folder, seed, steps=12):
    done = []
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(delta_log, "CHECKPOINT_EVERY", (3, 4, 100)[seed % 3])
            history = History(folder, seed)
            for _ in range(steps):
                done.append(history.step())
                history.check()
            history.check_versions()
    except Exception as error:
        error.add_note(f"seed {seed}: {', '.join(done)}")
        raise


@pytest.mark.parametrize("seed", seeds(1, of=6))
def test_delta_shows_what_iceberg_shows(tmp_path, seed):
    run(tmp_path / "lake", seed)


def events(folder, **properties):
    lake = lh.load_catalog(f"file://{folder}/lake")
    table = lake.create_table(
        "a.t",
        SCHEMA,
        format_version=3,
        properties={"write.delete.mode": "merge-on-read", **DELTA, **properties},
    )
    table.append(made(random.Random(1), 0, 100))
    return table


def test_checkpoints_and_cleaning_change_nothing_for_readers(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 5)
    monkeypatch.setattr(delta_log, "_INLINE_BYTES", 20)
    monkeypatch.setattr(delta_log, "_YOUNG_MS", -1000)
    table = events(tmp_path)
    for number in range(23):
        table.delete(f"id = {number}")
    files = {file.location.rpartition("/")[2] for file in table.storage.list(table.location)}
    assert f"{20:020}.checkpoint.parquet" in files
    vectors = {one for one in files if one.endswith(".bin")}
    assert len(vectors) == 23
    assert plain(table.scan().to_arrow()) == by_delta_rs(table) == by_duckdb(table)
    table.expire_snapshots(retain_last=2, older_than=dt.datetime.now(dt.UTC))
    for number in range(30, 40):
        table.delete(f"id = {number}")
    files = {file.location.rpartition("/")[2] for file in table.storage.list(table.location)}
    assert f"{0:020}.json" not in files
    assert len(vectors & files) < 8  # of the snapshots that are left
    delta_log._KNOWN.clear()
    table.append(made(random.Random(2), 100, 5))
    assert plain(table.scan().to_arrow()) == by_delta_rs(table) == by_duckdb(table)
    versions = log_of(table).versions()
    assert [one.version for one in versions] == list(range(versions[0].version, 35 + 1))
    pointer = tmp_path / "lake/a/t/_delta_log/_last_checkpoint"
    pointer.unlink()  # its writer died before it
    delta_log._KNOWN.clear()
    for number in range(40, 45):
        table.delete(f"id = {number}")
    assert plain(table.scan().to_arrow()) == by_delta_rs(table) == by_duckdb(table)
    assert json.loads(pointer.read_text())["version"] == 40
    assert len(log_of(table).state().adds) == 2


def test_batches_of_streams_are_transactions(tmp_path, monkeypatch):
    """delta-rs says of each stream the last batch, across checkpoints, expiry and rollback."""
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 4)
    table = events(tmp_path)

    def batch(stream, number, branch="main"):
        rows = made(random.Random(number), 1_000 + number, 1)
        table.append(rows, branch=branch, commit_id=lh.StreamBatch(stream, number))

    def shown():
        delta = deltalake.DeltaTable(str(tmp_path / "lake/a/t"))
        return [delta.transaction_version(stream) for stream in ("q-1", "q_2", "q3")]

    assert shown() == [None, None, None]
    for number in range(3):
        batch("q-1", number)
    batch("q_2", 41)
    batch("q_2", 41)
    assert shown() == [2, 41, None]
    at_42 = table.append(made(random.Random(0), 2_000, 1), commit_id="stream-q3:7").snapshot_id
    batch("q_2", 42)
    table.create_branch("side")
    batch("q3", 7, branch="side")
    assert shown() == [2, 42, None]
    table.rollback_to(at_42)  # seen as a rollback: batch 42 may come again
    assert shown() == [2, 41, None]
    batch("q_2", 42)
    assert shown() == [2, 42, None]
    table.compact()
    table.expire_snapshots(retain_last=1, older_than=dt.datetime.now(dt.UTC))
    for number in range(3_000, 3_006):
        table.append(made(random.Random(1), number, 1))
    assert len(log_of(table).versions()) < 12  # what noted the batches is gone but for checkpoints
    assert shown() == [2, 42, None]
    table.remove_properties("write.delta-log")
    table.set_properties(DELTA)
    assert shown() == [2, 42, None]  # a log of its own, of which no version is a batch


def test_a_stream_whose_only_batch_was_rolled_back_has_none(tmp_path):
    table = events(tmp_path)
    before = table.current_snapshot().snapshot_id
    table.append(made(random.Random(1), 200, 1), commit_id=lh.StreamBatch("q", 5))
    table.rollback_to(before)
    # Delta's number for a stream that it has not seen; a log cannot forget one
    assert deltalake.DeltaTable(str(tmp_path / "lake/a/t")).transaction_version("q") == -1


@pytest.mark.parametrize("keeps", ["true", "false"])
def test_orphan_removal_knows_the_log(tmp_path, monkeypatch, keeps):
    monkeypatch.setattr(delta_log, "_INLINE_BYTES", 0)
    table = events(tmp_path, **{"write.delta-log": keeps})
    table.delete("id = 7")
    follow(table.catalog, table.version)
    options = lh.OrphanOptions(older_than_ms=2**50, force=True)
    assert table.remove_orphan_files(options).moved_files == 0
    assert by_delta_rs(table) == plain(table.scan().to_arrow())


def test_the_log_opens_manifests_of_deletes_once(tmp_path, monkeypatch):
    """What a commit costs does not grow with the commits before it."""
    opened = []

    class Counted(delta_log.ManifestReader):
        def entries(self, manifest):
            if manifest.content:
                opened.append(manifest.manifest_path)
            return super().entries(manifest)

    monkeypatch.setattr(delta_log, "ManifestReader", Counted)
    table = events(tmp_path, **{"commit.manifest-merge.enabled": "false"})
    for number in range(1, 9):
        table.append(made(random.Random(number), 100 * number, 100))
    for number in range(8):
        table.delete(f"id = {100 * number + 3}")
    assert len(opened) >= 8
    assert len(opened) <= 2 * len(set(opened))
    assert len(DeltaLog(table.storage, table.location).state().adds) == 9
    assert len(by_delta_rs(table)) == 900 - 8


def test_orphan_removal_knows_a_log_that_was_synchronized_once(tmp_path):
    table = lh.load_catalog(f"file://{tmp_path}/lake").create_table("a.t", SCHEMA)
    table.append(made(random.Random(1), 0, 9))
    delta_log.follow(table.catalog, table.version)
    options = lh.OrphanOptions(older_than_ms=2**50, force=True)
    assert table.remove_orphan_files(options).moved_files == 0
    assert by_delta_rs(table) == plain(table.scan().to_arrow())


def test_a_table_that_keeps_no_log_any_more_has_none(tmp_path):
    table = events(tmp_path)
    table.remove_properties("write.delta-log")
    folder = tmp_path / "lake/a/t"
    assert not list(folder.glob("_delta_*/*"))
    table.set_properties(DELTA)
    assert by_delta_rs(table) == plain(table.scan().to_arrow())


def test_versions_that_come_late_have_the_schema_of_their_snapshot(tmp_path):
    table = events(tmp_path)
    behind = lh.Lakehouse(table.catalog.inside).load_table("a.t")
    behind.append(made(random.Random(2), 100, 5))
    with behind.update_schema() as change:
        change.add_column("extra", "int")
    follow(table.catalog, table.version)
    behind.append(made(random.Random(3), 200, 5))
    with behind.update_schema() as change:
        change.drop_column("raw")
    behind.append(made(random.Random(4), 300, 5).drop_columns(["raw"]))
    follow(table.catalog, table.version)
    folder = table.location.removeprefix("file://")
    names = [
        {field.name for field in deltalake.DeltaTable(folder, version).schema().fields}
        for version in range(5)
    ]
    first = set(SCHEMA.names)
    with_extra = {*first, "extra"}
    assert names == [first, first, with_extra, with_extra, with_extra - {"raw"}]


def test_a_log_on_s3(s3_properties, monkeypatch):
    monkeypatch.setattr(delta_log, "CHECKPOINT_EVERY", 3)
    monkeypatch.setattr(delta_log, "_INLINE_BYTES", 20)
    warehouse = f"s3://lake/{uuid.uuid4()}"
    lake = lh.load_catalog(warehouse, **s3_properties)
    table = lake.create_table(
        "a.t",
        SCHEMA,
        partition_by=["grüße_1"],
        format_version=3,
        properties={"write.delete.mode": "merge-on-read", **DELTA},
    )
    table.append(made(random.Random(1), 0, 30))
    for number in range(5):
        table.delete(f"id = {number}")
    options = {
        "AWS_ENDPOINT_URL": s3_properties["s3.endpoint"],
        "AWS_ACCESS_KEY_ID": s3_properties["s3.access-key-id"],
        "AWS_SECRET_ACCESS_KEY": s3_properties["s3.secret-access-key"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    found = deltalake.DeltaTable(table.location, storage_options=options)
    batches = deltalake.QueryBuilder().register("t", found).execute("SELECT * FROM t")
    assert plain(pa.table(batches.read_all())) == plain(table.scan().to_arrow())
    pointer = table.storage.read(f"{table.location}/_delta_log/_last_checkpoint")
    assert json.loads(pointer)["version"] == 6
    table.remove_properties("write.delta-log")
    assert not list(table.storage.list(f"{table.location}/_delta_log"))


def test_a_log_that_could_not_be_deleted_is_told(tmp_path, monkeypatch, caplog):
    table = events(tmp_path)
    monkeypatch.setattr(
        type(table.storage),
        "delete",
        lambda _, locations: DeleteReport(failed=dict.fromkeys(locations, "denied")),
    )
    table.remove_properties("write.delta-log")
    assert "2 files in" in caplog.text
    assert "denied" in caplog.text


def test_what_delta_cannot_show_is_refused_before_the_commit(tmp_path):
    table = events(tmp_path)
    lake = lh.load_catalog(f"file://{tmp_path}/lake")
    with (
        pytest.raises(UnsupportedFeatureError, match="column id was renamed to number"),
        table.update_schema() as change,
    ):
        change.rename_column("id", "number")
    with table.update_schema() as change:
        change.drop_column("raw")
    with (
        pytest.raises(UnsupportedFeatureError, match="raw was dropped and added again"),
        table.update_schema() as change,
    ):
        change.add_column("raw", "binary")
    with (
        pytest.raises(UnsupportedFeatureError, match="raw and RAW differ in case alone"),
        table.update_schema() as change,
    ):
        change.add_column("RAW", "binary")
    with (
        pytest.raises(UnsupportedFeatureError, match="type time, which Delta lacks"),
        table.update_schema() as change,
    ):
        change.add_column("clock", "time")
    with (
        pytest.raises(UnsupportedFeatureError, match="default 5"),
        table.update_schema() as change,
    ):
        change.add_column("filled", "int", default=5)
    older = pa.schema({"id": pa.int64(), "clock": pa.time64("us")})
    other = lake.create_table("a.other", older)
    with other.update_schema() as change:
        change.drop_column("clock")
    other.set_properties(DELTA)
    with pytest.raises(UnsupportedFeatureError, match="type time, which Delta lacks"):
        lake.catalog.commit(other.identifier, other.version, (), [SetCurrentSchema(0)])
    lake.drop_table("a.other")
    with pytest.raises(UnsupportedFeatureError, match=r"nested\.at has the type time"):
        lake.create_table(
            "a.u", pa.schema({"nested": pa.struct({"at": pa.time64("us")})}), properties=DELTA
        )
    assert lake.list_tables() == ["a.t"]
    assert by_delta_rs(table) == plain(table.refresh().scan().to_arrow())


@contextmanager
def another_process():
    """What is done here is unknown to what this process remembers of logs."""
    known = delta_log._KNOWN
    delta_log._KNOWN = KeptByBytes(known.bytes_max)
    yield
    delta_log._KNOWN = known


def log_deleted(table):
    shutil.rmtree(Path(table.location.removeprefix("file://"), "_delta_log"))


def table_made_anew(table):
    lake = lh.load_catalog(table.catalog.uri)
    lake.drop_table("a.t", purge=True)
    anew = lake.create_table("a.t", SCHEMA, properties=DELTA)
    assert anew.location == table.location


def rolled_back(table):
    before = table.version
    with another_process():
        table.delete("id < 50")
    table.rollback_to(before.metadata.current_snapshot_id)


@pytest.mark.parametrize("happens", [log_deleted, table_made_anew, rolled_back])
@pytest.mark.parametrize("then", ["nothing", "append"])
def test_what_others_did_to_the_log_is_seen(tmp_path, happens, then):
    table = events(tmp_path)
    happens(table)
    table = lh.load_catalog(table.catalog.uri).load_table("a.t")
    if then == "append":
        table.append(made(random.Random(3), 300, 5))
    elif happens is log_deleted:
        follow(table.catalog, table.version)
    assert by_delta_rs(table) == by_duckdb(table) == plain(table.scan().to_arrow())


def test_a_branch_of_the_lake_never_shows_as_main(tmp_path):
    table = events(tmp_path)
    lake = lh.load_catalog(table.catalog.uri)
    lake.on_branch("first").load_table("a.t").append(made(random.Random(9), 100, 5))
    lake.branch("first").publish()
    table = table.refresh()
    table.delete("id = 3")
    within = BranchCatalog(lake.catalog.inside, "b", lake.environment)
    views = [lake.on_branch("a"), lh.Lakehouse(DeltaFollowedCatalog(within)), lake.at(version=1)]
    for number, view in enumerate(views):
        seen = view.load_table("a.t")
        with suppress(UnsupportedFeatureError):
            seen.append(made(random.Random(number), 200, 5))
        assert seen.scan().count() != table.scan().count()
        follow(seen.catalog, seen.version)
        assert by_delta_rs(table) == plain(table.refresh().scan().to_arrow())


def test_a_copied_warehouse_has_a_log_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(delta_log, "_INLINE_BYTES", 0)
    table = events(tmp_path)
    table.delete("id = 7")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    lake = lh.load_catalog(f"file://{tmp_path}/copy")
    relocate(lake.catalog)
    copy = lake.load_table("a.t")
    assert by_delta_rs(copy) == plain(copy.scan().to_arrow())
    for number in (8, 9):
        copy.delete(f"id = {number}")
        assert by_delta_rs(copy) == by_duckdb(copy) == plain(copy.scan().to_arrow())


def test_bounds_are_those_of_nan_too(tmp_path):
    lake = lh.load_catalog(f"file://{tmp_path}/lake")
    table = lake.create_table(
        "a.t", pa.schema({"id": pa.int64(), "ratio": pa.float64()}), properties=DELTA
    )
    table.append(pa.table({"id": [1, 2], "ratio": [1.0, float("nan")]}))
    table.append(pa.table({"id": [3, 4], "ratio": [1.0, None]}))
    for condition in ("ratio <= 1", "id > 0"):
        expected = plain(table.scan(where=condition).to_arrow())
        assert by_delta_rs(table, condition=condition) == expected
        assert by_duckdb(table, condition) == expected
    assert [
        len(json.loads(add["stats"])["maxValues"]) for add in log_of(table).state().adds.values()
    ] == [1, 2]


def test_other_engines_do_not_write_to_the_log(tmp_path):
    table = events(tmp_path)
    folder = table.location.removeprefix("file://")
    rows = made(random.Random(3), 100, 5)
    with pytest.raises(deltalake.exceptions.CommitFailedError, match="lakehouse-iceberg"):
        deltalake.write_deltalake(folder, rows, mode="append")
    log_of(table).write(2, [{"commitInfo": {"operation": "WRITE"}}])
    delta_log._KNOWN.clear()
    with pytest.raises(CorruptMetadataError, match="another engine"):
        follow(table.catalog, table.version)
    table.append(rows)  # the commit stands


def test_writers_at_once_write_each_version_once(tmp_path):
    table = events(tmp_path)

    def append(number):
        delta_log._KNOWN.clear()
        lake = lh.load_catalog(f"file://{tmp_path}/lake")
        lake.load_table("a.t").append(made(random.Random(number), number * 1000, 3))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 13)))
    table = table.refresh()
    versions = log_of(table).versions()
    line = [one.snapshot_id for one in table.metadata.ancestors(table.metadata.current_snapshot_id)]
    assert [one.snapshot_id for one in versions] == [None, *reversed(line)]
    assert by_delta_rs(table) == plain(table.scan().to_arrow())


def test_commits_through_the_server_are_followed(tmp_path):
    lake = lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    lake.create_table("a.t", SCHEMA, properties=DELTA).append(made(random.Random(1), 0, 50))
    uri = f"sqlite:///{tmp_path}/catalog.db"
    with ServeProcess(uri, f"file://{tmp_path}/lake") as server:
        theirs = RestCatalog("theirs", uri=server.url).load_table("a.t")
        theirs.append(made(random.Random(2), 50, 50, theirs.schema().as_arrow()))
        theirs.delete("id < 20")
    table = lake.load_table("a.t")
    assert table.scan().count() == 80
    assert by_delta_rs(table) == plain(table.scan().to_arrow())


def test_what_pyiceberg_commits_to_version_1_is_followed_by_sync(tmp_path):
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/lake"
    lake = lh.load_catalog(uri, warehouse=warehouse)
    lake.create_namespace("a")
    rows = [pa.table({"id": [number, number + 1]}) for number in (1, 3, 5)]
    theirs = SqlCatalog(lake.catalog.name, uri=uri, warehouse=warehouse).create_table(
        "a.t", rows[0].schema, properties={"format-version": "1"}
    )
    changes = [
        lambda: theirs.append(rows[0]),
        lambda: theirs.append(rows[1]),
        lambda: theirs.delete("id = 1"),
        lambda: theirs.overwrite(rows[2]),
    ]
    for change in changes:
        change()
        table = lake.load_table("a.t")
        assert table.metadata.format_version == 1
        follow(table.catalog, table.version)
        assert by_delta_rs(table) == by_duckdb(table) == plain(table.scan().to_arrow())


@pytest.mark.parametrize("kind", ["sqlite:///{}/catalog.db", "file://{}/lake"])
def test_tables_of_a_transaction_are_followed_when_it_is_done(tmp_path, kind):
    lake = lh.load_catalog(kind.format(tmp_path), warehouse=f"file://{tmp_path}/lake")
    tables = [lake.create_table(name, SCHEMA, properties=DELTA) for name in ("a.t", "a.u")]
    with suppress(ZeroDivisionError), lake.transaction() as transaction:
        transaction.table("a.t").append(made(random.Random(1), 0, 5))
        _ = 1 / 0
    assert log_of(tables[0]).head().version == 0
    with lake.transaction() as transaction:
        for name in ("a.t", "a.u"):
            transaction.table(name).append(made(random.Random(1), 0, 5))
    for table in tables:
        assert by_delta_rs(table) == plain(table.refresh().scan().to_arrow())


# Tables of Delta that are taken over


def test_a_delta_table_is_taken_over(tmp_path):
    rows = made(random.Random(5), 0, 200)
    kept = ["id", "group", "grüße_1", "amount", "at", "day", "ratio", "nested", "flag"]
    theirs = str(tmp_path / "theirs")
    for part in (rows.slice(0, 150), rows.slice(150)):
        deltalake.write_deltalake(
            theirs,
            part.select(kept),
            partition_by=["day", "flag"],
            mode="append",
        )
    deltalake.DeltaTable(theirs).delete("id % 7 = 0")
    found = deltalake.DeltaTable(theirs)
    victim = pa.table(found.get_add_actions()).to_pylist()[0]
    vector = inline_vector(encode_vector(np.array([0])), 1)
    removed = {"path": quote(victim["path"]), "dataChange": True, "size": victim["size_bytes"]}
    added = next(
        action["add"]
        for file in sorted(Path(theirs, "_delta_log").glob("*.json"))
        for action in map(json.loads, file.read_text().splitlines())
        if "add" in action and action["add"]["path"] in (victim["path"], removed["path"])
    )
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": removed | {"path": added["path"]}},
        {"add": added | {"deletionVector": vector}},
    ]
    newest = Path(theirs, "_delta_log", f"{found.version() + 1:020}.json")
    newest.write_text("\n".join(map(json.dumps, actions)))
    lake = lh.load_catalog(f"file://{tmp_path}/lake", **{"allowed-locations": str(tmp_path)})
    for version, count in ((None, -1), (found.version(), 0)):
        table = lake.import_delta(theirs, f"a.v{count}", version=version)
        query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(theirs, version))
        expected = plain(pa.table(query.execute("SELECT * FROM t").read_all()))
        assert sorted(map(str, plain(table.scan().to_arrow()))) == sorted(map(str, expected))
    table.append(rows.select(table.scan().to_arrow().schema.names))


def test_a_delta_table_by_its_path_in_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    deltalake.write_deltalake("theirs", pa.table({"id": [1, 2]}))
    lake = lh.load_catalog(f"file://{tmp_path}/lake", **{"allowed-locations": str(tmp_path)})
    assert lake.import_delta("theirs", "a.t").scan().count() == 2
    assert lake.import_delta("./theirs/", "a.u").scan().count() == 2


def test_delta_tables_that_are_not_taken_over(tmp_path):
    lake = lh.load_catalog(f"file://{tmp_path}/lake", **{"allowed-locations": str(tmp_path)})
    with pytest.raises(InvalidInputError, match="No Delta table is read at"):
        lake.import_delta(str(tmp_path / "nowhere"), "a.t")
    mapped = {"delta.columnMapping.mode": "name", "delta.minReaderVersion": "2"}
    deltalake.DeltaTable.create(
        str(tmp_path / "mapped"), pa.schema({"id": pa.int64()}), configuration=mapped
    )
    with pytest.raises(UnsupportedFeatureError, match="columnMapping"):
        lake.import_delta(str(tmp_path / "mapped"), "a.t")
    rows = pa.table({"id": [1], "raw": [b"ab"]})
    deltalake.write_deltalake(str(tmp_path / "binary"), rows, partition_by=["raw"])
    with pytest.raises(UnsupportedFeatureError, match="partitioned by a binary column"):
        lake.import_delta(str(tmp_path / "binary"), "a.t")
    assert lake.list_tables() == []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.rounds):
        folder = Path(tempfile.mkdtemp(prefix="delta-"))
        sys.stdout.write(f"{seed}\n")
        sys.stdout.flush()
        run(folder / "lake", seed)
        shutil.rmtree(folder)
    sys.stdout.write(f"{options.rounds} histories: Delta shows what Iceberg shows\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
