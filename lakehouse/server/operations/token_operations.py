"""Tokens for principals (REST catalog: getToken; RFC 6749, RFC 8693)."""

from __future__ import annotations

from urllib.parse import parse_qsl

from lakehouse.server.access.doorkeeper import OAuthError, client_secret
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.rest_operation import Operation, Served

_FIELDS_MAX = 32
_HEADERS = {"Cache-Control": "no-store"}


def get_token(served: Served, call: Call) -> Answer:
    """For a name with its secret, or for another token."""
    if served.doorkeeper is None:
        return _refused(
            OAuthError(
                400,
                "unsupported_grant_type",
                "Nobody is asked who they are here: there are no tokens, and none is needed.",
            )
        )
    try:
        form = _form(call)
    except ValueError as error:
        return _refused(OAuthError(400, "invalid_request", f"The form cannot be read: {error}"))
    try:
        issued = served.doorkeeper.token(form, call.headers.get("authorization"))
    except OAuthError as error:
        return _refused(error)
    return json_answer(issued, headers=_HEADERS)


def _secret(call: Call) -> tuple[str, str] | None:
    try:
        return client_secret(_form(call), call.headers.get("authorization"))
    except ValueError:  # the answer says so
        return None


def _form(call: Call) -> dict[str, str]:
    return dict(parse_qsl(call.body.decode(), max_num_fields=_FIELDS_MAX))


def _refused(error: OAuthError) -> Answer:
    document = {"error": error.kind, "error_description": error.message}
    return json_answer(document, error.status, _HEADERS)


TOKEN_OPERATIONS = (
    Operation(
        "POST",
        "/oauth/tokens",
        get_token,
        listed=False,
        for_anybody=True,
        secret=_secret,
        body_max=64 * 1024,
    ),
)
