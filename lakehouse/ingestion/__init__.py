"""From landing files to raw rows: a line becomes a row, is quarantined, or is a duplicate.

Quarantined records have a reason.
"""
