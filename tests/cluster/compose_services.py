"""docker-compose.yml as processes of one machine: the same commands, settings and health checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_VARIABLE = re.compile(r"\$\{(\w+)(?::\?[^}]*|:-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Service:
    """One container, as a process.

    Attributes:
        name: the service's; with several replicas each has a number.
        command: what it runs; empty for PostgreSQL, whose image knows.
        environment: variables beside those of this process.
        ports: container port -> port on loopback.
        health: a command that ends well when the service is ready; empty: none.
        is_one_shot: it does its work and ends.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ports: Mapping[int, int]
    health: tuple[str, ...]
    is_one_shot: bool


@dataclass(frozen=True, slots=True)
class Loopback:
    """Where the containers' names, ports and folders are on this machine.

    Attributes:
        hosts: names of services, which are all 127.0.0.1.
        ports: container port -> port on loopback.
        folders: container path -> path here.
    """

    hosts: frozenset[str]
    ports: Mapping[int, int]
    folders: Mapping[str, Path]

    def translate(self, value: Any) -> Any:
        """The value (a text, a number, or lists and objects of them) as it is on this machine."""
        if isinstance(value, Mapping):
            return {
                key: "127.0.0.1"
                if str(key).lower().endswith("host") and one in self.hosts
                else self.translate(one)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(self.translate(one) for one in value)
        if isinstance(value, int) and not isinstance(value, bool):
            return self.ports.get(value, value)
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        names = "|".join(map(re.escape, sorted(self.hosts, key=len, reverse=True)))
        numbers = "|".join(map(str, self.ports))
        text = text.replace("0.0.0.0", "127.0.0.1")  # noqa: S104 - it goes away
        text = re.sub(rf"(?<![\w-])(?:{names})(?=:\d)", "127.0.0.1", text)
        text = re.sub(
            rf"(?<![\w.])(?:{numbers})(?![\w.])", lambda found: str(self.ports[int(found[0])]), text
        )
        for container, here in self.folders.items():
            text = re.sub(rf"(^|(?<=\w:)){re.escape(container)}(?=[/:]|$)", str(here), text)
        return text


def services(
    compose: Mapping[str, Any],
    secrets: Mapping[str, str],
    folders: Mapping[str, Path],
    free_port: Callable[[], int],
) -> tuple[list[Service], Loopback]:
    """The services of a compose file that no profile asks for, each after those that it needs.

    Args:
        compose: the file's content.
        secrets: the variables that it asks for.
        folders: container path -> path on this machine.
        free_port: gives a port of this machine.

    Returns:
        The services, and where they are.
    """
    told = {name: one for name, one in compose["services"].items() if "profiles" not in one}
    ports = {int(port): free_port() for one in told.values() for port in one.get("expose", ())}
    shared = Loopback(frozenset(told), ports, folders)
    made: dict[str, list[Service]] = {}
    while len(made) < len(told):
        for name, one in told.items():
            if name not in made and all(need in made for need in one.get("depends_on", ())):
                made[name] = _replicas(name, one, secrets, shared, free_port)
    return [service for several in made.values() for service in several], shared


def _replicas(
    name: str,
    told: Mapping[str, Any],
    secrets: Mapping[str, str],
    shared: Loopback,
    free_port: Callable[[], int],
) -> list[Service]:
    count = told.get("deploy", {}).get("replicas", 1)
    found = []
    for number in range(1, count + 1):
        # the second of two listens elsewhere
        own = {int(port): free_port() for port in told.get("expose", ())} if number > 1 else {}
        place = Loopback(shared.hosts, {**shared.ports, **own}, shared.folders)
        environment = {
            key: _filled(str(value), secrets) for key, value in told.get("environment", {}).items()
        }
        command = tuple(_filled(str(one), secrets) for one in told.get("command", ()))
        kind, *health = told.get("healthcheck", {}).get("test", ["CMD"])
        found.append(
            Service(
                name if count == 1 else f"{name}-{number}",
                place.translate(command),
                place.translate(environment),
                {int(port): place.ports[int(port)] for port in told.get("expose", ())},
                place.translate(tuple(health)) if kind == "CMD" else (),
                told.get("restart") == "no",
            )
        )
    return found


def _filled(text: str, secrets: Mapping[str, str]) -> str:
    """A text with its variables; what may be left out is left out."""
    return _VARIABLE.sub(lambda one: secrets[one[1]] if one[2] is None else one[2], text)
