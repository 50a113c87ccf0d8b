"""Lakes whose history goes on in several ways, each of which sees its own alone.

They share a folder of files: metadata of a SQL catalog has a new name in each commit, so that to
fork is to copy the catalog's database. Nothing may delete files, as other histories read them.
"""

from __future__ import annotations

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path

from lakehouse.lake import load_catalog


class ForkedLake:
    """A lake in a folder.

    Args:
        folder: for everything.
        number: of the history, and where the next one's comes from.

    Attributes:
        lake: its catalog.
    """

    def __init__(self, folder: Path, number: itertools.count[int] | None = None) -> None:
        self._folder, self._numbers = folder, number or itertools.count()
        self._database = folder / f"{next(self._numbers)}.db"
        if number is None:
            self._open()

    def _open(self) -> None:
        self.lake = load_catalog(f"sqlite:///{self._database}", warehouse=f"{self._folder}/lake")

    def forked(self) -> ForkedLake:
        """One that has had the same history."""
        other = ForkedLake(self._folder, self._numbers)
        with (
            closing(sqlite3.connect(self._database)) as here,
            closing(sqlite3.connect(other._database)) as there,
        ):
            here.backup(there)
        other._open()
        return other
