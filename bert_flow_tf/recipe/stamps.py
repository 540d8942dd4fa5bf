"""What is known of each stage of the recipe, kept on disk so that nothing finished is run twice."""

import pathlib
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from bert_flow_tf.recipe.stages import Stage
from bert_flow_tf.runs.folder import differences
from bert_flow_tf.runs.record import Seconds

RUNNING = "running"
FINISHED = "finished"
TO_DO_AGAIN = "to do again"


class Stamp(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a `Stage` that was begun, and the scores of what it predicted on a split."""

    state: Annotated[str, msgspec.Meta(pattern=f"^({RUNNING}|{FINISHED}|{TO_DO_AGAIN})$")]
    title: str
    settings: dict[str, str]
    seconds: Seconds = 0.0
    pearson: float | None = None
    spearman: float | None = None
    auc: float | None = None
    split: str | None = None


class Stamps:
    """A folder with a JSON file, a `Stamp`, for each stage that was begun."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    def read(self, stage: Stage) -> Stamp | None:
        """The stage's stamp, None if it was never begun.

        Raises:
          UserError: it was begun with other settings, or it never was, and what it makes is there.
        """
        path = self._path(stage)
        if not path.exists():
            if stage.makes is not None and stage.makes.exists():
                raise UserError(
                    f"{stage.makes}: exists, and {stage.title!r} was never begun here, expected nothing (set another "
                    "OUTPUT_PARENT_DIR, or use --overwrite to replace it)"
                )
            return None
        stamp = read_json(path, Stamp, expected="a stage's stamp; --overwrite runs the stages again")
        differing = differences(_shortened(stamp.settings), _shortened(stage.settings))
        if differing:
            raise UserError(
                f"{path}: {stage.title!r} was begun with other settings ({'; '.join(differing)}), expected the same"
                " (set another OUTPUT_PARENT_DIR, or use --overwrite to run every stage again)"
            )
        return stamp

    def write(self, stage: Stage, state: str, **results: Any) -> Stamp:
        """The stage's new stamp, after writing it."""
        stamp = Stamp(state, stage.title, dict(stage.settings), **results)
        write_json(self._path(stage), {"format_version": FORMAT_VERSION} | msgspec.to_builtins(stamp))
        return stamp

    def _path(self, stage: Stage) -> pathlib.Path:
        return self.folder / f"{stage.name}.json"


def _shortened(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with digests cut to a length that fits a line."""
    return {name: value[:12] if re.fullmatch(r"[0-9a-f]{64}", value) else value for name, value in settings.items()}
