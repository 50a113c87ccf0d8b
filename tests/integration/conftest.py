"""Servers shared by the integration tests, started when first asked for."""

from __future__ import annotations

import pytest

from tests.servers import postgres, s3


@pytest.fixture(scope="session")
def postgres_uri():
    with postgres() as uri:
        yield uri


@pytest.fixture(scope="session")
def s3_properties():
    with s3() as properties:
        yield properties
