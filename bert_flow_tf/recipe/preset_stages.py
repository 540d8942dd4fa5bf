"""The rows of the paper's tables as stages."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_flow_tf.paper.presets import Preset
from bert_flow_tf.recipe.stages import Recipe, Stage, StageBuilder


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
