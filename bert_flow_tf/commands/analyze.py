"""`bert-flow analyze`: why an encoder's space is as it is, and what the flow makes of it."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, check_one_of, model_options, task_option, with_options
from bert_flow_tf.commands.outputs import made_result, own_folder, pooled_embeddings
from bert_flow_tf.data.sts_sets import read_scored_split
from bert_flow_tf.data.tasks import SPLITS, folder_below, read_split
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind
from bert_flow_tf.results.records import RESULTS_FILE, Isotropy, Lexical, Words, is_of_kind
from bert_flow_tf.scale.parts import Parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.data.tasks import Task

_OUT_OPTIONS = [
    click.option("--out", required=True, metavar="FOLDER", help="Folder to make, for results.json and plots."),
    click.option("--overwrite", is_flag=True, help="Replace what an earlier analysis of this kind wrote there."),
]


@click.group()
def analyze() -> None:
    """Lexical similarity, word frequency and isotropy: each writes a table, results.json and plots."""


@analyze.command()
@model_options()
@task_option("A task with gold scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice(SPLITS), default="dev")
@with_options(_OUT_OPTIONS)
def lexical(model: ModelOptions, task: "Task", glue_dir: str, split: str, out: str, overwrite: bool) -> None:
    """Does similarity follow the words alone? Edit distance against gold, BERT and flow: Table 6, Figure 2.

    \b
    bert-flow analyze lexical --model runs/stsb_flow --glue_dir glue_data --out lexical
    """
    folder = _folder(out, "lexical", overwrite)
    pairs = read_scored_split(task, glue_dir, split, task.name)
    loaded = model.load()
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.lexical import BERT, FLOW, GOLD, edit_distances, lexical_correlations

    u = pooled_embeddings(loaded, pairs.sentences_a + pairs.sentences_b)
    similarities = {GOLD: pairs.gold, BERT: _similarities(loaded, u, f"{task.name}, {split}, without flow")}
    if loaded.flow is not None:
        z, _ = _through_flow(loaded, u)
        similarities[FLOW] = _similarities(loaded, z, f"{task.name}, {split}, with flow")
    distances = edit_distances(pairs.sentences_a, pairs.sentences_b)
    correlations = lexical_correlations(distances, similarities)
    place = f"{task.directory}, {split}"
    figure = plots.lexical_figure(
        distances,
        similarities,
        {name: row["edit distance"] for name, row in correlations["rows"].items()},
        title=f"{_name(model, loaded)}, {loaded.sentence_embedding_type} on {place}",
    )
    result = made_result(Lexical, "analyze lexical", model=loaded.record, task=task.name, split=split, **correlations)
    _finish(folder, result, f"Spearman x100 on {place}: {result.pairs:,} pairs", figure, "lexical")


@analyze.command()
@model_options(pooling=False)
@with_options(_OUT_OPTIONS)
def words(model: ModelOptions, out: str, overwrite: bool) -> None:
    """Word embeddings from frequent to rare words: norms and nearest neighbours, Table 1, Figure 1.

    \b
    bert-flow analyze words --bert_hub demo --out words
    """
    folder = _folder(out, "words", overwrite)
    loaded = dataclasses.replace(model, max_seq_length=3 if model.bert_hub else None).load()
    from bert_flow_tf.encoder.tokenizer import read_vocabulary, vocabulary_asset
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation import words as word_frequency

    vocabulary = read_vocabulary(vocabulary_asset(loaded.source.preprocess_dir))
    # An encoder may have more rows than its vocabulary has pieces.
    embeddings = _word_embeddings(loaded)[: len(vocabulary)]
    ranks = word_frequency.frequency_ranks(vocabulary, word_frequency.english_frequencies())
    bins = word_frequency.rank_statistics(embeddings, ranks)
    shown = np.flatnonzero((ranks > 0) & (ranks < word_frequency.RANK_BINS[-1][1]))
    figure = plots.word_frequency_figure(
        word_frequency.svd_projection(embeddings[shown]),
        ranks[shown],
        title=f"Embeddings of the {len(shown):,} most frequent words, {_name(model, loaded)}",
    )
    result = made_result(
        Words,
        "analyze words",
        encoder=loaded.record.encoder,
        pieces=len(vocabulary),
        ranked_words=int((ranks > 0).sum()),
        frequencies="wordfreq, English",
        bins=bins,
    )
    headline = f"{result.pieces:,} word pieces, {result.ranked_words:,} of them words with a frequency rank"
    _finish(folder, result, headline, figure, "words")


@analyze.command()
@model_options()
@task_option("Task of the sentences, with --glue_dir.")
@click.option("--glue_dir", metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice((*SPLITS, "all")), default="dev", help="Of the task.")
@click.option("--embeddings", metavar="DIR", help="In place of --glue_dir: what `encode --bert_hub … --out DIR` wrote.")
@with_options(_OUT_OPTIONS)
def isotropy(
    model: ModelOptions,
    task: "Task",
    glue_dir: str | None,
    split: str,
    embeddings: str | None,
    out: str,
    overwrite: bool,
) -> None:
    """How evenly embeddings fill their space, before and after the flow; bits per dimension.

    \b
    bert-flow analyze isotropy --model runs/stsb_flow --glue_dir glue_data --out isotropy

    --embeddings measures parts of a folder in a random order, until these have 65,536 rows.
    """
    check_one_of({"glue_dir": glue_dir, "embeddings": embeddings})
    folder = _folder(out, "isotropy", overwrite)
    if glue_dir:
        data_dir = folder_below(glue_dir, task)
        pairs = [read_split(task, data_dir, one) for one in (SPLITS if split == "all" else (split,))]
        loaded = model.load()
        u = pooled_embeddings(loaded, [s for part in pairs for s in part.sentences_a + part.sentences_b], distinct=True)
        name, place = task.name, f"sentences of {task.directory}, {split}"
        headline = f"{len(u):,} different {place}"
    else:
        name, split = "embeddings", str(embeddings)
        Parts(split)
        loaded = model.load()
        parts = loaded.parts(split)
        u = next(parts.blocks(np.random.default_rng(0)))
        place = f"rows of {pathlib.Path(split).resolve().name}"
        headline = f"{len(u):,} of {parts.rows:,} {place}"
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, isotropic_reference, measure_isotropy

    measures = {"without flow": measure_isotropy(u)}
    constant = measures["without flow"].constant_channels
    # Constant channels have no density; the flow's bits are over all of them.
    over = f" over the {u.shape[1] - constant} channels that vary" if constant else ""
    bits = {f"diagonal Gaussian{over}": gaussian_bits_per_dim(u)}
    if loaded.flow is not None:
        z, flow_bits = _through_flow(loaded, u)
        measures["with flow"] = measure_isotropy(z)
        bits["flow"] = float(flow_bits.mean(dtype=float))
    reference = isotropic_reference(*u.shape)
    title = f"{_name(model, loaded)}, {loaded.sentence_embedding_type}, {len(u):,} {place}"
    figure = plots.spectrum_figure(measures, reference, title=title)
    result = made_result(
        Isotropy,
        "analyze isotropy",
        model=loaded.record,
        task=name,
        split=split,
        sentences=len(u),
        measures=measures,
        reference=reference,
        bits_per_dim=bits,
    )
    _finish(folder, result, f"{headline}; {u.shape[1]} channels", figure, "spectrum")


def _folder(out: str, analysis: str, overwrite: bool) -> pathlib.Path:
    """Lock the folder `--out`, which may replace that of an earlier analysis of this kind; make nothing."""
    files = (RESULTS_FILE, "*.png", "*.svg")
    kind = FolderKind(f"an `analyze {analysis}` folder", RESULTS_FILE, files, lambda path: is_of_kind(path, analysis))
    return own_folder(out, kind, overwrite=overwrite)


def _finish(
    folder: pathlib.Path, result: Lexical | Words | Isotropy, headline: str, figure: "Figure", plot: str
) -> None:
    """Print the result below its headline; make the folder of result and plot, whole or not at all."""
    from bert_flow_tf.evaluation.plots import write_figure
    from bert_flow_tf.files.atomic import new_folder
    from bert_flow_tf.files.json_files import write_json
    from bert_flow_tf.report.tables import MEASURED_TABLES
    from bert_flow_tf.results.collect import analysis

    click.echo(headline)
    click.echo(MEASURED_TABLES[str(result.__struct_config__.tag)](analysis(result)).to_text())
    with new_folder(folder) as new:
        write_json(new / RESULTS_FILE, result)
        write_figure(figure, new, plot)
    click.echo(f"written: {folder}/{RESULTS_FILE} and plots beside it")


def _through_flow(loaded: "BertFlow", u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return latents [n, D] of the embeddings and their bits per dimension [n]."""
    assert loaded.flow is not None, "called for models with a flow"
    parts = [loaded.flow.forward_and_bits_per_dim(u[i : i + 1024]) for i in range(0, len(u), 1024)]
    z, bits = zip(*parts, strict=True)
    return np.concatenate(z), np.concatenate(bits)


def _similarities(loaded: "BertFlow", embeddings: np.ndarray, place: str) -> np.ndarray:
    """Return the cosines [n] of the first half of the embeddings [2n, D] with the second."""
    from bert_flow_tf.evaluation.protocols import check_spread, cosines
    from bert_flow_tf.model.siamese import reduce_dimension

    similarities = cosines(*np.split(np.asarray(reduce_dimension(embeddings, loaded.low_dim)), 2), place)
    check_spread(similarities, place)
    return similarities


def _word_embeddings(model: "BertFlow") -> np.ndarray:
    """Return the encoder's word embeddings [V, D]."""
    variables = model.encoder.variables_by_name
    found = [v for name, v in variables.items() if name.endswith("word_embeddings/embeddings")]
    if len(found) != 1:
        raise UserError(
            f"{model.source.bert_hub}: found {len(found)} variables word_embeddings/embeddings, expected one"
        )
    return found[0].numpy()


def _name(model: ModelOptions, loaded: "BertFlow") -> str:
    """Return a run's or encoder's name without the folders above it, for a title."""
    if model.run_dir is not None:
        return model.run_dir.absolute().name
    return (model.model or loaded.source.bert_hub).rstrip("/").rpartition("/")[2]
