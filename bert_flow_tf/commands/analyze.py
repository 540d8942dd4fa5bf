"""`bert-flow analyze`: why an encoder's space is as it is, and what the flow makes of it."""

import json
import pathlib

import click

from bert_flow_tf.errors import UserError

_RESULTS = "results.json"
_SPLITS = ("train", "dev", "test")


def _options(*, pooling):
    """Decorator that adds the options of a model and of the output folder."""
    options = [
        click.option("--model", "run", metavar="RUN", help="Finished run of run_siamese, or one of its checkpoints."),
        click.option("--bert_hub", metavar="HANDLE|DIR", help="An encoder as it is, instead: demo, base, large, …"),
        click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub."),
    ]
    if pooling:
        options += [
            click.option("--sentence_embedding_type", metavar="NAME", help="Pooling of --bert_hub.  [default: avg]"),
            click.option("--max_seq_length", type=click.IntRange(3), metavar="N", help="Of --bert_hub.  [default: 64]"),
        ]
    options += [
        click.option("--out", required=True, metavar="FOLDER", help="Folder to make, for results.json and plots."),
        click.option("--overwrite", is_flag=True, help="Replace what an earlier analysis of this kind wrote there."),
    ]

    def decorate(command):
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def analyze():
    """Lexical similarity, word frequency and isotropy: a table, results.json and plots each."""


@analyze.command()
@_options(pooling=True)
@click.option("--task", default="STS-B", show_default=True, metavar="NAME", help="A task with gold scores.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice(_SPLITS), default="dev", show_default=True)
def lexical(task, glue_dir, split, out, overwrite, **of_the_model):
    """Does similarity follow the words alone? Edit distance against gold, BERT and flow: Table 6, Figure 2.

    \b
    bert-flow analyze lexical --model runs/stsb_flow --glue_dir glue_data --out lexical
    """
    from bert_flow_tf import tasks
    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.lexical import BERT, FLOW, GOLD, edit_distances, lexical_correlations, paired_cosines

    _check_model_options(**of_the_model)
    _check_out(out, "lexical", overwrite)
    task = tasks.get_task(task)
    gold = tasks.gold_scores(task, glue_dir, split)
    examples = tasks.read_split(task, pathlib.Path(glue_dir) / task.directory, split)
    if len(examples) != len(gold):
        path = tasks.gold_path(task, glue_dir, split)
        raise UserError(f"{path}: {len(gold)} gold scores for {len(examples)} pairs of the {split} split")
    model = _load(**of_the_model)
    u = _embed(model, examples.sentences_a + examples.sentences_b)
    similarities = {GOLD: gold, BERT: paired_cosines(*_halves(_reduced(model, u)))}
    if model.flow is not None:
        similarities[FLOW] = paired_cosines(*_halves(_reduced(model, _through_flow(model.flow, u)[0])))
    distances = edit_distances(examples.sentences_a, examples.sentences_b)
    correlations = lexical_correlations(distances, similarities)
    results = _provenance("lexical", model) | {"task": task.name, "split": split, "metric": "Spearman x100"}
    on_paper = (task.name, split) == ("sts-b", "dev")
    figure = plots.lexical_figure(
        distances,
        similarities,
        {name: row["edit distance"] for name, row in correlations["rows"].items()},
        title=f"{_name(model)} on {task.directory}, {split}",
    )
    _write(out, results | correlations, {"lexical": figure})
    click.echo(f"Spearman x100 on {task.directory}, {split}: {correlations['pairs']:,} pairs")
    click.echo(tables.lexical_table(correlations, _paper("table6_lexical")["rows"] if on_paper else {}))
    _report(out)


@analyze.command()
@_options(pooling=False)
def words(out, overwrite, **of_the_model):
    """Word embeddings from frequent to rare words: norms and nearest neighbours, Table 1, Figure 1.

    \b
    bert-flow analyze words --bert_hub demo --out words
    """
    import dataclasses

    import numpy as np

    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots, word_frequency

    _check_model_options(**of_the_model)
    _check_out(out, "words", overwrite)
    frequencies = word_frequency.english_frequencies()
    from bert_flow_tf.tokenizer import read_vocabulary, vocabulary_asset

    model = _load(**of_the_model)
    vocabulary = read_vocabulary(vocabulary_asset(model.source.preprocess_dir))
    # An encoder may have more rows than its vocabulary has pieces.
    embeddings = _word_embeddings(model)[: len(vocabulary)]
    ranks = word_frequency.frequency_ranks(vocabulary, frequencies)
    bins = word_frequency.rank_statistics(embeddings, ranks)
    shown = np.flatnonzero((ranks > 0) & (ranks < word_frequency.RANK_BINS[-1][1]))
    figure = plots.word_frequency_figure(
        word_frequency.svd_projection(embeddings[shown]),
        ranks[shown],
        title=f"Word embeddings of {model.source.bert_hub}",
    )
    results = {
        "pieces": len(vocabulary),
        "ranked_words": int((ranks > 0).sum()),
        "frequencies": "wordfreq, English",
        "bins": [dataclasses.asdict(one) for one in bins],
    }
    _write(out, _provenance("words", model) | results, {"words": figure})
    click.echo(f"{len(vocabulary):,} word pieces, {results['ranked_words']:,} of them words with a frequency rank")
    click.echo(tables.words_table(bins, _paper("table1_word_embeddings")))
    _report(out)


@analyze.command()
@_options(pooling=True)
@click.option("--task", default="STS-B", show_default=True, metavar="NAME", help="Whose sentences to embed.")
@click.option("--glue_dir", required=True, metavar="DIR", help="Folder that holds the tasks' folders.")
@click.option("--split", type=click.Choice([*_SPLITS, "all"]), default="dev", show_default=True)
def isotropy(task, glue_dir, split, out, overwrite, **of_the_model):
    """How evenly embeddings fill their space, before and after the flow; bits per dimension.

    \b
    bert-flow analyze isotropy --model runs/stsb_flow --glue_dir glue_data --out isotropy
    """
    from bert_flow_tf import tasks
    from bert_flow_tf.evaluation import analysis_tables as tables
    from bert_flow_tf.evaluation import plots
    from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, isotropic_reference
    from bert_flow_tf.evaluation.isotropy import isotropy as measure

    _check_model_options(**of_the_model)
    _check_out(out, "isotropy", overwrite)
    task = tasks.get_task(task)
    folder = pathlib.Path(glue_dir) / task.directory
    parts = [tasks.read_split(task, folder, one) for one in (_SPLITS if split == "all" else (split,))]
    model = _load(**of_the_model)
    u = _embed(model, [s for part in parts for s in part.sentences_a + part.sentences_b], distinct=True)
    measures = {"without flow": measure(u)}
    bits = {"diagonal Gaussian": gaussian_bits_per_dim(u)}
    if model.flow is not None:
        z, flow_bits = _through_flow(model.flow, u)
        measures["with flow"] = measure(z)
        bits["flow"] = float(flow_bits.mean(dtype=float))
    reference = isotropic_reference(*u.shape)
    figure = plots.spectrum_figure(
        measures,
        reference,
        title=f"{_name(model)}, {len(u):,} sentences of {task.directory}, {split}",
    )
    results = _provenance("isotropy", model) | {
        "task": task.name,
        "split": split,
        "sentences": len(u),
        "measures": {name: one.to_dict() for name, one in measures.items()},
        "reference": reference.to_dict(),
        "bits_per_dim": bits,
    }
    _write(out, results, {"spectrum": figure})
    click.echo(f"{len(u):,} different sentences of {task.directory}, {split}; {u.shape[1]} channels")
    click.echo(tables.isotropy_table(measures, reference, bits))
    _report(out)


def _check_model_options(run, bert_hub, preprocess_hub, sentence_embedding_type=None, max_seq_length=None):
    given = [flag for flag, value in (("--model", run), ("--bert_hub", bert_hub)) if value]
    if len(given) != 1:
        raise UserError(f"bert-flow analyze: found {' and '.join(given) or 'no model'}, expected --model or --bert_hub")
    for flag, value in (
        ("--preprocess_hub", preprocess_hub),
        ("--sentence_embedding_type", sentence_embedding_type),
        ("--max_seq_length", max_seq_length),
    ):
        if run and value is not None:
            raise UserError(f"{flag}: found it with --model, expected --bert_hub, which it belongs to")


def _check_out(out, analysis, overwrite):
    """Refuses what exists, unless it is an analysis of this kind and may be replaced."""
    out = pathlib.Path(out)
    if out.exists() and not overwrite:
        raise UserError(f"--out={out}: exists, expected a new folder or --overwrite")
    if out.exists():
        try:
            found = json.loads((out / _RESULTS).read_text(encoding="utf-8")).get("analysis")
        except (OSError, ValueError, AttributeError):
            found = None
        if found != analysis:
            raise UserError(f"--out={out}: holds no {_RESULTS} of `analyze {analysis}`, expected one to overwrite")


def _load(run, bert_hub, preprocess_hub, sentence_embedding_type=None, max_seq_length=None):
    # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.api import BertFlow

    if run:
        return BertFlow.load(run)
    return BertFlow.from_hub(
        bert_hub,
        preprocess_hub=preprocess_hub,
        sentence_embedding_type=sentence_embedding_type or "avg",
        max_seq_length=max_seq_length or 64,
    )


def _embed(model, sentences, distinct=False):
    """Embeddings [n, D] before the flow; with `distinct`, sentences of the same word pieces once."""
    from bert_flow_tf import input_pipeline

    pieces = input_pipeline.tokenize(model.tokenizer, sentences, model.max_seq_length)
    if distinct:
        pieces, _ = input_pipeline.distinct(pieces)
    return input_pipeline.embed(model.encoder, model.tokenizer, pieces, model.max_seq_length)


def _through_flow(flow, u, batch_size=1024):
    """Latents [n, D] of the embeddings and their bits per dimension [n]."""
    import numpy as np

    parts = [flow.forward_and_bits_per_dim(u[i : i + batch_size]) for i in range(0, len(u), batch_size)]
    z, bits = zip(*parts, strict=True)
    return np.concatenate(z), np.concatenate(bits)


def _reduced(model, embeddings):
    from bert_flow_tf.model import reduce_dimension

    return reduce_dimension(embeddings, model.low_dim)


def _halves(embeddings):
    n = len(embeddings) // 2
    return embeddings[:n], embeddings[n:]


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


def _name(model):
    return f"{model.source.bert_hub}, {model.sentence_embedding_type}"


def _provenance(analysis, model):
    return {
        "analysis": analysis,
        "encoder": model.source.to_dict(),
        "sentence_embedding_type": model.sentence_embedding_type,
        "max_seq_length": model.max_seq_length,
        "flow": model.flow is not None,
    }


def _write(out, results, figures):
    from bert_flow_tf.atomic import new_folder
    from bert_flow_tf.evaluation.plots import write_figure

    with new_folder(out) as folder:
        folder.mkdir()
        (folder / _RESULTS).write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        for name, figure in figures.items():
            write_figure(figure, folder, name)


def _report(out):
    click.echo(f"written: {out}/{_RESULTS} and plots beside it")
