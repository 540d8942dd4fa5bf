"""The whole method as one command: siamese NLI fine-tuning, the flow on the target sentences, scores, an export.

    bash run_scripts/siamese_then_flow.sh [--overwrite]

usage: python -m bert_flow_tf.recipe [--help] [--overwrite]

  --overwrite   delete what an earlier run left in the directories this one uses, and do every stage again

Environment variables; without any, the demo encoder learns from the sample data in ./exp:
  BERT_NAME          base, large or large-wwm; from BERT_PREMODELS if that is set, else base and large from TF-Hub
  BERT_PREMODELS     folder of TF1 BERT checkpoints, such as uncased_L-12_H-768_A-12 (base)
  BERT_HUB           TF-Hub handle, folder of a SavedModel, base, large or demo; goes before BERT_NAME
  PREPROCESS_HUB     preprocess model that belongs to BERT_HUB, where it cannot be told from it
  INIT_CKPT          checkpoint to begin with (default: the weights that the encoder comes with)
  GLUE_DIR           folder with STS-B (its sts-test.csv too), MNLI, SNLI in GLUE's layout (default: the sample data)
  TASK_NAME          task to learn the flow on and to score (default: STS-B)
  OUTPUT_PARENT_DIR  where everything is written (default: ./exp)
  CACHED_DIR         cache of embeddings (default: OUTPUT_PARENT_DIR/cached_data)
  RANDOM_SEED        seed of every stage (default: 1234)
  SKIP_NLI           1: no NLI fine-tuning

A finished stage is not done again: its settings, seconds and scores are in OUTPUT_PARENT_DIR/recipe. An interrupted
run goes on at the stage it was in. Stages and settings are those of the original's README: 1 epoch of NLI at 2e-5 in
batches of 16; 1 epoch of the flow at 1e-3 in batches of 32, all splits, config_l3_d3_w32.
"""

import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from bert_flow_tf.errors import UserError
from bert_flow_tf.experiment import TRAIN_RESULTS_FILE
from bert_flow_tf.recipe_stages import HUB_NAMES, Recipe, Stage, Target, stages_of
from bert_flow_tf.recipe_stamps import FINISHED, RUNNING, TO_DO_AGAIN, Stamps

_PREMODELS = {
    "base": "uncased_L-12_H-768_A-12",
    "large": "uncased_L-24_H-1024_A-16",
    "large-wwm": "wwm_uncased_L-24_H-1024_A-16",
}


class StageFailed(Exception):
    """A stage's command ended with `status`, having said why."""

    def __init__(self, stage: Stage, status: int):
        super().__init__(f"the stage {stage.title!r} failed with exit status {status}, see above")
        self.status = status


def read_environment(environ: Mapping[str, str], target: Target | None = None) -> Recipe:
    """The recipe that the environment variables describe.

    Args:
      environ: the variables of the module's text.
      target: the task to learn on and to score, in the place of what GLUE_DIR and TASK_NAME say.

    Raises:
      UserError: a variable with a value that makes no sense, or a folder that is not there.
    """
    values = {name: value for name, value in environ.items() if value}
    name, flags = encoder_of(values)
    seed = values.get("RANDOM_SEED", "1234")
    if not re.fullmatch(r"[0-9]{1,9}", seed):
        raise UserError(f"RANDOM_SEED: found {seed!r}, expected a whole number from 0 to 999999999")
    skip_nli = values.get("SKIP_NLI", "0")
    if skip_nli not in ("0", "1"):
        raise UserError(f"SKIP_NLI: found {skip_nli!r}, expected 0 or 1")
    output_dir = pathlib.Path(values.get("OUTPUT_PARENT_DIR", "exp"))
    glue_dir = pathlib.Path(values["GLUE_DIR"]) if "GLUE_DIR" in values else _sample_glue_dir()
    target = _target(values.get("TASK_NAME", "STS-B"), glue_dir) if target is None else target
    return Recipe(
        encoder_name=name,
        encoder_flags=flags,
        init_checkpoint=values.get("INIT_CKPT"),
        glue_dir=glue_dir,
        target=target,
        output_dir=output_dir,
        cached_dir=pathlib.Path(values.get("CACHED_DIR") or output_dir / "cached_data"),
        seed=str(int(seed)),
        with_nli=skip_nli == "0",
    )


def _target(task_name: str, glue_dir: pathlib.Path) -> Target:
    # Here, since it takes NumPy along and --help can do without.
    from bert_flow_tf import tasks

    task = tasks.get_task(task_name)
    if task.gold_test is None:
        scored = ", ".join(known.directory for known in tasks.TASKS.values() if known.gold_test)
        raise UserError(f"TASK_NAME: {task_name} has no gold scores for its test split, expected one of {scored}")
    gold = pathlib.Path(tasks.gold_path(task, glue_dir, "test"))
    if gold.parent.is_dir() and not gold.is_file():
        # Scores come last: without this they would be missed after hours of training.
        raise UserError(f"GLUE_DIR: no {gold}, expected the gold scores of the test split of {task.directory} there")
    return Target(task.directory, glue_dir / task.directory)


def _sample_glue_dir() -> pathlib.Path:
    from bert_flow_tf.sample_data import sample_glue_dir

    return pathlib.Path(sample_glue_dir())


def encoder_of(values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Name and `run_siamese` flags of the encoder that the variables name.

    Raises:
      UserError: a variable with a value that makes no sense, or a folder that is not there.
    """
    hub, bert_name, premodels = (values.get(name) for name in ("BERT_HUB", "BERT_NAME", "BERT_PREMODELS"))
    if bert_name is not None and bert_name not in _PREMODELS:
        raise UserError(f"BERT_NAME: found {bert_name!r}, expected base, large or large-wwm")
    if hub is None and premodels is not None:
        if "PREPROCESS_HUB" in values:
            raise UserError("PREPROCESS_HUB: set without BERT_HUB, but a TF1 checkpoint brings its own vocabulary")
        bert_name = bert_name or "base"
        folder = pathlib.Path(premodels) / _PREMODELS[bert_name]
        if not folder.is_dir():
            raise UserError(
                f"BERT_PREMODELS: {folder} is no folder, expected the TF1 checkpoint of BERT {bert_name} there"
            )
        return bert_name, {
            "vocab_file": str(folder / "vocab.txt"),
            "bert_config_file": str(folder / "bert_config.json"),
            "init_checkpoint": str(folder / "bert_model.ckpt"),
        }
    if hub is None:
        hub = bert_name or "demo"
        if bert_name is not None and bert_name not in HUB_NAMES:
            raise UserError(
                f"BERT_NAME: {bert_name} is not on TF-Hub, expected BERT_PREMODELS with {_PREMODELS[bert_name]} in it"
            )
    flags = {"bert_hub": hub}
    if "PREPROCESS_HUB" in values:
        flags["preprocess_hub"] = values["PREPROCESS_HUB"]
    if os.path.isdir(hub) and hub not in HUB_NAMES:
        return _as_file_name(os.path.basename(os.path.abspath(hub))), flags
    # https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4 -> bert_en_uncased_L-12_H-768_A-12_4
    last_parts = hub.split("?")[0].rstrip("/").split("/")[-2:]
    return _as_file_name("_".join(last_parts if last_parts[-1].isdigit() else last_parts[-1:])), flags


def _as_file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)


def run(
    stages: Sequence[Stage],
    output_dir: pathlib.Path,
    *,
    overwrite: bool = False,
    interpreter: Sequence[str] = (sys.executable,),
) -> list[dict]:
    """Each stage's stamp with `was_done`, after running what was not done.

    Args:
      stages: in the order to run them in.
      output_dir: where their stamps are kept, in a folder `recipe`.
      overwrite: do every stage again, after deleting the directories it made.
      interpreter: the command that `-m MODULE FLAGS` is appended to.

    Raises:
      UserError: a stage was begun with other settings, data is missing, or another run is at work in `output_dir`.
      StageFailed: a stage's command failed.
    """
    stamps = Stamps(output_dir / "recipe")
    with stamps.locked():
        return _run_stages(stages, stamps, overwrite, interpreter)


@contextlib.contextmanager
def ended_by_sigterm():
    """SIGTERM inside the block ends it as an exception, and so a stage's process too, which would go on alone."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run_stages(stages: Sequence[Stage], stamps: Stamps, overwrite: bool, interpreter: Sequence[str]) -> list[dict]:
    if overwrite:
        # All of them first: should this run be interrupted, the next one still knows which results are old.
        for stage in stages:
            stamps.write(stage, TO_DO_AGAIN)
    states = [stamps.read(stage) for stage in stages]  # All before the first is run: a refusal costs no time.
    results = []
    for number, (stage, stamp) in enumerate(zip(stages, states, strict=True), start=1):
        heading = f"[{number}/{len(stages)}] {stage.title}"
        was_done = stamp is not None and stamp["state"] == FINISHED
        if was_done:
            print(f"{heading}: done before", flush=True)
        else:
            print(f"\n{heading}", flush=True)
            stamp = _run_stage(stage, stamps, None if stamp is None else stamp["state"], interpreter)
        results.append({**stamp, "was_done": was_done})
    return results


def _run_stage(stage: Stage, stamps: Stamps, state: str | None, interpreter: Sequence[str]) -> dict:
    flags = list(stage.flags)
    if stage.begins_with is not None:
        flags.append(f"--init_checkpoint={latest_checkpoint(stage.begins_with)}")
    if stage.makes is not None and stage.makes.is_dir():
        if state == TO_DO_AGAIN or (state == RUNNING and not stage.resumes):
            shutil.rmtree(stage.makes)
        elif state == RUNNING and (stage.makes / TRAIN_RESULTS_FILE).exists():
            # Interrupted after training: what is evaluated already refuses to be trained again.
            flags = [flag for flag in flags if flag != "--do_train=true"]
    stamps.write(stage, RUNNING)
    command = [*interpreter, "-m", stage.module, *flags]
    print(f"  {shlex.join(command)}", flush=True)
    began = time.monotonic()
    _check(stage, subprocess.run(command, check=False).returncode)
    scores = _scores(stage, interpreter) if stage.is_scored else {}
    if stage.is_scored:
        scores["split"] = stage.predicts.split
    return stamps.write(stage, FINISHED, seconds=round(time.monotonic() - began, 2), **scores)


def _scores(stage: Stage, interpreter: Sequence[str]) -> dict[str, float]:
    """Pearson and Spearman, for two labels AUC too, of the stage's predictions, by the original's scoring command."""
    flags = {
        "glue_path": stage.predicts.folder.parent,
        "task_name": stage.predicts.name,
        "pred_path": stage.prediction_path,
        "is_test": {"test": 1, "dev": 0}[stage.predicts.split],
    }
    command = [*interpreter, "-m", "bert_flow_tf.eval_stsb", *(f"--{name}={value}" for name, value in flags.items())]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, end="", flush=True)
    _check(stage, done.returncode)
    found = re.search(r"Pearson: (\S+), Spearman: (\S+)(?:\nAUC: (\S+))?", done.stdout)
    if not found:
        raise UserError(
            f"{stage.title}: bert_flow_tf.eval_stsb printed {done.stdout!r}, expected a line 'Pearson: …, Spearman: …'"
        )
    scores = zip(("pearson", "spearman", "auc"), found.groups(), strict=True)
    return {name: float(score) for name, score in scores if score is not None}


def _check(stage: Stage, returncode: int) -> None:
    if returncode:
        # A process ended by a signal has a negative code; the shell's way of saying so is 128 + signal.
        raise StageFailed(stage, returncode if returncode > 0 else 128 - returncode)


def latest_checkpoint(run_dir: pathlib.Path) -> str:
    """Prefix of a run's last checkpoint, as TensorFlow's `checkpoint` file names it.

    Raises:
      UserError: the run has none.
    """
    path = run_dir / "checkpoint"
    found = None
    with contextlib.suppress(FileNotFoundError):
        found = re.search(r'^model_checkpoint_path: "(.+)"$', path.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise UserError(
            f"{path}: no model_checkpoint_path found, expected that of a finished run; --overwrite makes it anew"
        )
    return str(run_dir / found[1])


def table(results: Sequence[Mapping]) -> str:
    """The results as text: each stage's Pearson and Spearman x100 and its seconds."""
    rows = [("stage", "Pearson", "Spearman", "seconds", "")]
    for stamp in results:
        scores = [f"{100 * stamp[name]:.2f}" if name in stamp else "-" for name in ("pearson", "spearman")]
        rows.append((stamp["title"], *scores, f"{stamp['seconds']:.1f}", "done before" if stamp["was_done"] else ""))
    rows.append(("total", "-", "-", f"{sum(stamp['seconds'] for stamp in results):.1f}", ""))
    first, *others = (max(len(row[column]) for row in rows) for column in range(4))
    lines = []
    for title, *numbers, note in rows:
        cells = "  ".join(number.rjust(width) for number, width in zip(numbers, others, strict=True))
        lines.append(f"{title.ljust(first)}  {cells}  {note}".rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    lines.insert(-1, lines[1])
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Exit status: 0; 2 after one `error:` line; a failed stage's own; 130 if interrupted."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if set(arguments) & {"--help", "-h"}:
        print(__doc__.strip())
        return 0
    try:
        if unknown := [argument for argument in arguments if argument != "--overwrite"]:
            raise UserError(f"unknown argument {unknown[0]!r}, expected --overwrite or --help")
        recipe = read_environment(environ)
        print(f"encoder: {recipe.encoder_flags.get('bert_hub') or recipe.encoder_flags['init_checkpoint']}")
        print(f"data: {recipe.glue_dir}, task {recipe.target.name}, seed {recipe.seed}")
        print(f"output: {recipe.output_dir}", flush=True)
        stages = stages_of(recipe)
        results = run(stages, recipe.output_dir, overwrite="--overwrite" in arguments)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except StageFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    print(f"\n{table(results)}")
    print(f"\nSavedModel: {stages[-1].run_dir}")
    return 0


if __name__ == "__main__":
    with ended_by_sigterm():
        sys.exit(main())
