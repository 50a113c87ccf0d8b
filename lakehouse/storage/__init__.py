"""Reading and writing bytes, durably."""

from lakehouse.storage.local import LocalStorage
from lakehouse.storage.memory import MemoryStorage
from lakehouse.storage.object_store import ObjectStorage
from lakehouse.storage.storage_by_scheme import storage_for
from lakehouse.storage.storage_protocol import DeleteReport, FileInfo, OutputStream, Storage

__all__ = [
    "DeleteReport",
    "FileInfo",
    "LocalStorage",
    "MemoryStorage",
    "ObjectStorage",
    "OutputStream",
    "Storage",
    "storage_for",
]
