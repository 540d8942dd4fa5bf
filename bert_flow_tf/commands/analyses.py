"""`bert-flow analyses`: edit distance and word frequency, as in the paper."""

from typing import TYPE_CHECKING

import click
import msgspec
import numpy as np

from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_file, print_tables, write_results
from bert_flow_tf.commands.pictures import Plot, plot_options
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.records import made_by
from bert_flow_tf.common.table import Table
from bert_flow_tf.tasks.scored_tasks import read_scored_split
from bert_flow_tf.tasks.tasks import SPLITS, Task, read_split

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.report.analyses import Analyses
    from bert_flow_tf.report.lexical import FrequencyTable, LexicalPairs
    from bert_flow_tf.tasks.pair_files import Examples

_LIBRARIES = {"1": "wordfreq", "6": "rapidfuzz"}


@click.command(
    epilog="\b\nbert-flow analyses --bert_hub demo --pooling avg-last-2 --num_train_epochs 1 "
    "--glue_dir glue_data --plot analyses.png\n"
    "bert-flow analyses --model runs/stsb_flow --glue_dir glue_data"
)
@opt.model_options(length=64)
@opt.task_option("Task of the pairs.")
@click.option("--glue_dir", metavar="DIR", help="Folder that holds the task's folder.")
@click.option("--split", type=click.Choice(SPLITS), default="dev", help="Split of the task.")
@click.option(
    "--tables",
    callback=opt.name_list(_LIBRARIES),
    default="1,6",
    metavar="LIST",
    help="1: word frequency; 6: edit distance.",
)
@opt.setting_options(FitSettings, "method", "flow_model_config", "epochs", "batch_size", "seed")
@plot_options("distances", "frequency", "words")
@opt.TABLE_FORMAT
@click.option("--out", metavar="FILE", help="JSON file of the figures.")
@click.option("--overwrite", is_flag=True, help="Replace files.")
def analyses(
    model: opt.ModelOptions,
    task: Task,
    glue_dir: str | None,
    split: str,
    tables: list[str],
    settings: FitSettings,
    plot: Plot | None,
    table_format: str,
    out: str | None,
    overwrite: bool,
) -> None:
    """Analyse words in embeddings as the paper does.

    Table 6 and Figure 2: are sentences similar because their words are? Table 1 and Figure 1: where
    are the embeddings of frequent words? The flow is that of --model; with --bert_hub, one is
    learned on the sentences of all splits of the task.
    """
    if "6" in tables and glue_dir is None:
        raise click.UsageError("--glue_dir: missing, expected the folder of tasks for table 6")
    if model.model and settings != FitSettings():
        raise click.UsageError("--model: found settings of a flow, whose own is analysed")
    if "6" not in tables and settings != FitSettings():
        raise click.UsageError("--tables: found settings of a flow, which only table 6 learns")
    path = locked_file(out, overwrite=overwrite) if out else None
    pairs = read_scored_split(task, glue_dir, split) if "6" in tables and glue_dir else None
    for name in tables:
        check_installed(_LIBRARIES[name], "analyses", f"tables: table {name}", ArgumentError)
    loaded = model.load()
    # Table 1 is of the encoder as it is; Table 6 may learn a flow.
    words = _words(loaded) if "1" in tables else None
    if model.bert_hub and pairs is not None:
        loaded.fit(_sentences(task, str(glue_dir)), **vars(settings))
    lexical = None if pairs is None else _lexical(loaded, pairs)
    result, found = _results(loaded, words, lexical, task, split)
    print_tables(found, table_format)
    if path:
        write_results(path, result)
    if plot:
        _draw(plot, words, lexical)


def _results(
    model: "BertFlow",
    words: "tuple[FrequencyTable, np.ndarray, np.ndarray] | None",
    lexical: "LexicalPairs | None",
    task: Task,
    split: str,
) -> "tuple[Analyses, list[Table]]":
    """Return the record of what was analysed, and its tables."""
    from bert_flow_tf.report.analyses import (
        Analyses,
        correlations,
        finite,
        frequency_rows,
        lexical_table,
    )
    from bert_flow_tf.tasks.scores import model_in_words

    result = Analyses(made_by=made_by("bert-flow analyses"), model=model.record)
    found: list[Table] = []
    if words is not None:
        table = words[0]
        result = msgspec.structs.replace(result, ranks=table.names, frequency=finite(table))
        found.append(frequency_rows(result))
    if lexical is not None:
        result = msgspec.structs.replace(
            result,
            task=task.name,
            split=split,
            pairs=len(lexical.gold),
            lexical=correlations(lexical),
        )
        said = f"{len(lexical.gold):,} pairs of {task.directory}, {split}; "
        found.append(lexical_table(result, words=said + model_in_words(model.record)))
    return result, found


def _sentences(task: Task, glue_dir: str) -> list[str]:
    """Return all splits' sentences, on which the original learns."""
    parts = [read_split(task, f"{glue_dir}/{task.directory}", split) for split in SPLITS]
    return [text for part in parts for text in (*part.sentences_a, *part.sentences_b)]


def _lexical(model: "BertFlow", pairs: "Examples") -> "LexicalPairs":
    """Return each similarity of the pairs, and their edit distances."""
    from bert_flow_tf.report.analyses import GOLD, WITH_FLOW, WITHOUT_FLOW
    from bert_flow_tf.report.lexical import LexicalPairs, edit_distances
    from bert_flow_tf.vectors.similarities import cosines_of_pairs

    a, b = (model.encode_pooled(side) for side in (pairs.sentences_a, pairs.sentences_b))
    gold = np.asarray(pairs.labels, np.float64)
    similarities = {GOLD: gold}
    similarities[WITHOUT_FLOW] = cosines_of_pairs(model.reduce(a), model.reduce(b), WITHOUT_FLOW)
    if model.flow is not None:
        similarities[WITH_FLOW] = cosines_of_pairs(
            model.after_flow(a), model.after_flow(b), WITH_FLOW
        )
    distances = edit_distances(pairs.sentences_a, pairs.sentences_b)
    return LexicalPairs(distances, gold, similarities)


def _words(model: "BertFlow") -> "tuple[FrequencyTable, np.ndarray, np.ndarray]":
    """Return Table 1, the word embeddings [V, D] and their words' ranks."""
    from bert_flow_tf.encoder.weights import Pretrained
    from bert_flow_tf.report.lexical import frequency_ranks, frequency_table

    pretrained = model.source.pretrained
    table = model.encoder.word_embeddings
    if not isinstance(pretrained, Pretrained) or table is None:
        raise UserError("--tables: found 1 with a SavedModel that is no BERT, expected 6")
    embeddings = table.numpy()[: len(pretrained.vocab)]
    ranks = frequency_ranks(pretrained.vocab)
    return frequency_table(embeddings, ranks), embeddings, ranks


def _draw(
    plot: Plot,
    words: "tuple[FrequencyTable, np.ndarray, np.ndarray] | None",
    lexical: "LexicalPairs | None",
) -> None:
    from bert_flow_tf.report import plots

    pictures: dict[str, list[plots.Panel]] = {"distances": [], "frequency": [], "words": []}
    if lexical is not None:
        pictures["distances"] = [
            plots.Panel(lambda axes: plots.distances(lexical, axes=axes), len(lexical.similarities))
        ]
    if words is not None:
        table, embeddings, ranks = words
        pictures["frequency"] = [plots.Panel(lambda axes: plots.frequency(table, ax=axes[0]))]
        pictures["words"] = [
            plots.Panel(lambda axes: plots.word_plane(embeddings, ranks, ax=axes[0]))
        ]
    plot.write(pictures)
