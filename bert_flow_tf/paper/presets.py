"""The rows of the paper's tables: what each trains, on what, and how, as flags of `run_siamese`."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Preset:
    """One row."""

    name: str  # What a user calls it.
    title: str  # The row's words in the paper, after the encoder's name.
    pooling: str  # `sentence_embedding_type`.
    flow: dict | None  # None without a flow; else the flags that differ from those of the flow on the target.
    on_nli: bool  # Whether the flow is learned on NLI sentences.


# 1 epoch of MNLI and SNLI (Li et al. 2020, section 4.1, and the original's README).
NLI_FLAGS = {"num_train_epochs": 1.0, "learning_rate": 2e-5, "train_batch_size": 16}
# The flow on all sentences of the target task (the original's README).
FLOW_FLAGS = {
    "flow_loss": 1,
    "flow_learning_rate": 1e-3,
    "num_examples": 0,
    "num_train_epochs": 1.0,
    "train_batch_size": 32,
    "use_full_for_training": 1,
}
# Li et al. 2020, section 4.1, Tables 2 and 3. The settings are those of the original's README,
# and the paper's for the flow on NLI, which that leaves out.
PRESETS = {
    preset.name: preset
    for preset in (
        Preset("avg", "", "avg", None, False),
        Preset("last2avg", "-last2avg", "avg-last-2", None, False),
        Preset("flow-target", "-flow (target)", "avg-last-2", {}, False),
        Preset("flow-train", "-flow (target, train only)", "avg-last-2", {"use_full_for_training": 0}, False),
        Preset(
            "flow-nli",
            "-flow (NLI)",
            "avg-last-2",
            {"use_full_for_training": 0, "num_train_epochs": 0.15, "flow_learning_rate": 2e-5},
            True,
        ),
    )
}
