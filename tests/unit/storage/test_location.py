from __future__ import annotations

import pytest

from lakehouse.errors import InvalidLocationError
from lakehouse.storage.location import canonical, is_within, join, local_path, overlap, parse


@pytest.mark.parametrize(("location", "same"), [
    ("/a/b", "file:///a/b"), ("file:/a//b/", "file:///a/b"), ("s3a://k/a", "s3://k/a"),
    ("s3n://k/a/", "s3://k/a"), ("gcs://k/a", "gs://k/a"),
    ("wasbs://c@a.blob.core.windows.net/k", "abfss://c@a.dfs.core.windows.net/k"),
])  # fmt: skip
def test_aliases(location, same):
    assert canonical(location) == canonical(same)
    assert is_within(location, same)


@pytest.mark.parametrize(
    "location",
    [
        "",
        "relative/x",
        "/a/../b",
        "s3://b/./x",
        "s3:bucket",
        "s3:///key",
        "file://host/x",
        "a\x00b",
        "/a\x00",
    ],
)
def test_refused(location):
    with pytest.raises(InvalidLocationError):
        parse(location)


def test_containment_is_by_folder():
    assert is_within("/w/a/b", "/w/a")
    assert not is_within("/w/ab", "/w/a")
    assert overlap("/w/a", "file:///w/a/b")
    assert not overlap("s3://one/a", "s3://two/a")


def test_percent_signs_are_literal():
    assert local_path("file:///w/p=a%2Fb") == "/w/p=a%2Fb"
    assert join("s3://k/a/", "/b/", "c") == "s3://k/a/b/c"
