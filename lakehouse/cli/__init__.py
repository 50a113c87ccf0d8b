"""The command line."""

from lakehouse.cli.app import app

__all__ = ["app"]
