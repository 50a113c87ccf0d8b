"""The materialized views of a catalog as assets that runs refresh."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import dagster as dg
from dagster.components.component.state_backed_component import StateBackedComponent
from dagster.components.utils.defs_state import (
    DefsStateConfig,
    DefsStateConfigArgs,
    ResolvedDefsStateConfig,
)

from lakehouse.errors import LakehouseError
from lakehouse.orchestration.assets.incremental import REFRESH_METADATA
from lakehouse.orchestration.lineage.materialization import data_version, materialization_metadata
from lakehouse.orchestration.materialized_view import MaterializedView
from lakehouse.orchestration.resources import LakehouseResource, LakehouseSpark
from lakehouse.orchestration.run_publication import PUBLISH_TAG


@dataclass
class MaterializedViewsComponent(StateBackedComponent, dg.Resolvable):
    """Materialized views of a catalog, each an asset of its name behind the tables that it reads.

    The catalog is asked which there are when Dagster refreshes the state of the definitions, not
    whenever they are loaded. Beside the resources `lakehouse` and `spark` nothing is needed.

    Attributes:
        catalog: URI of the catalog, as `load_catalog` takes it.
        warehouse: where its tables lie, for catalogs that do not know.
        properties: of the catalog, and of its storage.
        only: patterns of names, such as `marts.*`; empty: all.
        automation: `eager` refreshes a view once anything that it reads was materialized; `none`
            leaves it to schedules and people.
        name: of the step.
        defs_state: where Dagster keeps what it knows of the views.
    """

    catalog: str
    warehouse: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    only: list[str] = field(default_factory=list)
    automation: Literal["none", "eager"] = "none"
    name: str = "materialized_views"
    defs_state: ResolvedDefsStateConfig = field(
        default_factory=DefsStateConfigArgs.local_filesystem
    )

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where Dagster keeps what it knows of the views."""
        return DefsStateConfig.from_args(
            self.defs_state, default_key=f"{type(self).__name__}[{self.name}]"
        )

    def write_state_to_path(self, state_path: Path) -> None:
        """Ask the catalog which views it has. Raises LakehouseError."""
        lake = LakehouseResource(
            catalog=self.catalog, warehouse=self.warehouse, properties=json.dumps(self.properties)
        ).lake()
        views = [
            {
                "name": view.name,
                "storage": view.storage,
                "inputs": list(view.definition().inputs),
                "comment": view.view().properties.get("comment", ""),
            }
            for view in MaterializedView.all_of(lake)
            if not self.only or any(fnmatchcase(view.name, pattern) for pattern in self.only)
        ]
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(json.dumps(views), encoding="utf-8")

    def get_asset_spec(self, view: Mapping[str, Any], owners: Mapping[str, str]) -> dg.AssetSpec:
        """The asset of a view.

        Args:
            view: its name, storage table, inputs and comment.
            owners: storage table -> view that has its rows there.
        """
        return dg.AssetSpec(
            key=_key(view["name"]),
            deps=[_key(owners.get(table, table)) for table in view["inputs"]],
            description=view["comment"] or None,
            metadata={"dagster/table_name": view["storage"]},
            kinds={"iceberg", "materialized_view"},
            automation_condition=(
                dg.AutomationCondition.eager() if self.automation == "eager" else None
            ),
        )

    def build_defs_from_state(
        self,
        context: dg.ComponentLoadContext,  # noqa: ARG002
        state_path: Path | None,
    ) -> dg.Definitions:
        """One step that refreshes the chosen views, each behind those whose rows it reads."""
        if state_path is None or not state_path.exists():
            return dg.Definitions()
        views = json.loads(state_path.read_text(encoding="utf-8"))
        if not views:
            return dg.Definitions()
        owners = {view["storage"]: view["name"] for view in views}

        @dg.multi_asset(
            specs=[self.get_asset_spec(view, owners) for view in views],
            can_subset=True,
            name=self.name,
        )
        def refresh(
            context: dg.AssetExecutionContext, lakehouse: LakehouseResource, spark: LakehouseSpark
        ) -> Iterator[dg.MaterializeResult[Any]]:
            if lakehouse.run_branch is not None:
                raise dg.Failure(
                    "A refresh of a materialized view is on main at once, and the tables of this "
                    f"run are published together. Give the run the tag {PUBLISH_TAG} = step.",
                    allow_retries=False,
                )
            failed: dict[str, str] = {}
            for view in views:  # as the catalog gave them: behind what they read
                if _key(view["name"]) not in context.selected_asset_keys:
                    continue
                unread = failed.keys() & {owners.get(table, table) for table in view["inputs"]}
                if unread:
                    failed[view["name"]] = f"{', '.join(sorted(unread))} failed"
                    continue
                try:
                    yield _refreshed(context, lakehouse, spark, view["name"])
                except LakehouseError as error:
                    failed[view["name"]] = error.message
            if failed:
                reasons = (f"{name}: {reason}" for name, reason in failed.items())
                raise dg.Failure("; ".join(reasons))

        return dg.Definitions(assets=[refresh])


def _refreshed(
    context: dg.AssetExecutionContext,
    lakehouse: LakehouseResource,
    spark: LakehouseSpark,
    name: str,
) -> dg.MaterializeResult[Any]:
    lake = lakehouse.lake()
    view = MaterializedView(lake, name)
    done = view.refresh(session=lambda: spark.spark_session, run_id=context.run.run_id)
    context.log.info(f"{name}: {done.mode}, {done.reason}")
    lineage = view.lineage()
    table = lake.load_table(view.storage)
    snapshot = table.metadata.snapshot(lineage.snapshot_id)
    inputs = {source.table: source.snapshot_id for source in lineage.inputs}
    return dg.MaterializeResult(
        asset_key=_key(name),
        data_version=data_version(snapshot),
        metadata={
            **materialization_metadata(table, snapshot, inputs),
            REFRESH_METADATA: done.to_dict(),
        },
    )


def _key(name: str) -> dg.AssetKey:
    return dg.AssetKey(name.split("."))
