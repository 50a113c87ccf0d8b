"""What the processes of one server need of each other; each keeps nothing but caches of its own."""

from __future__ import annotations

import hmac
import http.client
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from lakehouse.catalog.machine_turns import machine_turn
from lakehouse.server.http_messages import Answer

RELAYED = "lakehouse-relayed"
"""Header of a request that a sibling sends on: it holds the server's secret."""
_ENDING = ".pid"


@dataclass(frozen=True, slots=True)
class Siblings:
    """The processes of one server, as the one with `number` sees them.

    Attributes:
        number: of this process, from 0.
        ports: on 127.0.0.1, by number, where each is asked by the others alone.
        folder: of the server, which only its user reads.
        secret: shows that a sibling asks.
    """

    number: int
    ports: tuple[int, ...]
    folder: Path
    secret: str = field(repr=False)

    def mark(self, plan_id: str) -> str:
        """An id by which every sibling finds the process that has the plan."""
        return f"{plan_id}.{self.number}"

    def owner(self, plan_id: str) -> int | None:
        """Which other process has a plan; None: this one, or no process."""
        others = (number for number in range(len(self.ports)) if number != self.number)
        return next((number for number in others if plan_id.endswith(f".{number}")), None)

    def ask(
        self, number: int, method: str, target: str, headers: Mapping[str, str], seconds: float
    ) -> Answer:
        """What another process answers. Raises OSError, HTTPException: it ended, or does not."""
        request_headers = {RELAYED: self.secret}
        if "authorization" in headers:
            request_headers["Authorization"] = headers["authorization"]
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[number], timeout=seconds)
        try:
            connection.request(method, target, headers=request_headers)
            answer = connection.getresponse()
            again = answer.getheader("retry-after")
            answer_headers = {} if again is None else {"Retry-After": again}
            return Answer(answer.status, answer.read(), answer_headers)
        finally:
            connection.close()

    def is_relayed(self, headers: Mapping[str, str]) -> bool:
        """Whether a sibling sent the request on, which counted and logged it."""
        return hmac.compare_digest(headers.get(RELAYED, "").encode(), self.secret.encode())

    def began(self) -> None:
        """Tell the others which process this is."""
        (self.folder / f"{self.number}{_ENDING}").write_text(str(os.getpid()))

    def processes(self) -> Iterator[tuple[int, int]]:
        """Numbers of the processes that began, and their ids in the system."""
        for file in sorted(self.folder.glob(f"*{_ENDING}")):
            yield int(file.stem), int(file.read_text())

    def turn(self, name: str) -> AbstractContextManager[None]:
        """What one process does at a time."""
        return machine_turn(f"{self.folder}: {name}")
