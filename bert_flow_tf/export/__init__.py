"""Write a model as a SavedModel or for another program."""
