"""Iceberg's Java implementation as a process that does what it is told, one JSON line a command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

HOME = Path(__file__).parent
MAVEN = ("mvn", "-q", "-B", "-f", str(HOME / "pom.xml"), "compile", "dependency:build-classpath")


class JudgeError(Exception):
    """What Java raised; `stack` says where."""

    def __init__(self, command: dict[str, Any], message: str, stack: list[str]) -> None:
        super().__init__(f"{command.get('do')}: {message}")
        self.message = message
        self.stack = stack

    @property
    def is_conflict(self) -> bool:
        """Whether Java refused a commit because of what others committed."""
        kinds = ("ValidationException", "CommitFailedException", "CherrypickAncestorCommit")
        return any(kind in self.message.split(":", maxsplit=1)[0] for kind in kinds)


class MissingToolError(Exception):
    """Java or Maven is not there, or too old."""


def build() -> None:
    """Compile the judge; Maven fetches Iceberg when it is not there. Raises MissingToolError."""
    javac = java("javac")
    needed = "the conformance tests against Iceberg's Java library need a JDK, 17 or newer"
    if shutil.which(javac) is None:
        raise MissingToolError(f"no {javac}: {needed} (set JAVA_HOME)")
    said = subprocess.run([javac, "-version"], check=True, capture_output=True, text=True).stdout
    version = re.search(r"\d+", said)
    if version is None or int(version[0]) < 17:
        raise MissingToolError(f"{javac} is {said.strip()}: {needed} (set JAVA_HOME)")
    if shutil.which("mvn") is None:
        raise MissingToolError("no mvn: Apache Maven fetches Iceberg's Java library")
    subprocess.run([*MAVEN, "-Dmdep.outputFile=target/classpath.txt"], check=True)


class Judge:
    """The process. Use it in a `with` block; call it with what to do and the command's fields.

    `more`: a class path beside that of Maven.
    """

    def __init__(self, more: str = "") -> None:
        classpath = (HOME / "target" / "classpath.txt").read_text().strip()
        self._process = subprocess.Popen(
            [
                java("java"),
                "-Xmx768m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                f"{HOME / 'target' / 'classes'}:{classpath}:{more}",
                "judge.Judge",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def __call__(self, do: str, **fields: Any) -> Any:
        """The result of a command. Raises JudgeError."""
        command = {"do": do, **fields}
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Java ended during {do} (exit code {self._process.poll()})")
        answer = json.loads(line)
        if "error" in answer:
            raise JudgeError(command, answer["error"], answer["stack"])
        return answer["result"]


def java(tool: str) -> str:
    """A tool of the JDK: that of JAVA_HOME, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", tool)) if home else tool
