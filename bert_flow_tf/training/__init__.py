"""A run's training: pairs, schedule, devices, callbacks, scoring."""
