"""Run the whole method: NLI fine-tuning, the flow, scores, an export.

usage: python -m bert_flow_tf.original.recipe [--help] [--overwrite]

  --overwrite   delete the results of an earlier run, and run every stage again

Environment variables; by default, the demo encoder learns from the sample data, with results in
./exp:
  BERT_NAME          base, large or large-wwm; from BERT_PREMODELS if that is set, else base and
                     large from TF-Hub
  BERT_PREMODELS     folder of TF1 BERT checkpoints, such as uncased_L-12_H-768_A-12 (base)
  BERT_HUB           TF-Hub handle, folder of a SavedModel, base, large or demo; overrides BERT_NAME
  PREPROCESS_HUB     preprocess model of BERT_HUB, if BERT_HUB does not name one
  INIT_CKPT          checkpoint to start from (default: the encoder's weights)
  GLUE_DIR           folder with STS-B (with its sts-test.csv), MNLI, SNLI in GLUE's layout
                     (default: the sample data)
  TASK_NAME          task to learn the flow on and to score (default: STS-B)
  OUTPUT_PARENT_DIR  folder for all results (default: ./exp)
  CACHED_DIR         cache of embeddings (default: OUTPUT_PARENT_DIR/cached_data)
  RANDOM_SEED        seed of every stage (default: 1234)
  SKIP_NLI           1: no NLI fine-tuning
  BERT_FLOW_CACHE    folder for downloads and conversions (default: ~/.cache/bert_flow_tf)
  TFHUB_CACHE_DIR    folder of models from TF-Hub (default: BERT_FLOW_CACHE/tfhub)

Finished stages are skipped, so the same command resumes an interrupted run. The settings are the
original README's: 1 epoch of NLI at 2e-5 in batches of 16; 1 epoch of the flow at 1e-3 in batches
of 32, all splits, config_l3_d3_w32.
"""

import contextlib
import gc
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from bert_flow_tf.common.errors import (
    ArgumentError,
    UserError,
    exit_status,
    log_progress,
    quiet_libraries,
)
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.reading import check_local
from bert_flow_tf.common.records import BERT_NAMES, made_by
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.original.folder import RESULT
from bert_flow_tf.original.settings import RunSettings, TrainingSettings
from bert_flow_tf.original.start import train_and_score
from bert_flow_tf.report.collected import SCORES_FILE
from bert_flow_tf.report.paper import FLOW_FLAGS, NLI_FLAGS, Preset
from bert_flow_tf.runtime.description import read_description
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.tasks.protocols import score_prediction_file
from bert_flow_tf.tasks.scored_tasks import ScoredTask, read_task
from bert_flow_tf.tasks.scores import (
    WHY_FLOW,
    Basis,
    ScoredRun,
    Scores,
    falls,
    remaining_tasks,
    write_scores,
)
from bert_flow_tf.tasks.tasks import get_task
from bert_flow_tf.training.run_folder import FinishedRun, clear_run, locked_run
from bert_flow_tf.vectors.metrics import METRIC_NAMES

# The last one is exported, because it is the paper's best on STS-B.
EMBEDDING_TYPES = ("avg", "avg-last-2")
# The original's README uses these flags to score an encoder without training.
_NO_TRAINING = {"num_examples": 0, "num_train_epochs": 1e-10}
_PREMODELS = {**BERT_NAMES, "large-wwm": "wwm_uncased_L-24_H-1024_A-16"}
_TF1_FILES = {
    "vocab_file": "vocab.txt",
    "bert_config_file": "bert_config.json",
    "init_checkpoint": "bert_model.ckpt",
}


class Stage(NamedTuple):
    """A run whose predictions for `task` are scored, or an export."""

    title: str
    settings: RunSettings
    task: ScoredTask | None = None
    export_to: pathlib.Path | None = None

    def run(self, *, overwrite: bool = False) -> bool:
        """Run or resume the stage; return False if it was finished.

        `overwrite` replaces an export; `run_stages` clears the runs.
        """
        if self.export_to is not None:
            return self._export(self.export_to, overwrite=overwrite)
        with contextlib.suppress(FinishedRun):
            train_and_score(self.settings)
            return True
        return False

    def _export(self, folder: pathlib.Path, *, overwrite: bool) -> bool:
        """Export the run's model; return False if its export exists."""
        from bert_flow_tf.api import BertFlow

        model = BertFlow.from_pretrained(self.settings.output_dir)
        extra = folder / "1" / "assets.extra"
        found = read_description(extra).fingerprint if extra.exists() else None
        if found == model.fingerprint and not overwrite:
            return False
        model.export(folder, version=1, overwrite=overwrite)
        return True

    def scores(self) -> ScoredRun | None:
        """Write and return the scores of the predictions, if any."""
        if self.task is None:
            return None
        path = self.settings.prediction_path
        expected = "a record of predictions"
        (predicted,) = read_json(path.with_suffix(".json"), Scores, expected=expected).runs
        file = path.with_name(SCORES_FILE)
        data = {self.task.name: self.task.digest}
        missing = remaining_tasks(
            file, Basis(data, predicted.settings, predicted.model), overwrite=False
        )
        found = {self.task.name: score_prediction_file(self.task, path)}
        run = msgspec.structs.replace(predicted, tasks=found)
        if missing:
            write_scores(file, Scores(made_by=made_by("recipe"), runs=[run]), overwrite=False)
        return run


class Outcome(NamedTuple):
    """A finished stage; `seconds` is None if it was finished before."""

    stage: Stage
    seconds: float | None
    scores: ScoredRun | None


class OwnRow(NamedTuple):
    """A row of one's own, as flags that change flow-avg."""

    name: str
    flags: dict[str, Any]

    @property
    def all_flags(self) -> dict[str, Any]:
        """The given flags, and the others that make the row."""
        if self.flags.get("flow", 1):
            return {"flow": 1, **FLOW_FLAGS, **self.flags}
        # Without a flow, only labels train.
        return self.flags if self.flags.get("num_examples") else {**_NO_TRAINING, **self.flags}

    @property
    def trains(self) -> bool:
        flags = self.all_flags
        return bool(flags["flow"] or flags.get("num_examples"))


class Recipe(NamedTuple):
    """The settings that all stages share."""

    encoder_name: str  # in the folders' names
    encoder_flags: dict[str, Any]  # flags of `run_siamese` for the encoder and its weights
    glue_dir: pathlib.Path
    output_dir: pathlib.Path
    cached_dir: pathlib.Path
    seed: int
    with_nli: bool
    folder: pathlib.Path  # the training data, named after the task
    task: ScoredTask | None  # the task to score

    @classmethod
    def of(
        cls,
        task: ScoredTask,
        *,
        glue_dir: str | os.PathLike,
        output_dir: str | os.PathLike,
        cached_dir: str | os.PathLike | None = None,
        bert_hub: str | None = None,
        preprocess_hub: str | None = None,
        bert_premodels: str | None = None,
        bert_name: str | None = None,
        init_checkpoint: str | None = None,
        seed: int = TrainingSettings.seed,
        with_nli: bool = True,
    ) -> "Recipe":
        """Make a recipe.

        Args:
          task: the task to score; its source holds the training data.
          glue_dir: folder that holds MNLI and SNLI.
          cached_dir: cache of embeddings; by default, `cached_data` in `output_dir`.
          bert_hub, preprocess_hub: the encoder; by default, demo.
          bert_premodels, bert_name: folder of TF1 checkpoints, and the name of one, instead.
          init_checkpoint: checkpoint to start from; by default, the encoder's weights.

        Raises:
          ArgumentError: the encoder's name or folder is wrong.
        """
        name, flags = _encoder(bert_hub, preprocess_hub, bert_premodels, bert_name)
        if init_checkpoint:
            flags["init_checkpoint"] = init_checkpoint
        output_dir = pathlib.Path(output_dir)
        return cls(
            encoder_name=name,
            encoder_flags=flags,
            glue_dir=pathlib.Path(glue_dir),
            output_dir=output_dir,
            cached_dir=pathlib.Path(cached_dir or output_dir / "cached_data"),
            seed=seed,
            with_nli=with_nli,
            folder=pathlib.Path(task.source),
            task=task,
        )

    def encoder_fingerprint(self) -> str:
        """Return the fingerprint of the encoder that all stages begin with."""
        # --help must not load TensorFlow.
        from bert_flow_tf.original.encoder import resolve_run_encoder

        return resolve_run_encoder(**self.encoder_flags).fingerprint

    def nli(self) -> list[Stage]:
        flags = {**NLI_FLAGS, "init_checkpoint": self.encoder_flags.get("init_checkpoint")}
        return (
            [self._on_nli()._stage("NLI fine-tuning", "", flags, train=True)]
            if self.with_nli
            else []
        )

    def plain(self, pooling: str, title: str) -> Stage:
        flags = {**_NO_TRAINING, "sentence_embedding_type": pooling}
        return self._stage(title, f"_{self.folder.name}_{pooling}", flags)

    def flow(
        self, pooling: str, learn: str, score: str, suffix: str = "", **changes: Any
    ) -> tuple[Stage, Stage]:
        """Return the stages that learn a flow and score it."""
        flags = {"flow": 1, **FLOW_FLAGS, "sentence_embedding_type": pooling, **changes}
        name = f"_{self.folder.name}_{pooling}_flow{suffix}"
        return self._stage(learn, name, flags, train=True), self._stage(score, name, flags)

    def row(self, row: Preset | OwnRow) -> tuple[Stage, ...]:
        """Return the stages of a row; the last one scores it."""
        if isinstance(row, Preset):
            return self.preset(row)
        flags = row.all_flags
        title = f"{self.folder.name}, {row.name}, seed {self.seed}"
        name = f"_{self.folder.name}_row_{row.name}"
        scored = self._stage(title, name, flags)
        if not row.trains:
            return (scored,)
        return self._stage(f"{title}: learn", name, flags, train=True), scored

    def preset(self, preset: Preset) -> tuple[Stage, ...]:
        title = f"{self.folder.name}, {preset.name}, seed {self.seed}"
        pooling = preset.pooling
        if preset.flow is None:
            return (self.plain(pooling, title),)
        suffix = preset.name.replace("flow-target", "").replace("flow-", "_")
        if not preset.on_nli:
            return self.flow(pooling, f"{title}: learn", title, suffix, **preset.flow)
        # Learn this flow once, and score it on every task, each in its own folder.
        learned, _ = self._on_nli().flow(pooling, f"{preset.name}: learn", "", **preset.flow)
        changes = preset.flow | {"init_checkpoint": str(learned.settings.output_dir)}
        return learned, self.flow(pooling, "", title, suffix, **changes)[1]

    def _on_nli(self) -> "Recipe":
        return self._replace(folder=self.glue_dir / "ALLNLI", task=None)

    def _stage(
        self, title: str, suffix: str, flags: Mapping[str, Any], *, train: bool = False
    ) -> Stage:
        name = f"{'nli_' if self.with_nli else ''}{self.encoder_name}_{self.seed}"
        known: dict[str, Any] = {**self.encoder_flags, "max_seq_length": 64, "seed": self.seed}
        known |= {"init_checkpoint": str(self.output_dir / name)} if self.with_nli else {}
        known |= {"do_train": True, "do_eval": True} if train else {"do_predict": True}
        known |= {"do_predict_on_dev": self.task is not None and self.task.split == "dev"}
        known |= {
            "task_name": self.folder.name,
            "data_dir": str(self.folder),
            "cached_dir": str(self.cached_dir),
        }
        known |= {"output_parent_dir": str(self.output_dir), "exp_name": name + suffix}
        return Stage(title, RunSettings.of(**{**known, **flags}), None if train else self.task)


def recipe_stages(recipe: Recipe) -> list[Stage]:
    """Return the stages of `siamese_then_flow.sh` in order."""
    task = recipe.folder.name
    flows = [
        recipe.flow(kind, f"flow on {task}, {kind}", f"{task}, {kind} + flow")
        for kind in EMBEDDING_TYPES
    ]
    best = flows[-1][0].settings
    return [
        *recipe.nli(),
        *(recipe.plain(kind, f"{task}, {kind}") for kind in EMBEDDING_TYPES),
        *(learned for learned, _ in flows),
        *(scored for _, scored in flows),
        Stage(
            "SavedModel of avg-last-2 + flow",
            best,
            export_to=recipe.output_dir / "export" / best.output_dir.name,
        ),
    ]


def read_environment(environ: Mapping[str, str]) -> Recipe:
    """Read the recipe from environment variables."""
    values = {name: value for name, value in environ.items() if value}
    seed = matching(
        values, "RANDOM_SEED", "1234", "[0-9]{1,9}", "a whole number from 0 to 999999999"
    )
    skip_nli = matching(values, "SKIP_NLI", "0", "[01]", "0 or 1")
    for variable in ("OUTPUT_PARENT_DIR", "CACHED_DIR"):
        check_local(values.get(variable, ""), variable)
    glue_dir = values.get("GLUE_DIR") or sample_glue_dir()
    task = read_task(get_task(values.get("TASK_NAME", "STS-B")).name, glue_dir=glue_dir)
    try:
        return Recipe.of(
            task,
            glue_dir=glue_dir,
            output_dir=values.get("OUTPUT_PARENT_DIR", "exp"),
            cached_dir=values.get("CACHED_DIR"),
            bert_hub=values.get("BERT_HUB"),
            preprocess_hub=values.get("PREPROCESS_HUB"),
            bert_premodels=values.get("BERT_PREMODELS"),
            bert_name=values.get("BERT_NAME"),
            init_checkpoint=values.get("INIT_CKPT"),
            seed=int(seed),
            with_nli=skip_nli == "0",
        )
    except ArgumentError as error:
        # A variable has the argument's name in capitals.
        name, colon, reason = str(error).partition(":")
        raise UserError(f"{name.upper()}{colon}{reason}") from error


def matching(
    values: Mapping[str, str], name: str, default: str, pattern: str, expected: str
) -> str:
    """Return a variable's value; raise `UserError` if it does not match `pattern`."""
    value = values.get(name, default)
    if not re.fullmatch(pattern, value):
        raise UserError(f"{name}: found {value!r}, expected {expected}")
    return value


def _encoder(
    hub: str | None, preprocess_hub: str | None, premodels: str | None, name: str | None
) -> tuple[str, dict[str, Any]]:
    """Return the encoder's name in folders, and its flags of `run_siamese`."""
    if hub is None and premodels:
        return _tf1_encoder(premodels, name or "base")
    if hub is None and name:
        check_encoder_name(name, BERT_NAMES, " (large-wwm needs TF1 checkpoints)")
        hub = name
    hub = hub or "demo"
    # For example, …/bert_en_uncased_L-12_H-768_A-12/4 gives the name
    # bert_en_uncased_L-12_H-768_A-12_4.
    parts = os.path.abspath(hub).split("?")[0].split("/")
    last = "_".join(parts[-2 if parts[-1].isdigit() else -1 :])
    flags = {"bert_hub": hub}
    if preprocess_hub:
        flags["preprocess_hub"] = preprocess_hub
    return re.sub(r"[^A-Za-z0-9._-]+", "_", last), flags


def _tf1_encoder(premodels: str, name: str) -> tuple[str, dict[str, Any]]:
    check_encoder_name(name, _PREMODELS)
    folder = pathlib.Path(premodels) / _PREMODELS[name]
    if not folder.is_dir():
        raise ArgumentError(
            f"bert_premodels: no folder {folder}, expected the TF1 checkpoint of BERT {name}"
        )
    return name, {flag: str(folder / file) for flag, file in _TF1_FILES.items()}


def check_encoder_name(name: str, known: Iterable[str], hint: str = "") -> None:
    """Raise `ArgumentError` if a BERT has no such name."""
    if name not in known:
        raise ArgumentError(f"bert_name: found {name!r}, expected {', '.join(known)}{hint}")


def run_stages(stages: Sequence[Stage], *, overwrite: bool = False) -> list[Outcome]:
    """Run the stages in order, except finished ones."""
    if overwrite:
        folders = [stage.settings.output_dir for stage in stages]
        with contextlib.ExitStack() as locks:
            # Nothing is deleted while another process uses one of them.
            for folder in folders:
                locks.enter_context(locked_run(folder))
            for folder in folders:
                clear_run(folder, RESULT)
    outcomes = []
    for position, stage in enumerate(stages, start=1):
        print(f"[{position}/{len(stages)}] {stage.title}", flush=True)
        start = time.monotonic()
        seconds = time.monotonic() - start if stage.run(overwrite=overwrite) else None
        if seconds is None:
            print("  done before", flush=True)
        outcomes.append(Outcome(stage, seconds, stage.scores()))
        # Free this stage's model before the next one is built.
        gc.collect()
    return outcomes


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return a table of each stage's scores x100 and its seconds."""
    scores = {
        one.stage.title: next(iter(one.scores.tasks.values()))
        for one in outcomes
        if one.scores is not None
    }
    names = (
        ("auc",) if any(one.metric == "auc" for one in scores.values()) else ("pearson", "spearman")
    )
    rows = list[list[Entry]]()
    any_falls = False
    for stage, seconds, _ in outcomes:
        scored = scores.get(stage.title)
        title = stage.title.removesuffix(" + flow")
        plain = scores.get(title) if title != stage.title else None
        change = (
            100 * (scored.by_protocol["all"] - plain.by_protocol["all"])
            if scored and plain
            else None
        )
        any_falls = any_falls or falls(change)
        cells = [x100(scored.by_metric[name]["all"] if scored else None) for name in names]
        cells += [number(change, sign="+"), number(seconds, 1)]
        rows.append([stage.title, *cells, "done before" if seconds is None else ""])
    total = [
        "total",
        *(None for _ in names),
        None,
        number(sum(one.seconds or 0.0 for one in outcomes), 1),
        "",
    ]
    columns = ("stage", *(METRIC_NAMES[name] for name in names), "change", "seconds", "")
    return Table(columns, [*rows, total], notes=WHY_FLOW if any_falls else (), has_total=True)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    def work(overwrite: bool) -> None:
        recipe = read_environment(environ)
        flags = recipe.encoder_flags
        print(f"encoder: {flags.get('bert_hub') or flags['init_checkpoint']}")
        print(f"data: {recipe.folder}, seed {recipe.seed}\noutput: {recipe.output_dir}", flush=True)
        stages = recipe_stages(recipe)
        print(
            f"\n{table(run_stages(stages, overwrite=overwrite)).to_text()}\n\nSavedModel: "
            f"{stages[-1].export_to}"
        )

    return command_line(work, __doc__, arguments)


def command_line(
    work: Callable[[bool], None], help_text: str, arguments: Sequence[str] | None
) -> int:
    """Print the help or call `work(overwrite)`; return the exit status."""
    flags = {*(sys.argv[1:] if arguments is None else arguments)}

    def run() -> None:
        if flags & {"--help", "-h"}:
            print(help_text.strip())
        elif unknown := flags - {"--overwrite"}:
            raise UserError(f"unknown argument {min(unknown)!r}, expected --overwrite or --help")
        else:
            work("--overwrite" in flags)

    quiet_libraries()
    log_progress()
    return exit_status(run)


if __name__ == "__main__":
    sys.exit(main())
