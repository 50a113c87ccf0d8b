"""What this project's lakehouse holds: sources, derived tables, and assets by Dagster's own means.

Every module is found.
"""
