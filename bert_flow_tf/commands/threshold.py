"""`bert-flow threshold`: the cosine that few random pairs of sentences exceed."""

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.model_options import EncodingOptions
from bert_flow_tf.commands.tables import TABLE_FORMAT, print_table
from bert_flow_tf.common.table import Cell, Table, number
from bert_flow_tf.vectors import thresholds
from bert_flow_tf.vectors.texts import known_texts


@command(
    epilog="\b\nbert-flow threshold --model my_model --input sentences.txt",
    one_of=[("model", "bert_hub"), ("input",)],
)
@setting_options(EncodingOptions, name="model")
@INPUT
@setting_options(InputForm, name="form")
@option(
    "--false_matches",
    "shares",
    type=click.FLOAT,
    multiple=True,
    default=(1e-3,),
    metavar="X",
    help="Share of random pairs above the cosine; repeatable.",
)
@TABLE_FORMAT
def threshold(
    model: EncodingOptions,
    input_path: str,
    form: InputForm,
    shares: tuple[float, ...],
    table_format: str,
) -> None:
    """Print the cosine that few random pairs of sentences exceed.

    It is printed before and after the calibration, with its 95 % interval, as model.threshold does
    in Python. It bounds matches of unrelated sentences, not of those that differ in a detail.
    Sentences without a word that the encoder knows are left out.
    """
    texts = list(dict.fromkeys(form.texts(input_path)))
    for share in shares:
        thresholds.check_enough(len(texts), share)
    texts, sides = _sides(model, texts)
    rows = [
        [
            Cell(f"{share:g}", is_number=True, value=share),
            *(_cell(thresholds.threshold(side, share)) for side in sides.values()),
        ]
        for share in shares
    ]
    title = f"cosine that a share of random pairs exceeds: {len(texts):,} different sentences"
    print_table(Table(("share", *sides), rows, title), table_format)


def _sides(options: EncodingOptions, texts: list[str]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Return the texts with known words, and embeddings by side.

    Of many texts, some are embedded. An export has embeddings after its calibration alone.
    """
    model = options.open()
    from bert_flow_tf.tasks.scoring import sides

    known = known_texts(texts, model.only_unknown)
    found = [*sides(model, model.encode_pooled(thresholds.sampled(known))).values()]
    names = ("cosine",) if len(found) == 1 else ("before", "after")
    return known, dict(zip(names, found, strict=True))


def _cell(found: thresholds.Threshold) -> Cell:
    interval = f"95 %: {found.low:.3f} to {found.high:.3f}"
    return number(found.cosine, 3, note=interval, parts={"low": found.low, "high": found.high})
