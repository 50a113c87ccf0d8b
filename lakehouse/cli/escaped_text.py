"""What stands in tables and errors is data: a terminal shows it and never obeys it."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.segment import Segment


def visible(text: str) -> str:
    r"""The text with control characters, and those that turn the direction of writing, escaped.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if _is_obeyed(one) else one for one in text
    )


class Visible(RenderHook):
    """Shows whatever is printed as `visible` does; only line breaks, and styles of ours, stay."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Escape control characters in what is printed."""
        return [_Shown(one) for one in renderables]


@dataclass(frozen=True)
class _Shown:
    shown: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from _lines(console.render(self.shown, options))


def _lines(segments: Iterable[Segment]) -> Iterable[Segment]:
    for segment in segments:
        if segment.control or segment.text.isprintable():
            yield segment
        else:
            text = "\n".join(visible(line) for line in segment.text.split("\n"))
            yield Segment(text, segment.style)


def _is_obeyed(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs"}
