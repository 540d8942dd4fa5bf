"""Export an encoder as TF-Hub's encoder and preprocess model, by tf-models."""

import os
import pathlib
import tempfile
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras

from bert_flow_tf.common.atomic import new_output
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.encoder.convert.folders import TF_HUB_FOLDER, TF_HUB_RECORD_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.tf_hub import keras_name, read_tf_hub
from bert_flow_tf.encoder.tokenizer import Tokenizer, write_vocabulary
from bert_flow_tf.encoder.weights import Pretrained
from bert_flow_tf.export.export import CHECKED_SENTENCES, quiet_tensorflow

_SEQ_LENGTH = 128  # as in TF-Hub's preprocess models


def tf_models_encoder(bert: Pretrained) -> tuple[tf_keras.Model, Any]:
    """Return tf-models' encoder with a BERT's weights, and its configuration."""
    # tf-models takes seconds to import.
    from official.legacy.bert import configs
    from official.nlp.tools import export_tfhub_lib

    # tf-models calls the tanh approximation gelu.
    act = bert.config.hidden_act
    activation: Any = {"gelu_tanh": "gelu", "gelu_erf": tf_keras.activations.gelu}.get(act, act)
    config = configs.BertConfig.from_dict(
        msgspec.structs.asdict(bert.config) | {"hidden_act": activation}
    )
    encoder = export_tfhub_lib.get_bert_encoder(config)
    variables = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    for name, value in bert.weights.items():
        variable = variables[keras_name(name)]
        # tf-models splits an axis into heads, which keeps the order of the values.
        variable.assign(value.reshape(variable.shape))
    return encoder, config


def write_tf_hub(
    out_dir: str | os.PathLike, bert: Pretrained, *, overwrite: bool = False
) -> pathlib.Path:
    """Write the SavedModels `encoder` and `preprocess`, load them again and compare.

    Raises:
      UserError: the extra `models` is missing, or the written files give other weights, outputs or
        ids. tf-models' tokenizer normalizes by NFKC, so a few characters, such as ß, have other ids
        than TF1's.
    """
    check_installed("official", "models", "to_tfhub", ArgumentError)
    if rules := bert.record.unlike_tf1:
        raise ArgumentError(
            f"to_tfhub: found a tokenizer with {', '.join(rules)}, which tf-models' has not"
        )
    from official.nlp.tools import export_tfhub_lib

    with (
        new_output(out_dir, TF_HUB_FOLDER, overwrite=overwrite) as folder,
        tempfile.TemporaryDirectory() as scratch,
    ):
        vocabulary = pathlib.Path(scratch, VOCAB_FILE)
        write_vocabulary(vocabulary, bert.vocab)
        with quiet_tensorflow():
            encoder, config = tf_models_encoder(bert)
            checkpoint = tf.train.Checkpoint(model=encoder, encoder=encoder).save(f"{scratch}/bert")
            export_tfhub_lib.export_model(
                str(folder / "encoder"),
                bert_config=config,
                model_checkpoint_path=checkpoint,
                with_mlm=False,
                vocab_file=str(vocabulary),
                do_lower_case=bert.record.do_lower_case,
            )
            export_tfhub_lib.export_preprocessing(
                str(folder / "preprocess"),
                vocab_file=str(vocabulary),
                do_lower_case=bert.record.do_lower_case,
                tokenize_with_offsets=False,
                default_seq_length=_SEQ_LENGTH,
            )
        write_json(
            folder / TF_HUB_RECORD_FILE,
            {"fingerprint": bert.fingerprint, "do_lower_case": bert.record.do_lower_case},
        )
        _compare(folder, bert)
    return pathlib.Path(out_dir)


def _compare(folder: pathlib.Path, bert: Pretrained) -> None:
    found = read_tf_hub(folder / "encoder", folder / "preprocess", str(folder))
    if found.fingerprint != bert.fingerprint:
        raise UserError(
            f"{folder}: the written encoder differs from the given one; nothing was written"
        )
    # tf-models' tokenizer and TF1's give the same ids for these.
    sentences = tf.constant([text for text in CHECKED_SENTENCES if text.isascii()])
    theirs = tf.saved_model.load(str(folder / "preprocess"))(sentences)["input_word_ids"]
    ours = Tokenizer(bert.vocab, bert.record)(sentences, _SEQ_LENGTH, pad_to_max=True)[
        "input_word_ids"
    ]
    if not np.array_equal(theirs, ours):
        raise UserError(
            f"{folder}: the written preprocess model gives other ids; nothing was written"
        )
