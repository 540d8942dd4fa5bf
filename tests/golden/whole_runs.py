"""Replay whole trainings of the TF1 code from recorded values.

    python -m tests.golden.whole_runs DIR GLUE_DIR NLI_DIR DEVIATIONS.json

prints how far the runs of DIR are from the TF1 code's, for `bert-flow verify --whole_runs`. Without
MNLI in NLI_DIR, the runs with a classifier are left out.

NAME.json holds a run's settings; NAME.npz what the TF1 code had and computed: `order` [steps,
pairs], numbers of pairs in file order; `var/…`, the initial values of flow or classifier; `losses`
and `flow_losses` [steps]; `test_cosines` of the STS Benchmark's test pairs; and, if BERT was
trained, `final_norm`, the norms of its variables at the end, in the order of TF1's graph.
NAME_one_ulp_away.npz is the same run by the TF1 code after half of all weights were moved by one
unit in the last place: its distance from NAME.npz is what rounding alone makes of a run.
"""

import dataclasses
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.common.errors import UserError, exit_status, log_progress, quiet_libraries
from bert_flow_tf.common.json_files import Positive, read_json
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import CalibrationRecord, ModelRecord, Training
from bert_flow_tf.common.settings import chosen, flow_config
from bert_flow_tf.common.table import Cell, Table
from bert_flow_tf.encoder.source import EncoderSource, encoder_record, resolve_encoder
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.original.build import TF1_OUTPUT_WEIGHTS, build_model
from bert_flow_tf.original.pairs import scaled_labels, tokenize_pairs
from bert_flow_tf.original.settings import LossSettings, ModelSettings, TrainingSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.original.train import new_batches
from bert_flow_tf.tasks import tasks
from bert_flow_tf.vectors.batches import distinct
from bert_flow_tf.vectors.metrics import spearman
from glow.optimizer import DECAY_RATE, AdamWeightDecay, WarmupLinearDecay
from glow.tf1_checkpoint import assign_tf1_variables

# TF1's rounding changes the losses of the first ten steps by up to 5e-7, and a wrong step changes
# them by 2e-3 or more. Later, rounding has grown, so a run may be twice as far from TF1's as TF1's
# second run. Losses do not show a weight decay of the layer norms, but gammas do: they are 0.05 of
# a whole decay from TF1's without one, and 0.85 with it.
_FIRST_LIMIT, _RATIO_LIMIT, _DECAY_LIMIT = 1e-5, 2.0, 0.25
_VERDICTS = ("nearer to TF1 than", "as near to TF1 as", "farther from TF1 than")
_STSB = tasks.TASKS["sts-b"]


class WholeRun(msgspec.Struct, frozen=True):
    """A run's settings; `flags` are those of the original."""

    flags: dict[str, Any]
    pairs: Positive
    steps: Positive
    warmup: int
    learning_rate: float
    flow_learning_rate: float
    max_seq_length: Positive
    bert_hub: str = "demo"


@dataclasses.dataclass(frozen=True)
class Distance:
    """A run's distance from TF1's.

    Attributes:
      losses: largest difference of a loss within the first 10 steps, the first 50, and all.
      cosines: mean difference of the test pairs' cosines.
      spearman: Spearman's correlation of the run's own cosines with the gold scores.
    """

    losses: tuple[float, float, float]
    cosines: float
    spearman: float


@dataclasses.dataclass(frozen=True)
class Replay:
    """A replayed run beside the two runs of the TF1 code.

    Attributes:
      ours, theirs: the distances of this code's run and of TF1's second run.
      spearman: that of TF1's run.
      decay: mean relative difference of the layer norms' gamma, in shares of a whole weight decay;
        None if frozen.
    """

    name: str
    ours: Distance
    theirs: Distance
    spearman: float
    decay: float | None

    @property
    def deviations(self) -> list[tuple[str, float, float]]:
        """The names of what was compared, deviations and limits."""
        ours, theirs = self.ours, self.theirs
        first = max(_FIRST_LIMIT, _RATIO_LIMIT * theirs.losses[0])
        found = (
            []
            if self.decay is None
            else [("weight decay of layer norms", self.decay, _DECAY_LIMIT)]
        )
        found.append(("loss of the first 10 steps", ours.losses[0], first))
        found.append(
            ("loss of all steps, in TF1's drifts", ours.losses[2] / theirs.losses[2], _RATIO_LIMIT)
        )
        found.append(("cosines, in TF1's drifts", ours.cosines / theirs.cosines, _RATIO_LIMIT))
        return [(f"whole run {self.name}, {what}", value, limit) for what, value, limit in found]

    @property
    def verdict(self) -> str:
        # A deviation that is not finite is above its limit.
        is_near = all(value <= limit for _, value, limit in self.deviations)
        is_nearer = all(value <= 1 for _, value, _ in self.deviations[-2:])
        words = _VERDICTS[2 - is_near - (is_near and is_nearer)]
        return f"{self.name}: {words} TF1 is to itself after one rounding of its weights"


def replay_runs(
    folder: pathlib.Path, glue_dir: pathlib.Path, nli_dir: pathlib.Path | None
) -> list[Replay]:
    """Replay the runs of a folder.

    Args:
      glue_dir: folder with `STS-B`, and its `sts-test.csv`.
      nli_dir: folder with `MNLI` and `SNLI`; None leaves out the runs with a classifier.
    """
    names = [path.stem for path in sorted(folder.glob("*.json"))]
    if not names:
        raise UserError(
            f"{folder}: found no NAME.json of a run, expected the TF1 code's whole runs"
        )
    replays = (replay(folder / name, glue_dir, nli_dir) for name in names)
    return [one for one in replays if one is not None]


def whole_runs_table(replays: Sequence[Replay]) -> Table:
    """Return each run's distance from TF1's beside that of TF1's second run."""
    rows: list[Sequence[Cell | str]] = []
    for one in replays:
        for who, found in (
            (f"{one.name}, here", one.ours),
            (f"{one.name}, TF1 one unit away", one.theirs),
        ):
            differences = [
                Cell(f"{value:.1e}", is_number=True) for value in (*found.losses, found.cosines)
            ]
            both = f"{100 * found.spearman:.2f} against {100 * one.spearman:.2f}"
            rows.append([who, *differences, Cell(both, is_number=True)])
    columns = (
        "distance from TF1's run",
        "loss: first 10 steps",
        "first 50",
        "all",
        "mean cosine",
        "Spearman",
    )
    return Table(columns, rows, notes=[one.verdict for one in replays])


def replay(
    path: pathlib.Path, glue_dir: pathlib.Path, nli_dir: pathlib.Path | None
) -> Replay | None:
    """Replay the run of PATH.json; return None if its data are missing."""
    run = read_json(
        path.with_suffix(".json"), WholeRun, expected="a whole run's settings", versioned=False
    )
    with reading(path, "the values of a whole run"):
        theirs, moved = dict(np.load(f"{path}.npz")), dict(np.load(f"{path}_one_ulp_away.npz"))
    is_nli = f"var/{TF1_OUTPUT_WEIGHTS}" in theirs
    if is_nli and nli_dir is None:
        logging.warning(
            "%s is not replayed without --nli_dir, a folder of MNLI and SNLI", path.name
        )
        return None
    task, parent = (tasks.TASKS["allnli"], nli_dir) if is_nli else (_STSB, glue_dir)
    examples = tasks.read_train(
        task, pathlib.Path(parent or "", task.directory), use_full_for_training=not is_nli
    )
    if len(examples) < run.pairs:
        raise UserError(
            f"{parent}: found {len(examples)} pairs of {task.name}, expected {path.name}'s "
            f"{run.pairs}"
        )
    print(f"replaying {path.name}, {run.steps} steps", file=sys.stderr, flush=True)
    model = start_model(run, theirs, _without_dropout(resolve_encoder(bert_hub=run.bert_hub)))
    losses = train(model, run, examples.take(range(run.pairs)), task, theirs["order"])
    test, gold = (
        tasks.read_split(_STSB, glue_dir / "STS-B", "test"),
        tasks.gold_scores(_STSB, glue_dir, "test"),
    )
    texts = TextEncoder(model.encoder.source, model.encoder, max_seq_length=run.max_seq_length)
    pieces = tokenize_pairs(texts.tokenizer, test, test.labels, run.max_seq_length).pieces
    unique, rows = distinct(pieces)
    u = texts.embed_rows(unique)[rows]
    cosines = model({"embedding": tf.reshape(u, [len(test), 2, -1])}, training=False)[
        "cos_similarity"
    ].numpy()

    def distance(their_losses: np.ndarray, their_cosines: np.ndarray) -> Distance:
        differences = np.abs(their_losses - (theirs["losses"] + theirs["flow_losses"]))
        first, middle, whole = (float(differences[:steps].max()) for steps in (10, 50, None))
        change = float(np.abs(their_cosines - theirs["test_cosines"]).mean())
        return Distance((first, middle, whole), change, spearman(their_cosines, gold))

    second = distance(moved["losses"] + moved["flow_losses"], moved["test_cosines"])
    decay = _layer_norm_decay(model, run, theirs["final_norm"]) if "final_norm" in theirs else None
    return Replay(
        path.name, distance(losses, cosines), second, spearman(theirs["test_cosines"], gold), decay
    )


def _without_dropout(source: EncoderSource) -> EncoderSource:
    bert = source.bert
    config = msgspec.structs.replace(
        bert.config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return dataclasses.replace(source, pretrained=dataclasses.replace(bert, config=config))


def start_model(
    run: WholeRun, values: Mapping[str, np.ndarray], source: EncoderSource
) -> SiameseBertFlow:
    """Return a run's model and optimisers at the start."""
    flags: dict[str, Any] = {"low_dim": -1, **run.flags}
    losses: LossSettings = chosen(LossSettings, flags)
    flow = (
        CalibrationRecord(config=flow_config(flags["flow_model_config"]), training=Training())
        if flags["flow"]
        else None
    )
    shape: Any = {"max_seq_length": run.max_seq_length, "low_dim": flags["low_dim"]}
    record = ModelRecord(
        encoder=encoder_record(source), pooling=flags["sentence_embedding_type"], flow=flow, **shape
    )
    start = {
        name.removeprefix("var/"): value
        for name, value in values.items()
        if name.startswith("var/")
    }
    labels = len(start[TF1_OUTPUT_WEIGHTS]) if TF1_OUTPUT_WEIGHTS in start else None
    model = build_model(
        source, record, num_labels=labels, losses=losses, trainable=not losses.encoder_is_frozen
    )
    if model.output_weights is not None:
        model.output_weights.assign(start[TF1_OUTPUT_WEIGHTS])
    if flow is not None:
        assign_tf1_variables(model.flow, start)
    schedule = WarmupLinearDecay(run.learning_rate, run.steps, run.warmup)
    model.compile(
        AdamWeightDecay(schedule),
        AdamWeightDecay(run.flow_learning_rate) if losses.flow_loss else None,
    )
    return model


def train(
    model: SiameseBertFlow,
    run: WholeRun,
    examples: tasks.Examples,
    task: tasks.Task,
    order: np.ndarray,
) -> np.ndarray:
    """Train as a run does; return each step's loss."""
    tokenizer = model.encoder.source.tokenizer()
    pairs = tokenize_pairs(tokenizer, examples, scaled_labels(examples, task), run.max_seq_length)
    numbers = tf.data.Dataset.from_tensor_slices(order.astype(np.int64)).enumerate()
    settings = ModelSettings(max_seq_length=run.max_seq_length)
    batches = new_batches(model, pairs, lambda: numbers, settings, TrainingSettings(), "")
    losses: list[float] = []
    keep = tf_keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda _, logs: losses.append(
            logs["supervised_loss"] + logs["flow_loss"]
        )
    )
    model.fit(
        batches(len(order), 0, slice(None)), steps_per_epoch=len(order), callbacks=[keep], verbose=0
    )
    return np.array(losses)


def _layer_norm_decay(model: SiameseBertFlow, run: WholeRun, final_norms: np.ndarray) -> float:
    """Return the gammas' difference from TF1's, in shares of a decay."""
    names = [name for name in model.encoder.variables_by_name if name.endswith("LayerNorm/gamma")]
    ours = [
        np.linalg.norm(model.encoder.variables_by_name[name].numpy().astype(np.float64))
        for name in names
    ]
    # In TF1's graph, five variables of the embeddings and sixteen of each layer end with a gamma.
    places = [
        4,
        *(5 + 16 * layer + place for layer in range((len(names) - 1) // 2) for place in (9, 15)),
    ]
    rates = WarmupLinearDecay(run.learning_rate, run.steps, run.warmup)(
        tf.range(run.steps, dtype=tf.float32)
    )
    change = np.mean(np.array(ours) / final_norms[places] - 1)
    return float(abs(change) / (DECAY_RATE * tf.reduce_sum(rates).numpy()))


def main(folder: str, glue_dir: str, nli_dir: str, out: str) -> None:
    nli = pathlib.Path(nli_dir)
    replays = replay_runs(
        pathlib.Path(folder), pathlib.Path(glue_dir), nli if (nli / "MNLI").is_dir() else None
    )
    print(whole_runs_table(replays).to_text())
    pathlib.Path(out).write_text(
        json.dumps([deviation for one in replays for deviation in one.deviations])
    )


if __name__ == "__main__":
    quiet_libraries()
    log_progress()
    sys.exit(exit_status(main, *sys.argv[1:]))
