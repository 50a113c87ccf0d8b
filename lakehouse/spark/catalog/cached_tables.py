"""What a session has cached of a table (`CACHE TABLE`), when its rows changed.

Spark itself refreshes the name that a statement writes to. A procedure may change any, and a
branch has several names: `raw.events` and `raw.events.branch_main`.
"""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakehouse.spark.spark_types import quoted
from lakehouse.table.table import Table

logger = logging.getLogger(__name__)


def refresh_cached(spark: SparkSession, catalog: str, table: Table) -> None:
    """Have the session read again what it has cached of a table and of its branches and tags.

    What was cached stays so, by the table's present version; where Spark cannot do that, nothing
    stays cached.
    """
    if spark._jsparkSession.sharedState().cacheManager().isEmpty():
        return
    identifier = table.identifier
    name = (catalog, *identifier.namespace, identifier.name)
    parts = [f"{ref.type}_{ref_name}" for ref_name, ref in table.metadata.refs.items()]
    try:
        for shown in (name, *((*name, part) for part in parts)):
            spark.catalog.refreshTable(".".join(quoted(part) for part in shown))
    except PySparkException as error:
        logger.warning("%s: the session caches nothing any more: %s", table.name, error)
        spark.catalog.clearCache()
