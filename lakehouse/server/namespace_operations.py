"""Operations on namespaces."""

from __future__ import annotations

from lakehouse.errors import NoSuchNamespaceError
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_messages import SEPARATOR, Answer, Call, json_answer, names_from_json
from lakehouse.server.paging import page
from lakehouse.server.rest_operation import Operation, Served
from lakehouse.spec.identifier import parse_namespace
from lakehouse.spec.json_fields import optional_list, string_map


def list_namespaces(served: Served, call: Call) -> Answer:
    """Directly below `parent`, or at the top."""
    given = call.query.get("parent", "")
    parent = parse_namespace(tuple(given.split(SEPARATOR))) if given else ()
    shown, token = page(call, served.catalog.list_namespaces(parent))
    return json_answer({"namespaces": [list(one) for one in shown], "next-page-token": token})


def create_namespace(served: Served, call: Call) -> Answer:
    """A namespace with properties."""
    document = call.document()
    namespace = call.read(lambda: names_from_json(document, "body"))
    properties = call.read(lambda: string_map(document.get("properties"), "body.properties"))
    served.catalog.create_namespace(namespace, properties)
    return json_answer({"namespace": list(namespace), "properties": properties})


def load_namespace(served: Served, call: Call) -> Answer:
    """Its properties."""
    namespace = call.namespace()
    properties = served.catalog.namespace_properties(namespace)
    return json_answer({"namespace": list(namespace), "properties": dict(properties)})


def namespace_exists(served: Served, call: Call) -> Answer:
    """No content where it does."""
    namespace = call.namespace()
    if not served.catalog.namespace_exists(namespace):
        raise no_such_namespace(namespace)
    return Answer()


def drop_namespace(served: Served, call: Call) -> Answer:
    """An empty one."""
    served.catalog.drop_namespace(call.namespace())
    return Answer()


def update_properties(served: Served, call: Call) -> Answer:
    """Set some and remove others."""
    namespace, document = call.namespace(), call.document()
    updates = call.read(lambda: string_map(document.get("updates"), "body.updates"))
    removals = call.read(lambda: optional_list(document, "removals", "body"))
    both = set(updates) & {str(one) for one in removals}
    if both:
        raise HttpError(
            422,
            "UnprocessableEntityException",
            f"Properties are set and removed in one request: {', '.join(sorted(both))}.",
        )
    before = served.catalog.namespace_properties(namespace)
    served.catalog.update_namespace_properties(namespace, updates, [str(one) for one in removals])
    return json_answer(
        {
            "updated": sorted(updates),
            "removed": sorted(one for one in removals if one in before),
            "missing": sorted(one for one in removals if one not in before),
        }
    )


def no_such_namespace(namespace: tuple[str, ...]) -> NoSuchNamespaceError:
    """For a name that is none."""
    name = ".".join(namespace)
    return NoSuchNamespaceError(f"No namespace {name}.", namespace=name)


_ONE = "/namespaces/{namespace}"
NAMESPACE_OPERATIONS = (
    Operation("GET", "/namespaces", list_namespaces),
    Operation("POST", "/namespaces", create_namespace, changes=True),
    Operation("HEAD", _ONE, namespace_exists),
    Operation("GET", _ONE, load_namespace),
    Operation("DELETE", _ONE, drop_namespace, changes=True),
    Operation("POST", f"{_ONE}/properties", update_properties, changes=True),
)
