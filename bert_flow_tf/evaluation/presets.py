"""The rows of the paper's tables as stages: what each trains, on what, and how its scores over seeds are told."""

import dataclasses
import statistics
from collections.abc import Sequence

from bert_flow_tf.errors import UserError
from bert_flow_tf.recipe_stages import Recipe, Stage, StageBuilder


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row.

    Attributes:
      name: what a user calls it.
      title: the row's words in the paper, after the encoder's name.
      pooling: `sentence_embedding_type`.
      flow: None without a flow; else the flags in which it differs from the flow on the target's sentences.
      on_nli: whether the flow is learned on NLI sentences.
    """

    name: str
    title: str
    pooling: str
    flow: dict | None
    on_nli: bool


# Li et al. 2020, section 4.1, Tables 2 and 3. The settings are those of the original's README,
# and the paper's for the flow on NLI, which that leaves out.
PRESETS = {
    preset.name: preset
    for preset in (
        Preset("avg", "", "avg", None, False),
        Preset("last2avg", "-last2avg", "avg-last-2", None, False),
        Preset("flow-target", "-flow (target)", "avg-last-2", {}, False),
        Preset("flow-train", "-flow (target, train only)", "avg-last-2", {"use_full_for_training": "0"}, False),
        Preset(
            "flow-nli",
            "-flow (NLI)",
            "avg-last-2",
            {"use_full_for_training": "0", "num_train_epochs": "0.15", "flow_learning_rate": "2e-5"},
            True,
        ),
    )
}


def get_presets(names: Sequence[str]) -> list[Preset]:
    """The presets of these names.

    Raises:
      UserError: there is none of a name, or a name is given twice.
    """
    for name in names:
        if name not in PRESETS:
            raise UserError(f"--rows: found {name}, expected some of {', '.join(PRESETS)}")
        if names.count(name) > 1:
            raise UserError(f"--rows: found {name} twice, expected each once")
    if not names:
        raise UserError(f"--rows: found none, expected some of {', '.join(PRESETS)}")
    return [PRESETS[name] for name in names]


@dataclasses.dataclass(frozen=True)
class PresetStages:
    """The stages of one row on one task.

    Attributes:
      learned: the stage that learns the flow; None without one.
      scored: the stage that predicts the task's cosines.
    """

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
            made = PresetStages(learned, builder.scores_flow_elsewhere(learned, title, "_nli"))
        else:
            # The directory of the recipe's own flow is the target's.
            suffix = "" if preset.name == "flow-target" else f"_{preset.name.removeprefix('flow-')}"
            learned = builder.learns_flow(preset.pooling, f"{title}: learn", suffix=suffix, **preset.flow)
            made = PresetStages(learned, builder.scores_flow(learned, title))
        stages += [stage for stage in (made.learned, made.scored) if stage is not None]
        of_preset[preset.name] = made
    return stages, of_preset


def summarize(values: Sequence[float]) -> dict[str, float | list[float] | None]:
    """Mean, sample standard deviation (None of one value), median and the values, as in Table 8."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "median": statistics.median(values),
        "values": list(values),
    }


def paper_row(preset: Preset, encoder_name: str, with_nli: bool, task_name: str, tables: dict) -> dict | None:
    """The paper's figure for this row, {"row", "spearman_x100", "source"}; None where there is none to compare.

    Args:
      preset: the row.
      encoder_name: name of the encoder as `BERT_NAME` has it; only base and large are the paper's.
      with_nli: whether the encoder was first fine-tuned on NLI.
      task_name: directory of the task.
      tables: `paper.paper_tables()`.
    """
    if encoder_name not in ("base", "large"):
        return None
    row = f"BERT-{encoder_name}{'-NLI' if with_nli else ''}{preset.title}"
    figure = tables["table3_nli_supervision" if with_nli else "table2_no_nli_supervision"]["rows"].get(row, {})
    if task_name in figure:
        return {"row": row, "spearman_x100": figure[task_name], "source": "paper"}
    # The flow on the train split alone is in the README of the original, for STS-B.
    readme = tables["repository_readme_stsb"]["rows"]
    if task_name == "STS-B" and row in readme:
        return {"row": row, "spearman_x100": readme[row], "source": "README of the original"}
    return None
