"""Dagster components: the definitions as `defs.yaml`."""

from lakehouse.orchestration.components.definition_components import (
    ChangeFeedComponent,
    DefinitionComponent,
    SourceComponent,
    SqlModelComponent,
)

__all__ = ["ChangeFeedComponent", "DefinitionComponent", "SourceComponent", "SqlModelComponent"]
