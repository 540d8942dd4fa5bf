"""`bert-flow convert`: convert encoders and checkpoints between formats."""

from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.commands.options import WHOLE, check_one_of, length_option
from bert_flow_tf.commands.outputs import locked_folder, say
from bert_flow_tf.encoder.convert.folders import (
    CONVERTED_RUN,
    ENCODER_FOLDER,
    TF1_CHECKPOINT,
    TF_HUB_FOLDER,
)
from bert_flow_tf.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.files.checkpoints import checkpoint_prefix
from bert_flow_tf.training.run_folder import run_checkpoint
from glow.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    from bert_flow_tf.encoder.weights import Pretrained


@click.command(
    epilog="\b\nbert-flow convert --tf1_checkpoint uncased_L-12_H-768_A-12 --out encoder"
)
@click.option(
    "--tf1_checkpoint", metavar="DIR|PREFIX", help="TF1 BERT with bert_config.json and vocab.txt."
)
@click.option(
    "--huggingface",
    type=click.Path(exists=True),
    metavar="DIR",
    help="Folder of a Hugging Face model.",
)
@click.option("--run", metavar="DIR|PREFIX", help="Run of run_siamese, or its checkpoint.")
@click.option(
    "--tf1_flow", metavar="DIR|PREFIX", help="Checkpoint of the original code, with a flow."
)
@click.option("--to_tf1", is_flag=True, help="Write --run as a checkpoint of the original code.")
@click.option("--to_tfhub", metavar="DIR", help="Write TF-Hub's two SavedModels to DIR.")
@click.option("--out", metavar="DIR", help="Folder to make.")
@click.option(
    "--cased/--uncased",
    default=None,
    help="Case.  [default: by the folder's name, else by the pieces]",
)
@click.option("--pooling", metavar="NAME", help="Pooling of --tf1_flow.")
@click.option(
    "--flow_model_config",
    metavar="NAME|FILE",
    help=f"Configuration of the flow.  [default: {DEFAULT_CONFIG}]",
)
@length_option(64)
@click.option(
    "--low_dim", type=WHOLE, metavar="N", help="Average channels to N.  [default: all channels]"
)
@click.option("--bert_hub", metavar="HANDLE|DIR", help="Encoder, or that of --tf1_flow.")
@click.option("--preprocess_hub", metavar="HANDLE|DIR", help="Preprocess model of --bert_hub.")
@click.option(
    "--bert_config_file", metavar="FILE", help="bert_config.json, if not beside --tf1_flow."
)
@click.option("--vocab_file", metavar="FILE", help="vocab.txt, if not beside --tf1_flow.")
@click.option("--overwrite", is_flag=True, help="Replace an earlier conversion.")
def convert(
    to_tf1: bool,
    to_tfhub: str | None,
    out: str | None,
    cased: bool | None,
    overwrite: bool,
    **given: Any,
) -> None:
    """Convert encoders, runs and TF1 checkpoints.

    --tf1_checkpoint, --huggingface, --bert_hub and --run become an encoder folder, for --bert_hub
    of other commands, transformers and sentence-transformers. --tf1_flow becomes a run. With
    --to_tf1, --run becomes a checkpoint of the original code. With --to_tfhub, an encoder becomes
    TF-Hub's encoder and preprocess model.
    """
    sources = {
        name: given.pop(name) for name in ("tf1_checkpoint", "huggingface", "run", "tf1_flow")
    }
    tf1_checkpoint, huggingface, run, tf1_flow = sources.values()
    hub = {name: given.pop(name) for name in ("bert_hub", "preprocess_hub")}
    if not tf1_flow:
        sources["bert_hub"] = hub["bert_hub"]
    check_one_of(sources)
    check_one_of({"out": out, "to_tfhub": to_tfhub})
    flow_options = {flag: value for flag, value in given.items() if value is not None}
    if flow_options and not tf1_flow:
        raise UserError(f"--{next(iter(flow_options))}: missing --tf1_flow, which it needs")
    if tf1_flow and "pooling" not in flow_options:
        raise UserError(
            "--pooling: missing, expected the pooling that was used to train --tf1_flow"
        )
    if to_tf1 and not run:
        raise UserError("--to_tf1: missing --run, which it needs")
    if cased is not None and not (tf1_checkpoint or tf1_flow):
        raise UserError(
            "--cased and --uncased: missing --tf1_checkpoint or --tf1_flow; they need one of these"
        )
    if checkpoint := tf1_checkpoint or run or tf1_flow:
        checkpoint_prefix(checkpoint)
    if to_tfhub and (to_tf1 or tf1_flow):
        raise UserError("--to_tfhub: found --to_tf1 or --tf1_flow as well, expected an encoder")
    if to_tfhub:
        check_installed("official", "models", "to_tfhub", ArgumentError)
    kind = (
        CONVERTED_RUN
        if tf1_flow
        else TF1_CHECKPOINT
        if to_tf1
        else TF_HUB_FOLDER
        if to_tfhub
        else ENCODER_FOLDER
    )
    path = locked_folder(
        str(out or to_tfhub), kind, overwrite=overwrite, flag="out" if out else "to_tfhub"
    )
    do_lower_case = None if cased is None else not cased
    if tf1_flow:
        from bert_flow_tf.original.tf1_run import convert_tf1_run

        flow_options["sentence_embedding_type"] = flow_options.pop("pooling")
        path = convert_tf1_run(
            tf1_flow, path, do_lower_case=do_lower_case, overwrite=overwrite, **flow_options, **hub
        )
    elif to_tf1:
        from bert_flow_tf.original.tf1_run import write_tf1_run

        path = write_tf1_run(run, path, overwrite=overwrite)
    else:
        bert = _encoder(
            tf1_checkpoint,
            run,
            huggingface or hub["bert_hub"],
            hub["preprocess_hub"],
            do_lower_case,
        )
        if to_tfhub:
            from bert_flow_tf.serving.tf_hub import write_tf_hub as write
        else:
            from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder as write
        write(path, bert, overwrite=overwrite)
    say(f"written: {path}")


def _encoder(
    tf1_checkpoint: str | None,
    run: str | None,
    hub: str | None,
    preprocess_hub: str | None,
    lower: bool | None,
) -> "Pretrained":
    from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.encoder.weights import Pretrained
    from bert_flow_tf.original.encoder import recorded_encoder, trained_encoder

    if tf1_checkpoint:
        return read_tf1(tf1_checkpoint, do_lower_case=lower)
    if run:
        prefix, config = run_checkpoint(run)
        source = recorded_encoder(config)
        if not config.encoder_trained:
            raise UserError(f"{prefix}: the run did not train its encoder; use {source.bert_hub}")
        source = trained_encoder(prefix, source)
    else:
        source = resolve_encoder(bert_hub=hub, preprocess_hub=preprocess_hub)
    if not isinstance(source.pretrained, Pretrained):
        raise UserError(f"{source.bert_hub}: found a SavedModel that is no BERT, expected a BERT")
    return source.pretrained
