"""Converters to an encoder folder: a TF-Hub text encoder and its preprocess model as SavedModels, side by side."""
