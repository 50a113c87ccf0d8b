"""Power lost at one chosen moment.

What was acknowledged, and what somebody has seen, is there afterwards.
"""

from __future__ import annotations

import contextlib
import random

import pytest

from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError
from lakehouse.spec.metadata.table_updates import SetProperties
from lakehouse.storage.local import LocalStorage
from tests.simulation.disk import DiskOfProcess, SimulatedDisk
from tests.tables import EVENTS, create_table

# what power takes is left to chance: each name that is not durable stays or goes
CHANCES = range(25)


class Stopped(BaseException):
    pass


def stops_before(call):
    """A check that stops the process at its first such call."""

    def check(name):
        if name == call:
            raise Stopped
        return True

    return check


@pytest.fixture
def disk():
    return SimulatedDisk(lambda: 0)


@pytest.mark.parametrize("chance", CHANCES)
def test_a_folder_that_another_process_made_and_did_not_sync(disk, chance):
    """A process makes a folder and stops before syncing its parent; another one writes there.

    The other one's write is acknowledged.
    """
    LocalStorage(disk=disk)._make_folders("/warehouse")
    dying = LocalStorage(disk=DiskOfProcess(disk, stops_before("fsync_folder")))
    for folder in ("/warehouse", "/"):
        dying._durable_folders.put(folder, 0, 1)
    with pytest.raises(Stopped):
        dying.write_new({"/warehouse/data/one": b"1"})
    assert "/warehouse/data" in disk.names_
    living = LocalStorage(disk=disk)
    living.write_new({"/warehouse/data/two": b"2"})
    disk.lose_power(random.Random(chance))
    assert living.read("/warehouse/data/two") == b"2"


@pytest.mark.parametrize("chance", CHANCES)
def test_a_version_that_somebody_saw(disk, chance):
    """The writer stops between linking its version and syncing the folder; a reader acts on it."""

    def opened(storage):
        return FilesystemCatalog(
            "/warehouse", environment=Environment.seeded(1), storage_factory=lambda *_: storage
        )

    base = create_table(opened(LocalStorage(disk=disk)))
    linked = []

    def check(name):
        if linked and name == "fsync_folder":
            raise Stopped
        linked.extend([True] if name == "link" else [])
        return True

    dying = opened(LocalStorage(disk=DiskOfProcess(disk, check)))
    with pytest.raises(Stopped):
        dying.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    reader = opened(LocalStorage(disk=disk))
    seen = reader.load(EVENTS) if chance % 2 else reader.refresh(base)
    assert seen.metadata.properties["a"] == "1"
    disk.lose_power(random.Random(chance))
    assert opened(LocalStorage(disk=disk)).load(EVENTS).metadata == seen.metadata


@pytest.mark.parametrize("calls", range(1, 40))
def test_a_commit_cut_off_at_each_system_call(disk, calls):
    """Before acknowledgement the old or the new version is there, whole; then the new one."""
    catalog = FilesystemCatalog("/warehouse", storage_factory=lambda *_: LocalStorage(disk=disk))
    base = create_table(catalog)
    left = [calls]

    def check(name):
        left[0] -= 1
        if left[0] < 0 and name not in {"close", "unlink"}:
            raise Stopped
        return left[0] >= 0

    cut = FilesystemCatalog(
        "/warehouse", storage_factory=lambda *_: LocalStorage(disk=DiskOfProcess(disk, check))
    )
    acknowledged = None
    with contextlib.suppress(Stopped, LakehouseError):
        acknowledged = cut.commit(EVENTS, base, (), (SetProperties({"a": "1"}),))
    disk.lose_power(random.Random(calls))
    found = catalog.load(EVENTS)
    assert found.metadata in (
        [acknowledged.metadata] if acknowledged else [base.metadata, found.metadata]
    )
    assert found.metadata.properties.get("a") in ({"1"} if acknowledged else {None, "1"})
