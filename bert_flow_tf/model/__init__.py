"""The encoder with a flow: building, saving, loading and learning it."""
