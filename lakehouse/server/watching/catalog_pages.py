"""Pages for people: what is in the catalog, and search over it. They change nothing.

The work of a page is bounded: it reads the metadata of so many tables, and the next page goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from urllib.parse import urlencode

from lakehouse.catalog.catalog_protocol import TableVersion, walk_namespaces
from lakehouse.catalog.redaction import hide_in_urls
from lakehouse.errors import LakehouseError, NoSuchNamespaceError
from lakehouse.maintenance.reachability.reachable_files import in_parallel
from lakehouse.server.access.asked_privileges import path_of
from lakehouse.server.access.privileges import Privilege
from lakehouse.server.http_messages import SEPARATOR, Answer, Call
from lakehouse.server.rest_operation import Served
from lakehouse.server.watching.page_rendering import age, html_page, table_path, view_path
from lakehouse.server.watching.table_state import TableState
from lakehouse.server.watching.view_pages import VIEWS_MAX, readable_views, view_names, view_texts
from lakehouse.spec.identifier import Identifier, dotted, holds_state
from lakehouse.spec.metadata.table_metadata import TableMetadata

TABLES_MAX = 100
NAMESPACES_MAX = 200
"""Of one page."""
SEARCHED_MAX = 500
"""Tables whose metadata one page of a search reads."""
_WORDS_MAX, _PLACES_MAX = 200, 8
_OF_PROGRAMS = ("lakehouse.", "write.", "read.", "commit.", "history.", "schema.")
"""Prefix of properties that pages leave out."""
Row = dict[str, object]
Position = tuple[tuple[str, ...], str]


def catalog_page(served: Served, call: Call) -> Answer:
    """Namespaces and their tables, or those that have the words of `q`."""
    after = _position(call.query.get("after", ""))
    words = call.query.get("q", "")[:_WORDS_MAX].casefold().split()
    if words:
        return _search_page(served, " ".join(words), words, after)
    spaces: list[tuple[str, list[Row], list[Row]]] = []
    left, following = TABLES_MAX, ""
    for count, namespace in enumerate(_namespaces(served, after)):
        if count == NAMESPACES_MAX:
            following = SEPARATOR.join((*namespace, ""))
            break
        names = _tables(served, namespace, after)
        if not left and names:
            break
        taken = names[:left]
        left -= len(taken)
        is_first = after is None or namespace > after[0] or not after[1]
        views = view_names(served, namespace)[:VIEWS_MAX] if is_first else []
        shown: list[Row] = [{"name": view.name, "path": view_path(view)} for view in views]
        spaces.append((dotted(namespace), _rows(served, taken), shown))
        if len(taken) < len(names):
            following = _next(taken[-1])
            break
        following = _next(taken[-1]) if taken else following
    else:
        following = ""
    return html_page(
        "catalog.html",
        served,
        warehouse=hide_in_urls(served.lake.warehouse),
        namespaces=spaces,
        words="",
        more=f"?{urlencode({'after': following})}" if following else "",
    )


def _search_page(served: Served, text: str, words: Sequence[str], after: Position | None) -> Answer:
    every = _every_table(served)
    named = [name for name in every if _has_all(str(name), words)]
    first = [] if after else list(islice(named, TABLES_MAX))
    following = [
        name
        for name in every
        if _may_read(served, name) and (after is None or (name.namespace, name.name) > after)
    ]
    looked = following[:SEARCHED_MAX]
    shown = set(named)
    by_content = [
        {**_row(served, name, version), "places": places}
        for name, version in versions(served, [name for name in looked if name not in shown])
        if isinstance(version, TableVersion)
        and (places := _places(version.metadata, str(name), words))
    ]
    more = (
        urlencode({"q": text, "after": _next(looked[-1])}) if len(looked) < len(following) else ""
    )
    return html_page(
        "search.html",
        served,
        words=text,
        views=[] if after else list(_views_with(served, words)),
        rows=[*({**row, "places": ()} for row in _rows(served, first)), *by_content],
        unlisted=0 if after else len(named) - len(first),
        left=len(following) - len(looked),
        more=f"?{more}" if more else "",
    )


def _views_with(served: Served, words: Sequence[str]) -> Iterator[Row]:
    for view in readable_views(served):
        name = str(view.identifier)
        places = _with_words(name, view_texts(view.metadata), words)
        if places:
            yield {"name": name, "path": view_path(view.identifier), "places": places}


def _places(metadata: TableMetadata, name: str, words: Sequence[str]) -> list[tuple[str, str]]:
    """Where a table has the words, if it has all of them: what it is, and its text."""
    texts = [
        (key, value)
        for key, value in metadata.properties.items()
        if not key.startswith(_OF_PROGRAMS)
    ]
    with suppress(LakehouseError):
        schema = metadata.schema()
        docs = {field.field_id: field.doc or "" for field in schema.fields}
        texts += [
            ("column", f"{schema.find_column_name(field_id)} {docs.get(field_id, '')}".strip())
            for field_id in schema.field_ids
        ]
    return _with_words(name, texts, words)


def _with_words(
    name: str, texts: Sequence[tuple[str, str]], words: Sequence[str]
) -> list[tuple[str, str]]:
    if not _has_all(" ".join([name, *(f"{what} {text}" for what, text in texts)]), words):
        return []
    places = [
        (what, text) for what, text in texts if any(word in text.casefold() for word in words)
    ]
    return [(what, text[:200]) for what, text in places[:_PLACES_MAX]] or [("name", name)]


def _has_all(text: str, words: Iterable[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _namespaces(served: Served, after: Position | None) -> Iterator[tuple[str, ...]]:
    for namespace in sorted(walk_namespaces(served.catalog)):
        if served.caller.sees(namespace) and (after is None or namespace >= after[0]):
            yield namespace


def _tables(served: Served, namespace: tuple[str, ...], after: Position | None) -> list[Identifier]:
    try:
        names = sorted(served.catalog.list_tables(namespace))
    except NoSuchNamespaceError:  # dropped meanwhile
        return []
    return [
        name
        for name in names
        if served.caller.sees(path_of(name))
        and not holds_state(name.name)
        and (after is None or (name.namespace, name.name) > after)
    ]


def _every_table(served: Served) -> list[Identifier]:
    return [
        table
        for namespace in _namespaces(served, None)
        for table in _tables(served, namespace, None)
    ]


def readable_tables(served: Served) -> list[Identifier]:
    """Every table that the caller may read, by name."""
    return sorted((table for table in _every_table(served) if _may_read(served, table)), key=str)


def _rows(served: Served, names: Sequence[Identifier]) -> list[Row]:
    return [_row(served, name, version) for name, version in versions(served, names)]


def _row(served: Served, name: Identifier, version: TableVersion | str | None) -> Row:
    if not isinstance(version, TableVersion):
        state = TableState(problem=version or "")
    else:
        state = TableState.of(version)
    return {
        "name": name.name,
        "full": str(name),
        "path": table_path(name) if version is not None else "",
        "state": state,
        "changed": "" if state.changed_ms is None else age(served, state.changed_ms),
    }


def versions(
    served: Served, names: Sequence[Identifier]
) -> Iterator[tuple[Identifier, TableVersion | str | None]]:
    """The newest version of each, or why it cannot be had; None: the caller may not read it."""

    def version(name: Identifier) -> TableVersion | str | None:
        if not _may_read(served, name):
            return None
        try:
            return served.tables.newest(name)
        except LakehouseError as error:
            return error.message

    return zip(names, in_parallel(version, names), strict=True)


def _may_read(served: Served, name: Identifier) -> bool:
    return served.caller.may(Privilege.READ, path_of(name))


def _position(text: str) -> Position | None:
    """What `_next` gave; anything else is a place in the order of names, too."""
    if not text:
        return None
    levels = text.split(SEPARATOR)
    return tuple(levels[:-1]), levels[-1]


def _next(last: Identifier) -> str:
    return SEPARATOR.join((*last.namespace, last.name))
