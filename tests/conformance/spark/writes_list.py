"""Statements that write: INSERT, writeTo, MERGE, UPDATE, DELETE, procedures, views."""

from __future__ import annotations

from tests.conformance.spark.case import EVENTS, ON_READ, ON_READ_V3, ON_WRITE, PLAIN, Case

INSERT = "INSERT and writeTo"
ROWS = "MERGE, UPDATE, DELETE"
PROCEDURES = "Procedures"
VIEWS = "Views"
WAP = ("ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')",)


def _insert() -> list[Case]:
    def plain(statement: str, *then: str) -> Case:
        return Case(INSERT, statement, PLAIN, then or ("SELECT * FROM {t}",))

    by_name = (
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (name)",
        "INSERT INTO {t} VALUES (1, 'a'), (2, 'b')",
    )
    other = "spark.sql(\"SELECT 9L AS id, 'z' AS name, CAST(9 AS DECIMAL(9, 2)) AS amount\")"
    wider = "spark.sql(\"SELECT 9L AS id, 'z' AS name, 1 AS extra\")"
    accepts = "ALTER TABLE {t} SET TBLPROPERTIES ('write.spark.accept-any-schema' = 'true')"
    return [
        plain("INSERT INTO {t} VALUES (9, 'z', 9.99)"),
        plain("INSERT INTO {t} (name, id) VALUES ('z', 9)"),
        plain("INSERT INTO {t} BY NAME SELECT 'z' AS name, 9L AS id"),
        plain("INSERT INTO {t} SELECT id + 10, upper(name), amount FROM {t}"),
        plain("INSERT INTO {t} VALUES ('x', 'z', 9.99)"),
        plain("INSERT INTO {t} VALUES (9, 'z', 12345678.999)"),
        plain("INSERT OVERWRITE {t} VALUES (9, 'z', 9.99)"),
        Case(INSERT, "INSERT OVERWRITE {t} VALUES (9, 'a')",
             [*by_name, "SET spark.sql.sources.partitionOverwriteMode = dynamic"]),
        Case(INSERT, "INSERT OVERWRITE {t} VALUES (9, 'a')",
             [*by_name, "SET spark.sql.sources.partitionOverwriteMode = static"]),
        Case(INSERT, "INSERT OVERWRITE {t} PARTITION (name = 'a') SELECT 9L", by_name),
        Case(INSERT, "INSERT INTO {t} REPLACE WHERE name = 'b' SELECT 9L, 'b'", by_name),
        plain("INSERT INTO {t} REPLACE WHERE id = 2 SELECT 9L, 'z', 9.99"),
        plain(f"{other}.writeTo('{{t}}').append()"),
        plain(f"{other}.writeTo('{{t}}').overwritePartitions()"),
        Case(INSERT, "spark.sql(\"SELECT 9L AS id, 'b' AS name\").writeTo('{t}')"
             ".overwrite(F.col('name') == 'b')", by_name),
        Case(INSERT, f"{other}.writeTo('{{t}}').using('iceberg')"
             ".partitionedBy(F.partitioning.bucket(4, 'id')).tableProperty('a', 'b').create()",
             (), ("SELECT * FROM {t}", "SHOW TBLPROPERTIES {t} ('a')")),
        plain(f"{other}.writeTo('{{t}}').using('iceberg').createOrReplace()"),
        plain(f"{other}.writeTo('{{t}}').using('iceberg').replace()"),
        plain(f"{other}.write.mode('append').saveAsTable('{{t}}')"),
        plain(f"{other}.write.insertInto('{{t}}')"),
        plain(f"{other}.write.format('iceberg').mode('append').save('{{t}}')"),
        Case(INSERT, f"{wider}.writeTo('{{t}}').option('mergeSchema', 'true').append()",
             [*PLAIN, accepts]),
        plain(f"{wider}.writeTo('{{t}}').append()"),
        plain(f"{other}.writeTo('{{t}}').option('snapshot-property.run', '7').append()",
              "SELECT summary['run'] FROM {t}.snapshots"),
        Case(INSERT, "INSERT INTO {t} VALUES (9, 'z', 9)",
             [*PLAIN, "ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')",
              "SET spark.wap.branch = audit"], ("SELECT * FROM {t}",)),
        Case(INSERT, "INSERT INTO {t} VALUES (9, 'z', 9)",
             [*PLAIN, "ALTER TABLE {t} SET TBLPROPERTIES ('write.wap.enabled' = 'true')",
              "SET spark.wap.id = run7"], ("SELECT * FROM {t}",
              "SELECT summary['wap.id'] FROM {t}.snapshots")),
        Case(INSERT, "INSERT INTO {t} SELECT id, concat('n', id % 3) FROM range(100)",
             [*by_name, "ALTER TABLE {t} SET TBLPROPERTIES ('write.distribution-mode' = 'hash')"],
             ("SELECT * FROM {t}", "SELECT partition, file_count FROM {t}.partitions")),
    ]  # fmt: skip


def _row_level() -> list[Case]:
    merge = "MERGE INTO {t} t USING {s} s ON t.id = s.id"
    statements = [
        f"{merge} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        f"{merge} WHEN MATCHED AND s.n > 20 THEN DELETE WHEN MATCHED THEN UPDATE SET n = s.n "
        "WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT (id, n) VALUES (s.id, s.n)",
        f"{merge} WHEN NOT MATCHED BY SOURCE AND t.n > 4 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'gone'",
        "UPDATE {t} SET name = concat(name, '!'), n = n + 1 WHERE n > 1",
        "UPDATE {t} SET n = 0 WHERE id IN (SELECT id FROM {s})",
        "DELETE FROM {t} WHERE n IS NULL OR name = 'c'",
        "DELETE FROM {t} t WHERE EXISTS (SELECT 1 FROM {s} s WHERE s.id = t.id)",
        "DELETE FROM {t} WHERE id NOT IN (SELECT id FROM {s} WHERE id IS NOT NULL)",
    ]
    on_write = [Case(ROWS, statement, ON_WRITE) for statement in statements]
    on_read = [Case(ROWS, f"{statement} -- merge-on-read", ON_READ) for statement in statements]
    version_3 = [
        Case(ROWS, f"{statement} -- merge-on-read, v3", ON_READ_V3)
        for statement in statements[:5:2]
    ]
    return [
        *on_write,
        *on_read,
        *version_3,
        Case(ROWS, "DELETE FROM {t} WHERE ts >= TIMESTAMP '2026-03-03 00:00:00'", EVENTS,
             ("SELECT * FROM {t}", "SELECT operation, summary['deleted-data-files'] "
              "FROM {t}.snapshots")),
        Case(ROWS, "DELETE FROM {t}", EVENTS),
        Case(ROWS, f"{merge} WHEN MATCHED THEN UPDATE SET n = s.n",
             [*ON_WRITE, "INSERT INTO {s} VALUES (1, 'again', 11)"]),
        Case(ROWS, f"{merge} WHEN MATCHED THEN DELETE",
             [*ON_WRITE, "INSERT INTO {s} VALUES (1, 'again', 11)"]),
        Case(ROWS, f"{merge} WHEN NOT MATCHED BY SOURCE THEN DELETE",
             [*ON_WRITE, "INSERT INTO {s} VALUES (1, 'again', 11)"]),
        Case(ROWS, "MERGE WITH SCHEMA EVOLUTION INTO {t} t USING (SELECT 1L AS id, 'x' AS extra) "
             "s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
             ON_WRITE),
        Case(ROWS, "spark.table('{s}').mergeInto('{t}', F.expr('{t}.id = {s}.id'))"
             ".whenMatched().updateAll().whenNotMatched().insertAll().merge()", ON_WRITE),
    ]  # fmt: skip


def _procedures() -> list[Case]:
    def call(text: str, before: object = PLAIN, *then: str) -> Case:
        return Case(PROCEDURES, f"CALL lake.system.{text}", before,
                    then or ("SELECT * FROM {t}",), columns_only=True)  # fmt: skip

    deleted = (*ON_READ, "DELETE FROM {t} WHERE id = 1")
    parquet = (
        "CREATE TABLE {t} (id BIGINT, name STRING) USING iceberg",
        "spark.sql(\"SELECT 1L AS id, 'a' AS name\").write.mode('overwrite')"
        ".parquet('{folder}/parquet')",
    )
    files = "SELECT count(*) FROM {t}.files"
    return [
        call("rollback_to_snapshot(table => '{name}', snapshot_id => {v1})"),
        call("rollback_to_snapshot('{name}', {v1})"),
        call("rollback_to_timestamp(table => '{name}', timestamp => TIMESTAMP '{ts2}')"),
        call("set_current_snapshot(table => '{name}', snapshot_id => {v1})"),
        call("set_current_snapshot(table => '{name}', ref => 'main')"),
        call("cherrypick_snapshot(table => '{name}', snapshot_id => {v2})",
             (*PLAIN, "CALL lake.system.rollback_to_snapshot('{name}', {v1})")),
        call("publish_changes(table => '{name}', wap_id => 'run7')",
             (*PLAIN, *WAP, "SET spark.wap.id = run7", "INSERT INTO {t} VALUES (9, 'z', 9)",
              "RESET spark.wap.id")),
        call("cherrypick_snapshot(table => '{name}', snapshot_id => {v3})",
             (*PLAIN, *WAP, "SET spark.wap.id = run8", "DELETE FROM {t} WHERE id < 3",
              "RESET spark.wap.id")),
        Case(PROCEDURES, "SELECT * FROM {t}",
             (*PLAIN, *WAP, "SET spark.wap.branch = audit", "INSERT INTO {t} VALUES (9, 'z', 9)",
              "UPDATE {t} SET name = 'u' WHERE id = 1"),
             ("SELECT * FROM {t}.branch_audit", "SELECT * FROM {t}.branch_main")),
        call("fast_forward(table => '{name}', branch => 'main', to => 'main')"),
        call("expire_snapshots(table => '{name}', older_than => TIMESTAMP '{ts2}', "
             "retain_last => 1)", PLAIN, "SELECT * FROM {t}",
             "SELECT count(*) FROM {t}.snapshots"),
        call("remove_orphan_files(table => '{name}', dry_run => true)"),
        call("rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
             PLAIN, "SELECT * FROM {t}", files),
        call("rewrite_data_files(table => '{name}', strategy => 'sort', "
             "sort_order => 'id DESC NULLS LAST', options => map('rewrite-all', 'true'))",
             PLAIN, "SELECT * FROM {t}", files),
        call("rewrite_data_files(table => '{name}', strategy => 'sort', "
             "sort_order => 'zorder(id, name)', options => map('rewrite-all', 'true'))",
             PLAIN, "SELECT * FROM {t}", files),
        call("rewrite_data_files(table => '{name}', where => 'id = 3 and kind = \"k0\"')",
             EVENTS),
        call("rewrite_manifests('{name}')", EVENTS, "SELECT * FROM {t}"),
        call("rewrite_position_delete_files('{name}')", deleted),
        call("rewrite_position_delete_files(table => '{name}', options => "
             "map('rewrite-all', 'true'))", deleted),
        call("ancestors_of('{name}')"),
        call("create_changelog_view(table => '{name}', changelog_view => 'seen_changes')",
             (*PLAIN, "DELETE FROM {t} WHERE id = 4"),
             "SELECT id, name, amount, _change_type FROM seen_changes"),
        call("create_changelog_view(table => '{name}', changelog_view => 'net', "
             "net_changes => true)", (*PLAIN, "DELETE FROM {t} WHERE id = 4"),
             "SELECT id, name, amount, _change_type FROM net"),
        call("add_files(table => '{name}', source_table => '`parquet`.`{folder}/parquet`')",
             parquet),
        call("register_table(table => '{namespace}.again', metadata_file => '{metadata}')",
             PLAIN, "SELECT * FROM {n}.again"),
        call("compute_table_stats(table => '{name}', columns => array('id', 'name'))"),
        call("compute_partition_stats(table => '{name}')", EVENTS),
        call("rewrite_table_path(table => '{name}', source_prefix => 'file://{home}/warehouse', "
             "target_prefix => 'file:/b')"),
        call("snapshot(source_table => 'spark_catalog.default.old_{number}', table => '{name}')",
             ("spark.range(3).write.mode('overwrite').saveAsTable("
              "'spark_catalog.default.old_{number}')",)),
    ]  # fmt: skip


def _views() -> list[Case]:
    view = "CREATE VIEW {n}.paid (id, total COMMENT 'sum') AS SELECT id, amount * 2 FROM {t}"
    rows = "SELECT * FROM {n}.paid"
    return [
        Case(VIEWS, view, PLAIN, (rows,)),
        Case(VIEWS, "CREATE OR REPLACE VIEW {n}.paid AS SELECT id FROM {t}", [*PLAIN, view],
             (rows,)),
        Case(VIEWS, "ALTER VIEW {n}.paid SET TBLPROPERTIES ('a' = 'b')", [*PLAIN, view],
             ("SHOW TBLPROPERTIES {n}.paid ('a')",)),
        Case(VIEWS, "SHOW VIEWS IN {n}", [*PLAIN, view], ()),
        Case(VIEWS, "DROP VIEW {n}.paid", [*PLAIN, view], ("SHOW VIEWS IN {n}",)),
    ]  # fmt: skip


CASES = [*_insert(), *_row_level(), *_procedures(), *_views()]
