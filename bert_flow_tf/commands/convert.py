"""`bert-flow convert`: encoders and checkpoints from one form to another."""

import pathlib
from typing import Any

import click

from bert_flow_tf.commands.options import LENGTH, WHOLE, check_one_of, options_of
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.encoder.convert.folders import CONVERTED_RUN, ENCODER_FOLDER, TF1_CHECKPOINT
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import checkpoint_prefix
from glow.config import DEFAULT_CONFIG

_OF_TF1_FLOW: dict[str, tuple[str, click.ParamType, str]] = {
    "sentence_embedding_type": ("NAME", click.STRING, "Pooling of the run that wrote --tf1_flow: avg, cls, …"),
    "flow_model_config": ("NAME|FILE", click.STRING, f"Flow of that run.  [default: {DEFAULT_CONFIG}]"),
    "max_seq_length": ("N", LENGTH, "Word pieces of that run.  [default: 64]"),
    "low_dim": ("N", WHOLE, "--low_dim of that run.  [default: -1, none]"),
    "bert_hub": ("HANDLE|DIR", click.STRING, "Encoder of --tf1_flow, where the checkpoint holds none."),
    "preprocess_hub": ("HANDLE|DIR", click.STRING, "Preprocess model of --bert_hub."),
    "bert_config_file": ("FILE", click.STRING, "The BERT's, where it is not beside --tf1_flow."),
    "vocab_file": ("FILE", click.STRING, "The BERT's, where it is not beside --tf1_flow."),
}


@click.command()
@click.option("--tf1_checkpoint", metavar="DIR|PREFIX", help="TF1's, with bert_config.json and vocab.txt beside it.")
@click.option("--huggingface", type=click.Path(exists=True), metavar="DIR", help="With vocab.txt, model.safetensors, …")
@click.option("--run", metavar="DIR|PREFIX", help="Run of run_siamese that trained its encoder; with --to_tf1, any.")
@click.option("--tf1_flow", metavar="DIR|PREFIX", help="Checkpoint of the original's training, with a flow.")
@click.option("--to_tf1", is_flag=True, help="With --run: write a checkpoint under TF1's names for the original.")
@click.option("--out", required=True, metavar="DIR", help="Folder to make.")
@click.option("--cased/--uncased", default=None, help="Kind of vocabulary.  [default: cased if pieces have capitals]")
@options_of(_OF_TF1_FLOW)
@click.option("--overwrite", is_flag=True, help="Replace what an earlier conversion of the same kind wrote there.")
def convert(to_tf1: bool, out: str, cased: bool | None, overwrite: bool, **given: Any) -> None:
    """Convert a BERT to an encoder folder, the original's checkpoint to a run, or a run to the original's checkpoint.

    \b
    bert-flow convert --tf1_checkpoint uncased_L-12_H-768_A-12 --out encoder
    bert-flow convert --huggingface my_bert --out encoder
    bert-flow convert --tf1_flow exp/my_flow --sentence_embedding_type avg-last-2 \\
        --bert_config_file bert_config.json --vocab_file vocab.txt --out runs/my_flow
    bert-flow convert --run runs/my_flow --to_tf1 --out for_tf1
    """
    sources = {name: given.pop(name) for name in ("tf1_checkpoint", "huggingface", "run", "tf1_flow")}
    check_one_of(sources)
    tf1_checkpoint, huggingface, run, tf1_flow = sources.values()
    of_the_flow = {flag: value for flag, value in given.items() if value is not None}
    if of_the_flow and not tf1_flow:
        raise UserError(f"--{next(iter(of_the_flow))}: missing --tf1_flow, the only source that it applies to")
    if tf1_flow and "sentence_embedding_type" not in of_the_flow:
        raise UserError("--sentence_embedding_type: missing, expected that of the run which wrote --tf1_flow")
    if to_tf1 and not run:
        raise UserError("--to_tf1: missing --run, the only source that it applies to")
    if checkpoint := tf1_checkpoint or run or tf1_flow:
        checkpoint_prefix(checkpoint)
    own_folder(out, CONVERTED_RUN if tf1_flow else TF1_CHECKPOINT if to_tf1 else ENCODER_FOLDER, overwrite=overwrite)
    do_lower_case = None if cased is None else not cased
    if tf1_flow:
        from bert_flow_tf.model.tf1_run import convert_tf1_run

        made = convert_tf1_run(tf1_flow, out, do_lower_case=do_lower_case, overwrite=overwrite, **of_the_flow)
    elif run and to_tf1:
        from bert_flow_tf.model.tf1_run import write_tf1_run

        made = write_tf1_run(run, out, overwrite=overwrite)
    elif run:
        from bert_flow_tf.encoder.convert.from_checkpoint import convert_run, run_checkpoint
        from bert_flow_tf.encoder.source import recorded_encoder

        prefix, config = run_checkpoint(run)
        made = convert_run(prefix, recorded_encoder(config), out, overwrite=overwrite)
    else:
        from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
        from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
        from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face

        read: Any = read_tf1 if tf1_checkpoint else read_hugging_face
        bert = read(pathlib.Path(tf1_checkpoint or huggingface), do_lower_case=do_lower_case)
        made = write_encoder_folder(out, bert, overwrite=overwrite)
    click.echo(f"written: {made}")
