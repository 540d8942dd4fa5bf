"""The original's evaluation and prediction."""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import ModelRecord, Setting
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.original.cache import cached_embeddings
from bert_flow_tf.original.pairs import scaled_labels, tokenize_pairs
from bert_flow_tf.original.settings import ScoringSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.tasks import protocols
from bert_flow_tf.tasks.tasks import Examples, Task
from bert_flow_tf.vectors.batches import distinct

_PAIRS_PER_BATCH = 1024


class PairScorer(NamedTuple):
    """A trained or loaded model, which computes outputs for pairs.

    Attributes:
      encoder_trained: True if training has changed the encoder since its source.
      cache_dir: folder of a frozen encoder's embeddings, if any.
      settings: what results depend on beside the model's record.
    """

    model: SiameseBertFlow
    record: ModelRecord
    step: int
    max_seq_length: int
    pad_to_max: bool = False
    encoder_trained: bool = False
    cache_dir: AnyPath | None = None
    settings: Mapping[str, Setting] = {}

    def outputs(self, examples: Examples, task: Task) -> dict[str, np.ndarray]:
        """Return the model's outputs [n, ...] and the supervised `example_loss`."""
        encoder = self.model.encoder
        labels = scaled_labels(examples, task)
        texts = TextEncoder(
            encoder.source,
            encoder,
            max_seq_length=self.max_seq_length,
            pad_to_max=self.pad_to_max,
        )
        pieces = tokenize_pairs(texts.tokenizer, examples, labels, self.max_seq_length).pieces
        if self.cache_dir:
            u = cached_embeddings(texts, pieces, self.cache_dir)
        else:
            unique, index = distinct(pieces)
            u = texts.embed_rows(unique)[index]
        u = u.reshape(len(labels), 2, -1)
        parts = []
        for start in range(0, len(labels), _PAIRS_PER_BATCH):
            rows = slice(start, start + _PAIRS_PER_BATCH)
            outputs = self.model({"embedding": tf.constant(u[rows])}, training=False)
            outputs["example_loss"] = self.model.supervised_example_loss(
                outputs, tf.constant(labels[rows])
            )
            outputs["logits"] = self.model.classify(outputs)
            parts.append(
                {name: value.numpy() for name, value in outputs.items() if value is not None}
            )
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def evaluate(
    scorer: PairScorer, task: Task, examples: Examples, settings: ScoringSettings
) -> dict[str, np.float32]:
    """Return the original's metrics of a model on examples."""
    outputs = scorer.outputs(examples, task)
    labels = scaled_labels(examples, task)
    loss = outputs["example_loss"]
    results = {"eval_loss": np.mean(loss)}
    if task.is_regression:
        # Without labels, the original computes NaN, because it sets all labels to 0.
        cosines = outputs["cos_similarity"]
        results["eval_pearsonr"] = (
            protocols.pearson(cosines, labels) if examples.has_labels else np.nan
        )
    else:
        results["eval_accuracy"] = np.mean(outputs["logits"].argmax(axis=-1) == labels)
    if settings.auc and task.is_regression:
        results["eval_auc"] = protocols.auc(outputs["cos_similarity"], labels)
    if "flow_example_loss" in outputs:
        results["eval_loss_flow"] = np.mean(outputs["flow_example_loss"])
        results["eval_loss_total"] = np.mean(loss + outputs["flow_example_loss"])
    # The original's estimator reports "loss", the mean of batch means, in which a smaller last
    # batch counts fully.
    size = settings.eval_batch_size
    results["loss"] = np.mean([np.mean(loss[i : i + size]) for i in range(0, len(loss), size)])
    return {name: np.float32(value) for name, value in results.items()}


def prediction_lines(outputs: Mapping[str, np.ndarray], pooled: bool) -> list[str]:
    """Return each pair's cosine or, if `pooled`, its embeddings as JSON."""
    if not pooled:
        return [str(cosine) for cosine in outputs["cos_similarity"]]
    names = ("embedding_a", "embedding_b")
    rows = range(len(outputs["embedding_a"]))
    return [
        json.dumps({name: [round(float(x), 6) for x in outputs[name][i]] for name in names})
        for i in rows
    ]
