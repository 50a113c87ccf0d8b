"""`compact`, `expire`, `rewrite-manifests` and `remove-orphans`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from lakehouse.catalog.catalog_by_uri import absolute
from lakehouse.cli.catalog_commands import TableArgument
from lakehouse.cli.command_session import DryRunOption, Session, command, load_module
from lakehouse.cli.scan_commands import EngineName
from lakehouse.data.group_rewriting import GroupExecutor
from lakehouse.engines import executor_for
from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.backup import backup as backed_up
from lakehouse.maintenance.backup import restore as restored
from lakehouse.maintenance.compaction.compaction import execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_compaction
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.maintenance_policy import MaintenancePolicy, policy_of
from lakehouse.maintenance.manifest_rewrite import (
    ManifestRewriteOptions,
    execute_columnar,
    execute_manifest_rewrite,
    plan_columnar,
    plan_manifest_rewrite,
)
from lakehouse.maintenance.orphan_removal import (
    OrphanOptions,
    execute_orphan_removal,
    plan_orphan_removal,
)
from lakehouse.maintenance.relocation import relocate as relocated
from lakehouse.maintenance.retention.snapshot_expiry import (
    ExpiryOptions,
    expire_snapshots,
    plan_expiry,
)
from lakehouse.maintenance.table_path import rewrite_table_path as staged_paths
from lakehouse.spec.table_properties import TableProperties
from lakehouse.table import Table
from lakehouse.table.times import duration_ms, moment_ms


def _policy(session: Session, table: Table) -> MaintenancePolicy:
    """Of the table, over the project's defaults: catalog properties of the same names."""
    return policy_of(table.metadata.properties, session.options.properties)


WhereOption = Annotated[
    str | None, typer.Option("--where", help="Only files that may hold matching rows.")
]
TargetSizeOption = Annotated[
    int | None,
    typer.Option(
        "--target-size",
        min=1,
        help="Bytes; the table's write.target-file-size-bytes by default.",
    ),
]
MinInputFilesOption = Annotated[
    int | None,
    typer.Option(
        "--min-input-files",
        min=1,
        help="Small files that make a group worth rewriting; the policy's by default.",
    ),
]
SkipRecentOption = Annotated[
    str | None,
    typer.Option(
        "--skip-recent",
        help="Leave partitions alone that got rows within this time, such as 1h.",
    ),
]
BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        help="Bytes to read at most, the best groups first; the policy's by default.",
    ),
]
BranchOption = Annotated[str, typer.Option("--branch", help="The branch to compact.")]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", help="Only this one, as `lakehouse health` names it, repeatable."),
]
SortByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sort-by",
        help=(
            "Sort rows over the files of a group, by a term such as 'event_ts desc', repeatable."
        ),
    ),
]
ZorderByOption = Annotated[
    list[str] | None,
    typer.Option(
        "--zorder-by", help="Arrange rows along a Z-curve through these columns, repeatable."
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        "--engine",
        help="arrow rewrites here, without a JVM; spark by tasks of a local session.",
    ),
]
AllOption = Annotated[bool, typer.Option("--all", help="Rewrite every file.")]


@command
def compact(
    session: Session,
    table: TableArgument,
    where: WhereOption = None,
    target_size: TargetSizeOption = None,
    min_input_files: MinInputFilesOption = None,
    skip_recent: SkipRecentOption = None,
    budget: BudgetOption = None,
    branch: BranchOption = "main",
    partition: PartitionOption = None,
    sort_by: SortByOption = None,
    zorder_by: ZorderByOption = None,
    engine: EngineOption = EngineName.ARROW,
    rewrite_all: AllOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Rewrite small files into few of target size and apply deletes; the rows stay the same.

    Example: lakehouse compact raw.flights --dry-run
    """
    handle = session.table(table)
    target = target_size or TableProperties(handle.metadata.properties).target_file_size_bytes
    policy = CompactionOptions.under(_policy(session, handle), target)
    options = replace(
        policy,
        where=where,
        target_file_size_bytes=target_size,
        min_input_files=min_input_files or policy.min_input_files,
        skip_newer_than_ms=None if skip_recent is None else duration_ms(skip_recent),
        budget_bytes=budget or policy.budget_bytes,
        branch=branch,
        partitions=frozenset(partition) if partition else None,
        sort_by=tuple(sort_by or ()),
        zorder_by=tuple(zorder_by or ()),
        rewrite_all=rewrite_all,
    )
    plan = plan_compaction(
        handle.catalog, handle.identifier, options, environment=session.environment
    )
    if plan.unknown_partitions:
        names = ", ".join(plan.unknown_partitions)
        raise InvalidInputError(
            f"{table} has no files in partition {names}; `lakehouse health {table}` names its "
            "partitions"
        )
    with _executor(None if dry_run else engine) as executor:
        run = partial(
            execute_compaction,
            handle.catalog,
            plan,
            environment=session.environment,
            executor=executor,
        )
        session.carry_out(plan, run, dry_run=dry_run)


@contextmanager
def _executor(engine: EngineName | None) -> Iterator[GroupExecutor | None]:
    """Where groups are rewritten; None: in threads of this process."""
    if engine is not EngineName.SPARK:
        yield None
        return
    spark: Any = load_module("lakehouse.spark.spark_session", "spark").build_session(
        "lakehouse-compact"
    )
    try:
        yield executor_for(spark)
    finally:
        spark.stop()


@command
def expire(
    session: Session,
    table: TableArgument,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="An age such as 5d, or ISO 8601; the table's history.expire.* by default.",
        ),
    ] = None,
    retain_last: Annotated[
        int | None,
        typer.Option(
            "--retain-last", min=1, help="Keep at least this many snapshots of each branch."
        ),
    ] = None,
    snapshot_id: Annotated[
        list[int] | None,
        typer.Option("--snapshot-id", help="Expire this one whatever its age, repeatable."),
    ] = None,
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Leave unreachable files to remove-orphans.")
    ] = False,
    old_metadata: Annotated[
        bool,
        typer.Option(
            "--old-metadata",
            help="Also delete metadata files that the metadata log no longer names.",
        ),
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Expire old snapshots and delete the files that only they need.

    Example: lakehouse expire raw.flights --older-than 7d
    """
    handle = session.table(table)
    options = ExpiryOptions(
        older_than_ms=None
        if older_than is None
        else moment_ms(older_than, session.environment.now_ms()),
        retain_last=retain_last,
        snapshot_ids=tuple(snapshot_id or ()),
        remove_files=not keep_files,
        remove_old_metadata=old_metadata,
    )
    arguments = (handle.catalog, handle.identifier, options)
    plan = partial(plan_expiry, *arguments, environment=session.environment)
    run = partial(expire_snapshots, *arguments, environment=session.environment)
    session.carry_out(plan, run, dry_run=dry_run)


@command
def rewrite_manifests(
    session: Session,
    table: TableArgument,
    target_size: Annotated[
        int | None,
        typer.Option(
            "--target-size",
            min=1,
            help="Bytes; the table's commit.manifest.target-size-bytes by default.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Rewrite also what is few and well clustered.")
    ] = False,
    columnar: Annotated[
        bool,
        typer.Option("--columnar", help="Only write the columnar manifests that are missing."),
    ] = False,
    dry_run: DryRunOption = False,
) -> None:
    """Cluster the manifests of a table by partition, and write columnar manifests.

    Example: lakehouse rewrite-manifests raw.flights --dry-run
    """
    handle = session.table(table)
    place, environment = (handle.catalog, handle.identifier), session.environment
    if columnar:
        missing = plan_columnar(*place)
        write = partial(execute_columnar, handle.catalog, missing, environment=environment)
        session.carry_out(missing, write, dry_run=dry_run)
        return
    options = ManifestRewriteOptions(target_size_bytes=target_size, force=force)
    plan = plan_manifest_rewrite(*place, options, environment=environment)
    run = partial(execute_manifest_rewrite, handle.catalog, plan, environment=environment)
    session.carry_out(plan, run, dry_run=dry_run)


@command
def relocate(
    session: Session,
    original: Annotated[
        str | None,
        typer.Option("--from", help="Where the warehouse was; as its tables say by default."),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Make a copied warehouse name its own files.

    Every path of the original in metadata, manifests and delete files is rewritten, table after
    table, once the copy has all files of the table. The original is not opened. After an
    error or a crash, run it again.
    """
    done = relocated(
        session.lake.catalog, original=original, dry_run=dry_run, environment=session.environment
    )
    session.report(done, dry_run=dry_run)


@command
def rewrite_table_path(
    session: Session,
    table: TableArgument,
    source_prefix: Annotated[str, typer.Argument(help="The folder that holds all its files.")],
    target_prefix: Annotated[str, typer.Argument(help="What stands in its place then.")],
    start_version: Annotated[
        str | None,
        typer.Option("--start-version", help="Metadata file whose files were copied before."),
    ] = None,
    end_version: Annotated[
        str | None, typer.Option("--end-version", help="Metadata file to end with; the newest.")
    ] = None,
    staging_location: Annotated[
        str | None,
        typer.Option("--staging", help="Where to write; a new folder in the table's metadata."),
    ] = None,
) -> None:
    """Stage a table's metadata for another location, and list the files to copy there.

    Example: lakehouse rewrite-table-path raw.events s3://old/raw/events s3://new/raw/events
    """
    session.report(
        staged_paths(
            session.lake.catalog,
            session.table(table).identifier,
            source_prefix,
            target_prefix,
            start_version=start_version,
            end_version=end_version,
            staging_location=staging_location,
            environment=session.environment,
        )
    )


TablesOption = Annotated[
    list[str] | None, typer.Option("--table", help="Only this table or view, repeatable.")
]


@command
def backup(
    session: Session,
    folder: Annotated[str, typer.Argument(help="A folder or URI outside the warehouse.")],
    table: TablesOption = None,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Delete all but the newest N backups there.")
    ] = None,
) -> None:
    """Back up tables, views, branches and their files, copying what no backup before has.

    All of them as they are at one moment, beside writers. A backup that is killed leaves those
    before it whole.

    Example: lakehouse backup s3://backups/lake --keep 14
    """
    with session.progress() as progress:
        session.report(
            backed_up(
                session.shared_lake.catalog,
                absolute(folder),
                tables=table or (),
                keep=keep,
                environment=session.environment,
                progress=progress,
            )
        )


@command
def restore(
    session: Session,
    folder: Annotated[str, typer.Argument(help="Where the backup is.")],
    number: Annotated[
        int | None, typer.Option("--number", min=1, help="Which backup; the newest by default.")
    ] = None,
    table: TablesOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and verify the whole backup; write nothing.")
    ] = False,
) -> None:
    """Make the tables of a backup those of this catalog, each file verified.

    The catalog may be of any kind and anywhere. Tables that it has already are left alone. After
    an error or a crash, run it again.

    Example: lakehouse restore s3://backups/lake --catalog file:///data/restored
    """
    with session.progress() as progress:
        done = restored(
            session.shared_lake.catalog,
            absolute(folder),
            number=number,
            tables=table or (),
            dry_run=dry_run,
            progress=progress,
        )
    session.report(done, dry_run=dry_run)


@command
def remove_orphans(
    session: Session,
    table: TableArgument,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="An age such as 3d, or ISO 8601; the policy's orphan age by default.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Allow less than 24 hours. Loses files of writers that still run."
        ),
    ] = False,
    no_trash: Annotated[
        bool,
        typer.Option(
            "--no-trash", help="Delete at once instead of moving to the table's _trash folder."
        ),
    ] = False,
    purge_older_than: Annotated[
        str | None,
        typer.Option(
            "--purge-older-than", help="Delete trash older than this for good; 7d by default."
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Move files that no snapshot reaches to the trash, and purge old trash.

    Example: lakehouse remove-orphans raw.flights --dry-run
    """
    handle = session.table(table)
    now_ms = session.environment.now_ms()
    options = OrphanOptions(
        older_than_ms=now_ms - _policy(session, handle).orphan_age_ms
        if older_than is None
        else moment_ms(older_than, now_ms),
        trash=not no_trash,
        purge_trash_older_than_ms=None
        if purge_older_than is None
        else moment_ms(purge_older_than, now_ms),
        force=force,
    )
    plan = plan_orphan_removal(
        handle.catalog, handle.identifier, options, environment=session.environment
    )
    run = partial(execute_orphan_removal, handle.catalog, plan, environment=session.environment)
    session.carry_out(plan, run, dry_run=dry_run)
