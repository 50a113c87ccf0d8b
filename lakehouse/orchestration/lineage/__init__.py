"""Which snapshots a materialization read and wrote, and computing it again."""
