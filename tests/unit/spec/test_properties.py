import inspect
import re

import pytest

from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.table_properties import (
    HONOURED_ELSEWHERE,
    KEPT_FOR_OTHERS,
    REFUSED,
    TableProperties,
    all_properties,
    without_effect,
)


def test_defaults_and_set_values():
    assert TableProperties({}).target_file_size_bytes == 512 * 1024 * 1024
    assert TableProperties({"write.target-file-size-bytes": " 7 "}).target_file_size_bytes == 7
    assert TableProperties({"gc.enabled": "FALSE"}).gc_enabled is False
    assert TableProperties({"write.distribution-mode": "RANGE"}).distribution_mode == "range"
    assert TableProperties.gc_enabled.name == "gc.enabled"


def test_every_property_has_one_name_and_a_meaning():
    names = [known.name for known in all_properties()]
    assert len(names) == len(set(names)) > 40
    assert all(known.meaning.endswith(".") for known in all_properties())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "1e6"),
        ("write.target-file-size-bytes", "9" * 30),
        ("commit.retry.num-retries", "-1"),
        ("gc.enabled", "yes"),
        ("write.delete.mode", "quickly"),
        ("write.delete.isolation-level", "none"),
        ("write.parquet.compression-codec", "zip"),
        ("write.metadata.metrics.default", "truncate(0)"),
        ("write.format.default", "orc"),
        ("lakehouse.maintenance.delete-ratio", "2"),
        ("lakehouse.maintenance.delete-ratio", "nan"),
    ],
)
def test_unusable_values_name_the_property(name, value):
    with pytest.raises(InvalidPropertyError, match=name):
        TableProperties({name: value}).validate()


def test_metrics_modes_by_column():
    properties = TableProperties(
        {
            "write.metadata.metrics.column.a.b": "Truncate( 4 )",
            "write.metadata.metrics.default": "counts",
        }
    )
    assert properties.metrics_mode("a.b") == "truncate(4)"
    assert properties.metrics_mode("c") == "counts"
    with pytest.raises(InvalidPropertyError, match=r"column\.x"):
        TableProperties({"write.metadata.metrics.column.x": "all"}).metrics_mode("x")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, "s3://b/t/data"),
        ("files", "s3://b/t/files"),
        ("files/", "s3://b/t/files"),
        ("/abs/files", "file:///abs/files"),
        ("s3://other/x/", "s3://other/x"),
    ],
)
def test_data_location_is_joined_or_absolute(path, expected):
    raw = {} if path is None else {"write.data.path": path}
    assert TableProperties(raw).data_location("s3://b/t") == expected
    assert TableProperties({}).metadata_location("s3://b/t/") == "s3://b/t/metadata"


ICEBERG = re.findall(
    r"\S+",
    """
commit.manifest-merge.enabled commit.manifest.min-count-to-merge commit.manifest.target-size-bytes
commit.retry.max-wait-ms commit.retry.min-wait-ms commit.retry.num-retries
commit.retry.total-timeout-ms commit.status-check.max-wait-ms commit.status-check.min-wait-ms
commit.status-check.num-retries commit.status-check.total-timeout-ms
compatibility.snapshot-id-inheritance.enabled current-schema current-snapshot-id
current-snapshot-summary current-snapshot-timestamp-ms default-partition-spec default-sort-order
encryption.data-key-length encryption.key-id engine.hive.enabled engine.hive.lock-enabled
format-version gc.enabled history.expire.max-ref-age-ms history.expire.max-snapshot-age-ms
history.expire.min-snapshots-to-keep identifier-fields.rely read.data-planning-mode
read.delete-planning-mode read.orc.vectorization.batch-size read.orc.vectorization.enabled
read.parquet.vectorization.batch-size read.parquet.vectorization.enabled
read.split.adaptive-size.enabled read.split.metadata-target-size read.split.open-file-cost
read.split.planning-lookback read.split.target-size schema.name-mapping.default snapshot-count uuid
write.avro.compression-codec write.avro.compression-level write.data.path
write.delete.avro.compression-codec write.delete.avro.compression-level
write.delete.distribution-mode write.delete.format.default write.delete.granularity
write.delete.isolation-level write.delete.mode write.delete.orc.block-size-bytes
write.delete.orc.compression-codec write.delete.orc.compression-strategy
write.delete.orc.stripe-size-bytes write.delete.orc.vectorized.batch-size
write.delete.parquet.compression-codec write.delete.parquet.compression-level
write.delete.parquet.dict-size-bytes write.delete.parquet.page-row-limit
write.delete.parquet.page-size-bytes write.delete.parquet.page-version
write.delete.parquet.row-group-check-max-record-count
write.delete.parquet.row-group-check-min-record-count write.delete.parquet.row-group-size-bytes
write.delete.target-file-size-bytes write.distribution-mode write.folder-storage.path
write.format.default write.location-provider.impl write.manifest.compression-codec
write.manifest.compression-level write.merge.distribution-mode write.merge.isolation-level
write.merge.mode write.metadata.compression-codec write.metadata.delete-after-commit.enabled
write.metadata.metrics.column.x write.metadata.metrics.default
write.metadata.metrics.max-inferred-column-defaults write.metadata.path
write.metadata.previous-versions-max write.object-storage.enabled
write.object-storage.partitioned-paths write.object-storage.path write.orc.block-size-bytes
write.orc.bloom.filter.columns write.orc.bloom.filter.fpp write.orc.compression-codec
write.orc.compression-strategy write.orc.stripe-size-bytes write.orc.vectorized.batch-size
write.parquet.bloom-filter-adaptive-enabled write.parquet.bloom-filter-enabled.column.x
write.parquet.bloom-filter-fpp.column.x write.parquet.bloom-filter-max-bytes
write.parquet.bloom-filter-ndv.column.x write.parquet.compression-codec
write.parquet.compression-level write.parquet.dict-encoding-enabled.column.x
write.parquet.dict-size-bytes write.parquet.page-row-limit write.parquet.page-size-bytes
write.parquet.page-version write.parquet.row-group-check-max-record-count
write.parquet.row-group-check-min-record-count write.parquet.row-group-size-bytes
write.parquet.row-group-size-track-uncompressed write.parquet.shred-variants
write.parquet.stats-enabled.column.x write.parquet.variant-inference-buffer-size
write.spark.accept-any-schema write.spark.advisory-partition-size-bytes
write.spark.auto-schema-evolution.enabled write.spark.fanout.enabled write.summary.partition-limit
write.target-file-size-bytes write.update.distribution-mode write.update.isolation-level
write.update.mode write.upsert.enabled write.wap.enabled
""",
)
"""The properties of Iceberg 1.12's Java (`TableProperties`), a column where one is named."""


@pytest.mark.parametrize("name", ICEBERG)
def test_every_property_of_iceberg_has_its_place(name):
    told = without_effect({name: "x"})
    honoured = {known.name for known in all_properties()} | HONOURED_ELSEWHERE.keys()
    if name.removesuffix("x") in honoured or name in honoured or name in REFUSED:
        assert told == []
    else:
        assert len(told) == 1
        assert told[0].startswith(f"{name} is kept for other engines")


def test_each_property_is_in_one_list():
    lists = [{one.name for one in all_properties()}, HONOURED_ELSEWHERE, REFUSED, KEPT_FOR_OTHERS]
    names = [name for one in lists for name in one]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("nonsense", None),
        ("owner-team", None),
        ("write.target-file-size-byte", "write.target-file-size-bytes"),
        ("WRITE.DELETE.MODE", "write.delete.mode"),
        ("lakehouse.maintenance.small-files-bytes", "lakehouse.maintenance.small-file-bytes"),
        ("write.metadata.metrics.colum.x", "write.metadata.metrics.column."),
    ],
)
def test_what_nobody_knows_is_told_with_the_nearest_name(name, near):
    [told] = without_effect({name: "x"})
    assert told.startswith(f"{name} is kept, and nothing here knows it")
    assert ("is it" in told) is (near is not None)
    assert near is None or f"is it {near}?" in told


def test_the_page_lists_what_the_code_goes_by():
    from docs.list_properties import PAGE, page

    text = PAGE.read_text()
    assert page(text) == text, "python docs/list_properties.py"


WRITE_OPTIONS = (
    *("write-format", "target-file-size-bytes", "check-nullability", "snapshot-property.<...>"),
    *("fanout-enabled", "check-ordering", "isolation-level", "validate-from-snapshot-id"),
    *("compression-codec", "compression-level", "compression-strategy", "distribution-mode"),
    *("delete-granularity", "shred-variants", "variant-inference-buffer-size", "branch"),
    *("use-merge-append-for-streaming", "overwrite-mode", "output-spec-id"),
    "use-table-distribution-and-ordering",
)


def test_the_page_says_of_every_option_of_a_write_what_becomes_of_it():
    """Iceberg's documentation lists these; the code knows those that are said to be honoured."""
    from docs.list_properties import PAGE
    from lakehouse.spark.writing import write_options

    table = PAGE.read_text().partition("<!-- write options -->")[2]
    table = table.partition("<!-- end of write options -->")[0]
    said = dict(re.findall(r"^\| `([^`]+)` \| (\w+) \|", table, re.MULTILINE))
    assert sorted(said) == sorted(WRITE_OPTIONS)
    code = inspect.getsource(write_options)
    for name, state in said.items():
        assert state in ("honoured", "refused", "meaningless")
        if state != "meaningless":
            assert f'"{name.removesuffix("<...>")}"' in code


# of Iceberg's documentation (spark-procedures.md), arguments that only this one or that one has
PROCEDURES = {
    "rollback_to_snapshot": "table snapshot_id",
    "rollback_to_timestamp": "table timestamp",
    "set_current_snapshot": "table snapshot_id ref",
    "cherrypick_snapshot": "table snapshot_id",
    "publish_changes": "table wap_id",
    "fast_forward": "table branch to",
    "expire_snapshots": "table older_than retain_last max_concurrent_deletes stream_results "
    "snapshot_ids clean_expired_metadata",
    "remove_orphan_files": "table older_than location dry_run max_concurrent_deletes "
    "stream_results file_list_view equal_schemes equal_authorities prefix_mismatch_mode "
    "prefix_listing",
    "rewrite_data_files": "table strategy sort_order options where",
    "rewrite_manifests": "table use_caching spec_id sort_by",
    "rewrite_position_delete_files": "table options where",
    "snapshot": "source_table table location properties parallelism ignore_missing_files",
    "migrate": "table properties drop_backup backup_table_name parallelism ignore_missing_files",
    "add_files": "table source_table partition_filter check_duplicate_files parallelism",
    "register_table": "table metadata_file",
    "ancestors_of": "table snapshot_id",
    "create_changelog_view": "table changelog_view options net_changes compute_updates "
    "identifier_columns",
    "compute_table_stats": "table snapshot_id columns",
    "compute_partition_stats": "table snapshot_id",
    "rewrite_table_path": "table source_prefix target_prefix start_version end_version "
    "staging_location create_file_list",
}


def test_every_argument_of_icebergs_procedures_is_taken_or_refused_by_name():
    from docs.list_properties import ICEBERG
    from lakehouse.spark.catalog import lake_answers

    assert sorted(PROCEDURES) == sorted(ICEBERG)
    for name, arguments in PROCEDURES.items():
        one = lake_answers.PROCEDURES[name]
        assert set(arguments.split()) <= {*one.required, *one.optional, *one.refused}, name
        assert not one.refused.keys() & {*one.required, *one.optional}, name
