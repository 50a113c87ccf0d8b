"""Dagster jobs and schedules."""
