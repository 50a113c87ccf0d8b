"""A Spark session with a lakehouse attached as a catalog."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from lakehouse.errors import InvalidInputError, NoSuchTableError, UnsupportedFeatureError
from lakehouse.lake import Lakehouse
from lakehouse.spark.catalog.registration import register
from lakehouse.spark.catalog.table_names import NamedTable, find_table
from lakehouse.spark.connect import path_reader
from lakehouse.spark.reading.metadata_frames import as_text
from lakehouse.spark.reading.scan_frame import read
from lakehouse.spec.identifier import split_name
from lakehouse.table.times import Moment, to_ms


class LakehouseSession:
    """A lakehouse in a Spark session.

    Attributes:
        spark: the Spark session.
        lake: the lakehouse.
        name: the catalog of the session that it is.
    """

    def __init__(self, spark: SparkSession, lake: Lakehouse, name: str = "lake") -> None:
        self.spark = spark
        self.lake = lake
        self.name = name

    def sql(self, text: str) -> DataFrame:
        """`spark.sql(text)` in this catalog: `raw.events` is `lake.raw.events`.

        When the statement is done, the session's current catalog and namespace are what they were.
        They are the session's: beside this call other threads should write names in full.

        Raises:
            UnsupportedFeatureError: a Spark Connect session, whose server does not know the
                catalog.
        """
        if path_reader.is_remote(self.spark):
            raise UnsupportedFeatureError(
                "A Spark Connect session knows the catalogs of its server alone. Read a table with "
                "`.table(...)` and name it for SQL with `.createOrReplaceTempView(...)`."
            )
        catalog = self.spark.catalog
        before = catalog.currentCatalog(), catalog.currentDatabase()
        if before[0] == self.name:
            return self.spark.sql(text)
        catalog.setCurrentCatalog(self.name)
        try:
            return self.spark.sql(text)
        finally:
            catalog.setCurrentCatalog(before[0])
            catalog.setCurrentDatabase(before[1])

    def table(
        self,
        name: str,
        *,
        snapshot_id: int | None = None,
        as_of: Moment | None = None,
        ref: str | None = None,
    ) -> DataFrame:
        """A table or metadata table (`raw.events.files`) at its current snapshot by default.

        The frame shows that snapshot for as long as it lives; `spark.table("lake.raw.events")` is a
        frame that shows what is committed later, too.

        Args:
            name: dotted name, without the catalog.
            snapshot_id: this snapshot.
            as_of: what was current at this time: datetime (naive means UTC), ISO text or
                milliseconds.
            ref: head of this branch, or this tag.

        Raises:
            NoSuchTableError | NoSuchSnapshotError | NoSuchRefError: nothing there.
            UnsupportedTypeError: a column that Spark cannot read.
        """
        if ref is not None and (snapshot_id is not None or as_of is not None):
            raise InvalidInputError(
                f"{name}: give ref, snapshot_id or as_of, not two of them", table=name
            )
        *namespace, last = split_name(name)
        named = find_table(self.lake, namespace, last)
        if named is None:
            raise NoSuchTableError(f"There is no table {name!r} in {self.lake!r}.", table=name)
        if (snapshot_id, as_of, ref) != (None, None, None):
            named = NamedTable(
                named.table,
                named.shown,
                named.metadata_table,
                snapshot_id=snapshot_id,
                as_of_ms=None if as_of is None else to_ms(as_of),
                ref=ref,
            )
        table, request = named.table, named.scan().request
        if named.metadata_table is None:
            return read(self.spark, table.name, request, table.storage, table.listeners)
        inspected = table.inspect.table(named.metadata_table, request.snapshot_id)
        return self.spark.createDataFrame(as_text(inspected))


def attach(spark: SparkSession, lake: Lakehouse, name: str = "lake") -> LakehouseSession:
    """Make a lakehouse a catalog of a running Spark session: `SELECT * FROM lake.raw.events`.

    It stays one as long as this process, which answers for it. A lakehouse attached before under
    the same name goes. A Spark Connect session has the catalogs of its server alone; tables are
    read with `table`.

    Args:
        spark: the session.
        lake: the lakehouse.
        name: of the catalog.

    Raises:
        InvalidInputError: a name that no catalog can have, or that is taken.
    """
    if path_reader.is_remote(spark):
        path_reader.ready(spark)
    else:
        register(spark, lake, name)
    return LakehouseSession(spark, lake, name)
