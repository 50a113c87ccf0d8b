"""Which privileges operations ask for: each says it by one of these functions of its request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lakehouse.server.access.privileges import Ask, Caller, Path, Privilege
from lakehouse.server.error_answers import HttpError
from lakehouse.server.http_messages import Call, identifier_from_json, names_from_json
from lakehouse.spec.identifier import Identifier
from lakehouse.spec.json_fields import optional_list, require_list, require_object
from lakehouse.spec.metadata.table_updates import AddSnapshot, Update

Asks = Callable[[Call], Sequence[Ask]]
PRINCIPAL = "lakehouse.principal"
"""Of a snapshot's summary: who committed it, where callers are asked."""


def check_asks(caller: Caller, asks: Sequence[Ask]) -> None:
    """Raise HttpError, 403, unless the caller may do all of it.

    Names decide, not what is there: callers do not learn what exists where they may not look.
    """
    for ask in asks:
        if not caller.has(ask):
            raise HttpError(403, "ForbiddenException", f"{caller.name} may not {ask}.")


def path_of(identifier: Identifier) -> Path:
    """A table or view as what grants are on."""
    return (*identifier.namespace, identifier.name)


def reads(caller: Caller) -> Callable[[str], bool]:
    """Whether the caller may read a table, by its dotted name."""
    return lambda name: caller.may(Privilege.READ, path_of(Identifier.parse(name)))


def nothing(_call: Call) -> Sequence[Ask]:
    """Any authenticated caller."""
    return ()


def on_catalog(privilege: Privilege) -> Asks:
    """On everything."""
    return lambda _call: (Ask(privilege, ()),)


def on_namespace(privilege: Privilege | None) -> Asks:
    """On the namespace of the path."""
    return lambda call: (Ask(privilege, call.namespace()),)


def on_named_namespace(privilege: Privilege) -> Asks:
    """On the namespace of the body."""

    def asks(call: Call) -> Sequence[Ask]:
        document = call.document()
        return (Ask(privilege, call.read(lambda: names_from_json(document, "body"))),)

    return asks


def on_table(privilege: Privilege) -> Asks:
    """On the table of the path."""
    return lambda call: (Ask(privilege, path_of(call.table())),)


def both(first: Asks, second: Asks) -> Asks:
    """What either asks for."""
    return lambda call: (*first(call), *second(call))


def on_view(privilege: Privilege) -> Asks:
    """On the view of the path."""
    return lambda call: (Ask(privilege, path_of(call.view())),)


def on_new(privilege: Privilege) -> Asks:
    """On what the body names, in the namespace of the path."""
    return lambda call: (Ask(privilege, path_of(call.new())),)


def of_registering(call: Call) -> Sequence[Ask]:
    """The metadata file may be of any table: everything."""
    return (Ask(Privilege.MANAGE, ()), *on_new(Privilege.MANAGE)(call))


def of_commit(call: Call) -> Sequence[Ask]:
    """To write the table, or to create it."""
    creates = _creates(call, call.document())
    return on_table(Privilege.CREATE if creates else Privilege.WRITE)(call)


def of_transaction(call: Call) -> Sequence[Ask]:
    """To write each table, to read those that only must not have changed."""
    document = call.document()

    def ask(item: Any) -> Ask:
        change = require_object(item, "table-changes")
        name = identifier_from_json(change.get("identifier"), "identifier")
        changed = change.get("updates") != []
        return Ask(Privilege.WRITE if changed else Privilege.READ, path_of(name))

    changes = call.read(lambda: require_list(document.get("table-changes"), "table-changes"))
    return call.read(lambda: [ask(item) for item in changes])


def of_renaming(call: Call) -> Sequence[Ask]:
    """To manage the old name: other grants hold for the new one."""
    source, target = call.renaming()
    return (Ask(Privilege.MANAGE, path_of(source)), Ask(Privilege.CREATE, path_of(target)))


def signed(updates: Sequence[Update], caller: Caller) -> list[Update]:
    """The updates, whose snapshots say who committed them; whatever the client said of that."""
    if caller.name is None:
        return list(updates)
    return [
        replace(
            update,
            snapshot=replace(
                update.snapshot, summary={**update.snapshot.summary, PRINCIPAL: caller.name}
            ),
        )
        if isinstance(update, AddSnapshot)
        else update
        for update in updates
    ]


def _creates(call: Call, document: Any) -> bool:
    requirements = call.read(lambda: optional_list(document, "requirements", "body"))
    return any(
        isinstance(requirement, dict) and requirement.get("type") == "assert-create"
        for requirement in requirements
    )
