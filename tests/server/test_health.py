"""`/health` tells within seconds what an orchestrator has to know, whatever the catalog does."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from lakehouse.errors import StorageError
from lakehouse.server.watching import watch_operations

ROOT = Path(__file__).resolve().parents[2]


class Away:
    """A catalog whose database is away, until it is told."""

    def __init__(self) -> None:
        self.back, self.asked = threading.Event(), 0

    def namespace_exists(self, _namespace) -> bool:
        self.asked += 1
        self.back.wait()
        return False


def test_a_catalog_that_hangs_is_told_and_asked_once(monkeypatch):
    monkeypatch.setattr(watch_operations, "_PATIENCE_S", 0.05)
    served = SimpleNamespace(catalog=Away())
    assert [watch_operations.health(served, None).status for _ in range(5)] == [503] * 5
    assert served.catalog.asked == 1
    served.catalog.back.set()
    monkeypatch.setattr(watch_operations, "_PATIENCE_S", 60)
    assert watch_operations.health(served, None).status == 200


def test_a_catalog_that_fails_is_told_and_asked_again():
    class Failing(Away):
        def namespace_exists(self, _namespace) -> bool:
            self.asked += 1
            if self.asked < 3:
                raise StorageError("away", retryable=True)
            return False

    served = SimpleNamespace(catalog=Failing())
    answers = [watch_operations.health(served, None).status for _ in range(3)]
    assert answers == [503, 503, 200]


@pytest.mark.parametrize("file", ["docker-compose.yml", "deploy/kubernetes/lakehouse.yaml"])
def test_what_is_deployed_asks_for_health_not_for_what_needs_a_token(file):
    asked = [line for line in (ROOT / file).read_text().splitlines() if "deploy.healthy" in line]
    assert asked
    assert all("/health" in line for line in asked if "8181" in line or "7070" in line)
    assert list(yaml.safe_load_all((ROOT / file).read_text()))
