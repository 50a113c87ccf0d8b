"""What a server answered instead of what was requested (REST catalog: ErrorModel)."""

from __future__ import annotations

import re

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
_SIGNED = re.compile("AWS4-HMAC-SHA256 Credential=([^/]*)/[^/]*/([^/]*)/([^/]*)/")


def error_of(answer: Response) -> tuple[str, str]:
    """Type and message of an error, its first line; the type is empty where the body has none.

    AWS answers what it does not let through in a form of its own.
    """
    try:
        document = dict(orjson.loads(answer.content))
        of_aws = document.get("message") or document.get("Message")
        if "error" not in document and isinstance(of_aws, str):
            return "", of_aws.partition("\n")[0][:_TEXT_MAX]
        error = document["error"]
        kind, message = str(error["type"]), str(error["message"])
    except (orjson.JSONDecodeError, TypeError, ValueError, KeyError):
        return "", answer.reason or f"HTTP {answer.status_code}"
    return kind, message.partition("\n")[0][:_TEXT_MAX] or kind


def refusal(answer: Response, name: str, subject: str) -> LakehouseError:
    """The error that an answer is.

    Args:
        answer: of status 400 and above.
        name: what was requested.
        subject: which kind of thing that is: `table`, `view`, `namespace` or `catalog`.
    """
    status = answer.status_code
    kind, message = error_of(answer)
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
        return ForbiddenError(text + _signed_as(answer), commit_outcome="failed")
    if status in _NOT_KNOWN or status == 429:
        return StorageError(
            f"{text} (HTTP {status})", retryable=status == 429, commit_outcome="failed"
        )
    if status < 500:
        return InvalidInputError(text)
    return StorageError(text, retryable=status == 503)


def _signed_as(answer: Response) -> str:
    """With which key of AWS a refused request was signed, and for what; empty where it was not."""
    match = _SIGNED.match(str(answer.request.headers.get("Authorization")))
    if match is None:
        return ""
    key, region, service = match.groups()
    return (
        f" The request was signed with the key {key}, for {service} in {region}: is it the "
        "server's (rest.signing-name, rest.signing-region), and may the key do that?"
    )


def _taken(text: str, kind: str, message: str, name: str, subject: str) -> LakehouseError:
    if subject == NAMESPACE and ("NotEmpty" in kind or "not empty" in message):
        return NamespaceNotEmptyError(text, namespace=name)
    if subject == VIEW and message.startswith("Table"):
        return TableAlreadyExistsError(text, table=name, other_kind=True)
    if subject == TABLE and message.startswith("View"):
        return ViewAlreadyExistsError(text, view=name, other_kind=True)
    return _THERE.get(subject, InvalidInputError)(text, **{subject: name})
