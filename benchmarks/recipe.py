"""Time the recipe of `siamese_then_flow.sh` as a whole process.

The scores of all sides must be the same, to the last digit.
"""

import contextlib
import re
import tempfile
from collections.abc import Callable

from benchmarks.processes import Side
from benchmarks.run import Options
from bert_flow_tf.sample_data import sample_glue_dir

# This matches a scored stage: its title, Pearson, Spearman and seconds.
_ROW = re.compile(r"^(\S.*?)  +(-?\d+\.\d\d)  +(-?\d+\.\d\d)  +\d+\.\d", re.MULTILINE)


def functions(options: Options, stack: contextlib.ExitStack) -> dict[str, Callable[[], dict]]:
    tables: list[list[tuple]] = []

    def run(side: Side) -> dict:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            variables = {
                "BERT_HUB": options.bert_hub,
                "GLUE_DIR": sample_glue_dir(),
                "OUTPUT_PARENT_DIR": folder,
            }
            used = side.run("-m", "bert_flow_tf.original.recipe", **variables)
        tables.append(_ROW.findall(used["output"]))
        if tables[-1] != tables[0] or not tables[0]:
            raise RuntimeError(f"recipe: found scores {tables[-1]}, expected {tables[0]}")
        return used

    return {name: lambda side=side: run(side) for name, side in options.ours.items()}
