"""Dagster resources: the catalog, the landing root, and the Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from pydantic import Field, TypeAdapter, ValidationError
from pyspark.sql import SparkSession

from lakehouse.errors import InvalidInputError
from lakehouse.lake import Lakehouse, load_catalog
from lakehouse.spark.spark_session import build_session

_SEEN: ContextVar[tuple[tuple[str, ...], Lakehouse] | None] = ContextVar("seen", default=None)


class LakehouseResource(dg.ConfigurableResource[Any]):
    """The catalog that assets write to.

    Dagster shows configuration in its UI and keeps it with each run. What may hold a secret
    (`catalog`, `properties`) is given as `dg.EnvVar("NAME")`, which is looked up when the catalog
    is opened.

    Attributes:
        catalog: its URI or configured name, as `lakehouse.load_catalog` takes it.
        name: the catalog's name, part of a SQL catalog's key; empty: its own.
        properties: catalog and storage options as a JSON object of strings.
        warehouse: location of new tables, for catalogs that are not the warehouse themselves;
            empty: none.
        landing: root of the landing folders; empty: none, for projects without sources.
    """

    catalog: str = Field(repr=False)
    warehouse: str = ""
    name: str = ""
    properties: str = Field("{}", repr=False)
    landing: str = ""

    def lake(self) -> Lakehouse:
        """Open the catalog. Raises InvalidInputError."""
        seen = _SEEN.get()
        if seen is not None and seen[0] == self._place():
            return seen[1]
        options: dict[str, Any] = _options(_value(self.properties))
        return load_catalog(
            _value(self.catalog),
            warehouse=_value(self.warehouse) or None,
            name=_value(self.name) or None,
            **options,
        )

    @contextmanager
    def seen_as(self, lake: Lakehouse) -> Iterator[None]:
        """Within, every resource of this catalog opens `lake`."""
        before = _SEEN.set((self._place(), lake))
        try:
            yield
        finally:
            _SEEN.reset(before)

    def _place(self) -> tuple[str, ...]:
        return tuple(map(_value, (self.catalog, self.warehouse, self.name, self.properties)))


def _value(setting: str) -> str:
    """The text of a setting.

    In a run Dagster has replaced variables by their values; outside of one they are still names.
    """
    return setting.get_value() or "" if isinstance(setting, dg.EnvVar) else setting


def _options(properties: str) -> dict[str, str]:
    try:
        return TypeAdapter(dict[str, str]).validate_json(properties)
    except ValidationError:  # shows what it was given
        raise InvalidInputError(
            "The properties of the catalog must be a JSON object of strings."
        ) from None


class LakehouseSpark(LazyPySparkResource):
    """dagster-pyspark's lazy session: no JVM starts before the first step asks for it.

    Attributes:
        spark_config: Spark configuration to add or to replace.
        master: where Spark runs.
    """

    spark_config: dict[str, Any] = {}  # noqa: RUF012 - a pydantic field, copied for each instance
    master: str = "local[*]"

    def _init_session(self) -> None:
        if self._spark_session is None:
            self._spark_session = build_session(
                "lakehouse", master=self.master, config=self.spark_config
            )


@contextmanager
def spark_when_asked(name: str) -> Iterator[Callable[[], SparkSession]]:
    """Gives a Spark session that starts when it is first asked for, and is stopped afterwards."""
    started: list[SparkSession] = []

    def session() -> SparkSession:
        if not started:
            started.append(build_session(name))
        return started[0]

    try:
        yield session
    finally:
        for one in started:
            one.stop()
