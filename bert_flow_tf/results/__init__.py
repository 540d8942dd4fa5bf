"""Records of results: finding, reading and comparing them."""
