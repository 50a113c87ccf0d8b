"""Bugs planted by hand: what the simulation does not find, it does not guard against.

`python -m tests.simulation --mutants` says at which seed each is found, under its own plan and
under the plans of all seeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import prune_columns

from lakehouse.catalog import metadata_files, pointer_catalog
from lakehouse.catalog.confinement import OwnFolders
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.request_files import Fate, RequestFiles
from lakehouse.catalog.filesystem.version_files import VersionFiles
from lakehouse.data.reading import column_projection as projection
from lakehouse.data.reading import scan_columns
from lakehouse.errors import CommitConflictError, CommitStateUnknownError, LakehouseError
from lakehouse.server.table_commits import TableCommits
from lakehouse.spec.metadata import metadata_draft
from lakehouse.spec.metadata.commit_names import COMMIT_ID
from lakehouse.spec.metadata.table_updates import RemoveSnapshots
from lakehouse.storage.local import LocalStorage
from lakehouse.transaction import commit as engine
from lakehouse.transaction import conflict_rules, decided_rows, deletion_vectors
from lakehouse.transaction.operations import file_changes
from lakehouse.transaction.operations.metadata_changes import Expire
from lakehouse.transaction.snapshot_producer import SnapshotProducer
from lakehouse.transaction.table_change import Attempt, Step
from tests.simulation.disk import SimulatedDisk
from tests.simulation.model import InvariantBrokenError
from tests.simulation.plans import Plan, plan_of
from tests.simulation.world import simulate

Patch = pytest.MonkeyPatch
POWER = Plan(faults=frozenset({"power"}), fault_rate=0.2)
LOST_REPLIES = Plan(
    faults=frozenset({"lost reply", "delayed"}),
    fault_rate=0.1,
    kinds=("append",),
    catalog="served",
)
LATE = Plan(faults=frozenset({"late"}), fault_rate=0.15, kinds=("append", "tag"), catalog="served")


@dataclass(frozen=True)
class Mutant:
    """A bug.

    Attributes:
        plant: puts it in.
        plan: what a run contains in which it shows soon.
        signs: one of them is in the complaint; any complaint counts when there are none.
        since: the seed to begin with, where many say nothing: the last that was seen to find it.
    """

    plant: Callable[[Patch], None]
    plan: Plan
    signs: tuple[str, ...]
    since: int = 0

    @property
    def name(self) -> str:
        return self.plant.__name__

    def first_seed(self, seeds: Iterable[int], plan: Plan | None = None) -> int | None:
        """The first seed that finds it, under one plan or under that of each seed."""
        with Patch.context() as patch:
            self.plant(patch)
            for seed in seeds:
                try:
                    simulate(seed, plan or plan_of(seed))
                except InvariantBrokenError as error:
                    if not self.signs or any(sign in str(error) for sign in self.signs):
                        return seed
        return None


MUTANTS: dict[str, Mutant] = {}


def mutant(plan: Plan, *signs: str, since: int = 0) -> Callable[[Callable[[Patch], None]], None]:
    """Register what plants a bug."""

    def register(plant: Callable[[Patch], None]) -> None:
        MUTANTS[plant.__name__] = Mutant(plant, plan, signs, since)

    return register


@mutant(POWER)
def missing_fsync_of_files(patch: Patch) -> None:
    patch.setattr(SimulatedDisk, "fsync", lambda self, handle: None)


@mutant(POWER)
def missing_fsync_of_folders(patch: Patch) -> None:
    patch.setattr(SimulatedDisk, "fsync_folder", lambda self, path: None)


@mutant(POWER, "I6", since=78)
def swap_before_the_manifests_are_durable(patch: Patch) -> None:
    def unsynced(self, files):
        for location, data in files.items():
            self.write(location, data, durable=False)

    patch.setattr(LocalStorage, "write_new", unsynced)


@mutant(LOST_REPLIES, "is reachable and missing", "cannot be read")
def clean_up_on_unknown_outcome(patch: Patch) -> None:
    settle = engine._settle_unknown

    def hasty(change, catalog, producer, *rest):
        try:
            return settle(change, catalog, producer, *rest)
        except CommitStateUnknownError:
            producer.files.refused()
            producer.files.delete_all()
            raise

    patch.setattr(engine, "_settle_unknown", hasty)


@mutant(dataclasses.replace(LOST_REPLIES, catalog="filesystem", fault_rate=0.45))
def unknown_outcome_taken_for_failure(patch: Patch) -> None:
    def hasty(change, catalog, producer, sent, unknown):
        producer.files.refused()
        raise engine.CommitConflictError(unknown.error.message)

    patch.setattr(engine, "_settle_unknown", hasty)


@mutant(LATE, "is reachable and missing", "cannot be read")
def attempts_told_apart_by_snapshot_id(patch: Patch) -> None:
    """Fault 2: every attempt has the same one; what is cleaned up follows the last."""

    def last(sent, version):
        ids = [one.snapshot_id for one in sent[-1].snapshots] if sent else []
        found = all(version.metadata.snapshot_or_none(one) is not None for one in ids)
        return engine.Landed(version, sent[-1]) if ids and found else None

    patch.setattr(engine, "_landed_among", last)


@mutant(
    dataclasses.replace(LATE, faults=frozenset({"late", "full"}), fault_rate=0.3),
    "is reachable and missing",
    "cannot be read",
    "I2",
)
def refusals_believed_whatever_the_table_says(patch: Patch) -> None:
    patch.setattr(engine, "_may_land", lambda catalog, version, refused: False)


@mutant(
    Plan(
        faults=frozenset(),
        kinds=("append", "append", "append", "tag", "expire", "rollback"),
        operations=8,
    ),
    "I16",
)
def expiry_without_ref_requirement(patch: Patch) -> None:
    def blind(self, attempt):
        present = tuple(
            one for one in self.snapshot_ids if attempt.metadata.snapshot_or_none(one) is not None
        )
        return Step(updates=[RemoveSnapshots(present)] if present else [])

    def unchecked(self, ids):
        self._set(snapshots=self._m.snapshots.without(set(ids)))

    patch.setattr(Expire, "step", blind)
    patch.setattr(metadata_draft._MetadataDraft, "remove_snapshots", unchecked)


@mutant(Plan(faults=frozenset(), kinds=("append", "overwrite", "row_delta", "compact")))
def retry_without_validation(patch: Patch) -> None:
    patch.setattr(Attempt, "snapshots_since_start", lambda self: [])


@mutant(
    Plan(
        faults=frozenset({"timeout", "kill", "refused"}),
        fault_rate=0.3,
        kinds=("append", "tag"),
    )
)
def hint_trusted_as_truth(patch: Patch) -> None:
    def trusting(self, folder):
        hint = self._read_hint(folder)
        location = None if hint is None else self.at(folder, hint)
        return self._listed(folder) if location is None else (hint, location)

    patch.setattr(VersionFiles, "_newest", trusting)


@mutant(Plan(faults=frozenset({"kill"}), fault_rate=0.3, kinds=("append",)), "I15")
def append_applied_twice_by_a_retried_task(patch: Patch) -> None:
    patch.setattr(engine, "committed_before", lambda change, version: None)


@mutant(
    Plan(
        faults=frozenset(), operations=8, kinds=("append", "append", "rollback", "repeat", "branch")
    ),
    "I15",
)
def commit_ids_looked_up_in_the_whole_table(patch: Patch) -> None:
    """Fault 6: also what was rolled back, or went to another branch, counts as done."""

    def anywhere(metadata, branch, commit_id):
        return tuple(one for one in metadata.snapshots if one.summary.get(COMMIT_ID) == commit_id)

    patch.setattr(engine, "snapshots_of_commit", anywhere)


@mutant(Plan(faults=frozenset(), kinds=("append",)))
def orphaned_head_when_the_swap_ignores_the_base(patch: Patch) -> None:
    def overwriting(storage, location, data):
        storage.write(location, data)

    patch.setattr("lakehouse.catalog.filesystem.version_files.create_resolved", overwriting)


@mutant(
    Plan(
        faults=frozenset(),
        granularity="partition",
        kinds=("append", "append", "row_delta", "compact"),
    ),
    "I9",
)
def deletes_checked_only_where_they_name_their_file(patch: Patch) -> None:
    """Fault 1: a delete file about several data files names none."""

    def by_reference(self, attempt, subject, changes):
        named = {one.referenced_data_file for one in self.delete_files} - {None}
        file_changes.still_live(subject, named, changes)
        file_changes.no_new_vectors(subject, named, changes)

    patch.setattr(file_changes.RowDelta, "_check_data_files", by_reference)


@mutant(Plan(faults=frozenset(), kinds=("append", "row_delta", "update", "update")), "I4")
def rows_moved_that_somebody_else_deleted(patch: Patch) -> None:
    patch.setattr(file_changes, "no_new_deletes", lambda *_, **__: None)


@mutant(Plan(faults=frozenset(), kinds=("append", "add_files", "add_files")), "twice")
def files_added_without_a_second_look(patch: Patch) -> None:
    """Fault 8: two handles take in one file."""
    patch.setattr(file_changes, "none_added_twice", lambda *_: None)


VECTORS = Plan(
    faults=frozenset(),
    format_version=3,
    operations=6,
    kinds=("append", "row_delta", "row_delta", "compact", "delete"),
)


@mutant(VECTORS, "I10")
def vectors_that_outlive_their_data_file(patch: Patch) -> None:
    """Fault 13: only compaction cleared them away."""
    patch.setattr(SnapshotProducer, "_deletes_about", lambda *_: [])


@mutant(VECTORS, "I10", "I9")
def second_vectors(patch: Patch) -> None:
    """Fault 13: rows that the first one deleted are back."""
    patch.setattr(file_changes, "no_new_vectors", lambda *_: None)
    patch.setattr(file_changes, "check_added_deletes", lambda *_: None)


@mutant(
    Plan(
        faults=frozenset(), operations=6, kinds=("append", "append", "delete_where"), real_rows=True
    ),
    "I1",
    "I17",
)
def structs_pruned_to_nothing(patch: Patch) -> None:
    """Fault 11: a struct of which no field is read looks null in every row."""

    def leaves_only(schema, ids):
        return list(prune_columns(schema, ids, select_full_types=False).fields)

    def never_there(children, target, present, length):
        found = make_struct(children, target, present, length)
        return found if children else pa.nulls(length, target)

    make_struct = projection.make_struct
    patch.setattr(scan_columns, "_pruned", leaves_only)
    patch.setattr(projection, "make_struct", never_there)


@mutant(
    Plan(faults=frozenset(), operations=8, kinds=("append",), catalog="sql"),
    "is reachable and missing",
    "cannot be read",
    "I2",
    since=39,
)
def tidying_up_fails_the_commit(patch: Patch) -> None:
    """Fault 17: odd names in the metadata log; all our errors count as "not committed"."""
    patch.setattr(pointer_catalog, "after_the_swap", lambda _, tidy: tidy())
    patch.setattr(metadata_files, "_is_own_metadata_file", lambda *_: True)
    patch.setattr(engine, "is_certain", lambda error: isinstance(error, LakehouseError))


@mutant(
    Plan(
        faults=frozenset(),
        operations=8,
        kinds=("append", "add_files", "overwrite", "delete", "expire", "expire"),
    ),
    "I7",
)
def deletions_follow_every_path(patch: Patch) -> None:
    """Fault 18: expiry deletes what the metadata names, wherever it lies."""
    patch.setattr(OwnFolders, "hold", lambda *_: True)


@mutant(
    Plan(faults=frozenset(), operations=6, kinds=("append", "append", "recreate", "orphans")),
    "is reachable and missing",
)
def a_folder_that_is_used_again(patch: Patch) -> None:
    """Fault 7: what the dropped table left belongs to nobody that its successor knows."""
    patch.setattr(FilesystemCatalog, "_is_free", lambda *_: True)
    patch.setattr(pointer_catalog, "own_folder", lambda warehouse, name, _: f"{warehouse}/{name}")
    patch.setattr(pointer_catalog, "check_unused", lambda *_, **__: None)


MERGES = Plan(
    processes=3,
    operations=6,
    faults=frozenset(),
    format_version=3,
    kinds=("upsert", "change", "above", "remove", "merge"),
    merging=True,
)


@mutant(MERGES, "I4")
def vectors_without_the_rows_of_others(patch: Patch) -> None:
    """The union is lost: rows that others deleted or replaced are back."""
    patch.setattr(deletion_vectors, "all_deleted", lambda rows, deleted: rows.gone)


@mutant(MERGES, "I4")
def files_emptied_one_row_early(patch: Patch) -> None:
    """A file goes as a whole while one of its rows is left."""
    patch.setattr(
        deletion_vectors,
        "_is_every_row",
        lambda one: len(one.positions) >= one.data_file.record_count - 1,
    )


@mutant(MERGES, "I4")
def rows_that_two_writers_replace(patch: Patch) -> None:
    patch.setattr(file_changes, "no_row_deleted", lambda *_, **__: None)


@mutant(dataclasses.replace(MERGES, format_version=2), "I4")
def rows_that_two_writers_replace_by_position_deletes(patch: Patch) -> None:
    patch.setattr(file_changes, "no_row_deleted", lambda *_, **__: None)


@mutant(MERGES, "I4")
def phantom_inserts(patch: Patch) -> None:
    """Two writers insert one key."""
    patch.setattr(file_changes, "no_phantoms", lambda *_: None)


@mutant(
    dataclasses.replace(MERGES, operations=10, kinds=("upsert", "remove", "remove", "merge")),
    "I4",
    since=38,
)
def rows_seen_and_forgotten(patch: Patch) -> None:
    """A row that kept another from being inserted has gone meanwhile."""
    patch.setattr(
        conflict_rules,
        "decided_alike",
        lambda rows, deleted: np.intersect1d(rows.gone, deleted),
    )


@mutant(
    dataclasses.replace(
        MERGES, operations=10, kinds=("upsert", "change", "remove", "compact", "compact")
    ),
    "I4",
)
def moved_rows_taken_for_their_neighbours(patch: Patch) -> None:
    """Rows of a compacted file are looked for one position beside where they are."""

    def beside(moved, to):
        found = decided_rows.follow(moved, to)
        return found and tuple(
            dataclasses.replace(one, gone=(one.gone + 1) % one.data_file.record_count)
            for one in found
        )

    patch.setattr(file_changes, "follow", beside)


@mutant(
    dataclasses.replace(
        MERGES, operations=10, kinds=("upsert", "above", "above", "compact", "compact")
    ),
    "I4",
    since=30,
)
def moved_rows_taken_as_they_are_now(patch: Patch) -> None:
    """A row that another writer changed before it was moved is found by its id."""
    read = file_changes._read_row_ids
    patch.setattr(file_changes, "_read_row_ids", lambda file, _, *rest: read(file, 1 << 62, *rest))


BEHIND = Plan(
    faults=frozenset({"lost reply", "timeout", "repeated", "kill", "torn"}),
    fault_rate=0.1,
    kinds=("append", "append", "update", "overwrite"),
    catalog="rest",
)


@mutant(BEHIND, "I1", "I2")
def refusals_told_as_successes(patch: Patch) -> None:
    """The server tells what is newest to whom it should say that others were first."""

    def obliging(self, asked):
        try:
            return change(self, asked)
        except CommitConflictError:
            return [self._tables.newest(one.identifier) for one in asked]

    change = TableCommits._change
    patch.setattr(TableCommits, "_change", obliging)


@mutant(BEHIND, since=5)
def requirements_that_the_server_passes_over(patch: Patch) -> None:
    commit = TableCommits.commit
    patch.setattr(
        TableCommits, "commit", lambda self, name, _, updates: commit(self, name, (), updates)
    )


@mutant(dataclasses.replace(BEHIND, fault_rate=0.3))
def what_a_key_was_going_to_do_taken_for_done(patch: Patch) -> None:
    """A server was killed between its note and the swap; the other one is asked again."""

    def written(_self, entries):
        return {one.location: Fate.WRITTEN for one in entries if one.location is not None}

    patch.setattr(RequestFiles, "_fates", written)
