"""Long lists in pages (REST catalog: pageToken, pageSize)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from lakehouse.errors import InvalidInputError
from lakehouse.server.http_messages import Call

_PAGE_SIZE = 1000
_DIGITS_MAX = 18
"""Of a size that more than suffices."""
Names = tuple[str, ...]


def page(call: Call, names: Sequence[Names]) -> tuple[list[Names], str | None]:
    """The requested page of a sorted list, and the token of the next one.

    A client that sends no `pageToken` knows no pages and gets everything. A token says which name
    came last: what was created or dropped since neither repeats nor hides any other name.

    Raises InvalidInputError.
    """
    token = call.query.get("pageToken")
    size = _size(call.query.get("pageSize"))
    if token is None and size is None:
        return list(names), None
    last = _decode(token) if token else ()
    following = [name for name in names if name > last]
    shown = following[: size or _PAGE_SIZE]
    return shown, _encode(shown[-1]) if len(shown) < len(following) else None


def _size(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.lstrip("0")
    if not (digits.isascii() and digits.isdecimal()):
        raise InvalidInputError(f"pageSize must be a positive number, not {text[:40]!r}.")
    return int(digits[:_DIGITS_MAX])


def _encode(name: Names) -> str:
    return base64.urlsafe_b64encode("\x1f".join(name).encode()).decode()


def _decode(token: str) -> Names:
    try:
        text = base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise InvalidInputError(
            f"pageToken {token[:40]!r} is none that this server gave."
        ) from error
    return tuple(text.split("\x1f"))
