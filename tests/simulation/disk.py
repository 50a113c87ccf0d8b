"""A POSIX disk in memory that forgets what was not synced when power is lost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

from lakehouse.storage.local import Stat


class File:
    def __init__(self, inode: int, modified_ms: int) -> None:
        self.inode, self.modified_ms = inode, modified_ms
        self.content = b""
        self.synced = b""


class SimulatedDisk:
    """A simulated machine's disk: what the kernel shows, and what a power loss would leave."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._inodes = itertools.count(1)
        self._handles: dict[int, tuple[str, File]] = {}
        self._next_handle = itertools.count(3)
        self.names_: dict[str, File | None] = {"/": None}  # None is a folder
        self.durable: dict[str, File | None] = {"/": None}

    def create(self, path: str) -> int:
        if path in self.names_:
            raise FileExistsError(17, "File exists", path)
        self._require_folder(path)
        file = self.names_[path] = File(next(self._inodes), self._now_ms())
        handle = next(self._next_handle)
        self._handles[handle] = (path, file)
        return handle

    def write(self, handle: int, data: bytes | bytearray | memoryview) -> None:
        self._handles[handle][1].content += bytes(data)

    def fsync(self, handle: int) -> None:
        file = self._handles[handle][1]
        file.synced = file.content

    def close(self, handle: int) -> None:
        self._handles.pop(handle, None)

    def fsync_folder(self, path: str) -> None:
        path = path or "/"
        for name in [
            one for one in {*self.names_, *self.durable} if one != "/" and _folder(one) == path
        ]:
            if name in self.names_:
                self.durable[name] = self.names_[name]
            else:
                self.durable.pop(name, None)

    def link(self, source: str, target: str) -> None:
        if target in self.names_:
            raise FileExistsError(17, "File exists", target)
        self._require_folder(target)
        self.names_[target] = self._file(source)

    def replace(self, source: str, target: str) -> None:
        self.names_[target] = self._file(source)
        del self.names_[source]

    def unlink(self, path: str) -> None:
        self._file(path)
        del self.names_[path]

    def mkdir(self, path: str) -> None:
        if path in self.names_:
            raise FileExistsError(17, "File exists", path)
        self._require_folder(path)
        self.names_[path] = None

    def rmdir(self, path: str) -> None:
        if any(_folder(one) == path for one in self.names_ if one != "/"):
            raise OSError(39, "Directory not empty", path)
        self.names_.pop(path, None)

    def stat(self, path: str) -> Stat:
        path = path or "/"
        if path not in self.names_:
            raise FileNotFoundError(2, "No such file or directory", path)
        file = self.names_[path]
        return (
            Stat(0, 0, 0, is_folder=True)
            if file is None
            else Stat(len(file.content), file.modified_ms, file.inode, is_folder=False)
        )

    def names(self, path: str) -> list[tuple[str, bool]]:
        path = path or "/"
        if path not in self.names_:
            raise FileNotFoundError(2, "No such file or directory", path)
        return sorted(
            (one.rpartition("/")[2], file is None)
            for one, file in self.names_.items()
            if one != "/" and _folder(one) == path
        )

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        content = self._file(path).content
        return content[offset:] if length is None else content[offset : offset + length]

    def lose_power(self, rng: random.Random) -> None:
        """Without a synced folder a name may be old or new; a file has what was synced, or more."""
        survivors: dict[str, File | None] = {}
        for name in sorted({*self.names_, *self.durable}):
            now, then = name in self.names_, name in self.durable
            same = now and then and self.names_[name] is self.durable[name]
            as_it_is = same or rng.random() < 0.5
            if (as_it_is and now) or (not as_it_is and then):
                survivors[name] = self.names_[name] if as_it_is else self.durable[name]
        for file in {
            id(survivor): survivor for survivor in survivors.values() if survivor is not None
        }.values():
            if file.content != file.synced:
                file.content = (
                    file.content[: rng.randrange(len(file.content) + 1)]
                    if rng.random() < 0.7
                    else file.synced
                )
            file.synced = file.content
        reachable = {"/"}
        for name in sorted(survivors, key=len):
            if name == "/" or (
                _folder(name) in reachable and survivors.get(_folder(name), 0) is None
            ):
                reachable.add(name)
        self.names_ = {name: file for name, file in survivors.items() if name in reachable}
        self.names_["/"] = None
        self.durable = dict(self.names_)
        self._handles.clear()

    def _file(self, path: str) -> File:
        file = self.names_.get(path)
        if file is None:
            raise FileNotFoundError(2, "No such file or directory", path)
        return file

    def _require_folder(self, path: str) -> None:
        if self.names_.get(_folder(path), 0) is not None:
            raise FileNotFoundError(2, "No such file or directory", path)


class DiskOfProcess:
    """The disk as a process sees it; `check` raises when it dies, and says if a call is made.

    What the interpreter tidies up behind a dead process (`close`, `unlink`) does not happen.
    """

    def __init__(self, disk: SimulatedDisk, check: Callable[[str], bool]) -> None:
        self._disk, self._check = disk, check

    def __getattr__(self, name: str) -> Callable[..., object]:
        call = getattr(self._disk, name)
        check = self._check

        def guarded(*values: object) -> object:
            return call(*values) if check(name) else None

        return guarded


def _folder(path: str) -> str:
    return path.rpartition("/")[0] or "/"
