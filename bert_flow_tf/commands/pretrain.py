"""`bert-flow pretrain`: a BERT continued by masked language modelling on one's own text."""

from typing import Any

import click

from bert_flow_tf.commands.options import COUNT, FORMAT_OPTIONS, LENGTH, POSITIVE, WHOLE, ModelOptions, with_options
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.runs.pretraining import PretrainingSettings
from bert_flow_tf.runs.settings import DeviceSettings
from bert_flow_tf.training.pretrained import remove_needless_checkpoints

_DEFAULTS = PretrainingSettings()


@click.command()
@click.option("--bert_hub", required=True, metavar="HANDLE|DIR", help="Encoder to begin with: demo, base, large, …")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model, if --bert_hub does not name one.")
@click.option(
    "--text",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Sentences or paragraphs: .txt, .tsv, …; - is stdin. More files may follow it, as text/*.txt does.",
)
@click.argument("texts", nargs=-1, metavar="[FILE]...")
@with_options(FORMAT_OPTIONS)
@click.option("--out", required=True, metavar="DIR", help="Encoder folder to make.")
@click.option("--steps", type=COUNT, metavar="N", help="Number of steps.")
@click.option("--minutes", type=POSITIVE, metavar="M", help="Or the minutes that the steps take.")
@click.option(
    "--train_batch_size", type=COUNT, default=_DEFAULTS.train_batch_size, metavar="N", help="Sentences per step."
)
@click.option("--learning_rate", type=POSITIVE, default=_DEFAULTS.learning_rate, metavar="X", help="Its peak.")
@click.option("--num_warmup_steps", type=WHOLE, default=_DEFAULTS.num_warmup_steps, metavar="N")
@click.option("--max_seq_length", type=LENGTH, default=_DEFAULTS.max_seq_length, metavar="N")
@click.option(
    "--masked_lm_prob", type=click.FloatRange(0, 1, min_open=True), default=_DEFAULTS.masked_lm_prob, metavar="X"
)
@click.option("--do_whole_word_mask", is_flag=True, help="Predict all pieces of a word or none.")
@click.option(
    "--dev_fraction",
    type=click.FloatRange(0, 1, max_open=True),
    default=_DEFAULTS.dev_fraction,
    metavar="X",
    help="Share of the sentences, of at most 1,000, that is held out for the dev loss.",
)
@click.option(
    "--save_checkpoints_steps",
    type=COUNT,
    default=_DEFAULTS.save_checkpoints_steps,
    metavar="N",
    help="Steps from a checkpoint and dev loss to the next.",
)
@click.option("--seed", type=WHOLE, default=_DEFAULTS.seed, metavar="N")
@click.option("--num_logical_cpus", type=WHOLE, default=0, metavar="N", help="Replicas on that many virtual CPUs.")
@click.option("--overwrite", is_flag=True, help="Replace an encoder folder, and a run of other settings beside it.")
def pretrain(
    bert_hub: str,
    preprocess_hub: str | None,
    text: tuple[str, ...],
    texts: tuple[str, ...],
    input_format: str | None,
    column: str | None,
    out: str,
    num_logical_cpus: int,
    overwrite: bool,
    **values: Any,
) -> None:
    """Continue a BERT by masked language modelling on text, and write it as an encoder folder.

    \b
    bert-flow pretrain --bert_hub demo --text text/*.txt --steps 2000 --out encoders/mine
    bert-flow fit --bert_hub encoders/mine --input sentences.txt --out my_model

    A line of text is a sentence or a paragraph; what is longer than --max_seq_length is cut into several. With --steps
    the learning rate decays to 0 after the warm-up, as TF1 BERT's; with --minutes it stays.

    Checkpoints are in DIR.pretraining beside DIR, with TensorBoard's events: rerun the same command to resume.
    """
    settings = PretrainingSettings(**values)
    settings.check()
    ModelOptions(bert_hub=bert_hub, preprocess_hub=preprocess_hub).check()
    remove_needless_checkpoints(out)
    own_folder(out, ENCODER_FOLDER, overwrite=overwrite)
    sentences: list[str] = []
    for name in (*text, *texts):
        sentences += read_sentences(name, file_format=input_format, columns=column and [column])
    if not any(map(str.strip, sentences)):
        raise UserError(f"--text={' '.join((*text, *texts))}: found no text, expected a sentence or paragraph a line")
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training.pretrain import pretrain, report_line

    results = pretrain(
        sentences,
        resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub),
        out,
        settings,
        devices=DeviceSettings(num_logical_cpus=num_logical_cpus),
        overwrite=overwrite,
        report=report_line,
        show_progress_bar=None,
    )
    click.echo(f"encoder folder written: {out} ({results.data.num_examples} sentences, {results.steps} steps)")
