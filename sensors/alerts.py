"""What turns bad is told, and when it is over: LAKEHOUSE_ON_FAILURE takes a text as its input."""

import os

from lakehouse.orchestration import by_command, failure_alerts

COMMAND = os.environ.get("LAKEHOUSE_ON_FAILURE")

failed_runs = (
    [failure_alerts(by_command(COMMAND), url=os.environ.get("LAKEHOUSE_UI_URL", ""))]
    if COMMAND
    else []
)
