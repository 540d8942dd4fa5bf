"""The peers' end of `peers.Worker`. Run by the peers' Python: it imports nothing of the project's."""

import json
import os
import sys
from collections.abc import Callable


def serve(functions: dict[str, Callable]) -> None:
    """Answers requests until there are no more: a line each, `{"request": name, argument: value, ...}` and its result.

    Args:
      functions: dict of name -> function.
    """
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        arguments = json.loads(line)
        print(json.dumps(functions[arguments.pop("request")](**arguments)), file=answers, flush=True)
