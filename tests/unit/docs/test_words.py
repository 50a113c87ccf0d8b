"""Wording that was removed from the documents, the command line and docstrings stays out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from lakehouse.cli import app
from lakehouse.cli.command_list import COMMANDS
from tests.scaffold.documented import PAGES, documented_commands

ROOT = Path(__file__).resolve().parents[3]
BETTER = {
    r"\btwins?\b": "columnar manifest",
    r"\bseal(s|ed)?\b": "checksum; of a file: complete",
    r"\bwiden(s|ed|ing)?\b": "promote (specification: type promotion)",
    r"\bhas none such\b": "has no snapshot N: name the thing",
    r"\bWho (has|sets|asks|writes|reads|reaches|opens|guesses)\b": "To ..., or: a caller that",
    r"\b(is|are|was|were) told\b": "is notified, shown, answered with; name who does it",
    r"\basked for\b": "requested, named, selected; again: retried, launched again",
    r"\bnone has such\b": "say which things lack it",
    r"\bwants? to be\b": "needs",
    r"\banew\b": "again; is rewritten",
    r"\bheld against\b": "is compared with",
    r"\bSo it is with\b": "... works the same way",
    r"\bwins through\b": "retries until it succeeds",
    r"\b[Aa]sks? nobody\b": "does not authenticate callers",
}


def texts_of_pages() -> Iterator[tuple[str, str]]:
    for page in [*PAGES, *sorted((ROOT / "docs" / "adr").glob("*.md"))]:
        prose = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "``", page.read_text())
        yield page.name, re.sub(r"\]\([^)]*\)", "]", prose)


def texts_of_commands() -> Iterator[tuple[str, str]]:
    group = typer.main.get_group(app)
    for name in COMMANDS:
        command = group.get_command(typer.Context(group), name)
        helps = [getattr(option, "help", None) or "" for option in command.params]
        yield f"lakehouse {name}", "\n".join([command.help or "", *helps])


def texts_of_docstrings() -> Iterator[tuple[str, str]]:
    documented = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    for path in sorted((ROOT / "lakehouse").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, documented):
                place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                yield place, ast.get_docstring(node) or ""


@pytest.mark.parametrize("texts", [texts_of_pages, texts_of_commands, texts_of_docstrings])
def test_removed_wording_stays_out(texts) -> None:
    found = [
        f"{place}: {match[0]!r}: better {better}"
        for place, text in texts()
        for phrase, better in BETTER.items()
        for match in re.finditer(phrase, re.sub(r"\s+", " ", text))
    ]
    assert not found, "\n".join(found)


def test_names_say_what_they_hold() -> None:
    """Not how it came: `found` and `told` are a manifest, a column, an answer."""
    unsaid = {"found", "told"}
    texts = {path: path.read_text() for path in (ROOT / "lakehouse").rglob("*.py")}
    named = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, text in texts.items()
        if any(word in text for word in unsaid)
        for node in ast.walk(ast.parse(text))
        if {getattr(node, part, None) for part in ("id", "arg", "attr", "name")} & unsaid
    ]
    assert not named, "\n".join(named)


def test_every_documented_command_has_what_it_is_given() -> None:
    group = typer.main.get_group(app)
    seen, wrong = 0, []
    for shown in documented_commands():
        command: Any = group
        for word in () if "..." in shown.words else shown.words:
            if word.startswith("-") and word != "-":
                known = [name for option in command.params for name in option.opts]
                known += [name for option in command.params for name in option.secondary_opts]
                if word.partition("=")[0] not in [*known, "--help"]:
                    wrong.append(f"{shown}: {word}")
            elif hasattr(command, "list_commands"):
                if not re.fullmatch(r"[a-z-]+", word):
                    continue  # an option's value
                inner = command.get_command(typer.Context(command), word)
                if inner is None:
                    wrong.append(f"{shown}: {word}")
                    break
                command = inner
        seen += 1
    assert seen > 100
    assert wrong == []
