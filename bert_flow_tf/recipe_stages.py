"""The stages of the recipe: what each one runs, and what its result depends on."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping

from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.errors import UserError

EMBEDDING_TYPES = ("avg", "avg-last-2")
EXPORTED_TYPE = "avg-last-2"  # The paper's best on STS-B.

# Short names of encoders; a folder of the same name changes nothing.
HUB_NAMES = ("base", "large", "demo")

_NLI_FLAGS = {"num_train_epochs": "1.0", "learning_rate": "2e-5", "train_batch_size": "16"}
# No label is used and nothing is trained: the way the original's README scores an encoder as it is.
_NO_FLOW_FLAGS = {"flow": "0", "flow_loss": "0", "num_examples": "0", "num_train_epochs": "1e-10"}
_FLOW_FLAGS = {
    "flow": "1",
    "flow_loss": "1",
    "flow_model_config": "config_l3_d3_w32",
    "flow_learning_rate": "1e-3",
    "num_examples": "0",
    "num_train_epochs": "1.0",
    "train_batch_size": "32",
    "use_full_for_training": "1",
}
_COMMON_FLAGS = {"max_seq_length": "64"}
_TRAIN = {"do_train": "true", "do_eval": "true"}
_PREDICT = {"test": {"do_predict": "true"}, "dev": {"do_predict": "true", "do_predict_on_dev": "true"}}


@dataclasses.dataclass(frozen=True)
class Target:
    """The task that a flow is learned on and that everything is scored on.

    Attributes:
      name: the name of its folder in GLUE's layout, also the `--task_name`.
      folder: its files.
      split: the split that is predicted: "test", or "dev" where the test labels are not public.
      has_gold: whether `eval_stsb` can score the predictions by the folder's files.
    """

    name: str
    folder: pathlib.Path
    split: str = "test"
    has_gold: bool = True


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the environment asks for.

    Attributes:
      encoder_name: the encoder's part of the directory names.
      encoder_flags: the flags of `run_siamese` that name the encoder and its own weights.
      init_checkpoint: checkpoint to begin with instead of them, or None.
      glue_dir: folder of the tasks.
      target: the task to learn the flow on and to score.
      output_dir, cached_dir: where runs and caches are written.
      seed: seed of every stage, a whole number in digits.
      with_nli: whether to fine-tune on NLI first.
    """

    encoder_name: str
    encoder_flags: Mapping[str, str]
    init_checkpoint: str | None
    glue_dir: pathlib.Path
    target: Target
    output_dir: pathlib.Path
    cached_dir: pathlib.Path
    seed: str
    with_nli: bool

    @property
    def nli_name(self) -> str:
        """Name of the directory of the NLI run."""
        return f"nli_{self.encoder_name}_{self.seed}"

    def run_name(self, embedding_type: str, flow: bool, task_name: str | None = None) -> str:
        """Name of the directory of a run, on the target unless another task is named."""
        encoder = self.nli_name if self.with_nli else f"{self.encoder_name}_{self.seed}"
        return f"{encoder}_{task_name or self.target.name}_{embedding_type}{'_flow' if flow else ''}"


@dataclasses.dataclass(frozen=True)
class Stage:
    """One row of the table.

    Attributes:
      name: name of its stamp, and of its directory unless that of another stage is used.
      title: what it does, for the table and the progress line.
      module, flags: the command, `python -m MODULE FLAGS`.
      settings: all that its result depends on, by name; a change of one makes the result another one.
      run_dir: directory of the run it belongs to.
      makes: the directory that it makes, deleted under --overwrite; None if it adds to another stage's.
      resumes: whether the command goes on from what an interrupted one left.
      begins_with: directory of the run whose last checkpoint it begins with; None for the recipe's own.
      predicts: the task whose cosines it writes, into `prediction_path`; None if it predicts none.
    """

    name: str
    title: str
    module: str
    flags: tuple[str, ...]
    settings: Mapping[str, str]
    run_dir: pathlib.Path
    makes: pathlib.Path | None = None
    resumes: bool = True
    begins_with: pathlib.Path | None = None
    predicts: Target | None = None

    @property
    def prediction_path(self) -> pathlib.Path | None:
        """The file with a cosine a line, as the original names it; None if there is none."""
        return self.predicts and self.run_dir / f"{self.predicts.split}_results.tsv"

    @property
    def is_scored(self) -> bool:
        """Whether its predictions are then compared with the gold scores."""
        return self.predicts is not None and self.predicts.has_gold


def stages_of(recipe: Recipe) -> list[Stage]:
    """The stages of `siamese_then_flow.sh` in the order they are run in.

    Raises:
      UserError: a folder of data is missing.
    """
    builder = StageBuilder(recipe)
    task = recipe.target.name
    stages = [builder.nli] if builder.nli is not None else []
    stages += [builder.scores(kind, f"{task}, {kind}") for kind in EMBEDDING_TYPES]
    learned = {kind: builder.learns_flow(kind, f"flow on {task}, {kind}") for kind in EMBEDDING_TYPES}
    stages += learned.values()
    stages += [builder.scores_flow(flow, f"{task}, {kind} + flow") for kind, flow in learned.items()]
    return [*stages, builder.exports(learned[EXPORTED_TYPE], f"SavedModel of {EXPORTED_TYPE} + flow")]


class StageBuilder:
    """Stages of one recipe, each with all that its result depends on.

    Attributes:
      nli: the stage of NLI fine-tuning, which the others then begin with; None where the recipe skips it.

    Raises:
      UserError: a folder of data is missing.
    """

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._common = {**_COMMON_FLAGS, "seed": recipe.seed}
        self._weights = _encoder_settings(recipe)
        self._target_data = {"data": _digest_of_data(recipe.target.folder)}
        self.nli = self._nli_stage() if recipe.with_nli else None
        if self.nli is not None:
            self._weights = {"NLI fine-tuning": _digest(self.nli.settings)}

    def scores(self, kind: str, title: str) -> Stage:
        """The stage that scores the encoder as it is, under the pooling `kind`."""
        name = self._recipe.run_name(kind, flow=False)
        flags = {**self._common, **_NO_FLOW_FLAGS, "sentence_embedding_type": kind}
        settings = {**self._weights, **flags, **self._target_data}
        return self._predicts(title, flags, settings, name, makes=self._recipe.output_dir / name)

    def learns_flow(self, kind: str, title: str, *, suffix: str = "", on_nli: bool = False, **changes: str) -> Stage:
        """The stage that learns a flow over the pooling `kind`.

        Args:
          kind: `sentence_embedding_type`.
          title: see `Stage`.
          suffix: what tells its directory from that of another flow.
          on_nli: learn on the sentences of ALLNLI and not on those of the target task.
          **changes: flags other than the recipe's.
        """
        recipe = self._recipe
        flags = {**self._common, **_FLOW_FLAGS, **changes, "sentence_embedding_type": kind}
        data = self._nli_data() if on_nli else self._target_data
        task = "ALLNLI" if on_nli else recipe.target.name
        folder = recipe.glue_dir / "ALLNLI" if on_nli else recipe.target.folder
        name = f"{recipe.run_name(kind, True, task)}{suffix}"
        return self._stage(
            title,
            _siamese_flags(recipe, task, folder, name, {**_TRAIN, **flags, **self._begin()}),
            {**self._weights, **flags, **data},
            name,
            makes=recipe.output_dir / name,
        )

    def scores_flow(self, learned: Stage, title: str) -> Stage:
        """The stage that scores a flow, of a stage of `learns_flow`, on the target task."""
        flags = {name: learned.settings[name] for name in (*self._common, *_FLOW_FLAGS, "sentence_embedding_type")}
        settings = {**learned.settings, **self._target_data}
        return self._predicts(title, flags, settings, f"{learned.name}_scores", run_name=learned.name)

    def scores_flow_elsewhere(self, learned: Stage, title: str, suffix: str) -> Stage:
        """The stage that scores a flow that was learned on another task's sentences, in a directory of its own.

        One flow may so be scored on many tasks.
        """
        name = f"{self._recipe.run_name(learned.settings['sentence_embedding_type'], flow=True)}{suffix}"
        flags = {name: learned.settings[name] for name in (*self._common, *_FLOW_FLAGS, "sentence_embedding_type")}
        settings = {**learned.settings, **self._target_data}
        makes = self._recipe.output_dir / name
        return self._predicts(title, flags, settings, name, makes=makes, begins_with=learned.run_dir)

    def exports(self, learned: Stage, title: str) -> Stage:
        """The stage that writes the SavedModel of a flow."""
        out = self._recipe.output_dir / "export" / learned.name
        return Stage(
            name=f"{learned.name}_export",
            title=title,
            module="bert_flow_tf.cli",
            flags=("export", f"--model={learned.run_dir}", f"--out={out}", "--version=1"),
            settings=learned.settings,
            run_dir=out,
            makes=out,
            resumes=False,
        )

    def _nli_stage(self) -> Stage:
        recipe = self._recipe
        flags = {**self._common, **_NLI_FLAGS}
        name, folder = recipe.nli_name, recipe.glue_dir / "ALLNLI"
        run_dir = recipe.output_dir / name
        return Stage(
            name=name,
            title="NLI fine-tuning",
            module="bert_flow_tf.run_siamese",
            flags=_siamese_flags(recipe, "ALLNLI", folder, name, {**_TRAIN, **flags, **_checkpoint(recipe)}),
            settings={**self._weights, **flags, **self._nli_data()},
            run_dir=run_dir,
            makes=run_dir,
        )

    def _nli_data(self) -> dict[str, str]:
        return {f"data of {part}": _digest_of_data(self._recipe.glue_dir / part) for part in ("MNLI", "SNLI")}

    def _begin(self) -> dict[str, str]:
        return {} if self._recipe.with_nli else _checkpoint(self._recipe)

    def _predicts(self, title, flags, settings, name, *, run_name=None, **fields) -> Stage:
        recipe, target = self._recipe, self._recipe.target
        all_flags = {**_PREDICT[target.split], **flags, **self._begin()}
        return self._stage(
            title,
            _siamese_flags(recipe, target.name, target.folder, run_name or name, all_flags),
            settings,
            name,
            run_name=run_name,
            predicts=target,
            **fields,
        )

    def _stage(self, title, flags, settings, name, *, run_name=None, **fields) -> Stage:
        recipe = self._recipe
        return Stage(
            name=name,
            title=title,
            module="bert_flow_tf.run_siamese",
            flags=flags,
            settings=settings,
            run_dir=recipe.output_dir / (run_name or name),
            **{"begins_with": self.nli and self.nli.run_dir, **fields},
        )


def _siamese_flags(
    recipe: Recipe, task_name: str, folder: pathlib.Path, run_name: str, flags: Mapping[str, str]
) -> tuple[str, ...]:
    all_flags = {
        "task_name": task_name,
        "data_dir": folder,
        "output_parent_dir": recipe.output_dir,
        "exp_name": run_name,
        "cached_dir": recipe.cached_dir,
        **recipe.encoder_flags,
        **flags,
    }
    return tuple(f"--{name}={value}" for name, value in all_flags.items())


def _checkpoint(recipe: Recipe) -> dict[str, str]:
    return {"init_checkpoint": recipe.init_checkpoint} if recipe.init_checkpoint else {}


def _encoder_settings(recipe: Recipe) -> dict[str, str]:
    """What the encoder's numbers depend on: handles as they are, files and folders by their content.

    A TF checkpoint is known by its `.index`, which holds a checksum of every tensor: no gigabytes to read.
    """
    settings = {}
    for name, value in {**recipe.encoder_flags, **_checkpoint(recipe)}.items():
        path, index = pathlib.Path(value), pathlib.Path(f"{value}.index")
        if name == "bert_hub" and value in HUB_NAMES:
            settings[name] = value
        elif path.is_dir():
            # Of `X/encoder` the vocabulary is in `X/preprocess`.
            beside = path.absolute().parent / "preprocess"
            roots = [path, *([beside] if (path / "saved_model.pb").is_file() and beside.is_dir() else [])]
            files = ((root, file) for root in roots for file in sorted(root.rglob("*")))
            settings[name] = _digest(
                {
                    f"{'' if root == path else 'preprocess/'}{file.relative_to(root)}": file_digest(file)
                    for root, file in files
                    if file.is_file() and ".data-" not in file.name
                }
            )
        elif path.is_file() or index.is_file():
            settings[name] = file_digest(path if path.is_file() else index)
        else:
            settings[name] = value
    return settings


def _digest_of_data(folder: pathlib.Path) -> str:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, expected the data of {folder.name} (GLUE_DIR, --glue_dir)")
    # What `prepare` says of its source is no data.
    left_out = (".", "prepared.json")
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(left_out))
    return _digest({file.name: file_digest(file) for file in files})


def _digest(settings: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
