"""A mechanical reader: text-to-SQL by fixed rules, from a channel's text alone."""
