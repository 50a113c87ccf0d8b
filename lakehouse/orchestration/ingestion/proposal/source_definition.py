"""A source as the text of a module that defines it."""

from __future__ import annotations

import json

from lakehouse.orchestration.ingestion.source import Source


def definition_text(source: Source) -> str:
    """A Python module with the source, formatted as the project is."""
    time, day = source.event_time, source.first_day
    lines = [
        f'"""Events of `{source.name}`: files go to `<landing root>/{source.name}/`."""',
        "",
        "from __future__ import annotations",
        "",
        "from datetime import date",
        "",
        "from lakehouse.orchestration import Column, EventTime, Source",
        "",
        f"{source.name.upper()} = Source(",
        f"    name={_text(source.name)},",
        f"    event_time=EventTime({_text(time.column)}, zone={_text(time.zone)}, "
        f"unit={_text(time.unit)}),",
        "    # earlier events are quarantined",
        f"    first_day=date({day.year}, {day.month}, {day.day}),",
        f"    bucket={_text(source.bucket)},",
        f"    buckets={source.buckets},",
    ]
    if source.nanoseconds != "reject":
        lines.append(f"    nanoseconds={_text(source.nanoseconds)},")
    if source.natural_key:
        keys = ", ".join(map(_text, source.natural_key))
        lines.append(f"    natural_key=({keys}{',' if len(source.natural_key) == 1 else ''}),")
    lines.append("    columns=(")
    lines += [f"        Column({_text(one.name)}, {_text(one.type)})," for one in source.columns]
    lines += ["    ),", ")", ""]
    return "\n".join(lines)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
