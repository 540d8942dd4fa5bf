"""The recipe with a process of its own for every stage, in the folders that its environment variables name.

python -m benchmarks.stage_processes
"""

import os
import subprocess

from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.run import run, table
from bert_flow_tf.recipe.stages import stages_of

if __name__ == "__main__":
    recipe = read_environment(os.environ)
    print(table(run(stages_of(recipe), recipe.output_dir, overwrite=False, execute=subprocess.call)).to_text())
