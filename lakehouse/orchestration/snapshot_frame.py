"""Tables at exact snapshots as Spark DataFrames."""

from __future__ import annotations

from typing import cast

from pyiceberg.expressions import BooleanExpression
from pyspark.sql import DataFrame, SparkSession

from lakehouse.table import Table


def read_frame(
    spark: SparkSession,
    table: Table,
    where: BooleanExpression | None = None,
    *,
    snapshot_id: int | None = None,
) -> DataFrame:
    """Rows of a table, at its version or at a snapshot."""
    return cast("DataFrame", table.scan(where, snapshot_id=snapshot_id).to_spark(spark))
