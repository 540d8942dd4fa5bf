"""Tasks, pair and sentence files, and their scores."""
