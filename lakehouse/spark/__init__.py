"""Spark reads and writes the tables without a JAR.

Names are imported when they are first used: Spark workers import this package and need the writer
alone.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakehouse.spark.attached_session import LakehouseSession, attach
    from lakehouse.spark.connect.connect_server import start_connect_server
    from lakehouse.spark.spark_session import build_session, spark_config

__all__ = ["LakehouseSession", "attach", "build_session", "spark_config", "start_connect_server"]

_HOMES = {
    "LakehouseSession": "attached_session",
    "attach": "attached_session",
    "build_session": "spark_session",
    "spark_config": "spark_session",
    "start_connect_server": "connect.connect_server",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
