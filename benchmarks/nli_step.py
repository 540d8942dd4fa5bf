"""One step of siamese training on NLI, as the recipe fine-tunes BERT: `run_siamese` against a PyTorch loop.

Ours is `run_siamese --task_name=ALLNLI` in this process, with one more Keras callback: it times the steps and lets the
other processes take their steps between ours, A B, B A. Theirs (`torch_nli`) is transformers' BERT with PyTorch's AdamW
as it is by default, and, beside that, with its fused kernel. All start from the same weights and see the same pairs in
the same order, 16 a step, padded to the longest sentence.

Compared first are losses and norms of gradients, of an encoder whose rates of dropout are 0, at a learning rate of 0:
TensorFlow 1's Adam, which ours is, and PyTorch's differ in the correction of their moments.

The floor is the time of the encoder's matrix products, forward and, twice that, backward, for the tokens that are
needed, at the rate of `floor`.
"""

import contextlib
import functools
import json
import os
import pathlib
import statistics
import tempfile
import time
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks import nli, peers
from benchmarks.floor import RATE_SECONDS, ROWS, Layers, tensorflow_rate
from benchmarks.hugging_face_folder import hugging_face_folder
from benchmarks.options import Options
from benchmarks.timing import in_own_process, paired_ratios, shown
from bert_flow_tf.encoder.convert.from_huggingface import convert_hugging_face
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.siamese import SiameseBertFlow

WARM_UP = 10
STEPS_PER_BLOCK = 10
QUICK_STEPS = 2  # each of these
COMPARED_STEPS = 5
# Name -> whether AdamW is fused.
THEIRS = {"pytorch": False, "pytorch, fused AdamW": True}
# Largest difference of a loss, and of a norm, relative to it.
LARGEST_DIFFERENCE = 1e-4
# Forward, and backward to the inputs and to the weights.
PASSES = 3


def measure(options: Options) -> dict:
    """dict of times, ratios and figures of one step; see `run`."""
    warm_up, block = (QUICK_STEPS, QUICK_STEPS) if options.quick else (WARM_UP, STEPS_PER_BLOCK)
    # Keras finds a callback slow that waits for the other side.
    tf.get_logger().setLevel("ERROR")
    steps = warm_up + 2 * options.repeats * block
    pairs = len(nli.read_pairs(options))
    with tempfile.TemporaryDirectory() as workspace:
        folder = pathlib.Path(workspace)
        weights = hugging_face_folder(options.bert_hub, folder / "weights")
        # Elsewhere, so that the first step that is timed finds nothing set up.
        found = in_own_process("nli_step", record, options, pairs, steps, folder)
        with _peer(options, folder, 0.0, steps, dropout=False) as worker:
            differences = compare(found, worker.ask("compare", steps=COMPARED_STEPS))
        with contextlib.ExitStack() as stack:
            workers = {
                name: stack.enter_context(_peer(options, folder, nli.LEARNING_RATE, steps, fused=fused))
                for name, fused in THEIRS.items()
            }
            turns = InTurn(
                {name: functools.partial(take_steps, worker) for name, worker in workers.items()}, warm_up, block
            )
            settings = nli.settings(options, pairs, steps, folder / "timed")
            with _noting_when_loaded(turns):
                train(settings, turns)
        lengths = _lengths(folder / "recorded.npz", warm_up)
    layers = Layers.of(resolve_encoder(bert_hub=options.bert_hub))
    rows = max(ROWS, key=lambda m: tensorflow_rate(layers.products(m), 0.3))
    rate = tensorflow_rate(layers.products(rows), RATE_SECONDS)
    floor = PASSES * layers.operations(lengths) / rate / (steps - warm_up)
    seconds = {way: each[warm_up:] for way, each in turns.seconds.items()}
    blocks = {way: [sum(each[i : i + block]) for i in range(0, len(each), block)] for way, each in seconds.items()}
    ratios = {name: paired_ratios(blocks[name], blocks["ours"]) for name in THEIRS}
    median = {way: statistics.median(each) for way, each in seconds.items()}
    first = {way: each[0] for way, each in turns.seconds.items()}
    for way in seconds:
        print(f"  {way:20} {median[way]:8.3f} s per step; {first[way]:.1f} s from the loaded model to the first")
    for name, ratio in ratios.items():
        print(f"  to {name}: {shown(ratio)} x")
    print(f"  floor: {floor:.3f} s per step at {rate / 1e9:.1f} GFLOP/s")
    return {
        "weights": weights,
        "pairs": pairs,
        "pairs_per_step": nli.BATCH_SIZE,
        "tokens_per_step": sum(lengths) / (steps - warm_up),
        "dtype": "float32",
        "largest_differences": differences,
        "seconds_of_steps": turns.seconds,
        "seconds_of_blocks": blocks,
        "ratios": ratios,
        "gflops_per_second": rate / 1e9,
        "figures": {
            "to_pytorch": ratios["pytorch"]["median"],
            "to_pytorch_fused": ratios["pytorch, fused AdamW"]["median"],
            "seconds": median["ours"],
            "first_step_seconds": first["ours"],
            "floor_seconds": floor,
            "percent": 100 * floor / statistics.fmean(seconds["ours"]),
        },
    }


class InTurn(tf_keras.callbacks.Callback):
    """Times the steps of `fit`, and makes way for the peers': first steps, then blocks in the order A B, B A.

    Args:
      theirs: dict of name -> function of a first step and a number of steps that takes these and gives the seconds of
        each.
      warm_up: number of first steps on both sides.
      block: steps that one side takes in turn.

    Attributes:
      seconds: dict of `ours` and the peers' names -> list of the seconds of each step. Our first counts from `since`.
    """

    def __init__(self, theirs: dict[str, Callable[[int, int], list[float]]], warm_up: int, block: int) -> None:
        super().__init__()
        self._theirs, self._warm_up, self._block = theirs, warm_up, block
        self.seconds = {"ours": [], **{name: [] for name in theirs}}
        self.since = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.seconds["ours"].append(time.perf_counter() - self.since)
        done = len(self.seconds["ours"]) - self._warm_up
        if done == 0:
            self._let_them(self._warm_up)
        elif done > 0 and done % (2 * self._block) == self._block:
            # Their block of the same batches, and the one that they have before ours.
            self._let_them(2 * self._block)
        self.since = time.perf_counter()

    def _let_them(self, steps: int) -> None:
        for name, take_steps in self._theirs.items():
            self.seconds[name].extend(take_steps(len(self.seconds[name]), steps))


def take_steps(worker: peers.Worker, first: int, steps: int) -> list[float]:
    """Seconds of each of a peer's steps."""
    return worker.ask("train", first=first, steps=steps)["seconds"]


def compare(
    ours: dict[str, list[float]], theirs: dict[str, list[float]], benchmark: str = "nli_step"
) -> dict[str, float]:
    """Largest differences of the first steps' `losses`, and of the `norms` of their gradients, relative to these.

    Raises:
      UserError: they are too large.
    """
    losses, norms = (np.array([ours[name], theirs[name]]) for name in ("losses", "norms"))
    differences = {
        "loss": float(np.abs(losses[0] - losses[1]).max()),
        "norm": float(np.abs(norms[0] / norms[1] - 1.0).max()),
    }
    print(
        f"  without dropout, {losses.shape[1]} batches: losses differ by {differences['loss']:.1e}, norms of gradients "
        f"by {differences['norm']:.1e} of themselves"
    )
    if not max(differences.values()) <= LARGEST_DIFFERENCE:
        raise UserError(f"{benchmark}: found differences {differences} from PyTorch, expected {LARGEST_DIFFERENCE:.0e}")
    return differences


def record(options: Options, pairs: int, steps: int, folder: pathlib.Path) -> dict[str, list[float]]:
    """dict of the `losses` and `norms` of our first steps with an encoder without dropout that learns nothing.

    Args:
      steps: number of batches that are written to `recorded.npz`, with the classifier's first values.
      folder: with Hugging Face's folder `weights` of the encoder.
    """
    settings = nli.settings(options, pairs, COMPARED_STEPS, folder / "recorded")
    still = still_encoder(folder / "weights", folder / "still")
    losses, norms, fit = [], [], SiameseBertFlow.fit

    def record_and_fit(model: SiameseBertFlow, batches: tf.data.Dataset, **arguments: Any) -> Any:
        seen = list(batches.take(steps))
        arrays = {"classifier": model.output_weights.numpy()}
        for i, (inputs, labels) in enumerate(seen):
            for name, key in (("ids", "input_word_ids"), ("mask", "input_mask")):
                tokens = inputs[key].numpy().astype(np.int64)
                arrays[f"{name}_{i}"] = tokens.reshape(-1, tokens.shape[-1])
            arrays[f"labels_{i}"] = labels.numpy().astype(np.int64)
        np.savez(folder / "recorded.npz", **arrays)
        # A second pass over the same batches would be in another order.
        again = tf.data.Dataset.from_generator(lambda: iter(seen), output_signature=batches.element_spec)
        return fit(model, again.with_options(batches.options()), **arguments)

    def note(batch: int, logs: dict[str, float]) -> None:
        losses.append(float(logs["supervised_loss"]))
        norms.append(float(logs["grad_norm"]))

    noting = tf_keras.callbacks.LambdaCallback(on_train_batch_end=note)
    with unittest.mock.patch.object(SiameseBertFlow, "fit", record_and_fit):
        train(settings | {"bert_hub": str(still), "learning_rate": 0.0}, noting)
    return {"losses": losses, "norms": norms}


def still_encoder(weights: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """`out`, the encoder folder of Hugging Face's folder `weights` with rates of dropout of 0."""
    source = out.with_suffix(".weights")
    source.mkdir()
    for path in weights.iterdir():
        (source / path.name).symlink_to(path)
    config = json.loads((weights / "config.json").read_text())
    (source / "config.json").unlink()
    still = config | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (source / "config.json").write_text(json.dumps(still))
    return convert_hugging_face(source, out)


def train(settings: dict[str, Any], callback: tf_keras.callbacks.Callback) -> None:
    """Runs `run_siamese` with these flags and, behind its own, one more callback; no progress is shown."""
    # Here: it tells TensorFlow which Keras to take, and TensorFlow Probability has to know from the beginning.
    from bert_flow_tf import run_siamese
    from bert_flow_tf.runs.settings import Settings

    fit = SiameseBertFlow.fit

    def fit_with(model: SiameseBertFlow, *arguments: Any, callbacks: list, **options: Any) -> Any:
        return fit(model, *arguments, callbacks=[*callbacks, callback], **options | {"verbose": 0})

    with unittest.mock.patch.object(SiameseBertFlow, "fit", fit_with):
        run_siamese.run(Settings.of(**settings))


@contextlib.contextmanager
def _noting_when_loaded(turns: InTurn) -> Iterator[None]:
    """A context in which the first step is timed from when the model has its weights and optimisers."""
    compile_model = SiameseBertFlow.compile

    def compile_and_note(model: SiameseBertFlow, *arguments: Any, **options: Any) -> None:
        compile_model(model, *arguments, **options)
        turns.since = time.perf_counter()

    with unittest.mock.patch.object(SiameseBertFlow, "compile", compile_and_note):
        yield


@contextlib.contextmanager
def _peer(
    options: Options,
    folder: pathlib.Path,
    learning_rate: float,
    steps: int,
    *,
    dropout: bool = True,
    fused: bool = False,
) -> Iterator[peers.Worker]:
    with peers.Worker("benchmarks.peer_nli_step") as worker:
        loaded = worker.ask(
            "load",
            weights=os.fspath(folder / "weights"),
            recorded=os.fspath(folder / "recorded.npz"),
            learning_rate=learning_rate,
            steps=steps,
            dropout=dropout,
            fused=fused,
        )
        if loaded["threads"] != options.threads:
            raise UserError(f"PyTorch: found {loaded['threads']} threads, expected {options.threads}")
        yield worker


def _lengths(recorded: pathlib.Path, first: int) -> list[int]:
    """Number of tokens of each sentence of the recorded batches from the one numbered `first` on."""
    with np.load(recorded) as stored:
        batches = range(first, sum(name.startswith("mask_") for name in stored.files))
        return [int(n) for i in batches for n in stored[f"mask_{i}"].sum(axis=1)]
