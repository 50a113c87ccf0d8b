"""Table properties: those that are honoured, refused, and kept for other engines.

A property has a name, how its text is read, a default and a meaning.
`TableProperties(metadata.properties).target_file_size_bytes` reads one, typed;
`TableProperties.target_file_size_bytes.name` is its name. Whatever else a table has is kept.
`without_effect` says in words what of that nothing here honours.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast, overload

from lakehouse.errors import InvalidPropertyError
from lakehouse.spec.identifier import full_uri

T = TypeVar("T")

LONG_MAX = 2**63 - 1


class PropertyView(Protocol):
    """Whatever has properties as attributes: `raw` holds them as text."""

    raw: Mapping[str, str]


class Property(Generic[T]):
    """One table property.

    Attributes:
        name: as in table metadata.
        default: its value where it is not set.
        meaning: what it does, one line.
    """

    def __init__(self, name: str, parse: Callable[[str], T], default: T, meaning: str) -> None:
        self.name = name
        self.default = default
        self.meaning = meaning
        self._parse = parse

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Property[T]: ...

    @overload
    def __get__(self, instance: PropertyView, owner: type[object]) -> T: ...

    def __get__(self, instance: PropertyView | None, owner: type) -> Property[T] | T:
        return self if instance is None else self.read(instance.raw)

    def read(self, properties: Mapping[str, str]) -> T:
        """The value set in `properties`, else the default; raises InvalidPropertyError."""
        text = properties.get(self.name)
        if text is None:
            return self.default
        try:
            return self._parse(text)
        except ValueError as error:
            raise InvalidPropertyError(
                f"Property {self.name} = {text!r}: {error} Set another value, or remove the "
                "property.",
                property=self.name,
            ) from error


def _integer(text: str, least: int) -> int:
    if re.fullmatch(r"[+-]?\d{1,19}", text.strip()) is None:
        raise ValueError("must be an integer.")
    value = int(text)
    if not least <= value <= LONG_MAX:
        raise ValueError(f"must be at least {least} and fit a long.")
    return value


def natural(text: str) -> int:
    """An integer from 0."""
    return _integer(text, 0)


def positive(text: str) -> int:
    """An integer from 1."""
    return _integer(text, 1)


def several_or_none(text: str) -> int:
    """An integer from 2, or 0."""
    value = _integer(text, 0)
    if value == 1:
        raise ValueError("must be 0, or 2 or more.")
    return value


def fraction(text: str) -> float:
    """A number from 0 to 1."""
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1.")
    return value


def probability(text: str) -> float:
    """A number above 0 and below 1; raises ValueError."""
    value = fraction(text)
    if not 0 < value < 1:
        raise ValueError("must be above 0 and below 1.")
    return value


def boolean(text: str) -> bool:
    """`true` or `false`, in any case."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false.")
    return lowered == "true"


def optional_of(parse: Callable[[str], T]) -> Callable[[str], T | None]:
    """The same, for a property that has no default."""
    return parse


def optional_text(text: str) -> str | None:
    """The text; None where it is empty."""
    return text or None


def optional_integer(text: str) -> int | None:
    """An int; None where it is empty or `null`, as Java writes it."""
    return None if text.strip() in ("", "null") else _integer(text, -(2**31))


def hours_of_day(text: str) -> frozenset[int]:
    """`22-6,12-13`: hours from the first up to but without the last; empty: all of the day."""
    if not text.strip():
        return frozenset(range(24))
    hours: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,2})\s*-\s*(\d{1,2})\s*", part)
        if (
            match is None
            or int(match[1]) > 23
            or int(match[2]) > 24
            or int(match[1]) == int(match[2])
        ):
            raise ValueError("must be ranges of hours such as 22-6 or 1-5,12-13.")
        first, last = int(match[1]), int(match[2])
        hours.update(range(first, last) if first < last else (*range(first, 24), *range(last)))
    return frozenset(hours)


@dataclass(frozen=True, slots=True)
class AgeStep:
    """From which age on, counted from the end of a period, files have which partition terms."""

    age_ms: int
    terms: tuple[str, ...]


NO_STEPS: tuple[AgeStep, ...] = ()
NO_TERMS: tuple[str, ...] = ()
_HOUR_MS = 3600 * 1000
_STEP = re.compile(r"\s*(\d{1,6})\s*([hd])\s*:\s*(\S.*?)\s*", re.DOTALL)
_COMMA = re.compile(r",(?![^()]*\))")


def layout_by_age(text: str) -> tuple[AgeStep, ...]:
    """`30d: month(ts); 400d: year(ts)`: ages in days or hours, growing, and partition terms."""
    steps: list[AgeStep] = []
    for part in text.split(";") if text.strip() else ():
        match = _STEP.fullmatch(part)
        if match is None:
            raise ValueError("must be ages and partition terms such as 30d: month(event_ts).")
        age_ms = int(match[1]) * _HOUR_MS * (24 if match[2] == "d" else 1)
        if steps and age_ms <= steps[-1].age_ms:
            raise ValueError("must have ages that grow from one layout to the next.")
        steps.append(AgeStep(age_ms, partition_terms(match[3])))
    return tuple(steps)


def partition_terms(text: str) -> tuple[str, ...]:
    """`day(ts), bucket(16, id)`: partition terms, none if empty."""
    terms = tuple(term.strip() for term in _COMMA.split(text)) if text.strip() else ()
    if not all(terms):
        raise ValueError("must be partition terms such as day(ts), bucket(16, id).")
    return terms


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of these words, in lower case."""

    def parse(text: str) -> str:
        lowered = text.strip().lower()
        if lowered not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}.")
        return lowered

    return parse


PARQUET_ENCODINGS = (
    "PLAIN",
    "BYTE_STREAM_SPLIT",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
)


def metrics_mode(text: str) -> str:
    """`none`, `counts`, `truncate(N)` or `full`."""
    lowered = re.sub(r"\s", "", text.lower())
    if lowered in ("none", "counts", "full") or re.fullmatch(r"truncate\([1-9]\d{0,8}\)", lowered):
        return lowered
    raise ValueError("must be none, counts, truncate(N) or full.")


def _encoding(text: str) -> str:
    """A name of Parquet's, in capitals."""
    return one_of(*(encoding.lower() for encoding in PARQUET_ENCODINGS))(text).upper()


logger = logging.getLogger(__name__)

_MIB = 1 << 20
_MINUTE_MS = 60_000
_DAY_MS = 24 * 60 * _MINUTE_MS

METRICS_COLUMN_PREFIX = "write.metadata.metrics.column."
ENCODING_PREFIX = "lakehouse.write.encoding.column."
DICTIONARY_PREFIX = "write.parquet.dict-encoding-enabled.column."
STATISTICS_PREFIX = "write.parquet.stats-enabled.column."
BLOOM_PREFIX = "write.parquet.bloom-filter-enabled.column."
BLOOM_FPP_PREFIX = "write.parquet.bloom-filter-fpp.column."
BLOOM_NDV_PREFIX = "write.parquet.bloom-filter-ndv.column."
NAME_MAPPING = "schema.name-mapping.default"
ENCRYPTION_KEY = "encryption.key-id"

_codec = one_of("zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed", "none")
_isolation = one_of("serializable", "snapshot")
_mode = one_of("copy-on-write", "merge-on-read")
_distribution = one_of("none", "hash", "range")


class TableProperties:
    """Typed view of a table's properties.

    Reading an unusable value raises InvalidPropertyError that names the property.

    Attributes:
        raw: the properties as they are in table metadata.
    """

    def __init__(self, raw: Mapping[str, str]) -> None:
        self.raw = raw

    # Writing data
    target_file_size_bytes = Property(
        "write.target-file-size-bytes",
        positive,
        512 * _MIB,
        "Size at which a data file is closed and the next one begun.",
    )
    file_format = Property(
        "write.format.default",
        one_of("parquet"),
        "parquet",
        "Format of data files; only Parquet is written.",
    )
    parquet_compression = Property(
        "write.parquet.compression-codec", _codec, "zstd", "Codec of data files."
    )
    parquet_compression_level = Property(
        "write.parquet.compression-level",
        optional_integer,
        None,
        "Level for the codec; the codec's own default if not set.",
    )
    parquet_row_group_size_bytes = Property(
        "write.parquet.row-group-size-bytes",
        positive,
        128 * _MIB,
        "Size of a row group before compression.",
    )
    parquet_row_group_limit = Property(
        "write.parquet.row-group-limit", positive, 1_048_576, "Most rows of a row group."
    )
    parquet_page_size_bytes = Property(
        "write.parquet.page-size-bytes", positive, _MIB, "Size of a data page."
    )
    parquet_page_row_limit = Property(
        "write.parquet.page-row-limit", positive, 20_000, "Most rows of a data page."
    )
    parquet_page_version = Property(
        "write.parquet.page-version", one_of("v1", "v2"), "v1", "Version of data pages: v1 or v2."
    )
    parquet_bloom_filter_max_bytes = Property(
        "write.parquet.bloom-filter-max-bytes",
        positive,
        _MIB,
        "Most bytes of a Bloom filter.",
    )
    parquet_dict_size_bytes = Property(
        "write.parquet.dict-size-bytes", positive, 2 * _MIB, "Size limit of a dictionary page."
    )
    parquet_shred_variants = Property(
        "write.parquet.shred-variants",
        boolean,
        False,
        "Whether variants in columns of their own are shredded.",
    )
    parquet_variant_buffer = Property(
        "write.parquet.variant-inference-buffer-size",
        positive,
        100,
        "First rows of a file by which it is decided what of its variants is shredded.",
    )
    distribution_mode = Property(
        "write.distribution-mode",
        _distribution,
        "hash",
        "How Spark shuffles rows before writing partitioned tables.",
    )
    advisory_partition_size_bytes = Property(
        "write.spark.advisory-partition-size-bytes",
        optional_of(positive),
        None,
        "Size of Spark's shuffle partitions; at most 256 MiB, or the target of a file, if not set.",
    )
    write_buffer_bytes = Property(
        "lakehouse.write.buffer-bytes",
        positive,
        256 * _MIB,
        "Memory for rows that wait to be written.",
    )
    write_join_files = Property(
        "lakehouse.write.join-files",
        several_or_none,
        0,
        "Small files of a partition that appends join, behind their own commits, 2 or more; 0: "
        "none.",
    )
    data_path = Property(
        "write.data.path",
        optional_text,
        None,
        "Where data files go; `<location>/data` if not set.",
    )
    object_storage = Property(
        "write.object-storage.enabled",
        boolean,
        False,
        "Whether data files lie in folders named by a hash, so that object stores share requests "
        "out; Python workers write them, also in Spark.",
    )
    object_storage_partitions = Property(
        "write.object-storage.partitioned-paths",
        boolean,
        True,
        "Whether such folders have those of the partition below them.",
    )
    metadata_path = Property(
        "write.metadata.path",
        optional_text,
        None,
        "Where metadata files go; `<location>/metadata` if not set.",
    )

    partition_by = Property(
        "lakehouse.partition-by",
        partition_terms,
        NO_TERMS,
        "Partition terms, such as day(ts), bucket(16, id), for what makes and alters tables in "
        "Spark without a word for them: Spark Declarative Pipelines.",
    )

    # Row-level operations
    delete_mode = Property(
        "write.delete.mode",
        _mode,
        "copy-on-write",
        "How DELETE and overwrites by a filter remove rows.",
    )
    delete_granularity = Property(
        "write.delete.granularity",
        one_of("file", "partition"),
        "file",
        "What one position delete file covers (v2).",
    )
    update_mode = Property("write.update.mode", _mode, "copy-on-write", "How UPDATE changes rows.")
    merge_mode = Property("write.merge.mode", _mode, "copy-on-write", "How MERGE changes rows.")
    delete_distribution = Property(
        "write.delete.distribution-mode",
        optional_of(_distribution),
        None,
        "How Spark shuffles the rows that a DELETE writes.",
    )
    update_distribution = Property(
        "write.update.distribution-mode",
        optional_of(_distribution),
        None,
        "How Spark shuffles the rows that an UPDATE writes.",
    )
    merge_distribution = Property(
        "write.merge.distribution-mode",
        optional_of(_distribution),
        None,
        "How Spark shuffles the rows that a MERGE writes.",
    )
    delete_isolation = Property(
        "write.delete.isolation-level",
        _isolation,
        "serializable",
        "What a concurrent DELETE validates.",
    )
    update_isolation = Property(
        "write.update.isolation-level",
        _isolation,
        "serializable",
        "What a concurrent UPDATE validates.",
    )
    merge_isolation = Property(
        "write.merge.isolation-level",
        _isolation,
        "serializable",
        "What a concurrent MERGE validates.",
    )

    # Table metadata
    metadata_compression = Property(
        "write.metadata.compression-codec",
        one_of("none", "gzip"),
        "none",
        "Compression of metadata files.",
    )
    metadata_previous_versions_max = Property(
        "write.metadata.previous-versions-max",
        natural,
        100,
        "Entries that the metadata log keeps; at least one.",
    )
    metadata_delete_after_commit = Property(
        "write.metadata.delete-after-commit.enabled",
        boolean,
        False,
        "Delete metadata files that fall out of the metadata log.",
    )
    metrics_default = Property(
        "write.metadata.metrics.default",
        metrics_mode,
        "truncate(16)",
        "Metrics kept for a column: none, counts, truncate(N), full.",
    )
    metrics_max_inferred = Property(
        "write.metadata.metrics.max-inferred-column-defaults",
        natural,
        100,
        "Columns that get metrics without a mode of their own.",
    )

    delta_log = Property(
        "write.delta-log",
        boolean,
        False,
        "Keep a transaction log of Delta beside the metadata: readers of Delta see every commit.",
    )

    # Commits
    retry_count = Property(
        "commit.retry.num-retries", natural, 4, "Times a commit that lost a race is tried again."
    )
    retry_min_wait_ms = Property(
        "commit.retry.min-wait-ms", natural, 100, "Shortest wait before a retry."
    )
    retry_max_wait_ms = Property(
        "commit.retry.max-wait-ms", natural, _MINUTE_MS, "Longest wait before a retry."
    )
    retry_total_timeout_ms = Property(
        "commit.retry.total-timeout-ms",
        natural,
        30 * _MINUTE_MS,
        "Time after which a commit is not tried again.",
    )
    status_check_count = Property(
        "commit.status-check.num-retries",
        natural,
        3,
        "Times an unknown outcome is looked up before it is reported.",
    )
    status_check_min_wait_ms = Property(
        "commit.status-check.min-wait-ms", natural, 1000, "Shortest wait between look-ups."
    )
    status_check_max_wait_ms = Property(
        "commit.status-check.max-wait-ms", natural, _MINUTE_MS, "Longest wait between look-ups."
    )
    manifest_target_size_bytes = Property(
        "commit.manifest.target-size-bytes",
        positive,
        8 * _MIB,
        "Size at which a manifest is closed or left unmerged.",
    )
    manifest_min_count_to_merge = Property(
        "commit.manifest.min-count-to-merge",
        positive,
        100,
        "Manifests that pile up before a commit merges them.",
    )
    manifest_merge_enabled = Property(
        "commit.manifest-merge.enabled", boolean, True, "Whether commits merge manifests."
    )
    summary_partition_limit = Property(
        "write.summary.partition-limit",
        natural,
        0,
        "A snapshot that changes at most so many partitions counts in its summary what comes and "
        "goes in each.",
    )

    # Reading
    split_target_size = Property(
        "read.split.target-size",
        positive,
        128 * _MIB,
        "Bytes that one read task aims at; Spark's are as spark.sql.files.* says where no "
        "read.split.* is set.",
    )
    split_lookback = Property(
        "read.split.planning-lookback",
        positive,
        10,
        "Open tasks considered when files are combined.",
    )
    split_open_file_cost = Property(
        "read.split.open-file-cost", natural, 4 * _MIB, "Bytes that opening a file counts for."
    )
    name_mapping = Property(
        NAME_MAPPING,
        optional_text,
        None,
        "Field ids by column name for files without ids, as JSON.",
    )

    # Retention
    gc_enabled = Property(
        "gc.enabled", boolean, True, "Whether expiry and clean-up may delete files of this table."
    )
    max_snapshot_age_ms = Property(
        "history.expire.max-snapshot-age-ms",
        positive,
        5 * _DAY_MS,
        "Age to which expiry keeps snapshots.",
    )
    min_snapshots_to_keep = Property(
        "history.expire.min-snapshots-to-keep",
        positive,
        1,
        "Snapshots of a branch that expiry keeps.",
    )
    max_ref_age_ms = Property(
        "history.expire.max-ref-age-ms",
        positive,
        LONG_MAX,
        "Age at which expiry removes refs; never main.",
    )

    # Changes from another database
    changes_deletes_table = Property(
        "lakehouse.changes.deletes-table",
        optional_text,
        None,
        "The table beside this one in which apply_changes remembers deletes; set by it, by default "
        "the name with _deletes behind it.",
    )
    changes_remember_deletes_ms = Property(
        "lakehouse.changes.remember-deletes-ms",
        natural,
        7 * _DAY_MS,
        "How long apply_changes remembers a delete, so that an older change that comes late does "
        "not bring the row back; 0: not at all.",
    )

    # Maintenance by this library
    maintenance_small_file_bytes = Property(
        "lakehouse.maintenance.small-file-bytes",
        natural,
        0,
        "Files below this size count as small; 0: three quarters of the target.",
    )
    maintenance_min_input_files = Property(
        "lakehouse.maintenance.min-input-files",
        positive,
        5,
        "Small files in a partition that make compaction worth it.",
    )
    maintenance_delete_ratio = Property(
        "lakehouse.maintenance.delete-ratio",
        fraction,
        0.3,
        "Share of deleted rows that makes compaction rewrite a file.",
    )
    maintenance_delete_files_per_file = Property(
        "lakehouse.maintenance.delete-files-per-file",
        natural,
        1,
        "Delete files per data file of a partition above which they are applied, however few "
        "rows they delete; 0: no limit.",
    )
    maintenance_enabled = Property(
        "lakehouse.maintenance.enabled",
        boolean,
        True,
        "Whether maintenance is launched without being asked.",
    )
    maintenance_min_removable_files = Property(
        "lakehouse.maintenance.min-removable-files",
        positive,
        8,
        "Files that a compaction must save to be launched.",
    )
    maintenance_skip_recent_ms = Property(
        "lakehouse.maintenance.skip-recent-ms",
        natural,
        5 * _MINUTE_MS,
        "Compaction that no caller requested leaves partitions alone that were written within this "
        "time.",
    )
    maintenance_wait_at_most_ms = Property(
        "lakehouse.maintenance.wait-at-most-ms",
        natural,
        60 * _MINUTE_MS,
        "Time after which small files are compacted in a partition that is written all the time.",
    )
    maintenance_max_manifests = Property(
        "lakehouse.maintenance.max-manifests",
        positive,
        100,
        "Manifests above which they are rewritten.",
    )
    maintenance_min_expirable_snapshots = Property(
        "lakehouse.maintenance.min-expirable-snapshots",
        positive,
        1,
        "Snapshots and refs beyond retention that launch an expiry.",
    )
    maintenance_orphan_age_ms = Property(
        "lakehouse.maintenance.orphan-age-ms",
        positive,
        3 * _DAY_MS,
        "Age from which a file that nothing names is an orphan.",
    )
    maintenance_max_unreferenced_bytes = Property(
        "lakehouse.maintenance.max-unreferenced-bytes",
        natural,
        1024 * _MIB,
        "Bytes of files that nothing names above which orphans are removed.",
    )
    maintenance_window = Property(
        "lakehouse.maintenance.window",
        hours_of_day,
        frozenset(range(24)),
        "Hours of the day (UTC) to launch in, such as 22-6; all if empty.",
    )
    maintenance_budget_bytes = Property(
        "lakehouse.maintenance.budget-bytes",
        natural,
        0,
        "Bytes that one compaction may read; 0: no limit.",
    )
    maintenance_layout_by_age = Property(
        "lakehouse.maintenance.layout-by-age",
        layout_by_age,
        NO_STEPS,
        "Partition terms of closed periods by age, such as 30d: month(ts); compaction moves them.",
    )
    maintenance_tune = Property(
        "lakehouse.maintenance.tune",
        one_of("off", "advise", "auto"),
        "off",
        "Whether layouts are tried once a day: advise keeps what came of it, auto adopts what "
        "pays.",
    )
    maintenance_quota_files = Property(
        "lakehouse.maintenance.quota-files",
        natural,
        0,
        "Data files above which an alert is raised; 0: none.",
    )
    maintenance_quota_bytes = Property(
        "lakehouse.maintenance.quota-bytes",
        natural,
        0,
        "Bytes of data files above which an alert is raised; 0: none.",
    )
    maintenance_quota_snapshots = Property(
        "lakehouse.maintenance.quota-snapshots",
        natural,
        0,
        "Snapshots above which an alert is raised; 0: none.",
    )
    maintenance_alert_after_ms = Property(
        "lakehouse.maintenance.alert-after-ms",
        natural,
        _DAY_MS,
        "Time for which a table may be beyond its policy before its check fails.",
    )

    def data_location(self, location: str) -> str:
        """Base location of new data files, for a table at `location`."""
        return _below(location, self.data_path, "data")

    def metadata_location(self, location: str) -> str:
        """Base location of new metadata files, for a table at `location`."""
        return _below(location, self.metadata_path, "metadata")

    def metrics_mode(self, column: str, default: str | None = None) -> str:
        """The metrics mode of a column (dotted name): `none`, `counts`, `truncate(N)`, `full`."""
        name = METRICS_COLUMN_PREFIX + column
        if name not in self.raw:
            return self.metrics_default if default is None else default
        return Property(name, metrics_mode, "", "").read(self.raw)

    def encodings(self) -> dict[str, str]:
        """The Parquet encodings that are set, by column (dotted name)."""
        return self.by_column(ENCODING_PREFIX, _encoding)

    def by_column(self, prefix: str, parse: Callable[[str], T]) -> dict[str, T]:
        """What is set by a property for each column (dotted name). Raises InvalidPropertyError."""
        return {
            name.removeprefix(prefix): Property(name, parse, cast("T", None), "").read(self.raw)
            for name in self.raw
            if name.startswith(prefix)
        }

    def usable(self) -> TableProperties:
        """The same without those that cannot be read: to mend one, a commit needs none of them."""
        kept = dict(self.raw)
        for known in all_properties():
            try:
                known.read(kept)
            except InvalidPropertyError:
                del kept[known.name]
        return TableProperties(kept)

    def validate(self) -> None:
        """Read every known property; raises InvalidPropertyError for the first unusable one."""
        for known in all_properties():
            known.read(self.raw)
        for name in self.raw:
            if name.startswith(METRICS_COLUMN_PREFIX):
                self.metrics_mode(name.removeprefix(METRICS_COLUMN_PREFIX))
        self.encodings()
        for prefix, parse in BY_COLUMN.items():
            self.by_column(prefix, parse)


BY_COLUMN: Mapping[str, Callable[[str], object]] = {
    DICTIONARY_PREFIX: boolean,
    STATISTICS_PREFIX: boolean,
    BLOOM_PREFIX: boolean,
    BLOOM_FPP_PREFIX: probability,
    BLOOM_NDV_PREFIX: positive,
}
"""How the text of properties by column is read, by their prefixes."""


def check_property_texts(properties: Mapping[str, object]) -> None:
    """Raise InvalidPropertyError unless names and values are text."""
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            raise InvalidPropertyError(
                f"Property {name!r}: names and values must be strings, not {value!r}; write "
                f"{text!r}.",
                property=str(name),
            )


HONOURED_ELSEWHERE: Mapping[str, str] = {
    "format-version": "2 or 3: the version of the table's format; it is raised, never lowered.",
    "write.wap.enabled": "Whether Spark's spark.wap.id and spark.wap.branch stage what is written.",
    "write.spark.accept-any-schema": "Whether Spark matches rows by name; mergeSchema needs it.",
    METRICS_COLUMN_PREFIX: "Metrics kept for the column whose name stands behind it.",
    DICTIONARY_PREFIX: "Whether the column whose name stands behind it may have a dictionary.",
    STATISTICS_PREFIX: "Whether the column whose name stands behind it has statistics in Parquet, "
    "from which its bounds and counts in manifests are.",
    BLOOM_PREFIX: "Whether files have a Bloom filter of the column whose name stands behind it; "
    "readers pass over row groups by it where a query compares with = and in.",
    BLOOM_FPP_PREFIX: "How often such a filter may be wrong; 0.01 if not set.",
    BLOOM_NDV_PREFIX: "How many distinct values such a filter is made for; in Python twice those "
    "of a file's first row group if not set, in Spark as many as its largest size holds.",
    ENCODING_PREFIX: "Parquet encoding of the column whose name stands behind it, instead of a "
    "dictionary; Spark's writer chooses by itself.",
    "comment": "What the table is; Spark and agents show it.",
    "owner": "Who looks after the table; agents show it.",
    "engine.hive.enabled": "In a Hive Metastore: whether it names Hive's own formats.",
    "engine.hive.lock-enabled": "In a Hive Metastore: whether commits take its lock (true); else "
    "it compares, since version 4.",
    "lakehouse.mv.view": "Set by materialized views: the view whose rows these are.",
    "lakehouse.changes.remembers": "Set by apply_changes: the table whose deletes these are.",
    "lakehouse.definition": "Set by sources, derived tables and assets: what they were made by.",
    "lakehouse.pipelines.view": "Set where Spark's pipelines keep a materialized view.",
    "lakehouse.tuning.state": "Set by lakehouse tune: the layout before, and what is under way.",
    "lakehouse.semantics.digest": "Set by statements: their digest.",
    "lakehouse.semantics.statements-table": "Set by statements: where they are kept.",
}
"""Read by one place alone, as text. A name that ends in a dot stands for all that begin so."""

REFUSED: Mapping[str, str] = {
    ENCRYPTION_KEY: "No table is encrypted here, and none that is can be read.",
    **dict.fromkeys(
        (
            *("uuid", "snapshot-count", "current-snapshot-id", "current-snapshot-summary"),
            *("current-snapshot-timestamp-ms", "current-schema", "default-partition-spec"),
            "default-sort-order",
        ),
        "Reserved: the table's metadata says it.",
    ),
}

KEPT_FOR_OTHERS: Mapping[str, str] = {
    "commit.status-check.total-timeout-ms": "Look-ups end by their number.",
    "compatibility.snapshot-id-inheritance.enabled": "Of version 1; later ones always inherit.",
    "encryption.data-key-length": "No table is encrypted here.",
    "identifier-fields.rely": "Keys are checked where rows are merged.",
    "read.data-planning-mode": "Plans are made by the driver.",
    "read.delete-planning-mode": "Plans are made by the driver.",
    "read.orc.": "ORC files are read whole.",
    "read.parquet.vectorization.": "Reading is always vectorised.",
    "read.split.adaptive-size.enabled": "Tasks are as large as read.split.target-size says.",
    "read.split.metadata-target-size": "Metadata tables are made in one piece.",
    "write.avro.": "Data files are Parquet.",
    "write.delete.avro.": "Delete files are Parquet and Puffin.",
    "write.delete.format.default": "Delete files are Parquet and Puffin.",
    "write.delete.orc.": "Delete files are Parquet and Puffin.",
    "write.delete.parquet.": "Delete files are written as data files are.",
    "write.delete.target-file-size-bytes": "Delete files are as large as their deletes.",
    "write.folder-storage.path": "Superseded by write.data.path.",
    "write.location-provider.impl": "No property names code; write.data.path says where.",
    "write.manifest.compression-codec": "Manifests are compressed with deflate.",
    "write.manifest.compression-level": "Manifests are compressed with deflate.",
    "write.object-storage.path": "Superseded by write.data.path.",
    "write.orc.": "Data files are Parquet.",
    "write.parquet.bloom-filter-adaptive-enabled": "Filters have the size that is set.",
    "write.parquet.row-group-check-": "Row groups end by size and number of rows.",
    "write.parquet.row-group-size-track-uncompressed": "Row groups end by size before compression.",
    "write.spark.auto-schema-evolution.enabled": "MERGE WITH SCHEMA EVOLUTION asks for it.",
    "write.spark.fanout.enabled": "Writers keep several files open and sort what is beyond.",
    "write.upsert.enabled": "For Flink.",
}
"""Iceberg's properties that nothing here honours: with each, what happens instead."""


def check_given_properties(table: object, given: Mapping[str, str]) -> None:
    """Judge what a user of this library sets on a table; warn of what is `without_effect`.

    Raises:
        InvalidPropertyError: names and values that are no text; a value that a property that is
            honoured cannot have.
    """
    check_property_texts(given)
    TableProperties(given).validate()
    for sentence in without_effect(given):
        logger.warning("%s: %s docs/properties.md lists what is honoured.", table, sentence)


def without_effect(properties: Mapping[str, str]) -> list[str]:
    """A sentence for each property that is kept and that nothing here honours.

    >>> without_effect({"gc.enabled": "false", "write.upsert.enabled": "true"})
    ['write.upsert.enabled is kept for other engines, and changes nothing here. For Flink.']
    >>> without_effect({"write.target-file-size-byte": "1"})
    ['write.target-file-size-byte is kept, and nothing here knows it: is it \
write.target-file-size-bytes?']
    """
    known = (
        {property_.name for property_ in all_properties()}
        | HONOURED_ELSEWHERE.keys()
        | REFUSED.keys()
    )
    sentences = []
    for name in sorted(properties):
        if _entry(name, known) is not None:
            continue
        other = _entry(name, KEPT_FOR_OTHERS)
        if other is not None:
            sentences.append(
                f"{name} is kept for other engines, and changes nothing here. "
                f"{KEPT_FOR_OTHERS[other]}"
            )
            continue
        near = difflib.get_close_matches(
            name.lower(), sorted({*known, *KEPT_FOR_OTHERS}), n=1, cutoff=0.8
        )
        meant = f": is it {near[0]}?" if near else "."
        sentences.append(f"{name} is kept, and nothing here knows it{meant}")
    return sentences


def _entry(name: str, names: Collection[str]) -> str | None:
    """The entry that a name has, be it that of its prefix; bare prefixes are no names."""
    if name in names:
        return name
    prefixes = (known for known in names if known.endswith((".", "-")) and name.startswith(known))
    return next(prefixes, None)


def all_properties() -> list[Property[object]]:
    """Every property that is honoured, in the order of the source."""
    return [value for value in vars(TableProperties).values() if isinstance(value, Property)]


def _below(location: str, path: str | None, default: str) -> str:
    """A path as the spec's Path Construction has it.

    An absolute path is used as it is, a relative one is joined to the table's location.
    """
    path = default if path is None else path.rstrip("/")
    if path.startswith("/") or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        return full_uri(path)
    return full_uri(f"{location.rstrip('/')}/{path}")


def parse_format_version(text: str) -> int:
    """The number in a `format-version` property.

    Raises:
        InvalidPropertyError: it is none.
    """
    if not text.isdecimal():
        raise InvalidPropertyError(
            f"format-version is {text!r}; it must be 2 or 3", property="format-version"
        )
    return int(text)
