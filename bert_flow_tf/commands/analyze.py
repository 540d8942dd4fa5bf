"""`bert-flow analyze`: why an encoder's space is as it is, and what the flow makes of it."""

import pathlib

import click

from bert_flow_tf.commands.model_options import model_options, pooled_embeddings, with_options
from bert_flow_tf.commands.results import results_folder, versions, write_results_folder
from bert_flow_tf.commands.task_option import require_gold, task_option
from bert_flow_tf.errors import UserError

FORMAT_VERSION = 1

_SPLITS = ("train", "dev", "test")


def _data_options(help_of_task, splits):
    """Decorator that adds the options of the sentences to embed."""
    options = [
        task_option(help_of_task),
        click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders."),
        click.option("--split", type=click.Choice(splits), default="dev", show_default=True),
    ]
    return with_options(options)


def _out_options():
    """Decorator that adds the options of the output folder."""
    options = [
        click.option("--out", required=True, metavar="FOLDER", help="Folder to make, for results.json and plots."),
        click.option("--overwrite", is_flag=True, help="Replace what an earlier analysis of this kind wrote there."),
    ]
    return with_options(options)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def analyze():
    """Lexical similarity, word frequency and isotropy: a table, results.json and plots each."""


@analyze.command()
@model_options()
@_data_options("A task with gold scores.", _SPLITS)
@_out_options()
def lexical(model, task, glue_dir, split, out, overwrite):
    """Does similarity follow the words alone? Edit distance against gold, BERT and flow: Table 6, Figure 2.

    \b
    bert-flow analyze lexical --model runs/stsb_flow --glue_dir glue_data --out lexical
    """
    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.lexical import BERT, FLOW, GOLD, edit_distances, lexical_correlations
    from bert_flow_tf.evaluation.sts_sets import read_scored_split

    folder = results_folder(out, analysis="lexical", overwrite=overwrite)
    require_gold(task, [split])
    pairs = read_scored_split(task, glue_dir, split, task.name)
    loaded, made_by = model.load()
    u = pooled_embeddings(loaded, pairs.sentences_a + pairs.sentences_b)
    similarities = {GOLD: pairs.gold, BERT: _similarities(loaded, u, f"{task.name}, {split}, without flow")}
    if loaded.flow is not None:
        z, _ = _through_flow(loaded.flow, u)
        similarities[FLOW] = _similarities(loaded, z, f"{task.name}, {split}, with flow")
    distances = edit_distances(pairs.sentences_a, pairs.sentences_b)
    correlations = lexical_correlations(distances, similarities)
    results = {"task": task.name, "split": split, "metric": "Spearman x100"}
    on_paper = (task.name, split) == ("sts-b", "dev")
    figure = plots.lexical_figure(
        distances,
        similarities,
        {name: row["edit distance"] for name, row in correlations["rows"].items()},
        title=f"{_title(made_by)} on {task.directory}, {split}",
    )
    click.echo(f"Spearman x100 on {task.directory}, {split}: {correlations['pairs']:,} pairs")
    click.echo(tables.lexical_table(correlations, _paper("table6_lexical")["rows"] if on_paper else {}))
    write_results_folder(folder, _record("lexical", made_by, results | correlations), {"lexical": figure})


@analyze.command()
@model_options(pooling=False)
@_out_options()
def words(model, out, overwrite):
    """Word embeddings from frequent to rare words: norms and nearest neighbours, Table 1, Figure 1.

    \b
    bert-flow analyze words --bert_hub demo --out words
    """
    import dataclasses

    import numpy as np

    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots, word_frequency

    folder = results_folder(out, analysis="words", overwrite=overwrite)
    frequencies = word_frequency.english_frequencies()
    from bert_flow_tf.tokenizer import read_vocabulary, vocabulary_asset

    loaded, made_by = model.load()
    # A word embedding comes before the layers and the pooling.
    made_by |= {"sentence_embedding_type": None, "max_seq_length": None}
    vocabulary = read_vocabulary(vocabulary_asset(loaded.source.preprocess_dir))
    # An encoder may have more rows than its vocabulary has pieces.
    embeddings = _word_embeddings(loaded)[: len(vocabulary)]
    ranks = word_frequency.frequency_ranks(vocabulary, frequencies)
    bins = word_frequency.rank_statistics(embeddings, ranks)
    shown = np.flatnonzero((ranks > 0) & (ranks < word_frequency.RANK_BINS[-1][1]))
    figure = plots.word_frequency_figure(
        word_frequency.svd_projection(embeddings[shown]),
        ranks[shown],
        title=f"Embeddings of the {len(shown):,} most frequent words, {_name(made_by)}",
    )
    results = {
        "pieces": len(vocabulary),
        "ranked_words": int((ranks > 0).sum()),
        "frequencies": "wordfreq, English",
        "bins": [dataclasses.asdict(one) for one in bins],
    }
    click.echo(f"{len(vocabulary):,} word pieces, {results['ranked_words']:,} of them words with a frequency rank")
    click.echo(tables.words_table(bins, _paper("table1_word_embeddings")))
    write_results_folder(folder, _record("words", made_by, results), {"words": figure})


@analyze.command()
@model_options()
@_data_options("Whose sentences to embed.", (*_SPLITS, "all"))
@_out_options()
def isotropy(model, task, glue_dir, split, out, overwrite):
    """How evenly embeddings fill their space, before and after the flow; bits per dimension.

    \b
    bert-flow analyze isotropy --model runs/stsb_flow --glue_dir glue_data --out isotropy
    """
    from bert_flow_tf import tasks
    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, isotropic_reference
    from bert_flow_tf.evaluation.isotropy import isotropy as measure

    folder = results_folder(out, analysis="isotropy", overwrite=overwrite)
    data_dir = pathlib.Path(glue_dir) / task.directory
    parts = [tasks.read_split(task, data_dir, one) for one in (_SPLITS if split == "all" else (split,))]
    loaded, made_by = model.load()
    u = pooled_embeddings(loaded, [s for part in parts for s in part.sentences_a + part.sentences_b], distinct=True)
    measures = {"without flow": measure(u)}
    constant = measures["without flow"].constant_channels
    # Constant channels have no density; the flow's bits are over all of them.
    over = f" over the {u.shape[1] - constant} channels that vary" if constant else ""
    bits = {f"diagonal Gaussian{over}": gaussian_bits_per_dim(u)}
    if loaded.flow is not None:
        z, flow_bits = _through_flow(loaded.flow, u)
        measures["with flow"] = measure(z)
        bits["flow"] = float(flow_bits.mean(dtype=float))
    reference = isotropic_reference(*u.shape)
    figure = plots.spectrum_figure(
        measures,
        reference,
        title=f"{_title(made_by)}, {len(u):,} sentences of {task.directory}, {split}",
    )
    results = {
        "task": task.name,
        "split": split,
        "sentences": len(u),
        "measures": {name: one.to_dict() for name, one in measures.items()},
        "reference": reference.to_dict(),
        "bits_per_dim": bits,
    }
    click.echo(f"{len(u):,} different sentences of {task.directory}, {split}; {u.shape[1]} channels")
    click.echo(tables.isotropy_table(measures, reference, bits))
    write_results_folder(folder, _record("isotropy", made_by, results), {"spectrum": figure})


def _through_flow(flow, u, batch_size=1024):
    """Latents [n, D] of the embeddings and their bits per dimension [n]."""
    import numpy as np

    parts = [flow.forward_and_bits_per_dim(u[i : i + batch_size]) for i in range(0, len(u), batch_size)]
    z, bits = zip(*parts, strict=True)
    return np.concatenate(z), np.concatenate(bits)


def _similarities(loaded, embeddings, place):
    """Cosines [n] of the pairs whose first sentences are the first half of the embeddings [2n, D]."""
    import numpy as np

    from bert_flow_tf.evaluation.protocols import check_spread, cosines
    from bert_flow_tf.model import reduce_dimension

    n = len(embeddings) // 2
    reduced = np.asarray(reduce_dimension(embeddings, loaded.low_dim))
    similarities = cosines(reduced[:n], reduced[n:], place)
    check_spread(similarities, place)
    return similarities


def _word_embeddings(model):
    """The encoder's word embeddings [V, D]."""
    found = {
        name: v for name, v in model.encoder.variables_by_name.items() if name.endswith("word_embeddings/embeddings")
    }
    if len(found) != 1:
        raise UserError(
            f"{model.source.bert_hub}: found {len(found)} variables word_embeddings/embeddings, expected one"
        )
    return next(iter(found.values())).numpy()


def _paper(table):
    from bert_flow_tf.evaluation.paper import paper_tables

    return paper_tables()[table]


def _name(made_by):
    """A run or an encoder by its folder's name alone: a title has no room for a path."""
    run, encoder = made_by["run"], made_by["encoder"]["bert_hub"]
    return pathlib.Path(run["checkpoint"]).parent.name if run else encoder.rstrip("/").rpartition("/")[2]


def _title(made_by):
    return f"{_name(made_by)}, {made_by['sentence_embedding_type']}"


def _record(analysis, made_by, results):
    return {
        "format_version": FORMAT_VERSION,
        "analysis": analysis,
        "encoder": made_by["encoder"],
        "sentence_embedding_type": made_by["sentence_embedding_type"],
        "max_seq_length": made_by["max_seq_length"],
        "flow": made_by["flow_config"] is not None,
        "model": made_by,
        **results,
        "versions": versions(),
    }
