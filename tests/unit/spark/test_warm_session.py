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


def test_code_that_is_edited_and_an_editors_lock_beside_it(tmp_path: Path) -> None:
    (tmp_path / "assets.py").write_text("1")
    (tmp_path / ".#assets.py").symlink_to("nobody@nowhere.1:2")
    before = list(warm_session._own_code([str(tmp_path), str(tmp_path / "removed.py")]))
    assert [file for file, _, _ in before] == [str(tmp_path / "assets.py")]
    (tmp_path / "assets.py").write_text("22")
    assert list(warm_session._own_code([str(tmp_path)])) != before


def test_roots_of_code_are_those_of_all_runs_also_after_a_kill(tmp_path: Path) -> None:
    file = tmp_path / "roots"
    own = warm_session._known_roots(file)
    file.write_text(f"/project/late\n{own[0]}\n/cut o")
    assert warm_session._known_roots(file) == sorted({*own, "/project/late", "/cut o"})
    file.write_text("")
    assert warm_session._known_roots(file) == own
