"""Train or resume a run's model."""

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.stream import dropout_batcher
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.reading import AnyPath
from bert_flow_tf.original.build import build_model, checkpoint_parts, load_init_checkpoint
from bert_flow_tf.original.cache import cached_embeddings
from bert_flow_tf.original.pairs import Pairs, embedded_batches, token_batches
from bert_flow_tf.original.settings import Losses, ModelSettings, TrainingSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.devices import Workers
from bert_flow_tf.training.records import RunConfig, model_at
from bert_flow_tf.training.resumable import Stages, write_results
from bert_flow_tf.training.run_folder import (
    CHECKPOINT_NAME,
    KEEP_CHECKPOINT_MAX,
    TRAIN_RESULTS_FILE,
)
from glow.optimizer import AdamWeightDecay, WarmupLinearDecay

# A `Batches` function takes the number of steps, the steps to skip and this worker's rows of each
# batch.
Batches = Callable[[int, int, slice], tf.data.Dataset]


class Trainer:
    """Train a run's model from its last checkpoint, together with other workers.

    All workers must be able to read the run's folder, which the chief writes.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        config: RunConfig,
        model: SiameseBertFlow,
        training: TrainingSettings,
        workers: Workers,
    ) -> None:
        self._folder, self._config, self._training, self._workers = (
            folder,
            config,
            training,
            workers,
        )
        self.model, self.record = model, config.model
        optimizers = {"optimizer": model.optimizer, "flow_optimizer": model.flow_optimizer}
        parts = checkpoint_parts(model, config.encoder_trained)
        self._checkpoints = callbacks.Checkpoints(
            folder, KEEP_CHECKPOINT_MAX, **optimizers, **parts
        )
        self._restored = self._checkpoints.restore() if workers.is_chief else None

    @property
    def step(self) -> int:
        return int(self._checkpoints.step)

    def is_finished(self) -> bool:
        """True if the run was trained before; all workers must call this."""
        if self._restored:
            self.record = model_at(self._config, self._restored)
        return bool(self._workers.from_chief(int((self._folder / TRAIN_RESULTS_FILE).exists())))

    def begin(self, batches: Batches) -> None:
        """Write the first checkpoint; let all workers start from the last one."""
        self._batches = batches
        if self._workers.is_chief and not self._restored:
            if self._training.flow_ddi:
                # Like the original's hook, embed each pair's first sentence, with dropout; training
                # skips this batch.
                inputs, _ = next(iter(batches(1, 0, slice(None))))
                self.model.flow.initialize_from_data(self.model.embed(inputs, training=True)[::2])
            self._checkpoints.save()
        start_step = self._workers.from_chief(self.step)
        if not self._workers.is_chief:
            self._checkpoints.restore(str(self._folder / f"{CHECKPOINT_NAME}-{start_step}"))

    def fit(self, total_steps: int, epoch_steps: int, dev_score: Callable[[], float]) -> None:
        """Train the remaining steps; `dev_score` is for early stopping.

        Raises:
          UserError: a loss or gradient is not finite.
          KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
        """
        training, workers, step = self._training, self._workers, self._checkpoints.step
        every, others = training.save_checkpoints_steps, list[tf_keras.callbacks.Callback]()
        if training.early_stopping:
            every, path = epoch_steps, self._folder / "early_stopping.json"
            stopping = callbacks.EarlyStopping(
                step, every, path, dev_score, writes=workers.is_chief
            )
            # Check now, because a run may have been killed after its last checkpoint and before its
            # last score.
            if stopping.should_stop():
                return
            others = [stopping]
        if workers.is_chief:
            others.insert(
                0, callbacks.Progress(step, total_steps, self._folder, training.log_every_step)
            )
        learned = self.model.supervised_variables + self.model.flow_variables
        steps = callbacks.Steps(self._checkpoints, every, learned, writes=workers.is_chief)
        skipped, rows = int(training.flow_ddi), workers.cluster.rows(training.train_batch_size)
        batches = self._batches(total_steps + skipped, self.step + skipped, rows)
        callbacks.fit(self.model, workers.distributed(batches), total_steps, steps, others)

    def finish(self, stages: Stages) -> None:
        """Write the run's results."""
        if self._workers.is_chief:
            self.record = write_results(self._config, self._checkpoints, stages, {}).model


def new_batches(
    model: SiameseBertFlow,
    tokenizer: Tokenizer,
    pairs: Pairs,
    order: Callable[[], tf.data.Dataset],
    settings: ModelSettings,
    training: TrainingSettings,
    cache_dir: AnyPath,
) -> Batches:
    """Choose cached embeddings, embeddings with dropout, or tokens; `order` is `pairs.ordered`."""
    encoder, length, pad = model.encoder, settings.max_seq_length, settings.pad_to_max_seq_length
    if training.cache_embeddings:
        cached = cached_embeddings(
            encoder, tokenizer, pairs.pieces, length, cache_dir=cache_dir, pad_to_max=pad
        )

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return cached[sentences]

    elif model.loss_settings.encoder_is_frozen and encoder.seeds_dropout:
        batcher = dropout_batcher(encoder, tokenizer, length, seed=training.seed, pad_to_max=pad)

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return batcher.encode_pieces(
                tf.gather(pairs.pieces, sentences), occurrences=occurrences
            )

    else:
        pack = functools.partial(tokenizer.pack, max_seq_length=length, pad_to_max=pad)
        return lambda steps, skip, rows: token_batches(pairs, order(), pack, skip, rows)
    return lambda *wanted: embedded_batches(pairs, order(), embed, encoder.embedding_size, *wanted)


def compiled_model(
    source: EncoderSource,
    config: RunConfig,
    init_checkpoint: str | None,
    losses: Losses,
    training: TrainingSettings,
    total_steps: int,
) -> SiameseBertFlow:
    """Return a run's model with its initial weights and both optimisers."""
    options: dict[str, Any] = {
        "num_labels": config.num_labels,
        "losses": losses,
        "seed": training.seed,
    }
    model = build_model(source, config.model, **options, trainable=config.encoder_trained)
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
