"""Print the paper's Tables 1 and 6 for an encoder.

    python -m benchmarks.paper_analyses GLUE_DIR [BERT_HUB]

Table 1 (word frequency) needs `pip install wordfreq`, whose ranks replace the paper's counts in
Wikipedia; pieces that are not all letters have no rank. Distances and dot products are means over a
word's k nearest neighbours among all word embeddings. In Table 6, the distance is Levenshtein's
over words, split at white space: on STS-B's dev set this gives -24.55 for the gold scores, and the
paper prints -24.61. The flow is learned by `BertFlow.fit` on the same sentences.
"""

import importlib.resources
import json

import click
import numpy as np
from scipy import stats

from bert_flow_tf import BertFlow
from bert_flow_tf.data.scored_tasks import read_scored_split
from bert_flow_tf.data.tasks import TASKS
from bert_flow_tf.errors import UserError, exit_status
from bert_flow_tf.table import Table, number

BINS = ((1, 100), (100, 500), (500, 5_000), (5_000, 10_000))


def edit_distance(a: list[str], b: list[str]) -> int:
    row = list(range(len(b) + 1))
    for i, word in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, start=1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def frequency_ranks(vocabulary: list[str]) -> np.ndarray:
    """Return ranks of pieces from 1, or 0, int64 [V]."""
    try:
        import wordfreq
    except ImportError as error:
        raise UserError("Table 1: wordfreq is not installed: pip install wordfreq") from error

    share = [
        wordfreq.word_frequency(piece, "en") if piece.isalpha() else 0.0 for piece in vocabulary
    ]
    ranks = np.zeros(len(vocabulary), np.int64)
    known = [i for i in np.argsort(-np.array(share), kind="stable") if share[i]]
    ranks[known] = np.arange(1, len(known) + 1)
    return ranks


def table1(model: BertFlow, paper: dict[str, list[float]]) -> Table:
    vocabulary = model.source.pretrained.vocab
    table, ranks = (
        model.encoder.word_embeddings.numpy()[: len(vocabulary)],
        frequency_ranks(vocabulary),
    )
    measures: dict[str, list[float]] = {name: [] for name in paper}
    for first, stop in BINS:
        rows = table[(first <= ranks) & (ranks < stop)]
        products = rows @ table.T
        squares = np.sum(rows**2, axis=1)[:, None] - 2 * products + np.sum(table**2, axis=1)
        # The nearest row is the word itself.
        near = np.sqrt(np.maximum(np.sort(squares, axis=1)[:, 1:8], 0))
        products[squares == squares.min(axis=1, keepdims=True)] = -np.inf
        large = -np.sort(-products, axis=1)[:, :7]
        measures["mean ℓ2 norm"].append(np.linalg.norm(rows, axis=1).mean())
        for k in (3, 5, 7):
            measures[f"mean {k}-NN ℓ2 distance"].append(near[:, :k].mean())
            measures[f"mean {k}-NN dot product"].append(large[:, :k].mean())
    both = [
        (name, of, values)
        for name in paper
        for of, values in (("here", measures[name]), ("paper", paper[name]))
    ]
    columns = ("measure", "of", *(f"{first:,} to {stop - 1:,}" for first, stop in BINS))
    return Table(columns, [[name, of, *map(number, values)] for name, of, values in both])


def table6(model: BertFlow, glue_dir: str, paper: dict[str, dict[str, float]]) -> Table:
    pairs = read_scored_split(TASKS["sts-b"], glue_dir, "dev")
    a, b = pairs.sentences_a, pairs.sentences_b
    distances = [edit_distance(x.split(), y.split()) for x, y in zip(a, b, strict=True)]
    plain = model.similarity_pairwise(a, b)
    model.fit(a + b)
    rows = []
    for (name, theirs), found in zip(
        paper.items(), (pairs.labels, plain, model.similarity_pairwise(a, b)), strict=True
    ):
        ours = [
            100 * stats.spearmanr(found, other).statistic for other in (distances, pairs.labels)
        ]
        rows.append(
            [
                name,
                number(ours[0]),
                number(theirs["edit distance"]),
                number(ours[1]),
                number(theirs["gold"]),
            ]
        )
    return Table(("similarity", "edit distance", "paper", "gold", "paper"), rows)


def analyse(glue_dir: str, bert_hub: str) -> None:
    """Print both tables; a missing library is found before any work."""
    paper = json.loads(
        importlib.resources.files("bert_flow_tf.original").joinpath("paper.json").read_text("utf-8")
    )
    model = BertFlow.from_hub(bert_hub, pooling="avg-last-2", max_seq_length=64)
    # Table 1 is of the encoder as it is, and may need a library; Table 6 learns a flow.
    first = table1(model, paper["table1_word_embeddings"]["rows"])
    print(table6(model, glue_dir, paper["table6_lexical"]["rows"]).to_text())
    print(first.to_text())


@click.command(help=__doc__)
@click.argument("glue_dir")
@click.argument("bert_hub", default="demo")
@click.pass_context
def main(context: click.Context, glue_dir: str, bert_hub: str) -> None:
    context.exit(exit_status(analyse, glue_dir, bert_hub))


if __name__ == "__main__":
    main()
