"""What a server answered instead of what was asked for (REST catalog: ErrorModel)."""

from __future__ import annotations

import orjson
from requests import Response

from lakehouse.errors import (
    ForbiddenError,
    InvalidInputError,
    LakehouseError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
    ViewAlreadyExistsError,
)

TABLE, VIEW, NAMESPACE, CATALOG = "table", "view", "namespace", "catalog"
_ABSENT: dict[str, type[LakehouseError]] = {
    TABLE: NoSuchTableError,
    VIEW: NoSuchViewError,
    NAMESPACE: NoSuchNamespaceError,
}
_THERE: dict[str, type[LakehouseError]] = {
    TABLE: TableAlreadyExistsError,
    VIEW: ViewAlreadyExistsError,
    NAMESPACE: NamespaceAlreadyExistsError,
}
_TEXT_MAX = 500
_MISSING_NAMESPACE = "NoSuchNamespaceException"
_NOT_KNOWN = (401, 419)


def told(answer: Response) -> tuple[str, str]:
    """Type and message of an error, its first line; both empty where the body has none."""
    try:
        error = dict(orjson.loads(answer.content))["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError):
        return "", answer.reason or f"HTTP {answer.status_code}"
    return kind, message.partition("\n")[0][:_TEXT_MAX] or kind


def refusal(answer: Response, name: str, subject: str) -> LakehouseError:
    """The error that an answer is.

    Args:
        answer: of status 400 and above.
        name: what was asked for.
        subject: which kind of thing that is: `table`, `view`, `namespace` or `catalog`.
    """
    status = answer.status_code
    kind, message = told(answer)
    text = f"{name}: {message}"
    if status == 404 and kind == _MISSING_NAMESPACE:
        return NoSuchNamespaceError(text, namespace=name)
    if status == 404 and subject in _ABSENT:
        return _ABSENT[subject](text, **{subject: name})
    if status == 409:
        return _taken(text, kind, message, name, subject)
    if status in (406, 501):
        return UnsupportedFeatureError(text)
    if status == 403:
        return ForbiddenError(text, outcome="failed")
    if status in _NOT_KNOWN or status == 429:
        return StorageError(f"{text} (HTTP {status})", retryable=status == 429, outcome="failed")
    if status < 500:
        return InvalidInputError(text)
    return StorageError(text, retryable=status == 503)


def _taken(text: str, kind: str, message: str, name: str, subject: str) -> LakehouseError:
    if subject == NAMESPACE and ("NotEmpty" in kind or "not empty" in message):
        return NamespaceNotEmptyError(text, namespace=name)
    if subject == VIEW and message.startswith("Table"):
        return TableAlreadyExistsError(text, table=name, other_kind=True)
    if subject == TABLE and message.startswith("View"):
        return ViewAlreadyExistsError(text, view=name, other_kind=True)
    return _THERE.get(subject, InvalidInputError)(text, **{subject: name})
