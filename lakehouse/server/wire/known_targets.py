"""Which operation a target of HTTP names, remembered for targets that come again and again.

It is Starlette's routing that tells it, once for each target. Paths are split first, and each part
is decoded afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote_plus

from starlette.datastructures import QueryParams
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lakehouse.errors import InvalidIdentifierError
from lakehouse.kept_by_bytes import KeptByBytes
from lakehouse.server.rest_operation import Operation

_BYTES_MAX = 4 * 1024 * 1024
_TARGET_BYTES = 1024
"""What a target takes beside its text."""


@dataclass(frozen=True, slots=True)
class KnownTarget:
    """What a GET asks for.

    Attributes:
        operation: answers it.
        names: the named parts of the path, decoded.
        query: the last value of each parameter.
    """

    operation: Operation
    names: Mapping[str, str]
    query: Mapping[str, str]


class KnownTargets:
    """Operations by the targets that name them. Of one thread."""

    def __init__(self) -> None:
        self._routes: list[tuple[Route, Operation]] = []
        self._known: KeptByBytes[tuple[bytes, bytes], KnownTarget] = KeptByBytes(_BYTES_MAX)

    def add(self, operation: Operation) -> None:
        """Know one more operation."""
        route = Route(f"{operation.root}{operation.path}", _unused, methods=[operation.method])
        self._routes.append((route, operation))

    def find(self, path: bytes, query: bytes) -> KnownTarget | None:
        """The operation of this target; None where it names none.

        Raises InvalidIdentifierError: a name in it is no text.
        """
        target = self._known.get((path, query))
        if target is None:
            target = self._look(path, query)
            if target is not None:
                self._known.put((path, query), target, _TARGET_BYTES + 4 * len(path + query))
        return target

    def _look(self, path: bytes, query: bytes) -> KnownTarget | None:
        if not path.isascii() or not query.isascii():
            return None
        scope = {"type": "http", "method": "GET", "path": path.decode(), "headers": []}
        for route, operation in self._routes:
            match, inside = route.matches(scope)
            if match is Match.FULL:
                names = decoded_names(inside["path_params"])
                return KnownTarget(operation, names, dict(QueryParams(query.decode())))
        return None


async def _unused() -> None:
    """What a route would call; it is only asked whether it matches."""


class UndecodedPaths:
    """Has an application find its routes by paths as they were sent.

    ASGI servers decode them: then a slash in a name would be one between names.

    Args:
        app: finds routes by `path`, and decodes the parts that these name by `decoded_names`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            raw: bytes | None = scope.get("raw_path")
            # a server that does not tell it has no more than the decoded one
            path = quote(scope["path"]) if raw is None else raw.decode("latin-1")
            scope = {**scope, "path": path}
        await self._app(scope, receive, send)


def decoded_names(parts: Mapping[str, str]) -> dict[str, str]:
    """The named parts of a path; a plus is a blank, as Iceberg's Java encodes and decodes them.

    Raises InvalidIdentifierError for what is no text.
    """
    try:
        return {name: unquote_plus(part, errors="strict") for name, part in parts.items()}
    except UnicodeDecodeError as error:
        raise InvalidIdentifierError(f"The path is no UTF-8: {error}") from error
