"""Failed runs are told of: LAKEHOUSE_ON_FAILURE is a command that takes a text as its input."""

import os

from lakehouse.orchestration import by_command, failure_alerts

_command = os.environ.get("LAKEHOUSE_ON_FAILURE")
failed_runs = (
    [failure_alerts(by_command(_command), url=os.environ.get("LAKEHOUSE_UI_URL", ""))]
    if _command
    else []
)
