"""The whole method as one command: siamese NLI fine-tuning, the flow on the target sentences, scores, an export.

    bash run_scripts/siamese_then_flow.sh [--overwrite] [--verbose]

usage: python -m bert_flow_tf.recipe [--help] [--overwrite] [--verbose]

  --overwrite   delete what an earlier run left in the directories this one uses, and run every stage again
  --verbose     show each stage's command and all that it logs

Environment variables; without any, the demo encoder learns from the sample data in ./exp:
  BERT_NAME          base, large or large-wwm; from BERT_PREMODELS if that is set, else base and large from TF-Hub
  BERT_PREMODELS     folder of TF1 BERT checkpoints, such as uncased_L-12_H-768_A-12 (base)
  BERT_HUB           TF-Hub handle, folder of a SavedModel, base, large or demo; overrides BERT_NAME
  PREPROCESS_HUB     preprocess model that belongs to BERT_HUB, where BERT_HUB does not say it
  INIT_CKPT          checkpoint to begin with (default: the weights that the encoder comes with)
  GLUE_DIR           folder with STS-B (its sts-test.csv too), MNLI, SNLI in GLUE's layout (default: the sample data)
  TASK_NAME          task to learn the flow on and to score (default: STS-B)
  OUTPUT_PARENT_DIR  where everything is written (default: ./exp)
  CACHED_DIR         cache of embeddings (default: OUTPUT_PARENT_DIR/cached_data)
  RANDOM_SEED        seed of every stage (default: 1234)
  SKIP_NLI           1: no NLI fine-tuning
  BERT_FLOW_CACHE    folder of what is downloaded and converted once (default: ~/.cache/bert_flow_tf)
  TFHUB_CACHE_DIR    folder of models from TF-Hub (default: BERT_FLOW_CACHE/tfhub)

A finished stage is not run again: rerun the same command to resume an interrupted run at the stage it was in. Stages
and settings are those of the original's README: 1 epoch of NLI at 2e-5 in batches of 16; 1 epoch of the flow at 1e-3 in
batches of 32, all splits, config_l3_d3_w32.
"""

import gc
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import absl.logging

from bert_flow_tf.encoder.shared import sharing_encoders
from bert_flow_tf.errors import UserError, exit_status, quiet_libraries
from bert_flow_tf.recipe.stages import Stage, read_environment, recipe_stages
from bert_flow_tf.results.records import TaskScores
from bert_flow_tf.results.table import METRIC_NAMES, WHY_FLOW, Entry, Table, fall, number, x100

# The end of a title: the stage scores with a flow what the stage without this end scores without one.
_WITH_FLOW = " + flow"
_PACKAGE = str(pathlib.Path(__file__).parents[1])


class Outcome(NamedTuple):
    """A finished stage; `seconds` is None if it was finished before, `scores` if it predicts nothing."""

    stage: Stage
    seconds: float | None
    scores: TaskScores | None


def run(stages: Sequence[Stage], *, overwrite: bool = False, verbose: bool = False) -> list[Outcome]:
    """Run the stages in their order, which share one encoder; a finished one is skipped.

    Args:
      overwrite: delete first what all of them made.
      verbose: show commands, and log more than warnings and the progress of training.

    Raises:
      UserError: a stage has a mistake in its settings or data, or found a run of other settings.
    """
    for stage in stages:
        stage.check()
    for stage in stages if overwrite else ():
        stage.clear()
    _log(everything=verbose)
    outcomes = []
    with sharing_encoders():
        for position, stage in enumerate(stages, start=1):
            print(f"[{position}/{len(stages)}] {stage.title}", flush=True)
            if verbose:
                print(f"  {stage.command}", flush=True)
            began = time.monotonic()
            seconds = time.monotonic() - began if stage.run() else None
            if seconds is None:
                print("  done before", flush=True)
            outcomes.append(Outcome(stage, seconds, stage.scores()))
            # The next stage's model should not be there beside this one's.
            gc.collect()
    return outcomes


def _log(*, everything: bool) -> None:
    """Log what this package says, or only its warnings and the progress of training."""

    def is_shown(record: logging.LogRecord) -> bool:
        is_ours = record.pathname.startswith(_PACKAGE) and (everything or record.module == "callbacks")
        return is_ours or record.levelno >= logging.WARNING

    absl.logging.use_absl_handler()
    absl.logging.set_verbosity(absl.logging.INFO)
    handler = absl.logging.get_absl_handler()
    handler.addFilter(is_shown)
    handler.setFormatter(logging.Formatter("%(message)s"))


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of each stage's scores x100 and its seconds."""
    scores = {one.stage.title: one.scores for one in outcomes if one.scores is not None}
    is_auc = any(one.metric == "auc" for one in scores.values())
    names = ("auc",) if is_auc else ("pearson", "spearman")
    rows: list[list[Entry]] = []
    changes = []
    for stage, seconds, scored in outcomes:
        plain, off = stage.title.removesuffix(_WITH_FLOW), None
        if plain != stage.title and plain in scores:
            off = 100 * (scores[stage.title].by_protocol["all"] - scores[plain].by_protocol["all"])
            changes.append(f"{off:+.2f} {plain}")
        marks = filter(None, (fall(off), "done before" if seconds is None else ""))
        cells = [x100(getattr(scored, name)["all"] if scored else None) for name in names]
        rows.append([stage.title, *cells, number(seconds, 1), ", ".join(marks)])
    metric = METRIC_NAMES[names[-1]]
    notes = (f"{metric} with the flow: {'; '.join(changes)}.", *WHY_FLOW) if changes else ()
    total = ["total", *(None for _ in names), number(sum(one.seconds or 0.0 for one in outcomes), 1), ""]
    columns = ("stage", *(METRIC_NAMES[name] for name in names), "seconds", "")
    return Table(columns, [*rows, total], notes=notes, has_total=True)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the recipe's command line and return its exit status."""

    def work(overwrite: bool, verbose: bool) -> None:
        recipe = read_environment(environ)
        print(f"encoder: {recipe.encoder_flags.get('bert_hub') or recipe.encoder_flags['init_checkpoint']}")
        print(f"data: {recipe.glue_dir}, task {recipe.target.name}, seed {recipe.seed}")
        print(f"output: {recipe.output_dir}", flush=True)
        stages = recipe_stages(recipe)
        print(f"\n{table(run(stages, overwrite=overwrite, verbose=verbose)).to_text()}")
        print(f"\nSavedModel: {stages[-1].export_to}")

    return command_line(work, __doc__, sys.argv[1:] if arguments is None else arguments)


def command_line(work: Callable[[bool, bool], None], help_text: str, arguments: Sequence[str]) -> int:
    """Return the exit status of `work`, called with the values of `--overwrite` and `--verbose`; print `--help`."""

    def status() -> int:
        if {"--help", "-h"} & {*arguments}:
            print(help_text.strip())
            return 0
        if unknown := [argument for argument in arguments if argument not in ("--overwrite", "--verbose")]:
            raise UserError(f"unknown argument {unknown[0]!r}, expected --overwrite, --verbose or --help")
        try:
            work("--overwrite" in arguments, "--verbose" in arguments)
        except KeyboardInterrupt:
            print("interrupted; rerun the same command to resume", file=sys.stderr)
            return 130
        return 0

    quiet_libraries()
    return exit_status(status)
