"""`history`, `rollback` and `tag`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import Session, command
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.shown_plan import listing
from lakehouse.table import Table
from lakehouse.table.times import duration_ms, moment_ms


@command
def history(
    session: Session,
    table: TableArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Most snapshots to show.")] = 20,
) -> None:
    """Show the snapshots of a table, newest first, with what each changed.

    Example: lakehouse history raw.flights --limit 5
    """
    handle = session.table(table)
    metadata = handle.metadata
    current = {
        snapshot.snapshot_id for snapshot in metadata.ancestors(metadata.current_snapshot_id)
    }
    refs: dict[int, list[str]] = {}
    for name, ref in metadata.refs.items():
        refs.setdefault(ref.snapshot_id, []).append(name)
    rows: list[dict[str, Any]] = [
        {
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "committed_at": snapshot.committed_at.isoformat(timespec="milliseconds"),
            "operation": snapshot.operation,
            "sequence_number": snapshot.sequence_number,
            "is_current_ancestor": snapshot.snapshot_id in current,
            "refs": sorted(refs.get(snapshot.snapshot_id, [])),
            "summary": {
                key: value for key, value in snapshot.summary.items() if key != "operation"
            },
        }
        for snapshot in reversed(handle.snapshots())
    ]
    lines = [
        (
            "*" if row["is_current_ancestor"] else " ",
            row["snapshot_id"],
            row["committed_at"][:19].replace("T", " "),
            row["operation"],
            _change(row["summary"], "records"),
            _change(row["summary"], "data-files"),
            " ".join(row["refs"]),
        )
        for row in rows[:limit]
    ]
    pretty = listing(
        ("", "#snapshot", "committed (UTC)", "operation", "#rows", "#files", "refs"),
        lines,
        limit=limit,
        total=len(rows),
    )
    session.show(rows[:limit], pretty if rows else Text(f"{handle.name} has no snapshots yet."))


def _change(summary: dict[str, str], what: str) -> str:
    added, removed = summary.get(f"added-{what}", "0"), summary.get(f"deleted-{what}", "0")
    return " ".join(
        text
        for text in (f"+{added}" if added != "0" else "", f"-{removed}" if removed != "0" else "")
        if text
    )


@command
def rollback(
    session: Session,
    table: TableArgument,
    snapshot: Annotated[
        str | None, typer.Argument(help="Snapshot id, branch or tag to go back to.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", help="Go back to what was current then: an age such as 2h, or ISO 8601."
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also to a snapshot that is no ancestor of the current one: undoes a rollback.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would happen.")] = False,
) -> None:
    """Make an earlier snapshot of a table current again.

    Nothing is deleted: the later snapshots stay until they expire.

    Example: lakehouse rollback raw.flights --as-of 2h
    """
    handle = session.table(table)
    if (snapshot is None) == (as_of is None):
        raise typer.BadParameter("Give a snapshot id (or branch or tag), or --as-of.")
    before = handle.metadata.current_snapshot_id
    if as_of is not None:
        target = handle.metadata.snapshot_as_of(
            moment_ms(as_of, session.environment.now_ms())
        ).snapshot_id
    else:
        target = find_snapshot(handle, str(snapshot))
    if not force and target not in {
        ancestor.snapshot_id for ancestor in handle.metadata.ancestors(before)
    }:
        raise InvalidInputError(
            f"Snapshot {target} is no ancestor of the current snapshot {before} of {handle.name}; "
            "go there with --force"
        )
    if not dry_run and force:
        handle.transaction().set_current_snapshot(target).commit()
    elif not dry_run:
        handle.rollback_to(target)
    data = {
        "table": handle.name,
        "from_snapshot_id": before,
        "snapshot_id": target,
        "dry_run": dry_run,
    }
    verb = "Would roll" if dry_run else "Rolled"
    session.show(data, Text(f"{verb} {handle.name} back from snapshot {before} to {target}."))


def find_snapshot(table: Table, text: str) -> int:
    """The id of a snapshot given as id, branch or tag.

    Raises NoSuchSnapshotError, NoSuchRefError.
    """
    if text.isdigit():
        return table.metadata.snapshot(int(text)).snapshot_id
    return table.metadata.ref(text).snapshot_id


@command
def tag(
    session: Session,
    table: TableArgument,
    name: Annotated[str, typer.Argument(help="Name of the tag.")],
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot", "-s", help="Snapshot id, branch or tag; the current snapshot by default."
        ),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            "--keep", help="Let expiry drop the tag after this time, such as 90d; never by default."
        ),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the tag instead.")] = False,
) -> None:
    """Name a snapshot, so that expiry keeps it and queries can read it by name.

    Example: lakehouse tag raw.flights audit-2026 --keep 365d
    """
    handle = session.table(table)
    if delete:
        if snapshot is not None or keep is not None:
            raise typer.BadParameter("--delete goes with neither --snapshot nor --keep.")
        snapshot_id = handle.metadata.ref(name).snapshot_id
        if handle.metadata.ref(name).type != "tag":
            raise InvalidInputError(f"{name} of {handle.name} is a branch, not a tag")
        handle.remove_ref(name)
    else:
        target = (
            handle.metadata.current_snapshot_id
            if snapshot is None
            else find_snapshot(handle, snapshot)
        )
        if target is None:
            raise InvalidInputError(f"{handle.name} has no snapshot to tag yet")
        snapshot_id = target
        handle.create_tag(
            name, snapshot_id, max_ref_age_ms=None if keep is None else duration_ms(keep)
        )
    data = {"table": handle.name, "tag": name, "snapshot_id": snapshot_id, "deleted": delete}
    text = f"Removed tag {name} from" if delete else f"Tagged {handle.name} as {name} at"
    session.show(data, Text(f"{text} {handle.name if delete else f'snapshot {snapshot_id}'}."))
