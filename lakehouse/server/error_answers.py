"""Errors of this library as answers (REST catalog: ErrorModel).

A client deletes its files when it believes that a commit failed, and repeats what it believes never
happened. So 409 is for what certainly lost, 503 for what certainly did not happen and may be tried
again, 500 for everything that may have happened. Messages begin with the words of Iceberg's Java,
which clients are known to look for.
"""

from __future__ import annotations

import logging

from lakehouse.catalog.commit_outcome import is_certain
from lakehouse.errors import (
    AlreadyExistsError,
    CommitConflictError,
    CommitStateUnknownError,
    ForbiddenError,
    InvalidInputError,
    InvalidViewError,
    LakehouseError,
    MaintenanceRefusedError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchRefError,
    NoSuchSnapshotError,
    NoSuchTableError,
    NoSuchViewError,
    StorageError,
    UnsupportedFeatureError,
    ValidationConflictError,
)
from lakehouse.server.http_messages import Answer, json_answer

log = logging.getLogger(__name__)


class HttpError(LakehouseError):
    """An error that only HTTP has.

    Args:
        status: of the answer.
        kind: `type` of the error body.
        message: what happened.
    """

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind = status, kind

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.status, self.kind, self.message))


_CODES: tuple[tuple[type[LakehouseError], int, str], ...] = (
    (NoSuchTableError, 404, "NoSuchTableException"),
    (NoSuchViewError, 404, "NoSuchViewException"),
    (NoSuchNamespaceError, 404, "NoSuchNamespaceException"),
    (AlreadyExistsError, 409, "AlreadyExistsException"),
    (NamespaceNotEmptyError, 409, "NamespaceNotEmptyException"),
    (CommitConflictError, 409, "CommitFailedException"),
    (ValidationConflictError, 409, "CommitFailedException"),
    (CommitStateUnknownError, 500, "CommitStateUnknownException"),
    (NoSuchSnapshotError, 400, "BadRequestException"),
    (NoSuchRefError, 400, "BadRequestException"),
    (ForbiddenError, 403, "ForbiddenException"),
    (UnsupportedFeatureError, 406, "UnsupportedOperationException"),
    (InvalidViewError, 400, "IllegalArgumentException"),
    (InvalidInputError, 400, "BadRequestException"),
    (MaintenanceRefusedError, 400, "BadRequestException"),
)

_REQUIREMENTS = {
    "assert-create": "table already exists",
    "assert-table-uuid": "UUID does not match",
    "assert-view-uuid": "view UUID does not match",
    "assert-ref-snapshot-id": "branch or tag has changed",
    "assert-last-assigned-field-id": "last assigned field id changed",
    "assert-current-schema-id": "current schema changed",
    "assert-last-assigned-partition-id": "last assigned partition id changed",
    "assert-default-spec-id": "default partition spec changed",
    "assert-default-sort-order-id": "default sort order changed",
}


def error_answer(error: Exception, *, changes: bool) -> Answer:
    """The answer to a request that failed.

    Args:
        error: why.
        changes: whether the request makes a change, whose outcome may be unknown.
    """
    status, kind, message = _classified(error, changes=changes)
    # the server says 503 by itself where it has too much to do, which is no fault of it
    if status >= 500 and not isinstance(error, HttpError):
        log.error("%s", message, exc_info=error)
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    return json_answer(
        {"error": {"message": message, "type": kind, "code": status}}, status, headers
    )


def _classified(error: Exception, *, changes: bool) -> tuple[int, str, str]:
    if isinstance(error, HttpError):
        return error.status, error.kind, error.message
    if isinstance(error, StorageError) and error.retryable and (not changes or is_certain(error)):
        return 503, "ServiceUnavailableException", error.message
    if isinstance(error, LakehouseError):
        for error_type, status, kind in _CODES:
            if isinstance(error, error_type):
                return status, kind, _worded(error)
        return 500, _unknown(error, changes=changes), error.message
    # what went wrong here is for the log: the text may quote what others may not see
    return 500, _unknown(error, changes=changes), "The server failed; its log says why."


def _worded(error: LakehouseError) -> str:
    """The message, behind the words in which Java says it."""
    table, namespace = error.context.get("table"), error.context.get("namespace")
    view, requirement = error.context.get("view"), error.context.get("requirement")
    match error:
        case NoSuchTableError():
            return f"Table does not exist: {table}"
        case NoSuchViewError():
            return f"View does not exist: {view}"
        case NoSuchNamespaceError():
            return f"Namespace does not exist: {namespace}"
        case AlreadyExistsError():
            words = "Already exists"
            if table is not None or view is not None:
                kind = "View" if table is None else "Table"
                other = " with same name" if error.context.get("other_kind") else ""
                words = f"{kind}{other} already exists: {view if table is None else table}"
            elif namespace is not None:
                words = f"Namespace already exists: {namespace}"
        case NamespaceNotEmptyError():
            words = f"Namespace {namespace} is not empty"
        case CommitConflictError() if requirement in _REQUIREMENTS:
            words = f"Requirement failed: {_REQUIREMENTS[str(requirement)]}"
        case _:
            return error.message
    return f"{words}. {error.message}"


def _unknown(error: Exception, *, changes: bool) -> str:
    if changes and not is_certain(error):
        return "CommitStateUnknownException"
    return "InternalServerError"
