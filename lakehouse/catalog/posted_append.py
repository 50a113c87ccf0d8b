"""An append as a server takes it: files, or manifests that the client wrote of them.

The server makes the snapshot.

An extension, no part of Iceberg's protocol. A commit of the protocol says which snapshot it follows
and fails where another came first; an append follows whatever is newest, so that the server may
commit many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakehouse.errors import CorruptMetadataError
from lakehouse.spec.json_fields import (
    optional_bool,
    optional_list,
    require_int,
    require_object,
    require_str,
    string_map,
)
from lakehouse.spec.manifests.content_file_json import (
    PartitionTypes,
    file_from_json,
    file_to_json,
    metrics_from_json,
    metrics_to_json,
)
from lakehouse.spec.manifests.data_file import CONTENT_DATA, DataFile
from lakehouse.spec.manifests.manifest_list import FieldSummary, ManifestFile
from lakehouse.spec.metadata.snapshot import MAIN_BRANCH

ENDPOINT = "/namespaces/{namespace}/tables/{table}/appends"
APPENDS = "lakehouse.appends"
"""Summary key of the ids of the appends that share a snapshot."""
FILES_MAX = 100
"""Of an append that names its files itself."""
_MANIFESTS_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PostedAppend:
    """Data files to be added.

    Attributes:
        append_id: a random positive long; the id of the snapshot, unless it is shared.
        table_uuid: of the table that the files were written for.
        manifests: of new data files alone; their entries inherit snapshot and sequence number.
        files: new data files that are in no manifest yet: the server writes one for all that share
            a snapshot.
        branch: where to.
        summary: entries of the snapshot's summary, counts of files and rows among them.
        shares: whether others may be appended in the same snapshot.
    """

    append_id: int
    table_uuid: str
    manifests: tuple[ManifestFile, ...] = ()
    files: tuple[DataFile, ...] = ()
    branch: str = MAIN_BRANCH
    summary: Mapping[str, str] = field(default_factory=dict)
    shares: bool = False

    def to_json(self, kinds: PartitionTypes | None = None) -> dict[str, Any]:
        """The body of a request; `kinds` are needed for files."""
        files = [file_to_json(file, kinds or {}) | metrics_to_json(file) for file in self.files]
        return {
            "append-id": self.append_id,
            "table-uuid": self.table_uuid,
            "branch": self.branch,
            "manifests": [_manifest_to_json(manifest) for manifest in self.manifests],
            **({"files": files} if files else {}),
            "summary": dict(self.summary),
            "shares-snapshot": self.shares,
        }

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], kinds: Callable[[], PartitionTypes]
    ) -> PostedAppend:
        """The body of a request; `kinds` is called where it has files.

        Raises CorruptMetadataError.
        """
        append_id = require_int(document, "append-id", "body")
        if append_id <= 0:
            raise CorruptMetadataError("body.append-id: expected a positive long.")
        listed = optional_list(document, "manifests", "body")
        files = _files(optional_list(document, "files", "body"), kinds)
        if not len(listed) + len(files) > 0 or len(listed) > _MANIFESTS_MAX:
            raise CorruptMetadataError(
                "body.manifests: an append has a manifest or a file at least, and "
                f"{_MANIFESTS_MAX} manifests at most."
            )
        return cls(
            append_id=append_id,
            table_uuid=require_str(document, "table-uuid", "body").lower(),
            branch=require_str(document, "branch", "body"),
            manifests=tuple(
                _manifest_from_json(manifest, f"body.manifests[{n}]")
                for n, manifest in enumerate(listed)
            ),
            files=files,
            summary=string_map(document.get("summary"), "body.summary"),
            shares=optional_bool(document, "shares-snapshot", "body", default=False),
        )


def _files(listed: list[Any], kinds: Callable[[], PartitionTypes]) -> tuple[DataFile, ...]:
    if not listed:
        return ()
    if len(listed) > FILES_MAX:
        raise CorruptMetadataError(f"body.files: an append names {FILES_MAX} files at most.")
    types, files = kinds(), []
    for number, document in enumerate(listed):
        where = f"body.files[{number}]"
        file = file_from_json(document, where, types)
        if (
            file.content != CONTENT_DATA
            or file.first_row_id is not None
            or file.equality_ids is not None
            or min(file.record_count, file.file_size_in_bytes) < 0
        ):
            raise CorruptMetadataError(f"{where}: expected a new data file.")
        files.append(replace(file, **metrics_from_json(document, where)))
    return tuple(files)


def _manifest_to_json(manifest: ManifestFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": manifest.manifest_path,
        "length": manifest.manifest_length,
        "partition-spec-id": manifest.partition_spec_id,
        "added-files-count": manifest.added_files_count,
        "added-rows-count": manifest.added_rows_count,
    }
    if manifest.partitions is not None:
        document["partitions"] = [
            {
                "contains-null": partition.contains_null,
                "contains-nan": partition.contains_nan,
                "lower-bound": None
                if partition.lower_bound is None
                else partition.lower_bound.hex(),
                "upper-bound": None
                if partition.upper_bound is None
                else partition.upper_bound.hex(),
            }
            for partition in manifest.partitions
        ]
    return document


def _manifest_from_json(document: Any, where: str) -> ManifestFile:
    files = require_int(document, "added-files-count", where)
    rows = require_int(document, "added-rows-count", where)
    length = require_int(document, "length", where)
    if files < 1 or rows < 0 or length < 1:
        raise CorruptMetadataError(f"{where}: counts of a manifest cannot be negative.")
    partitions = None
    if require_object(document, where).get("partitions") is not None:
        listed = optional_list(document, "partitions", where)
        partitions = tuple(
            _summary(partition, f"{where}.partitions[{n}]") for n, partition in enumerate(listed)
        )
    return ManifestFile(
        manifest_path=require_str(document, "path", where),
        manifest_length=length,
        partition_spec_id=require_int(document, "partition-spec-id", where),
        added_files_count=files,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=rows,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=partitions,
    )


def _summary(document: Any, where: str) -> FieldSummary:
    summary = require_object(document, where)
    nan = summary.get("contains-nan")
    return FieldSummary(
        contains_null=optional_bool(document, "contains-null", where, default=True),
        contains_nan=None
        if nan is None
        else optional_bool(document, "contains-nan", where, default=True),
        lower_bound=_bytes(summary.get("lower-bound"), f"{where}.lower-bound"),
        upper_bound=_bytes(summary.get("upper-bound"), f"{where}.upper-bound"),
    )


def _bytes(text: Any, where: str) -> bytes | None:
    if text is None:
        return None
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise CorruptMetadataError(f"{where}: expected hexadecimal digits.") from error
