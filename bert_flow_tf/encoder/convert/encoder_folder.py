"""Write an encoder folder, which transformers and sentence-transformers open."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import safetensors.numpy

from bert_flow_tf.common.atomic import new_output
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.encoder.convert import folders
from bert_flow_tf.encoder.convert.hugging_face import hugging_face_name
from bert_flow_tf.encoder.convert.sentence_modules import (
    NORMALIZE,
    POOLING_MODES,
    Module,
    append_modules,
    pooling_module,
)
from bert_flow_tf.encoder.convert.tokenizer_files import write_tokenizer
from bert_flow_tf.encoder.weights import Pretrained, SourceRecord, hugging_face_config


def write_encoder_folder(
    out_dir: str | os.PathLike, bert: Pretrained, *, overwrite: bool = False
) -> pathlib.Path:
    with new_output(out_dir, folders.ENCODER_FOLDER, overwrite=overwrite) as folder:
        write_encoder(folder, bert)
    return pathlib.Path(out_dir)


def write_encoder(
    folder: pathlib.Path, bert: Pretrained, modules: list[Module] | None = None, **config: Any
) -> None:
    """Write an encoder's files; `config` are further settings of `config.json`.

    `modules` are sentence-transformers' modules after BERT, by default the pooling, if one module
    computes it.
    """
    record = bert.record
    write_json(folder / folders.CONFIG_FILE, hugging_face_config(bert.config) | config)
    tensors = {
        hugging_face_name(name): np.ascontiguousarray(
            value.T if name.endswith("/kernel") else value
        )
        for name, value in bert.weights.items()
    }
    safetensors.numpy.save_file(tensors, folder / folders.WEIGHTS_FILE, {"format": "pt"})
    length = record.max_seq_length or bert.config.max_position_embeddings
    write_tokenizer(folder, bert.vocab, record, length)
    write_json(folder / folders.SOURCE_FILE, record)
    if modules is None and record.pooling in POOLING_MODES:
        modules = [pooling_module(record.pooling, bert.config.hidden_size)]
        modules += [NORMALIZE] * record.normalize
    if modules is not None:
        _write_modules(folder, modules, record)


def _write_modules(folder: pathlib.Path, modules: Sequence[Module], record: SourceRecord) -> None:
    """Write sentence-transformers' files for the modules after BERT."""
    length: Any = {} if record.max_seq_length is None else {"max_seq_length": record.max_seq_length}
    write_json(folder / folders.BERT_SETTINGS_FILE, {**length, "do_lower_case": False})
    settings = {name: getattr(record, name) for name in folders.SENTENCE_SETTINGS}
    write_json(
        folder / folders.SENTENCE_SETTINGS_FILE, {"model_type": "SentenceTransformer", **settings}
    )
    append_modules(folder, modules)
