"""Streams into tables: each batch once, whatever crashes between.

Held fixed: a source that replays (files), one writer at a time. Varied: where a run ends (before
and after a batch is written, committed and swapped in, and before Spark notes it), the catalog,
the output mode.
"""

import json
import os
import uuid
from collections import Counter

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.functions import count, udf

import lakehouse as lh
from lakehouse.errors import CommitStateUnknownError, InvalidInputError
from lakehouse.orchestration import LakehouseResource, run_stream
from lakehouse.orchestration.lineage.undo import undo
from lakehouse.spark import attach
from lakehouse.spark.writing.stream_batches import StreamAnswers, Tail
from tests.integration.spark_support import lake, session
from tests.rest_server import rest
from tests.streams import Killed
from tests.waiting import eventually

__all__ = ["lake", "session"]

pytestmark = pytest.mark.spark
NAME = "lake.raw.landed"
SCHEMA = pa.schema({"id": pa.int64(), "day": pa.date32()})


class Source:
    """Files of JSON in a folder, each one batch."""

    def __init__(self, spark, folder, columns="id long, day date"):
        self.spark = spark
        self.folder = folder
        self.checkpoint = folder.with_name("checkpoint")
        self.columns = columns
        folder.mkdir()

    def lands(self, *rows):
        text = "\n".join(json.dumps(dict(zip(("id", "day"), row, strict=True))) for row in rows)
        count = len(list(self.folder.iterdir()))
        (self.folder / f"{count:04}-{uuid.uuid4()}.json").write_text(text)

    def frame(self):
        reader = self.spark.readStream.schema(self.columns).option("maxFilesPerTrigger", 1)
        return reader.json(str(self.folder))

    def writer(self, frame=None, **options):
        writer = (self.frame() if frame is None else frame).writeStream.trigger(availableNow=True)
        return writer.options(checkpointLocation=str(self.checkpoint), **options)

    def runs(self, *, mode="append", frame=None, name=NAME, **options):
        query = self.writer(frame, **options).outputMode(mode).toTable(name)
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    def forgets_last_batch(self):
        """As if the run had been killed before Spark noted that the batch was done."""
        noted = self.checkpoint / "commits"
        last = max(int(one.name) for one in noted.iterdir() if one.name.isdecimal())
        for one in (noted / str(last), noted / f".{last}.crc"):
            one.unlink()
        return last


@pytest.fixture
def source(spark, session, lake, tmp_path):
    lake.create_namespace("raw")
    return Source(spark, tmp_path / "landing")


def landed(lake):
    return sorted(lake.load_table("raw.landed").scan().to_arrow()["id"].to_pylist())


def summaries(lake):
    table = lake.load_table("raw.landed")
    return [
        dict(one.summary) for one in table.metadata.ancestors(table.metadata.current_snapshot_id)
    ]


def test_batches_are_appends_to_hidden_partitions_by_name(spark, lake, source):
    spark.sql(
        f"CREATE TABLE {NAME} (day DATE, id DECIMAL(20, 0), city STRING DEFAULT 'Oslo') "
        "PARTITIONED BY (months(day), bucket(2, id)) TBLPROPERTIES ('format-version' = '3')"
    )
    source.columns = "id int, day date"
    source.lands((1, "2026-01-01"), (2, "2026-01-02"), (3, "2026-02-01"))
    source.lands((4, "2026-01-03"))
    query = source.runs()
    found = spark.sql(f"SELECT int(id), city FROM {NAME}").collect()
    assert sorted(tuple(row) for row in found) == [(one, "Oslo") for one in (1, 2, 3, 4)]
    table = lake.load_table("raw.landed")
    operations = [one.operation for one in table.metadata.snapshots]
    assert operations == ["append", "append"]
    assert [one["lakehouse.commit-id"] for one in summaries(lake)] == [
        f"stream:{query.id}:1",
        f"stream:{query.id}:0",
    ]
    mark = json.loads(table.properties[f"lakehouse.stream.{query.id}"])
    assert mark["batch"] == 1
    assert mark["snapshot"] == table.current_snapshot().snapshot_id
    # rows of a partition come to one task
    files = table.scan(snapshot_id=table.metadata.snapshots[0].snapshot_id).plan().files
    assert len(files) == len({one.partition_key for one in files})


def test_batches_are_written_in_the_order_of_the_table(spark, lake, source):
    """One file a partition and batch, its rows sorted: as pyarrow finds them in the files."""
    spark.sql(
        f"CREATE TABLE {NAME} (id BIGINT, day DATE) PARTITIONED BY (months(day)) "
        "TBLPROPERTIES ('write.distribution-mode' = 'hash', 'lakehouse.write.join-files' = '0')"
    )
    spark.sql("CALL lake.system.write_ordered_by('raw.landed', 'id DESC')")
    days = ("2026-01-05", "2026-02-07")
    for batch in range(2):
        source.lands(*((number % 7 * 10 + batch, days[number % 2]) for number in range(40)))
    source.runs()
    files = lake.load_table("raw.landed").scan().plan().files
    assert len(files) == 4
    for file in files:
        ids = pq.read_table(file.file_path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        assert len(ids) == 20


def test_a_batch_that_comes_again_after_its_snapshot_expired_is_not_written(lake, source):
    source.lands((1, "2026-01-01"))
    source.runs()
    source.forgets_last_batch()
    table = lake.load_table("raw.landed")
    table.append(table.scan())
    table.compact(lh.CompactionOptions(rewrite_all=True))
    table.expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=1))
    source.runs()
    assert landed(lake) == [1, 1]


def test_a_batch_that_was_rolled_back_is_written_again_when_it_comes_again(lake, source):
    source.lands((1, "2026-01-01"))
    source.runs()
    table = lake.load_table("raw.landed")
    first = table.current_snapshot().snapshot_id
    source.lands((2, "2026-01-01"))
    source.runs()
    source.forgets_last_batch()
    table.refresh().rollback_to(first)
    assert landed(lake) == [1]
    source.runs()
    assert landed(lake) == [1, 2]


def test_small_files_of_a_stream_are_joined(spark, lake, source):
    lake.create_table("raw.landed", SCHEMA, partition_by=["day"])
    for number in range(9):
        source.lands((2 * number, "2026-01-01"), (2 * number + 1, "2026-01-01"))
    source.lands((18, "2026-01-02"))
    source.runs(**{"tail-files": "2"})
    assert landed(lake) == list(range(19))
    files = lake.load_table("raw.landed").scan().plan().files
    assert sorted(one.record_count for one in files) == [1, 18]
    told = summaries(lake)
    joined = [one for one in told if "lakehouse.tail.stream" in one]
    assert [one["operation"] for one in joined] == ["replace"] * 4
    before = told[told.index(joined[0]) :]
    told = joined[0]
    assert int(told["lakehouse.tail.appended-bytes"]) == sum(
        int(one["added-files-size"]) for one in before if one["operation"] == "append"
    )
    assert int(told["lakehouse.tail.rewritten-bytes"]) == sum(
        int(one["removed-files-size"]) for one in joined
    )
    source.lands((19, "2026-01-02"))
    with pytest.raises(StreamingQueryException, match="how many small files"):
        source.runs(**{"tail-files": "1"})


def test_complete_mode_replaces_the_rows_in_one_commit(spark, lake, source):
    for _ in range(2):
        source.lands((1, "2026-01-01"), (2, "2026-01-01"), (3, "2026-01-02"))
    frame = source.frame().groupBy("day").count()
    spark.sql(f"CREATE TABLE {NAME} (day DATE, count BIGINT) PARTITIONED BY (months(day))")
    source.runs(mode="complete", frame=frame)
    assert sorted(row["count"] for row in spark.table(NAME).collect()) == [2, 4]
    assert len(lake.load_table("raw.landed").metadata.snapshots) == 2


@pytest.mark.parametrize("version", ["2", "3"])
def test_update_mode_replaces_the_rows_of_its_keys_once(spark, lake, source, version):
    """Brute force: the counts of all rows that landed, after each batch and each repetition."""
    spark.sql(
        f"CREATE TABLE {NAME} (day DATE, rest BIGINT, rows BIGINT) "
        f"PARTITIONED BY (bucket(2, rest)) TBLPROPERTIES ('format-version' = '{version}', "
        f"'write.merge.mode' = '{'merge-on-read' if version == '3' else 'copy-on-write'}')"
    )
    counted = Counter()
    rows = source.frame().selectExpr("day", "nullif(id % 3, 2) AS rest")
    frame = rows.groupBy("day", "rest").agg(count("*").alias("rows"))
    for batch in range(4):
        for number in range(batch, 2 * batch + 2):
            counted["2026-01-01", None if number % 3 == 2 else number % 3] += 1
        source.lands(*((number, "2026-01-01") for number in range(batch, 2 * batch + 2)))
        source.runs(mode="update", frame=frame, **{"merge-keys": "day, rest"})
        for again in range(2):
            table = lake.load_table("raw.landed")
            found = table.scan().to_arrow().to_pylist()
            there = {(str(one["day"]), one["rest"]): one["rows"] for one in found}
            assert (there, len(found)) == (counted, len(counted))
            if not again:
                source.forgets_last_batch()
                source.runs(mode="update", frame=frame, **{"merge-keys": "day, rest"})
                assert lake.load_table("raw.landed").metadata_location == table.metadata_location


def test_rows_of_one_key_in_a_batch_are_refused(spark, lake, source):
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT NOT NULL, day DATE)")
    with lake.load_table("raw.landed").update_schema() as schema:
        schema.set_identifier_fields(["id"])
    source.columns = "id long not null, day date"
    source.lands((1, "2026-01-01"), (1, "2026-01-02"))
    frame = source.frame().selectExpr("coalesce(id, 0L) AS id", "day")
    with pytest.raises(StreamingQueryException, match="share their key"):
        source.runs(mode="update", frame=frame)
    assert not of_data(lake)


def test_what_cannot_be_written_is_refused_with_a_sentence(spark, lake, source):
    source.lands((1, "2026-01-01"))
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT, day DATE)")
    with pytest.raises(StreamingQueryException, match="in update mode changes rows"):
        source.runs(mode="update")
    for name, mode in (("raw.more", "append"), ("more", "update"), ("day,", "update")):
        with pytest.raises(StreamingQueryException, match=r"update|no column of both"):
            source.runs(mode=mode, **{"merge-keys": name})
    with pytest.raises(StreamingQueryException, match="in update mode changes rows"):
        source.runs(mode="update", name="lake.raw.none")
    assert lake.list_tables() == ["raw.landed"]
    spark.sql(f"CREATE VIEW lake.raw.seen AS SELECT id FROM {NAME}")
    with pytest.raises((StreamingQueryException, AnalysisException), match=r"(?i)view"):
        source.runs(name="lake.raw.seen")
    assert (lake.list_tables(), lake.list_views()) == (["raw.landed"], ["raw.seen"])
    with pytest.raises(StreamingQueryException, match="TOO_MANY_DATA_COLUMNS"):
        source.runs(frame=source.frame().selectExpr("*", "1 AS more"))
    assert lake.load_table("raw.landed").metadata.current_snapshot_id is None


def test_a_stream_does_not_go_on_in_another_table_of_the_name(spark, lake, source):
    source.lands((1, "2026-01-01"))
    source.lands((2, "2026-01-01"))
    spark.sql(f"CREATE TABLE {NAME} (id BIGINT, day DATE)")
    commit, calls = StreamAnswers.commit, []

    def dropping(self, told, thing):
        calls.append(told["batch"])
        commit(self, told, thing)
        lake.drop_table("raw.landed")
        lake.create_table("raw.landed", SCHEMA)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StreamAnswers, "commit", dropping)
        with pytest.raises(StreamingQueryException):
            source.runs()
    assert calls == [0]


def test_a_merge_in_foreach_batch_is_done_once_by_its_name(lake, source):
    lake.create_table("raw.landed", SCHEMA).append(pa.table({"id": [1]}))
    source.lands((1, "2026-01-01"), (2, "2026-01-02"))
    done = []

    def upsert(frame, batch):
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        table = lake.load_table("raw.landed")
        result = table.upsert(frame.toArrow(), ["id"], commit_id=lh.StreamBatch(query, batch))
        done.append(result.replayed)
        if len(done) == 1:
            table.delete("id = 1")
            table.expire_snapshots(lh.ExpiryOptions(older_than_ms=2**50, retain_last=1))
            raise CrashError("before Spark notes the batch")

    for _ in range(2):
        query = source.writer().foreachBatch(upsert).start()
        try:
            query.awaitTermination()
        except StreamingQueryException:
            assert done == [False]
    assert done == [False, True]
    assert landed(lake) == [2]


def test_files_of_a_batch_that_failed_go(spark, lake, source, tmp_path):
    """Those of the task that fails, and of one whose files the driver has been told."""
    as_they_come = {"write.distribution-mode": "none"}
    lake.create_table("raw.landed", SCHEMA, partition_by=["id"], properties=as_they_come)
    source.lands(*((number, "2026-01-01") for number in range(4)))
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    @udf("long")
    def fails(number):
        if number == 3:
            with gate.open():  # waits until the test opens it, too
                raise ValueError("bad")
        return number

    failing = source.frame().repartition(2, "id").select(fails("id").alias("id"), "day")
    query = source.writer(failing).toTable(NAME)
    tracker = spark.sparkContext.statusTracker()

    def one_task_told():
        stages = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
        return [one for one in stages if one and (one.numTasks, one.numCompletedTasks) == (2, 1)]

    eventually(one_task_told)
    assert of_data(lake)
    with gate.open("w"), pytest.raises(StreamingQueryException, match="bad"):
        query.awaitTermination()
    assert not of_data(lake)


def of_data(lake):
    table = lake.load_table("raw.landed")
    return [one for one in table.storage.list(table.location) if "/data/" in one.location]


# Crashes


class CrashError(Exception):
    """Ends a run."""


def before_write(patch, lake):
    def crash(*_):
        raise CrashError("before the write")

    patch.setattr(StreamAnswers, "plan", crash)


def before_commit(patch, lake):
    def crash(*_):
        raise CrashError("after the write")

    patch.setattr(StreamAnswers, "commit", crash)


def before_swap(patch, lake):
    def crash(*_):
        raise lh.CommitConflictError("the catalog says no", retries=0)

    patch.setattr(type(lake.catalog), "commit", crash)


def after_swap(patch, lake):
    """The answer of the catalog is lost, and nobody can look whether the commit is there."""
    commit = type(lake.catalog).commit

    def crash(self, *arguments):
        commit(self, *arguments)
        patch.setattr(type(lake.catalog), "refresh", unreachable)
        raise CommitStateUnknownError("the answer is lost")

    def unreachable(*_):
        raise CrashError("no answer")

    patch.setattr(type(lake.catalog), "commit", crash)


def before_commit_log(patch, lake):
    commit = StreamAnswers.commit

    def crash(self, told, thing):
        commit(self, told, thing)
        raise CrashError("before Spark notes the batch")

    patch.setattr(StreamAnswers, "commit", crash)


def after_commit_log(patch, lake):
    """In the batch after the one that Spark has noted."""
    plan, batches = StreamAnswers.plan, []

    def crash(self, told, thing):
        batches.append(told)
        if len(batches) > 1:
            raise CrashError("before the write")
        return plan(self, told, thing)

    patch.setattr(StreamAnswers, "plan", crash)


def before_join(patch, lake):
    def crash(*_):
        raise CrashError("before small files are joined")

    patch.setattr(Tail, "grew", crash)


def after_join(patch, lake):
    grew = Tail.grew

    def crash(*told):
        grew(*told)
        raise CrashError("after small files were joined")

    patch.setattr(Tail, "grew", crash)


POINTS = (
    before_write,
    before_commit,
    before_swap,
    after_swap,
    before_join,
    after_join,
    before_commit_log,
    after_commit_log,
)


@pytest.fixture(params=["file", "sqlite", "rest"])
def crashing(request, spark, tmp_path):
    """A lakehouse in each kind of catalog."""
    if request.param == "rest":
        with rest(tmp_path) as server:
            warehouse = str(tmp_path / "warehouse")
            yield attached(spark, lh.load_catalog(server.url, warehouse=warehouse))
    elif request.param == "sqlite":
        yield attached(
            spark,
            lh.load_catalog(f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/w"),
        )
    else:
        yield attached(spark, lh.load_catalog(f"file://{tmp_path}/warehouse"))


def attached(spark, lake):
    attach(spark, lake)
    lake.create_table(
        "raw.landed",
        SCHEMA,
        partition_by=["bucket(2, id)"],
        properties={"commit.retry.num-retries": "0", "commit.status-check.num-retries": "0"},
    )
    return lake


def test_each_row_is_there_once_wherever_runs_end(crashing, spark, tmp_path):
    ends_anywhere(crashing, Source(spark, tmp_path / "landing"), **{"tail-files": "2"})


def test_each_key_is_there_once_wherever_runs_end(spark, tmp_path):
    lake = attached(spark, lh.load_catalog(f"file://{tmp_path}/warehouse"))
    lake.load_table("raw.landed").append(pa.table({"id": range(8)}))
    how = {"merge-keys": "id", "tail-files": "2"}
    ends_anywhere(lake, Source(spark, tmp_path / "landing"), least=8, mode="update", **how)


@pytest.mark.slow
def test_each_row_is_there_once_when_drivers_are_killed(tmp_path):
    """In processes of their own; `python -m tests.streams --kills 200` does it 200 times."""
    assert not Killed(tmp_path, 1, f"file://{tmp_path}/warehouse").run(kills=2)


def ends_anywhere(crashing, source, least=0, **how):
    count = 0
    for crash in POINTS:
        for _ in range(2):
            source.lands((count, "2026-01-01"), (count + 1, "2026-01-01"))
            count += 2
        with pytest.MonkeyPatch.context() as patch:
            crash(patch, crashing)
            with pytest.raises(StreamingQueryException):
                source.runs(**how)
        source.runs(**how)
        assert landed(crashing) == list(range(max(count, least))), crash.__name__


def test_an_asset_streams_and_its_run_is_undone(spark, lake, source, tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))

    @dg.asset(key=["raw", "landed"], metadata={"write_mode": "append", "partition_by": "day"})
    def streamed(context: dg.AssetExecutionContext, lakehouse: LakehouseResource):
        trigger = {"availableNow": True}
        checkpoint = str(source.checkpoint)
        yield from run_stream(context, lakehouse, source.frame(), checkpoint, trigger=trigger)

    def run():
        resource = LakehouseResource(catalog=f"file://{tmp_path}/warehouse")
        with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
            done = dg.materialize([streamed], resources={"lakehouse": resource}, instance=instance)
        [told] = done.asset_materializations_for_node("raw__landed")
        return done.run_id, {
            key.removeprefix("lakehouse/"): one.value for key, one in told.metadata.items()
        }

    for batches in (1, 2):
        source.lands((batches, "2026-01-01"))
        last, told = run()
        assert (told["stream_batches"], told["stream_batch_rows"]) == (batches, 1)
        head = lake.load_table("raw.landed").current_snapshot()
        assert told["snapshot_id"] == str(head.snapshot_id)
        assert head.summary["dagster.asset-key"] == "raw/landed"
    assert landed(lake) == [1, 2]
    with pytest.raises(InvalidInputError, match="remove batch 1 and all after it") as refused:
        undo(lake, last)
    undo(lake, last, take_again=False)
    assert landed(lake) == [1]
    first = refused.value.context["first_batch"]
    for noted in ("offsets", "commits"):
        for one in (source.checkpoint / noted).iterdir():
            number = one.name.lstrip(".").removesuffix(".crc")
            if number.isdecimal() and int(number) >= first:
                one.unlink()
    source.lands((3, "2026-01-01"))
    run()
    assert landed(lake) == [1, 2, 3]
