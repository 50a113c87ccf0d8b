"""Procedures that tidy up a table, or measure it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lakehouse.errors import InvalidInputError
from lakehouse.maintenance.advice.table_survey import advise_table
from lakehouse.maintenance.compaction.file_groups import CompactionOptions
from lakehouse.maintenance.manifest_rewrite import ManifestRewriteOptions
from lakehouse.maintenance.orphan_removal import (
    OrphanOptions,
    execute_orphan_removal,
    plan_orphan_removal,
)
from lakehouse.maintenance.reachability.reachable_files import FileKind
from lakehouse.spark.catalog.procedure import Call, Procedure, Rows, number_of
from lakehouse.storage.location import canonical
from lakehouse.table.times import to_ms

_GROUPS_PER_COMMIT: int = CompactionOptions().groups_per_commit
_OPTIONS: Mapping[str, tuple[str, Any]] = {
    "target-file-size-bytes": ("target_file_size_bytes", int),
    "min-input-files": ("min_input_files", int),
    "max-file-group-size-bytes": ("max_group_bytes", int),
    "max-concurrent-file-group-rewrites": ("max_workers", int),
    "delete-ratio-threshold": ("delete_ratio_threshold", float),
    "delete-file-threshold": ("delete_files_per_file", int),
    "rewrite-all": ("rewrite_all", lambda text: text.lower() == "true"),
    "partial-progress.enabled": (
        "groups_per_commit",
        lambda text: _GROUPS_PER_COMMIT if text.lower() == "true" else 2**31 - 1,
    ),
}
_WITHOUT_MEANING = frozenset(
    {
        "partial-progress.max-commits",
        "partial-progress.max-failed-commits",
        "rewrite-job-order",
        "remove-dangling-deletes",
        "compression-factor",
        "shuffle-partitions-per-file",
        "var-length-contribution",
        "max-output-size",
    }
)
"""How Iceberg runs its jobs, and what is done here in any case: taken."""
_OF_DELETE_FILES: Mapping[str, tuple[str, Any]] = {
    name: _OPTIONS[name]
    for name in (
        "max-file-group-size-bytes",
        "max-concurrent-file-group-rewrites",
        "partial-progress.enabled",
    )
}
_DELETE_FILES_CHOSEN = frozenset(
    {
        "rewrite-all",
        "min-input-files",
        "target-file-size-bytes",
        "min-file-size-bytes",
        "max-file-size-bytes",
    }
)
"""Which delete files Iceberg rewrites into which: here all are applied, and none is written."""
_REWRITTEN = {
    "rewritten_data_files_count": "INT",
    "added_data_files_count": "INT",
    "rewritten_bytes_count": "BIGINT",
    "failed_data_files_count": "INT",
    "removed_delete_files_count": "INT",
}
_REWRITTEN_DELETES = {
    "rewritten_delete_files_count": "INT",
    "added_delete_files_count": "INT",
    "rewritten_bytes_count": "BIGINT",
    "added_bytes_count": "BIGINT",
}
_DELETED = {
    "deleted_data_files_count": "BIGINT",
    "deleted_position_delete_files_count": "BIGINT",
    "deleted_equality_delete_files_count": "BIGINT",
    "deleted_manifest_files_count": "BIGINT",
    "deleted_manifest_lists_count": "BIGINT",
    "deleted_statistics_files_count": "BIGINT",
}


def _rewrite_data_files(call: Call) -> Rows:
    """Turn small files into few of target size, sorted or along a Z-curve where asked."""
    result = call.table().compact(_compaction(call), spark=call.spark)
    return [
        (
            result.rewritten_files,
            result.added_files,
            result.rewritten_bytes,
            0,
            result.removed_delete_files,
        )
    ]


def _compaction(call: Call) -> CompactionOptions:
    options: dict[str, Any] = {"where": call.where(), "branch": call.get("branch") or "main"}
    options |= _parsed_options(call, "rewrite_data_files", _OPTIONS, _WITHOUT_MEANING)
    strategy, order = (call.get("strategy") or "").lower(), call.get("sort_order")
    if strategy not in ("", "binpack", "sort"):
        raise InvalidInputError(
            f"CALL system.rewrite_data_files: strategy is binpack or sort, not {strategy!r}"
        )
    if order is not None:
        options |= _arranged(order)
    elif strategy == "sort":
        options["sort_by"] = tuple(_sort_terms(call))
    return CompactionOptions(**options)


def _parsed_options(
    call: Call, procedure: str, known: Mapping[str, tuple[str, Any]], taken: frozenset[str]
) -> dict[str, Any]:
    options = {}
    for name, text in call.options().items():
        if name in taken:
            continue
        if name not in known:
            raise InvalidInputError(
                f"CALL system.{procedure}: no option {name!r}; there are "
                f"{', '.join((*known, *sorted(taken)))}"
            )
        key, parse = known[name]
        options[key] = number_of(name, text, parse)
    return options


def _arranged(order: str) -> dict[str, Any]:
    text = order.strip()
    if text.lower().startswith("zorder(") and text.endswith(")"):
        return {
            "zorder_by": tuple(column.strip() for column in text[len("zorder(") : -1].split(","))
        }
    return {"sort_by": tuple(column.strip() for column in text.split(","))}


def _sort_terms(call: Call) -> list[str]:
    table = call.table()
    schema, order = table.schema(), table.metadata.sort_order()
    if not order.fields:
        raise InvalidInputError(f"{table.name} has no sort order: say sort_order => 'a, b desc'")
    terms = []
    for field in order.fields:
        column, direction = schema.find_column_name(field.source_id), field.direction.value
        if str(field.transform) == "identity":
            terms.append(f"{column} {direction} {field.null_order.value}")
        else:
            terms.append(f"{field.transform}({column}) {direction}")
    return terms


def _rewrite_position_delete_files(call: Call) -> Rows:
    """Rewrite files that have deletes, without their deleted rows."""
    name = "rewrite_position_delete_files"
    options = CompactionOptions(
        where=call.where(),
        delete_ratio_threshold=1e-9,
        min_input_files=2**31 - 1,
        **_parsed_options(call, name, _OF_DELETE_FILES, _WITHOUT_MEANING | _DELETE_FILES_CHOSEN),
    )
    result = call.table().compact(options, spark=call.spark)
    return [(result.removed_delete_files, 0, result.rewritten_bytes, result.added_bytes)]


def _rewrite_manifests(call: Call) -> Rows:
    """Cluster manifests by partition."""
    result = call.table().rewrite_manifests(ManifestRewriteOptions(force=True))
    return [(result.replaced_manifests, result.added_manifests)]


def _expire_snapshots(call: Call) -> Rows:
    """Forget old snapshots and remove exactly the files that only they reached."""
    result = call.table().expire_snapshots(
        older_than=call.time("older_than"),
        retain_last=call.get("retain_last"),
        snapshot_ids=call.get("snapshot_ids") or (),
    )
    kinds = (
        FileKind.DATA,
        FileKind.DELETES,
        None,
        FileKind.MANIFEST,
        FileKind.MANIFEST_LIST,
        FileKind.STATISTICS,
    )
    return [tuple(0 if kind is None else result.deleted_files.get(kind, 0) for kind in kinds)]


def _remove_orphan_files(call: Call) -> Rows:
    """Move files that nothing reaches to the trash, and say which they are."""
    table, older_than = call.table(), call.time("older_than")
    options = OrphanOptions(
        older_than_ms=None if older_than is None else to_ms(older_than),
        aliases=_aliases(call, table.metadata.location),
    )
    plan = plan_orphan_removal(
        table.catalog, table.identifier, options, environment=table.environment
    )
    if (folder := call.get("location")) is not None:
        within = canonical(folder).rstrip("/") + "/"
        if not within.startswith(canonical(table.metadata.location).rstrip("/") + "/"):
            raise InvalidInputError(
                f"CALL system.remove_orphan_files: location {folder} is not in the folder of "
                f"{table.name}, {table.metadata.location}",
                table=table.name,
            )
        orphans = (
            orphan for orphan in plan.orphans if canonical(orphan.location).startswith(within)
        )
        plan = replace(plan, orphans=tuple(orphans), purges=(), restores=())
    if not call.get("dry_run"):
        execute_orphan_removal(table.catalog, plan, environment=table.environment)
    return [(orphan.location,) for orphan in plan.orphans]


def _aliases(call: Call, location: str) -> dict[str, str]:
    """`equal_schemes` and `equal_authorities` as `OrphanOptions.aliases` has them."""
    scheme = location.partition("://")[0]
    aliases = {
        **dict(call.get("equal_schemes") or {}),
        **{
            ",".join(
                f"{scheme}://{authority.strip()}" for authority in names.split(",")
            ): f"{scheme}://{same}"
            for names, same in dict(call.get("equal_authorities") or {}).items()
        },
    }
    return {alias.strip(): same for names, same in aliases.items() for alias in names.split(",")}


def _compute_table_stats(call: Call) -> Rows:
    """Count the different values of columns into the snapshot's statistics file."""
    result = call.table().compute_statistics(
        call.get("columns"), snapshot_id=call.get("snapshot_id")
    )
    return [(result.location,)]


def _compute_partition_stats(call: Call) -> Rows:
    """Count rows, files and deletes of each partition into the snapshot's file of them."""
    table, snapshot_id = call.table(), call.get("snapshot_id")
    if snapshot_id is None and table.current_snapshot() is None:
        return []
    return [(table.compute_partition_statistics(snapshot_id=snapshot_id).location,)]


def _health(call: Call) -> Rows:
    """Small files, manifests, snapshots and skew, from metadata alone."""
    return [(str(fact), str(value)) for fact, value in call.table().health().facts()]


def _advise(call: Call) -> Rows:
    """What maintenance can do, and what a person should look at."""
    table = call.table()
    advice = advise_table(table.catalog, table.identifier, environment=table.environment)
    return [(str(fact), str(value)) for fact, value in advice.facts()]


_TABLE = {"table": "STRING"}
_OF_THEIR_JOBS = {"max_concurrent_deletes": "INT", "stream_results": "BOOLEAN"}
"""How Iceberg runs its jobs: taken, and without a meaning here, as `use_caching` is."""
_FACTS = {"fact": "STRING", "value": "STRING"}
PROCEDURES = (
    Procedure(
        "rewrite_data_files",
        _TABLE,
        {
            "strategy": "STRING",
            "sort_order": "STRING",
            "options": "MAP<STRING, STRING>",
            "where": "STRING",
            "branch": "STRING",
        },
        _REWRITTEN,
        _rewrite_data_files,
    ),
    Procedure(
        "rewrite_position_delete_files",
        _TABLE,
        {"options": "MAP<STRING, STRING>", "where": "STRING"},
        _REWRITTEN_DELETES,
        _rewrite_position_delete_files,
    ),
    Procedure(
        "rewrite_manifests",
        _TABLE,
        {"use_caching": "BOOLEAN"},
        {"rewritten_manifests_count": "INT", "added_manifests_count": "INT"},
        _rewrite_manifests,
        {
            "spec_id": ("INT", "the manifests of all specs are clustered"),
            "sort_by": ("ARRAY<STRING>", "manifests are clustered by their partitions in order"),
        },
    ),
    Procedure(
        "expire_snapshots",
        _TABLE,
        {
            "older_than": "TIMESTAMP",
            "retain_last": "INT",
            **_OF_THEIR_JOBS,
            "snapshot_ids": "ARRAY<BIGINT>",
        },
        _DELETED,
        _expire_snapshots,
        {
            "clean_expired_metadata": (
                "BOOLEAN",
                "schemas and partition specs stay, for whoever still writes by one",
            )
        },
    ),
    Procedure(
        "remove_orphan_files",
        _TABLE,
        {
            "older_than": "TIMESTAMP",
            "location": "STRING",
            "dry_run": "BOOLEAN",
            **_OF_THEIR_JOBS,
            "equal_schemes": "MAP<STRING, STRING>",
            "equal_authorities": "MAP<STRING, STRING>",
            "prefix_listing": "BOOLEAN",
        },
        {"orphan_file_location": "STRING"},
        _remove_orphan_files,
        {
            "file_list_view": ("STRING", "files are listed where they lie"),
            "prefix_mismatch_mode": (
                "STRING",
                "equal_schemes and equal_authorities say which prefixes mean the same",
            ),
        },
    ),
    Procedure(
        "compute_table_stats",
        _TABLE,
        {"snapshot_id": "BIGINT", "columns": "ARRAY<STRING>"},
        {"statistics_file": "STRING"},
        _compute_table_stats,
    ),
    Procedure(
        "compute_partition_stats",
        _TABLE,
        {"snapshot_id": "BIGINT"},
        {"partition_statistics_file": "STRING"},
        _compute_partition_stats,
    ),
    Procedure("health", _TABLE, {}, _FACTS, _health),
    Procedure("advise", _TABLE, {}, _FACTS, _advise),
)
