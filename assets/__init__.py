"""What this lakehouse holds: sources, tables derived from them, and assets of plain Dagster.

A new `@dg.asset` or check in any module here is loaded by itself. A new source or SQL model joins
`PIPELINE` in `assets/pipeline.py`; `lakehouse new-source` writes its lines there, in `jobs/` and in
`sensors/`.
"""
