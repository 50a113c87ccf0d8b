"""`semantics check`, `suggest`, `import`, `export`: what tables mean, and whether it is true."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.curation.checkup import Checked, accept, check_statements
from lakehouse.curation.proposals import profile, propose, written_comments
from lakehouse.curation.standard_fields import (
    keep_statements,
    standard_fields,
    write_standard_fields,
)
from lakehouse.curation.statement_store import NAMESPACE, StatementStore
from lakehouse.curation.survey import Survey, survey
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.shown_plan import listing
from lakehouse.semantics.binding import TableNames, bind
from lakehouse.semantics.foreign_formats import parse_any
from lakehouse.semantics.osi import OsiDocument, osi_document
from lakehouse.semantics.osi_for_dbt import for_dbt
from lakehouse.semantics.statement_yaml import write_statements
from lakehouse.semantics.statements import Draft, Statement
from lakehouse.semantics.states import State

TablesArgument = Annotated[
    list[str] | None, typer.Argument(help="Tables, as namespace.name; all by default.")
]
_STYLES = {
    State.VERIFIED: "green",
    State.UNVERIFIED: "yellow",
    State.CONTRADICTED: "bold red",
    State.EXPIRED: "dim",
    State.DEPRECATED: "dim",
}


class Form(StrEnum):
    """How statements are written out."""

    YAML = "yaml"
    OSI = "osi"
    DBT = "dbt"


@command
def check_(
    session: Session,
    tables: TablesArgument = None,
    metadata_only: Annotated[
        bool, typer.Option("--metadata-only", help="Read no data: what needs it stays unverified.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Keep nothing of what is seen.")
    ] = False,
) -> None:
    """Check statements against the tables; exit code 1 when one is contradicted."""
    results = check_statements(
        session.lake, tables or None, run_evidence=not metadata_only, record=not dry_run
    )
    if not dry_run and not metadata_only:
        write_standard_fields(session.lake, standard_fields(results))
    _show(session, results)
    if dry_run:
        session.confirm_dry_run()
    if any(result.standing.state is State.CONTRADICTED for result in results):
        raise typer.Exit(1)


@command
def suggest(
    session: Session,
    tables: TablesArgument = None,
    reports: Annotated[
        Path | None, typer.Option("--reports", help="Scan reports, one JSON object a line.")
    ] = None,
) -> None:
    """Propose statements, as YAML; importing it accepts them.

    Comments that are in the tables already, and what their data suggests, with evidence.
    """
    names = tables or [
        name for name in session.lake.list_tables() if not name.startswith(f"{NAMESPACE}.")
    ]
    profiles = [
        profiled for name in names if (profiled := profile(session.table(name))) is not None
    ]
    lines = [] if reports is None else reports.read_text("utf-8").splitlines()
    drafts = written_comments(survey(session.lake, names), names)
    drafts += propose(profiles, [json.loads(line) for line in lines if line.strip()])
    session.show([draft.to_json() for draft in drafts], Text(write_statements(drafts)))


@command
def import_(
    session: Session,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="YAML of statements, OSI documents, dbt's schema.yml, or Python files with "
            "Dagster's definitions, which are run.",
            exists=True,
        ),
    ],
    by: Annotated[
        str,
        typer.Option("--by", help="Who read them: what has no evidence is taken on their word."),
    ] = "import",
    keep_others: Annotated[
        bool, typer.Option("--keep-others", help="Keep other statements about the same tables.")
    ] = False,
    no_docs: Annotated[
        bool,
        typer.Option("--no-docs", help="Leave column docs, comment and owner of tables alone."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change.")] = False,
) -> None:
    """Bind statements to tables and keep them; earlier ones about these tables are replaced."""
    seen = survey(session.lake)
    names = {table.name: table for table in seen.names.values()}
    drafts = [draft for file in files for draft in _drafts(file, names)]
    statements = [bind(draft, names, seen.now_ms) for draft in drafts]
    covered = set() if keep_others else {draft.table for draft in drafts}
    plan = _plan(seen, statements, covered)
    if not dry_run:
        done = keep_statements(
            session.lake, statements, by, replace=not keep_others, documents=not no_docs
        )
        if not no_docs:
            plan["documented"] = list(done.documented)
        contradicted = [
            result for result in done.checked if result.standing.state is State.CONTRADICTED
        ]
        plan["contradicted"] = [result.draft.statement_id for result in contradicted]
    counts = {key: len(ids) for key, ids in plan.items()}
    lines = [
        f"{key:13} {', '.join(ids[:8])}{' ...' if len(ids) > 8 else ''}"
        for key, ids in plan.items()
        if ids
    ]
    session.show(plan, Text("\n".join([_counted(counts), *lines])))
    if dry_run:
        session.confirm_dry_run()


@command
def export(
    session: Session,
    tables: TablesArgument = None,
    form: Annotated[
        Form, typer.Option("--form", help="Our YAML, OSI, or OSI as dbt and MetricFlow take it.")
    ] = Form.YAML,
    database: Annotated[
        str, typer.Option("--database", help="That of dbt's models, with --form dbt.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="File; standard output by default.")
    ] = None,
) -> None:
    """Write statements as YAML that `import` reads, or as OSI (JSON if --out ends in .json)."""
    seen = survey(session.lake, tables or None)
    left_out: Sequence[str] = ()
    if form is Form.YAML:
        text = write_statements([seen.draft(statement) for statement in seen.statements])
    else:
        document = osi_of(seen)
        if form is Form.DBT:
            fitted = for_dbt(document, database)
            document, left_out = fitted.document, fitted.left_out
        as_json = out is not None and out.suffix == ".json"
        text = document.to_json() if as_json else document.to_yaml()
    if out is None:
        typer.echo(text)
        return
    out.write_text(text, "utf-8")
    lines = [f"{len(seen.statements)} statements in {out}"]
    lines += [f"left out for dbt: {reason}" for reason in left_out]
    session.show({"written": str(out), "left_out": list(left_out)}, Text("\n".join(lines)))


def edit_statements(session: Session, table: str) -> None:
    """Open the statements about a table in the editor and keep what comes back."""
    session.table(table)
    seen = survey(session.lake)
    stated = [statement for statement in seen.statements if seen.draft(statement).table == table]
    drafts = [seen.draft(statement) for statement in stated]
    before = write_statements(drafts) if drafts else f"table: {table}\nstatements: []\n"
    after = click.edit(before, extension=".yaml")
    if after is None or after == before:
        session.console.print("Nothing changed.")
        return
    names = {table.name: table for table in seen.names.values()}
    edited = parse_any(after, "the edited text", names)
    if others := sorted({draft.table for draft in edited} - {table}):
        raise InvalidInputError(f"These are statements about {table}, not {', '.join(others)}")
    statements = [bind(draft, names, seen.now_ms) for draft in edited]
    plan = _plan(seen, statements, {table})
    store = StatementStore(session.lake)
    store.put(statements, replace=True)
    store.remove(plan["removed"])
    accept(session.lake, statements, "edit")
    _show(session, check_statements(session.lake, [table]))


def statement_lines(stated: list[Checked]) -> list[RenderableType]:
    """What `describe` shows of them."""
    rows = [
        (
            Text(str(result.standing.state), style=_STYLES[result.standing.state]),
            str(result.draft.kind),
            result.draft.column or "",
            result.draft.text
            or ", ".join(f"{key} {value}" for key, value in result.draft.claim.items()),
        )
        for result in stated
    ]
    shown = listing(("state", "statement", "about", ""), rows, limit=len(rows))
    return [Text(""), shown] if rows else []


def osi_of(seen: Survey) -> OsiDocument:
    """The OSI document of a survey."""
    return osi_document(
        seen.lake.name,
        [(seen.draft(statement), seen.standing(statement)) for statement in seen.statements],
        {table.name: table.schema() for table in seen.tables.values()},
    )


def _drafts(file: Path, names: Mapping[str, TableNames]) -> list[Draft]:
    """Of a file of any of the forms."""
    if file.suffix != ".py":
        return parse_any(file.read_text("utf-8"), str(file), names)
    assets: Any = load_module("lakehouse.orchestration.asset_statements", "dagster")
    drafts: list[Draft] = assets.drafts_of_assets(assets.specs_of_file(file), names, str(file))
    return drafts


def _plan(seen: Survey, statements: list[Statement], covered: set[str]) -> dict[str, list[str]]:
    """Ids that an import adds, changes and leaves, and those that it removes.

    It removes only statements about the tables that it names.
    """
    before = {statement.statement_id: statement for statement in seen.statements}
    new = {statement.statement_id: statement for statement in statements}
    same = {key for key in new if key in before and before[key].digest() == new[key].digest()}
    return {
        "added": sorted(set(new) - set(before)),
        "changed": sorted(set(new) & set(before) - same),
        "removed": sorted(
            key
            for key, statement in before.items()
            if key not in new and seen.draft(statement).table in covered
        ),
        "unchanged": sorted(same),
    }


def _show(session: Session, results: list[Checked]) -> None:
    data = [result.to_json() for result in results]
    worst = sorted(
        results, key=lambda result: (list(_STYLES).index(result.standing.state), result.draft.table)
    )
    rows = [
        (
            Text(str(result.standing.state), style=_STYLES[result.standing.state]),
            result.draft.table + (f".{result.draft.column}" if result.draft.column else ""),
            str(result.draft.kind),
            result.draft.statement_id,
            result.standing.reason,
        )
        for result in worst
        if result.standing.state is not State.VERIFIED
    ]
    counts = Counter(str(result.standing.state) for result in results)
    summary = Text(_counted(counts) or "No statements.")
    shown = listing(("state", "about", "kind", "statement", "why"), rows, limit=len(rows))
    session.show(data, Group(summary, shown) if rows else summary)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if count)


VERBS = {"check": check_, "suggest": suggest, "import": import_, "export": export}
