"""Access: tokens for principals; to a table's files by credentials, or signatures for requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from lakehouse.catalog.catalog_protocol import TableVersion
from lakehouse.errors import ForbiddenError, InvalidInputError, UnsupportedFeatureError
from lakehouse.server.access.asked_privileges import on_table
from lakehouse.server.access.confined_tables import is_location_certain
from lakehouse.server.access.doorkeeper import OAuthError, client_secret
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.delegation.file_access import AccessRules, FileAccess
from lakehouse.server.delegation.signable_requests import SignRequest
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.json_fields import optional_str, require_list, require_object, require_str

_BODY_MAX = 4 * 1024 * 1024
_PRIVATE = {"Cache-Control": "no-store"}


def load_credentials(served: Served, call: Call) -> Answer:
    """New ones, for who has the table loaded already."""
    access, version = _access(served), _certain(served, call)
    credentials = access.credentials(served.caller, version.identifier, version.metadata)
    return json_answer({"storage-credentials": credentials}, headers=_PRIVATE)


def sign_request(served: Served, call: Call) -> Answer:
    """The server's signature under a request about the table's files."""
    document = call.document()
    request = call.read(lambda: _request(document))
    access, version = _access(served), _certain(served, call)
    headers = access.sign(served.caller, version.identifier, version.metadata, request)
    return json_answer(
        {"uri": request.uri, "headers": headers}, headers={"Cache-Control": "no-cache"}
    )


def _certain(served: Served, call: Call) -> TableVersion:
    version = served.tables.newest(call.table())
    if not is_location_certain(served.caller, version):
        raise ForbiddenError(
            f"The metadata file of {version.identifier} is not in the folder metadata of its "
            "location: access is handed out to who manages the catalog alone."
        )
    return version


def _request(document: Mapping[str, Any]) -> SignRequest:
    if (optional_str(document, "provider", "body") or "s3") != "s3":
        raise InvalidInputError("Requests to S3 alone are signed.")
    headers: dict[str, tuple[str, ...]] = {}
    for name, values in require_object(document.get("headers"), "headers").items():
        listed = require_list(values, f"headers.{name}")
        if name.lower() in headers or not all(isinstance(value, str) for value in listed):
            raise InvalidInputError(f"headers.{name} must be texts, once.")
        headers[name.lower()] = tuple(listed)
    return SignRequest(
        require_str(document, "method", "body"),
        require_str(document, "uri", "body"),
        headers,
        optional_str(document, "body", "body"),
    )


def _access(served: Served) -> FileAccess:
    if served.files is None:
        raise UnsupportedFeatureError("This server hands out no access to files.")
    return served.files


_TABLE = "/namespaces/{namespace}/tables/{table}"
_READ = on_table(Privilege.READ)


def access_operations(rules: AccessRules | None) -> tuple[Operation, ...]:
    """Those that the rules allow are listed."""
    vends, signs = rules is not None and rules.role is not None, rules is not None and rules.signs
    return (
        Operation("GET", f"{_TABLE}/credentials", load_credentials, asks=_READ, listed=vends),
        Operation(
            "POST", f"{_TABLE}/sign", sign_request, asks=_READ, listed=signs, body_max=_BODY_MAX
        ),
    )


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
