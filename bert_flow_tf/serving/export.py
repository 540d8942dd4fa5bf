"""Writes `<out>/<version>/saved_model.pb`: text in, embedding out, for TensorFlow Serving."""

import dataclasses
import json
import pathlib

import numpy as np
import tensorflow as tf

from bert_flow_tf.atomic import new_folder
from bert_flow_tf.convert.encoder_folder import quiet_tensorflow
from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.version_folder import check_destination
from bert_flow_tf.tokenizer import vocabulary_asset

FORMAT_VERSION = 1
SIGNATURE = "serving_default"
TOLERANCE = 1e-4
# One of every kind that text can be: nothing, one word, mixed case, marks, other scripts, and one to be cut.
CHECKED_SENTENCES = (
    "",
    "Rain.",
    "A small boat crosses the lake at dawn.",
    "The train to the coast leaves at 7:45 p.m., doesn't it?",
    "Señora Müller ordered a crème brûlée",
    "東京 is the capital of Japan",
    "tab\tand\nline break, and an emoji: 🙂",
    "word " * 600,
)


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written, and how far the model that was loaded again is from the live one.

    Attributes:
      path: folder of the version.
      max_difference: largest absolute difference over the `CHECKED_SENTENCES`.
      max_value: largest absolute value of the live model's embeddings there.
    """

    path: pathlib.Path
    max_difference: float
    max_value: float


class ServedBertFlow(tf.Module):
    """What a SavedModel holds: tokenizer, encoder, flow and pooling as one function of a string tensor.

    Args:
      bert_flow: `api.BertFlow`.
      normalize: whether embeddings are scaled to norm 1.
    """

    def __init__(self, bert_flow, normalize):
        super().__init__(name="bert_flow")
        self.vocabulary = tf.saved_model.Asset(str(vocabulary_asset(bert_flow.source.preprocess_dir)))
        self.tokenizer = bert_flow.tokenizer
        self.flow = bert_flow.flow
        # The variables and not the layer: Keras would save further functions, with dropout, beside the one served.
        self.encoder_variables = list(bert_flow.encoder.variables)
        self._embed_tokens = bert_flow.embed_tokens
        self._max_seq_length = bert_flow.max_seq_length
        self._normalize = normalize

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="sentences")])
    def __call__(self, sentences):
        """`{"embedding": float32 [n, D]}` of `sentences`, string [n] in UTF-8; n may be 0."""
        n = tf.size(sentences)
        # An encoder is not made for a batch of nothing: it gets one empty sentence, and its row is dropped.
        filled = tf.concat([sentences, tf.fill([tf.cast(tf.equal(n, 0), tf.int32)], "")], axis=0)
        embedding = self._embed_tokens(self.tokenizer(filled, self._max_seq_length))[:n]
        return {"embedding": tf.nn.l2_normalize(embedding, axis=-1) if self._normalize else embedding}


def export(bert_flow, out_dir, *, version=1, normalize=False, overwrite=False):
    """`Exported`, after writing `<out_dir>/<version>` and comparing it, loaded again, with the live model.

    The SavedModel needs nothing beside it: encoder, vocabulary, flow and pooling are inside. Its signature
    `serving_default` takes `sentences`, string [n], and gives `embedding`, float32 [n, D]; sentences are cut at the
    model's `max_seq_length`. `assets.extra/config.json` says what it was made of. Loading it in Python needs
    `import tensorflow_text` before, which registers the tokenizer's operations.

    Args:
      bert_flow: `api.BertFlow`.
      out_dir: the model's folder, which TensorFlow Serving calls its base path.
      version: positive int, the version's folder in it.
      normalize: scale every embedding to norm 1.
      overwrite: whether this version may be replaced.

    Raises:
      UserError: the version exists, or is not an export where `overwrite`; or the reloaded model gives values that are
        not finite or not the live model's to 1e-4 (of the largest value, where that is above 1); nothing is left
        behind.
    """
    path = check_destination(out_dir, version, overwrite)
    with new_folder(path) as folder:
        module = ServedBertFlow(bert_flow, normalize)
        with quiet_tensorflow():
            tf.saved_model.save(
                module,
                str(folder),
                signatures={SIGNATURE: module.__call__},
                options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
            )
        _write_description(folder, bert_flow, normalize)
        difference, largest = _compare(folder, bert_flow, normalize)
    return Exported(path, difference, largest)


def _write_description(folder, bert_flow, normalize):
    description = {
        "format_version": FORMAT_VERSION,
        "encoder_fingerprint": bert_flow.source.fingerprint,
        "do_lower_case": bert_flow.source.do_lower_case,
        "sentence_embedding_type": bert_flow.sentence_embedding_type,
        "max_seq_length": bert_flow.max_seq_length,
        "embedding_size": bert_flow.embedding_size,
        "low_dim": bert_flow.low_dim,
        "flow_config": bert_flow.flow.config.to_dict() if bert_flow.flow is not None else None,
        "normalized": normalize,
    }
    (folder / "assets.extra").mkdir()
    text = json.dumps(description, indent=2) + "\n"
    (folder / "assets.extra" / "config.json").write_text(text, encoding="utf-8")


def _compare(folder, bert_flow, normalize):
    """Largest difference of the SavedModel in `folder` from the live model, and the latter's largest value."""
    signature = tf.saved_model.load(str(folder)).signatures[SIGNATURE]
    reloaded = signature(sentences=tf.constant(CHECKED_SENTENCES))["embedding"].numpy()
    live = bert_flow.encode(CHECKED_SENTENCES, show_progress_bar=False, normalize_embeddings=normalize)
    difference, largest = float(np.abs(reloaded - live).max()), float(np.abs(live).max())
    # As it stands, a NaN or an infinity is refused as well.
    if not difference <= TOLERANCE * max(1.0, largest) < np.inf:
        raise UserError(
            f"{folder.parent.parent}: the SavedModel, loaded again, differs from the model by {difference:.1e}, "
            f"expected at most {TOLERANCE:.0e} of {max(1.0, largest):.1e}; nothing was written"
        )
    return difference, largest
