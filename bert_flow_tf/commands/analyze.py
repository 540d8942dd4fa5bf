"""`bert-flow analyze`: the paper's analyses of an embedding space."""

import dataclasses
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, model_options, task_option
from bert_flow_tf.commands.outputs import locked_folder
from bert_flow_tf.data.scored_tasks import read_scored_split
from bert_flow_tf.data.tasks import SPLITS, Task, read_split
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind, new_folder
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.results.records import RESULTS_FILE, IsotropyResults, Lexical, Words, kind_of
from bert_flow_tf.results.tables import TABLES, encoder_in_words, model_in_words
from bert_flow_tf.runs.record import made_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    Analysis = tuple[str, Figure, Lexical | Words | IsotropyResults]


@click.group(epilog="\b\nbert-flow analyze isotropy --bert_hub demo --glue_dir glue_data --out isotropy")
def analyze() -> None:
    """Analyze the space of embeddings, with tables, plots and results.json."""


def _analysis(
    kind: type[Lexical | Words | IsotropyResults], plot: str, example: str
) -> "Callable[[Callable[..., Analysis]], Any]":
    """Return a decorator that makes an analysis a sub-command."""

    def decorate(function: "Callable[..., Analysis]") -> Any:
        name = function.__name__
        names, what = (RESULTS_FILE, "*.png", "*.svg"), f"an `analyze {name}` folder"
        folder_kind = FolderKind(what, RESULTS_FILE, names, lambda path: kind_of(path) is kind)

        @analyze.command(epilog=f"\b\nbert-flow analyze {example}")
        @click.option("--out", required=True, metavar="FOLDER", help="Folder to make, for results.json and plots.")
        @click.option("--overwrite", is_flag=True, help="Replace an earlier analysis of this kind.")
        @functools.wraps(function)
        def command(out: str, overwrite: bool, **options: Any) -> None:
            folder = locked_folder(out, folder_kind, overwrite=overwrite)
            headline, figure, result = function(**options)
            from bert_flow_tf.evaluation.plots import write_figure

            click.echo(f"{headline}\n{TABLES[kind](result).to_text()}")
            with new_folder(folder) as new:
                write_json(new / RESULTS_FILE, result)
                write_figure(figure, new, plot)
            click.echo(f"written: {folder}/{RESULTS_FILE} and plots beside it")

        return command

    return decorate


@_analysis(Lexical, "lexical", "lexical --model runs/stsb_flow --glue_dir glue_data --out lexical")
@model_options(length=64)
@task_option("A task with gold scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice(SPLITS), default="dev", help="Split of the task.")
def lexical(model: ModelOptions, task: Task, glue_dir: str, split: str) -> "Analysis":
    """Correlate similarity with edit distance.

    This compares gold scores, BERT and the flow, as in the paper's Table 6 and Figure 2.
    """
    pairs = read_scored_split(task, glue_dir, split)
    loaded = model.load()
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.lexical import BERT, CLOSE_DISTANCE, FLOW, GOLD, edit_distances, lexical_correlations
    from bert_flow_tf.evaluation.protocols import check_spread, cosines
    from bert_flow_tf.model.siamese import reduce_dimension

    def similarities_of(embeddings: np.ndarray, side: str) -> np.ndarray:
        first, second = np.split(embeddings, 2)
        values = cosines(first, second, f"{task.name}, {split}, {side}")
        check_spread(values, f"{task.name}, {split}, {side}")
        return values

    u = loaded.encode_pooled(pairs.sentences_a + pairs.sentences_b)
    plain = np.asarray(reduce_dimension(u, loaded.low_dim))
    similarities = {GOLD: pairs.labels, BERT: similarities_of(plain, "without flow")}
    if loaded.flow is not None:
        similarities[FLOW] = similarities_of(loaded.after_flow(u), "with flow")
    distances = edit_distances(pairs.sentences_a, pairs.sentences_b)
    is_close = distances <= CLOSE_DISTANCE
    result = Lexical(
        made_by=made_by("bert-flow analyze lexical"),
        model=loaded.record,
        task=task.name,
        split=split,
        all_pairs=lexical_correlations(distances, similarities),
        close_pairs=lexical_correlations(
            distances[is_close], {name: values[is_close] for name, values in similarities.items()}
        ),
    )
    source, words = f"{task.directory}, {split}", model_in_words(loaded.record)
    figure = plots.lexical_figure(distances, similarities, result.all_pairs, title=f"{words}; {source}")
    return f"Spearman x100 on {source}: {len(pairs):,} pairs; {words}", figure, result


@_analysis(Words, "words", "words --bert_hub demo --out words")
@model_options(pooling=False)
def words(model: ModelOptions) -> "Analysis":
    """Relate word embeddings to word frequency.

    This prints norms and nearest neighbours, from frequent to rare words, as in the paper's Table 1 and Figure 1.
    """
    # No sentence is embedded, so use a length that every encoder allows.
    loaded = dataclasses.replace(model, max_seq_length=3).load()
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation import words as frequency

    vocabulary = loaded.source.pretrained.vocab
    # Some encoders' tables have more rows than the vocabulary has pieces.
    if (table := loaded.encoder.word_embeddings) is None:
        raise UserError(f"{loaded.source.bert_hub}: found a SavedModel that is no BERT, expected a BERT")
    embeddings = table.numpy()[: len(vocabulary)]
    ranks = frequency.frequency_ranks(vocabulary, frequency.english_frequencies())
    shown = np.flatnonzero((ranks > 0) & (ranks < frequency.RANK_BINS[-1][1]))
    title = f"Embeddings of the {len(shown):,} most frequent words, {encoder_in_words(loaded.record.encoder)}"
    figure = plots.word_frequency_figure(frequency.svd_projection(embeddings[shown]), ranks[shown], title=title)
    result = Words(
        made_by=made_by("bert-flow analyze words"),
        encoder=loaded.record.encoder,
        pieces=len(vocabulary),
        ranked_words=int((ranks > 0).sum()),
        frequencies="wordfreq, English",
        bins=frequency.rank_statistics(embeddings, ranks),
    )
    headline = f"{len(vocabulary):,} word pieces; {result.ranked_words:,} are words with a frequency rank"
    return headline, figure, result


@_analysis(IsotropyResults, "spectrum", "isotropy --model runs/stsb_flow --glue_dir glue_data --out isotropy")
@model_options(length=64)
@task_option("Task of the sentences.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice((*SPLITS, "all")), default="dev", help="Split of the task.")
def isotropy(model: ModelOptions, task: Task, glue_dir: str, split: str) -> "Analysis":
    """Measure how evenly embeddings fill their space.

    This prints mean cosines, singular directions and bits per dimension, with the flow and without.
    """
    folder = os.path.join(glue_dir, task.directory)
    pairs = [read_split(task, folder, one) for one in (SPLITS if split == "all" else (split,))]
    loaded = model.load()
    u = loaded.encode_pooled(list(dict.fromkeys(s for part in pairs for s in part.sentences_a + part.sentences_b)))
    from bert_flow_tf.evaluation import isotropy as measure
    from bert_flow_tf.evaluation import plots

    measures = {"without flow": measure.measure_isotropy(u)}
    constant = measures["without flow"].constant_channels
    # A Gaussian has no density in constant channels; the flow's bits count all channels.
    varying = f" over the {u.shape[1] - constant} channels that vary" if constant else ""
    bits = {f"diagonal Gaussian{varying}": measure.gaussian_bits_per_dim(u)}
    learned = loaded.record.flow
    if learned is not None and learned.config is None:
        measures["with flow"] = measure.measure_isotropy(loaded.after_flow(u))
    elif learned is not None:
        flow = loaded.require_flow("analyze isotropy")
        parts = [flow.forward_and_bits_per_dim(u[i : i + 1024]) for i in range(0, len(u), 1024)]
        z, flow_bits = map(np.concatenate, zip(*parts, strict=True))
        measures["with flow"] = measure.measure_isotropy(z)
        bits["flow"] = float(flow_bits.mean(dtype=float))
    # Compare with normal draws, because the spectrum of a finite sample is not flat either.
    reference = measure.measure_isotropy(np.random.default_rng(0).normal(size=u.shape))
    source = f"{len(u):,} different sentences of {task.directory}, {split}"
    words = model_in_words(loaded.record)
    figure = plots.spectrum_figure(measures, reference, title=f"{words}; {source}")
    result = IsotropyResults(
        made_by=made_by("bert-flow analyze isotropy"),
        model=loaded.record,
        task=task.name,
        split=split,
        sentences=len(u),
        measures=measures,
        reference=reference,
        bits_per_dim=bits,
    )
    return f"{source}; {u.shape[1]} channels; {words}", figure, result
