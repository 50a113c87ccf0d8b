"""Bugs planted by hand: the simulation must find each of them within a few seeds, or it proves nothing."""

from __future__ import annotations

import pytest

from lakehouse.catalog.filesystem import FilesystemCatalog
from lakehouse.errors import CommitStateUnknownError
from lakehouse.spec.metadata_draft import MetadataDraft
from lakehouse.spec.updates import RemoveSnapshots
from lakehouse.storage.local import LocalStorage
from lakehouse.transaction import engine
from lakehouse.transaction.expire import Expire
from lakehouse.transaction.operation import Attempt
from lakehouse.transaction.workspace import Workspace
from tests.simulation.disk import SimulatedDisk
from tests.simulation.model import InvariantBrokenError
from tests.simulation.world import Plan, simulate

SEEDS_MAX = 150


def found(plan: Plan, *signs: str) -> int:
    """The first seed whose complaint shows one of the signs; any complaint when none is given."""
    for seed in range(SEEDS_MAX):
        try:
            simulate(seed, plan)
        except InvariantBrokenError as error:
            if not signs or any(sign in str(error) for sign in signs):
                return seed
    pytest.fail(f"{SEEDS_MAX} seeds did not find the planted bug")


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level("ERROR")


def test_missing_fsync_of_files(monkeypatch):
    monkeypatch.setattr(SimulatedDisk, "fsync", lambda self, handle: None)
    found(Plan(faults=frozenset({"power"}), fault_rate=0.2))


def test_missing_fsync_of_folders(monkeypatch):
    monkeypatch.setattr(SimulatedDisk, "fsync_folder", lambda self, path: None)
    found(Plan(faults=frozenset({"power"}), fault_rate=0.2))


def test_swap_before_the_manifests_are_durable(monkeypatch):
    def unsynced(self, files):
        for location, data in files.items():
            self.write(location, data, durable=False)

    monkeypatch.setattr(LocalStorage, "write_new", unsynced)
    found(Plan(faults=frozenset({"power"}), fault_rate=0.2), "I6")


def test_clean_up_on_unknown_outcome(monkeypatch):
    look_up = engine._look_up

    def hasty(job, sent, error, cause=None):
        try:
            return look_up(job, sent, error, cause)
        except CommitStateUnknownError:
            sent[-1].workspace.unseal()
            sent[-1].workspace.clean_up()
            raise

    monkeypatch.setattr(engine, "_look_up", hasty)
    found(
        Plan(faults=frozenset({"lost reply", "delayed"}), fault_rate=0.3, kinds=("append",)),
        "is reachable and missing",
        "cannot be read",
    )


def test_unknown_outcome_taken_for_failure(monkeypatch):
    monkeypatch.setattr(Workspace, "seal", lambda self: None)

    def hasty(job, sent, error, cause=None):
        raise engine.CommitConflictError(error.message)

    monkeypatch.setattr(engine, "_look_up", hasty)
    found(Plan(faults=frozenset({"lost reply", "delayed"}), fault_rate=0.3, kinds=("append",)))


def test_expiry_without_ref_requirement(monkeypatch):
    def blind(self, attempt):
        present = tuple(
            one for one in self.snapshot_ids if attempt.metadata.snapshot_or_none(one) is not None
        )
        if present:
            attempt.change(RemoveSnapshots(present))

    def unchecked(self, ids):
        self._set(snapshots=self._m.snapshots.without(set(ids)))

    monkeypatch.setattr(Expire, "apply", blind)
    monkeypatch.setattr(MetadataDraft, "remove_snapshots", unchecked)
    found(
        Plan(
            faults=frozenset(),
            kinds=("append", "append", "append", "tag", "expire", "rollback"),
            operations=8,
        ),
        "I16",
    )


def test_retry_without_validation(monkeypatch):
    monkeypatch.setattr(Attempt, "since", lambda self: [])
    found(Plan(faults=frozenset(), kinds=("append", "overwrite", "row_delta", "compact")))


def test_hint_trusted_as_truth(monkeypatch):
    def trusting(self, folder):
        hint = self._read_hint(folder)
        location = None if hint is None else self._at(folder, hint)
        return self._listed(folder) if location is None else (hint, location)

    monkeypatch.setattr(FilesystemCatalog, "_newest", trusting)
    found(
        Plan(
            faults=frozenset({"timeout", "kill", "refused"}),
            fault_rate=0.3,
            kinds=("append", "tag"),
        )
    )


def test_append_applied_twice_by_a_retried_task(monkeypatch):
    monkeypatch.setattr(engine, "_already_committed", lambda job, version: None)
    found(Plan(faults=frozenset({"kill"}), fault_rate=0.3, kinds=("append",)))


def test_orphaned_head_when_the_swap_ignores_the_base(monkeypatch):
    def overwriting(storage, location, data):
        storage.write(location, data)

    monkeypatch.setattr("lakehouse.catalog.filesystem.create_resolved", overwriting)
    found(Plan(faults=frozenset(), kinds=("append",)))
