"""`bert-flow pretrain`: a BERT continued by masked language modelling on one's own text."""

from typing import Any

import click

from bert_flow_tf.commands.options import FORMAT_OPTIONS, Number, SentenceInput, WholeNumber, with_options
from bert_flow_tf.commands.outputs import own
from bert_flow_tf.data.wordnet import WORDNET, wordnet_text
from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.vocabulary import read_vocabulary
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import output_folder
from bert_flow_tf.runs.pretraining import LONGEST_SENTENCE, PretrainingSettings
from bert_flow_tf.runs.settings import DeviceSettings
from bert_flow_tf.training.pretrained import remove_needless_checkpoints

_DEFAULTS = PretrainingSettings()
_POSITIVE = Number(0, min_open=True)


@click.command()
@click.option("--bert_hub", metavar="HANDLE|DIR", help="The encoder that it begins with: demo, base, large, …")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model, if --bert_hub does not name one.")
@click.option("--bert_config_file", metavar="FILE", help="Or the configuration of a BERT with random weights.")
@click.option("--vocab_file", metavar="FILE", help="Its vocabulary; without one, it is learned from the text.")
@click.option(
    "--cased/--uncased", default=None, help="Kind of its vocabulary; by default cased when it has pieces with capitals."
)
@click.option(
    "--text",
    required=True,
    multiple=True,
    metavar="FILE|wordnet",
    help="Sentences or paragraphs: .txt, .tsv, …; - for stdin. More files may follow it, as text/*.txt does.",
)
@click.argument("texts", nargs=-1, metavar="[FILE]...")
@with_options(FORMAT_OPTIONS)
@click.option("--out", required=True, metavar="DIR", help="Encoder folder to make.")
@click.option("--steps", type=WholeNumber(1), metavar="N", help="Number of steps.")
@click.option("--minutes", type=_POSITIVE, metavar="M", help="Or the minutes that the steps take.")
@click.option(
    "--train_batch_size",
    type=WholeNumber(1),
    default=_DEFAULTS.train_batch_size,
    metavar="N",
    help="Sentences per step.",
)
@click.option("--learning_rate", type=_POSITIVE, default=_DEFAULTS.learning_rate, metavar="X", help="Its peak.")
@click.option("--num_warmup_steps", type=WholeNumber(0), default=_DEFAULTS.num_warmup_steps, metavar="N")
@click.option("--max_seq_length", type=WholeNumber(3), default=_DEFAULTS.max_seq_length, metavar="N")
@click.option("--masked_lm_prob", type=Number(0, 1, min_open=True), default=_DEFAULTS.masked_lm_prob, metavar="X")
@click.option("--do_whole_word_mask", is_flag=True, help="Predict all pieces of a word or none.")
@click.option(
    "--dev_fraction",
    type=Number(0, 1, max_open=True),
    default=_DEFAULTS.dev_fraction,
    metavar="X",
    help="Share of the sentences, of at most 1,000, that is held out for the dev loss.",
)
@click.option(
    "--save_checkpoints_steps",
    type=WholeNumber(1),
    default=_DEFAULTS.save_checkpoints_steps,
    metavar="N",
    help="Steps from a checkpoint and dev loss to the next.",
)
@click.option("--seed", type=WholeNumber(0), default=_DEFAULTS.seed, metavar="N")
@click.option(
    "--num_logical_cpus", type=WholeNumber(0), default=0, metavar="N", help="Replicas on that many virtual CPU devices."
)
@click.option("--overwrite", is_flag=True, help="Replace an encoder folder, and a run of other settings beside it.")
def pretrain(
    bert_hub: str | None,
    preprocess_hub: str | None,
    bert_config_file: str | None,
    vocab_file: str | None,
    cased: bool | None,
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
    bert-flow pretrain --bert_config_file bert_config.json --text wordnet --minutes 60 --out encoders/new
    bert-flow fit --bert_hub encoders/mine --input sentences.txt --out my_model

    A line of text is a sentence or a paragraph; what is longer than --max_seq_length is cut into several. With --steps
    the learning rate decays to 0 after the warm-up, as TF1 BERT's; with --minutes, whose number of steps nobody knows
    before, it stays.

    Checkpoints are in DIR.pretraining beside DIR, with TensorBoard's events: rerun the same command to resume.
    """
    settings = PretrainingSettings(**values)
    settings.check()
    of_config = {"vocab_file": vocab_file, "cased": cased}
    _check_encoder(bert_hub, {"preprocess_hub": preprocess_hub}, bert_config_file, of_config, settings.max_seq_length)
    own(out, f"--out={out}")
    remove_needless_checkpoints(out)
    output_folder(out, ENCODER_FOLDER, overwrite=overwrite, flag=f"--out={out}")
    sentences = []
    for name in (*text, *texts):
        path = str(wordnet_text()) if name == WORDNET else name
        sentences += _read(SentenceInput(path, input_format, column))
    if not any(map(str.strip, sentences)):
        raise UserError(f"--text={' '.join((*text, *texts))}: found no text, expected a sentence or paragraph a line")
    # TensorFlow takes seconds to load: not for --help, nor for a mistake in the flags.
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training.pretrain import pretrain, report_line

    if bert_config_file:
        from bert_flow_tf.encoder.convert.fresh import fresh_encoder

        do_lower_case = None if cased is None else not cased
        made_of: dict[str, Any] = {"vocab_file": vocab_file, "sentences": sentences, "do_lower_case": do_lower_case}
        bert_hub = str(fresh_encoder(bert_config_file, **made_of, seed=settings.seed))
    source = resolve_encoder(bert_hub=bert_hub, preprocess_hub=preprocess_hub)
    results = pretrain(
        sentences,
        source,
        out,
        settings,
        devices=DeviceSettings(num_logical_cpus=num_logical_cpus),
        overwrite=overwrite,
        report=report_line,
        show_progress_bar=None,
    )
    click.echo(f"encoder folder written: {out} ({results.data.num_examples} sentences, {results.steps} steps)")


def _check_encoder(
    bert_hub: str | None,
    of_hub: dict[str, Any],
    bert_config_file: str | None,
    of_config: dict[str, Any],
    max_seq_length: int,
) -> None:
    """Raises `UserError` unless one encoder is named, by options that belong together, and its files can be read."""
    if bool(bert_hub) == bool(bert_config_file):
        found = "both" if bert_hub else "neither"
        raise UserError(f"bert-flow pretrain: found {found}, expected either --bert_hub or --bert_config_file")
    for name, value in (of_config if bert_hub else of_hub).items():
        if value is not None:
            given, needed = ("bert_hub", "bert_config_file") if bert_hub else ("bert_config_file", "bert_hub")
            raise UserError(f"--{name}: found --{given}, expected --{needed}, the only one that it applies to")
    check_handle(bert_hub, "bert_hub")
    check_handle(of_hub["preprocess_hub"], "preprocess_hub")
    if bert_config_file:
        config = read_tf1_config(bert_config_file)
        if max_seq_length > config.max_position_embeddings:
            raise UserError(
                f"--max_seq_length: found {max_seq_length}, expected at most {config.max_position_embeddings}, the "
                f"max_position_embeddings of {bert_config_file}"
            )
        if of_config["vocab_file"]:
            read_vocabulary(of_config["vocab_file"], config.vocab_size)


def _read(source: SentenceInput) -> list[str]:
    sentences = []
    for number, sentence in enumerate(source.read(), start=1):
        if len(sentence) > LONGEST_SENTENCE:
            raise UserError(
                f"--text={source.path}, sentence {number}: found {len(sentence):,} characters, expected a sentence or "
                f"paragraph of at most {LONGEST_SENTENCE:,}"
            )
        sentences.append(sentence)
    return sentences
