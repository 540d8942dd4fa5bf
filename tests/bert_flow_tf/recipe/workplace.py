"""Small data for the recipe, and stand-ins for its runs."""

import json
import types

import msgspec

from bert_flow_tf.api import BertFlow
from bert_flow_tf.encoder.handles import HUB_HANDLES
from bert_flow_tf.errors import UserError
from bert_flow_tf.recipe import run as recipes
from bert_flow_tf.recipe.run import read_environment, recipe_stages, run_stages
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.runs.folder import FinishedRun, write_result
from tests.bert_flow_tf import records
from tests.bert_flow_tf.small_runs import write_tsv

COSINES, GOLD = [0.1, 0.2, 0.3, 0.4], [1, 2, 4, 3]  # Their Spearman correlation is .8.


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
        gold = [["-"] * 4 + [str(gold), s, s] for gold, s in zip(GOLD, "abcd", strict=True)]
        write_tsv(self.glue / "STS-B" / "sts-test.csv", gold)
        self.cosines = {"STS-B": COSINES}
        self.environ = {"GLUE_DIR": str(self.glue), "OUTPUT_PARENT_DIR": str(root / "exp")}
        self.failing = None
        self._calls = []
        monkeypatch.setattr(recipes, "train_and_score", self.leave_results)
        # Among the objects of a whole test run a collection takes a second, and there is one for each stage.
        monkeypatch.setattr(recipes, "gc", types.SimpleNamespace(collect=lambda: None))
        stand_in = lambda path: types.SimpleNamespace(export=lambda out, version: self.export(path, out))  # noqa: E731
        monkeypatch.setattr(BertFlow, "from_pretrained", stand_in)

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
        """Return the names of the folders of `calls`."""
        return [call["exp_name"] for call in self.calls()]
