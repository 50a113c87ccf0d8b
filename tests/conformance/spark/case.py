"""What a case is, and the tables that cases begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

PLAIN = (
    "CREATE TABLE {t} (id BIGINT, name STRING, amount DECIMAL(9, 2)) USING iceberg",
    "INSERT INTO {t} VALUES (1, 'a', 1.50), (2, 'b', 2.50), (3, NULL, 3.50)",
    "INSERT INTO {t} VALUES (4, 'd', NULL), (5, 'e', 5.50)",
)
EVENTS = (
    "CREATE TABLE {t} (id BIGINT, ts TIMESTAMP, kind STRING, n INT) USING iceberg "
    "PARTITIONED BY (days(ts), bucket(4, id)) TBLPROPERTIES ('format-version' = '2')",
    "INSERT INTO {t} SELECT id, TIMESTAMP '2026-03-01 00:00:00' + make_interval(0, 0, 0, 0, id), "
    "concat('k', id % 3), CAST(id % 7 AS INT) FROM range(0, 48)",
    "INSERT INTO {t} SELECT id, TIMESTAMP '2026-03-02 00:00:00' + make_interval(0, 0, 0, 0, id), "
    "concat('k', id % 3), CAST(NULL AS INT) FROM range(48, 72)",
    "INSERT INTO {t} VALUES (100, TIMESTAMP '2026-03-09 12:00:00', NULL, 1)",
)
NESTED = (
    "CREATE TABLE {t} (id BIGINT, place STRUCT<lat: FLOAT, name: STRING>, "
    "points ARRAY<STRUCT<x: INT, y: INT>>, tags MAP<STRING, STRUCT<w: INT>>) USING iceberg",
    "INSERT INTO {t} SELECT 1, named_struct('lat', CAST(1.5 AS FLOAT), 'name', 'p'), "
    "array(named_struct('x', 1, 'y', 2)), map('k', named_struct('w', 3))",
)
MERGED = (
    "CREATE TABLE {t} (id BIGINT, name STRING, n INT) USING iceberg "
    "TBLPROPERTIES ('format-version' = '2', 'write.delete.mode' = '{mode}', "
    "'write.update.mode' = '{mode}', 'write.merge.mode' = '{mode}')",
    "INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', NULL), (3, 'c', 3), (4, NULL, 4)",
    "INSERT INTO {t} VALUES (5, 'e', 5), (6, 'f', 6)",
    "CREATE TABLE {s} (id BIGINT, name STRING, n INT) USING iceberg",
    "INSERT INTO {s} VALUES (1, 'A', 10), (3, NULL, 30), (7, 'G', 70), (NULL, 'x', 0)",
)
ON_READ = tuple(one.replace("{mode}", "merge-on-read") for one in MERGED)
ON_READ_V3 = tuple(
    one.replace("'format-version' = '2'", "'format-version' = '3'") for one in ON_READ
)
ON_WRITE = tuple(one.replace("{mode}", "copy-on-write") for one in MERGED)


@dataclass(frozen=True)
class Case:
    """One statement of the list.

    In all texts `{t}` and `{s}` are tables, `{n}` is their namespace, `{name}` the table in the
    catalog; `{v1}`, `{v2}`... are the ids of its snapshots, `{ts1}`... their times. A text that
    begins with `spark` or with `source` is Python.

    Attributes:
        section: of the documentation.
        statement: the one that is shown.
        before: what makes its tables.
        then: queries whose rows must be equal afterwards; each is sorted.
        columns_only: compare names and types of what the statement returns, not its values.
    """

    section: str
    statement: str
    before: Sequence[str] = ()
    then: Sequence[str] = field(default=("SELECT * FROM {t}",))
    columns_only: bool = False
