"""Tables that a server told of: their versions by ETag, and how their files are reached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from requests import Response

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.own_folders import table_folders
from lakehouse.errors import NoSuchTableError
from lakehouse.rest.refusals import TABLE, refusal
from lakehouse.rest.rest_session import RestSession, body_of
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import require_str, string_map
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.storage.location import canonical, parent
from lakehouse.storage.storage_protocol import Storage

DELEGATION = "X-Iceberg-Access-Delegation"
_TABLES_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a server said of a table.

    Attributes:
        version: the metadata.
        etag: of the answer; None: the server gives none.
        config: of the table; may hold secrets.
    """

    version: TableVersion
    etag: str | None
    config: Mapping[str, str] = field(repr=False)


class LoadedTables:
    """Tables as the server said them last. Safe to share between threads.

    Args:
        session: asks the server.
        properties: of the catalog; those that the server says of a table come over them.
        storage_factory: makes storages.
    """

    def __init__(
        self,
        session: RestSession,
        properties: Mapping[str, str],
        storage_factory: Callable[[str, Mapping[str, str]], Storage],
    ) -> None:
        self._session, self._properties = session, properties
        self._storage_factory = storage_factory
        self._lock = threading.Lock()
        self._loaded: OrderedDict[Identifier, _Loaded] = OrderedDict()
        self._at: dict[str, Identifier] = {}

    def headers(self) -> dict[str, str]:
        """Of requests whose answers tell how files are reached."""
        return {DELEGATION: "vended-credentials"}

    def load(self, identifier: Identifier) -> TableVersion:
        """The newest version; the object of before where the server says that it still is.

        Raises NoSuchTableError, StorageError, CorruptMetadataError.
        """
        known = self._loaded.get(identifier)
        headers = self.headers()
        if known is not None and known.etag is not None:
            headers["If-None-Match"] = known.etag
        path = self._session.path(identifier.namespace, "tables", identifier.name)
        answer = self._session.send("GET", path, headers=headers, token=self.token(identifier))
        if answer.status_code == 304 and known is not None:
            return known.version
        if answer.status_code >= 300:
            error = refusal(answer, str(identifier), TABLE)
            if isinstance(error, NoSuchTableError):
                self.forget(identifier)
            raise error
        return self.keep(identifier, answer, body_of(answer, str(identifier)))

    def keep(
        self, identifier: Identifier, answer: Response, document: Mapping[str, Any]
    ) -> TableVersion:
        """The version that an answer holds (REST catalog: LoadTableResult, CommitTableResponse).

        Raises CorruptMetadataError.
        """
        location = require_str(document, "metadata-location", str(identifier))
        known = self._loaded.get(identifier)
        version = TableVersion(
            identifier, parse(orjson.dumps(document.get("metadata")), location), location
        )
        etag = answer.headers.get("ETag")
        if "config" in document or known is None:
            config = string_map(document.get("config") or {}, f"{identifier}: config")
        else:  # what answers a commit says nothing of it
            config = dict(known.config)
        self._remember(identifier, _Loaded(version, etag, config))
        return version

    def staged(self, identifier: Identifier, document: Mapping[str, Any]) -> str:
        """The location of a table that is to be created."""
        return require_str(document.get("metadata"), "location", str(identifier))

    def forget(self, identifier: Identifier) -> None:
        """The table is no more, or has another name."""
        with self._lock:
            self._drop(identifier)

    def token(self, identifier: Identifier) -> str | None:
        """What the server said to bring when the table is asked for."""
        known = self._loaded.get(identifier)
        return None if known is None else known.config.get("token")

    def storage(self, location: str) -> Storage:
        """The storage of a location, as the server said of the table that it is part of."""
        known = self._of(location)
        config = {} if known is None else known.config
        return self._storage_factory(location, {**self._properties, **config})

    def _of(self, location: str) -> _Loaded | None:
        folder = canonical(location).rstrip("/")
        while folder:
            identifier = self._at.get(folder)
            if identifier is not None:
                return self._loaded.get(identifier)
            above = parent(folder)
            if above == folder:
                break
            folder = above
        return None

    def _remember(self, identifier: Identifier, loaded: _Loaded) -> None:
        with self._lock:
            self._drop(identifier)
            self._loaded[identifier] = loaded
            for folder in table_folders(loaded.version.metadata):
                self._at[canonical(folder).rstrip("/")] = identifier
            while len(self._loaded) > _TABLES_MAX:
                self._drop(next(iter(self._loaded)))

    def _drop(self, identifier: Identifier) -> None:
        known = self._loaded.pop(identifier, None)
        if known is None:
            return
        for folder in table_folders(known.version.metadata):
            if self._at.get(canonical(folder).rstrip("/")) == identifier:
                del self._at[canonical(folder).rstrip("/")]
