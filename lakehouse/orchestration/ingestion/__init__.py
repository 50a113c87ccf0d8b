"""From landing files to raw rows: every line becomes a row, a quarantined record with its reason, or a duplicate."""
