"""Statements that read: hidden partitioning, time travel, branches and tags, metadata tables."""

from __future__ import annotations

from tests.conformance.spark.case import EVENTS, NESTED, ON_READ, PLAIN, Case

HIDDEN = "Reading, hidden partitioning"
TRAVEL = "Time travel"
REFS = "Branches and tags"
METADATA = "Metadata tables"
FUNCTIONS = "Functions"


def _hidden() -> list[Case]:
    def events(query: str) -> Case:
        return Case(HIDDEN, query, EVENTS, ())

    counted = "SELECT count(*), min(id), max(id), count(DISTINCT _file) FROM {t}"
    return [
        events(f"{counted} WHERE ts >= TIMESTAMP '2026-03-04 00:00:00'"),
        events(f"{counted} WHERE ts < TIMESTAMP '2026-03-02 00:00:00' AND id = 5"),
        events(f"{counted} WHERE date(ts) = DATE '2026-03-01'"),
        events(f"{counted} WHERE id IN (1, 2, 100) AND kind IS NULL"),
        events("SELECT count(*), count(n), min(n), max(ts) FROM {t}"),
        events("SELECT id, kind FROM {t} WHERE kind LIKE 'k1%' ORDER BY id LIMIT 5"),
        events("SELECT t.id FROM {t} t JOIN {t} u ON t.id = u.id + 1 WHERE u.n = 3"),
        Case(HIDDEN, "SELECT place.lat, points[0].x, tags['k'].w FROM {t} WHERE place.lat > 1",
             NESTED, ()),
        events("SELECT id, _spec_id, _partition, _pos >= 0 FROM {t} WHERE id > 60"),
        Case(HIDDEN, "SELECT id, _deleted FROM {t}", [*ON_READ, "DELETE FROM {t} WHERE id = 1"],
             ()),
        Case(HIDDEN, "SELECT id FROM {t}", [*ON_READ, "DELETE FROM {t} WHERE id = 1"], ()),
        Case(HIDDEN, "spark.table('{t}').where('id = 3').select('id', 'kind')", EVENTS, ()),
        Case(HIDDEN, "spark.read.format('iceberg').load('{t}').groupBy('kind').count()", EVENTS,
             ()),
    ]  # fmt: skip


def _travel() -> list[Case]:
    tagged = (*PLAIN, "CALL lake.system.set_current_snapshot(table => '{name}', "
              "snapshot_id => {v1})")  # fmt: skip

    def plain(query: str) -> Case:
        return Case(TRAVEL, query, PLAIN, ())

    return [
        plain("SELECT * FROM {t} VERSION AS OF {v1}"),
        plain("SELECT * FROM {t} FOR SYSTEM_VERSION AS OF {v1}"),
        plain("SELECT * FROM {t} TIMESTAMP AS OF '{ts1}'"),
        plain("SELECT * FROM {t} FOR SYSTEM_TIME AS OF '{ts2}'"),
        plain("SELECT * FROM {t} TIMESTAMP AS OF '2001-01-01'"),
        plain("SELECT * FROM {t} VERSION AS OF 12345"),
        plain("SELECT * FROM {t}.snapshot_id_{v1}"),
        plain("SELECT * FROM {t}.at_timestamp_{ms1}"),
        plain("SELECT * FROM {t} VERSION AS OF 'main'"),
        plain("spark.read.option('snapshot-id', '{v1}').table('{t}')"),
        plain("spark.read.option('as-of-timestamp', '{ms1}').table('{t}')"),
        plain("spark.read.option('branch', 'main').table('{t}')"),
        plain("spark.read.option('versionAsOf', '{v1}').table('{t}')"),
        plain("spark.read.option('timestampAsOf', '{ts1}').table('{t}')"),
        plain("spark.read.option('start-snapshot-id', '{v1}')"
              ".option('end-snapshot-id', '{v2}').format('iceberg').load('{t}')"),
        Case(TRAVEL, "SELECT * FROM {t}", tagged, ()),
        Case(TRAVEL, "SELECT name FROM {t} VERSION AS OF {v1}",
             [*PLAIN, "ALTER TABLE {t} RENAME COLUMN name TO title"], ()),
    ]  # fmt: skip


def _refs() -> list[Case]:
    def plain(statement: str, *then: str, before: tuple[str, ...] = ()) -> Case:
        refs = "SELECT name, type, max_reference_age_in_ms, min_snapshots_to_keep FROM {t}.refs"
        return Case(REFS, statement, [*PLAIN, *before], then or (refs,))

    branch = "ALTER TABLE {t} CREATE BRANCH audit"
    here = "SELECT * FROM {t}.branch_audit"
    return [
        plain(branch),
        plain("ALTER TABLE {t} CREATE BRANCH audit AS OF VERSION {v1} RETAIN 7 DAYS"),
        plain("ALTER TABLE {t} CREATE OR REPLACE BRANCH audit AS OF VERSION {v1}",
              before=(branch,)),
        plain("ALTER TABLE {t} DROP BRANCH audit", before=(branch,)),
        plain("ALTER TABLE {t} CREATE TAG first AS OF VERSION {v1} RETAIN 365 DAYS"),
        plain("ALTER TABLE {t} DROP TAG first",
              before=("ALTER TABLE {t} CREATE TAG first AS OF VERSION {v1}",)),
        plain("SELECT * FROM {t} VERSION AS OF 'first'",
              before=("ALTER TABLE {t} CREATE TAG first AS OF VERSION {v1}",)),
        plain("SELECT * FROM {t}.tag_first",
              before=("ALTER TABLE {t} CREATE TAG first AS OF VERSION {v1}",)),
        plain("INSERT INTO {t}.branch_audit VALUES (9, 'z', 9)", here, "SELECT * FROM {t}",
              before=(branch,)),
        plain("DELETE FROM {t}.branch_audit WHERE id < 3", here, "SELECT * FROM {t}",
              before=(branch,)),
        plain("UPDATE {t}.branch_audit SET name = 'u' WHERE id = 2", here, "SELECT * FROM {t}",
              before=(branch,)),
        plain("spark.table('{t}').limit(1).writeTo('{t}.branch_audit').append()",
              "SELECT count(*) FROM {t}.branch_audit", before=(branch,)),
    ]  # fmt: skip


def _metadata() -> list[Case]:
    asked = {
        "snapshots": "operation, parent_id IS NULL, summary['added-records'], "
        "summary['total-records'], summary['total-data-files']",
        "history": "is_current_ancestor, parent_id IS NULL",
        "metadata_log_entries": "latest_sequence_number, latest_schema_id",
        "files": "content, file_format, spec_id, partition, record_count, value_counts, "
        "null_value_counts, lower_bounds, upper_bounds, readable_metrics",
        "data_files": "content, partition, record_count",
        "delete_files": "content, partition, record_count",
        "manifests": "content, added_data_files_count, existing_data_files_count, "
        "deleted_data_files_count, partition_summaries",
        "partitions": "partition, spec_id, record_count, file_count, "
        "position_delete_record_count, equality_delete_record_count",
        "entries": "status, sequence_number, file_sequence_number, data_file.record_count",
        "refs": "name, type",
        "all_data_files": "content, partition, record_count",
        "all_files": "content, partition, record_count",
        "all_delete_files": "content, record_count",
        "all_manifests": "content, added_data_files_count",
        "all_entries": "status, sequence_number",
        "position_deletes": "pos, spec_id, partition",
    }
    deleted = (*EVENTS, "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = "
               "'merge-on-read')", "DELETE FROM {t} WHERE id = 7")  # fmt: skip
    return [
        *(
            Case(METADATA, f"SELECT * FROM {{t}}.{name}", deleted,
                 (f"SELECT {columns} FROM {{t}}.{name}",), columns_only=True)
            for name, columns in asked.items()
        ),
        Case(METADATA, "SELECT count(*) FROM {t}.files VERSION AS OF {v1}", EVENTS, ()),
        Case(METADATA, "spark.read.format('iceberg').load('{t}.files').select('record_count')",
             EVENTS, ()),
    ]  # fmt: skip


def _functions() -> list[Case]:
    def one(text: str) -> Case:
        return Case(FUNCTIONS, f"SELECT {text}", (), ())

    return [
        one("lake.system.bucket(16, 34L), lake.system.bucket(16, 'iceberg'), "
            "lake.system.bucket(16, DATE '2017-11-16'), lake.system.bucket(16, 14.20BD)"),
        one("lake.system.truncate(10, -1), lake.system.truncate(3, 'iceberg'), "
            "lake.system.truncate(50, 10.65BD)"),
        one("lake.system.years(DATE '1969-01-01'), lake.system.years(TIMESTAMP '2026-03-01')"),
        one("lake.system.months(DATE '2026-03-01'), lake.system.months(TIMESTAMP '1969-01-01')"),
        one("lake.system.days(DATE '2026-03-01'), "
            "lake.system.days(TIMESTAMP '1969-12-31 23:00:00')"),
        one("lake.system.hours(TIMESTAMP '2026-03-01 10:00:00')"),
        one("lake.system.bucket(16, CAST(NULL AS INT)), lake.system.truncate(2, "
            "CAST(NULL AS STRING))"),
        one("lake.system.bucket(4, true)"),
        Case(FUNCTIONS, "SELECT count(*) FROM {t} WHERE lake.system.bucket(4, id) = 1", EVENTS, ()),
        Case(FUNCTIONS, "SELECT lake.system.iceberg_version()", (), (), columns_only=True),
    ]  # fmt: skip


CASES = [*_hidden(), *_travel(), *_refs(), *_metadata(), *_functions()]
