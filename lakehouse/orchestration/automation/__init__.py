"""Jobs, sensors and schedules: what runs a pipeline without being asked."""
