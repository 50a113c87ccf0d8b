"""The Dagster glue."""
