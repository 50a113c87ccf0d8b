"""Dagster resources: the catalog, the landing root, and the Spark session."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.spark.session import build_session


class LakehouseResource(dg.ConfigurableResource[Any]):
    """The catalog that assets write to.

    Attributes:
        catalog: catalog URI, as `lakehouse.load_catalog` takes it.
        warehouse: location of new tables, for catalogs that are not the warehouse themselves; empty: none.
        landing: root of the landing folders.
    """

    catalog: str
    warehouse: str = ""
    landing: str

    def lake(self) -> Lakehouse:
        """Open the catalog."""
        return load_catalog(self.catalog, warehouse=self.warehouse or None)


class LakehouseSpark(LazyPySparkResource):
    """dagster-pyspark's lazy session, configured by `lakehouse.spark.session`: no JVM starts before the first step asks for it.

    Attributes:
        spark_config: Spark configuration to add or to replace.
        master: where Spark runs.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field, copied for each instance
    master: str = "local[*]"

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = build_session("lakehouse", master=self.master, config=self.spark_config)
