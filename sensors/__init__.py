"""Sensors and schedules: `landing` and `upkeep` ask for runs, `alerts` tells of failed ones."""
