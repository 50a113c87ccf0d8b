"""Sensors and schedules of this project, by Dagster's own means; ingestion and maintenance bring theirs along."""
