"""Appends that our own server commits together with those of others (see PostedAppend)."""

from __future__ import annotations

from requests import Response

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.catalog.commit_outcome import before_the_swap, is_certain
from lakehouse.catalog.posted_append import ENDPOINT as _PATH
from lakehouse.catalog.posted_append import PostedAppend
from lakehouse.catalog.rest.loaded_tables import LoadedTables
from lakehouse.errors import (
    CommitConflictError,
    CommitStateUnknownError,
    InvalidPropertyError,
    LakehouseError,
    StorageError,
    ValidationConflictError,
)
from lakehouse.rest.refusals import TABLE, refusal, told
from lakehouse.rest.rest_session import RestSession, body_of
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.manifests.content_file_json import types_of_partitions
from lakehouse.spec.metadata.snapshot import Snapshot
from lakehouse.spec.metadata.table_metadata import types_of

ENDPOINT = f"POST {_PATH}"
MODE = "append-mode"
"""Catalog property: `own-snapshot` (default), `shared-snapshot`, or `commit`: as other clients."""
_MODES = ("own-snapshot", "shared-snapshot", "commit")


def append_mode(text: str | None) -> str:
    """How appends are made. Raises InvalidPropertyError."""
    mode = (text or _MODES[0]).lower()
    if mode not in _MODES:
        raise InvalidPropertyError(f"{MODE} is one of {', '.join(_MODES)}, not {text!r}.")
    return mode


class RestAppender:
    """Has appends to one table committed by the server.

    Args:
        session: asks the server.
        tables: as the server said them last.
        identifier: of the table.
        shares: whether others may be appended in the same snapshot.
    """

    def __init__(
        self, session: RestSession, tables: LoadedTables, identifier: Identifier, *, shares: bool
    ) -> None:
        self._session, self._tables, self._identifier = session, tables, identifier
        self._shares = shares

    @property
    def shares(self) -> bool:
        """Whether others may be appended in the same snapshot."""
        return self._shares

    def append(self, base: TableVersion, asked: PostedAppend) -> tuple[TableVersion, Snapshot]:
        """The version that has the append, and the snapshot that made it."""
        name, metadata = str(self._identifier), base.metadata
        path = self._session.path(self._identifier.namespace, "tables", self._identifier.name)
        kinds = types_of_partitions(metadata.specs(), types_of(metadata)) if asked.files else None
        try:
            answer = self._session.send(
                "POST",
                f"{path}/appends",
                asked.to_json(kinds),
                token=self._tables.token(self._identifier),
                keyed=True,
            )
        except StorageError as error:
            if is_certain(error):
                raise
            raise _unknown(name, error.message, asked) from error
        if answer.status_code >= 500 or 300 <= answer.status_code < 400:
            reason = f"HTTP {answer.status_code}: {told(answer)[1]}"
            raise _unknown(name, reason, asked)
        if answer.status_code >= 400:
            with before_the_swap():
                raise self._refused(answer, asked)
        try:
            return self._tables.keep_appended(base, body_of(answer, name))
        except LakehouseError as error:
            raise _unknown(name, error.message, asked) from error

    def _refused(self, answer: Response, asked: PostedAppend) -> LakehouseError:
        name, reason = str(self._identifier), told(answer)[1]
        if answer.status_code != 409:
            return refusal(answer, name, TABLE)
        found = self._tables.load(self._identifier).metadata.table_uuid
        kind = CommitConflictError if found == asked.table_uuid else ValidationConflictError
        return kind(f"Table {name}: {reason}", table=name, table_uuid=found)


def _unknown(name: str, reason: str, asked: PostedAppend) -> CommitStateUnknownError:
    return CommitStateUnknownError(
        f"Table {name}: the server did not tell whether the append happened ({reason}). Nothing "
        "was deleted. Refresh the table and look for the snapshot id.",
        table=name,
        snapshot_ids=[asked.append_id],
    )
