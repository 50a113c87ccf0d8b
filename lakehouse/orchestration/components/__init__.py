"""Dagster components: the definitions as `defs.yaml`."""

from lakehouse.orchestration.components.definition_components import (
    ChangeFeedComponent,
    DefinitionComponent,
    MaintenanceComponent,
    SourceComponent,
    SqlModelComponent,
)
from lakehouse.orchestration.components.materialized_view_component import (
    MaterializedViewsComponent,
)
from lakehouse.orchestration.components.pipeline_component import SparkPipelineComponent

__all__ = [
    "ChangeFeedComponent",
    "DefinitionComponent",
    "MaintenanceComponent",
    "MaterializedViewsComponent",
    "SourceComponent",
    "SparkPipelineComponent",
    "SqlModelComponent",
]
