"""Sentence pairs with gold scores or labels: tasks, readers, data sets, folders."""
