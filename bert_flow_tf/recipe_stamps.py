"""What is known of each stage of the recipe, kept on disk so that nothing finished is done twice."""

import contextlib
import fcntl
import json
import pathlib
import re
from collections.abc import Mapping

from bert_flow_tf.atomic import write_atomically
from bert_flow_tf.errors import UserError
from bert_flow_tf.experiment import differences
from bert_flow_tf.recipe_stages import Stage

RUNNING = "running"
FINISHED = "finished"
TO_DO_AGAIN = "to do again"


class Stamps:
    """A folder with a JSON file for each stage that was begun.

    A stamp is a dictionary: `state` (`RUNNING`, `FINISHED` or `TO_DO_AGAIN`), `title`, the stage's `settings`, and once
    it is finished `seconds` and, of predictions, `pearson`, `spearman`, for two labels `auc`, and `split`.
    """

    def __init__(self, folder: pathlib.Path):
        self.folder = folder

    @contextlib.contextmanager
    def locked(self):
        """A context in which no other process works on these stages.

        Raises:
          UserError: another process does already.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"{self.folder.parent}: another run is at work there, expected none") from None
            yield

    def read(self, stage: Stage) -> dict | None:
        """The stage's stamp, None if it was never begun.

        Raises:
          UserError: the file is no stamp, or the stage was begun with other settings.
        """
        path = self._path(stage)
        try:
            stamp = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise UserError(f"{path}: {error}; expected a stage's stamp, --overwrite does the stages again") from None
        if not isinstance(stamp, dict) or "state" not in stamp or not _are_settings(stamp.get("settings")):
            raise UserError(f"{path}: found no state and settings, --overwrite does the stages again")
        differing = differences(_shortened(stamp["settings"]), _shortened(stage.settings))
        if differing:
            raise UserError(
                f"{path}: {stage.title!r} was begun with other settings ({'; '.join(differing)}), expected the same"
                " (set another OUTPUT_PARENT_DIR, or use --overwrite to do every stage again)"
            )
        return stamp

    def write(self, stage: Stage, state: str, **results) -> dict:
        """The stage's new stamp, after writing it."""
        stamp = {"state": state, "title": stage.title, "settings": dict(stage.settings), **results}
        write_atomically(self._path(stage), json.dumps(stamp, indent=1, ensure_ascii=False) + "\n")
        return stamp

    def _path(self, stage: Stage) -> pathlib.Path:
        return self.folder / f"{stage.name}.json"


def _are_settings(value) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _shortened(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with digests cut to a length that fits a line."""
    return {name: value[:12] if re.fullmatch(r"[0-9a-f]{64}", value) else value for name, value in settings.items()}
