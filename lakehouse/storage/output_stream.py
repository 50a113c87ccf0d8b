"""What every stream that writes a new file answers alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class WriteOnlyStream(ABC):
    """An OutputStream that publishes its file when a block ends well, and forgets it otherwise."""

    def writable(self) -> bool:
        """True: pyarrow asks."""
        return True

    def readable(self) -> bool:
        """False: pyarrow asks."""
        return False

    def seekable(self) -> bool:
        """False: pyarrow asks."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Publish the file durably."""

    @abstractmethod
    def abort(self) -> None:
        """Forget the file; harmless after `close`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()
