"""The small files that a writer leaves behind in each partition, joined as it goes."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from lakehouse.catalog.catalog_protocol import Catalog, TableVersion
from lakehouse.environment import Environment
from lakehouse.errors import LakehouseError
from lakehouse.maintenance.compaction.compaction import execute_compaction
from lakehouse.maintenance.compaction.compaction_plan import plan_tail
from lakehouse.spec.manifests.data_file import DataFile
from lakehouse.spec.metadata.table_metadata import TableMetadata

logger = logging.getLogger(__name__)


class Tail:
    """The small files that a writer has left in each partition.

    Every `width` files of a partition they are joined, in a `replace` snapshot behind that of the
    writer, by one thread at a time. What stops that is logged, and tried again with the next files.

    Args:
        branch: that is written to.
        width: see `tail_groups`; 0: never.
        confined: whether who writes may read less than this process, see `plan_tail`.
    """

    def __init__(self, branch: str, width: int = 0, *, confined: bool = False) -> None:
        self.branch = branch
        self.width = width
        self._confined = confined
        self._files: Counter[tuple[Any, ...]] = Counter()
        self._joining = threading.Lock()

    def grew(
        self,
        catalog: Catalog,
        version: TableVersion,
        files: Sequence[DataFile],
        environment: Environment,
    ) -> bool:
        """Files were added; how many a newly met partition has is unknown.

        Returns:
            whether files were joined, so that the table has a newer version.
        """
        new = Counter(file.partition_key for file in files)
        for key, count in new.items():
            self._files[key] = self._files[key] + count if key in self._files else self.width
        full = {key for key in new if self._files[key] >= self.width}
        if not self.width or not full or not self._joining.acquire(blocking=False):
            return False
        try:
            for key in full:
                self._files[key] = 0
            added = [file for file in files if file.partition_key in full]
            return self._join(catalog, version, added, environment)
        except LakehouseError as error:
            logger.warning("%s: small files stay for now: %s", version.identifier, error)
            return False
        finally:
            self._joining.release()

    def _join(
        self,
        catalog: Catalog,
        version: TableVersion,
        added: Sequence[DataFile],
        environment: Environment,
    ) -> bool:
        plan = plan_tail(
            catalog,
            version,
            self.branch,
            added,
            self.width,
            confined=self._confined,
            environment=environment,
        )
        if not plan.groups:
            return False
        summary = self.summary(version.metadata, plan.input_bytes)
        done = execute_compaction(catalog, plan, environment=environment, summary=summary)
        return bool(done.snapshot_ids)

    def summary(self, metadata: TableMetadata, joined: int) -> Mapping[str, str]:  # noqa: ARG002
        """Further entries of the summary of a snapshot that joins so many bytes."""
        return {}
