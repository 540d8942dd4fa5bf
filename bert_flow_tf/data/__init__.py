"""Sentence pairs with scores or classes: tasks, readers, data sets."""
