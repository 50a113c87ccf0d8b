"""Sensors and schedules of this project's own; those of ingestion and maintenance come apart."""
