"""Load the model of a run."""

import os
from typing import Any

from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.model.build import with_present_code
from bert_flow_tf.original.build import build_encoder, build_flow, restore
from bert_flow_tf.original.encoder import recorded_encoder
from bert_flow_tf.training.run_folder import run_checkpoint
from bert_flow_tf.training.run_records import model_at


def load_run(path: str | os.PathLike, dtype: str) -> dict[str, Any]:
    """Return the `Embedder.state` of a run's last, or named, checkpoint.

    Raises:
      UserError: the checkpoint cannot be read, or the run has not finished.
    """
    checkpoint, config = run_checkpoint(path)
    record = with_present_code(model_at(config, checkpoint), checkpoint.parent)
    source = recorded_encoder(config)
    network = build_encoder(source, record)
    flow = build_flow(record, network.embedding_size)
    parts: dict[str, Any] = {} if flow is None else {"flow": flow}
    if config.encoder_trained:
        parts["encoder"] = network.variables_by_name
    restore(parts, checkpoint)
    encoder = TextEncoder(
        source,
        network,
        max_seq_length=record.max_seq_length,
        dtype=dtype,
        trained=config.encoder_trained,
    )
    return {
        "encoder": encoder,
        "maps": [] if flow is None else [flow],
        "origin": record.encoder,
        "learned": record.flow,
        "checkpoint": record.checkpoint,
        "low_dim": record.low_dim,
        "truncate_dim": record.truncate_dim,
    }
