"""Verbs that decide on the rows that they find, and decide again when others were first."""
