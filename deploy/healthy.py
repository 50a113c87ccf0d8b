"""Exit 0 if a URL answers 200 in three seconds: `python -m deploy.healthy URL` (without curl)."""

from __future__ import annotations

import sys
import urllib.request

if __name__ == "__main__":
    # A URL of the compose file.
    with urllib.request.urlopen(sys.argv[1], timeout=3) as reply:  # noqa: S310
        sys.exit(0 if reply.status == 200 else 1)
