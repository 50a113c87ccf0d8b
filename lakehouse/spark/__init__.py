"""Spark reads and writes the tables without a JAR.

Names are imported when they are first used: Spark workers import this package and need the writer
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakehouse.names_when_used import names_when_used

if TYPE_CHECKING:
    from lakehouse.spark.attached_session import LakehouseSession, attach
    from lakehouse.spark.connect.connect_server import start_connect_server
    from lakehouse.spark.spark_session import build_session, spark_config

__all__ = ["LakehouseSession", "attach", "build_session", "spark_config", "start_connect_server"]

_HOMES = {
    "spark.attached_session": "LakehouseSession attach",
    "spark.connect.connect_server": "start_connect_server",
    "spark.spark_session": "build_session spark_config",
}
__getattr__ = names_when_used(__name__, _HOMES)
