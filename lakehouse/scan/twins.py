"""Building the columnar twin of a manifest that came without one."""

from __future__ import annotations

from pyiceberg.partitioning import PartitionSpec

from lakehouse.scan.avro import decode_avro
from lakehouse.spec.columnar_manifest import encode_twin, manifest_checksum, twin_path
from lakehouse.spec.field_types import FieldTypes
from lakehouse.spec.manifest_list import ManifestFile
from lakehouse.storage.protocol import Storage


def write_twin(
    storage: Storage, manifest: ManifestFile, spec: PartitionSpec, types: FieldTypes
) -> int:
    """Write the columnar twin of a manifest beside it, replacing any that is there; returns its bytes.

    Args:
        storage: of the manifest.
        manifest: the row of the manifest list.
        spec: its partition spec.
        types: `types_of` the table.

    Raises:
        CorruptMetadataError: the manifest is damaged.
        NoSuchFileError: the manifest is missing.
        StorageError: the twin cannot be written.
    """
    path = manifest.manifest_path
    data = storage.read(path)
    entries = decode_avro(storage, path, spec, types).entries
    twin = encode_twin(
        entries,
        manifest_path=path,
        manifest_length=manifest.manifest_length,
        checksum=manifest_checksum(data),
    )
    storage.write(twin_path(path), twin)
    return len(twin)
