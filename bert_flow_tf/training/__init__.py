"""Training steps of a run: pairs, schedule, devices, callbacks, scoring."""
