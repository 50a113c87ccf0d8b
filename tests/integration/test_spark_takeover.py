"""CALL snapshot, add_files, migrate: files of Spark's own tables, which stay Spark's."""

from __future__ import annotations

import shutil

import pytest
from pyiceberg.table import StaticTable
from pyspark.errors import IllegalArgumentException, PySparkException, UnsupportedOperationException

from lakehouse.lake import load_catalog
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.spark import attach
from tests.integration.maintenance_support import at
from tests.integration.spark_support import configured, rows_in

pytestmark = pytest.mark.spark

ROWS = (
    "SELECT id, concat('n', id) AS name, CAST(id / 4 AS DECIMAL(9, 2)) AS price, "
    "TIMESTAMP '1969-12-31 23:59:59.123456' + make_interval(0, 0, 0, id) AS at, "
    "named_struct('x', id, 'tags', array('a', NULL)) AS more, "
    "CASE WHEN id % 5 = 0 THEN NULL ELSE concat('p ', id % 3, '/ä') END AS part, "
    "CAST(id % 2 AS INT) AS half FROM range(30)"
)


@pytest.fixture
def sources(tmp_path):
    return tmp_path / "spark"


@pytest.fixture
def lake(spark, tmp_path, sources):
    found = load_catalog(f"file://{tmp_path}/warehouse", **{"allowed-locations": f"{sources}"})
    attach(spark, found)
    return found


@pytest.fixture
def sql(spark, lake):
    run = rows_in(spark)
    run("CREATE NAMESPACE lake.raw")
    yield run
    run("DROP TABLE IF EXISTS spark_catalog.default.old")


def make(sql, sources, extra=""):
    sql(
        "CREATE TABLE spark_catalog.default.old USING parquet "
        f"{extra} LOCATION '{sources}/old' AS {ROWS}"
    )


def files_of(folder):
    return {one: one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def same(sql, one, other):
    columns = "id, name, price, at, more, part, half"
    read = [sql(f"SELECT {columns} FROM {table} ORDER BY id") for table in (one, other)]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    ("extra", "kind"), [("", "TIMESTAMP_MICROS"), ("PARTITIONED BY (part, half)", "INT96")]
)
def test_a_snapshot_has_the_rows_and_the_source_stays(sql, lake, sources, spark, extra, kind):
    with configured(spark, {"spark.sql.parquet.outputTimestampType": kind}):
        make(sql, sources, extra)
    before = files_of(sources)
    count = len([one for one in before if one.suffix == ".parquet"])
    call = "CALL lake.system.snapshot('spark_catalog.default.old', 'raw.new', properties => "
    assert sql(f"{call} map('owner-team', 'billing'))") == [(count,)]
    same(sql, "lake.raw.new", "spark_catalog.default.old")
    table = lake.load_table("raw.new")
    assert table.properties["gc.enabled"] == "false"
    assert table.properties["owner-team"] == "billing"
    found = StaticTable.from_metadata(table.metadata_location).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == list(range(30))
    assert [one.name for one in table.spec().fields] == (["part", "half"] if extra else [])
    sql("DELETE FROM lake.raw.new WHERE id % 3 = 0")
    sql("UPDATE lake.raw.new SET name = 'changed' WHERE id < 10")
    sql("INSERT INTO lake.raw.new SELECT * FROM spark_catalog.default.old WHERE id = 3")
    assert sql("SELECT count(*), count_if(name = 'changed') FROM lake.raw.new") == [(21, 6)]
    assert sql("SELECT count(*) FROM spark_catalog.default.old") == [(30,)]
    assert files_of(sources) == before


def test_nothing_that_tidies_up_deletes_files_of_the_source(sql, lake, sources):
    make(sql, sources, "PARTITIONED BY (half)")
    before = files_of(sources)
    sql("CALL lake.system.snapshot(source_table => 'default.old', table => 'raw.new')")
    call = "CALL lake.system."
    sql(f"{call}rewrite_data_files('raw.new', options => map('rewrite-all', 'true'))")
    later = "TIMESTAMP '2100-01-01 00:00:00'"
    expire = f"{call}expire_snapshots(table => 'raw.new', older_than => {later}, retain_last => 1)"
    for refused in (
        expire,
        f"{call}remove_orphan_files('raw.new')",
        "DROP TABLE lake.raw.new PURGE",
    ):
        with pytest.raises(PySparkException, match=r"gc\.enabled"):
            sql(refused)
    assert files_of(sources) == before
    # and who says that the files are the table's own is not believed
    table = lake.load_table("raw.new")
    table.transaction().set_properties({"gc.enabled": "true"}).commit()
    sql(expire)
    remove_orphan_files(table.catalog, table.identifier, OrphanOptions(), environment=at(days=10))
    trash = OrphanOptions(purge_trash_older_than_ms=1 << 62)
    remove_orphan_files(table.catalog, table.identifier, trash, environment=at(days=20))
    assert files_of(sources) == before
    same(sql, "lake.raw.new", "spark_catalog.default.old")
    sql("DROP TABLE lake.raw.new PURGE")
    assert files_of(sources) == before


def test_what_the_refusal_of_migrate_says_to_do_instead(sql, lake, sources):
    make(sql, sources, "PARTITIONED BY (half)")
    rows = sql("SELECT * FROM spark_catalog.default.old ORDER BY id")
    like = "AS SELECT * FROM spark_catalog.default.old WHERE false"
    sql(f"CREATE TABLE lake.raw.old USING iceberg PARTITIONED BY (half) {like}")
    sql("CALL lake.system.add_files('raw.old', 'spark_catalog.default.old')")
    sql("CALL lake.system.rewrite_data_files('raw.old', options => map('rewrite-all', 'true'))")
    sql("DROP TABLE spark_catalog.default.old")
    shutil.rmtree(sources)  # as of a table whose files are Spark's
    sql("REFRESH TABLE lake.raw.old")
    assert sql("SELECT * FROM lake.raw.old ORDER BY id") == rows
    folder = lake.load_table("raw.old").location
    files = lake.load_table("raw.old").scan().plan().files
    assert all(file.file_path.startswith(f"{folder}/") for file in files)


def test_files_of_one_partition_are_taken_in(sql, lake, sources):
    make(sql, sources, "PARTITIONED BY (half)")
    halves = [half for (half,) in sql("SELECT DISTINCT half FROM spark_catalog.default.old")]
    like = "AS SELECT * FROM spark_catalog.default.old WHERE false"
    sql(f"CREATE TABLE lake.raw.part USING iceberg PARTITIONED BY (half) {like}")
    only = f"partition_filter => map('half', '{halves[0]}')"
    sql(f"CALL lake.system.add_files('raw.part', 'spark_catalog.default.old', {only})")
    rows = f"SELECT * FROM spark_catalog.default.old WHERE half = {halves[0]!r} ORDER BY id"
    assert sql("SELECT * FROM lake.raw.part ORDER BY id") == sql(rows)


def test_a_folder_is_a_source(sql, sources, lake):
    make(sql, sources, "PARTITIONED BY (half)")
    count = len(list((sources / "old").rglob("*.parquet")))
    assert sql(f"CALL lake.system.snapshot('parquet.`{sources}/old`', 'raw.new')") == [(count,)]
    same(sql, "lake.raw.new", "spark_catalog.default.old")


def test_what_cannot_be_meant_is_refused_and_leaves_no_table(sql, sources, lake, tmp_path):
    make(sql, sources)
    sql("CREATE TABLE lake.raw.ours (id BIGINT)")
    sql("CREATE OR REPLACE TEMPORARY VIEW words AS SELECT 1 AS id")
    snapshot = "CALL lake.system.snapshot"
    overlapping = f"location => '{sources}/old/inside'"
    for call, kind, told in (
        (f"{snapshot}('default.nope', 'raw.new')", PySparkException, "nope"),
        (f"{snapshot}('words', 'raw.new')", IllegalArgumentException, "no folder"),
        (f"{snapshot}('lake.raw.ours', 'raw.new')", IllegalArgumentException, "no folder"),
        (f"{snapshot}('default.old', 'raw.new', {overlapping})", PySparkException, "overlaps"),
        (
            f"{snapshot}('default.old', 'raw.new', properties => map('gc.enabled', 'true'))",
            IllegalArgumentException,
            "cannot be set",
        ),
        (f"{snapshot}('default.old', 'raw.ours')", PySparkException, "raw.ours"),
        ("CALL lake.system.migrate('default.old')", UnsupportedOperationException, "snapshot"),
    ):
        with pytest.raises(kind, match=told):
            sql(call)
    assert lake.list_tables() == ["raw.ours"]
    other = load_catalog(f"file://{tmp_path}/other")
    other.create_namespace("raw")
    for one in (sources / "old").glob("*.parquet"):
        one.write_bytes(one.read_bytes()[:-4] + b"oops")
    with pytest.raises(PySparkException):
        sql(f"{snapshot}('default.old', 'raw.new')")
    assert lake.list_tables() == ["raw.ours"]


@pytest.mark.parametrize("procedure", ["snapshot", "add_files"])
def test_files_that_spark_does_not_read_are_not_taken_in(sql, sources, lake, procedure):
    make(sql, sources)
    path = next((sources / "old").glob("*.parquet"))
    path.with_name("b.parquet").write_bytes(path.read_bytes())
    sql("DROP TABLE spark_catalog.default.old")
    sql(
        "CREATE TABLE spark_catalog.default.old (id BIGINT, name STRING) USING parquet "
        f"OPTIONS (path '{sources}/old', pathGlobFilter 'part-*')"
    )
    sql("CREATE TABLE lake.raw.new (id BIGINT, name STRING)")
    arguments = {
        "snapshot": "'default.old', 'raw.other'",
        "add_files": "'raw.new', 'default.old'",
    }
    with pytest.raises(IllegalArgumentException, match=r"b\.parquet is in the folder"):
        sql(f"CALL lake.system.{procedure}({arguments[procedure]})")
    assert lake.list_tables() == ["raw.new"]
    assert sql("SELECT count(*) FROM lake.raw.new") == [(0,)]
