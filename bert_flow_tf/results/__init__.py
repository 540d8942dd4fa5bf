"""Records of results: finding, reading and comparing them."""

REPRODUCTION_FILE = "reproduction.json"
