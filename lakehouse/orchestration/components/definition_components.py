"""Components of Dagster, each one definition: its attributes are those of the Python value."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, get_type_hints

import dagster as dg
from pydantic import BaseModel, ConfigDict, Field, ImportString, create_model
from pyspark.sql import DataFrame

from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.source import Source
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.code_location import (
    TableMaintenance,
    event_definitions,
    maintenance_definitions,
)
from lakehouse.orchestration.project import Pipeline


class DefinitionComponent(dg.Component):
    """A component that is one value.

    Attributes:
        value_type: whose fields are the component's attributes.
        value: as `defs.yaml` says it.
    """

    value_type: ClassVar[type]

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def get_model_cls(cls) -> type[BaseModel]:
        """The attributes with types and defaults, for checks and for the UI."""
        return _model_of(cls.value_type)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """The component of a `defs.yaml`.

        Raises:
            InvalidInputError: the value is none.
        """
        given = {} if attributes is None else attributes.model_dump(exclude_unset=True)
        resolved = context.resolution_context.resolve_value(given)
        model = _model_of(cls.value_type).model_validate(resolved)
        return cls(cls.made({name: getattr(model, name) for name in resolved}, context.path))

    @classmethod
    def made(cls, attributes: dict[str, Any], folder: Path) -> Any:  # noqa: ARG003
        """The value. `folder` is where `defs.yaml` lies."""
        return cls.value_type(**attributes)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002
        """The definitions of this component alone, for projects that load a folder of them.

        They need the resources `lakehouse` and `spark`. A daily table knows its days by the sources
        beside it: `discover` and `build_definitions` put all components of a project together.
        """
        return event_definitions(self.pipeline())

    @abstractmethod
    def pipeline(self) -> Pipeline:
        """The value as the only one of a pipeline."""


class SourceComponent(DefinitionComponent):
    """A feed of raw events that lands as files: ledger, raw table by day, quarantine, sensor."""

    value_type = Source

    def pipeline(self) -> Pipeline:
        """The source alone."""
        source: Source = self.value
        return Pipeline((source,), (), "")


class ChangeFeedComponent(DefinitionComponent):
    """Changes of a table of another database, which land as files."""

    value_type = ChangeFeed

    def pipeline(self) -> Pipeline:
        """The feed alone."""
        feed: ChangeFeed = self.value
        return Pipeline((), (), "", (feed,))


class SqlModelComponent(DefinitionComponent):
    """A table that is computed from others by a SELECT of Spark SQL, or a `.sql` file beside."""

    value_type = SqlModel

    @classmethod
    def made(cls, attributes: dict[str, Any], folder: Path) -> DerivedTable:
        """The derived table; `sql` may name a file in the component's folder."""
        sql = attributes.get("sql", "")
        if sql.endswith(".sql"):
            attributes = attributes | {"sql": (folder / sql).read_text(encoding="utf-8")}
        return SqlModel(**attributes).table()

    def pipeline(self) -> Pipeline:
        """The table alone."""
        table: DerivedTable = self.value
        return Pipeline((), (table,), "")


class MaintenanceComponent(DefinitionComponent):
    """Jobs, sensors and schedules that look after tables, whoever writes these."""

    value_type = TableMaintenance

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:  # noqa: ARG002
        """The definitions of maintenance alone; a project that loads a folder has one of these."""
        maintenance: TableMaintenance = self.value
        return maintenance_definitions(maintenance.tables)

    def pipeline(self) -> Pipeline:
        """A pipeline that writes no tables."""
        maintenance: TableMaintenance = self.value
        return Pipeline((), (), "", others=maintenance.tables)


_PYTHON_ALONE = ("partitions", "partition_expr", "read_by")


@cache
def _model_of(value_type: type) -> type[BaseModel]:
    """A dataclass as a model that allows no other attributes."""
    hints = get_type_hints(value_type, localns={"DataFrame": DataFrame})
    if "transform" in hints:
        hints["transform"] = ImportString | None  # YAML names the function
    if "automation" in hints:
        hints["automation"] = Any  # as in other components: {{ dg.AutomationCondition.eager() }}
    attributes: dict[str, Any] = {
        field.name: (
            hints[field.name],
            Field(default_factory=field.default_factory)
            if field.default_factory is not MISSING
            else ...
            if field.default is MISSING
            else field.default,
        )
        for field in fields(value_type)
        if field.name not in _PYTHON_ALONE
    }
    return create_model(
        f"{value_type.__name__}Attributes", __config__=ConfigDict(extra="forbid"), **attributes
    )
