"""One page of results."""
