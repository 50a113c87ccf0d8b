"""What Spark has cached of a table (`CACHE TABLE`, `DataFrame.cache`), when the table changed.

Spark itself refreshes the name that a statement writes to. A procedure may change any table, a
branch has several names (`raw.events` and `raw.events.branch_main`), and Python commits beside
Spark: the one thing that all of these do is to commit to the catalog.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, ServerAppender, TableCommit, TableVersion
from lakehouse.catalog.posted_append import PostedAppend
from lakehouse.spark.jvm.java_objects import java_object
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_updates import Requirement, Update

logger = logging.getLogger(__name__)


def refresh_cached(spark: SparkSession, table_uuid: str) -> None:
    """Have Spark read again what it has cached of a table, by whatever name.

    What was cached stays so, by the table's present version; where Spark cannot do that, nothing
    stays cached.
    """
    if spark.sparkContext._jsc is None:  # stopped
        return
    try:
        java_object(spark, "PythonSide").recache(spark._jsparkSession, table_uuid)
    except Exception as error:  # noqa: BLE001 - nothing that follows a commit may raise
        logger.warning("table %s: Spark caches nothing any more: %s", table_uuid, error)
        spark.catalog.clearCache()


def refreshing(catalog: Catalog, spark: SparkSession) -> Catalog:
    """The catalog, whose commits refresh what a session cached: this one, and no other."""
    inside = catalog.inside if isinstance(catalog, RefreshingCatalog) else catalog
    return RefreshingCatalog(inside, spark)


class RefreshingCatalog(CatalogDecorator):
    """A catalog that has a session read again what it has cached of the tables committed to."""

    def __init__(self, inside: Catalog, spark: SparkSession) -> None:
        super().__init__(inside)
        self._spark, self._process = weakref.ref(spark), os.getpid()

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """What the catalog does; the session refreshes also where nobody knows the outcome."""
        try:
            return self.inside.commit(identifier, base, requirements, updates)
        finally:
            self._changed(base)

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """As `commit`, of several tables."""
        try:
            return self.inside.commit_all(commits)
        finally:
            for commit in commits:
                self._changed(commit.base)

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """What the catalog does: an earlier version of a table may be the newest one again."""
        version = self.inside.register(identifier, metadata_location)
        self._changed(version)
        return version

    def appender(self, identifier: Identifier) -> ServerAppender | None:
        """Who commits appends; the session refreshes after each."""
        appender = self.inside.appender(identifier)
        return None if appender is None else _RefreshingAppender(appender, self._changed)

    def _changed(self, version: TableVersion) -> None:
        spark = self._spark() or SparkSession._instantiatedSession
        if spark is not None and os.getpid() == self._process:  # a fork shares the JVM's sockets
            refresh_cached(spark, version.metadata.table_uuid)


class _RefreshingAppender:
    def __init__(self, inside: ServerAppender, changed: Callable[[TableVersion], None]) -> None:
        self._inside, self._changed = inside, changed

    @property
    def shares(self) -> bool:
        return self._inside.shares

    def append(self, base: TableVersion, append: PostedAppend) -> tuple[TableVersion, Snapshot]:
        try:
            return self._inside.append(base, append)
        finally:
            self._changed(base)
