"""DELETE, UPDATE, MERGE and writes where Spark reads or writes no file itself: Python workers do.

Tables on an object store without Hadoop's file system for it, tables with equality deletes, tables
whose codec Spark lacks. DuckDB runs the same statements on a table of its own.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkException

from lakehouse.lake import load_catalog
from lakehouse.spark import attach
from lakehouse.spec.manifests.data_file import CONTENT_EQUALITY_DELETES, DataFile
from lakehouse.storage.location import local_path
from tests.integration.spark_support import configured, rows_in
from tests.servers import clouds

pytestmark = pytest.mark.spark

STORES = pytest.mark.parametrize("on_s3", ["moto", *clouds()], indirect=True)
WAYS = [(2, "copy-on-write"), (2, "merge-on-read"), (3, "copy-on-write"), (3, "merge-on-read")]
COLUMNS = "id BIGINT, k VARCHAR, d DOUBLE, day DATE"
ROWS = (
    "SELECT id, concat('k', id % 7) AS k, CASE WHEN id % 5 = 0 THEN NULL ELSE id / 4.0 END AS d, "
    "CASE WHEN id % 11 = 0 THEN NULL WHEN id % 3 = 0 THEN DATE '2026-06-01' "
    "ELSE DATE '2026-06-02' END AS day FROM {numbers}"
)
CHANGES = [
    "UPDATE {t} SET k = upper(k), d = d + 1 WHERE id IN (SELECT id FROM {t} WHERE d > 150)",
    "DELETE FROM {t} WHERE id % 13 = 4",
    "DELETE FROM {t} WHERE day = DATE '2026-06-01' AND d IS NULL",
    "UPDATE {t} SET day = DATE '2026-06-03' WHERE k = 'k3' AND id < 300",
    "MERGE INTO {t} AS t USING (SELECT id + 790 AS id, concat('s', id) AS k FROM {t} "
    "WHERE id < 40) AS s ON t.id = s.id WHEN MATCHED AND t.id % 2 = 0 THEN DELETE "
    "WHEN MATCHED THEN UPDATE SET k = s.k, d = NULL "
    "WHEN NOT MATCHED THEN INSERT (id, k, d, day) VALUES (s.id, s.k, -1, NULL) "
    "WHEN NOT MATCHED BY SOURCE AND t.day IS NULL THEN UPDATE SET d = 0",
    "DELETE FROM {t} WHERE k = 'k5' OR d IS NULL",
    "MERGE INTO {t} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id AND t.day IS NOT NULL "
    "WHEN MATCHED THEN UPDATE SET k = 'one' WHEN NOT MATCHED THEN INSERT (id, k) VALUES (1, 'new')",
]


@pytest.fixture
def on_s3(s3_properties, spark, tmp_path, request):
    """A lakehouse on an object store of which Spark's JVM knows nothing."""
    root, properties = clouds().get(getattr(request, "param", "moto"), ("s3://lake", s3_properties))
    more = {"warehouse": f"{root}/{uuid.uuid4()}", "allowed-locations": "s3://nosuchbucket"}
    lake = load_catalog(f"sqlite:///{tmp_path}/catalog.db", **more, **properties)
    attach(spark, lake)
    return lake


@pytest.fixture
def on_disk(spark, tmp_path):
    lake = load_catalog(f"file://{tmp_path}/warehouse")
    attach(spark, lake)
    return lake


@pytest.fixture
def peer():
    with duckdb.connect() as connection:
        yield connection


@pytest.fixture
def sql(spark):
    return rows_in(spark)


def make(sql, peer, version, mode, extra=""):
    """`lake.raw.t` and DuckDB's `t`: 800 rows, of two inserts into three partitions."""
    sql("CREATE NAMESPACE IF NOT EXISTS lake.raw")
    sql(
        f"CREATE TABLE lake.raw.t ({COLUMNS.replace('VARCHAR', 'STRING')}) PARTITIONED BY (day) "
        f"TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = '{mode}', "
        f"'write.update.mode' = '{mode}', 'write.merge.mode' = '{mode}'{extra})"
    )
    peer.sql(f"CREATE TABLE t ({COLUMNS})")
    for start in (0, 400):
        numbers = f"range({start}, {start + 400})"
        sql("INSERT INTO lake.raw.t " + ROWS.format(numbers=numbers))
        peer.sql("INSERT INTO t " + ROWS.format(numbers=f"{numbers} AS numbers(id)"))


def both(sql, peer, statement):
    """Run it on both tables."""
    sql(statement.format(t="lake.raw.t"))
    peer.sql(statement.format(t="t"))
    same(sql, peer)


def same(sql, peer):
    text = "SELECT id, k, d, day FROM {} ORDER BY id, k"
    assert sql(text.format("lake.raw.t")) == peer.sql(text.format("t")).fetchall()


def by_pyiceberg(table):
    """Rows as the library reads them."""
    properties = dict(table.storage.properties)
    return StaticTable.from_metadata(table.metadata_location, properties).scan().to_arrow()


def delete_by_equality(table, column, values):
    """Another engine's delete: rows of earlier files whose column has one of the values."""
    field = table.schema().find_field(column)
    arrow = pa.field(column, pa.string(), metadata={b"PARQUET:field_id": b"%d" % field.field_id})
    folder = local_path(table.location)
    path = Path(f"{folder}/data/eq-{len(table.snapshots())}.parquet")
    pq.write_table(pa.table([pa.array(values)], schema=pa.schema([arrow])), path)
    for partition in {(one.spec_id, one.partition) for one in table.scan().plan().files}:
        delete = DataFile(
            content=CONTENT_EQUALITY_DELETES,
            file_path=str(path),
            record_count=len(values),
            file_size_in_bytes=path.stat().st_size,
            equality_ids=(field.field_id,),
            spec_id=partition[0],
            partition=partition[1],
        )
        table.refresh().transaction().row_delta(delete_files=[delete]).commit()


@STORES
@pytest.mark.parametrize(("version", "mode"), WAYS)
def test_rows_change_on_an_object_store(on_s3, sql, peer, version, mode):
    make(sql, peer, version, mode)
    for statement in CHANGES if (version, mode) == WAYS[3] else CHANGES[::4]:
        both(sql, peer, statement)
    table = on_s3.load_table("raw.t")
    deletes = [one for task in table.scan().plan().tasks for one in task.deletes]
    assert bool(deletes) == (mode == "merge-on-read")
    assert {one.is_deletion_vector for one in deletes} <= {version == 3}
    # pyiceberg needs further packages on other stores
    rows = by_pyiceberg(table) if table.location.startswith("s3:") else table.scan().to_arrow()
    rows = rows.sort_by([("id", "ascending"), ("k", "ascending")])
    told = peer.sql("SELECT id, k, d, day FROM t ORDER BY id, k").fetchall()
    assert list(zip(*rows.to_pydict().values(), strict=True)) == told


@pytest.mark.parametrize(("version", "mode"), WAYS)
def test_rows_change_that_have_equality_deletes(on_disk, sql, peer, version, mode):
    make(sql, peer, version, mode)
    for number, statement in enumerate(CHANGES if (version, mode) == WAYS[1] else CHANGES[::2]):
        if number % 2 == 0:
            key = f"k{number // 2 + 1}"
            delete_by_equality(on_disk.load_table("raw.t"), "k", [key, "K4"])
            peer.sql(f"DELETE FROM t WHERE k IN ('{key}', 'K4')")
        both(sql, peer, statement)


def test_rows_change_that_spark_reads_and_workers_write(on_disk, sql, peer):
    gzip = ", 'write.parquet.compression-codec' = 'gzip', 'write.parquet.compression-level' = '4'"
    make(sql, peer, 3, "copy-on-write", gzip)
    for statement in CHANGES[:5:2]:
        both(sql, peer, statement)
    paths = [one.file_path for one in on_disk.load_table("raw.t").scan().plan().files]
    assert {pq.read_metadata(one).row_group(0).column(0).compression for one in paths} == {"GZIP"}


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("place", ["on_s3", "on_disk"])
def test_rows_keep_their_lineage(sql, peer, request, mode, place):
    lake = request.getfixturevalue(place)
    make(sql, peer, 3, mode)
    if place == "on_disk":
        delete_by_equality(lake.load_table("raw.t"), "k", ["k1"])
    read = "SELECT id, _row_id, _last_updated_sequence_number FROM lake.raw.t"
    before = {row[0]: row[1:] for row in sql(read)}
    sql("UPDATE lake.raw.t SET d = -1 WHERE id % 10 = 3")
    after = {row[0]: row[1:] for row in sql(read)}
    last = lake.load_table("raw.t").current_snapshot().sequence_number
    assert after == {
        one: (row_id, last if one % 10 == 3 else changed)
        for one, (row_id, changed) in before.items()
    }


def test_files_without_a_match_stay(on_s3, sql, peer):
    make(sql, peer, 2, "copy-on-write")
    sql("UPDATE lake.raw.t SET k = 'x' WHERE id = 399")
    summary = on_s3.load_table("raw.t").current_snapshot().summary
    assert (summary["deleted-data-files"], summary["added-data-files"]) == ("1", "1")


def test_a_statement_that_fails_leaves_nothing(on_s3, sql, peer):
    make(sql, peer, 2, "merge-on-read")
    table = on_s3.load_table("raw.t")
    files = set(_all_files(table))
    with pytest.raises(PySparkException, match="MERGE_CARDINALITY_VIOLATION"):
        sql(
            "MERGE INTO lake.raw.t t USING (SELECT * FROM VALUES (2, 'x'), (2, 'y') AS s(id, k)) s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k"
        )
    with pytest.raises(PySparkException, match="one row too many"):
        sql("UPDATE lake.raw.t SET k = if(id = 700, raise_error('one row too many'), k)")
    assert len(table.refresh().snapshots()) == 2
    assert set(_all_files(table)) == files
    table.transaction().set_properties({"write.data.path": "s3://nosuchbucket/data"}).commit()
    with pytest.raises(PySparkException, match="nosuchbucket"):
        sql("UPDATE lake.raw.t SET k = 'never' WHERE id < 10")
    assert len(table.refresh().snapshots()) == 2
    same(sql, peer)


def _all_files(table):
    return [one.location for one in table.storage.list(f"{table.location}/data")]


def test_partitions_are_overwritten_dynamically_on_an_object_store(on_s3, sql, peer, spark):
    make(sql, peer, 2, "copy-on-write")
    with configured(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}):
        sql("INSERT OVERWRITE lake.raw.t VALUES (1, 'only', 0, DATE '2026-06-01')")
    peer.sql("DELETE FROM t WHERE day = DATE '2026-06-01'")
    peer.sql("INSERT INTO t VALUES (1, 'only', 0, DATE '2026-06-01')")
    same(sql, peer)


@STORES
def test_a_branch_and_a_new_table_on_an_object_store(on_s3, sql, peer):
    make(sql, peer, 3, "merge-on-read")
    on_s3.load_table("raw.t").create_branch("audit")
    sql("UPDATE lake.raw.t.branch_audit SET k = 'audited' WHERE id < 5")
    assert sql("SELECT count(*) FROM lake.raw.t VERSION AS OF 'audit' WHERE k = 'audited'") == [
        (5,)
    ]
    same(sql, peer)
    sql("CREATE OR REPLACE TABLE lake.raw.t AS SELECT * FROM lake.raw.t WHERE id < 20")
    peer.sql("DELETE FROM t WHERE id >= 20")
    same(sql, peer)
