import pytest

from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.table_properties import TableProperties, all_properties


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
        ("/abs/files", "/abs/files"),
        ("s3://other/x/", "s3://other/x"),
    ],
)
def test_data_location_is_joined_or_absolute(path, expected):
    raw = {} if path is None else {"write.data.path": path}
    assert TableProperties(raw).data_location("s3://b/t") == expected
    assert TableProperties({}).metadata_location("s3://b/t/") == "s3://b/t/metadata"
