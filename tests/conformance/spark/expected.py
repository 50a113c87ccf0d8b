"""Why a statement does something else here than in Iceberg's runtime, or nothing."""

from __future__ import annotations

from collections.abc import Sequence

_REASONS: Sequence[tuple[tuple[str, ...], str]] = (
    (("REPLACE COLUMNS",), "all columns would be dropped first, and a table keeps one: `ADD` and "
     "`DROP COLUMN`"),
    (("format('iceberg')",), "no data source is called `iceberg` without its runtime: "
     "`spark.table`, `writeTo`; changes between snapshots by `create_changelog_view`"),
    (("BY SOURCE THEN DELETE",), "a row that two rows of the source match stays once; there it is "
     "doubled"),
    (("add_files", "system.snapshot("), "the files are outside the warehouse, whose files alone a "
     "table may own"),
    (("register_table",), "the table is registered already: two names would own its files"),
    (("rewrite_table_path",), "no such procedure"),
    (("VIEW",), "Spark 4.1 asks no catalog for views; from 4.2 on they work"),
    (("SELECT * FROM t.files",), "bytes of columns differ: another encoder wrote the files"),
    (("iceberg_version",), "the result's column is named after the class that answers"),
)  # fmt: skip


def reason(text: str) -> str:
    """The reason for what differs about a statement; nothing where none is known."""
    for words, told in _REASONS:
        if any(word in text for word in words):
            return told
    return ""
