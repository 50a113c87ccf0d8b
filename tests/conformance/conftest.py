"""Peers and catalogs that the conformance tests share."""

from __future__ import annotations

import pytest

import lakehouse as lh


@pytest.fixture(scope="session")
def readers(tmp_path_factory):
    """A catalog of ours that takes in what lies elsewhere."""
    root = tmp_path_factory.getbasetemp()
    folder = tmp_path_factory.mktemp("readers")
    options = {"allowed-locations": f"file://{root},{root}"}
    return lh.load_catalog(f"file://{folder}", **options)
