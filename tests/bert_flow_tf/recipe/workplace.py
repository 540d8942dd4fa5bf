"""Small data and flows for the recipe, and stand-ins for its runs."""

import contextlib
import io
import json
import pathlib
import types

import msgspec
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.handles import HUB_HANDLES
from bert_flow_tf.errors import UserError
from bert_flow_tf.recipe import run as recipes
from bert_flow_tf.recipe.run import read_environment, recipe_stages, run_stages
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.runs.folder import FinishedRun, write_result
from bert_flow_tf.sample_data import sample_glue_dir
from tests.bert_flow_tf import records
from tests.bert_flow_tf.small_runs import small_flow_file, write_tsv


def write_first_pairs(folder: pathlib.Path, pairs: int) -> None:
    """Write the first pairs of the sample's splits in GLUE's layout."""
    sample = pathlib.Path(sample_glue_dir())
    for path in sample.rglob("*.?sv"):
        # A file of gold scores has no header.
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[: pairs + (path.suffix == ".tsv")]
        copy = folder / path.relative_to(sample)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("".join(lines), encoding="utf-8")


@contextlib.contextmanager
def with_small_flow(folder, **environ):
    """Give the recipe small flows, which TensorFlow traces fast, and set variables."""
    with pytest.MonkeyPatch.context() as patch:
        # Data-dependent initialisation shows the flow's effect without its training.
        small = {"flow_model_config": small_flow_file(folder), "flow_ddi": True}
        patch.setattr(recipes, "FLOW_FLAGS", recipes.FLOW_FLAGS | small)
        for name, value in environ.items():
            patch.setenv(name, str(value))
        yield


def printed_by(main, environ):
    """Return the output of a recipe's `main`; it must succeed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([], environ) == 0
    return out.getvalue()


class Workplace:
    """A folder in which stand-ins for runs leave small results.

    Args:
      root: folder to work in.
      monkeypatch: the fixture, which puts the stand-ins in place.
    """

    def __init__(self, root, monkeypatch):
        self.root = root
        self.glue = root / "glue"
        for name in ("STS-B", "MNLI", "SNLI"):
            (self.glue / name).mkdir(parents=True)
        rows = [["-"] * 7 + pair for pair in (["sentence1", "sentence2"], *([s, s] for s in "abcd"))]
        write_tsv(self.glue / "STS-B" / "test.tsv", rows)
        gold = [["-"] * 4 + [gold, s, s] for gold, s in zip("1243", "abcd", strict=True)]
        write_tsv(self.glue / "STS-B" / "sts-test.csv", gold)
        self.cosines = {"STS-B": [0.1, 0.2, 0.3, 0.4]}
        self.environ = {"GLUE_DIR": str(self.glue), "OUTPUT_PARENT_DIR": str(root / "exp")}
        self.failing = None
        self._calls = []
        monkeypatch.setattr(recipes, "train_and_score", self.leave_results)
        # Among the objects of a whole test run a collection takes a second, and there is one for each stage.
        monkeypatch.setattr(recipes, "gc", types.SimpleNamespace(collect=lambda: None))
        monkeypatch.setattr(BertFlow, "from_pretrained", lambda path: _Exports(self, path))

    def run(self, overwrite=False, **variables):
        return run_stages(recipe_stages(read_environment({**self.environ, **variables})), overwrite=overwrite)

    def leave_results(self, settings):
        settings.check()
        run_dir = settings.output_dir
        if settings.do_train and (run_dir / "train_results.json").exists():
            raise FinishedRun(f"{run_dir}: found a finished run")
        self._calls.append(vars(settings))
        if settings.exp_name == self.failing:
            raise UserError("something failed")
        run_dir.mkdir(parents=True, exist_ok=True)
        if settings.do_train:
            self.leave_run(run_dir)
        else:
            cosines = self.cosines[settings.task_name]
            handle = HUB_HANDLES.get(settings.bert_hub, settings.bert_hub)
            encoder = records.encoder("base" if settings.bert_hub == "base" else "demo", handle=handle)
            model = records.model(encoder=encoder, pooling=settings.sentence_embedding_type)
            if settings.flow:
                model = msgspec.structs.replace(model, flow=records.flow(seed=settings.seed))
            record = Predictions(made_by=records.MADE_BY, model=model, task="x", splits=["test"], pairs=len(cosines))
            text = "".join(f"{cosine}\n" for cosine in cosines)
            write_result(settings.prediction_path, text, overwrite=True, record=record)

    def leave_run(self, run_dir):
        for name in ("config.json", "train_results.json", "eval_results.txt"):
            (run_dir / name).write_text(json.dumps({"encoder_trained": True}))

    def export(self, run_dir, out):
        self._calls.append({"exp_name": run_dir.name, "exports": True})
        (out / "1").mkdir(parents=True)

    def calls(self):
        """The flags of the runs, and the exports, since the last time."""
        calls, self._calls = self._calls, []
        return calls

    def names(self):
        """The names of the folders of `calls`."""
        return [call["exp_name"] for call in self.calls()]


class _Exports:
    """Stands in for the model of a run, to export it."""

    def __init__(self, workplace, run_dir):
        self.workplace = workplace
        self.run_dir = run_dir

    def export(self, out, version):
        self.workplace.export(self.run_dir, out)
