"""Time a process from its start to its first embedding.

The process imports the package, loads an encoder that is in the cache and encodes one sentence. The
first process, which brings files into memory, is not counted.
"""

import contextlib
from collections.abc import Callable

from benchmarks.processes import Side
from benchmarks.run import Options

PROGRAM = """
import sys
from bert_flow_tf import BertFlow
print(*BertFlow.from_hub(sys.argv[1]).encode("A boat lies in the harbour."), flush=True)
"""


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:

    def start(side: Side) -> dict:
        used = side.run("-c", PROGRAM, options.bert_hub)
        return used | {"seconds": used["seconds_to_output"]}

    for side in options.ours.values():
        start(side)
    return {name: lambda side=side: start(side) for name, side in options.ours.items()}
