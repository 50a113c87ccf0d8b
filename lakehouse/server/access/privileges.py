"""What a principal may do, and where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakehouse.spec.identifier import dotted

Path = tuple[str, ...]
"""Names from the top down: () is the catalog; a namespace or a table below it."""


class Privilege(StrEnum):
    """What can be granted.

    `read`: load and plan tables. `write`: that, and commit to them. `create` and `drop`: tables and
    namespaces. `manage`: all of these, properties of namespaces, renaming, registering.
    """

    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DROP = "drop"
    MANAGE = "manage"


_GIVES = {
    Privilege.READ: frozenset({Privilege.READ}),
    Privilege.WRITE: frozenset({Privilege.WRITE, Privilege.READ}),
    Privilege.CREATE: frozenset({Privilege.CREATE}),
    Privilege.DROP: frozenset({Privilege.DROP}),
    Privilege.MANAGE: frozenset(Privilege),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """Privileges on something and everything in it.

    Attributes:
        path: () for the whole catalog.
        privileges: what is granted there.
    """

    path: Path
    privileges: frozenset[Privilege]

    def gives(self, privilege: Privilege, path: Path) -> bool:
        """Whether it allows that there."""
        return path[: len(self.path)] == self.path and any(
            privilege in _GIVES[granted] for granted in self.privileges
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request needs.

    Attributes:
        privilege: None: to know that it exists, which any grant on it or below it gives.
        path: where.
    """

    privilege: Privilege | None
    path: Path

    def __str__(self) -> str:
        where = dotted(self.path) or "the catalog"
        return f"{self.privilege or 'see'} {where}"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    >>> ann = Caller("ann", (Grant(("raw",), frozenset({Privilege.WRITE})),))
    >>> ann.may(Privilege.READ, ("raw", "events")), ann.may(Privilege.DROP, ("raw", "events"))
    (True, False)
    >>> ann.sees(("raw",)), ann.sees(("marts",))
    (True, False)

    Attributes:
        name: None on a server without authentication.
        grants: what they may do.
    """

    name: str | None
    grants: tuple[Grant, ...]

    def may(self, privilege: Privilege, path: Path) -> bool:
        """Whether they have a privilege somewhere."""
        return any(grant.gives(privilege, path) for grant in self.grants)

    def sees(self, path: Path) -> bool:
        """Whether they have any privilege there, on what it is in, or on something in it."""
        return any(
            grant.path[: len(path)] == path or path[: len(grant.path)] == grant.path
            for grant in self.grants
        )

    def has(self, ask: Ask) -> bool:
        """Whether their grants cover all that a request needs."""
        if ask.privilege is None:
            return self.sees(ask.path)
        return self.may(ask.privilege, ask.path)


ANYONE = Caller(None, (Grant((), frozenset({Privilege.MANAGE})),))
"""Every caller of a server without authentication."""
