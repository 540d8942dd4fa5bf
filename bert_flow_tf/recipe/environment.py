"""The recipe that environment variables describe; the text of `recipe/run.py` says what each of them is."""

import os
import pathlib
import re
from collections.abc import Mapping

from bert_flow_tf.data import tasks
from bert_flow_tf.encoder.handles import ENCODER_NAMES
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.remote import refuse_address
from bert_flow_tf.recipe.stages import Recipe, Target
from bert_flow_tf.runs.record import BERT_NAMES
from bert_flow_tf.sample_data import sample_glue_dir

_PREMODELS = {**BERT_NAMES, "large-wwm": "wwm_uncased_L-24_H-1024_A-16"}


def read_environment(environ: Mapping[str, str], target: Target | None = None) -> Recipe:
    """The recipe that the environment variables describe; `target` overrides GLUE_DIR and TASK_NAME.

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
    for folder in ("OUTPUT_PARENT_DIR", "CACHED_DIR"):
        refuse_address(values.get(folder, ""), folder)
    output_dir = pathlib.Path(values.get("OUTPUT_PARENT_DIR", "exp"))
    glue_dir = pathlib.Path(values.get("GLUE_DIR") or sample_glue_dir())
    cached_dir = pathlib.Path(values.get("CACHED_DIR") or output_dir / "cached_data")
    if cached_dir.exists() and not cached_dir.is_dir():
        raise UserError(f"CACHED_DIR: {cached_dir} is not a folder, expected one or nothing there")
    target = _target(values.get("TASK_NAME", "STS-B"), glue_dir) if target is None else target
    return Recipe(
        encoder_name=name,
        encoder_flags=flags,
        init_checkpoint=values.get("INIT_CKPT"),
        glue_dir=glue_dir,
        target=target,
        output_dir=output_dir,
        cached_dir=cached_dir,
        seed=str(int(seed)),
        with_nli=skip_nli == "0",
    )


def _target(task_name: str, glue_dir: pathlib.Path) -> Target:
    task = tasks.get_task(task_name)
    if task.gold_test is None:
        scored = ", ".join(known.directory for known in tasks.TASKS.values() if known.gold_test)
        raise UserError(f"TASK_NAME: {task_name} has no gold scores for its test split, expected one of {scored}")
    gold = pathlib.Path(tasks.gold_path(task, glue_dir, "test"))
    if gold.parent.is_dir() and not gold.is_file():
        # Scores come last: without this they would be missed after hours of training.
        raise UserError(f"GLUE_DIR: no {gold}, expected the gold scores of the test split of {task.directory} there")
    return Target(task.directory, glue_dir / task.directory)


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
                f"BERT_PREMODELS: {folder} is not a folder, expected the TF1 checkpoint of BERT {bert_name} there"
            )
        return bert_name, {
            "vocab_file": str(folder / "vocab.txt"),
            "bert_config_file": str(folder / "bert_config.json"),
            "init_checkpoint": str(folder / "bert_model.ckpt"),
        }
    if hub is None:
        hub = bert_name or "demo"
        if bert_name is not None and bert_name not in ENCODER_NAMES:
            raise UserError(
                f"BERT_NAME: {bert_name} is not on TF-Hub, expected BERT_PREMODELS with {_PREMODELS[bert_name]} in it"
            )
    flags = {"bert_hub": hub}
    if "PREPROCESS_HUB" in values:
        flags["preprocess_hub"] = values["PREPROCESS_HUB"]
    if os.path.isdir(hub) and hub not in ENCODER_NAMES:
        return _as_file_name(os.path.basename(os.path.abspath(hub))), flags
    # https://tfhub.dev/tensorflow/bert_en_uncased_L-12_H-768_A-12/4 -> bert_en_uncased_L-12_H-768_A-12_4
    last_parts = hub.split("?")[0].rstrip("/").split("/")[-2:]
    return _as_file_name("_".join(last_parts if last_parts[-1].isdigit() else last_parts[-1:])), flags


def _as_file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)
