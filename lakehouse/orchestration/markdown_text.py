"""Text of others in pages of markdown: names, reasons and values are data, never markup."""

from __future__ import annotations

_ASCII_MARKS = "\\`*_{}[]()<>#+!|~$&:"


def plain(text: str) -> str:
    """Markdown that shows the text as it is, on one line, in a table or outside.

    >>> plain("a|b <script>")
    'a&#124;b &#60;script&#62;'
    """
    one_line = " ".join(text.split())
    return "".join(
        f"&#{ord(mark)};" if mark in _ASCII_MARKS else mark if mark.isprintable() else "\ufffd"
        for mark in one_line
    )


def code(text: str) -> str:
    """The text as code where nothing in it could end that, else plain."""
    safe = text.isprintable() and not set(text) & set("`|<>&\\")
    return f"`{text}`" if safe and text else plain(text)
