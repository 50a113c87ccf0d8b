"""Alerts when something fails, and when it has recovered: LAKEHOUSE_ON_FAILURE gets the text."""

import os

from lakehouse.orchestration import by_command, failure_alerts

COMMAND = os.environ.get("LAKEHOUSE_ON_FAILURE")

failed_runs = (
    [failure_alerts(by_command(COMMAND), url=os.environ.get("LAKEHOUSE_UI_URL", ""))]
    if COMMAND
    else []
)
