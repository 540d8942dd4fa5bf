"""Compare the steps that `fit` keeps with all 300.

    python -m benchmarks.early_stopping --encoders demo ENCODER --glue_dir GLUE

learns a flow on sentences of STS-B's training split and prints Spearman × 100 on its dev split,
means over the seeds.
"""

import argparse
import itertools
import math
import pathlib
import random
import sys

import numpy as np

from bert_flow_tf import BertFlow
from bert_flow_tf.common.errors import exit_status
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import TASKS, read_split
from bert_flow_tf.vectors.metrics import spearman
from bert_flow_tf.vectors.similarities import cosines_of_pairs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoders", nargs="+", required=True, help="as --bert_hub")
    parser.add_argument("--poolings", nargs="+", default=["avg-last-2", "avg", "cls"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[200, 500, 2000, 10000])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--glue_dir", required=True, help="folder that holds STS-B")
    args = parser.parse_args()
    task = TASKS["sts-b"]
    train = read_split(task, pathlib.Path(args.glue_dir, task.directory), "train")
    dev = read_scored_split(task, args.glue_dir, "dev")
    sentences = sorted({*train.sentences_a, *train.sentences_b})
    print(f"{'':24}{'sentences':>10}{'no flow':>10}{'300 steps':>10}{'fit':>10}  steps of fit")
    for encoder, pooling, size in itertools.product(args.encoders, args.poolings, args.sizes):
        model = BertFlow.from_hub(encoder, pooling=pooling)
        u, v = (model.encode_pooled(list(side)) for side in (dev.sentences_a, dev.sentences_b))
        scores, steps = [], []
        for seed in args.seeds:
            learned = random.Random(seed).sample(sentences, size)
            model.fit(learned, seed=seed, show_progress_bar=False)
            # `fit` has set both
            assert model.record.flow is not None and model.history_ is not None
            ours = model.after_flow(u), model.after_flow(v)
            steps.append(len(model.history_.losses))
            # As many as `fit` would take at most, but without an end by held-out sentences.
            epochs = float(
                max(1, math.ceil(300 * 64 / int(model.record.flow.training.settings["sentences"])))
            )
            model.fit(learned, seed=seed, epochs=epochs, show_progress_bar=False)
            sides = ((u, v), (model.after_flow(u), model.after_flow(v)), ours)
            scores.append(
                [100 * spearman(cosines_of_pairs(*both, "dev"), dev.labels) for both in sides]
            )
        means = "".join(f"{mean:10.2f}" for mean in np.mean(scores, axis=0))
        print(f"{pathlib.Path(encoder).name:12} {pooling:11}{size:10,}{means}  {steps}", flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(main))
