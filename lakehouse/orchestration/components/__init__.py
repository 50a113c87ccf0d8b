"""Dagster components: the definitions as `defs.yaml`."""

from lakehouse.orchestration.components.definition_components import (
    ChangeFeedComponent,
    DefinitionComponent,
    MaintenanceComponent,
    SourceComponent,
    SqlModelComponent,
)

__all__ = [
    "ChangeFeedComponent",
    "DefinitionComponent",
    "MaintenanceComponent",
    "SourceComponent",
    "SqlModelComponent",
]
