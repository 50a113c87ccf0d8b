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

from lakehouse.cli.command_session import Session, command
from lakehouse.cli.optional_parts import load_module
from lakehouse.curation.checkup import Checked, accept, check_statements
from lakehouse.curation.profiles import profile
from lakehouse.curation.proposals import propose
from lakehouse.curation.standard_fields import standard_fields, write_standard_fields
from lakehouse.curation.statement_import import keep_statements
from lakehouse.curation.statement_store import NAMESPACE, StatementStore
from lakehouse.curation.survey import Survey, survey
from lakehouse.curation.written_comments import written_comments
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


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        no_args_is_help=True,
        help="Statements about tables and columns, and whether they still hold.",
    )
    command(group, "check")(check_)
    command(group, "suggest")(suggest)
    command(group, "import")(import_)
    command(group, "export")(export)
    app.add_typer(group, name="semantics")


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
    if any(one.standing.state is State.CONTRADICTED for one in results):
        raise typer.Exit(1)


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
    found = [one for name in names if (one := profile(session.table(name))) is not None]
    lines = [] if reports is None else reports.read_text("utf-8").splitlines()
    drafts = written_comments(survey(session.lake, names), names)
    drafts += propose(found, [json.loads(line) for line in lines if line.strip()])
    session.show([one.to_json() for one in drafts], Text(write_statements(drafts)))


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
    names = {one.name: one for one in seen.names.values()}
    drafts = [one for file in files for one in _drafts(file, names)]
    statements = [bind(one, names, seen.now_ms) for one in drafts]
    covered = set() if keep_others else {one.table for one in drafts}
    plan = _plan(seen, statements, covered)
    if not dry_run:
        done = keep_statements(
            session.lake, statements, by, replace=not keep_others, documents=not no_docs
        )
        if not no_docs:
            plan["documented"] = list(done.documented)
        contradicted = [one for one in done.checked if one.standing.state is State.CONTRADICTED]
        plan["contradicted"] = [one.draft.statement_id for one in contradicted]
    counts = {key: len(found) for key, found in plan.items()}
    lines = [
        f"{key:13} {', '.join(found[:8])}{' ...' if len(found) > 8 else ''}"
        for key, found in plan.items()
        if found
    ]
    session.show(plan, Text("\n".join([_counted(counts), *lines])))
    if dry_run:
        session.confirm_dry_run()


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
        text = write_statements([seen.draft(one) for one in seen.statements])
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
    lines += [f"left out for dbt: {one}" for one in left_out]
    session.show({"written": str(out), "left_out": list(left_out)}, Text("\n".join(lines)))


def edit_statements(session: Session, table: str) -> None:
    """Open the statements about a table in the editor and keep what comes back."""
    session.table(table)
    seen = survey(session.lake)
    said = [one for one in seen.statements if seen.draft(one).table == table]
    drafts = [seen.draft(one) for one in said]
    before = write_statements(drafts) if drafts else f"table: {table}\nstatements: []\n"
    after = click.edit(before, extension=".yaml")
    if after is None or after == before:
        session.console.print("Nothing changed.")
        return
    names = {one.name: one for one in seen.names.values()}
    edited = parse_any(after, "the edited text", names)
    if others := sorted({one.table for one in edited} - {table}):
        raise InvalidInputError(f"These are statements about {table}, not {', '.join(others)}")
    statements = [bind(one, names, seen.now_ms) for one in edited]
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
            Text(str(one.standing.state), style=_STYLES[one.standing.state]),
            str(one.draft.kind),
            one.draft.column or "",
            one.draft.text or ", ".join(f"{key} {value}" for key, value in one.draft.claim.items()),
        )
        for one in stated
    ]
    shown = listing(("state", "statement", "about", ""), rows, limit=len(rows))
    return [Text(""), shown] if rows else []


def osi_of(seen: Survey) -> OsiDocument:
    """The OSI document of a survey."""
    return osi_document(
        seen.lake.name,
        [(seen.draft(one), seen.standing(one)) for one in seen.statements],
        {table.name: table.schema() for table in seen.tables.values()},
    )


def _drafts(file: Path, names: Mapping[str, TableNames]) -> list[Draft]:
    """Of a file of any of the forms."""
    if file.suffix != ".py":
        return parse_any(file.read_text("utf-8"), str(file), names)
    assets: Any = load_module("lakehouse.orchestration.asset_statements", "dagster")
    found: list[Draft] = assets.drafts_of_assets(assets.specs_of_file(file), names, str(file))
    return found


def _plan(seen: Survey, statements: list[Statement], covered: set[str]) -> dict[str, list[str]]:
    """Ids that an import adds, changes and leaves, and those that it removes.

    It removes only statements about the tables that it names.
    """
    known = {one.statement_id: one for one in seen.statements}
    new = {one.statement_id: one for one in statements}
    same = {key for key in new if key in known and known[key].digest() == new[key].digest()}
    return {
        "added": sorted(set(new) - set(known)),
        "changed": sorted(set(new) & set(known) - same),
        "removed": sorted(
            key for key, one in known.items() if key not in new and seen.draft(one).table in covered
        ),
        "unchanged": sorted(same),
    }


def _show(session: Session, results: list[Checked]) -> None:
    data = [one.to_json() for one in results]
    worst = sorted(
        results, key=lambda one: (list(_STYLES).index(one.standing.state), one.draft.table)
    )
    rows = [
        (
            Text(str(one.standing.state), style=_STYLES[one.standing.state]),
            one.draft.table + (f".{one.draft.column}" if one.draft.column else ""),
            str(one.draft.kind),
            one.draft.statement_id,
            one.standing.reason,
        )
        for one in worst
        if one.standing.state is not State.VERIFIED
    ]
    counts = Counter(str(one.standing.state) for one in results)
    summary = Text(_counted(counts) or "No statements.")
    shown = listing(("state", "about", "kind", "statement", "why"), rows, limit=len(rows))
    session.show(data, Group(summary, shown) if rows else summary)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()) if count)
