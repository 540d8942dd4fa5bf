"""`bert-flow convert`: convert encoders and checkpoints between formats."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.commands.command import check_one_of, command, option, setting_options
from bert_flow_tf.commands.outputs import locked_folder, say
from bert_flow_tf.common.atomic import FolderKind
from bert_flow_tf.common.checkpoints import checkpoint_prefix
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.encoder.convert.folders import (
    CONVERTED_RUN,
    ENCODER_FOLDER,
    TF1_CHECKPOINT,
    TF_HUB_FOLDER,
)
from bert_flow_tf.training.run_folder import run_checkpoint

if TYPE_CHECKING:
    from bert_flow_tf.encoder.weights import Pretrained


@dataclasses.dataclass(frozen=True, kw_only=True)
class TF1FlowOptions(Settings):
    """The settings that a flow's TF1 checkpoint does not hold."""

    pooling: str | None = flag(None, "Pooling of --tf1_flow.", needs=("tf1_flow",))
    flow_model_config: str | None = flag(
        None,
        f"Configuration of the flow.  [default: {FitSettings.flow_model_config}]",
        metavar="NAME|FILE",
        needs=("tf1_flow",),
    )
    max_seq_length: int | None = flag(
        None, "Word pieces per sentence.  [default: 64]", needs=("tf1_flow",), ge=3
    )
    low_dim: int | None = flag(
        None, "Average channels to N.  [default: all channels]", needs=("tf1_flow",), ge=0
    )
    bert_config_file: str | None = flag(
        None,
        "bert_config.json, if not beside --tf1_flow.",
        metavar="FILE",
        needs=("tf1_flow",),
    )
    vocab_file: str | None = flag(
        None, "vocab.txt, if not beside --tf1_flow.", metavar="FILE", needs=("tf1_flow",)
    )

    def given(self) -> dict[str, Any]:
        """Return the values that the user gave."""
        return {name: value for name, value in vars(self).items() if value is not None}


_SOURCES = ("tf1_checkpoint", "huggingface", "run", "tf1_flow")


@command(
    epilog="\b\nbert-flow convert --tf1_checkpoint uncased_L-12_H-768_A-12 --out encoder",
    one_of=[("out", "to_tfhub")],
    # These become no encoder.
    excludes={"to_tfhub": ("to_tf1", "tf1_flow")},
)
@option(
    "--tf1_checkpoint", metavar="DIR|PREFIX", help="TF1 BERT with bert_config.json and vocab.txt."
)
@option(
    "--huggingface",
    type=click.Path(exists=True),
    metavar="DIR",
    help="Folder of a Hugging Face model.",
)
@option("--run", metavar="DIR|PREFIX", help="Run of run_siamese, or its checkpoint.")
@option("--tf1_flow", metavar="DIR|PREFIX", help="Checkpoint of the original code, with a flow.")
@option(
    "--to_tf1",
    is_flag=True,
    needs=("run",),
    help="Write --run as a checkpoint of the original code.",
)
@option("--to_tfhub", metavar="DIR", help="Write TF-Hub's two SavedModels to DIR.")
@option("--out", metavar="DIR", help="Folder to make.")
@option(
    "--cased/--uncased",
    default=None,
    needs=("tf1_checkpoint", "tf1_flow"),
    help="Case.  [default: by the folder's name, else by the pieces]",
)
@option("--bert_hub", metavar="HANDLE|DIR", help="Encoder, or that of --tf1_flow.")
@option(
    "--preprocess_hub",
    metavar="HANDLE|DIR",
    needs=("bert_hub",),
    help="Preprocess model of --bert_hub.",
)
@setting_options(TF1FlowOptions, name="flow")
@option("--overwrite", is_flag=True, help="Replace an earlier conversion.")
def convert(
    tf1_checkpoint: str | None,
    huggingface: str | None,
    run: str | None,
    tf1_flow: str | None,
    to_tf1: bool,
    to_tfhub: str | None,
    out: str | None,
    cased: bool | None,
    bert_hub: str | None,
    preprocess_hub: str | None,
    flow: TF1FlowOptions,
    overwrite: bool,
) -> None:
    """Convert encoders, runs and TF1 checkpoints.

    --tf1_checkpoint, --huggingface, --bert_hub and --run become an encoder folder, for --bert_hub
    of other commands, transformers and sentence-transformers. --tf1_flow becomes a run. With
    --to_tf1, --run becomes a checkpoint of the original code. With --to_tfhub, an encoder becomes
    TF-Hub's encoder and preprocess model.
    """
    # The encoder of --tf1_flow is no source.
    check_one_of(*_SOURCES, *(() if tf1_flow else ("bert_hub",)))
    if tf1_flow and flow.pooling is None:
        raise UserError(
            "--pooling: missing, expected the pooling that was used to train --tf1_flow"
        )
    if checkpoint := tf1_checkpoint or run or tf1_flow:
        checkpoint_prefix(checkpoint)
    if to_tfhub:
        check_installed("official", "models", "to_tfhub", ArgumentError)
    lower = None if cased is None else not cased
    if tf1_flow:
        path = _output(out, to_tfhub, CONVERTED_RUN, overwrite)
        hub = {"bert_hub": bert_hub, "preprocess_hub": preprocess_hub}
        path = _convert_flow(tf1_flow, path, lower, overwrite, flow.given() | hub)
    elif to_tf1:
        path = _output(out, to_tfhub, TF1_CHECKPOINT, overwrite)
        path = _write_tf1(str(run), path, overwrite)
    else:
        path = _output(out, to_tfhub, TF_HUB_FOLDER if to_tfhub else ENCODER_FOLDER, overwrite)
        bert = _encoder(tf1_checkpoint, run, huggingface or bert_hub, preprocess_hub, lower)
        _write_encoder(path, bert, to_tfhub=bool(to_tfhub), overwrite=overwrite)
    say(f"written: {path}")


def _output(
    out: str | None, to_tfhub: str | None, kind: FolderKind, overwrite: bool
) -> pathlib.Path:
    flag = "out" if out else "to_tfhub"
    return locked_folder(str(out or to_tfhub), kind, overwrite=overwrite, flag=flag)


def _convert_flow(
    checkpoint: str,
    path: pathlib.Path,
    lower: bool | None,
    overwrite: bool,
    options: dict[str, Any],
) -> pathlib.Path:
    from bert_flow_tf.original.tf1_run import convert_tf1_run

    pooling = options.pop("pooling")
    return convert_tf1_run(
        checkpoint,
        path,
        do_lower_case=lower,
        overwrite=overwrite,
        sentence_embedding_type=pooling,
        **options,
    )


def _write_tf1(run: str, path: pathlib.Path, overwrite: bool) -> pathlib.Path:
    from bert_flow_tf.original.tf1_run import write_tf1_run

    return write_tf1_run(run, path, overwrite=overwrite)


def _write_encoder(
    path: pathlib.Path, bert: "Pretrained", *, to_tfhub: bool, overwrite: bool
) -> None:
    if to_tfhub:
        from bert_flow_tf.export.tf_hub import write_tf_hub as write
    else:
        from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder as write
    write(path, bert, overwrite=overwrite)


def _encoder(
    tf1_checkpoint: str | None,
    run: str | None,
    hub: str | None,
    preprocess_hub: str | None,
    lower: bool | None,
) -> "Pretrained":
    from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
    from bert_flow_tf.encoder.source import resolve_encoder
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
    return source.bert
