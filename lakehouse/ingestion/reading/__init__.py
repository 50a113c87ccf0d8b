"""Landing files to typed columns, on one worker: bytes, lines, records, values, times."""
