"""The whole method as one command: siamese NLI fine-tuning, the flow on the target sentences, scores, an export.

    bash run_scripts/siamese_then_flow.sh [--overwrite] [--verbose]

usage: python -m bert_flow_tf.recipe [--help] [--overwrite] [--verbose]

  --overwrite   delete what an earlier run left in the directories this one uses, and run every stage again
  --verbose     show each stage's command and all that it prints

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
  BERT_FLOW_CACHE    folder of what is downloaded, converted and measured once (default: ~/.cache/bert_flow_tf)
  TFHUB_CACHE_DIR    folder of models from TF-Hub (default: BERT_FLOW_CACHE/tfhub)

A finished stage is not run again: its settings, seconds and scores are in OUTPUT_PARENT_DIR/recipe. Rerun the same
command to resume an interrupted run at the stage it was in. Stages and settings are those of the original's README: 1
epoch of NLI at 2e-5 in batches of 16; 1 epoch of the flow at 1e-3 in batches of 32, all splits, config_l3_d3_w32.
"""

import os
import pathlib
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.data.tasks import gold_scores
from bert_flow_tf.errors import UserError, exit_status, plain_interrupts
from bert_flow_tf.evaluation.predicted import PredictionScores, read_predictions, score_predictions
from bert_flow_tf.evaluation.protocols import agreement
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.stages import Stage, Target, stages_of
from bert_flow_tf.recipe.stamps import FINISHED, RUNNING, TO_DO_AGAIN, Stamp, Stamps
from bert_flow_tf.recipe.worker import Worker
from bert_flow_tf.results.records import SCORES_FILE, Agreement, Predictions, TaskScores
from bert_flow_tf.results.records import Scores as ScoresRecord
from bert_flow_tf.results.table import WHY_FLOW, Entry, Table, fall, number, x100
from bert_flow_tf.runs.folder import DEV_RESULTS_FILE, TRAIN_RESULTS_FILE, latest_checkpoint, remove_run
from bert_flow_tf.runs.record import made_by

# End of the title of what is scored with a flow.
_WITH_FLOW = " + flow"


class StageFailed(Exception):
    """A stage's command ended with an exit status, having said why, or was ended by a signal.

    `status` is what the recipe ends with: the same, or, as a shell says it, 128 and the signal's number.
    """

    def __init__(self, stage: Stage, status: int):
        failed = f"failed with exit status {status}, see above"
        if status < 0:
            failed = f"was ended by {signal.Signals(-status).name}, rerun the same command to resume"
        super().__init__(f"the stage {stage.title!r} {failed}")
        self.status = status if status > 0 else 128 - status


@plain_interrupts()
def run(
    stages: Sequence[Stage],
    output_dir: pathlib.Path,
    *,
    overwrite: bool = False,
    verbose: bool = False,
    execute: Callable[[Sequence[str]], int] | None = None,
) -> list[tuple[Stamp, bool]]:
    """Each stage's stamp, and whether it was done before, after running in this order what was not.

    Stamps are kept in `output_dir / "recipe"`. With `overwrite`, every stage is run again, after deleting what it made.
    With `verbose`, commands and all that they print are shown. `execute` gives the exit status of a stage's command;
    None runs all of them in one `Worker`.

    Raises:
      UserError: a stage was begun with other settings, data is missing, or another process is using `output_dir`.
      StageFailed: a stage's command failed.
    """
    stamps = Stamps(output_dir / "recipe")
    with locked(stamps.folder), Worker(verbose=verbose) as worker:
        if overwrite:
            # All of them first: should this run be interrupted, the next one still knows which results are old.
            for stage in stages:
                stamps.write(stage, TO_DO_AGAIN)
        # All before the first is run: a refusal costs no time.
        found = [stamps.read(stage) for stage in stages]
        results = []
        for position, (stage, stamp) in enumerate(zip(stages, found, strict=True), start=1):
            heading = f"[{position}/{len(stages)}] {stage.title}"
            if stamp is not None and stamp.state == FINISHED:
                print(f"{heading}: done before", flush=True)
                results.append((stamp, True))
            else:
                print(f"\n{heading}" if verbose else heading, flush=True)
                state = None if stamp is None else stamp.state
                results.append((_run_stage(stage, stamps, state, execute or worker.run, verbose), False))
                if stage.trains_encoder:
                    # TensorFlow would keep the memory that training took, several times what the others need.
                    worker.end()
        return results


def _run_stage(
    stage: Stage, stamps: Stamps, state: str | None, execute: Callable[[Sequence[str]], int], verbose: bool
) -> Stamp:
    flags = list(stage.flags)
    if stage.begins_with is not None:
        flags.append(f"--init_checkpoint={latest_checkpoint(stage.begins_with)}")
    if stage.makes is not None and stage.makes.exists():
        # Its process may have outlived the recipe that started it.
        with locked(stage.makes):
            if state == TO_DO_AGAIN or (state == RUNNING and not stage.resumes):
                _remove(stage.makes)
            elif state == RUNNING and _is_finished(stage):
                # Interrupted before its stamp was written.
                return stamps.write(stage, FINISHED)
    stamps.write(stage, RUNNING)
    command = [sys.executable, "-m", stage.module, *flags]
    if verbose:
        print(f"  {shlex.join(command)}", flush=True)
    began = time.monotonic()
    status = execute(command)
    if status:
        raise StageFailed(stage, status)
    results: dict[str, float | str] = {}
    task = stage.predicts
    if task is not None and task.has_gold and stage.prediction_path is not None:
        cosines, where = read_predictions(stage.prediction_path), (task.name, task.folder.parent, task.split)
        scores = score_predictions(cosines, *where)
        if verbose:
            print(scores, flush=True)
        write_json(
            stage.run_dir / SCORES_FILE,
            _record(scores, task, stage.prediction_path, agreement(cosines, gold_scores(*where))),
        )
        results = {"split": task.split, **scores.rounded()}
    return stamps.write(stage, FINISHED, seconds=round(time.monotonic() - began, 2), **results)


def _remove(made: pathlib.Path) -> None:
    if not made.is_dir():
        made.unlink()
    elif made.is_symlink():
        remove_run(made)
    else:
        shutil.rmtree(made)


def _is_finished(stage: Stage) -> bool:
    """Whether what a stage makes, which is there, is all of it."""
    if stage.whole is not None:
        return stage.whole.exists()
    return stage.makes is not None and all(
        (stage.makes / name).exists() for name in (TRAIN_RESULTS_FILE, DEV_RESULTS_FILE)
    )


def predictions_record(path: pathlib.Path) -> Predictions:
    """What `run_siamese` wrote beside a file of predictions; a `UserError` if it is missing or broken."""
    return read_json(path.with_suffix(".json"), Predictions, expected="a record of predictions")


def _record(scores: PredictionScores, task: Target, predictions: pathlib.Path, agrees: dict[str, Any]) -> ScoresRecord:
    """What is written of a stage's scores, for reports; `agrees` is what plots show."""
    predicted = predictions_record(predictions)
    by_metric: dict[str, Any] = {name: {"all": score} for name, score in vars(scores).items() if score is not None}
    task_scores = TaskScores(
        title=task_title(task.name),
        metric="auc" if "auc" in by_metric else "spearman",
        split=task.split,
        source=str(task.folder),
        pairs=predicted.pairs,
        agreement=Agreement(**agrees),
        **by_metric,
    )
    return ScoresRecord(made_by=made_by("recipe"), model=predicted.model, tasks={task.name: task_scores})


def table(results: Sequence[tuple[Stamp, bool]]) -> Table:
    """Each stage's Pearson and Spearman x100 and its seconds, of its stamp and whether it was done before."""
    scores = {stamp.title: stamp.spearman for stamp, _ in results}
    rows: list[list[Entry]] = []
    changes = []
    for stamp, was_done in results:
        plain = scores.get(stamp.title.removesuffix(_WITH_FLOW)) if stamp.title.endswith(_WITH_FLOW) else None
        off = None if plain is None or stamp.spearman is None else 100 * (stamp.spearman - plain)
        if off is not None:
            changes.append(f"{off:+.2f} {stamp.title.removesuffix(_WITH_FLOW)}")
        marks = filter(None, (fall(off), "done before" if was_done else ""))
        scored = map(x100, (stamp.pearson, stamp.spearman))
        rows.append([stamp.title, *scored, number(stamp.seconds, 1), ", ".join(marks)])
    notes = (f"Spearman with the flow: {'; '.join(changes)}.", *WHY_FLOW) if changes else ()
    total = ["total", None, None, number(sum(stamp.seconds for stamp, _ in results), 1), ""]
    return Table(("stage", "Pearson", "Spearman", "seconds", ""), [*rows, total], notes=notes, has_total=True)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Exit status of the recipe; see `exit_status_of`."""

    def work(overwrite: bool, verbose: bool) -> None:
        recipe = read_environment(environ)
        print(f"encoder: {recipe.encoder_flags.get('bert_hub') or recipe.encoder_flags['init_checkpoint']}")
        print(f"data: {recipe.glue_dir}, task {recipe.target.name}, seed {recipe.seed}")
        print(f"output: {recipe.output_dir}", flush=True)
        stages = stages_of(recipe)
        results = run(stages, recipe.output_dir, overwrite=overwrite, verbose=verbose)
        print(f"\n{table(results).to_text()}")
        print(f"\nSavedModel: {stages[-1].run_dir}")

    return exit_status_of(work, __doc__, sys.argv[1:] if arguments is None else arguments)


def exit_status_of(work: Callable[[bool, bool], None], help_text: str, arguments: Sequence[str]) -> int:
    """0; 2 after one `error:` line; a failed stage's own; 128 + the signal's number if interrupted.

    Args:
      work: runs stages; its arguments are whether `--overwrite` and `--verbose` are given.
      help_text: what `--help` prints instead.
      arguments: of the command line.
    """
    return exit_status(_status, work, help_text, list(arguments))


def _status(work: Callable[[bool, bool], None], help_text: str, arguments: list[str]) -> int:
    if set(arguments) & {"--help", "-h"}:
        print(help_text.strip())
        return 0
    if unknown := [argument for argument in arguments if argument not in ("--overwrite", "--verbose")]:
        raise UserError(f"unknown argument {unknown[0]!r}, expected --overwrite, --verbose or --help")
    try:
        work("--overwrite" in arguments, "--verbose" in arguments)
    except StageFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt as interrupt:
        print("interrupted; rerun the same command to resume", file=sys.stderr)
        return 128 + (interrupt.args or (signal.SIGINT,))[0]
    return 0
