"""Small data for the recipe, and a stand-in for the commands that it runs."""

import pathlib
import sys

import click
import msgspec
from absl import flags

from bert_flow_tf.cli import main as bert_flow
from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.run import run
from bert_flow_tf.recipe.stages import stages_of
from bert_flow_tf.results.records import Predictions
from bert_flow_tf.run_siamese import define_flags
from bert_flow_tf.runs.folder import write_result
from bert_flow_tf.runs.settings import FLAGS, Settings
from bert_flow_tf.sample_data import sample_glue_dir
from tests.bert_flow_tf import records
from tests.bert_flow_tf.small_runs import write_tsv


def write_first_pairs(folder: pathlib.Path, pairs: int) -> None:
    """Writes the first pairs of every split of the sample data into a new folder in GLUE's layout."""
    sample = pathlib.Path(sample_glue_dir())
    for path in sample.rglob("*.?sv"):
        # A file of gold scores has no header.
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[: pairs + (path.suffix == ".tsv")]
        copy = folder / path.relative_to(sample)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("".join(lines), encoding="utf-8")


class Workplace:
    """A GLUE folder and an output folder, and the commands that were asked for there.

    Its `execute` leaves of each command what the recipe looks for. It reads the flags as the command does, so that one
    that the command refuses is refused here.
    """

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.glue = root / "glue"
        for name in ("STS-B", "MNLI", "SNLI"):
            (self.glue / name).mkdir(parents=True)
            (self.glue / name / "train.tsv").write_text(f"{name}\n")
        write_tsv(self.glue / "STS-B" / "sts-test.csv", [["-"] * 4 + [gold, "a", "b"] for gold in "1243"])
        self.cosines = {"STS-B": [0.1, 0.2, 0.3, 0.4]}
        self.environ = {"GLUE_DIR": str(self.glue), "OUTPUT_PARENT_DIR": str(root / "exp")}
        self._calls = []
        self._failing = None

    def run(self, overwrite=False, **variables):
        recipe = read_environment({**self.environ, **variables})
        return run(stages_of(recipe), recipe.output_dir, overwrite=overwrite, execute=self.execute)

    def execute(self, command):
        """Stands in for a process: exit status of the command line."""
        assert command[:2] == [sys.executable, "-m"]
        module, arguments = command[2], command[3:]
        if module == "bert_flow_tf.cli":
            return self._export(arguments)
        assert module == "bert_flow_tf.run_siamese"
        values = flags.FlagValues()
        define_flags(values)
        values(["run_siamese", *arguments])
        settings = Settings.of(**{name: getattr(values, name) for name in FLAGS})
        settings.check()
        self._calls.append((module, {name: getattr(values, name) for name in FLAGS if values[name].present}))
        if settings.output.exp_name == self._failing:
            return 7
        self.leave_results(settings)
        return 0

    def leave_results(self, settings):
        settings.output_dir.mkdir(parents=True, exist_ok=True)
        if settings.output.do_train:
            self.leave_checkpoint(settings.output_dir)
        if settings.output.do_predict:
            cosines = self.cosines[settings.data.task_name]
            model = records.model(pooling=settings.embedding.sentence_embedding_type)
            if settings.flow.flow:
                model = msgspec.structs.replace(model, flow=records.flow(seed=settings.training.seed))
            record = Predictions(made_by=records.MADE_BY, model=model, task="x", splits=["test"], pairs=len(cosines))
            text = "".join(f"{cosine}\n" for cosine in cosines)
            write_result(settings.prediction_path, text, overwrite=True, record=record)

    def leave_checkpoint(self, run_dir):
        (run_dir / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-75"\n')

    def _export(self, arguments):
        command = bert_flow.get_command(click.Context(bert_flow), arguments[0])
        options = command.make_context("export", list(arguments[1:])).params
        self._calls.append(("bert_flow_tf.cli", options))
        out = pathlib.Path(options["out"]) / str(options["version"])
        if out.exists():
            return 2
        out.mkdir(parents=True)
        return 0

    def calls(self):
        """The commands since the last time, as (module, {flag: value})."""
        calls, self._calls = self._calls, []
        return calls

    def fail_at(self, exp_name):
        self._failing = exp_name

    def mend(self):
        self._failing = None
