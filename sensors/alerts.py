"""Failed runs are reported: LAKEHOUSE_ON_FAILURE is a command that takes a text as its input."""

import os

from lakehouse.orchestration import by_command, failure_alerts

COMMAND = os.environ.get("LAKEHOUSE_ON_FAILURE")

failed_runs = (
    [failure_alerts(by_command(COMMAND), url=os.environ.get("LAKEHOUSE_UI_URL", ""))]
    if COMMAND
    else []
)
