"""The model of encoder and flow: build, train, save, load."""
