"""Masked language modelling on your own text, as a resumable run."""

import functools
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from tqdm import tqdm

from bert_flow_tf.common.atomic import locked, new_folder, output_folder
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.common.records import MASKED_LM, ModelRecord, Training, made_by
from bert_flow_tf.encoder.bert import Inputs
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource, encoder_record
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.cluster import Cluster
from bert_flow_tf.training.devices import Workers, configure_devices, for_replicas
from bert_flow_tf.training.masked_lm import NOT_PREDICTED, MaskedLanguageModel
from bert_flow_tf.training.resumable import ResumableRun, Stages
from bert_flow_tf.training.run_folder import (
    clean_pretraining,
    locked_run,
    pretraining_folder,
    remove_checkpoints,
)
from bert_flow_tf.training.run_records import RunConfig, TrainingResults, array_digest
from bert_flow_tf.training.settings import PretrainSettings
from bert_flow_tf.vectors.batches import length_batches
from bert_flow_tf.vectors.texts import sentence_list
from glow.optimizer import AdamWeightDecay, WarmupLinearDecay

# BERT masks 80 % of the predicted pieces, keeps 10 % and replaces 10 % by random pieces. These
# shares are cumulative.
_MASKED, _KEPT = 0.8, 0.9
_KEPT_CHECKPOINTS = 2


def pretrain(
    sentences: Iterable[str],
    source: EncoderSource,
    out_dir: str | os.PathLike,
    settings: PretrainSettings,
    *,
    overwrite: bool = False,
    show_progress_bar: bool | None = None,
) -> TrainingResults:
    """Train an encoder further on text, or resume; write an encoder folder.

    The optimiser and its schedule are TF1 BERT's, see `glow.optimizer`. The pooler does not change.

    Args:
      sentences: sentences or paragraphs; empty ones are ignored.
      overwrite: True to replace the encoder folder and start again.
      show_progress_bar: None shows it on a terminal only; False also hides the dev losses on
        stderr.

    Raises:
      UserError: see `check_run`; the text or a setting is invalid; a loss is not finite; the disk
        is full.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    check_installed("official", "models", "pretrain")
    run_dir = pretraining_folder(out_dir)
    stages = Stages()
    with locked(out_dir), locked_run(run_dir):
        clean_pretraining(out_dir)
        out = output_folder(out_dir, ENCODER_FOLDER, overwrite=overwrite)
        strategy = configure_devices(None, settings.train_batch_size)
        tokenizer = source.tokenizer()
        pieces = _tokenize(tokenizer, sentences, settings.max_seq_length - 2)
        config = _run_config(source, settings, pieces)
        run = ResumableRun(
            run_dir, config, Workers(Cluster(), strategy), stages, overwrite=overwrite
        )
        run.check([out])
        with strategy.scope():
            model = compiled_model(source, settings)
        run.open(
            kept=_KEPT_CHECKPOINTS,
            optimizer=model.optimizer,
            encoder=model.encoder.variables_by_name,
            head=model.head_variables,
        )
        if not run.is_finished():
            hide_bar = None if show_progress_bar is None else not show_progress_bar
            run.finish(_train_steps(run, model, settings, pieces, tokenizer, hide_bar))
        results = run.results()
        _write_encoder(out, model.encoder, source, results)
        remove_checkpoints(run_dir)
        return results


def _write_encoder(
    out: pathlib.Path, encoder: SentenceEncoder, source: EncoderSource, results: TrainingResults
) -> None:
    record = source.record.with_origin(
        MASKED_LM,
        started_from=source.fingerprint,
        training=results.model.encoder.fine_tuning,
        dev_losses=results.dev_losses,
    )
    with new_folder(out) as folder:
        write_encoder(folder, encoder.read_pretrained(record))


def _tokenize(tokenizer: Tokenizer, sentences: Iterable[str], size: int) -> tf.RaggedTensor:
    """Return word pieces, int32 [n, (t)], in rows of at most `size`."""
    rows = tokenizer.rows(sentence_list(sentences), 2**31).rows
    lengths = [min(size, len(row) - start) for row in rows for start in range(0, len(row), size)]
    if not lengths:
        raise UserError("sentences: found no text, expected sentences or paragraphs")
    return tf.RaggedTensor.from_row_lengths(np.concatenate(rows), np.array(lengths, np.int64))


def _run_config(
    source: EncoderSource, settings: PretrainSettings, pieces: tf.RaggedTensor
) -> RunConfig:
    # The encoder does not depend on the interval of checkpoints.
    flags = {
        name: value for name, value in vars(settings).items() if name != "save_checkpoints_steps"
    }
    sentences = int(pieces.nrows())
    encoder = encoder_record(source)
    tuning = {name: value for name, value in flags.items() if name != "seed"}
    learned = Training(
        settings={"objective": MASKED_LM, "sentences": sentences, **tuning},
        seed=settings.seed,
        began_with=encoder.fine_tuning,
    )
    encoder = msgspec.structs.replace(encoder, fingerprint=None, weights=None, fine_tuning=learned)
    return RunConfig(
        made_by=made_by("bert-flow pretrain"),
        model=ModelRecord(encoder=encoder, pooling="avg", max_seq_length=settings.max_seq_length),
        encoder=source.files,
        encoder_trained=True,
        data=array_digest([pieces.flat_values.numpy(), pieces.row_lengths().numpy(), np.empty(0)]),
        flags=flags,
    )


def compiled_model(source: EncoderSource, settings: PretrainSettings) -> MaskedLanguageModel:
    """Return the encoder with a new head and TF1 BERT's optimiser.

    Raises:
      UserError: the encoder cannot be loaded, or has fewer positions than
        `settings.max_seq_length`.
    """
    encoder = SentenceEncoder(source, "avg", trainable=True)
    length = settings.max_seq_length
    limit = encoder.max_seq_length
    if limit and length > limit:
        raise ArgumentError(
            f"max_seq_length: found {length}, expected at most the encoder's {limit} positions"
        )
    config = source.bert.config
    name = config.hidden_act
    is_gelu = name.startswith("gelu")
    model = MaskedLanguageModel(
        encoder,
        activation=functools.partial(tf.nn.gelu, approximate=name == "gelu_tanh")
        if is_gelu
        else name,
        initializer_range=config.initializer_range,
        seed=settings.seed,
    )
    schedule = WarmupLinearDecay(settings.learning_rate, settings.steps, settings.num_warmup_steps)
    model.compile(AdamWeightDecay(schedule, name="adam"))
    return model


def _train_steps(
    run: ResumableRun,
    model: MaskedLanguageModel,
    settings: PretrainSettings,
    pieces: tf.RaggedTensor,
    tokenizer: Tokenizer,
    hide_bar: bool | None,
) -> dict[int, float]:
    """Train the remaining steps; return the dev losses by step."""
    dev, train = _split(pieces, settings)
    run.begin()
    step = run.checkpoints.step
    progress = callbacks.Progress(step, settings.steps, run.folder, 10, hide_bar)
    dev_loss = _dev_loss_function(model, dev, settings, tokenizer, progress, hide_bar)
    scores = callbacks.DevScores(
        step, settings.save_checkpoints_steps, run.folder / "dev_losses.json", dev_loss
    )
    others: list[tf_keras.callbacks.Callback] = [progress]
    if dev.nrows():
        others.append(scores)
        scores.on_train_batch_end(0, {})
    batches = masked_batches(train, tokenizer, settings, skip_steps=run.step)
    run.fit(
        model, batches, settings.steps, save_every=settings.save_checkpoints_steps, others=others
    )
    if dev.nrows():
        scores.score()
    return scores.by_step


def _split(
    pieces: tf.RaggedTensor, settings: PretrainSettings
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Return the held-out rows and those to train on."""
    count = int(pieces.nrows())
    held_out = min(math.ceil(count * settings.dev_fraction), 1000, count - 1)
    order = np.random.default_rng([settings.seed, 0]).permutation(count)
    dev = tf.gather(pieces, np.sort(order[:held_out]))
    return dev, tf.gather(pieces, np.sort(order[held_out:]))


def _dev_loss_function(
    model: MaskedLanguageModel,
    dev: tf.RaggedTensor,
    settings: PretrainSettings,
    tokenizer: Tokenizer,
    progress: callbacks.Progress,
    hide_bar: bool | None,
) -> Callable[[], float]:
    """Return a function that measures and logs the loss on dev."""
    specs = [TOKEN_SPECS, tf.TensorSpec([None, None], tf.int32)]
    token_losses = tf.function(model.token_losses, input_signature=specs, autograph=False)
    dev_batches = [*_dev_batches(dev, tokenizer, settings)]

    def dev_loss() -> float:
        at = int(progress.step)
        losses = [token_losses(*batch).numpy() for batch in dev_batches]
        loss = float(np.mean(np.concatenate(losses), dtype=np.float64))
        with progress.writer.as_default(step=at):
            tf.summary.scalar("dev_loss", loss)
        perplexity = math.exp(min(loss, 700.0))
        if not hide_bar:
            line = (
                f"step {at} of {settings.steps}: dev loss {loss:.4f} (perplexity {perplexity:.4g})"
            )
            tqdm.write(line, file=sys.stderr)
        return loss

    return dev_loss


def _dev_batches(
    pieces: tf.RaggedTensor, tokenizer: Tokenizer, settings: PretrainSettings
) -> Iterator[tuple[Inputs, tf.Tensor]]:
    mask = tf.function(functools.partial(masked, tokenizer, settings), reduce_retracing=True)
    for rows in length_batches(pieces.row_lengths().numpy()):
        tokens = tokenizer.pack(tf.gather(pieces, rows), settings.max_seq_length)
        # Training's numbers start at 0; negative numbers give dev other masks.
        yield mask(tokens, tf.constant(-1 - rows, tf.int64))


def masked(
    tokenizer: Tokenizer, settings: PretrainSettings, tokens: Inputs, numbers: tf.Tensor
) -> tuple[Inputs, tf.Tensor]:
    """Mask word pieces as BERT does (Devlin et al. 2019, section 3.1).

    As in TF1's `create_masked_lm_predictions`, a sentence of m ids, [CLS] and [SEP] included, has
    `masked_lm_prob * m` predictions, but at least one. The masks depend on the seed and the
    sentence's number, not on its batch.

    Args:
      tokens: dict of int32 [n, t] from `Tokenizer.pack`.
      numbers: int64 [n], the number of each sentence in the run.

    Returns:
      The masked tokens, and the labels, int32 [n, t].
    """
    ids = tokens["input_word_ids"]
    length = tf.reduce_sum(tokens["input_mask"], axis=1)
    position = tf.range(tf.shape(ids)[1])
    draws = tf.map_fn(
        lambda number: tf.random.stateless_uniform(
            [settings.max_seq_length, 3], [settings.seed, number], alg="philox"
        ),
        numbers,
        fn_output_signature=tf.float32,
    )
    # These random numbers [n, t] choose the pieces to predict, the kind of change, and the random
    # piece.
    order, action, other = tf.unstack(draws[:, : tf.size(position)], axis=2)
    share = tf.cast(length, tf.float64) * tf.constant(settings.masked_lm_prob, tf.float64)
    count = tf.maximum(tf.cast(tf.round(share), tf.int32), 1)
    is_candidate = (position > 0) & (position < length[:, tf.newaxis] - 1)
    rank = tf.argsort(tf.argsort(tf.where(is_candidate, order, 1.0), stable=True))
    predicted = is_candidate & (rank < count[:, tf.newaxis])
    random_piece = tf.cast(other * tokenizer.vocab_size, tf.int32)
    changed = tf.where(
        action < _MASKED, tokenizer.mask_id, tf.where(action < _KEPT, ids, random_piece)
    )
    changed_tokens = tokens | {"input_word_ids": tf.where(predicted, changed, ids)}
    return changed_tokens, tf.where(predicted, ids, NOT_PREDICTED)


def masked_batches(
    pieces: tf.RaggedTensor,
    tokenizer: Tokenizer,
    settings: PretrainSettings,
    *,
    skip_steps: int = 0,
) -> tf.data.Dataset:
    """Return endless batches of `MaskedLanguageModel`'s inputs and labels.

    Each epoch has its own order; a batch may span epochs. Order and masks depend only on the seed,
    so `skip_steps` resumes exactly where an interrupted run stopped.
    """
    count = pieces.nrows(tf.int64)
    size = settings.train_batch_size

    def batch(step: tf.Tensor) -> tuple[Inputs, tf.Tensor]:
        numbers = step * size + tf.range(size, dtype=tf.int64)
        epochs = numbers // count
        seeds = tf.stack(
            [tf.fill([size], tf.constant(settings.seed, tf.int64)), epochs, tf.zeros_like(epochs)],
            1,
        )
        # This operation does not need the permutation in memory.
        rows = tf.raw_ops.RandomIndexShuffle(
            index=numbers % count, seed=seeds, max_index=tf.fill([size], count - 1)
        )
        tokens = tokenizer.pack(tf.gather(pieces, rows), settings.max_seq_length)
        inputs, labels = masked(tokenizer, settings, tokens, numbers)
        return inputs | {"occurrence": numbers}, labels

    steps = tf.data.Dataset.range(skip_steps, np.iinfo(np.int64).max)
    return for_replicas(steps.map(batch, num_parallel_calls=1, deterministic=True))
