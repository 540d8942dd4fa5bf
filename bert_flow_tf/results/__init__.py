"""Records of results: finding, reading and comparing them."""

EVALUATION_FILE = "evaluation.json"
REPRODUCTION_FILE = "reproduction.json"
