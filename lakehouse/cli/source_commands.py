"""`new-source`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from lakehouse.cli.command_session import Session, command, load_module
from lakehouse.errors import InvalidInputError

_ROOM = "lakehouse.ingestion.proposal"


@command
def new_source(
    session: Session,
    name: Annotated[str, typer.Argument(help="Of the source: a lower-case identifier.")],
    sample: Annotated[str, typer.Argument(help="A file or a folder, also s3://bucket/prefix.")],
    event_time: Annotated[
        str | None, typer.Option(help="The field that tells when an event happened.")
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="IANA zone of times without an offset: UTC.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option("--key", help="A field that identifies an event in its day, repeatable."),
    ] = None,
    bucket: Annotated[
        str | None,
        typer.Option(help="The field whose hash splits a day; by default none below 256 MiB."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="NAME=VALUE",
            help="How text is read, repeatable: encoding=cp1252, delimiter=;, "
            "event_time_format=dd.MM.yyyy, and the others of ReadOptions.",
        ),
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="So many records are looked at.")] = 100_000,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write: assets/NAME.py of the checkout."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Propose, write nothing.")] = False,
) -> None:
    """Read a sample of events, propose a source, and write its definition.

    Event time, key, bucket and types come from the data unless options say otherwise. The output
    shows what the source would quarantine of the sample.

    Example: lakehouse new-source clicks landing/clicks
    """
    samples: Any = load_module(f"{_ROOM}.sampled_records", "dagster")
    proposals: Any = load_module(f"{_ROOM}.source_proposal", "dagster")
    definitions: Any = load_module(f"{_ROOM}.source_definition", "dagster")
    target = None if dry_run else _target(name, to)
    location = sample if "://" in sample else str(Path(sample).resolve())
    proposal = proposals.propose_source(
        name,
        samples.find_sample(location, session.options.properties, most),
        proposals.Wishes(event_time, zone, tuple(key or ()), bucket, tuple(option or ())),
        datetime.fromtimestamp(session.environment.now_ms() / 1000, tz=UTC).date(),
    )
    session.report(proposal, dry_run=target is None)
    if target is None:
        return
    with target.open("x", encoding="utf-8") as file:
        file.write(definitions.definition_text(proposal.source))
    folder = target.parent.parent
    # jobs and sensors by name, where the project has them so
    named = definitions.registration(folder, name) if to is None else None
    for path, text in (named or {}).items():
        path.write_text(text, encoding="utf-8")
    if not session.json:
        also = ", ".join(str(path.relative_to(folder)) for path in named or {})
        session.console.print(
            f"Wrote {target}{f' and its jobs, sensor and schedule into {also}' if also else ''}. "
            f"Put files into <landing root>/{name}/ and reload the definitions."
        )


def _target(name: str, to: Path | None) -> Path:
    """The module to write. Raises InvalidInputError when it is there already."""
    if to is None:
        checkout: Any = load_module("lakehouse.orchestration.checkout", "dagster")
        to = checkout.find_checkout(Path.cwd()) / "assets" / f"{name}.py"
    if to.exists():
        raise InvalidInputError(f"{to} exists already: choose another name, or say --to FILE")
    return to
