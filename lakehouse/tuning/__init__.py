"""Layouts of tables, chosen by measuring them on a sample with the queries that were recorded."""
