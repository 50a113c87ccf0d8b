"""Operations on views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakehouse.catalog.commit_outcome import before_the_swap
from lakehouse.catalog.metadata_files import read_view
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.errors import (
    CommitConflictError,
    InvalidInputError,
    NoSuchViewError,
)
from lakehouse.server.access.asked_privileges import (
    of_registering,
    of_renaming,
    on_namespace,
    on_new,
    on_view,
    path_of,
)
from lakehouse.server.access.confined_tables import check_location
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import (
    Answer,
    Call,
    identifier_from_json,
    identifier_to_json,
    json_answer,
    page,
)
from lakehouse.server.operations.namespace_operations import no_such_namespace
from lakehouse.server.rest_operation import Operation, Served, check_metadata_file
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import (
    optional_list,
    optional_str,
    require_list,
    require_str,
    string_map,
)
from lakehouse.spec.metadata.table_updates import SetLocation, SetProperties
from lakehouse.spec.schema.schema_json import schema_from_json
from lakehouse.spec.table_properties import TableProperties
from lakehouse.spec.views.view_json import version_from_json, view_to_json
from lakehouse.spec.views.view_updates import (
    AssertViewUUID,
    ViewUpdate,
    new_view_metadata,
    view_requirement_from_json,
    view_update_from_json,
)

_ATTEMPTS = 20


def list_views(served: Served, call: Call) -> Answer:
    """Of one namespace."""
    namespace = call.namespace()
    views = served.catalog.views.names(namespace)
    names = [(view.name,) for view in views if served.caller.sees(path_of(view))]
    shown, token = page(call, names)
    listed = [identifier_to_json(Identifier(namespace, name)) for (name,) in shown]
    return json_answer({"identifiers": listed, "next-page-token": token})


def create_view(served: Served, call: Call) -> Answer:
    """A view with its first version."""
    document = call.document()
    identifier = call.new()
    if not served.catalog.namespace_exists(identifier.namespace):
        raise no_such_namespace(identifier.namespace)
    schema = call.read(lambda: schema_from_json(document.get("schema"), "body.schema"))
    version = call.read(lambda: version_from_json(document.get("view-version"), "view-version"))
    location = call.read(lambda: optional_str(document, "location", "body"))
    if location is not None:
        check_location(served.catalog, served.caller, identifier, location)
    properties = call.read(lambda: string_map(document.get("properties"), "properties"))
    _check_path(served, identifier, properties)
    metadata = new_view_metadata(
        view_uuid=str(served.environment.new_uuid()),
        location=location or served.catalog.default_location(identifier),
        schema=schema,
        version=version,
        properties=properties,
        now_ms=served.environment.now_ms(),
    )
    return _answer(served.catalog.views.create(identifier, metadata))


def load_view(served: Served, call: Call) -> Answer:
    """Its metadata."""
    return _answer(served.catalog.views.load(call.view()))


def view_exists(served: Served, call: Call) -> Answer:
    """No content where it does."""
    identifier = call.view()
    if not served.catalog.views.exists(identifier):
        raise NoSuchViewError(f"No view {identifier}.", view=str(identifier))
    return Answer()


def replace_view(served: Served, call: Call) -> Answer:
    """Updates, if requirements hold."""
    identifier, document = call.view(), call.document()
    named = document.get("identifier")
    if named is not None and call.read(lambda: identifier_from_json(named, "body")) != identifier:
        raise InvalidInputError(f"The body names another view than the path, {identifier}.")
    required = call.read(lambda: optional_list(document, "requirements", "body"))
    changes = call.read(lambda: require_list(document.get("updates"), "updates"))
    requirements = call.read(
        lambda: [view_requirement_from_json(requirement) for requirement in required]
    )
    updates = call.read(lambda: [view_update_from_json(update) for update in changes])
    for update in updates:
        if isinstance(update, SetLocation):
            check_location(served.catalog, served.caller, identifier, update.location)
        if isinstance(update, SetProperties):
            _check_path(served, identifier, update.updates)
    return _answer(_change(served, identifier, requirements, updates))


def _check_path(served: Served, identifier: Identifier, properties: Mapping[str, str]) -> None:
    """Raise HttpError, 403, where the caller may not have metadata files written there."""
    path = properties.get(TableProperties.metadata_path.name)
    if path is not None:
        check_location(served.catalog, served.caller, identifier, path)


def _change(
    served: Served,
    identifier: Identifier,
    requirements: Sequence[AssertViewUUID],
    updates: Sequence[ViewUpdate],
) -> StoredView:
    """Apply the updates to the newest version.

    A race that is lost is run again; sent again, the updates change nothing: their version is
    there.
    """
    views = served.catalog.views
    for _ in range(_ATTEMPTS):
        with before_the_swap():
            base = views.load(identifier)
        try:
            return views.commit(base, requirements, updates)
        except CommitConflictError:
            with before_the_swap():
                if views.load(identifier).metadata_location == base.metadata_location:
                    raise
    raise CommitConflictError(
        f"View {identifier}: others changed it first, {_ATTEMPTS} times. Try again.",
        view=str(identifier),
    )


def drop_view(served: Served, call: Call) -> Answer:
    """The name; the metadata files stay."""
    served.catalog.views.drop(call.view())
    return Answer()


def rename_view(served: Served, call: Call) -> Answer:
    """Also into another namespace."""
    served.catalog.views.rename(*call.renaming())
    return Answer()


def register_view(served: Served, call: Call) -> Answer:
    """A view that exists, by its metadata file."""
    document = call.document()
    location = call.read(lambda: require_str(document, "metadata-location", "body"))
    check_metadata_file(served, location, read_view)
    return _answer(served.catalog.views.register(call.new(), location))


def named_view_is_there(served: Served, call: Call) -> Answer:
    """The view that the body names, as it is now."""
    return _answer(served.catalog.views.load(call.new()))


def _answer(view: StoredView) -> Answer:
    return json_answer(
        {
            "metadata-location": view.metadata_location,
            "metadata": view_to_json(view.metadata),
            "config": {},
        }
    )


_ALL = "/namespaces/{namespace}/views"
_ONE = f"{_ALL}/{{view}}"
VIEW_OPERATIONS = (
    Operation("GET", _ALL, list_views, asks=on_namespace(None)),
    Operation(
        "POST",
        _ALL,
        create_view,
        changes=True,
        again=named_view_is_there,
        asks=on_new(Privilege.CREATE),
    ),
    Operation("HEAD", _ONE, view_exists, asks=on_view(Privilege.READ)),
    Operation("GET", _ONE, load_view, asks=on_view(Privilege.READ)),
    Operation(
        "POST",
        _ONE,
        replace_view,
        changes=True,
        again=load_view,
        asks=on_view(Privilege.WRITE),
    ),
    Operation("DELETE", _ONE, drop_view, changes=True, asks=on_view(Privilege.DROP)),
    Operation(
        "POST",
        "/namespaces/{namespace}/register-view",
        register_view,
        changes=True,
        again=named_view_is_there,
        asks=of_registering,
    ),
    Operation("POST", "/views/rename", rename_view, changes=True, asks=of_renaming),
)
