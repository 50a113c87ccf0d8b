"""A line chart as a small SVG, embedded in markdown as a data URI: Dagster shows it as it is."""

from __future__ import annotations

import base64
from collections.abc import Sequence

Point = tuple[float, float]

_INK, _FILL, _TEXT = "#4f43dd", "#e4e2fa", "#6b7280"
_MARGIN = 2.0
_CHARACTER = 6


def line(
    points: Sequence[Point], *, width: int = 220, height: int = 40, labels: Sequence[str] = ()
) -> str:
    """An SVG document: a step line from left to right, filled to zero.

    Args:
        points: (time, value), in order of time; values below zero count as zero.
        width: in pixels.
        height: in pixels.
        labels: at the right, from top to bottom, such as the greatest and the last value.
    """
    beside = max((8 + _CHARACTER * len(label) for label in labels), default=0)
    room = width - 2 * _MARGIN - beside
    first, last = (points[0][0], points[-1][0]) if points else (0.0, 0.0)
    most = max((value for _, value in points), default=0.0) or 1.0

    def x(time: float) -> float:
        return _MARGIN + (room * (time - first) / (last - first) if last > first else room)

    def y(value: float) -> float:
        return height - _MARGIN - (height - 2 * _MARGIN) * max(value, 0.0) / most

    path, before = [], 0.0
    for number, (time, value) in enumerate(points):
        if number:
            path.append(f"L{x(time):.1f},{y(before):.1f}")
        path.append(f"{'L' if number else 'M'}{x(time):.1f},{y(value):.1f}")
        before = value
    if len(points) == 1:
        path = [f"M{_MARGIN},{y(before):.1f}", f"L{x(last):.1f},{y(before):.1f}"]
    drawn = "".join(path)
    start = _MARGIN if len(points) == 1 else x(first)
    area = (
        f"{drawn}L{x(last):.1f},{height - _MARGIN}L{start:.1f},{height - _MARGIN}Z"
        if points
        else ""
    )
    texts = "".join(
        f'<text x="{width - beside + 4}" '
        f'y="{11 + number * (height - 14) / max(1, len(labels) - 1):.0f}">{_escaped(label)}</text>'
        for number, label in enumerate(labels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 '
        f'{width} {height}" font-family="sans-serif" font-size="10" fill="{_TEXT}"><path '
        f'd="{area}" fill="{_FILL}"/><path d="{drawn}" fill="none" stroke="{_INK}" '
        f'stroke-width="1.5"/>{texts}</svg>'
    )


def image(svg: str, title: str) -> str:
    """Markdown that shows an SVG document; `title` for those who cannot see it."""
    return f"![{title}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
