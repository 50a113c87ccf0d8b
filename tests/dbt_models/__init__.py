"""A dbt-spark project on a lakehouse."""
