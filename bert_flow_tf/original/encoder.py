"""The encoders of runs: as recorded, or as a run trained them."""

import os
import pathlib
from typing import Any

from bert_flow_tf.common.checkpoints import checkpoint_prefix
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import EncoderFiles
from bert_flow_tf.encoder.convert.from_checkpoint import read_run
from bert_flow_tf.encoder.source import (
    EncoderSource,
    check_encoder,
    check_encoder_arguments,
    read_hub_encoder,
    resolve_encoder,
)
from bert_flow_tf.training.run_folder import config_of_checkpoint
from bert_flow_tf.training.run_records import RunConfig


def resolve_run_encoder(
    *,
    bert_hub: AnyPath | None = None,
    preprocess_hub: AnyPath | None = None,
    bert_config_file: AnyPath | None = None,
    vocab_file: AnyPath | None = None,
    init_checkpoint: AnyPath | None = None,
    do_lower_case: bool | None = None,
    recorded: EncoderFiles | None = None,
) -> EncoderSource:
    """Return the encoder of `run_siamese`'s flags; see `encoder.source.resolve_encoder`.

    `init_checkpoint` may also be a run's checkpoint, whose weights replace those of `bert_hub`.
    """
    prefix = checkpoint_prefix(init_checkpoint) if init_checkpoint else None
    run = config_of_checkpoint(prefix) if prefix else None
    if run is None or prefix is None:
        return resolve_encoder(
            bert_hub=bert_hub,
            preprocess_hub=preprocess_hub,
            bert_config_file=bert_config_file,
            vocab_file=vocab_file,
            init_checkpoint=init_checkpoint,
            do_lower_case=do_lower_case,
            recorded=recorded,
        )
    check_encoder_arguments(bert_hub, bert_config_file, vocab_file, init_checkpoint)
    given = read_hub_encoder(str(bert_hub), preprocess_hub, recorded) if bert_hub else None
    source = _from_run(run, prefix, given)
    check_encoder(source, do_lower_case, recorded)
    return source


def recorded_encoder(config: RunConfig) -> EncoderSource:
    """Return the encoder that a run started from."""
    recorded = config.encoder
    is_lost = os.path.isabs(recorded.bert_hub) and not os.path.isdir(recorded.bert_hub)
    if is_lost and config.encoder_flags:
        flags: dict[str, Any] = config.encoder_flags
        return resolve_run_encoder(**flags, recorded=recorded)
    return resolve_run_encoder(
        bert_hub=recorded.bert_hub, preprocess_hub=recorded.preprocess_hub, recorded=recorded
    )


def _from_run(run: RunConfig, prefix: pathlib.Path, given: EncoderSource | None) -> EncoderSource:
    """Return the encoder of a run's checkpoint, which must come from `given`."""
    if not run.encoder_trained:
        source = recorded_encoder(run)
        if given is not None and given.fingerprint not in (
            source.fingerprint,
            source.record.started_from,
        ):
            raise ArgumentError(
                f"init_checkpoint={prefix}: found a run of {source.bert_hub}, not {given.bert_hub}"
            )
        return source
    return trained_encoder(prefix, given or recorded_encoder(run))


def trained_encoder(prefix: pathlib.Path, start: EncoderSource) -> EncoderSource:
    """Return the encoder that a run's checkpoint trained from `start`."""
    return EncoderSource(os.path.abspath(prefix), None, read_run(prefix, start.bert))
