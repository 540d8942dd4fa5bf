"""`bert-flow analyses`: edit distance and word frequency, as in the paper."""

import click

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.commands.command import command, option, refuse, setting_options
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.outputs import locked_file, write_results
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_tables
from bert_flow_tf.commands.task_options import TaskModelOptions, task_option
from bert_flow_tf.common.errors import ArgumentError, check_installed
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.scores import model_in_words
from bert_flow_tf.tasks.tasks import SPLITS, Task, read_split

# The flow that is learned for Table 6.
_OF_FLOW = ("method", "flow_model_config", "num_train_epochs", "train_batch_size", "seed")
_LIBRARIES = {"1": "wordfreq", "6": "rapidfuzz"}


@command(
    epilog="\b\nbert-flow analyses --bert_hub demo --pooling avg-last-2 --num_train_epochs 1 "
    "--glue_dir glue_data --plot analyses.png\n"
    "bert-flow analyses --model runs/stsb_flow --glue_dir glue_data",
    one_of=[("model", "bert_hub")],
    excludes={"model": _OF_FLOW},
)
@setting_options(TaskModelOptions, name="model")
@task_option("Task of the pairs.")
@option("--glue_dir", metavar="DIR", help="Folder that holds the task's folder.")
@option("--split", type=click.Choice(SPLITS), default="dev", help="Split of the task.")
@option(
    "--tables",
    callback=name_list(_LIBRARIES),
    default="1,6",
    metavar="LIST",
    help="1: word frequency; 6: edit distance.",
)
@setting_options(FitSettings, "method", "flow_model_config", "epochs", "batch_size", "seed")
@PLOT
@panels_option("distances", "frequency", "words")
@TABLE_FORMAT
@option("--out", metavar="FILE", help="JSON file of the figures.")
@option("--overwrite", is_flag=True, needs=("out", "plot"), help="Replace files.")
def analyses(
    model: TaskModelOptions,
    task: Task,
    glue_dir: str | None,
    split: str,
    tables: list[str],
    settings: FitSettings,
    plot: str | None,
    panels: list[str] | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Analyse words in embeddings as the paper does.

    Table 6 and Figure 2: are sentences similar because their words are? Table 1 and Figure 1: where
    are the embeddings of frequent words? The flow is that of --model; with --bert_hub, one is
    learned on the sentences of all splits of the task.
    """
    if "6" not in tables:
        # Table 1 needs only the encoder's words.
        refuse(("glue_dir", "task", "split", *_OF_FLOW), "--tables 1")
    elif glue_dir is None:
        raise click.UsageError("--glue_dir: missing, expected the folder of tasks for table 6")
    settings.check_used([find_method(settings.method)])
    picture = locked_plot(plot, panels, overwrite=overwrite)
    path = locked_file(out, overwrite=overwrite) if out else None
    pairs = read_scored_split(task, glue_dir, split) if "6" in tables and glue_dir else None
    for name in tables:
        check_installed(_LIBRARIES[name], "analyses", f"tables: table {name}", ArgumentError)
    loaded = model.load()
    from bert_flow_tf.report.analyses import analyses_tables, analysis, lexical_pairs, word_table

    # Table 1 is of the encoder as it is; Table 6 may learn a flow.
    words = word_table(loaded) if "1" in tables else None
    if model.bert_hub and pairs is not None:
        loaded.fit(_sentences(task, str(glue_dir)), **vars(settings))
    lexical = None if pairs is None else lexical_pairs(loaded, pairs)
    result = analysis(loaded, words, lexical, task=task, split=split)
    title = f"{result.pairs:,} pairs of {task.directory}, {split}; {model_in_words(loaded.record)}"
    print_tables(analyses_tables(result, words=title), table_format)
    if path:
        write_results(path, result)
    if picture:
        from bert_flow_tf.report.pictures import pictures_of_words

        picture.write(pictures_of_words(words, lexical))


def _sentences(task: Task, glue_dir: str) -> list[str]:
    """Return all splits' sentences, on which the original learns."""
    parts = [read_split(task, f"{glue_dir}/{task.directory}", split) for split in SPLITS]
    return [text for part in parts for text in (*part.sentences_a, *part.sentences_b)]
