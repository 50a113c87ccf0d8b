"""The lake as it was after a publication: all tables together, to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from lakehouse.catalog.catalog_decorator import CatalogDecorator
from lakehouse.catalog.catalog_protocol import Catalog, TableCommit, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.open_branches import PUBLICATIONS
from lakehouse.environment import Environment
from lakehouse.errors import NoSuchSnapshotError, UnsupportedFeatureError
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH, SnapshotRef
from lakehouse.spec.metadata.table_metadata import TableMetadata, iso_text
from lakehouse.spec.metadata.table_updates import Requirement, Update
from lakehouse.table.table import Table
from lakehouse.table.times import Moment, to_ms


@dataclass(frozen=True, slots=True)
class _Published:
    version: int
    at_ms: int
    before: int | None
    snapshot_id: int


class LakeVersion(CatalogDecorator):
    """Shows every table as it was when a version of the lake was published; nothing can be written.

    Tables of that publication are shown at the snapshots that it made current, the others as they
    were at that time. Schemas and properties are those of now.

    Args:
        inside: the catalog.
        environment: clock, ids.
        version: of the lake; None: the newest, or that of the time.
        time: as of which the lake is shown; None: when the version was published.

    Attributes:
        version: that is shown.

    Raises:
        NoSuchSnapshotError: there is no such version.
    """

    def __init__(
        self, inside: Catalog, environment: Environment, version: int | None, time: Moment | None
    ) -> None:
        super().__init__(inside)
        self._published: dict[str, list[_Published]] = {}
        if inside.table_exists(PUBLICATIONS):
            table = Table(inside, inside.load(PUBLICATIONS), environment)
            for row in table.scan().to_arrow().sort_by("version").to_pylist():
                published = _Published(
                    row["version"],
                    to_ms(row["at"]),
                    row["before_snapshot_id"],
                    row["snapshot_id"],
                )
                self._published.setdefault(row["table"], []).append(published)
        times = {
            published.version: published.at_ms
            for line in self._published.values()
            for published in line
        }
        until = None if time is None else to_ms(time)
        fitting = [
            number
            for number, at_ms in times.items()
            if version in (None, number) and (until is None or at_ms <= until)
        ]
        if not fitting:
            what = f"version {version}" if version is not None else "version"
            raise NoSuchSnapshotError(
                f"The lake has no {what}{'' if until is None else f' at {iso_text(until)}'}; it "
                f"has {f'those from {min(times)} to {max(times)}' if times else 'none yet'}: each "
                "publication of a run or of a branch makes one."
            )
        self.version = max(fitting)
        self._at_ms = times[self.version] if until is None else until

    def load(self, identifier: Identifier) -> TableVersion:
        """The table as of the version. Raises NoSuchTableError, NoSuchSnapshotError."""
        stored = self.inside.load(identifier)
        snapshot_id = self._snapshot_of(identifier, stored.metadata)
        others = {name: ref for name, ref in stored.metadata.refs.items() if name != MAIN_BRANCH}
        main = {} if snapshot_id is None else {MAIN_BRANCH: SnapshotRef(snapshot_id)}
        shown = replace(stored.metadata, refs={**others, **main}, current_snapshot_id=snapshot_id)
        return TableVersion(identifier, shown, stored.metadata_location)

    def refresh(self, version: TableVersion) -> TableVersion:
        """The same: a version of the lake does not change."""
        return version

    def _snapshot_of(self, identifier: Identifier, metadata: TableMetadata) -> int | None:
        line = self._published.get(str(identifier), [])
        own = [
            publication
            for publication in line
            if publication.version == self.version and publication.at_ms == self._at_ms
        ]
        if own:
            snapshot_id: int | None = own[0].snapshot_id
        else:
            try:
                snapshot_id = metadata.snapshot_as_of(self._at_ms).snapshot_id
            except NoSuchSnapshotError:
                log = list(metadata.snapshot_log)
                first = metadata.snapshot_or_none(log[0].snapshot_id) if log else None
                if log and (first is None or not first.is_first):
                    raise  # what was there has expired
                snapshot_id = None
        for publication in reversed(line):  # published in the same millisecond, and yet later
            if publication.version > self.version and snapshot_id == publication.snapshot_id:
                snapshot_id = publication.before
        if snapshot_id is not None and metadata.snapshot_or_none(snapshot_id) is None:
            raise NoSuchSnapshotError(
                f"Table {identifier}: snapshot {snapshot_id}, which version {self.version} of the "
                "lake has, has expired.",
                table=str(identifier),
                snapshot_id=snapshot_id,
            )
        return snapshot_id

    def planner(self, identifier: Identifier) -> None:
        """Nobody else: a server plans what is current."""

    def appender(self, identifier: Identifier) -> None:
        """Nobody."""

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,  # noqa: ARG002
        requirements: Sequence[Requirement],  # noqa: ARG002
        updates: Sequence[Update],  # noqa: ARG002
    ) -> TableVersion:
        """Refused."""
        self._refuse(str(identifier))

    def commit_all(self, commits: Sequence[TableCommit]) -> list[TableVersion]:
        """Refused."""
        self._refuse(", ".join(str(commit.identifier) for commit in commits))

    def create(
        self,
        identifier: Identifier,
        metadata: TableMetadata,  # noqa: ARG002
        *,
        staged: bool = False,  # noqa: ARG002
    ) -> TableVersion:
        """Refused."""
        self._refuse(str(identifier))

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse(str(identifier))

    def unregister(self, identifier: Identifier) -> TableVersion:
        """Refused."""
        self._refuse(str(identifier))

    def rename(self, source: Identifier, target: Identifier) -> None:  # noqa: ARG002
        """Refused."""
        self._refuse(str(source))

    def _refuse(self, names: str) -> NoReturn:
        with before_the_swap():
            raise UnsupportedFeatureError(
                f"{names}: version {self.version} of the lake is read only. Open the catalog "
                "without it to change anything."
            )
