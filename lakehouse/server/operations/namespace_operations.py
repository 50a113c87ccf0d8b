"""Operations on namespaces, and on functions: no catalog of ours has any."""

from __future__ import annotations

from collections.abc import Iterable

from lakehouse.errors import InvalidInputError, NoSuchNamespaceError
from lakehouse.server.access.asked_privileges import nothing, on_named_namespace, on_namespace
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_messages import (
    SEPARATOR,
    Answer,
    Call,
    json_answer,
    names_from_json,
    page,
)
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.identifier import dotted, parse_namespace
from lakehouse.spec.json_fields import optional_list, string_map


def list_namespaces(served: Served, call: Call) -> Answer:
    """Directly below `parent`, or at the top."""
    parent_text = call.query.get("parent", "")
    parent = parse_namespace(tuple(parent_text.split(SEPARATOR))) if parent_text else ()
    names = [
        namespace
        for namespace in served.catalog.list_namespaces(parent)
        if served.caller.sees(namespace)
    ]
    shown, token = page(call, names)
    return json_answer(
        {"namespaces": [list(namespace) for namespace in shown], "next-page-token": token}
    )


def create_namespace(served: Served, call: Call) -> Answer:
    """A namespace with properties."""
    namespace, properties = _created(call)
    served.catalog.create_namespace(namespace, properties)
    return namespace_was_created(served, call)


def namespace_was_created(_served: Served, call: Call) -> Answer:
    """As when it was."""
    namespace, properties = _created(call)
    return json_answer({"namespace": list(namespace), "properties": properties})


def _created(call: Call) -> tuple[tuple[str, ...], dict[str, str]]:
    document = call.document()
    namespace = call.read(lambda: names_from_json(document, "body"))
    return namespace, call.read(lambda: string_map(document.get("properties"), "body.properties"))


def load_namespace(served: Served, call: Call) -> Answer:
    """Its properties."""
    namespace = call.namespace()
    properties = served.catalog.namespace_properties(namespace)
    return json_answer({"namespace": list(namespace), "properties": dict(properties)})


def namespace_exists(served: Served, call: Call) -> Answer:
    """No content where it does."""
    _check_namespace(served, call)
    return Answer()


def drop_namespace(served: Served, call: Call) -> Answer:
    """An empty one."""
    served.catalog.drop_namespace(call.namespace())
    return Answer()


def update_properties(served: Served, call: Call) -> Answer:
    """Set some and remove others."""
    namespace, (updates, removals) = call.namespace(), _changed(call)
    both = set(updates) & set(removals)
    if both:
        raise HttpError(
            422,
            "UnprocessableEntityException",
            f"Properties are set and removed in one request: {', '.join(sorted(both))}.",
        )
    before = served.catalog.namespace_properties(namespace)
    served.catalog.update_namespace_properties(namespace, updates, removals)
    return _updated(updates, removals, [removal for removal in removals if removal not in before])


def properties_were_updated(_served: Served, call: Call) -> Answer:
    """As when they were; what was missing then is not known any more."""
    return _updated(*_changed(call), [])


def _changed(call: Call) -> tuple[dict[str, str], list[str]]:
    document = call.document()
    removals = call.read(lambda: optional_list(document, "removals", "body"))
    if not all(isinstance(removal, str) for removal in removals):
        raise InvalidInputError("body.removals: expected a list of strings.")
    return call.read(lambda: string_map(document.get("updates"), "body.updates")), removals


def _updated(updates: Iterable[str], removals: Iterable[str], missing: Iterable[str]) -> Answer:
    return json_answer(
        {
            "updated": sorted(updates),
            "removed": sorted(set(removals) - set(missing)),
            "missing": sorted(missing),
        }
    )


def no_such_namespace(namespace: tuple[str, ...]) -> NoSuchNamespaceError:
    """For a name that is none."""
    name = dotted(namespace)
    return NoSuchNamespaceError(f"No namespace {name}.", namespace=name)


def list_functions(served: Served, call: Call) -> Answer:
    """Of a namespace: none."""
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


_ONE = "/namespaces/{namespace}"
_FUNCTIONS = f"{_ONE}/functions"
NAMESPACE_OPERATIONS = (
    Operation("GET", "/namespaces", list_namespaces, asks=nothing),
    Operation(
        "POST",
        "/namespaces",
        create_namespace,
        changes=True,
        again=namespace_was_created,
        asks=on_named_namespace(Privilege.CREATE),
    ),
    Operation("HEAD", _ONE, namespace_exists, asks=on_namespace(None)),
    Operation("GET", _ONE, load_namespace, asks=on_namespace(None)),
    Operation("DELETE", _ONE, drop_namespace, changes=True, asks=on_namespace(Privilege.DROP)),
    Operation(
        "POST",
        f"{_ONE}/properties",
        update_properties,
        changes=True,
        again=properties_were_updated,
        asks=on_namespace(Privilege.MANAGE),
    ),
    Operation("GET", _FUNCTIONS, list_functions, asks=on_namespace(None)),
    Operation("GET", f"{_FUNCTIONS}/{{function}}", load_function, asks=on_namespace(None)),
)
