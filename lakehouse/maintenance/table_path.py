"""Iceberg's `rewrite_table_path`: a table's metadata as it is to be at another place, staged.

Nothing is copied there: the list of files says which file goes where, for a tool that copies, and
`register_table` makes a table of what was copied.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from lakehouse.catalog.catalog_protocol import Catalog
from lakehouse.catalog.metadata_files import metadata_folder
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.maintenance.rewritten_paths import RewrittenPaths
from lakehouse.maintenance.shown_plan import Report
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import basename, join
from lakehouse.storage.storage_protocol import Storage

FILE_LIST = "file-list"
"""The file of the staging location that says which file goes where."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class StagedTable(Report):
    """Metadata that was staged.

    Attributes:
        table: name.
        latest_version: name of its newest metadata file.
        staging_location: where the files lie that were written.
        file_list_location: CSV with `source,target` for each file; None: without.
        rewritten_manifests: how many were written.
        rewritten_delete_files: how many were written.
    """

    table: str
    latest_version: str
    staging_location: str
    file_list_location: str | None
    rewritten_manifests: int
    rewritten_delete_files: int

    def title(self) -> str:
        """`raw.events staged`."""
        return f"{self.table} staged"

    def facts(self) -> Iterable[tuple[str, object]]:
        """Where the files are."""
        yield "latest version", self.latest_version
        yield "staged in", self.staging_location
        yield "list of files", self.file_list_location or "not written"
        yield "manifests", self.rewritten_manifests
        yield "delete files", self.rewritten_delete_files


def rewrite_table_path(
    catalog: Catalog,
    table: Identifier,
    source_prefix: str,
    target_prefix: str,
    *,
    start_version: str | None = None,
    end_version: str | None = None,
    staging_location: str | None = None,
    create_file_list: bool = True,
    environment: Environment | None = None,
) -> StagedTable:
    """Stage a table's metadata with a prefix of its paths replaced, and list the files to copy.

    Args:
        catalog: has the table.
        table: its name.
        source_prefix: a folder in which every file of the table lies.
        target_prefix: what stands in its place then.
        start_version: name or path of a metadata file of the table's log: what it reaches was
            copied before, and is neither staged nor listed.
        end_version: of the last that is staged; None: the newest.
        staging_location: a folder; None: a new one in the table's metadata folder.
        create_file_list: whether the list is written.
        environment: ids.

    Raises:
        InvalidInputError: a file outside the prefix, a version that the log does not have, equal
            prefixes.
        NoSuchFileError: a version that the log names is gone.
        NoSuchTableError: no such table.
    """
    if not source_prefix or not target_prefix or source_prefix == target_prefix:
        raise InvalidInputError(
            f"source_prefix {source_prefix!r} and target_prefix {target_prefix!r} must be two "
            "different locations"
        )
    environment = environment or Environment.system()
    version = catalog.load(table)
    storage = catalog.storage(version.metadata.location)
    log = [
        *(entry.metadata_file for entry in version.metadata.metadata_log),
        version.metadata_location,
    ]
    end = log.index(_version(log, end_version, "end_version")) if end_version else len(log) - 1
    start = log.index(_version(log, start_version, "start_version")) if start_version else -1
    if start >= end:
        raise InvalidInputError(f"start_version {start_version} is not before {log[end]}")
    staging = staging_location or join(
        metadata_folder(version.metadata), f"copy-table-staging-{environment.new_uuid()}"
    )
    folders = ((source_prefix, target_prefix),)
    staged = _Staged(str(table), folders, storage, staging)
    if start_version:
        staged.is_copied = True
        staged.rewritten(staged.version(log[start]))
        staged.is_copied, staged.manifests, staged.deletes = False, 0, 0
    staged.write_version(log[end])
    staged.is_current = False
    for location in log[start + 1 : end]:
        staged.write_version(location)
    file_list = join(staging, FILE_LIST)
    if create_file_list:
        lines = "".join(f"{source},{target}\n" for target, source in sorted(staged.plan.items()))
        storage.write(file_list, lines.encode())
    return StagedTable(
        str(table),
        basename(log[end]),
        staging,
        file_list if create_file_list else None,
        staged.manifests,
        staged.deletes,
    )


def _version(log: list[str], named: str, argument: str) -> str:
    """The metadata file of the log that is named by its path or its name."""
    for location in log:
        if named in (location, basename(location)):
            return location
    raise InvalidInputError(
        f"{argument} {named} is not in the table's metadata log: it has "
        f"{basename(log[0])} to {basename(log[-1])}"
    )


@dataclass
class _Staged(RewrittenPaths):
    """What is staged of a table.

    `plan`: where a file goes -> where it lies; `is_copied`: files were copied before, what becomes
    of them is only needed to be known; `is_current`: files are followed, not only named.
    """

    storage: Storage
    staging: str
    is_copied: bool = False
    is_current: bool = True
    plan: dict[str, str] = field(default_factory=dict)
    copied: set[str] = field(default_factory=set)

    def version(self, location: str) -> dict[str, Any]:
        """The JSON of a metadata file. Raises NoSuchFileError."""
        data = self.storage.read(location)
        document: dict[str, Any] = orjson.loads(
            gzip.decompress(data) if data.startswith(_GZIP) else data
        )
        return document

    def write_version(self, location: str) -> None:
        """Stage a metadata file under the name that it has, compressed if it is."""
        try:
            is_zipped = self.storage.read_range(location, 0, 2) == _GZIP
            metadata = self.version(location)
        except NoSuchFileError as error:
            raise NoSuchFileError(
                f"{self.name}: {location} is in the metadata log and gone. Name a later one as "
                "start_version, or expire the log (write.metadata.previous-versions-max)",
                location=location,
            ) from error
        data = orjson.dumps(self.rewritten(metadata))
        self.write(location, gzip.compress(data) if is_zipped else data)

    def rewritten(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """With the metadata log, whose files are staged as well."""
        log = metadata.get("metadata-log", ())
        moved = [{**entry, "metadata-file": self.here(entry["metadata-file"])} for entry in log]
        return {**super().rewritten(metadata), "metadata-log": moved}

    def snapshot(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """Followed where it is one of the newest version; earlier ones may have expired."""
        if self.is_current:
            return super().snapshot(snapshot)
        lists = snapshot.get("manifest-list")
        return snapshot if lists is None else {**snapshot, "manifest-list": self.here(lists)}

    def elsewhere(self, location: str) -> str:
        """Refused: nobody knows where it goes."""
        raise InvalidInputError(
            f"{self.name}: {location} is not under the source prefix {self.folders[0][0]}"
        )

    def read(self, location: str) -> bytes:
        """As it is."""
        return self.storage.read(location)

    def keep(self, location: str, size: int | None = None) -> str:  # noqa: ARG002 - not copied here
        """From where it lies."""
        place = self.here(location)
        if self.is_copied:
            self.copied.add(place)
        elif self.is_current and place not in self.copied:
            self.plan.setdefault(place, location)
        return place

    def write(self, location: str, data: bytes) -> str:
        """In the staging location, at the same place below it."""
        place = self.here(location)
        if self.is_copied:
            self.copied.add(place)
            return place
        inner = place[len(self.folders[0][1].rstrip("/")) :]
        staged = join(self.staging, inner)
        self.storage.write(staged, data)
        self.plan[place] = staged
        return place
