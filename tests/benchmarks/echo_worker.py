"""A worker without peers, for the tests of the protocol."""

import sys

from benchmarks.peer_protocol import serve


def add(a, b):
    print("what a library prints must not be taken for an answer")
    return {"sum": a + b}


def die():
    sys.exit("out of memory, say")


if __name__ == "__main__":
    serve({"add": add, "die": die})
