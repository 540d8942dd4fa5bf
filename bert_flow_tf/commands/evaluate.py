"""`bert-flow evaluate`: score a model on tasks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from bert_flow_tf.commands.options import SENTEVAL_OPTION, ModelOptions, model_options, name_list
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.data.tasks import SPLITS
from bert_flow_tf.results.tables import scores_table
from bert_flow_tf.runs.folder import EVALUATION_FILE, locked_run
from bert_flow_tf.runs.record import made_by

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.data.scored_tasks import ScoredTask
    from bert_flow_tf.results.records import Scores


@click.command(
    epilog="\b\nbert-flow evaluate --model runs/stsb_flow --tasks stsb,sts12 --glue_dir glue_data "
    "--senteval_dir data"
)
@model_options(length=64)
@click.option(
    "--tasks",
    "names",
    callback=name_list(),
    required=True,
    metavar="LIST",
    help="Tasks, see above.",
)
@click.option("--glue_dir", metavar="DIR", help="Folder that holds STS-B, SICK-R, …")
@SENTEVAL_OPTION
@click.option(
    "--split", type=click.Choice(SPLITS), help="[default: test, or dev without test labels]"
)
@click.option("--out", metavar="FILE", help=f"Results.  [default: {EVALUATION_FILE} of the run]")
@click.option("--overwrite", is_flag=True, help="Replace existing results.")
def evaluate(
    model: ModelOptions, names: list[str], out: str | None, overwrite: bool, **data: str | None
) -> None:
    """Score embeddings on tasks by Spearman or AUC, times 100.

    Tasks are sts12 to sts16, stsb, sickr, mrpc, qnli and qqp.

    sts12 to sts16 have several sets: x100 is the mean over them weighted by size, as in the paper;
    beside it stands the correlation of all pairs, as in later papers. A model with a flow is also
    scored without it; a fall of more than 0.5 is marked.
    """
    if model.run_dir and not out:
        # No other command may change the run until its scores are written.
        click.get_current_context().with_resource(locked_run(model.run_dir))
        out = str(model.run_dir / EVALUATION_FILE)
    path = locked_file(out, overwrite=overwrite) if out else None
    from bert_flow_tf.data.scored_tasks import read_task

    tasks = [read_task(name, **data) for name in names]
    results = scores_of("bert-flow evaluate", model.load(), tasks)
    click.echo(scores_table(results).to_text())
    if path:
        write_results(path, results)


def scores_of(command: str, loaded: "BertFlow", tasks: "Sequence[ScoredTask]") -> "Scores":
    """Score a model for a command, with its flow and without."""
    from bert_flow_tf.evaluation.protocols import score_tasks
    from bert_flow_tf.results.records import Scores

    if loaded.flow is None:
        scored = score_tasks(loaded.encode, tasks)
        return Scores(made_by=made_by(command), model=loaded.record, tasks=scored)
    pooled: list[np.ndarray] = []

    def encode(sentences: list[str]) -> np.ndarray:
        pooled.append(loaded.encode_pooled(sentences))
        return loaded.after_flow(pooled[0])

    after = score_tasks(encode, tasks)
    before = score_tasks(lambda sentences: pooled[0], tasks)
    return Scores(made_by=made_by(command), model=loaded.record, tasks=after, without_flow=before)
