"""A Spark session with a lakehouse attached: tables and SQL by name."""

from __future__ import annotations

import uuid

from pyspark.sql import DataFrame, SparkSession

from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.lake import Lakehouse
from lakehouse.spark import connect, metadata_tables, reader
from lakehouse.spark.change_statement import CreateTable, parse_change
from lakehouse.spark.changes import carry_out
from lakehouse.spark.helper import planned_files
from lakehouse.spark.statement import Reference, Statement, parse_statement
from lakehouse.spec.identifier import Identifier
from lakehouse.table.table import Table
from lakehouse.table.times import Moment

METADATA_TABLES = frozenset(
    {
        "snapshots",
        "history",
        "refs",
        "metadata_log_entries",
        "manifests",
        "entries",
        "files",
        "data_files",
        "delete_files",
        "partitions",
        "all_manifests",
        "all_entries",
        "all_files",
        "all_data_files",
        "all_delete_files",
    }
)


class LakehouseSession:
    """Tables of one lakehouse as Spark DataFrames.

    Attributes:
        spark: the Spark session.
        lake: the lakehouse.
    """

    def __init__(self, spark: SparkSession, lake: Lakehouse) -> None:
        self.spark = spark
        self.lake = lake

    def table(
        self,
        name: str,
        *,
        snapshot_id: int | None = None,
        as_of: Moment | None = None,
        ref: str | None = None,
    ) -> DataFrame:
        """A table, or a metadata table such as `raw.events.files`, at its current snapshot unless told otherwise.

        The frame shows that snapshot for as long as it lives; call again to see later commits.

        Args:
            name: dotted name.
            snapshot_id: this snapshot.
            as_of: what was current at this time: datetime (naive means UTC), ISO text or milliseconds.
            ref: head of this branch, or this tag.

        Raises:
            NoSuchTableError | NoSuchSnapshotError | NoSuchRefError: nothing there.
            UnsupportedTypeError: a column that Spark cannot read.
        """
        return self._frame(*self._find(name), snapshot_id=snapshot_id, as_of=as_of, ref=ref)

    def sql(self, text: str) -> DataFrame:
        """Run a Spark SQL statement over tables of the lakehouse and over whatever else the session knows.

        Tables of the lakehouse are named `namespace.table`; `FOR VERSION AS OF 8124`, `VERSION AS OF 'tag'` and
        `TIMESTAMP AS OF '2026-06-01 12:00:00'` read the past; `namespace.table.snapshots` is a metadata table. All mentions
        of a table in a query see one version of it.

        Tables are changed by `CREATE TABLE ... USING lakehouse [PARTITIONED BY (days(ts), bucket(16, id))] [AS query]`,
        `INSERT INTO`, `DELETE FROM`, `UPDATE ... SET` and `DROP TABLE`: one commit each, at once, and an empty frame.

        Raises:
            InvalidInputError: the text does not parse, or travels in time by something else than a literal.
            UnsupportedFeatureError: it would change a table of the lakehouse otherwise; the message names what does that.
            NoSuchSnapshotError | NoSuchRefError: nothing there.
        """
        change = parse_change(text)
        if change is not None and (
            isinstance(change, CreateTable) or self._known(change.name) is not None
        ):
            return carry_out(change, self.spark, self.lake, self._run)
        return self._run(text, None)

    def _run(self, text: str, pinned: Table | None) -> DataFrame:
        """A query; the pinned table is read at the version it has."""
        statement = parse_statement(text)
        found = {
            ref: table
            for ref in statement.references
            if (table := self._known(ref.name)) is not None
        }
        if not found:
            return self.spark.sql(text)
        if not statement.is_query:
            raise UnsupportedFeatureError(
                "session.sql changes tables of the lakehouse by CREATE TABLE ... USING lakehouse, INSERT INTO, DELETE FROM, "
                "UPDATE and DROP TABLE; for the rest use table.append, table.overwrite, or frame.write on session.table(...)"
            )
        return self._query(statement, found, {} if pinned is None else {pinned.name: pinned})

    def _query(
        self,
        statement: Statement,
        found: dict[Reference, tuple[str, str | None]],
        loaded: dict[str, Table],
    ) -> DataFrame:
        views: dict[Reference, str] = {}
        frames: dict[str, DataFrame] = {}
        remote = connect.is_remote(self.spark)
        try:
            for reference, (name, metadata_table) in found.items():
                table = loaded.get(name) or loaded.setdefault(name, self.lake.load_table(name))
                frame = self._frame(
                    table,
                    metadata_table,
                    snapshot_id=reference.snapshot_id,
                    as_of=reference.as_of,
                    ref=reference.ref,
                )
                view = f"_lakehouse_{uuid.uuid4().hex}"
                if not remote:
                    frame.createOrReplaceTempView(view)
                views[reference], frames[view] = view, frame
            text = statement.with_views(views)
            return connect.query(self.spark, text, frames) if remote else self.spark.sql(text)
        finally:
            # the analyzed query holds the relations themselves
            for view in () if remote else views.values():
                self.spark.catalog.dropTempView(view)

    def _frame(
        self,
        table: Table,
        metadata_table: str | None,
        *,
        snapshot_id: int | None,
        as_of: Moment | None,
        ref: str | None,
    ) -> DataFrame:
        if ref is not None and (snapshot_id is not None or as_of is not None):
            raise InvalidInputError(
                f"{table.name}: give ref, snapshot_id or as_of, not two of them", table=table.name
            )
        scan = table.scan(snapshot_id=snapshot_id, as_of=as_of, ref=ref or "main")
        if metadata_table is None:
            return reader.read(self.spark, table.name, scan.request, table.storage, table.listeners)
        return self.spark.createDataFrame(
            metadata_tables.shown(table.inspect.table(metadata_table, scan.request.snapshot_id))
        )

    def _find(self, name: str) -> tuple[Table, str | None]:
        known = self._known(tuple(name.split(".")))
        if known is None:
            return self.lake.load_table(name), None
        return self.lake.load_table(known[0]), known[1]

    def _known(self, parts: tuple[str, ...]) -> tuple[str, str | None] | None:
        """The table that a name means, and which of its metadata tables; None when it is none of ours."""
        if len(parts) < 2:
            return None
        if self.lake.table_exists(Identifier(parts[:-1], parts[-1])):
            return ".".join(parts), None
        if (
            len(parts) > 2
            and parts[-1] in METADATA_TABLES
            and self.lake.table_exists(Identifier(parts[:-2], parts[-2]))
        ):
            return ".".join(parts[:-1]), parts[-1]
        return None


def attach(spark: SparkSession, lake: Lakehouse) -> LakehouseSession:
    """Ready a Spark session to read and write the tables of a lakehouse.

    A Spark Connect session reads by planned paths: see `lakehouse.spark.connect` for what that costs.
    """
    if connect.is_remote(spark):
        connect.ready(spark)
    else:
        planned_files(spark)
    return LakehouseSession(spark, lake)
