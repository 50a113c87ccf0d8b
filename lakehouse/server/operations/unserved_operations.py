"""Operations of the specification that this server does not have: 406, and no place in the list."""

from __future__ import annotations

from lakehouse.errors import UnsupportedFeatureError
from lakehouse.server.access.asked_privileges import nothing
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.rest_operation import Operation, Served


def refuse(_served: Served, _call: Call) -> Answer:
    """Raises UnsupportedFeatureError."""
    raise UnsupportedFeatureError("This server does not have this operation; /v1/config lists all.")


_NAMESPACE = "/namespaces/{namespace}"
_TABLE = f"{_NAMESPACE}/tables/{{table}}"
_NAMES = (
    ("GET", f"{_NAMESPACE}/functions"),
    ("GET", f"{_NAMESPACE}/functions/{{function}}"),
    ("GET", f"{_TABLE}/plan/{{plan_id}}"),
    ("DELETE", f"{_TABLE}/plan/{{plan_id}}"),
    ("POST", f"{_TABLE}/unregister"),
)
UNSERVED_OPERATIONS = tuple(
    Operation(method, path, refuse, listed=False, asks=nothing) for method, path in _NAMES
)
