"""Write an encoder folder.

It has the SavedModels `encoder/` and `preprocess/`, as on TF-Hub, `bert_config.json`, `vocab.txt` and `source.json`.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras

from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER, SOURCE_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import BertConfig, check_arrays, keras_names
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer, vocabulary_asset
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from bert_flow_tf.files.reading import reading, update_with_arrays

_SEQ_LENGTH = 128  # as in TF-Hub's preprocess models


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """A BERT read from another format.

    Attributes:
      weights: dict of TF1 name -> array, checked by `check_arrays`.
      do_lower_case: True if the vocabulary is uncased.
      source: the origin for `source.json`, without paths and times, so that equal sources give equal folders.
    """

    config: BertConfig
    vocab: list[str]
    weights: dict[str, np.ndarray]
    do_lower_case: bool
    source: dict[str, Any]

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that the encoder folder depends on."""
        contents = FORMAT_VERSION, self.do_lower_case, self.config, self.vocab, self.source
        digest = hashlib.sha256(msgspec.json.encode(contents))
        update_with_arrays(digest, sorted(self.weights.items()))
        return digest.hexdigest()


def write_encoder_folder(out_dir: str | os.PathLike, bert: Pretrained, *, overwrite: bool = False) -> pathlib.Path:
    if (pieces := len(bert.vocab)) != bert.config.vocab_size:
        raise UserError(f"vocab_size: found {bert.config.vocab_size}, expected the {pieces} pieces of the vocabulary")
    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        (folder / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in bert.vocab), encoding="utf-8")
        write_json(folder / BERT_CONFIG_FILE, dict(sorted(msgspec.structs.asdict(bert.config).items())))
        asset = tf.saved_model.Asset(str(folder / VOCAB_FILE))
        with quiet_tensorflow():
            encoder = _bert(bert, asset)
            tf.saved_model.save(encoder, str(folder / "encoder"), signatures={})
            preprocess = _preprocess(Tokenizer(bert.vocab, bert.do_lower_case), asset)
            tf.saved_model.save(preprocess, str(folder / "preprocess"))
        record = {"format_version": FORMAT_VERSION, "do_lower_case": bert.do_lower_case, **bert.source}
        write_json(folder / SOURCE_FILE, record)
    return pathlib.Path(out_dir)


def write_with_weights(
    folder: pathlib.Path, source: EncoderSource, variables: Mapping[str, np.ndarray] | None, origin: dict[str, Any]
) -> None:
    """Write the encoder of `source` to a folder, optionally with new weights.

    Args:
      variables: new weights by the names of `SentenceEncoder.variables_by_name`; None to copy the old ones.
      origin: origin of the new weights, for `source.json`.
    """
    source_folder, record = source.encoder_dir.parent, {}
    if variables is None:
        shutil.copytree(source.encoder_dir, folder / "encoder", copy_function=shutil.copyfile)
        # Keep the record, because the fingerprint depends on it.
        if (path := source_folder / SOURCE_FILE).is_file():
            record = read_json(path, dict, expected="an encoder folder's record")
    else:
        with reading(source.bert_hub, "an encoder"):
            encoder = hub.load(str(source.encoder_dir))
            assigned = floating_variables(encoder)
        check_arrays(variables, {name: v.shape for name, v in assigned.items()}, source.bert_hub, "this encoder")
        for name, variable in assigned.items():
            variable.assign(variables[name])
        with quiet_tensorflow():
            tf.saved_model.save(encoder, str(folder / "encoder"))
        record = {"started_from": source.fingerprint} | origin
    shutil.copytree(source.preprocess_dir, folder / "preprocess", copy_function=shutil.copyfile)
    shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / VOCAB_FILE)
    if (source_folder / BERT_CONFIG_FILE).is_file():
        shutil.copyfile(source_folder / BERT_CONFIG_FILE, folder / BERT_CONFIG_FILE)
    # The preprocess model may come from another folder than the record.
    record |= {"format_version": FORMAT_VERSION, "do_lower_case": source.do_lower_case}
    write_json(folder / SOURCE_FILE, record)


def floating_variables(encoder: Any) -> dict[str, tf.Variable]:
    """Return a loaded encoder's variables by name, without dropout's random states."""
    return {v.name.removesuffix(":0"): v for v in encoder.variables if v.dtype.is_floating}


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Hide warnings about untraced functions, which do not help users."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _bert(bert: Pretrained, asset: Any) -> tf.train.Checkpoint:
    """Return an encoder as on TF-Hub.

    `sequence_output` is [batch, seq, width], `encoder_outputs` has one such tensor per layer, `pooled_output` and
    `default` are [batch, width]. An export by tf-models would store a function per Keras layer, which takes seconds to
    load.
    """
    # tf-models takes seconds to import, and only a conversion needs it.
    from official.legacy.bert import configs
    from official.nlp.tools import export_tfhub_lib

    act = bert.config.hidden_act
    # tf-models calls the tanh approximation gelu.
    activation = {"gelu_tanh": "gelu", "gelu_erf": tf_keras.activations.gelu}.get(act, act)
    fields = msgspec.structs.asdict(bert.config) | {"hidden_act": activation}
    encoder = export_tfhub_lib.get_bert_encoder(configs.BertConfig(**fields))
    variables = floating_variables(encoder)
    for tf1_name, keras_name in keras_names(bert.config.num_hidden_layers).items():
        # tf-models splits an axis into heads, which keeps the order of the values.
        variables[keras_name].assign(bert.weights[tf1_name].reshape(variables[keras_name].shape))

    @tf.function
    def call(inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, Any]:
        outputs = encoder(inputs, training=training)
        return {**outputs, "default": outputs["pooled_output"]}

    for training in (False, True):
        call.get_concrete_function(TOKEN_SPECS, training=training)
    # The order of attributes determines the names in the checkpoint, and so the encoder's fingerprint.
    saved = tf.train.Checkpoint(vocab_file=asset)
    saved.__call__ = call
    saved.variables = encoder.variables
    saved.trainable_variables = encoder.trainable_variables
    saved.regularization_losses = []
    saved.do_lower_case = tf.Variable(bert.do_lower_case, trainable=False)
    return saved


def _preprocess(tokenizer: Tokenizer, asset: Any) -> tf.train.Checkpoint:
    """Return a preprocess model as on TF-Hub.

    It has `tokenize` (string [n] -> ragged int32 [n, (words), (pieces)]), `tokenize.get_special_tokens_dict()` and
    `bert_pack_inputs(list of one or two such tensors, seq_length)`.
    """
    from official.nlp.modeling import layers
    from official.nlp.tools import export_tfhub_lib

    special = {
        **{"start_of_sequence_id": tokenizer.cls_id, "end_of_segment_id": tokenizer.sep_id},
        **{"padding_id": tokenizer.pad_id, "mask_id": tokenizer.mask_id, "vocab_size": tokenizer.vocab_size},
    }
    constants = tf.function(lambda: {name: tf.constant(i) for name, i in special.items()}, input_signature=[])
    signature = [tf.TensorSpec([None], tf.string, name="sentences")]
    tokenize = tf.train.Checkpoint(get_special_tokens_dict=constants)
    tokenize.__call__ = tf.function(tokenizer.tokenize_words, input_signature=signature)
    pack = layers.BertPackInputs(seq_length=_SEQ_LENGTH, special_tokens_dict=special)
    pack = export_tfhub_lib.BertPackInputsSavedModelWrapper(pack)
    lower = tf.Variable(tokenizer.do_lower_case, trainable=False)
    parts = {"vocab_file": asset, "do_lower_case": lower, "tokenize": tokenize, "bert_pack_inputs": pack}
    preprocess = tf.train.Checkpoint(tokenizer=tokenizer, **parts)
    preprocess.__call__ = tf.function(lambda text: tokenizer(text, _SEQ_LENGTH, True), input_signature=signature)
    return preprocess
