"""Tables as a server gave them: their versions by ETag, and how their files are reached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import orjson
from requests import Response

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.confinement import table_folders
from lakehouse.environment import Environment
from lakehouse.errors import NoSuchTableError
from lakehouse.rest.refusals import TABLE, refusal
from lakehouse.rest.rest_session import RestSession, body_of
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import require_str, string_map
from lakehouse.spec.metadata.lazy_json_list import JsonList
from lakehouse.spec.metadata.metadata_json import parse
from lakehouse.spec.metadata.snapshot import MetadataLogEntry, Snapshot, SnapshotLogEntry
from lakehouse.spec.metadata.table_metadata import TableMetadata, metadata_log, snapshot_log
from lakehouse.storage.delegated.remote_signer import ENDPOINT, OLD_ENDPOINT, SIGNING_CONFIG
from lakehouse.storage.delegated.vended_credentials import (
    REFRESH_ENDPOINT,
    STORAGE_CREDENTIALS,
    VendedCredentials,
    credentials_from_json,
    credentials_to_text,
)
from lakehouse.storage.location import canonical, parent
from lakehouse.storage.s3_client import is_signed_elsewhere
from lakehouse.storage.storage_protocol import Storage

DELEGATION = "X-Iceberg-Access-Delegation"
SNAPSHOTS = "snapshot-loading-mode"
"""Catalog property: `all`, or `refs` for snapshots that are loaded when they are needed."""
_WAYS = ["vended-credentials", *(["remote-signing"] if find_spec("botocore") else [])]
_CREDENTIALS = "GET /namespaces/{namespace}/tables/{table}/credentials"
_RENEWED = (
    STORAGE_CREDENTIALS,
    *("s3.access-key-id", "s3.secret-access-key", "s3.session-token"),
    *("gcs.oauth2.token", "adls.sas-token"),
)
"""How the names of properties begin that a storage renews."""
_TABLES_MAX = 1024


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What a server said of a table.

    Attributes:
        version: the metadata.
        etag: of the answer; None: the server gives none.
        access: storage properties of the table; may hold secrets.
        is_ending: whether it is time for other credentials, and nobody would ask for them.
    """

    version: TableVersion
    etag: str | None
    access: Mapping[str, str] = field(repr=False)
    is_ending: Callable[[], bool]


class LoadedTables:
    """Tables as the server said them last. Safe to share between threads.

    Args:
        session: asks the server.
        properties: of the catalog; those that the server says of a table come over them.
        uri: of the server, with name and password where it has them: storages ask it, too.
        storage_factory: makes storages.
        environment: clock.
    """

    def __init__(
        self,
        session: RestSession,
        properties: Mapping[str, str],
        uri: str,
        storage_factory: Callable[[str, Mapping[str, str]], Storage],
        environment: Environment,
    ) -> None:
        self._session, self._properties = session, properties
        self._catalog = {**properties, "uri": uri}
        self._storage_factory, self._environment = storage_factory, environment
        self._loads_few = properties.get(SNAPSHOTS, "all").lower() == "refs"
        self._lock = threading.Lock()
        self._loaded: OrderedDict[Identifier, _Loaded] = OrderedDict()
        self._at: dict[str, Identifier] = {}

    def headers(self) -> dict[str, str]:
        """Of requests whose answers tell how files are reached."""
        given = f"header.{DELEGATION}".lower()
        if any(name.lower() == given for name in self._properties):
            return {}
        return {DELEGATION: ",".join(_WAYS)}

    def load(self, identifier: Identifier) -> TableVersion:
        """The newest version; the object of before where the server says that it still is.

        Raises NoSuchTableError, StorageError, CorruptMetadataError.
        """
        known = self._loaded.get(identifier)
        headers = self.headers()
        if known is not None and known.etag is not None and not known.is_ending():
            headers["If-None-Match"] = known.etag
        path = self._session.path(identifier.namespace, "tables", identifier.name)
        query = {"snapshots": "refs"} if self._loads_few else {}
        answer = self._session.send(
            "GET", path, query=query, headers=headers, token=self.token(identifier)
        )
        if answer.status_code == 304 and known is not None:
            return known.version
        if answer.status_code >= 300:
            error = refusal(answer, str(identifier), TABLE)
            if isinstance(error, NoSuchTableError):
                self.forget(identifier)
            raise error
        document = body_of(answer, str(identifier))
        return self.keep(identifier, answer, document, few=self._loads_few)

    def keep(
        self,
        identifier: Identifier,
        answer: Response,
        document: Mapping[str, Any],
        *,
        committed: bool = False,
        few: bool = False,
    ) -> TableVersion:
        """The version that an answer holds.

        Args:
            identifier: of the table.
            answer: its headers have the tag.
            document: LoadTableResult; or CommitTableResponse, which tells nothing of files.
            committed: whether it is that.
            few: whether only snapshots are in it that branches and tags name.

        Raises CorruptMetadataError.
        """
        location = require_str(document, "metadata-location", str(identifier))
        known = self._loaded.get(identifier)
        metadata = parse(orjson.dumps(document.get("metadata")), location)
        if few:
            late = JsonList.late(metadata.snapshots, partial(self._snapshots, identifier))
            metadata = replace(metadata, snapshots=late)
        version = TableVersion(identifier, metadata, location)
        etag = answer.headers.get("ETag")
        if known is not None and committed:
            self._remember(identifier, replace(known, version=version, etag=etag))
        else:
            self._remember(identifier, self._with_access(version, etag, document, known))
        return version

    def keep_appended(
        self, base: TableVersion, document: Mapping[str, Any]
    ) -> tuple[TableVersion, Snapshot]:
        """The version that an append made, and its snapshot.

        Args:
            base: the version that it was made for.
            document: with the named snapshots alone, the append's, the newest entry of the metadata
                log, and no snapshot log.

        Raises CorruptMetadataError.
        """
        identifier, before = base.identifier, base.metadata
        location = require_str(document, "metadata-location", str(identifier))
        metadata = parse(orjson.dumps(document.get("metadata")), location)
        snapshot = Snapshot.from_json(document.get("snapshot"), f"{identifier}: snapshot")
        entry = (snapshot.snapshot_id, snapshot, snapshot.to_json(metadata.format_version))
        log = metadata.metadata_log
        is_next = bool(log) and log[-1].metadata_file == base.metadata_location
        is_only = metadata.last_sequence_number == before.last_sequence_number + 1
        if is_next and is_only and not before.snapshots.is_late:
            snapshots = before.snapshots.append(*entry)
        else:
            few = metadata.snapshots
            few = few if few.has(snapshot.snapshot_id) else few.append(*entry)
            snapshots = JsonList.late(few, partial(self._snapshots, identifier))
        metadata = replace(
            metadata,
            snapshots=snapshots,
            snapshot_log=JsonList.late(snapshot_log(), partial(self._snapshot_log, identifier)),
            metadata_log=JsonList.late(metadata_log(), partial(self._metadata_log, identifier)),
        )
        version = TableVersion(identifier, metadata, location)
        known = self._loaded.get(identifier)
        if known is not None:
            self._remember(identifier, replace(known, version=version, etag=None))
        return version, snapshot

    def _with_access(
        self,
        version: TableVersion,
        etag: str | None,
        document: Mapping[str, Any],
        known: _Loaded | None,
    ) -> _Loaded:
        name = version.identifier
        access = string_map(document.get("config") or {}, f"{name}: config")
        listed = document.get(STORAGE_CREDENTIALS)
        if listed:
            credentials = credentials_from_json(listed, f"{name}: {STORAGE_CREDENTIALS}")
            access[STORAGE_CREDENTIALS] = credentials_to_text(credentials)
        path = self._session.path(name.namespace, "tables", name.name)
        if self._session.offers(_CREDENTIALS):
            access.setdefault(REFRESH_ENDPOINT, self._session.url(f"{path}/credentials"))
        if is_signed_elsewhere(access):
            if not {ENDPOINT, OLD_ENDPOINT} & access.keys():
                access[ENDPOINT] = self._session.url(f"{path}/sign")
            signing = document.get(SIGNING_CONFIG)
            access[SIGNING_CONFIG] = orjson.dumps(signing or {}).decode()
        vended = VendedCredentials({**self._catalog, **access}, self._environment)
        if (
            vended.renews
            and known is not None
            and known.version.metadata.table_uuid == (version.metadata.table_uuid)
        ):
            # the storage that is in use renews its own
            kept = {key: value for key, value in known.access.items() if key.startswith(_RENEWED)}
            new = {key for key in access if key.startswith(_RENEWED)}
            if kept.keys() == new and _same_prefixes(kept, access):
                access |= kept
        is_ending = vended.is_ending if not vended.renews else _never
        return _Loaded(version, etag, access, is_ending)

    def _snapshots(self, identifier: Identifier) -> JsonList[Snapshot]:
        """All snapshots that the table has by now."""
        return self._asked(identifier, "all").snapshots

    def _snapshot_log(self, identifier: Identifier) -> JsonList[SnapshotLogEntry]:
        return self._asked(identifier, "refs").snapshot_log

    def _metadata_log(self, identifier: Identifier) -> JsonList[MetadataLogEntry]:
        return metadata_log(self._asked(identifier, "refs").metadata_log)

    def _asked(self, identifier: Identifier, snapshots: str) -> TableMetadata:
        """The table as it is by now; nothing of it is kept."""
        path = self._session.path(identifier.namespace, "tables", identifier.name)
        answer = self._session.send(
            "GET", path, query={"snapshots": snapshots}, token=self.token(identifier)
        )
        if answer.status_code >= 300:
            raise refusal(answer, str(identifier), TABLE)
        metadata = body_of(answer, str(identifier)).get("metadata")
        return parse(orjson.dumps(metadata), str(identifier))

    def staged(self, identifier: Identifier, document: Mapping[str, Any]) -> str:
        """The location of a table that is to be created."""
        return require_str(document.get("metadata"), "location", str(identifier))

    def forget(self, identifier: Identifier) -> None:
        """The table is no more, or has another name."""
        with self._lock:
            self._drop(identifier)

    def token(self, identifier: Identifier) -> str | None:
        """What the server wants with requests for the table."""
        return self.access(identifier).get("token")

    def access(self, identifier: Identifier) -> Mapping[str, str]:
        """What the server said of a table, as properties; empty where it was not asked."""
        known = self._loaded.get(identifier)
        return {} if known is None else known.access

    def storage(self, location: str) -> Storage:
        """The storage of a location, as the server said of the table that it is part of."""
        known = self._of(location)
        if known is None:
            return self._storage_factory(location, self._properties)
        return self._storage_factory(location, {**self._catalog, **known.access})

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


def _never() -> bool:
    return False


def _same_prefixes(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    def prefixes(access: Mapping[str, str]) -> set[str]:
        text = access.get(STORAGE_CREDENTIALS, "[]")
        credentials = credentials_from_json(orjson.loads(text), STORAGE_CREDENTIALS)
        return {credential.prefix for credential in credentials}

    return prefixes(one) == prefixes(other)
