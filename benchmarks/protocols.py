"""Show why papers report different figures for one method.

    python -m benchmarks.protocols GLUE_DIR SENTEVAL_DIR NLI_DIR [BERT_HUB ...]

prints Spearman x100 on STS-12 with its sub-sets weighted by size (`wmean`, the paper) and with all
pairs together (`all`, later papers), for two meanings of "the last two layers" and for calibrations
learned on the task's sentences; and on the STS Benchmark, after a flow was learned on NLI sentences
for five epochs at the paper's learning rate and at the code's default.
"""

import pathlib
import sys

from bert_flow_tf import BertFlow
from bert_flow_tf.tasks.protocols import score_tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask, read_task
from bert_flow_tf.tasks.tasks import TASKS, read_train

POOLINGS = {"avg-last-2": "first and last layer", "paper-avg-last-2": "last two layers"}


def row(model: BertFlow, task: ScoredTask, label: str) -> None:
    found = score_tasks(model.encode, [task])[task.name].by_protocol
    figures = "  ".join(
        f"{name} {100 * found[name]:6.2f}" for name in ("wmean", "all") if name in found
    )
    print(f"{label:70} {task.title:7} {figures}", flush=True)


def main(glue_dir: str, senteval_dir: str, nli_dir: str, *handles: str) -> None:
    sts12, stsb = (
        read_task("sts12", senteval_dir=senteval_dir),
        read_task("stsb", glue_dir=glue_dir),
    )
    nli = read_train(TASKS["allnli"], pathlib.Path(nli_dir, "ALLNLI"))
    for handle in handles or ("demo",):
        name = pathlib.Path(handle).name
        for pooling, words in POOLINGS.items():
            model = BertFlow.from_hub(handle, pooling=pooling, max_seq_length=64)
            row(model, sts12, f"{name}, {words}")
            for method in ("whitening", "flow"):
                row(
                    model.fit(sts12.sentences, method=method, dev_fraction=0),
                    sts12,
                    f"{name}, {words}, {method}",
                )
        model = BertFlow.from_hub(handle, pooling="avg-last-2", max_seq_length=64)
        row(model, stsb, f"{name}, first and last layer")
        for rate in (2e-5, 1e-3):
            model.fit(
                nli.sentences_a + nli.sentences_b, learning_rate=rate, epochs=5, dev_fraction=0
            )
            row(model, stsb, f"{name}, first and last layer, flow on NLI at {rate:g}")


if __name__ == "__main__":
    main(*sys.argv[1:])
