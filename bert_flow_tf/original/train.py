"""Train or resume a run's model."""

import functools
import logging
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.original.build import build_model, load_init_checkpoint
from bert_flow_tf.original.cache import cached_embeddings
from bert_flow_tf.original.pairs import TokenizedPairs, embedded_batches, token_batches
from bert_flow_tf.original.settings import LossSettings, ModelSettings, TrainingSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.resumable import ResumableRun
from bert_flow_tf.training.run_records import RunConfig
from glow.optimizer import AdamWeightDecay, WarmupLinearDecay

logger = logging.getLogger(__name__)

# A `Batches` function takes the number of steps, the steps to skip and this worker's rows of each
# batch.
Batches = Callable[[int, int, slice], tf.data.Dataset]


def train_steps(
    run: ResumableRun,
    model: SiameseBertFlow,
    batches: Batches,
    training: TrainingSettings,
    num_examples: int,
    dev_score: Callable[[], float],
) -> None:
    """Train a run's remaining steps, or until `--early_stopping` ends it.

    Args:
      num_examples: number of pairs in an epoch.
      dev_score: function that `--early_stopping` calls at the end of each epoch.

    Raises:
      UserError: a loss or gradient is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    size = training.train_batch_size
    total = training.total_steps(num_examples)
    is_chief = run.workers.is_chief

    def initialize() -> None:
        # Like the original's hook, embed each pair's first sentence, with dropout; training skips
        # this batch.
        inputs, _ = next(iter(batches(1, 0, slice(None))))
        model.flow.initialize_from_data(model.embed(inputs, training=True)[::2])

    run.begin(initialize if training.flow_ddi else None)
    logger.info(
        "***** Running training *****\n  %d examples, %d steps of %d", num_examples, total, size
    )
    step = run.checkpoints.step
    save_every = training.save_checkpoints_steps
    others: list[tf_keras.callbacks.Callback] = []
    if training.early_stopping:
        save_every = max(1, num_examples // size)
        path = run.folder / "early_stopping.json"
        stopping = callbacks.EarlyStopping(step, save_every, path, dev_score, writes=is_chief)
        # Check now, because a run may have been killed after its last checkpoint and before its
        # last score.
        if stopping.should_stop():
            return
        others.append(stopping)
    if is_chief:
        progress = callbacks.Progress(step, total, run.folder, training.log_every_step)
        others.insert(0, progress)
    skipped = int(training.flow_ddi)
    rows = run.workers.cluster.rows(size)
    remaining = batches(total + skipped, run.step + skipped, rows)
    run.fit(model, remaining, total, save_every=save_every, others=others)


def new_batches(
    model: SiameseBertFlow,
    pairs: TokenizedPairs,
    order: Callable[[], tf.data.Dataset],
    settings: ModelSettings,
    training: TrainingSettings,
    cache_dir: AnyPath,
) -> Batches:
    """Choose cached embeddings, embeddings with dropout, or tokens; `order` is `pairs.ordered`."""
    encoder = model.encoder
    length = settings.max_seq_length
    pad = settings.pad_to_max_seq_length
    texts = TextEncoder(encoder.source, encoder, max_seq_length=length, pad_to_max=pad)
    if training.cache_embeddings:
        cached = cached_embeddings(texts, pairs.pieces, cache_dir)

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return cached[sentences]

    elif model.loss_settings.encoder_is_frozen and encoder.source.is_bert:

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return texts.embed_rows(
                [pairs.pieces[i] for i in sentences],
                dropout_seed=training.seed,
                occurrences=occurrences,
                show_progress_bar=False,
            )

    else:
        pack = functools.partial(texts.tokenizer.pack, max_seq_length=length, pad_to_max=pad)
        return lambda steps, skip, rows: token_batches(pairs, order(), pack, skip, rows)
    return lambda *wanted: embedded_batches(pairs, order(), embed, encoder.embedding_size, *wanted)


def compiled_model(
    source: EncoderSource,
    config: RunConfig,
    init_checkpoint: str | None,
    losses: LossSettings,
    training: TrainingSettings,
    total_steps: int,
) -> SiameseBertFlow:
    """Return a run's model with its initial weights and both optimisers."""
    model = build_model(
        source,
        config.model,
        num_labels=config.num_labels,
        losses=losses,
        seed=training.seed,
        trainable=config.encoder_trained,
    )
    loaded = load_init_checkpoint(model, init_checkpoint)
    warmup_steps = int(total_steps * training.warmup_proportion)
    schedule = WarmupLinearDecay(training.learning_rate, total_steps, warmup_steps)
    flow_optimizer = (
        AdamWeightDecay(training.flow_learning_rate, name="flow_adam") if losses.flow_loss else None
    )
    model.compile(AdamWeightDecay(schedule, name="adam"), flow_optimizer)
    if training.flow_ddi and "flow" in loaded:
        expected = "expected one of them"
        raise ArgumentError(
            f"flow_ddi: found true with a flow in --init_checkpoint={init_checkpoint}, {expected}"
        )
    return model
