"""A lakehouse as a catalog of a Spark session: `spark.sql.catalog.<name>`."""

from __future__ import annotations

import re
import threading
import uuid
import weakref

from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse
from lakehouse.spark.catalog.cached_tables import refreshing
from lakehouse.spark.catalog.lake_answers import LakeAnswers
from lakehouse.spark.jvm.java_objects import java_object

PLUGIN = "lakehouse.spark.LakehouseCatalog"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TAKEN = frozenset({"spark_catalog", "system", "session", "global_temp"})
_lock = threading.Lock()


def register(spark: SparkSession, lake: Lakehouse, name: str) -> None:
    """Make a lakehouse the catalog `name` of a running session, replacing one of that name.

    From then on the session follows commits to tables that are loaded through the lakehouse.

    Raises:
        InvalidInputError: a name that is none, or belongs to Spark, or to a catalog of another
            kind.
        UnsupportedFeatureError: the session is a remote one.
    """
    if not _NAME.fullmatch(name) or name in _TAKEN:
        raise InvalidInputError(
            f"{name!r} is no name for a catalog: it has letters, digits and underscores, and is "
            f"none of {', '.join(sorted(_TAKEN))}"
        )
    java = java_object(spark, "PythonSide")
    setting = f"spark.sql.catalog.{name}"
    with _lock:
        known = spark.conf.get(setting, None)
        if known not in (None, PLUGIN):
            raise InvalidInputError(
                f"catalog {name} of this session is a {known}: choose another name"
            )
        key = spark.conf.get(f"{setting}.lake", None) or uuid.uuid4().hex
        lake.catalog = refreshing(lake.catalog, spark)
        java.register(key, LakeAnswers(_Session(spark), lake, name))
        spark.conf.set(f"{setting}.lake", key)
        spark.conf.set(setting, PLUGIN)


def share(spark: SparkSession, name: str) -> None:
    """Give the catalog `name` of a session to all that begin later in its application."""
    later = spark._jsparkSession.sharedState().conf()
    for key in (f"spark.sql.catalog.{name}.lake", f"spark.sql.catalog.{name}"):
        later.set(key, spark.conf.get(key))


class _Session:
    """The session, without keeping it alive."""

    def __init__(self, spark: SparkSession) -> None:
        self._reference = weakref.ref(spark)

    def __call__(self) -> SparkSession:
        spark = self._reference()
        if spark is None:
            spark = SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
        return spark
