"""`bert-flow pretrain`: masked language modelling on your text."""

import click

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import InputForm
from bert_flow_tf.commands.model_options import ModelOptions
from bert_flow_tf.commands.outputs import locked_folder, say
from bert_flow_tf.common.errors import UserError, check_installed
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.tasks.sentence_files import read_texts
from bert_flow_tf.training.run_folder import clean_pretraining
from bert_flow_tf.training.settings import PretrainSettings


@command(
    epilog="\b\nbert-flow pretrain --bert_hub demo --text text/*.txt --steps 2000 --out "
    "encoders/mine",
    one_of=[("bert_hub",)],
)
@setting_options(ModelOptions, "bert_hub", "preprocess_hub", name="model")
@option(
    "--text",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Sentences or paragraphs; - is stdin.",
)
@click.argument("texts", nargs=-1, metavar="[FILE]...")
@setting_options(InputForm, name="form")
@option("--out", required=True, metavar="DIR", help="Encoder folder to make.")
@setting_options(PretrainSettings)
@option("--overwrite", is_flag=True, help="Replace an earlier encoder and run.")
def pretrain(
    model: ModelOptions,
    text: tuple[str, ...],
    texts: tuple[str, ...],
    form: InputForm,
    out: str,
    settings: PretrainSettings,
    overwrite: bool,
) -> None:
    """Train a BERT further, by masked language modelling on your text.

    A line of text is a sentence or a paragraph; longer ones are split at --max_seq_length.
    Checkpoints and TensorBoard's events are in DIR.pretraining. After an interruption, repeat the
    command to resume.
    """
    clean_pretraining(out)
    locked_folder(out, ENCODER_FOLDER, overwrite=overwrite)
    sentences = [sentence for name in (*text, *texts) for sentence in read_texts(form.file(name))]
    if not any(map(str.strip, sentences)):
        raise UserError(
            f"--text={' '.join((*text, *texts))}: found no text, expected a sentence or paragraph "
            "per line"
        )
    check_installed("official", "models", "pretrain")
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training.pretrain import pretrain

    encoder = resolve_encoder(bert_hub=model.bert_hub, preprocess_hub=model.preprocess_hub)
    results = pretrain(sentences, encoder, out, settings, overwrite=overwrite)
    say(f"encoder folder written: {out} ({results.steps} steps)")
