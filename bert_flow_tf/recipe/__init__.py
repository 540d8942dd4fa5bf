"""The whole method as one command of several stages."""
