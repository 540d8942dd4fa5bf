"""Training of runs, of `fit` and of `pretrain`, and their scores."""
