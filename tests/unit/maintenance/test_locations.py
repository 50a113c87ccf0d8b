from __future__ import annotations

import pytest

from lakehouse.maintenance.reachability.location_keys import LocationKeys

KEYS = LocationKeys()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/k", "s3a://b/k"),
        ("s3n://b/k", "S3://b/k"),
        ("/a/b", "file:///a/b"),
        ("/a/b", "file:/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("/a//b", "/a/b"),
        ("/a/./b", "/a/b"),
        ("abfss://c@x/k", "abfs://c@x/k"),
        ("wasb://c@x.blob.core.windows.net/k", "abfs://c@x.dfs.core.windows.net/k"),
    ],
)
def test_spellings_of_one_file(one, other):
    assert KEYS.key(one) == KEYS.key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/k", "s3://c/k"),
        ("/a/b", "/a/c"),
        ("/a/b", "/a/B"),
        ("s3://b/k", "/b/k"),
        ("/a/b%20c", "/a/b c"),
        ("/a/b:c", "/a/b/c"),
    ],
)
def test_different_files(one, other):
    assert KEYS.key(one) != KEYS.key(other)


def test_a_colon_in_a_path_is_no_scheme():
    assert KEYS.key("/a/t=12:30:00/x") == "file:///a/t=12:30:00/x"
    assert KEYS.key("s3://b/t=12:30/x") == "s3://b/t=12:30/x"


def test_aliases_of_the_caller():
    keys = LocationKeys({"oss": "s3", "hdfs://nn1": "hdfs://cluster"})
    assert keys.key("oss://b/k") == keys.key("s3a://b/k")
    assert keys.key("hdfs://nn1/x") == keys.key("hdfs://cluster/x")
    assert keys.key("hdfs://nn2/x") != keys.key("hdfs://cluster/x")


def test_under_means_inside_the_folder_and_not_beside_it():
    assert KEYS.is_under("file:///w/events/data/x", "/w/events")
    assert KEYS.is_under("/w/events/data/x", "/w/events/")
    assert not KEYS.is_under("/w/events2/x", "/w/events")
    assert not KEYS.is_under("/w/events", "/w/events")
    assert KEYS.relative("file:/w/events/data/x", "/w/events") == "data/x"
