"""What Sparks that runs share have on the disk: a folder for each code location of an owner."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.spark import warm_session


def test_each_code_location_of_an_owner_has_a_folder_which_goes_after_the_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folders = {
        (owner, location): warm_session._folder(owner, location)
        for owner in (ended.pid, os.getpid())
        for location in ("", "a", "b/../c")
    }
    assert len(set(folders.values())) == 6
    (above,) = {folder.parent for folder in folders.values()}
    assert set(above.iterdir()) == set(folders.values())
    warm_session._clear_dead(above)
    assert set(above.iterdir()) == {
        folder for (owner, _), folder in folders.items() if owner == os.getpid()
    }
