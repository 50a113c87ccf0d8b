"""The demo: what lands, and the tour through the pipeline."""

from demo.tour import DemoOptions, run

__all__ = ["DemoOptions", "run"]
