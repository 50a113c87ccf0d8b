"""The Dagster glue: resources, materialization metadata, checks before publication, lineage."""
