"""The demo: what lands, and the tour through the pipeline."""

from examples.demo.tour import DemoOptions, run

__all__ = ["DemoOptions", "run"]
