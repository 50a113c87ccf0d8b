"""Adapter: an Iceberg REST catalog driven through pyiceberg's client.

The server holds the pointer and checks the requirements; it may apply a commit to a newer base than
ours, which is why every operation carries requirements on the refs that it builds on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, cast
from urllib.parse import unquote, urlsplit, urlunsplit

import orjson
from pydantic import TypeAdapter, ValidationError
from pyiceberg import exceptions as theirs
from pyiceberg.catalog.rest import Capability
from pyiceberg.catalog.rest import RestCatalog as Client
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table import Table as TheirTable
from pyiceberg.table.update import TableRequirement, TableUpdate
from requests import Response, Session
from requests.exceptions import RequestException

from lakehouse.catalog.base_catalog import BaseCatalog
from lakehouse.catalog.catalog_protocol import Namespace, TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.confinement import allowed_roots, check_locations, own_folder
from lakehouse.catalog.metadata_files import next_metadata
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.catalog.rest_views import RestViews
from lakehouse.environment import Environment
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    ForbiddenError,
    InvalidInputError,
    LakehouseError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from lakehouse.spec.identifier import Identifier, parse_namespace
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.spec.metadata.table_metadata import TableMetadata
from lakehouse.spec.metadata.table_requirements import Requirement
from lakehouse.spec.metadata.table_updates import Update
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import Storage

_UPDATE: TypeAdapter[Any] = TypeAdapter(cast("Any", TableUpdate))
_REQUIREMENT: TypeAdapter[Any] = TypeAdapter(cast("Any", TableRequirement))

_ERRORS: tuple[tuple[type[Exception], type[LakehouseError]], ...] = (
    (theirs.NoSuchTableError, NoSuchTableError),
    (theirs.NoSuchNamespaceError, NoSuchNamespaceError),
    (theirs.TableAlreadyExistsError, TableAlreadyExistsError),
    (theirs.NamespaceAlreadyExistsError, NamespaceAlreadyExistsError),
    (theirs.NamespaceNotEmptyError, NamespaceNotEmptyError),
    (theirs.BadRequestError, InvalidInputError),
    (theirs.ForbiddenError, ForbiddenError),
    (theirs.RESTError, StorageError),
    (RequestException, StorageError),
    (ValidationError, UnsupportedFeatureError),
)
_WRITTEN_VERSION_MAX = 2
"""pyiceberg's client leaves row ids out of the snapshots that it sends."""


class _Answer(threading.local):
    """The last answer to a request of this thread."""

    text = ""

    def keep(self, response: Response, **_arguments: object) -> None:
        """Remember the server's answer in this thread."""
        self.text = response.text

    def metadata(self) -> bytes:
        """The table metadata in it."""
        return orjson.dumps(orjson.loads(self.text)["metadata"])


class _NoFiles(FileIO):
    """In place of the file access that pyiceberg would make: we read files ourselves."""

    def new_input(self, location: str) -> NoReturn:
        raise UnsupportedFeatureError(
            f"{location} is read by lakehouse.storage, not by the REST client."
        )

    def new_output(self, location: str) -> NoReturn:
        raise UnsupportedFeatureError(
            f"{location} is written by lakehouse.storage, not by the REST client."
        )

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        raise UnsupportedFeatureError(
            f"{location} is deleted by lakehouse.storage, not by the REST client."
        )


class _Client(Client):
    """pyiceberg's client without file access: a table could choose its class (`py-io-impl`).

    Attributes:
        answer: what the server said last in this thread, as it said it: pyiceberg's models leave
            out what they do not know, and cannot be written as JSON for version 3.
    """

    def __init__(self, name: str, **properties: Any) -> None:
        self.answer = _Answer()
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.hooks["response"].append(self.answer.keep)
        return session

    @property
    def serves_views(self) -> bool:
        """Whether the server lists views among its endpoints."""
        return Capability.V1_LIST_VIEWS in self._supported_endpoints

    def namespace_path(self, namespace: Namespace) -> str:
        """A namespace as a part of a path."""
        return self._encode_namespace_path(namespace)

    def ask(
        self, method: str, path: str, body: Any = None, query: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request; the path is that below the server's prefix."""
        return self._session.request(method, self.url("{path}", path=path), json=body, params=query)

    def _load_file_io(
        self,
        properties: Mapping[str, str] | None = None,  # noqa: ARG002
        location: str | None = None,  # noqa: ARG002
    ) -> FileIO:
        return _NoFiles()


class RestCatalog(BaseCatalog):
    """Catalog on an Iceberg REST server.

    Args:
        uri: of the server, `http://...` or `https://...`; `https://user:password@...` logs in with
            HTTP Basic.
        warehouse: location below which tables are created.
        name: for display.
        properties: catalog and storage properties; pyiceberg's client gets them too (`credential`,
            `token`, ...).
        environment: clock.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        uri: str,
        warehouse: str,
        *,
        name: str = "lakehouse",
        properties: Mapping[str, str] | None = None,
        environment: Environment | None = None,
        storage_factory: Callable[[str, Mapping[str, str]], Storage] = storage_for,
    ) -> None:
        super().__init__(warehouse, name, properties, environment, storage_factory)
        self._uri, login = _without_login(uri)
        # those name code to import
        safe = {key: value for key, value in self._properties.items() if not key.startswith("py-")}
        with _translated("the catalog"):
            self._client = _Client(name, uri=self._uri, **{"warehouse": warehouse, **login, **safe})
        self._known: dict[Identifier, TheirTable] = {}

    @property
    def uri(self) -> str:
        """Where the catalog lives, without secrets."""
        return self._uri

    @property
    def views(self) -> RestViews:
        """The views that the server keeps."""
        roots = allowed_roots(self._warehouse, self._properties)
        return RestViews(self._client, self._uri, roots, self._environment)

    @property
    def commits_to_newest(self) -> bool:
        """Whether commits are applied to the newest version, which may be newer than `base`."""
        return True

    def create_namespace(
        self, namespace: Namespace, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a namespace. Parents first where they are missing."""
        parts = parse_namespace(namespace)
        with _translated(".".join(parts)):
            for depth in range(1, len(parts)):
                if not self._client.namespace_exists(parts[:depth]):
                    self._client.create_namespace(parts[:depth])
            self._client.create_namespace(parts, dict(properties or {}))

    def drop_namespace(self, namespace: Namespace) -> None:
        """Drop an empty namespace."""
        with _translated(".".join(namespace)):
            self._client.drop_namespace(parse_namespace(namespace))

    def namespace_exists(self, namespace: Namespace) -> bool:
        """Whether the namespace exists."""
        with _translated(".".join(namespace)):
            return bool(self._client.namespace_exists(parse_namespace(namespace)))

    def list_namespaces(self, parent: Namespace = ()) -> list[Namespace]:
        """Sorted namespaces directly below `parent`."""
        with _translated(".".join(parent)):
            return sorted(tuple(found) for found in self._client.list_namespaces(parent))

    def namespace_properties(self, namespace: Namespace) -> Mapping[str, str]:
        """The namespace's properties."""
        with _translated(".".join(namespace)):
            return dict(self._client.load_namespace_properties(parse_namespace(namespace)))

    def update_namespace_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Sequence[str] = ()
    ) -> Mapping[str, str]:
        """Set and remove properties of a namespace; returns all of them."""
        with _translated(".".join(namespace)):
            self._client.update_namespace_properties(
                parse_namespace(namespace), set(removals), dict(updates)
            )
        return self.namespace_properties(namespace)

    def list_tables(self, namespace: Namespace) -> list[Identifier]:
        """Sorted identifiers of the namespace's tables."""
        with _translated(".".join(namespace)):
            return sorted(
                Identifier(tuple(found[:-1]), found[-1])
                for found in self._client.list_tables(parse_namespace(namespace))
            )

    def table_exists(self, identifier: Identifier) -> bool:
        """Whether `load` would find the table."""
        with _translated(str(identifier)):
            return bool(self._client.table_exists(_tuple(identifier)))

    def load(self, identifier: Identifier) -> TableVersion:
        """The table's newest version."""
        with _translated(str(identifier)):
            return self._version(identifier, self._client.load_table(_tuple(identifier)))

    def refresh(self, version: TableVersion) -> TableVersion:
        """The table's newest version; the same object when nothing was committed since.

        The server is asked for the whole metadata.
        """
        found = self.load(version.identifier)
        return version if found.metadata_location == version.metadata_location else found

    # nobody else is ever given it, staged or not
    def default_location(self, identifier: Identifier, *, staged: bool = False) -> str:  # noqa: ARG002
        """A folder for a new table of this name, unused by any other."""
        return own_folder(self._warehouse, identifier, self._environment)

    def create(
        self, identifier: Identifier, metadata: TableMetadata, *, staged: bool = False
    ) -> TableVersion:
        """Register a new table with its first metadata.

        The server chooses the table's uuid and renumbers its columns, so that no file may have been
        written before.
        """
        if staged:
            raise UnsupportedFeatureError(
                f"Table {identifier}: a REST catalog creates tables without data. Create it, then "
                "write."
            )
        _check_version(identifier, metadata)
        check_locations(metadata, allowed_roots(self._warehouse, self._properties))
        with _translated(str(identifier)):
            made = self._client.create_table(
                _tuple(identifier),
                metadata.schema(),
                location=metadata.location,
                partition_spec=metadata.spec(),
                sort_order=metadata.sort_order(),
                properties={**metadata.properties, "format-version": str(metadata.format_version)},
            )
            return self._version(identifier, made)

    def commit(
        self,
        identifier: Identifier,
        base: TableVersion,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
    ) -> TableVersion:
        """Swap `base` for `base` plus updates, if it is still the newest version."""
        with before_the_swap():
            new = next_metadata(base, requirements, updates, self._environment.now_ms())
            if new is base.metadata:
                return base
            _check_version(identifier, new)
            check_locations(new, allowed_roots(self._warehouse, self._properties))
            table = self._known.get(identifier) or self._loaded(identifier)
            try:
                sent_requirements = tuple(
                    _REQUIREMENT.validate_python(one.to_json()) for one in requirements
                )
                sent_updates = tuple(_UPDATE.validate_python(one.to_json()) for one in updates)
            except ValidationError as error:
                raise InvalidInputError(
                    f"Table {identifier}: the REST client cannot send this change: {error}"
                ) from error
        try:
            answer = self._client.commit_table(table, sent_requirements, sent_updates)
        except theirs.CommitFailedException as error:
            raise CommitConflictError(
                f"Table {identifier}: {error} Refresh and try again.", table=str(identifier)
            ) from error
        except theirs.NoSuchTableError as error:
            raise NoSuchTableError(
                f"Table {identifier} was dropped.", table=str(identifier)
            ) from error
        except (theirs.BadRequestError, theirs.UnauthorizedError, theirs.ForbiddenError) as error:
            if self.refresh(base) is not base:
                raise CommitConflictError(
                    f"Table {identifier}: {error} Refresh and try again.", table=str(identifier)
                ) from error
            raise InvalidInputError(
                f"Table {identifier}: the server refused the commit: {error}", table=str(identifier)
            ) from error
        except (
            theirs.CommitStateUnknownException,
            theirs.RESTError,
            RequestException,
            ValidationError,
            OSError,
        ) as error:
            raise CommitStateUnknownError(
                f"Table {identifier}: the server did not tell whether the commit happened "
                f"({type(error).__name__}). Nothing was deleted. Refresh the table and look for "
                "the snapshot id.",
                table=str(identifier),
            ) from error
        return TableVersion(
            identifier,
            parse(self._client.answer.metadata(), answer.metadata_location),
            answer.metadata_location,
        )

    # The server decides alone.
    def turn(self, identifier: Identifier) -> AbstractContextManager[None]:  # noqa: ARG002
        """Wait for this writer's turn on the table, for a bounded time."""
        return nullcontext()

    def drop(self, identifier: Identifier, *, purge: bool = False) -> None:
        """Remove the table; `purge` deletes what is in its folder as well. The server purges."""
        self._known.pop(identifier, None)
        with _translated(str(identifier)):
            self._client.drop_table(_tuple(identifier), purge_requested=purge)

    def rename(self, source: Identifier, target: Identifier) -> None:
        """Give a table another name."""
        self._known.pop(source, None)
        with _translated(str(source)):
            self._client.rename_table(_tuple(source), _tuple(target))

    def register(self, identifier: Identifier, metadata_location: str) -> TableVersion:
        """Adopt an existing metadata file as a table."""
        with _translated(str(identifier)):
            return self._version(
                identifier, self._client.register_table(_tuple(identifier), metadata_location)
            )

    def _loaded(self, identifier: Identifier) -> TheirTable:
        with _translated(str(identifier)):
            self._known[identifier] = self._client.load_table(_tuple(identifier))
        return self._known[identifier]

    def _version(self, identifier: Identifier, table: TheirTable) -> TableVersion:
        self._known[identifier] = table
        return TableVersion(
            identifier,
            parse(self._client.answer.metadata(), table.metadata_location),
            table.metadata_location,
        )


def _without_login(uri: str) -> tuple[str, dict[str, Any]]:
    """The URL without user and password, and the client's configuration that carries them.

    Errors quote the URL.
    """
    hidden = hide_in_urls(uri)
    try:
        parts = urlsplit(uri)
        known = bool(parts.hostname) and parts.port != 0 and "@" not in parts.path
    except ValueError:  # quotes a part of the URL, which may be a part of the password
        known = False
    if not known:
        raise InvalidInputError(
            f"The URL {hidden} of the REST catalog cannot be read. Percent-encode what is special "
            "in the password."
        )
    if parts.query or parts.fragment:
        raise InvalidInputError(
            f"The URL {hidden} of the REST catalog has parameters, which no request would carry. "
            "Give them as properties of the catalog, such as token."
        )
    if "@" not in parts.netloc:
        return uri, {}
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    basic = {"username": unquote(user), "password": unquote(password)}
    return urlunsplit(parts._replace(netloc=host)), {"auth": {"type": "basic", "basic": basic}}


def _check_version(identifier: Identifier, metadata: TableMetadata) -> None:
    if metadata.format_version > _WRITTEN_VERSION_MAX:
        raise UnsupportedFeatureError(
            f"Table {identifier} has format version {metadata.format_version}: tables of REST "
            f"catalogs are read at any version and written up to {_WRITTEN_VERSION_MAX}. Write it "
            "through a filesystem or SQL catalog.",
            table=str(identifier),
        )


def _tuple(identifier: Identifier) -> tuple[str, ...]:
    return (*identifier.namespace, identifier.name)


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Errors of the client as ours."""
    try:
        yield
    except tuple(kind for kind, _ in _ERRORS) as error:
        ours = next(our for kind, our in _ERRORS if isinstance(error, kind))
        reason = str(error).partition("\n")[0][:500]
        raise ours(f"{what}: {reason or type(error).__name__}", table=what) from error
