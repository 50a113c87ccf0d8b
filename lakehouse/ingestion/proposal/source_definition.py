"""A source as the text of a module that defines it, and of those that name its jobs."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path

from lakehouse.ingestion.source import Source


def definition_text(source: Source) -> str:
    """A Python module with the source, formatted as the project is."""
    time, day, used = source.event_time, source.first_day, source.read.used
    names = ["Column", "EventTime", *(["ReadOptions"] if used else []), "Source"]
    spelled = f"format={_text(time.format)}" if time.format else f"unit={_text(time.unit)}"
    lines = [
        f'"""Events of `{source.name}`: files go to `<landing root>/{source.name}/`."""',
        "",
        "from __future__ import annotations",
        "",
        "from datetime import date",
        "",
        f"from lakehouse.orchestration import {', '.join(names)}",
        "",
        f"{source.name.upper()} = Source(",
        f"    name={_text(source.name)},",
        f"    event_time=EventTime({_text(time.column)}, zone={_text(time.zone)}, {spelled}),",
        "    # earlier events are quarantined",
        f"    first_day=date({day.year}, {day.month}, {day.day}),",
        f"    partition_by={_value(source.partition_terms)},",
    ]
    if source.layout_by_age is not None:
        lines.append(f"    layout_by_age={_text(source.layout_by_age)},")
    if used:
        lines += ["    read=ReadOptions("]
        lines += [f"        {name}={_value(value)}," for name, value in used.items()]
        lines += ["    ),"]
    if source.rescue is not None:
        lines += [
            "    # what the columns do not take is kept as JSON text in this column",
            f"    rescue={_text(source.rescue)},",
        ]
    if source.nanoseconds != "reject":
        lines.append(f"    nanoseconds={_text(source.nanoseconds)},")
    if source.natural_key:
        keys = ", ".join(map(_text, source.natural_key))
        lines.append(f"    natural_key=({keys}{',' if len(source.natural_key) == 1 else ''}),")
    lines.append("    columns=(")
    for column in source.columns:
        aliases = f", aliases={_value(column.aliases)}" if column.aliases else ""
        lines.append(f"        Column({_text(column.name)}, {_text(column.type)}{aliases}),")
    lines += ["    ),", ")", ""]
    return "\n".join(lines)


def _value(value: object) -> str:
    if isinstance(value, tuple):
        texts = ", ".join(map(_text, value))
        return f"({texts}{',' if len(value) == 1 else ''})"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def registration(folder: Path, name: str) -> dict[Path, str] | None:
    """The modules of a project that names its jobs and sensors, changed to run a new source too.

    Args:
        folder: of the project, with the source's module as `assets/<name>.py`.
        name: of the source.

    Returns:
        New text by file; None for a project of another shape, such as one that discovers.
    """
    value = name.upper()
    source = f"from assets.{name} import {value}"
    edits: dict[str, tuple[Callable[[str], str], ...]] = {
        "assets/pipeline.py": (_importing(source), _listing("sources", value)),
        "jobs/ingest.py": (
            _importing(source),
            _ending(f"index_{name}, ingest_{name} = source_jobs(PIPELINE, {value})"),
        ),
        "sensors/landing.py": (
            _importing(source),
            _importing(f"from jobs.ingest import index_{name}, ingest_{name}"),
            _ending(
                f"landed_{name} = landing_sensor(\n"
                f"    PIPELINE, {value}, [index_{name}, ingest_{name}]\n)"
            ),
        ),
        "sensors/schedules.py": (
            _importing(source),
            _importing(f"from jobs.ingest import index_{name}"),
            _ending(f"nightly_{name} = nightly_schedule({value}, index_{name})"),
        ),
        "definitions.py": (
            _listing("jobs", f"ingest.index_{name}"),
            _listing("jobs", f"ingest.ingest_{name}"),
            _listing("sensors", f"landing.landed_{name}"),
            _listing("schedules", f"schedules.nightly_{name}"),
        ),
    }
    if not all((folder / file).is_file() for file in edits):
        return None
    changed = {}
    for file, changes in edits.items():
        text = (folder / file).read_text(encoding="utf-8")
        try:
            for change in changes:
                text = change(text)
        except LookupError:
            return None
        changed[folder / file] = text
    return changed


def _importing(line: str) -> Callable[[str], str]:
    """The import after the last one of the module's top."""

    def change(text: str) -> str:
        imports = [
            node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        if not imports:
            raise LookupError("no imports")
        lines = text.splitlines(keepends=True)
        last = imports[-1].end_lineno or 0
        return "".join([*lines[:last], line + "\n", *lines[last:]])

    return change


def _ending(statement: str) -> Callable[[str], str]:
    return lambda text: f"{text.rstrip()}\n{statement}\n"


def _listing(keyword: str, item: str) -> Callable[[str], str]:
    """One more item of the list or tuple that a call is given by this keyword."""

    def change(text: str) -> str:
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.keyword)
                and node.arg == keyword
                and isinstance(node.value, ast.List | ast.Tuple)
                and node.value.elts
            ):
                last = node.value.elts[-1]
                lines = text.splitlines(keepends=True)
                line, column = (last.end_lineno or 0) - 1, last.end_col_offset or 0
                before, after = lines[line].encode()[:column], lines[line].encode()[column:]
                indent = "" if node.value.lineno == last.lineno else "\n" + " " * last.col_offset
                lines[line] = f"{before.decode()},{indent or ' '}{item}{after.decode()}"
                return "".join(lines)
        raise LookupError(keyword)

    return change
