"""The stages of the recipe: what each one runs, and what its result depends on."""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_flow_tf.encoder.handles import ENCODER_NAMES
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.paper.presets import FLOW_FLAGS, NLI_FLAGS, Preset
from glow.config import DEFAULT_CONFIG

EMBEDDING_TYPES = ("avg", "avg-last-2")
EXPORTED_TYPE = "avg-last-2"  # The paper's best on STS-B.

# No label is used and nothing is trained: the way the original's README scores an encoder as it is.
_NO_FLOW_FLAGS = {"flow": "0", "flow_loss": "0", "num_examples": "0", "num_train_epochs": "1e-10"}
_FLOW_FLAGS = {"flow": "1", "flow_model_config": DEFAULT_CONFIG, **FLOW_FLAGS}
_TRAIN = {"do_train": "true", "do_eval": "true"}
_PREDICT = {"test": {"do_predict": "true"}, "dev": {"do_predict": "true", "do_predict_on_dev": "true"}}


@dataclasses.dataclass(frozen=True)
class Target:
    """The task that a flow is learned on and that everything is scored on."""

    name: str  # Of its folder in GLUE's layout, also the `--task_name`.
    folder: pathlib.Path
    split: str = "test"  # That is predicted; "dev" where the test labels are not public.
    has_gold: bool = True  # Whether the folder's files hold the gold scores of the split.


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What the environment asks for."""

    encoder_name: str  # The encoder's part of the directory names.
    encoder_flags: Mapping[str, str]  # Flags of `run_siamese` that name the encoder and its own weights.
    init_checkpoint: str | None  # Checkpoint to begin with instead of them.
    glue_dir: pathlib.Path
    target: Target
    output_dir: pathlib.Path
    cached_dir: pathlib.Path
    seed: str  # Of every stage, a whole number in digits.
    with_nli: bool  # Whether to fine-tune on NLI first.

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
    """One row of the table."""

    name: str  # Of its stamp, and of its directory unless that of another stage is used.
    title: str  # What it does, for the table and the progress line.
    module: str
    flags: tuple[str, ...]  # The command is `python -m MODULE FLAGS`.
    settings: Mapping[str, str]  # All that its result depends on: another value of one gives another result.
    run_dir: pathlib.Path  # Of the run that it belongs to.
    makes: pathlib.Path | None = None  # Deleted under --overwrite; None if it adds to another stage's directory.
    resumes: bool = True  # Whether the command resumes what an interrupted one left.
    whole: pathlib.Path | None = None  # What is there as soon as the command has done all, and not before.
    begins_with: pathlib.Path | None = None  # Run whose last checkpoint it begins with; None for the recipe's own.
    trains_encoder: bool = False
    predicts: Target | None = None  # Whose cosines it writes, into `prediction_path`.

    @property
    def prediction_path(self) -> pathlib.Path | None:
        """The file with a cosine per line, as the original names it; None if there is none."""
        return None if self.predicts is None else self.run_dir / f"{self.predicts.split}_results.tsv"


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


class PresetStages(NamedTuple):
    """The stages of one row on one task: what learns the flow, if any, and what predicts the task's cosines."""

    learned: Stage | None
    scored: Stage


def stages_of_presets(recipe: Recipe, presets: Sequence[Preset]) -> tuple[list[Stage], dict[str, PresetStages]]:
    """All stages in the order they are run in, and those of each preset by its name.

    Raises:
      UserError: a folder of data is missing.
    """
    builder = StageBuilder(recipe)
    stages = [builder.nli] if builder.nli is not None else []
    of_preset = {}
    for preset in presets:
        title = f"{recipe.target.name}, {preset.name}"
        if preset.flow is None:
            made = PresetStages(None, builder.scores(preset.pooling, title))
        elif preset.on_nli:
            # Learned once, whatever it is scored on.
            learned = builder.learns_flow(preset.pooling, f"{preset.name}: learn", on_nli=True, **preset.flow)
            made = PresetStages(learned, builder.scores_flow(learned, title, elsewhere="_nli"))
        else:
            # The directory of the recipe's own flow is the target's.
            suffix = "" if preset.name == "flow-target" else f"_{preset.name.removeprefix('flow-')}"
            learned = builder.learns_flow(preset.pooling, f"{title}: learn", suffix=suffix, **preset.flow)
            made = PresetStages(learned, builder.scores_flow(learned, title))
        stages += filter(None, made)
        of_preset[preset.name] = made
    return stages, of_preset


class StageBuilder:
    """Stages of one recipe; `nli` fine-tunes what the others begin with, and is None where the recipe skips it.

    `encoder_made_by` is the stage that makes the recipe's encoder, None for an encoder that is there. A folder of data
    that is missing is a `UserError`.
    """

    def __init__(self, recipe: Recipe, encoder_made_by: Stage | None = None):
        self._recipe = recipe
        self._common = {"max_seq_length": "64", "seed": recipe.seed}
        self._weights = encoder_settings(recipe)
        if encoder_made_by is not None:
            self._weights = {encoder_made_by.name: _digest(encoder_made_by.settings)}
        self._target_data = {"data": _digest_of_data(recipe.target.folder)}
        self.nli: Stage | None = None
        if recipe.with_nli:
            nli = self._siamese("NLI fine-tuning", recipe.nli_name, NLI_FLAGS, on_nli=True)
            self.nli = dataclasses.replace(nli, trains_encoder=True)
            self._weights = {"NLI fine-tuning": _digest(self.nli.settings)}

    def scores(self, kind: str, title: str) -> Stage:
        """The stage that scores the encoder as it is, under the pooling `kind`."""
        flags = {**_NO_FLOW_FLAGS, "sentence_embedding_type": kind}
        return self._siamese(title, self._recipe.run_name(kind, flow=False), flags, predicts=True)

    def learns_flow(self, kind: str, title: str, *, suffix: str = "", on_nli: bool = False, **changes: str) -> Stage:
        """The stage that learns a flow over the pooling `kind`, on the target task or on ALLNLI.

        `suffix` tells its directory from that of another flow, `changes` are flags other than the recipe's.
        """
        flags = {**_FLOW_FLAGS, **changes, "sentence_embedding_type": kind}
        name = f"{self._recipe.run_name(kind, True, 'ALLNLI' if on_nli else None)}{suffix}"
        return self._siamese(title, name, flags, on_nli=on_nli)

    def scores_flow(self, learned: Stage, title: str, *, elsewhere: str | None = None) -> Stage:
        """The stage that scores a flow on the target task.

        It does so in the directory of `learned`, or in one whose name ends in `elsewhere`, for a flow that was learned
        on another task's sentences and may be scored on many tasks.
        """
        flags = {name: learned.settings[name] for name in (*_FLOW_FLAGS, "sentence_embedding_type")}
        where: dict[str, Any] = {"name": f"{learned.name}_scores"}
        run_name = learned.name
        if elsewhere is not None:
            run_name = f"{self._recipe.run_name(flags['sentence_embedding_type'], flow=True)}{elsewhere}"
            where = {"begins_with": learned.run_dir}
        data = {**learned.settings, **self._target_data}
        return self._siamese(title, run_name, flags, data=data, predicts=True, **where)

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
            makes=out / "1",
            resumes=False,
        )

    def _siamese(
        self,
        title: str,
        run_name: str,
        flags: Mapping[str, str],
        *,
        on_nli: bool = False,
        predicts: bool = False,
        data: Mapping[str, str] | None = None,
        name: str | None = None,
        begins_with: pathlib.Path | None = None,
    ) -> Stage:
        """A stage of `run_siamese`, whose result depends on its flags, weights and data.

        With a `name` of its own, it adds to the directory of another stage.
        """
        recipe, task = self._recipe, self._recipe.target
        if on_nli:
            task = Target("ALLNLI", recipe.glue_dir / "ALLNLI")
            data = {f"data of {part}": _digest_of_data(recipe.glue_dir / part) for part in ("MNLI", "SNLI")}
        all_flags: dict[str, str | pathlib.Path] = {
            "task_name": task.name,
            "data_dir": task.folder,
            "output_parent_dir": recipe.output_dir,
            "exp_name": run_name,
            "cached_dir": recipe.cached_dir,
            **recipe.encoder_flags,
            **(_PREDICT[task.split] if predicts else _TRAIN),
            **self._common,
            **flags,
            **({} if self.nli else _checkpoint(recipe)),
        }
        run_dir = recipe.output_dir / run_name
        return Stage(
            name=name or run_name,
            title=title,
            module="bert_flow_tf.run_siamese",
            flags=tuple(f"--{flag}={value}" for flag, value in all_flags.items()),
            settings={**self._weights, **self._common, **flags, **(data or self._target_data)},
            run_dir=run_dir,
            makes=None if name else run_dir,
            begins_with=begins_with or (self.nli.run_dir if self.nli else None),
            predicts=task if predicts else None,
        )


def _checkpoint(recipe: Recipe) -> dict[str, str]:
    return {"init_checkpoint": recipe.init_checkpoint} if recipe.init_checkpoint else {}


def encoder_settings(recipe: Recipe) -> dict[str, str]:
    """What the encoder's numbers depend on: handles as they are, files and folders by their content.

    A TF checkpoint is known by its `.index`, which holds a checksum of every tensor: no gigabytes to read.
    """
    settings = {**recipe.encoder_flags, **_checkpoint(recipe)}
    for name, value in settings.items():
        path, index = pathlib.Path(value), pathlib.Path(f"{value}.index")
        if name == "bert_hub" and value in ENCODER_NAMES:
            continue
        if path.is_dir():
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
    return settings


def _digest_of_data(folder: pathlib.Path) -> str:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, expected the data of {folder.name} (GLUE_DIR, --glue_dir)")
    # `prepare` writes into prepared.json where the data came from.
    left_out = (".", "prepared.json")
    files = (file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(left_out))
    return _digest({file.name: file_digest(file) for file in files})


def _digest(settings: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
