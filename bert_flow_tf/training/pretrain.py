"""Masked language modelling on one's own text: from an encoder to an encoder folder, in a run that can be resumed.

The run's folder lies beside the encoder folder, see `run_folder`: `config.json`, checkpoints while it is not
finished, `dev_losses.json`, `train_results.json` at its end, and events for TensorBoard.
"""

import dataclasses
import functools
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from tqdm import tqdm

from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.convert.encoder_folder import write_with_weights
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import new_folder, output_folder
from bert_flow_tf.files.checkpoints import save_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.sentence_files import parts
from bert_flow_tf.model.build import absolute_flags, encoder_record
from bert_flow_tf.model.masked_lm import MaskedLanguageModel
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE, begin_run, check_run, locked_run
from bert_flow_tf.runs.pretraining import MASKED_LM, MOST_DEV_SENTENCES, PretrainingSettings, run_folder
from bert_flow_tf.runs.record import Model, RunConfig, Training, TrainingData, TrainingResults, made_by, model_at
from bert_flow_tf.runs.settings import DeviceSettings
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.masking import Masking, masked_batches
from bert_flow_tf.training.pairs import Pairs, fingerprint
from bert_flow_tf.training.schedule import WarmupLinearDecay
from bert_flow_tf.training.train import Stages
from glow.optimizer import AdamWeightDecay

_KEPT_CHECKPOINTS = 2
_LOG_EVERY_STEP = 10
_UNCUT = 2**31
_ACTIVATIONS = {
    "gelu_tanh": functools.partial(tf_keras.activations.gelu, approximate=True),
    "gelu_erf": tf_keras.activations.gelu,
}


def pretrain(
    sentences: Iterable[str],
    source: EncoderSource,
    out_dir: str | os.PathLike,
    settings: PretrainingSettings,
    *,
    devices: DeviceSettings | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
    show_progress_bar: bool | None = False,
) -> TrainingResults:
    """Continue the encoder of `source` on text, or resume; write the encoder folder and return the run's results.

    The optimiser is TF1 BERT's: `glow.optimizer` with `training.schedule`. The pooler stays as it is.

    Args:
      sentences: sentences or paragraphs; empty ones are left out.
      overwrite: True to replace the encoder folder and begin again.
      report: is called with a line for each dev loss.
      show_progress_bar: None shows it on a terminal only; `report` is then best `report_line`.

    Raises:
      UserError: see `check_run`; the text or a setting does not fit; a loss is not finite; the disk is full.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    settings.check()
    run_dir, devices = run_folder(out_dir), devices or DeviceSettings()
    with locked(out_dir), locked_run(run_dir):
        if os.path.exists(out_dir) and (run_dir / TRAIN_RESULTS_FILE).exists():
            # A command may have been killed after it had written the folder.
            _remove_checkpoints(run_dir)
        out = output_folder(out_dir, ENCODER_FOLDER, overwrite=overwrite)
        stages, strategy = Stages(), configure_devices(devices, None, settings.train_batch_size)
        tokenizer = Tokenizer.from_source(source)
        pieces = _windows(_tokenized(tokenizer, sentences), settings.max_seq_length - 2)
        config = _run_config(source, settings, devices, pieces)
        resumed = check_run(run_dir, config, overwrite, [out], named_by="--out")
        with strategy.scope():
            model = compiled_model(source, settings)
        steps = callbacks.Steps(
            run_dir,
            _KEPT_CHECKPOINTS,
            optimizer=model.optimizer,
            encoder=model.encoder.variables_by_name,
            head=model.head_variables,
        )
        if resumed:
            steps.restore()
        else:
            begin_run(run_dir, config, overwrite)
        stages.end("load")
        results_path = run_dir / TRAIN_RESULTS_FILE
        if results_path.exists():
            results = read_json(results_path, TrainingResults, expected="a finished run's results")
        else:
            hides_bar = None if show_progress_bar is None else not show_progress_bar
            losses = _fit(model, steps, settings, pieces, tokenizer, report, hides_bar)
            stages.end("train")
            results = TrainingResults(
                made_by=config.made_by,
                model=model_at(config, steps.manager.latest_checkpoint),
                data=config.data,
                steps=int(steps.step),
                stages=stages.ended,
                replicas=strategy.num_replicas_in_sync,
                dev_losses=losses,
            )
            write_json(results_path, results)
        variables = {name: variable.numpy() for name, variable in model.encoder.variables_by_name.items()}
        with new_folder(out) as folder:
            write_with_weights(folder, source, variables, _origin(results))
        _remove_checkpoints(run_dir)
        return results


def report_line(line: str) -> None:
    """Write a line to stderr, above a bar."""
    tqdm.write(line, file=sys.stderr)


def _origin(results: TrainingResults) -> dict[str, Any]:
    """Return what an encoder folder says of the run that made it."""
    training = msgspec.to_builtins(results.model.encoder.fine_tuning)
    pooler = "as in the encoder that it started from"
    losses = results.dev_losses
    return {"kind": MASKED_LM, "steps": results.steps, "dev_losses": losses, "pooler": pooler, "training": training}


def _remove_checkpoints(run_dir: pathlib.Path) -> None:
    for path in (*run_dir.glob(f"{CHECKPOINT_NAME}-*"), *run_dir.glob("checkpoint")):
        path.unlink()


def _run_config(
    source: EncoderSource, settings: PretrainingSettings, devices: DeviceSettings, pieces: tf.RaggedTensor
) -> RunConfig:
    flags = dataclasses.asdict(settings) | {"use_xla": devices.use_xla}
    # The encoder does not depend on it.
    del flags["save_checkpoints_steps"]
    sentences = int(pieces.nrows())
    tuning = {name: value for name, value in flags.items() if name != "seed"}
    encoder = encoder_record(source)
    learned = Training(
        settings={"objective": MASKED_LM, "sentences": sentences, **tuning},
        seed=settings.seed,
        began_with=encoder.fine_tuning,
    )
    encoder = msgspec.structs.replace(encoder, fingerprint=None, weights=None, fine_tuning=learned)
    return RunConfig(
        made_by=made_by("bert-flow pretrain"),
        model=Model(encoder=encoder, pooling="avg", max_seq_length=settings.max_seq_length),
        encoder=source.files,
        encoder_flags=absolute_flags({"bert_hub": source.bert_hub, "preprocess_hub": source.preprocess_hub}),
        encoder_trained=True,
        data=TrainingData(num_examples=sentences, fingerprint=fingerprint(Pairs(pieces, np.empty(0)))),
        flags=flags,
    )


def compiled_model(source: EncoderSource, settings: PretrainingSettings) -> MaskedLanguageModel:
    """Return the encoder of `source` with a new head, and TF1 BERT's optimiser.

    Raises:
      UserError: the encoder cannot be loaded, or has fewer positions than `settings.max_seq_length`.
    """
    encoder = SentenceEncoder(source, "avg", trainable=True)
    if encoder.max_seq_length and settings.max_seq_length > encoder.max_seq_length:
        raise ArgumentError(
            f"max_seq_length: found {settings.max_seq_length}, expected at most {encoder.max_seq_length}, the "
            f"positions of the encoder {source.bert_hub}"
        )
    encoder.seed_dropout(settings.seed)
    config = encoder.bert_config
    # TF-Hub's BERTs have TF1's GELU.
    activation = "gelu_tanh" if config is None else config.hidden_act
    model = MaskedLanguageModel(
        encoder,
        activation=_ACTIVATIONS.get(activation, activation),
        initializer_range=0.02 if config is None else config.initializer_range,
        seed=settings.seed,
    )
    schedule = WarmupLinearDecay(settings.learning_rate, settings.steps, settings.num_warmup_steps)
    model.compile(AdamWeightDecay(schedule, name="adam"))
    return model


def _fit(
    model: MaskedLanguageModel,
    steps: callbacks.Steps,
    settings: PretrainingSettings,
    pieces: tf.RaggedTensor,
    tokenizer: Tokenizer,
    report: Callable[[str], None],
    hides_bar: bool | None,
) -> dict[str, float]:
    """Train to the end; return the dev losses by step."""
    train, dev = _split(pieces, settings)
    masking = Masking(
        tokenizer, settings.masked_lm_prob, settings.do_whole_word_mask, settings.max_seq_length, settings.seed
    )
    if not steps.manager.latest_checkpoint:
        save_checkpoint(steps.manager, 0)
    run_dir, total, begins_at = pathlib.Path(steps.manager.directory), settings.steps, int(steps.step)
    progress = callbacks.Progress(steps.step, total, run_dir, _LOG_EVERY_STEP, has_bar=True)
    used: list[tf_keras.callbacks.Callback] = [progress]
    losses = None
    if int(dev.nrows()):
        losses = _DevLosses(model, steps.step, settings, masking, dev, run_dir, progress.writer, report)
        losses.evaluate_when_due()
        used.append(losses)
    elif settings.dev_fraction > 0:
        report("note: no sentence is left to be held out, so there is no dev loss")
    if begins_at < total:
        batches = masked_batches(train, masking, batch_size=settings.train_batch_size, skip_steps=begins_at)
        with tqdm(desc=MASKED_LM, initial=begins_at, total=total, unit="step", disable=hides_bar) as bar:
            used.append(tf_keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: bar.update()))
            save_every = settings.save_checkpoints_steps
            steps.fit(model, batches, total, model.learned_variables, save_every=save_every, used=used)
    if losses is None:
        return {}
    losses.evaluate()
    return losses.by_step


class _DevLosses(tf_keras.callbacks.Callback):
    """The mean loss of the held-out sentences' predicted word pieces, by step; its masks are always the same."""

    def __init__(
        self,
        network: MaskedLanguageModel,
        step: tf.Variable,
        settings: PretrainingSettings,
        masking: Masking,
        pieces: tf.RaggedTensor,
        run_dir: pathlib.Path,
        writer: tf.summary.SummaryWriter,
        report: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._step, self._settings, self._writer, self._report = step, settings, writer, report
        self._path = run_dir / "dev_losses.json"
        self.by_step: dict[str, float] = {}
        if self._path.exists():
            seen = read_json(self._path, dict[str, float], expected="dev losses by step", versioned=False)
            self.by_step = {at: loss for at, loss in seen.items() if int(at) <= int(step)}
        self._train_losses: list[float] = []
        self._batches = []
        mask = tf.function(masking, reduce_retracing=True)
        for rows in stream.length_batches(pieces.row_lengths().numpy()):
            tokens = masking.tokenizer.pack(tf.gather(pieces, rows), masking.max_seq_length)
            # No sentence of training has a number below 0.
            self._batches.append(mask(tokens, tf.constant(-1 - rows, tf.int64)))
        labels = tf.TensorSpec([None, None], tf.int32)
        self._losses_of = tf.function(network.token_losses, input_signature=[TOKEN_SPECS, labels], autograph=False)

    def on_train_batch_end(self, batch: int, logs: callbacks.Logs) -> None:
        self._train_losses.append(float(logs["loss"]))
        self.evaluate_when_due()

    def evaluate_when_due(self) -> None:
        """Compute the loss where a checkpoint is saved."""
        if int(self._step) % self._settings.save_checkpoints_steps == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Compute and report the loss at this step, unless it is known."""
        step = str(int(self._step))
        if step in self.by_step:
            return
        losses = callbacks.outside_of_strategies(lambda: [self._losses_of(*batch).numpy() for batch in self._batches])
        loss = float(np.mean(np.concatenate(losses), dtype=np.float64))
        if not math.isfinite(loss):
            raise UserError(
                f"step {step}: found a dev loss of {loss}, expected a finite number (a lower learning_rate, or "
                "held-out sentences with words that masked_lm_prob and do_whole_word_mask let predict)"
            )
        self.by_step[step] = loss
        write_json(self._path, self.by_step)
        trained = f"loss {np.mean(self._train_losses):.4f}, " if self._train_losses else ""
        self._train_losses.clear()
        with self._writer.as_default(step=int(step)):
            tf.summary.scalar("dev_loss", loss)
        perplexity = math.exp(min(loss, 700.0))
        self._report(
            f"step {step} of {self._settings.steps}: {trained}dev loss {loss:.4f} (perplexity {perplexity:.4g})"
        )


def _tokenized(tokenizer: Tokenizer, sentences: Iterable[str]) -> tf.RaggedTensor:
    """Return word pieces of the sentences that have any: int32 RaggedTensor [n, (t)]."""
    pieces = stream.tokenize(tokenizer, [sentence for part in parts(sentences) for sentence in part], _UNCUT)
    pieces = tf.ragged.boolean_mask(pieces, pieces.row_lengths() > 0)
    if not int(pieces.nrows()):
        raise UserError("sentences: found no text, expected a sentence or paragraph each")
    return pieces


def _windows(pieces: tf.RaggedTensor, most: int) -> tf.RaggedTensor:
    """Cut the rows of ragged int32 [n, (t)] into rows of at most `most`, in their order."""
    lengths = pieces.row_lengths().numpy()
    counts = -(-lengths // most)
    cut = np.full(counts.sum(), most)
    cut[np.cumsum(counts) - 1] = lengths - (counts - 1) * most
    return tf.RaggedTensor.from_row_lengths(pieces.flat_values, cut)


def _split(pieces: tf.RaggedTensor, settings: PretrainingSettings) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Return the sentences to learn from, and those that are held out."""
    count = int(pieces.nrows())
    held_out = min(math.ceil(count * settings.dev_fraction), MOST_DEV_SENTENCES, count - 1)
    order = np.random.default_rng([settings.seed, 0]).permutation(count)
    return tf.gather(pieces, np.sort(order[held_out:])), tf.gather(pieces, np.sort(order[:held_out]))
