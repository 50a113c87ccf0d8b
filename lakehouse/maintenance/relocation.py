"""A copy of a warehouse made one of its own: every path in it that names the original is rewritten.

Metadata, manifest lists, manifests, position delete files and deletion vectors name files by
absolute location. They are written again beside the copied ones, under new names, and each table
changes by one version of its metadata, after a check that the copy has every file that this version
names, with its size. Until then the copy is what it was; the original is not touched, nor opened.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from rich.console import RenderableType

from lakehouse.catalog.catalog_decorator import innermost
from lakehouse.catalog.catalog_protocol import Catalog, walk_tables, walk_views
from lakehouse.catalog.confinement import original_of
from lakehouse.catalog.filesystem.filesystem_catalog import FilesystemCatalog
from lakehouse.catalog.filesystem.version_files import VersionFiles
from lakehouse.catalog.folders import plain_folder
from lakehouse.environment import Environment
from lakehouse.errors import InvalidInputError, NoSuchFileError
from lakehouse.maintenance.rewritten_paths import RewrittenPaths
from lakehouse.maintenance.shown_plan import Progress, Report, listing, no_progress
from lakehouse.spec.identifier import Identifier
from lakehouse.storage.location import canonical, is_within, join
from lakehouse.storage.storage_protocol import Storage

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Relocation(Report):
    """What became of each table and view of a copied warehouse.

    Attributes:
        warehouse: the copy.
        moved: metadata location of each that was rewritten.
        kept: those that name nothing of the original: they were rewritten before, or are new.
        files: metadata and delete files that were written.
        dry_run: whether nothing was written.
    """

    warehouse: str
    moved: Mapping[str, str]
    kept: tuple[str, ...]
    files: int
    dry_run: bool

    def title(self) -> str:
        """`Relocation to /data/warehouse`."""
        return f"Relocation to {self.warehouse}"

    def facts(self) -> Iterable[tuple[str, object]]:
        """How many tables and files."""
        verb = "would be rewritten" if self.dry_run else "rewritten"
        yield f"tables and views {verb}", len(self.moved)
        yield "named their own files already", len(self.kept)
        yield f"files {verb}", self.files

    def detail(self) -> RenderableType | None:
        """The tables, with what they named."""
        return listing(["table", "from"], list(self.moved.items())) if self.moved else None


def relocate(
    catalog: Catalog,
    *,
    original: str | None = None,
    dry_run: bool = False,
    environment: Environment | None = None,
    progress: Progress = no_progress,
) -> Relocation:
    """Make a copied warehouse name its own files. Doing it again, or after a crash, ends it.

    Args:
        catalog: of the copy: a folder or a bucket without a database.
        original: where the warehouse was; None: as its tables say.
        dry_run: only say what would be done.
        environment: names of files.
        progress: see `Progress`.

    Raises:
        InvalidInputError: a catalog with a database, a table of format version 1, or one whose
            location does not tell where the warehouse was.
        NoSuchFileError: the copy lacks a file that a table needs; the table was not changed.
        CommitConflictError: the copy is in use.
    """
    catalog = innermost(catalog)
    if not isinstance(catalog, FilesystemCatalog):
        raise InvalidInputError(
            f"{catalog.uri} says in its database where each table is: a copy of the files alone is "
            "no warehouse. Keep the location, or copy the rows into tables of another catalog"
        )
    environment = environment or Environment.system()
    names = [*walk_tables(catalog), *walk_views(catalog)]
    moved: dict[str, str] = {}
    unmoved: list[str] = []
    files = 0
    for done, name in enumerate(names):
        progress("tables", done, len(names))
        copy = _Copy.of(catalog, name, original, environment)
        if copy is None:
            unmoved.append(str(name))
            continue
        moved[str(name)] = copy.metadata["location"]
        copy.rewrite(dry_run=dry_run)
        files += copy.written + 1
    progress("tables", len(names), len(names))
    return Relocation(catalog.warehouse, moved, tuple(unmoved), files, dry_run)


@dataclass
class _Copy(RewrittenPaths):
    """A table or view of the copy.

    `written`: how many files were made of others; `present`: sizes of the files of the copy, by
    location.
    """

    storage: Storage
    versions: VersionFiles
    folder: str
    number: int
    metadata: dict[str, Any]
    environment: Environment
    dry_run: bool = False
    written: int = 0
    present: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        catalog: FilesystemCatalog,
        name: Identifier,
        original: str | None,
        environment: Environment,
    ) -> _Copy | None:
        """None where it names nothing of the original."""
        folder = plain_folder(catalog.warehouse, (*name.namespace, name.name))
        storage = catalog.storage(folder)
        versions = VersionFiles(storage, environment.new_uuid)
        newest = versions.read_newest(folder, storage.read)
        if newest is None:
            return None
        number, _, data = newest
        metadata = orjson.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
        location = metadata["location"]
        old = original_of(location, folder, catalog.warehouse)
        if original is not None and is_within(location, original):
            old = canonical(original)
        if old is None:
            return None
        roots = ((old, catalog.warehouse),)
        return cls(str(name), roots, storage, versions, folder, number, metadata, environment)

    def rewrite(self, *, dry_run: bool) -> None:
        """Write the new files, look whether all others are there, and then the new version."""
        self.dry_run = dry_run
        properties = self.metadata.get("properties", {})
        named = (
            self.metadata["location"],
            *(value for key, value in properties.items() if key.endswith("path")),
        )
        for folder in {self._moved(path) for path in named if "/" in path} - {None}:
            listed = self.storage.list(str(folder))
            self.present |= {canonical(file.location): file.size for file in listed}
        new = self.rewritten(self.metadata)
        if not dry_run:
            location = self.versions.location(self.folder, self.number + 1)
            self.versions.swap(f"Table {self.name}", location, orjson.dumps(new))
            self.versions.write_hint(self.folder, self.number + 1)

    def read(self, location: str) -> bytes:
        """Of the copy."""
        return self.storage.read(self.here(location))

    def keep(self, location: str, size: int | None = None) -> str:
        """As it was copied. Raises NoSuchFileError: it was not, or not as a whole."""
        place = self.here(location)
        present_size = self.present.get(canonical(place))
        if present_size is None and self.storage.exists(place):
            present_size = self.storage.size(place)
        if present_size is None or size not in (None, present_size):
            raise NoSuchFileError(
                f"{self.name}: {place} is {'missing' if present_size is None else 'not whole'}. "
                "Copy it again, then relocate again; the table was not changed",
                location=place,
            )
        return place

    def write(self, location: str, data: bytes) -> str:
        """Beside the copied one, under a name that no file has."""
        folder, _, name = self.here(location).rpartition("/")
        ending = name.rpartition(".")[2]
        place = join(folder, f"relocated-{self.environment.new_uuid()}.{ending}")
        self.written += 1
        if not self.dry_run:
            self.storage.write_new({place: data})
        return place
