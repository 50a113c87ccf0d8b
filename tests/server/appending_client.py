"""A client in a process of its own: appends and counts up, and says what it was told was done.

It stands for any client that repeats what it got no answer to: an append with the ids that it chose
once, any other change with one key.
"""

from __future__ import annotations

import json
import sys
import uuid
from typing import Any

import requests


def ask(session: requests.Session, url: str, body: object, headers: dict[str, str]) -> Any:
    """Send until there is an answer: (status, document)."""
    while True:
        try:
            answer = session.post(url, json=body, headers=headers, timeout=60)
        except requests.RequestException:
            continue
        if answer.status_code < 500:
            return answer.status_code, answer.json()


def append(session: requests.Session, url: str, number: int) -> int:
    """One append; how often it was refused for certain before it landed."""
    refused = 0
    while True:
        try:
            metadata = session.get(url, timeout=60).json()["metadata"]
        except requests.RequestException:
            continue
        parent = metadata.get("current-snapshot-id")
        snapshot = {
            "snapshot-id": number + refused * 2**40,
            "sequence-number": metadata["last-sequence-number"] + 1,
            "timestamp-ms": metadata["last-updated-ms"] + 1,
            "manifest-list": f"{metadata['location']}/metadata/{uuid.uuid4()}.avro",
            "summary": {"operation": "append", "number": str(number)},
            "schema-id": 0,
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        requirement = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}
        updates = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {
                "action": "set-snapshot-ref",
                "ref-name": "main",
                "type": "branch",
                "snapshot-id": snapshot["snapshot-id"],
            },
        ]
        body = {"requirements": [requirement], "updates": updates}
        status, answer = ask(session, url, body, {})
        if status == 200:
            return refused
        if status != 409:
            raise AssertionError(f"{status}: {answer}")
        refused += 1


def main() -> None:
    """`url client appends`: prints one JSON line."""
    url, client, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    refused = 0
    with requests.Session() as session:
        for n in range(count):
            refused += append(session, f"{url}/v1/namespaces/ns/tables/t", client * 1000 + n + 1)
            # each key makes one version, however often it arrives
            update = {"action": "set-properties", "updates": {"last": f"{client}-{n}"}}
            status, answer = ask(
                session,
                f"{url}/v1/namespaces/ns/tables/u",
                {"updates": [update]},
                {"Idempotency-Key": str(uuid.uuid4())},
            )
            if status != 200:
                raise AssertionError(f"{status}: {answer}")
    sys.stdout.write(json.dumps({"client": client, "appended": count, "refused": refused}) + "\n")


if __name__ == "__main__":
    main()
