"""A catalog seen from a branch: what is written goes to it, what it does not have is read of main.

Whoever uses the catalog knows nothing of the branch: for them it is `main`. A table gets the branch
with its first commit, so that a branch of a whole lake is a name and copies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, Namespace, TableCommit, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.catalog.open_branches import PUBLICATIONS, OpenBranches
from lakehouse.catalog.view_protocol import StoredView, Views
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata, snapshot_log
from lakehouse.spec.metadata.table_updates import (
    AddPartitionSpec,
    AddSchema,
    AddSnapshot,
    AddSortOrder,
    AssertRefSnapshotId,
    RemoveSnapshots,
    Requirement,
    SetCurrentSchema,
    SetDefaultSortOrder,
    SetDefaultSpec,
    SetLocation,
    SetSnapshotRef,
    Update,
    UpgradeFormatVersion,
)
from lakehouse.spec.views.view_updates import AssertViewUUID, ViewUpdate

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_SHARED = (
    AddSchema, SetCurrentSchema, AddPartitionSpec, SetDefaultSpec, AddSortOrder,
    SetDefaultSortOrder, UpgradeFormatVersion, SetLocation,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SeenVersion(TableVersion):
    """A version of a table as a branch shows it.

    Attributes:
        stored: as the catalog has it.
    """

    stored: TableVersion


class BranchCatalog(CatalogDecorator):
    """Shows a branch of every table as its `main`; tables without it show `main` itself.

    Schemas, partition specs and properties are those of the table, and views and namespaces those
    of the catalog: a branch has rows of its own, and nothing else. What is added to them is there
    for main at once; what main would miss, or lay out in another way, is refused.

    Args:
        inside: the catalog.
        branch: its name in every table.
        environment: clock, ids.
        keep_ms: expiry removes the branch from a table so long after its newest snapshot; None: as
            the table says.
    """

    def __init__(
        self, inside: Catalog, branch: str, environment: Environment, keep_ms: int | None = None
    ) -> None:
        super().__init__(inside)
        if branch == MAIN_BRANCH or not _NAME.fullmatch(branch):
            raise InvalidInputError(
                f"{branch!r} cannot be a branch of the lake: give it a name of letters, digits, "
                "dots, dashes and underscores that is not main.",
                ref=branch,
            )
        self.branch, self.keep_ms = branch, keep_ms
        self._environment = environment

    @property
    def views(self) -> Views:
        """Those of the catalog: new ones can be created."""
        return _ViewsOnBranch(self.inside.views, self.branch)

    def drop_namespace(self, namespace: Namespace) -> None:
        """Refused: the namespace would be gone from main."""
        raise _refusal("Namespace", dotted(namespace), "dropped", self.branch)

    def load(self, identifier: Identifier) -> TableVersion:
        """The newest version, whose `main` is the branch where the table has it."""
        return self._seen(self.inside.load(identifier))

    def refresh(self, version: TableVersion) -> TableVersion:
        """The newest version; the same object when nothing was committed since."""
        if not isinstance(version, SeenVersion):
            return self.load(version.identifier)
        stored = self.inside.refresh(version.stored)
        return version if stored is version.stored else self._seen(stored)

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Create the table; rows that it begins with are on the branch alone."""
        head = metadata.refs.get(MAIN_BRANCH)
        if head is not None:
            self._note(identifier)
            own = SnapshotRef(
                head.snapshot_id,
                min_snapshots_to_keep=len(metadata.snapshots),
                max_ref_age_ms=self.keep_ms,
            )
            metadata = replace(
                metadata,
                refs={self.branch: own},
                current_snapshot_id=None,
                snapshot_log=snapshot_log(),
            )
        version = self.inside.create(identifier, metadata, staged=staged)
        if head is not None:
            self._note(identifier)  # again, as after a commit
        return self._seen(version)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Commit to the branch what was to be committed to `main`."""
        with before_the_swap():
            commit = self._on_branch(TableCommit(identifier, base, requirements, updates))
        version = self.inside.commit(identifier, commit.base, commit.requirements, commit.updates)
        return base if version is commit.base else self._noted(commit, version)

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Commit to the branch of several tables, all or none."""
        with before_the_swap():
            own = [self._on_branch(commit) for commit in commits]
        return list(map(self._noted, own, self.inside.commit_all(own)))

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """Adopt a table, which is one of the catalog at once."""
        return self._seen(self.inside.register(identifier, metadata_location))

    def planner(self, identifier: Identifier) -> None:
        """Nobody else: a server plans what is on main."""

    def appender(self, identifier: Identifier) -> None:
        """Nobody else: a server appends to main."""

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:  # noqa: ARG002
        """Refused: the table would be gone from main."""
        self._refuse(identifier, "dropped")

    def unregister(self, identifier: Identifier) -> TableVersion:
        """Refused: the table would be gone from main."""
        self._refuse(identifier, "unregistered")

    def rename(self, source: Identifier, target: Identifier) -> None:  # noqa: ARG002
        """Refused: the table would be renamed on main."""
        self._refuse(source, "renamed")

    def _refuse(self, identifier: Identifier, what: str) -> NoReturn:
        raise _refusal("Table", str(identifier), what, self.branch)

    def _seen(self, stored: TableVersion) -> SeenVersion:
        metadata, ref = stored.metadata, stored.metadata.refs.get(self.branch)
        if ref is not None and stored.identifier != PUBLICATIONS:
            if ref.type != "branch":
                raise InvalidInputError(
                    f"Table {stored.identifier}: {self.branch!r} is a tag. Choose another name for "
                    "the branch of the lake.",
                    table=str(stored.identifier),
                    ref=self.branch,
                )
            others = {name: known for name, known in metadata.refs.items() if name != self.branch}
            metadata = replace(
                metadata,
                refs={**others, MAIN_BRANCH: ref},
                current_snapshot_id=ref.snapshot_id,
            )
        return SeenVersion(stored.identifier, metadata, stored.metadata_location, stored)

    def _on_branch(self, commit: TableCommit) -> TableCommit:
        """What the catalog is to commit. The table is noted before it gets the branch."""
        base = commit.base.stored if isinstance(commit.base, SeenVersion) else commit.base
        if commit.identifier == PUBLICATIONS:
            return replace(commit, base=base)
        if any(isinstance(update, RemoveSnapshots) for update in commit.updates):
            raise UnsupportedFeatureError(
                f"Table {commit.identifier}: snapshots are not expired on branch {self.branch}, "
                "which does not show all that other branches need. Expire them without it.",
                table=str(commit.identifier),
                ref=self.branch,
            )
        self._check_shared(commit, base)
        ref = base.metadata.refs.get(self.branch)
        is_there = ref is not None
        requirements: list[Requirement] = []
        for requirement in commit.requirements:
            if isinstance(requirement, AssertRefSnapshotId) and requirement.ref == MAIN_BRANCH:
                if not is_there:
                    requirements.append(requirement)
                known = requirement.snapshot_id if is_there else None
                requirement = AssertRefSnapshotId(self.branch, known)
            requirements.append(requirement)
        # expiry keeps what is the branch's, and the snapshot before: publishing needs both
        kept = 1 if ref is None else ref.min_snapshots_to_keep or 1
        kept += sum(isinstance(update, AddSnapshot) for update in commit.updates)
        updates: list[Update] = []
        for update in commit.updates:
            if isinstance(update, SetSnapshotRef) and update.ref_name == MAIN_BRANCH:
                update = SetSnapshotRef(
                    self.branch, update.snapshot_id, "branch", kept, max_ref_age_ms=self.keep_ms
                )
                if not is_there:
                    self._note(commit.identifier)
            updates.append(update)
        return TableCommit(commit.identifier, base, tuple(requirements), tuple(updates))

    def _check_shared(self, commit: TableCommit, base: TableVersion) -> None:
        """Refuse to change what the branch has no own of, and main would have, or miss, at once."""
        shared = [update for update in commit.updates if isinstance(update, _SHARED)]
        if not shared:
            return
        now, then = base.metadata, next_metadata(base, (), shared, self._environment.now_ms())
        schema, other = now.schema(), then.schema()
        gone = [
            name
            for name in schema.column_names
            if other.find_column_name(schema.find_field(name).field_id) != name
        ]
        if gone:
            self._refuse_to_change(commit.identifier, f"{', '.join(gone)}", "dropped or renamed")
        for what, before, after in (
            ("the partition spec", now.default_spec_id, then.default_spec_id),
            ("the sort order", now.default_sort_order_id, then.default_sort_order_id),
            ("the format version", now.format_version, then.format_version),
            ("the location", now.location, then.location),
        ):
            if before != after:
                self._refuse_to_change(commit.identifier, what, "changed")

    def _refuse_to_change(self, identifier: Identifier, what: str, how: str) -> NoReturn:
        raise UnsupportedFeatureError(
            f"Table {identifier}: on branch {self.branch} {what} cannot be {how}. A branch has "
            "rows of its own, and columns and layout of the table: main would have the change at "
            "once. Change it without the branch.",
            table=str(identifier),
            ref=self.branch,
        )

    def _noted(self, commit: TableCommit, version: TableVersion) -> SeenVersion:
        """Note a table that got the branch again: who published meanwhile has forgotten it."""
        if self.branch not in commit.base.metadata.refs and self.branch in version.metadata.refs:
            self._note(commit.identifier)
        return self._seen(version)

    def _note(self, identifier: Identifier) -> None:
        OpenBranches(self.inside, self._environment).note(self.branch, [identifier])


class _ViewsOnBranch:
    """The views of a catalog as a branch may use them: what main reads stays as it is."""

    def __init__(self, inside: Views, branch: str) -> None:
        self._inside, self._branch = inside, branch
        self.names, self.exists, self.load = inside.names, inside.exists, inside.load
        self.create, self.register = inside.create, inside.register

    def commit(
        self,
        base: StoredView,
        requirements: Sequence[AssertViewUUID],  # noqa: ARG002
        updates: Sequence[ViewUpdate],  # noqa: ARG002
    ) -> StoredView:
        """Refused: main would read the new one at once."""
        raise _refusal("View", str(base.identifier), "changed", self._branch)

    def drop(self, identifier: Identifier) -> None:
        """Refused: the view would be gone from main."""
        raise _refusal("View", str(identifier), "dropped", self._branch)

    def rename(self, source: Identifier, target: Identifier) -> None:  # noqa: ARG002
        """Refused: the view would be renamed on main."""
        raise _refusal("View", str(source), "renamed", self._branch)


def _refusal(kind: str, name: str, what: str, branch: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{kind} {name} cannot be {what} on branch {branch}, which has rows and no "
        f"{kind.lower()}s of its own. Open the catalog without the branch for that.",
        ref=branch,
        **({"table": name} if kind == "Table" else {}),
    )
