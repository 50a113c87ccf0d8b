"""Statements that make, change and describe tables."""

from __future__ import annotations

from tests.conformance.spark.case import EVENTS, NESTED, PLAIN, Case

ALL_TYPES = (
    "b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, p DECIMAL(20, 3), day DATE, at TIMESTAMP, "
    "wall TIMESTAMP_NTZ, s STRING, x BINARY, st STRUCT<a: INT, b: STRING>, arr ARRAY<INT>, "
    "m MAP<STRING, INT>"
)
SPEC = "SELECT partition, record_count, file_count FROM {t}.partitions"
CREATION = "Tables"
EVOLUTION = "Schema evolution"
PARTITIONS = "Partition evolution and sort order"
NAMESPACES = "Namespaces"


def _created() -> list[Case]:
    made = "CREATE TABLE {t} (id BIGINT, ts TIMESTAMP, name STRING) USING iceberg"
    rows = (
        "INSERT INTO {t} VALUES (1, TIMESTAMP '2026-03-01 10:00:00', 'alpha'), "
        "(2, TIMESTAMP '1969-12-31 23:59:59', 'beta'), (NULL, NULL, NULL)"
    )
    terms = (
        "years(ts)", "months(ts)", "days(ts)", "hours(ts)", "bucket(4, id)", "truncate(2, name)",
        "name", "days(ts), bucket(4, id)",
    )  # fmt: skip
    transforms = [
        Case(CREATION, f"{made} PARTITIONED BY ({term})", then=(rows, "SELECT * FROM {t}", SPEC))
        for term in terms
    ]
    return [
        Case(CREATION, f"CREATE TABLE {{t}} ({ALL_TYPES}) USING iceberg", then=("DESCRIBE {t}",)),
        *transforms,
        Case(CREATION, "CREATE TABLE IF NOT EXISTS {t} (other INT) USING iceberg", PLAIN),
        Case(CREATION, "CREATE TABLE {t} (other INT) USING iceberg", PLAIN),
        Case(
            CREATION,
            "CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'key', name STRING) USING iceberg "
            "COMMENT 'people'",
            then=("DESCRIBE {t}", "INSERT INTO {t} VALUES (NULL, 'a')", "SELECT * FROM {t}"),
        ),
        Case(
            CREATION,
            "CREATE TABLE {t} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3', "
            "'write.parquet.compression-codec' = 'snappy')",
            then=(
                "INSERT INTO {t} VALUES (1)",
                "SELECT * FROM {t}",
                "SHOW TBLPROPERTIES {t} ('write.parquet.compression-codec')",
            ),
        ),
        Case(
            CREATION,
            "CREATE TABLE {t} (id BIGINT, n INT DEFAULT 7) USING iceberg "
            "TBLPROPERTIES ('format-version' = '3')",
            then=("INSERT INTO {t} (id) VALUES (1)", "SELECT * FROM {t}"),
        ),
    ]


def _filled() -> list[Case]:
    return [
        Case(
            CREATION,
            "CREATE TABLE {t} USING iceberg AS SELECT id, name FROM {s}",
            ("CREATE TABLE {s} USING iceberg AS SELECT id, concat('n', id) name FROM range(3)",),
        ),
        Case(
            CREATION,
            "CREATE TABLE {t} USING iceberg PARTITIONED BY (bucket(2, id)) "
            "TBLPROPERTIES ('a' = 'b') AS SELECT id FROM range(9)",
            then=("SELECT * FROM {t}", SPEC, "SHOW TBLPROPERTIES {t} ('a')"),
        ),
        Case(
            CREATION,
            "REPLACE TABLE {t} USING iceberg AS SELECT id * 2 AS id, 'new' AS word FROM range(3)",
            PLAIN,
            ("SELECT * FROM {t}", "SELECT operation FROM {t}.snapshots"),
        ),
        Case(
            CREATION,
            "CREATE OR REPLACE TABLE {t} USING iceberg PARTITIONED BY (id) "
            "AS SELECT id FROM range(3)",
            PLAIN,
            ("SELECT * FROM {t}", SPEC),
        ),
        Case(CREATION, "REPLACE TABLE {t} (other INT) USING iceberg", PLAIN),
        Case(CREATION, "CREATE TABLE {t} LIKE {s}", [one.replace("{t}", "{s}") for one in PLAIN]),
    ]


def _existing() -> list[Case]:
    return [
        Case(CREATION, "DROP TABLE {t}", PLAIN, ("SHOW TABLES IN {n}",)),
        Case(CREATION, "DROP TABLE {t} PURGE", PLAIN, ("SHOW TABLES IN {n}",)),
        Case(CREATION, "DROP TABLE IF EXISTS {t}", then=("SHOW TABLES IN {n}",)),
        Case(
            CREATION,
            "ALTER TABLE {t} RENAME TO {namespace}.renamed",
            PLAIN,
            ("SELECT * FROM {n}.renamed",),
        ),
        Case(CREATION, "SHOW TABLES IN {n}", PLAIN),
        Case(CREATION, "SHOW COLUMNS IN {t}", PLAIN),
        Case(CREATION, "DESCRIBE {t}", EVENTS),
        Case(CREATION, "DESCRIBE TABLE EXTENDED {t}", EVENTS, columns_only=True),
        Case(CREATION, "SHOW CREATE TABLE {t}", EVENTS, columns_only=True),
        Case(
            CREATION,
            "ALTER TABLE {t} SET TBLPROPERTIES ('read.split.target-size' = '268435456')",
            PLAIN,
            ("SHOW TBLPROPERTIES {t} ('read.split.target-size')",),
        ),
        Case(
            CREATION,
            "ALTER TABLE {t} UNSET TBLPROPERTIES ('x')",
            [*PLAIN, "ALTER TABLE {t} SET TBLPROPERTIES ('x' = '1')"],
            ("SHOW TBLPROPERTIES {t} ('x')",),
        ),
        Case(CREATION, "COMMENT ON TABLE {t} IS 'about people'", PLAIN,
             ("SHOW TBLPROPERTIES {t} ('comment')",)),
        Case(CREATION, "TRUNCATE TABLE {t}", PLAIN),
        Case(CREATION, "ANALYZE TABLE {t} COMPUTE STATISTICS", PLAIN),
    ]  # fmt: skip


def _namespaces() -> list[Case]:
    made = "CREATE NAMESPACE {n}_x COMMENT 'one' WITH DBPROPERTIES ('owner-team' = 'a')"
    described = "DESCRIBE NAMESPACE EXTENDED {n}_x"
    return [
        Case(NAMESPACES, made, then=("SHOW NAMESPACES IN lake LIKE '*_x'",)),
        Case(NAMESPACES, "ALTER NAMESPACE {n}_x SET DBPROPERTIES ('owner-team' = 'b')", [made],
             ()),
        Case(NAMESPACES, "DESCRIBE NAMESPACE {n}_x", [made], (), columns_only=True),
        Case(NAMESPACES, "DROP NAMESPACE {n}_x", [made], (described,)),
        Case(NAMESPACES, "DROP NAMESPACE {n}", PLAIN),
        Case(NAMESPACES, "CREATE NAMESPACE {n}.inner", (), ("SHOW NAMESPACES IN {n}",)),
    ]  # fmt: skip


def _evolution() -> list[Case]:
    def plain(change: str, *then: str) -> Case:
        return Case(EVOLUTION, f"ALTER TABLE {{t}} {change}", PLAIN, then or (ROWS, "DESCRIBE {t}"))

    def nested(change: str, *then: str) -> Case:
        return Case(
            EVOLUTION, f"ALTER TABLE {{t}} {change}", NESTED, then or (ROWS, "DESCRIBE {t}")
        )

    ROWS = "SELECT * FROM {t}"  # noqa: N806
    return [
        plain("ADD COLUMN n INT"),
        plain("ADD COLUMNS (n INT COMMENT 'new', at DATE)"),
        plain("ADD COLUMN n INT FIRST"),
        plain("ADD COLUMN n INT AFTER id"),
        plain("ADD COLUMN n INT NOT NULL"),
        plain("ADD COLUMN place STRUCT<lat: DOUBLE, lon: DOUBLE>"),
        nested("ADD COLUMN place.lon FLOAT"),
        nested("ADD COLUMN place.lon FLOAT AFTER lat"),
        nested("ADD COLUMN points.element.z INT"),
        nested("ADD COLUMN tags.value.v INT"),
        nested("ADD COLUMN tags.key.v INT"),
        plain("RENAME COLUMN name TO title"),
        nested("RENAME COLUMN place.lat TO latitude"),
        nested("RENAME COLUMN points.element.x TO abscissa"),
        Case(
            EVOLUTION,
            "ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",
            EVENTS,
            ("SELECT * FROM {t}", "DESCRIBE {t}"),
        ),
        nested("ALTER COLUMN place.lat TYPE DOUBLE"),
        plain("ALTER COLUMN amount TYPE DECIMAL(12, 2)"),
        plain("ALTER COLUMN id TYPE INT"),
        plain("ALTER COLUMN amount TYPE DECIMAL(12, 3)"),
        plain("ALTER COLUMN name COMMENT 'what it is called'"),
        plain("ALTER COLUMN amount FIRST"),
        plain("ALTER COLUMN id AFTER name"),
        plain("ALTER COLUMN name SET NOT NULL"),
        Case(
            EVOLUTION,
            "ALTER TABLE {t} ALTER COLUMN id DROP NOT NULL",
            ("CREATE TABLE {t} (id BIGINT NOT NULL) USING iceberg",),
            ("INSERT INTO {t} VALUES (NULL)", "SELECT * FROM {t}"),
        ),
        plain("DROP COLUMN name"),
        nested("DROP COLUMN place.lat"),
        nested("DROP COLUMN points.element.y"),
        Case(
            EVOLUTION,
            "ALTER TABLE {t} ADD COLUMN name STRING",
            [*PLAIN, "ALTER TABLE {t} DROP COLUMN name"],
        ),
        plain("REPLACE COLUMNS (id BIGINT, other STRING)"),
        Case(EVOLUTION, "ALTER TABLE {t} DROP COLUMN ts", EVENTS),
        Case(EVOLUTION, "ALTER TABLE {t} SET IDENTIFIER FIELDS id",
             ("CREATE TABLE {t} (id BIGINT NOT NULL) USING iceberg",)),
        Case(EVOLUTION, "ALTER TABLE {t} DROP IDENTIFIER FIELDS id",
             ("CREATE TABLE {t} (id BIGINT NOT NULL) USING iceberg",
              "ALTER TABLE {t} SET IDENTIFIER FIELDS id")),
    ]  # fmt: skip


def _partitions() -> list[Case]:
    added = (
        "INSERT INTO {t} VALUES (200, TIMESTAMP '2026-03-09 13:00:00', 'k9', 2)",
        "SELECT * FROM {t}",
        "SELECT partition, spec_id, record_count FROM {t}.partitions",
    )
    changes = (
        "ADD PARTITION FIELD truncate(kind, 1)",
        "ADD PARTITION FIELD bucket(8, kind) AS by_kind",
        "DROP PARTITION FIELD days(ts)",
        "DROP PARTITION FIELD id_bucket",
        "REPLACE PARTITION FIELD days(ts) WITH hours(ts)",
        "WRITE ORDERED BY kind DESC NULLS LAST, id",
        "WRITE LOCALLY ORDERED BY id",
        "WRITE DISTRIBUTED BY PARTITION",
        "WRITE UNORDERED",
    )
    return [Case(PARTITIONS, f"ALTER TABLE {{t}} {change}", EVENTS, added) for change in changes]


CASES = [*_created(), *_filled(), *_existing(), *_namespaces(), *_evolution(), *_partitions()]
