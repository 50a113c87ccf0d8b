"""The page of a view: its SQL, columns, versions, what it reads and who reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import sqlglot
from sqlglot import exp

from lakehouse.catalog.catalog_protocol import walk_namespaces
from lakehouse.catalog.view_protocol import StoredView
from lakehouse.errors import (
    InvalidIdentifierError,
    LakehouseError,
    NoSuchNamespaceError,
    NoSuchViewError,
)
from lakehouse.maintenance.reachability.reachable_files import in_parallel
from lakehouse.server.access.asked_privileges import path_of
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import Answer, Call
from lakehouse.server.rest_operation import Served
from lakehouse.server.watching.page_rendering import age, clock, html_page, table_path, view_path
from lakehouse.server.watching.table_state import (
    TableState,
    computed_from,
    readable_table,
    recent_line,
)
from lakehouse.spec.identifier import Identifier, dotted
from lakehouse.spec.metadata.snapshot import REFRESH_STATE
from lakehouse.spec.views.view_metadata import (
    STORAGE_TABLE,
    SqlRepresentation,
    ViewMetadata,
    ViewVersion,
)

VIEWS_MAX = 500
"""Views whose metadata a page reads to find out what they read."""
VERSIONS_MAX = 100
_SQL_MAX = 100_000
"""Characters of a definition that is looked at for what it reads."""


def view_page(served: Served, call: Call) -> Answer:
    """What it is, its definition by dialect, what it reads and who reads it, its versions."""
    try:
        identifier = call.view()
        view = served.catalog.views.load(identifier)
    except (NoSuchViewError, NoSuchNamespaceError, InvalidIdentifierError) as error:
        return html_page("missing.html", served, 404, message=error.message)
    metadata, version = view.metadata, view.metadata.current_version()
    logged = {
        logged_version.version_id: logged_version.timestamp_ms
        for logged_version in metadata.version_log
    }
    newest = sorted(metadata.versions, key=lambda version: version.version_id, reverse=True)
    return html_page(
        "view.html",
        served,
        view=str(identifier),
        comment=metadata.properties.get("comment", ""),
        kept=_kept(served, metadata),
        changed=f"{age(served, version.timestamp_ms)} ({clock(version.timestamp_ms)} UTC)",
        definitions=definitions(version),
        columns=[
            (
                field.name,
                str(field.field_type),
                "required" if field.required else "",
                field.doc or "",
            )
            for field in metadata.schema().fields
        ],
        reads=[_link(served, names) for names in read_names(version)],
        readers=view_readers(served, identifier),
        versions=[
            {
                "id": version.version_id,
                "current": version.version_id == metadata.current_version_id,
                "at": clock(logged.get(version.version_id, version.timestamp_ms)),
                "by": version.summary.get("engine-name", ""),
                "definitions": definitions(version),
            }
            for version in newest[:VERSIONS_MAX]
        ],
        left=max(len(newest) - VERSIONS_MAX, 0),
        properties=sorted(metadata.properties.items()),
    )


def _kept(served: Served, metadata: ViewMetadata) -> dict[str, Any] | None:
    """Where a materialized view keeps its rows, and how fresh they are; None: it keeps none."""
    name = metadata.properties.get(STORAGE_TABLE)
    if name is None:
        return None
    table = readable_table(served, name)
    if table is None:
        return {"name": name, "path": "", "refreshed": "", "reasons": []}
    line = recent_line(table.metadata) if table.metadata.current_snapshot_id is not None else ()
    refreshed = next(
        (snapshot.timestamp_ms for snapshot in line if REFRESH_STATE in snapshot.summary), None
    )
    inputs = computed_from(served, TableState.of(table))
    reasons = [
        f"{table_input['name']} has changed" for table_input in inputs if table_input["newer"]
    ]
    if refreshed is not None and refreshed < metadata.current_version().timestamp_ms:
        reasons.insert(0, "its SELECT is another one than that of its rows")
    return {
        "name": name,
        "path": table_path(table.identifier),
        "refreshed": "" if refreshed is None else age(served, refreshed),
        "reasons": reasons,
    }


def definitions(version: ViewVersion) -> list[tuple[str, str]]:
    """Dialect and SQL of each definition that is SQL."""
    return [
        (representation.dialect, representation.sql)
        for representation in version.representations
        if isinstance(representation, SqlRepresentation)
    ]


def read_names(version: ViewVersion) -> list[tuple[str, ...]]:
    """What the SQL of a version reads, by full names; nothing where none of it can be parsed."""
    for dialect, sql in definitions(version):
        if len(sql) > _SQL_MAX:
            continue
        try:
            tree = sqlglot.parse_one(sql, dialect=dialect)
        except (sqlglot.errors.SqlglotError, ValueError, RecursionError):  # or no such dialect
            continue
        ctes = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
        paths = (
            tuple(part.name for part in node.parts)
            for node in tree.find_all(exp.Table)
            if node.db or node.name not in ctes
        )
        full = (
            names if len(names) > 1 else (*version.default_namespace, *names)
            for names in paths
            if all(names)
        )
        return sorted(set(full))
    return []


def view_names(served: Served, namespace: tuple[str, ...]) -> list[Identifier]:
    """The views of a namespace that the caller may see."""
    try:
        names = served.catalog.views.names(namespace)
    except NoSuchNamespaceError:  # dropped meanwhile
        return []
    return [name for name in names if served.caller.sees(path_of(name))]


def readable_views(served: Served) -> Iterator[StoredView]:
    """The first views, by name, that the caller may read; damaged ones are passed over."""
    spaces = (
        namespace
        for namespace in sorted(walk_namespaces(served.catalog))
        if served.caller.sees(namespace)
    )
    names = (name for space in spaces for name in view_names(served, space))
    readable = (name for name in names if served.caller.may(Privilege.READ, path_of(name)))

    def load(name: Identifier) -> StoredView | None:
        try:
            return served.catalog.views.load(name)
        except LakehouseError:
            return None

    for view in in_parallel(load, list(islice(readable, VIEWS_MAX))):
        if view is not None:
            yield view


def view_readers(served: Served, identifier: Identifier) -> list[dict[str, str]]:
    """The views that read a table or view."""
    wanted = (*identifier.namespace, identifier.name)
    return [
        {"name": str(view.identifier), "path": view_path(view.identifier)}
        for view in readable_views(served)
        if any(_is(wanted, names) for names in read_names(view.metadata.current_version()))
    ]


def view_texts(metadata: ViewMetadata) -> list[tuple[str, str]]:
    """What a search looks at: what it is, and its text."""
    columns = [f"{field.name} {field.doc or ''}".strip() for field in metadata.schema().fields]
    return [
        *(("comment", text) for key, text in metadata.properties.items() if key == "comment"),
        *(("column", text) for text in columns),
        *(("SQL", sql) for _, sql in definitions(metadata.current_version())),
    ]


def _is(wanted: tuple[str, ...], names: Sequence[str]) -> bool:
    """Whether a name of SQL, maybe with its catalog before it, is this one."""
    return tuple(names) == wanted or tuple(names[1:]) == wanted


def _link(served: Served, names: tuple[str, ...]) -> dict[str, Any]:
    """A name of SQL, with the path of its page where the caller may read it."""
    for parts in (names, names[1:]):
        if len(parts) < 2:
            continue
        try:
            identifier = Identifier(tuple(parts[:-1]), parts[-1])
            if not served.caller.may(Privilege.READ, path_of(identifier)):
                continue
            if served.catalog.table_exists(identifier):
                return {"name": str(identifier), "path": table_path(identifier), "is_view": False}
            if served.catalog.views.exists(identifier):
                return {"name": str(identifier), "path": view_path(identifier), "is_view": True}
        except LakehouseError:  # no name of ours, or the catalog does not know
            continue
    return {"name": dotted(names), "path": "", "is_view": False}
