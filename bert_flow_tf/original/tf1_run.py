"""Convert a checkpoint of the original to a run, and back."""

import os
import pathlib
import re
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.atomic import new_output, output_folder
from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import CONFIG_FILE, write_json
from bert_flow_tf.common.reading import file_digest
from bert_flow_tf.common.records import CalibrationRecord, ModelRecord, Training, made_by
from bert_flow_tf.common.settings import flow_config
from bert_flow_tf.encoder.convert import folders
from bert_flow_tf.encoder.convert.folders import (
    BERT_CONFIG_FILE,
    CONVERTED_RUN,
    TF1_CHECKPOINT,
    VOCAB_FILE,
)
from bert_flow_tf.encoder.pooling import pooling_name
from bert_flow_tf.encoder.tokenizer import write_vocabulary
from bert_flow_tf.encoder.weights import WORD_EMBEDDINGS
from bert_flow_tf.original import build, provenance
from bert_flow_tf.original.build import TF1_OUTPUT_WEIGHTS, build_model
from bert_flow_tf.original.encoder import recorded_encoder, resolve_run_encoder
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.training.run_folder import (
    CHECKPOINT_NAME,
    TRAIN_RESULTS_FILE,
    run_checkpoint,
    run_step,
)
from bert_flow_tf.training.run_records import RunConfig, TrainingResults
from glow.config import DEFAULT_CONFIG
from glow.tf1_checkpoint import FLOW_SCOPE, tf1_variables


def convert_tf1_run(
    checkpoint: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    sentence_embedding_type: str,
    flow_model_config: str = DEFAULT_CONFIG,
    max_seq_length: int = 64,
    low_dim: int = -1,
    overwrite: bool = False,
    **encoder: Any,
) -> pathlib.Path:
    """Write a run from the original's checkpoint; return its folder.

    The run does not contain the encoder, so keep the encoder's files or the TF1 checkpoint.

    Args:
      checkpoint: folder of the original's run, for its last checkpoint, or a checkpoint's prefix.
        The checkpoint may lack BERT and the classifier; the optimiser's moments are ignored.
      sentence_embedding_type, flow_model_config, max_seq_length, low_dim: flags of the original's
        run.
      **encoder: arguments of `resolve_encoder`: `bert_hub` for a checkpoint without BERT, else
        `bert_config_file` and `vocab_file` (by default beside the checkpoint) and `do_lower_case`.
    """
    out_dir = output_folder(out_dir, CONVERTED_RUN, overwrite=overwrite)
    stored = Checkpoint(prefix := checkpoint_prefix(checkpoint))
    has_bert = WORD_EMBEDDINGS in stored.shapes
    has_classifier = TF1_OUTPUT_WEIGHTS in stored.shapes
    if not any(name.startswith(FLOW_SCOPE) for name in stored.shapes):
        raise UserError(
            f"{prefix}: found no variable below {FLOW_SCOPE}, expected a checkpoint with a flow"
        )
    flags = _encoder_flags(encoder, prefix if has_bert else None)
    source = resolve_run_encoder(**flags)
    flags["do_lower_case"] = source.record.do_lower_case
    encoder_record = provenance.run_encoder_record(source, flags)
    if has_bert:
        # The original's run may have trained BERT.
        encoder_record = msgspec.structs.replace(encoder_record, fine_tuning=Training())
    flow = CalibrationRecord(config=flow_config(flow_model_config), training=Training())
    config = RunConfig(
        made_by=made_by("bert-flow convert"),
        model=ModelRecord(
            encoder=encoder_record,
            pooling=pooling_name(sentence_embedding_type),
            max_seq_length=max_seq_length,
            low_dim=low_dim,
            flow=flow,
        ),
        encoder=source.files,
        encoder_flags=provenance.absolute_flags(flags),
        # The new run starts from the checkpoint's BERT and trains nothing.
        encoder_trained=False,
        num_labels=stored.shapes[TF1_OUTPUT_WEIGHTS][0] if has_classifier else None,
        flags={folders.CONVERTED_KEY: f"{prefix.name} {file_digest(f'{prefix}.index')}"},
    )
    model = build_model(source, config.model, num_labels=config.num_labels)
    build.assign_tf1_parts(model, prefix)
    with new_output(out_dir, CONVERTED_RUN, overwrite=overwrite) as folder:
        _write_run(folder, model, config, _step(stored, prefix))
    return out_dir


def _encoder_flags(given: dict[str, Any], prefix: pathlib.Path | None) -> dict[str, Any]:
    """Return the given flags, and those of a checkpoint with BERT."""
    flags = {name: value for name, value in given.items() if value is not None}
    if prefix is None:
        return flags
    beside = {
        "bert_config_file": str(prefix.parent / BERT_CONFIG_FILE),
        "vocab_file": str(prefix.parent / VOCAB_FILE),
    }
    return beside | flags | {"init_checkpoint": str(prefix)}


def _step(stored: Checkpoint, prefix: pathlib.Path) -> int:
    """Return the checkpoint's step: its variable's, else its name's, else 0."""
    if "global_step" in stored.shapes:
        return int(stored["global_step"])
    named = re.search(r"-(\d+)$", prefix.name)
    return int(named[1]) if named else 0


def _write_run(folder: pathlib.Path, model: SiameseBertFlow, config: RunConfig, step: int) -> None:
    parts = {
        "step": tf.Variable(step, dtype=tf.int64),
        **build.checkpoint_parts(model, with_encoder=False),
    }
    manager = tf.train.CheckpointManager(
        tf.train.Checkpoint(**parts),
        str(folder),
        max_to_keep=1,
        checkpoint_name=CHECKPOINT_NAME,
    )
    manager.save(checkpoint_number=step)
    write_json(folder / CONFIG_FILE, config)
    results = TrainingResults(made_by=config.made_by, model=config.model, steps=step)
    write_json(folder / TRAIN_RESULTS_FILE, results)


def write_tf1_run(
    run: str | os.PathLike, out_dir: str | os.PathLike, *, overwrite: bool = False
) -> pathlib.Path:
    """Write a run as a TF1 checkpoint; return its prefix.

    Beside it are `vocab.txt` and `bert_config.json`, for the original's flags `--vocab_file` and
    `--bert_config_file`, and for `convert_tf1_run`.
    """
    out_dir = output_folder(out_dir, TF1_CHECKPOINT, overwrite=overwrite)
    prefix, config = run_checkpoint(run)
    source = recorded_encoder(config)
    if rules := source.record.unlike_tf1:
        raise UserError(f"{run}: found a tokenizer with {', '.join(rules)}, which TF1's has not")
    model = build_model(source, config.model, num_labels=config.num_labels)
    build.restore(build.checkpoint_parts(model, config.encoder_trained), prefix)
    bert = model.encoder.read_pretrained(source.record)
    arrays = {**bert.weights}
    if model.flow is not None:
        arrays |= tf1_variables(model.flow)
    if model.output_weights is not None:
        arrays[TF1_OUTPUT_WEIGHTS] = model.output_weights.numpy()
    arrays["global_step"] = np.asarray(run_step(prefix), np.int64)
    name = f"{CHECKPOINT_NAME}-{arrays['global_step']}"
    with new_output(out_dir, TF1_CHECKPOINT, overwrite=overwrite) as folder:
        names = [*arrays]
        values = [*arrays.values()]
        slices = [""] * len(names)
        tf.raw_ops.SaveV2(
            prefix=f"{folder}/{name}", tensor_names=names, shape_and_slices=slices, tensors=values
        )
        # TensorFlow's function for this would log a deprecation.
        (folder / "checkpoint").write_text(
            f'model_checkpoint_path: "{name}"\nall_model_checkpoint_paths: "{name}"\n'
        )
        write_json(
            folder / folders.TF1_RECORD_FILE,
            {"run_of_bert_flow_tf": prefix.name, "encoder": source.files},
        )
        write_vocabulary(folder / VOCAB_FILE, bert.vocab)
        fields = msgspec.structs.asdict(bert.config)
        # The original has only the approximate GELU and calls it gelu.
        fields["hidden_act"] = fields["hidden_act"].replace("gelu_tanh", "gelu")
        write_json(folder / BERT_CONFIG_FILE, fields)
    return out_dir / name
