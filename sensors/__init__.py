"""Sensors and schedules. They read listings and table metadata only: no Spark, no data."""
