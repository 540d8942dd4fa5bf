"""The stages of the recipe, and the environment variables that describe them."""

import dataclasses
import os
import pathlib
import re
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from bert_flow_tf.data import tasks
from bert_flow_tf.data.sts_sets import SimilarityTask, read_task
from bert_flow_tf.encoder.handles import HUB_HANDLES
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.predicted import score_predictions_of
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.reading import refuse_address
from bert_flow_tf.paper.figures import FLOW_FLAGS, NLI_FLAGS, Preset
from bert_flow_tf.results.records import SCORES_FILE, Predictions, Scores, TaskScores
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE, FinishedRun, clear_run
from bert_flow_tf.runs.record import BERT_NAMES, Model, made_by
from bert_flow_tf.runs.settings import FLAGS, Settings
from bert_flow_tf.sample_data import sample_glue_dir
from bert_flow_tf.training.run import run

EMBEDDING_TYPES = ("avg", "avg-last-2")
EXPORTED_TYPE = "avg-last-2"  # The paper's best on STS-B.
# No label is used and nothing is trained: the original's README scores an encoder as it is in this way.
_NO_FLOW = {"num_examples": 0, "num_train_epochs": 1e-10}
_PREMODELS = {**BERT_NAMES, "large-wwm": "wwm_uncased_L-24_H-1024_A-16"}
_TRIO = {"vocab_file": "vocab.txt", "bert_config_file": "bert_config.json", "init_checkpoint": "bert_model.ckpt"}


@dataclasses.dataclass(frozen=True)
class Stage:
    """A run to train or predict with, whose predictions for `task` are scored; or an export of it to `export_to`."""

    title: str
    settings: Settings
    task: SimilarityTask | None = None
    export_to: pathlib.Path | None = None

    @property
    def command(self) -> str:
        """A command line that does the same."""
        if self.export_to is not None:
            return f"bert-flow export --model {self.settings.output_dir} --out {self.export_to} --version 1"
        changed = (item for item in self.settings.flags().items() if item[1] != FLAGS[item[0]].default)
        return " ".join(["python -m bert_flow_tf.run_siamese", *(f"--{name}={value}" for name, value in changed)])

    def check(self) -> None:
        """Raise `UserError` for a mistake in the settings or a missing folder of data."""
        self.settings.check()
        tasks.task_folder(tasks.get_task(self.settings.data.task_name), self.settings.data.data_dir)

    def run(self) -> bool:
        """Do the stage's work, or resume it; return False if it was finished before."""
        run_dir = self.settings.output_dir
        if self.export_to is not None:
            version = self.export_to / "1"
            if version.exists() and version.stat().st_mtime > (run_dir / TRAIN_RESULTS_FILE).stat().st_mtime:
                return False
            export(run_dir, self.export_to)
            return True
        if self.task is not None and self._is_predicted():
            return False
        try:
            run(self.settings)
        except FinishedRun:
            return False
        scores = self.scores()
        if self.task is not None and scores is not None:
            named = {self.task.name: scores}
            write_json(run_dir / SCORES_FILE, Scores(made_by=made_by("recipe"), model=self.model(), tasks=named))
        return True

    def _is_predicted(self) -> bool:
        if not self.settings.prediction_path.exists():
            return False
        encoder = self.settings.encoder
        named = os.path.dirname(encoder.bert_config_file or "") or str(encoder.bert_hub)
        return os.path.realpath(self.model().encoder.handle) == os.path.realpath(HUB_HANDLES.get(named, named))

    def model(self) -> Model:
        """Return the record of the model that predicted."""
        path = self.settings.prediction_path.with_suffix(".json")
        return read_json(path, Predictions, expected="a record of predictions").model

    def scores(self) -> TaskScores | None:
        """Return the scores of the predictions; None for a stage that makes none."""
        if self.task is None:
            return None
        return msgspec.convert(score_predictions_of(self.task, self.settings.prediction_path), TaskScores)

    def clear(self) -> None:
        """Delete what the stage makes."""
        if self.export_to is not None:
            shutil.rmtree(self.export_to / "1", ignore_errors=True)
        clear_run(self.settings.output_dir)


def export(run_dir: pathlib.Path, out: pathlib.Path) -> None:
    """Write version 1 of a run's SavedModel."""
    # TensorFlow takes seconds to load: not for --help, nor for a mistake in a variable.
    from bert_flow_tf.api import BertFlow

    BertFlow.from_pretrained(run_dir).export(out, version=1)


class Target(NamedTuple):
    """Data that a run learns on, and the task in it that is scored."""

    name: str  # `--task_name`
    folder: pathlib.Path
    task: SimilarityTask | None


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The environment's variables."""

    encoder_name: str  # The encoder's part of the folders' names.
    encoder_flags: Mapping[str, str]  # Flags of `run_siamese` that name the encoder and its own weights.
    glue_dir: pathlib.Path
    target: Target
    output_dir: pathlib.Path
    cached_dir: pathlib.Path
    seed: int
    with_nli: bool

    @property
    def _name(self) -> str:
        return f"{'nli_' if self.with_nli else ''}{self.encoder_name}_{self.seed}"

    def nli(self) -> list[Stage]:
        """Return the stage that fine-tunes the encoder on NLI, if the recipe has one."""
        flags = {**NLI_FLAGS, "init_checkpoint": self.encoder_flags.get("init_checkpoint")}
        run = Stage("NLI fine-tuning", self._settings(self._name, self._nli_data(), flags, train=True))
        return [run] if self.with_nli else []

    def encoder_scores(self, pooling: str, title: str) -> Stage:
        """Return the stage that scores the encoder as it is."""
        flags, name = {**_NO_FLOW, "sentence_embedding_type": pooling}, f"{self._name}_{self.target.name}_{pooling}"
        return Stage(title, self._settings(name, self.target, flags), self.target.task)

    def flow(self, pooling: str, learn: str, score: str, suffix: str = "", **changes: Any) -> tuple[Stage, Stage]:
        """Return the stages, of these titles, that learn a flow and score it; `changes` are flags of both."""
        flags = {"flow": 1, **FLOW_FLAGS, "sentence_embedding_type": pooling, **changes}
        name = f"{self._name}_{self.target.name}_{pooling}_flow{suffix}"
        learned, scored = (self._settings(name, self.target, flags, train=train) for train in (True, False))
        return Stage(learn, learned), Stage(score, scored, self.target.task)

    def preset(self, preset: Preset) -> tuple[Stage, ...]:
        """Return the stages of one row of the paper's tables; the last one scores it."""
        title = f"{self.target.name}, {preset.name}"
        if preset.flow is None:
            return (self.encoder_scores(preset.pooling, title),)
        if preset.on_nli:
            # It is learned once and scored on every target, each in a folder of its own.
            on_nli = dataclasses.replace(self, target=self._nli_data())
            learned, _ = on_nli.flow(preset.pooling, f"{preset.name}: learn", "", **preset.flow)
            begins = {"init_checkpoint": str(learned.settings.output_dir)}
            return learned, self.flow(preset.pooling, "", title, "_nli", **preset.flow, **begins)[1]
        suffix = "" if preset.name == "flow-target" else f"_{preset.name.removeprefix('flow-')}"
        return self.flow(preset.pooling, f"{title}: learn", title, suffix, **preset.flow)

    def _nli_data(self) -> Target:
        return Target("ALLNLI", self.glue_dir / "ALLNLI", None)

    def _settings(self, name: str, data: Target, flags: Mapping[str, Any], *, train: bool = False) -> Settings:
        begins = {"init_checkpoint": str(self.output_dir / self._name)} if self.with_nli else {}
        does = {"do_train": True, "do_eval": True} if train else {"do_predict": True}
        split = data.task.split if data.task else None
        return Settings.of(
            **{**self.encoder_flags, **begins, **does, **flags},
            task_name=data.name,
            data_dir=str(data.folder),
            do_predict_on_dev=split == "dev" and not train,
            output_parent_dir=str(self.output_dir),
            exp_name=name,
            cached_dir=str(self.cached_dir),
            max_seq_length=64,
            seed=self.seed,
        )


def recipe_stages(recipe: Recipe) -> list[Stage]:
    """Return the stages of `siamese_then_flow.sh` in their order."""
    task = recipe.target.name
    flows = {kind: recipe.flow(kind, f"flow on {task}, {kind}", f"{task}, {kind} + flow") for kind in EMBEDDING_TYPES}
    exported = flows[EXPORTED_TYPE][0].settings
    return [
        *recipe.nli(),
        *(recipe.encoder_scores(kind, f"{task}, {kind}") for kind in EMBEDDING_TYPES),
        *(learned for learned, _ in flows.values()),
        *(scored for _, scored in flows.values()),
        Stage(
            f"SavedModel of {EXPORTED_TYPE} + flow",
            exported,
            export_to=recipe.output_dir / "export" / exported.output_dir.name,
        ),
    ]


def read_environment(environ: Mapping[str, str], target: Target | None = None) -> Recipe:
    """Read the recipe from environment variables; `target` overrides TASK_NAME.

    Raises:
      UserError: a variable has an invalid value, or a folder is missing.
    """
    values = {name: value for name, value in environ.items() if value}
    name, flags = encoder_of(values)
    if checkpoint := values.get("INIT_CKPT"):
        flags["init_checkpoint"] = checkpoint
    seed, skip_nli = values.get("RANDOM_SEED", "1234"), values.get("SKIP_NLI", "0")
    if not re.fullmatch(r"[0-9]{1,9}", seed):
        raise UserError(f"RANDOM_SEED: found {seed!r}, expected a whole number from 0 to 999999999")
    if skip_nli not in ("0", "1"):
        raise UserError(f"SKIP_NLI: found {skip_nli!r}, expected 0 or 1")
    for variable in ("OUTPUT_PARENT_DIR", "CACHED_DIR"):
        refuse_address(values.get(variable, ""), variable)
    output_dir = pathlib.Path(values.get("OUTPUT_PARENT_DIR", "exp"))
    glue_dir = pathlib.Path(values.get("GLUE_DIR") or sample_glue_dir())
    if target is None:
        task = tasks.get_task(values.get("TASK_NAME", "STS-B"))
        if task.gold_test is None:
            scored = ", ".join(known.directory for known in tasks.TASKS.values() if known.gold_test)
            raise UserError(f"TASK_NAME: {task.name} has no gold scores for its test split, expected one of {scored}")
        target = Target(task.directory, glue_dir / task.directory, read_task(task.name, glue_dir=glue_dir))
    return Recipe(
        encoder_name=name,
        encoder_flags=flags,
        glue_dir=glue_dir,
        target=target,
        output_dir=output_dir,
        cached_dir=pathlib.Path(values.get("CACHED_DIR") or output_dir / "cached_data"),
        seed=int(seed),
        with_nli=skip_nli == "0",
    )


def encoder_of(values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name and the `run_siamese` flags of the encoder that the variables name.

    Raises:
      UserError: a variable has an invalid value, or a folder is missing.
    """
    hub, bert_name, premodels = (values.get(name) for name in ("BERT_HUB", "BERT_NAME", "BERT_PREMODELS"))
    if bert_name is not None and bert_name not in _PREMODELS:
        raise UserError(f"BERT_NAME: found {bert_name!r}, expected base, large or large-wwm")
    if hub is None and premodels is not None:
        bert_name = bert_name or "base"
        folder = pathlib.Path(premodels) / _PREMODELS[bert_name]
        if not folder.is_dir():
            raise UserError(f"BERT_PREMODELS: no folder {folder}, expected the TF1 checkpoint of BERT {bert_name}")
        return bert_name, {flag: str(folder / file) for flag, file in _TRIO.items()}
    hub = hub or bert_name or "demo"
    if hub == "large-wwm":
        raise UserError("BERT_NAME: large-wwm is not on TF-Hub, expected BERT_PREMODELS with its checkpoint")
    flags = {"bert_hub": hub} | ({"preprocess_hub": values["PREPROCESS_HUB"]} if "PREPROCESS_HUB" in values else {})
    # https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4 -> bert_en_uncased_L-12_H-768_A-12_4
    last_parts = os.path.abspath(hub).split("?")[0].split("/")[-2:]
    is_version = "://" in hub and last_parts[-1].isdigit()
    return re.sub(r"[^A-Za-z0-9._-]+", "_", "_".join(last_parts if is_version else last_parts[-1:])), flags
