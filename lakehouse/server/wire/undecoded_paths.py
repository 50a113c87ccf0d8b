"""Paths of requests: split first, each part decoded afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote_plus

from starlette.types import ASGIApp, Receive, Scope, Send

from lakehouse.errors import InvalidIdentifierError


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
