"""Exit 0 when a URL answers 200 within three seconds: `python -m deploy.healthy URL` (slim images have no curl)."""

from __future__ import annotations

import sys
import urllib.request

if __name__ == "__main__":
    with urllib.request.urlopen(sys.argv[1], timeout=3) as reply:  # noqa: S310 - a URL of the compose file
        sys.exit(0 if reply.status == 200 else 1)
