"""Operations on functions, which no catalog of ours has: none are listed, and none is there."""

from __future__ import annotations

from lakehouse.server.access.asked_privileges import on_namespace
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_messages import Answer, Call, json_answer
from lakehouse.server.operations.namespace_operations import no_such_namespace
from lakehouse.server.paging import page
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.identifier import dotted


def list_functions(served: Served, call: Call) -> Answer:
    """Of one namespace: none."""
    _check_namespace(served, call)
    page(call, [])  # raises where the parameters are wrong
    return json_answer({"identifiers": [], "next-page-token": None})


def load_function(served: Served, call: Call) -> Answer:
    """Raises HttpError, 404."""
    _check_namespace(served, call)
    name = dotted((*call.namespace(), call.names["function"]))
    raise HttpError(404, "NoSuchFunctionException", f"Function does not exist: {name}")


def _check_namespace(served: Served, call: Call) -> None:
    namespace = call.namespace()
    if not served.catalog.namespace_exists(namespace):
        raise no_such_namespace(namespace)


_ALL = "/namespaces/{namespace}/functions"
FUNCTION_OPERATIONS = (
    Operation("GET", _ALL, list_functions, asks=on_namespace(None)),
    Operation("GET", f"{_ALL}/{{function}}", load_function, asks=on_namespace(None)),
)
