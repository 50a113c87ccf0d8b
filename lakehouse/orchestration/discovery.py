"""Finds what a package of assets defines by importing its modules: nothing is registered."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import dagster as dg

from lakehouse.errors import InvalidInputError
from lakehouse.ingestion.feeds.change_feed import ChangeFeed
from lakehouse.ingestion.source import Source
from lakehouse.orchestration.assets.asset_table import plain_tables, with_code_versions
from lakehouse.orchestration.assets.derived_table import DerivedTable
from lakehouse.orchestration.assets.sql_model import SqlModel
from lakehouse.orchestration.code_location import TableMaintenance
from lakehouse.orchestration.components import DefinitionComponent
from lakehouse.orchestration.project import Pipeline

# Dagster does not export the type that `define_asset_job` returns
_JOB_TYPES = (dg.JobDefinition, type(dg.define_asset_job("any")))
# where Dagster defines the components that it makes of folders, of modules, and in its UI
_STRUCTURE = "dagster.components.core."


@dataclass(frozen=True)
class Discovered:
    """What the modules of a package hold at their top level.

    Attributes:
        sources: by name.
        derived: by name.
        feeds: of changes, by name.
        modules: all of them, for Dagster's own loaders.
        maintained: tables that others write, which are to be looked after.
    """

    sources: tuple[Source, ...]
    derived: tuple[DerivedTable, ...]
    feeds: tuple[ChangeFeed, ...]
    modules: tuple[ModuleType, ...]
    maintained: tuple[str, ...] = ()

    def pipeline(self, landing_root: str) -> Pipeline:
        """Sources, feeds and derived tables, with landing folders below `landing_root`.

        Tables of plain assets are maintained with them.
        """
        plain = plain_tables(dg.load_assets_from_modules(self.modules))
        others = (*plain, *self.maintained)
        return Pipeline(self.sources, self.derived, landing_root, self.feeds, others)

    def others(self) -> dg.Definitions:
        """Dagster definitions of the modules: assets, checks, jobs, sensors, schedules."""
        values = _unique(self.modules)
        return dg.Definitions(
            assets=with_code_versions(dg.load_assets_from_modules(self.modules)),
            asset_checks=dg.load_asset_checks_from_modules(self.modules),
            jobs=[value for value in values if isinstance(value, _JOB_TYPES)],
            sensors=[value for value in values if isinstance(value, dg.SensorDefinition)],
            schedules=[value for value in values if isinstance(value, dg.ScheduleDefinition)],
        )


def discover(package: ModuleType) -> Discovered:
    """Import every module of a package, and collect sources, feeds, derived and maintained tables.

    Those of its `defs.yaml` files count as well.

    A name that starts with an underscore is passed over, as is what one module imports from
    another: each value counts once.

    Raises:
        InvalidInputError: a `defs.yaml` with a component that is none of lakehouse.
    """
    names = [
        module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    modules = [
        package,
        *(importlib.import_module(name) for name in names if "._" not in name),
    ]
    values = [*_unique(modules), *_components(package)]
    values = [value.table() if isinstance(value, SqlModel) else value for value in values]
    sources = [value for value in values if isinstance(value, Source)]
    derived = [value for value in values if isinstance(value, DerivedTable)]
    feeds = [value for value in values if isinstance(value, ChangeFeed)]
    maintained = [value for value in values if isinstance(value, TableMaintenance)]
    return Discovered(
        tuple(sorted(sources, key=lambda asset: asset.name)),
        tuple(sorted(derived, key=lambda asset: asset.name)),
        tuple(sorted(feeds, key=lambda asset: asset.name)),
        tuple(modules),
        tuple(name for table in maintained for name in table.tables),
    )


def _components(package: ModuleType) -> list[Any]:
    """What the `defs.yaml` files of a package define. Raises InvalidInputError."""
    root = Path(package.__path__[0])
    if not any(root.rglob("defs.yaml")):
        return []
    tree = dg.ComponentTree.from_module(defs_module=package, project_root=root.parent)
    components: list[Any] = tree.get_all_components(of_type=cast("type[Any]", dg.Component))
    strange = [
        definition
        for definition in components
        if not isinstance(definition, DefinitionComponent)
        and not type(definition).__module__.startswith(_STRUCTURE)
    ]
    if strange:
        raise InvalidInputError(
            f"{root}: {type(strange[0]).__name__} in a defs.yaml is no component of lakehouse: "
            "merge dg.load_from_defs_folder(...) of another folder into the definitions for it"
        )
    return [
        component.value for component in components if isinstance(component, DefinitionComponent)
    ]


def _unique(modules: Sequence[ModuleType]) -> list[Any]:
    return list({id(value): value for module in modules for value in _values(module)}.values())


def _values(module: ModuleType) -> list[object]:
    values: list[object] = []
    for name, value in vars(module).items():
        if not name.startswith("_"):
            # jobs are tuples, too
            values += value if type(value) in (list, tuple) else [value]
    return values
