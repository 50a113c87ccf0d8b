"""Faults that were there once, planted again: the rounds have to find each of them."""

from __future__ import annotations
import __future__

import contextlib
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from lakehouse.kept_by_bytes import MADE


@dataclass(frozen=True)
class Mutant:
    """A function of ours with other text in it.

    Attributes:
        fault: what it does wrong.
        place: module and name in it, `module:name` or `module:Class.name`.
        text: what stands there; `planted` is put into its place.
        bends: those that can show it; none: legal tables do.
        seed: where the suite begins to look, close to one that shows it.
        taken: whether files that we take in show it.
        no_history: why histories, which Java judges, cannot show it.
    """

    fault: str
    place: str
    text: str
    planted: str
    bends: tuple[str, ...] = ()
    seed: int = 0
    taken: bool = False
    no_history: str = ""

    @contextlib.contextmanager
    def planted_in(self) -> Iterator[None]:
        """With the fault. Raises ValueError where the text is not there any more."""
        module_name, _, name = self.place.partition(":")
        module = importlib.import_module(f"lakehouse.{module_name}")
        owner: Any = module
        *around, last = name.split(".")
        for part in around:
            owner = getattr(owner, part)
        kept = inspect.getattr_static(owner, last)
        source = textwrap.dedent(inspect.getsource(getattr(kept, "fget", None) or kept))
        if self.text not in source:
            raise ValueError(f"{self.place} has changed: {self.text!r} is not in it")
        changed = compile(
            source.replace(self.text, self.planted),
            f"<{self.fault}>",
            "exec",
            flags=__future__.annotations.compiler_flag,
        )
        scope: dict[str, Any] = {}
        exec(changed, vars(module), scope)  # noqa: S102 - our own text
        forget()
        others = [one for name, one in sys.modules.items() if name.startswith("lakehouse.")]
        holders = [owner, *(one for one in others if vars(one).get(last) is kept)]
        try:
            with contextlib.ExitStack() as stack:
                for holder in holders:
                    stack.enter_context(mock.patch.object(holder, last, scope[last]))
                yield
        finally:
            forget()


def forget() -> None:
    """What was made of schemas by a mutant, or before it."""
    MADE.clear()


MUTANTS = [
    Mutant(
        "0: batches without columns have no rows",
        "data.reading.scan_columns:make_batch",
        "if not columns:",
        "if False:",
    ),
    Mutant(
        "1: a dropped field of a struct is looked for at the top",
        "data.reading.scan_columns:_with_dropped",
        "return [*fields, _optional(dropped)",
        "while isinstance(dropped.field_type, StructType):\n"
        "        dropped = dropped.field_type.fields[0]\n"
        "    return [*fields, _optional(dropped)",
        seed=17,
    ),
    Mutant(
        "1: a key that is inside a struct of the delete file is not found there",
        "data.reading.scan_reader:_outside_collections",
        "if pa.types.is_struct(column.type):",
        "if False:",
        seed=6,
    ),
    Mutant(
        "1: a key that the delete file lacks is null",
        "data.reading.scan_reader:_flat_batches",
        "    if lacking:",
        "    if lacking:\n"
        "        return [pa.RecordBatch.from_pylist([dict.fromkeys(schema.column_names)],"
        " schema=schema_to_arrow(schema))]\n"
        "    if False:",
        ("a delete file without its key",),
    ),
    Mutant(
        "1: the oldest type of a dropped field is taken",
        "data.reading.scan_reader:RowReader._schema_with",
        "key=lambda schema: -schema.schema_id",
        "key=lambda schema: schema.schema_id",
        seed=10,
    ),
    Mutant(
        "1: equality deletes of no partition reach their own spec alone",
        "scan.delete_index:DeleteIndex._add",
        "if is_unpartitioned(specs[file.spec_id]):",
        "if False:",
        seed=56,
    ),
    Mutant(
        "1: equality deletes reach rows of their own commit",
        "scan.delete_index:DeleteIndex.deletes_for",
        "if sequence_number < delete.sequence_number]",
        "if sequence_number <= delete.sequence_number]",
        seed=11,
    ),
    Mutant(
        "1: null keys delete nothing",
        "data.deletes.delete_loader:EqualityKeys.matches",
        "matched &= here.is_valid().to_numpy(zero_copy_only=False)",
        "matched &= here.is_valid().to_numpy(zero_copy_only=False) & "
        "columns[field_id].is_valid().to_numpy(zero_copy_only=False)",
        seed=7,
    ),
    Mutant(
        "1: the default of a dropped field is forgotten",
        "data.reading.scan_columns:_optional",
        'update={"required": False,',
        'update={"initial_default": None, "required": False,',
        seed=151,
    ),
    Mutant(
        "1: what cannot be compared is compared",
        "data.reading.scan_reader:RowReader._schema_with",
        "if not isinstance(field.field_type, PrimitiveType):",
        "if False:",
        ("equality by what cannot be compared",),
        seed=116,
    ),
    Mutant(
        "2: ids are judged for a file",
        "data.reading.column_projection:_without_id",
        "    for column in columns:",
        "    if not above and any(column.field_id is not None for column in columns):\n"
        "        return\n"
        "    for column in columns:",
        ("ids in some columns alone", "ids in some columns and a mapping"),
        no_history="of 40 tables with such files and a mapping Java reads 10 right",
    ),
    Mutant(
        "2: an id of two columns is the last one's",
        "data.reading.column_projection:Projection.__init__",
        "if other is not column:",
        "if False:",
        ("one id for two columns",),
    ),
    Mutant(
        "2: files whose leaf columns are alike are taken for alike",
        "data.reading.parquet_reader:_groups",
        "if name_mapping is None and",
        "if name_mapping is None or",
        seed=86,
    ),
    Mutant(
        "2: fields of structs in Avro files have no ids",
        "data.reading.avro_reader:_Types.column",
        'field.get("field-id"), field["type"]',
        'field.get("field-id") if field_id is None else None, field["type"]',
        seed=5,
    ),
    Mutant(
        "3: position deletes are skipped by bounds of paths",
        "spec.manifests.data_file:DataFile.may_name",
        "return self.named_file in (None, path)",
        "low, high = self.lower_bounds.get(PATH_FIELD_ID), self.upper_bounds.get(PATH_FIELD_ID)\n"
        "    return (low or b'') <= path.encode() and (high is None or path.encode() <= high)",
        ("bounds of paths that cover nothing",),
    ),
    Mutant(
        "3: paths that were cut name a file",
        "spec.manifests.data_file:DataFile.named_file",
        "and path.endswith(DATA_FILE_ENDINGS)",
        "",
        ("bounds of paths that cover nothing",),
    ),
    Mutant(
        "3: inverted bounds prune",
        "scan.pruning.entry_pruning:_in_order",
        "if lower is None or upper is None:",
        "if True:",
        ("bounds that are inverted",),
    ),
    Mutant(
        "3: counts that contradict the rows prune",
        "scan.pruning.entry_pruning:statistics_of_files",
        "is not None:",
        "is ...:",
        ("counts that contradict the rows", "more nulls than values"),
    ),
    Mutant(
        "3: entries are what their manifest is listed as",
        "manifests.manifest_reader:_check",
        "value not in allowed",
        "False",
        ("a delete manifest listed as data", "a status that nobody knows"),
    ),
    Mutant(
        "4: the last of two vectors wins",
        "scan.delete_index:DeleteIndex._add_vector",
        "if other is not delete:",
        "if False:",
        ("a second vector of a file",),
    ),
    Mutant(
        "4: a vector that names no file is of the whole partition",
        "scan.delete_index:DeleteIndex._add_vector",
        "if not named:",
        "if not named:\n"
        "        self._by_partition.setdefault(delete.file.partition_key, []).append(delete)\n"
        "        return\n"
        "    if False:",
        ("a vector that names no file",),
        seed=116,
    ),
    Mutant(
        "4: a vector older than its file is passed over",
        "scan.delete_index:_check_vector",
        "vector.sequence_number < sequence_number",
        "False",
        ("a vector that is older than its file",),
        seed=5,
    ),
    Mutant(
        "4: a vector may reach beyond its file",
        "data.deletes.delete_loader:DeleteLoader._vector_of",
        "if len(positions) and",
        "if False and",
        ("a vector beyond its file",),
    ),
    Mutant(
        "4: negative positions are passed over",
        "data.deletes.delete_loader:DeleteLoader._read_positions",
        "if table.num_rows and",
        "if False and",
        ("a negative position",),
    ),
    Mutant(
        "1: a field that is named twice is two",
        "data.deletes.delete_loader:DeleteLoader.equality",
        "tuple(sorted(set(delete.equality_ids)))",
        "tuple(sorted(delete.equality_ids))",
        ("a key that is said twice",),
    ),
    Mutant(
        "3: manifests whose counts contradict each other are dropped by commits",
        "spec.manifests.manifest_list:has_counts",
        "return all(files or not rows",
        "return True or all(files or not rows",
        ("a status that nobody knows",),
        seed=18,
    ),
    Mutant(
        "3: summaries of partitions that cannot be read hide manifests from commits",
        "manifests.manifest_writer:_range",
        "not known or",
        "known and",
        ("summaries of partitions that are wrong",),
        seed=24,
    ),
    Mutant(
        "3: entries are newer than their manifest",
        "manifests.manifest_reader:_check_numbers",
        "if manifest.sequence_number is not None and",
        "if False and",
        ("entries from the future",),
    ),
    Mutant(
        "3: manifests are newer than their snapshot",
        "manifests.manifest_reader:listed_manifests",
        "if newest is not None and",
        "if False and",
        ("manifests from the future",),
    ),
    Mutant(
        "3: one of two snapshots with an id is taken",
        "spec.metadata.lazy_json_list:_Segment._search",
        "or raw.find(key) < at",
        "",
        ("a snapshot twice",),
    ),
    Mutant(
        "6: values beyond the column are taken in",
        "data.writing.foreign_file:_Facts._fits",
        "if not unsigned and ticks <= 1:",
        "if True:",
        taken=True,
    ),
    Mutant(
        "6: nulls in required columns are taken in",
        "data.writing.foreign_file:_Facts._doubtful",
        "return (required and (nulls is None or nulls > 0)) or",
        "return",
        taken=True,
    ),
    Mutant(
        "13c: names of reference systems are in lower case",
        "spec.schema.iceberg_types:primitive_from_string",
        "_GEOSPATIAL.fullmatch(text)",
        "_GEOSPATIAL.fullmatch(text.lower())",
        ("types of places",),
    ),
]

OF_HISTORIES = [
    Mutant(
        "5: a compaction into another spec overlooks equality deletes beside it",
        "transaction.conflict_rules:reaches_moved_rows_alike",
        "if len({spec_id for spec_id, *_ in keys}) > 1 else",
        "if False else",
    ),
    Mutant(
        "19a: a handle whose snapshot has expired finds a file missing",
        "table.row_write:RowWrite._expired",
        "head is not None",
        "False",
    ),
]
"""Those that only histories of several writers show (`tests.conformance.java --planted`)."""

OF_KILLED_RUNS = [
    Mutant(
        "20: branches of runs that died stay",
        "orchestration.asset_results:remove_dead_branches",
        "run is None or not run.is_finished",
        "True",
        seed=6,
    ),
    Mutant(
        "20: files that no metadata reaches stay",
        "maintenance.orphan_removal:plan_orphan_removal",
        "neighbours, cut_ms, purge_ms)",
        "neighbours, 0, purge_ms)",
        seed=4,
    ),
    Mutant(
        "20: the next run of a plain asset leaves the branch of one that died",
        "orchestration.assets.lakehouse_io_manager:LakehouseIOManager._store",
        "remove_dead_branches(write.table,",
        "(lambda *_: [])(write.table,",
        seed=6,
    ),
]
"""Those that only runs that die show (`tests.hostile --killed --planted`)."""
