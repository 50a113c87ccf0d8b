"""Checks the Markdown files: links lead to files and headings, prose has at most 100 columns."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = 100
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SKIP = {".venv", ".tools", ".git", ".lakehouse", "node_modules"}


def anchors(text: str) -> set[str]:
    """GitHub's anchors of the headings in `text`."""
    headings = re.findall(
        r"^#{1,6}\s+(.+?)\s*$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of one page that lead nowhere."""
    problems = []
    for target in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            problems.append(f"{page.relative_to(ROOT)}: no file {target}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            problems.append(f"{page.relative_to(ROOT)}: no heading {target}")
    return problems


def too_long(page: Path) -> list[str]:
    """Lines of prose beyond `COLUMNS`; blocks of code, tables, headings and images cannot wrap."""
    problems, code = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        text = line.strip()
        if text.startswith("```"):
            code = not code
        elif not code and len(line) > COLUMNS and not text.startswith(("|", "#", "![", "<")):
            problems.append(
                f"{page.relative_to(ROOT)}:{number}: {len(line)} columns, not {COLUMNS}"
            )
    return problems


def main() -> int:
    """Print broken links and long lines; the exit code says whether there were any."""
    pages = [p for p in sorted(ROOT.rglob("*.md")) if not SKIP & set(p.relative_to(ROOT).parts)]
    problems = [line for page in pages for line in (*broken(page), *too_long(page))]
    sys.stdout.write("\n".join([*problems, f"{len(pages)} pages, {len(problems)} problems"]) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
