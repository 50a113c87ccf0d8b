"""Every namespace, every table and every view of a catalog, however deep."""

from __future__ import annotations

from collections.abc import Iterator

from lakehouse.catalog.catalog_protocol import Catalog, Namespace
from lakehouse.errors import NoSuchNamespaceError
from lakehouse.spec.identifier import Identifier


def walk_namespaces(catalog: Catalog, below: Namespace = ()) -> Iterator[Namespace]:
    """Every namespace below one, and itself, once, a parent before its children.

    The root has no name and is left out; so is one that is dropped meanwhile.
    """
    seen: set[Namespace] = set()
    pending: list[Namespace] = [below]
    while pending:
        parent = pending.pop()
        if parent:
            yield parent
        try:
            children = catalog.list_namespaces(parent)
        except NoSuchNamespaceError:
            continue
        # servers that know one level only answer with the same names whatever the parent
        new = [one for one in children if one not in seen]
        seen.update(new)
        pending.extend(reversed(new))


def walk_tables(catalog: Catalog) -> Iterator[Identifier]:
    """Every table of every namespace."""
    for namespace in walk_namespaces(catalog):
        try:
            yield from catalog.list_tables(namespace)
        except NoSuchNamespaceError:
            continue


def walk_views(catalog: Catalog) -> Iterator[Identifier]:
    """Every view of every namespace."""
    for namespace in walk_namespaces(catalog):
        try:
            yield from catalog.views.names(namespace)
        except NoSuchNamespaceError:
            continue
