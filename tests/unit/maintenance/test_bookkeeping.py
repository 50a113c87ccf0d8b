from __future__ import annotations

import pytest

from lakehouse.maintenance.reachability.location_keys import is_journal, metadata_version


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("v1.metadata.json", 1),
        ("/t/metadata/v12.metadata.json", 12),
        ("v3.gz.metadata.json", 3),
        ("v3.metadata.json.gz", 3),
        ("00012-5f0d6a2c-98c0-4f5c-9a7e-2c9a3a1b1b1b.metadata.json", 12),
        ("s3://b/t/metadata/00000-5f0d6a2c-98c0-4f5c-9a7e-2c9a3a1b1b1b.gz.metadata.json", 0),
        ("snap-12-m0.avro", None),
        ("version-hint.text", None),
        ("metadata.json", None),
        ("v1x.metadata.json", None),
    ],
)
def test_the_version_in_a_name(name, version):
    assert metadata_version(name) == version


def test_journals_are_known_by_name():
    assert is_journal("/t/metadata/expiry-5f0d6a2c-98c0-4f5c-9a7e-2c9a3a1b1b1b.journal.json")
    assert not is_journal("/t/metadata/expiry-x.journal.json")
    assert not is_journal("/t/metadata/v1.metadata.json")
