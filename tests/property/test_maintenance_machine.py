"""Maintenance, killed anywhere, beside any commits: no query changes, no file is lost or left.

Random graphs of branches and tags, random writes, every maintenance action. The model beside the
table keeps the rows of each branch and, of every snapshot, what it held when it was made; it knows
nothing of files. Files are counted by a census of its own, which reads metadata with `json` and
`fastavro` alone. LAKEHOUSE_MAINTENANCE_EXAMPLES asks for more histories.
"""

from __future__ import annotations

import io
import itertools
import json
import os
from collections import Counter

import fastavro
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lakehouse.errors import CommitConflictError, ValidationConflictError
from lakehouse.maintenance.compaction.compaction import compact
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import (
    ManifestRewriteOptions,
    execute_columnar,
    plan_columnar,
    rewrite_manifests,
)
from lakehouse.maintenance.orphan_removal import OrphanOptions, remove_orphan_files
from lakehouse.maintenance.retention.snapshot_expiry import ExpiryOptions, expire_snapshots
from tests.integration.maintenance_support import (
    DyingCatalog,
    Killed,
    at,
    events,
    lake_in_memory,
    rows,
)

EXAMPLES = int(os.environ.get("LAKEHOUSE_MAINTENANCE_EXAMPLES", "6"))
NUMBERS = st.integers(0, 30)
FOREVER = 1 << 62
LAYOUTS = [
    {},
    {"sort_by": ("id desc",)},
    {"zorder_by": ("id", "amount")},
    {"rewrite_all": True},
    {"where": "region = 'r1'"},
    {"partitions": frozenset({"region=r0"})},
    {"rewrite_all": True, "groups_per_commit": 1},
    {"rewrite_all": True, "budget_bytes": 4000},
]


def reached(table):
    """Every file that a snapshot reaches, and all needed metadata files; without the engine."""
    storage = table.storage
    metadata = json.loads(storage.read(table.metadata_location))
    found = {table.metadata_location}
    for snapshot in metadata["snapshots"]:
        found.add(snapshot["manifest-list"])
        for manifest in fastavro.reader(io.BytesIO(storage.read(snapshot["manifest-list"]))):
            path = manifest["manifest_path"]
            found.add(path)
            for entry in fastavro.reader(io.BytesIO(storage.read(path))):
                if entry["status"] != 2:
                    found.add(entry["data_file"]["file_path"])
    return found


def present(table):
    """Files in the table's folder, without derived files, pointers, and those kept for a while."""
    listed = {info.location for info in table.storage.list(table.location)}
    aside = (".columnar.parquet", "version-hint.text", ".metadata.json")
    return {one for one in listed if not one.endswith(aside) and "/_trash/" not in one}


QUERIES = [
    (None, lambda row: True),
    ("region = 'r1'", lambda row: row[1] == "r1"),
    ("id >= 5 and id < 1003", lambda row: 5 <= row[0] < 1003),
]


class RacingCatalog:
    """Somebody else commits right before the first commit that comes through here."""

    def __init__(self, inner, race):
        self._inner, self._race = inner, race

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def commit(self, *arguments):
        race, self._race = self._race, None
        if race is not None:
            race()
        return self._inner.commit(*arguments)


class Maintained(RuleBasedStateMachine):
    @initialize(
        version=st.sampled_from([2, 3]),
        mode=st.sampled_from(["copy-on-write", "merge-on-read"]),
        granularity=st.sampled_from(["file", "partition"]),
    )
    def start(self, version, mode, granularity):
        properties = {
            "write.delete.mode": mode,
            "write.delete.granularity": granularity,
            "write.target-file-size-bytes": "6000",
        }
        self.table = events(lake_in_memory(), properties=properties, format_version=version)
        self.held: dict[int, Counter] = {}
        self.ids, self.names = itertools.count(), itertools.count()
        for number in range(4):
            self.append(number, 1)
        self.delete(3)

    # Writers

    def head(self, branch):
        ref = self.table.refresh().metadata.refs.get(branch)
        return Counter() if ref is None else self.held[ref.snapshot_id]

    def wrote(self, snapshot, rows_now):
        if snapshot is not None:
            self.held[snapshot.snapshot_id] = rows_now

    @rule(number=NUMBERS, count=st.integers(1, 3))
    def append(self, number, count):
        branch = self.some([*self.branches(), "main"], number)
        for _ in range(count):
            new, region = next(self.ids), f"r{number % 2}"
            before = self.head(branch)
            self.wrote(
                self.table.append(rows([new, new + 1000], region), branch=branch),
                before
                + Counter([(new, region, float(new)), (new + 1000, region, float(new + 1000))]),
            )

    @rule(number=NUMBERS)
    def delete(self, number):
        branch = self.some([*self.branches(), "main"], number)
        before = self.head(branch)
        victim = self.some(sorted(row[0] for row in before), number)
        if victim is not None:
            snapshot = self.table.delete(f"id = {victim}", branch=branch)
            self.wrote(snapshot, Counter({row: n for row, n in before.items() if row[0] != victim}))

    @rule(number=NUMBERS)
    def replace_a_partition(self, number):
        region, new = f"r{number % 2}", next(self.ids)
        before = self.head("main")
        kept = Counter({row: n for row, n in before.items() if row[1] != region})
        snapshot = self.table.overwrite(rows([new], region), where=f"region = '{region}'")
        self.wrote(snapshot, kept + Counter([(new, region, float(new))]))

    @precondition(lambda self: self.held)
    @rule(number=NUMBERS, kind=st.sampled_from(["tag", "branch"]))
    def name_a_snapshot(self, number, kind):
        chosen = self.some([one.snapshot_id for one in self.table.refresh().snapshots()], number)
        if chosen is not None:
            getattr(self.table, f"create_{kind}")(f"{kind}{next(self.names)}", chosen)

    @rule(number=NUMBERS)
    def drop_a_name(self, number):
        name = self.some(
            sorted(one for one in self.table.refresh().metadata.refs if one != "main"), number
        )
        if name is not None:
            self.table.remove_ref(name)

    @rule(number=NUMBERS)
    def roll_back(self, number):
        current = self.table.refresh().metadata.current_snapshot_id
        if current is not None:
            line = [one.snapshot_id for one in self.table.metadata.ancestors(current)]
            self.table.rollback_to(self.some(line, number))

    # Maintenance

    def expiry(self, number):
        return ExpiryOptions(older_than_ms=FOREVER, retain_last=1 + number % 3)

    def compaction(self, number):
        branch = self.some([*self.branches(), "main"], number)
        if branch == "main" and self.table.refresh().metadata.current_snapshot_id is None:
            return None
        return CompactionOptions(min_input_files=2, branch=branch, **LAYOUTS[number % len(LAYOUTS)])

    def compacted(self, catalog, options):
        before = self.head(options.branch)
        result = compact(catalog, self.table.identifier, options)
        for one in result.snapshot_ids:
            self.held[one] = before
        return result

    @rule(number=NUMBERS)
    def compact(self, number):
        options = self.compaction(number)
        if options is not None:
            assert self.compacted(self.table.catalog, options).stopped is None
            self.unchanged()

    @rule(force=st.booleans())
    def rewrite_manifests(self, force):
        before = self.head("main")
        result = rewrite_manifests(
            self.table.catalog, self.table.identifier, ManifestRewriteOptions(force=force)
        )
        if result.snapshot_id is not None:
            self.held[result.snapshot_id] = before
        self.unchanged()

    @rule()
    def write_columnar_manifests(self):
        before = self.head("main")
        plan = plan_columnar(self.table.catalog, self.table.identifier)
        result = execute_columnar(self.table.catalog, plan)
        if result.snapshot_id is not None:
            self.held[result.snapshot_id] = before
        self.unchanged()

    @rule(number=NUMBERS)
    def expire(self, number):
        expire_snapshots(self.table.catalog, self.table.identifier, self.expiry(number))
        self.nothing_is_left()

    @rule(number=NUMBERS, steps=st.integers(0, 24))
    def expire_killed_and_resumed(self, number, steps):
        try:
            expire_snapshots(
                DyingCatalog(self.table.catalog, steps), self.table.identifier, self.expiry(number)
            )
        except Killed:
            self.nothing_is_missing()
            self.unchanged()
        # a journal whose commit never came is dropped after a day
        expire_snapshots(
            self.table.catalog, self.table.identifier, self.expiry(number), environment=at(days=2)
        )
        self.nothing_is_left()

    @rule(
        number=NUMBERS,
        other=st.sampled_from(
            ["append", "delete", "replace_a_partition", "roll_back", "name_a_snapshot"]
        ),
    )
    def expire_beside(self, number, other):
        """Tags, rollbacks and appends that come between the plan and its commit."""
        arguments = {"append": (number, 1), "name_a_snapshot": (number, "tag")}.get(
            other, (number,)
        )

        def race():
            if other != "name_a_snapshot" or self.held:
                getattr(self, other)(*arguments)

        expire_snapshots(
            RacingCatalog(self.table.catalog, race), self.table.identifier, self.expiry(number)
        )
        self.nothing_is_left()

    @rule(
        number=NUMBERS, other=st.sampled_from(["append", "delete", "replace_a_partition", "expire"])
    )
    def compact_beside(self, number, other):
        """Meanwhile commits stay: the compaction's snapshots hold them, or there are none."""
        options = self.compaction(number)
        if options is None:
            return

        def race():
            if other == "expire":  # no census here: files of the compaction are on their way
                expire_snapshots(self.table.catalog, self.table.identifier, self.expiry(number))
            else:
                getattr(self, other)(*((number, 1) if other == "append" else (number,)))

        racing = RacingCatalog(self.table.catalog, race)
        try:
            result = compact(racing, self.table.identifier, options)
        except (CommitConflictError, ValidationConflictError):
            self.unchanged()
            return
        for one in result.snapshot_ids:
            parent = self.table.refresh().metadata.snapshot(one).parent_snapshot_id
            self.held[one] = self.held[parent]
        self.unchanged()

    @rule()
    def remove_orphans(self):
        stray = f"{self.table.location}/data/stray-{next(self.names)}.parquet"
        self.table.storage.write(stray, b"nobody's")
        remove_orphan_files(
            self.table.catalog, self.table.identifier, OrphanOptions(), environment=at(days=5)
        )
        assert not self.table.storage.exists(stray)
        self.nothing_is_missing()
        self.unchanged()

    # What must hold

    def unchanged(self):
        """Every query gives what it gave, at every snapshot that is kept."""
        table = self.table.refresh()
        assert {ref.snapshot_id for ref in table.metadata.refs.values()} <= {
            one.snapshot_id for one in table.snapshots()
        }
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        for snapshot in table.snapshots():
            held = self.held[snapshot.snapshot_id]
            for where, keep in QUERIES if snapshot.snapshot_id in heads else QUERIES[:1]:
                read = table.scan(where, snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
                assert Counter(tuple(row.values()) for row in read) == Counter(
                    {r: n for r, n in held.items() if keep(r)}
                ), where

    def nothing_is_missing(self):
        table = self.table.refresh()
        assert not {one for one in reached(table) if not table.storage.exists(one)}

    def nothing_is_left(self):
        """The census: what lies there is exactly what is reached."""
        table = self.table.refresh()
        found, needed = present(table), reached(table)
        assert found - needed == set()
        assert {one for one in needed - found if not table.storage.exists(one)} == set()
        self.unchanged()

    def teardown(self):
        if hasattr(self, "table"):
            self.nothing_is_missing()
            expire_snapshots(
                self.table.catalog, self.table.identifier, ExpiryOptions(older_than_ms=FOREVER)
            )
            self.nothing_is_left()

    def branches(self):
        return sorted(
            name
            for name, ref in self.table.refresh().metadata.refs.items()
            if ref.type == "branch" and name != "main"
        )

    @staticmethod
    def some(found, number):
        return found[number % len(found)] if found else None


Maintained.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=10, deadline=None
)
TestMaintained = pytest.mark.slow(Maintained.TestCase)
