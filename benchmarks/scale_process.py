"""Embeds files, after a warm-up on another, on some CPUs: seconds as one JSON object on stdout.

python -m benchmarks.scale_process encode|shards|ray BERT_HUB CPU[,CPU] WARM_UP_FILE FILE... [--wait]

With --wait it says when it has warmed up, and begins when a line comes.
"""

import functools
import json
import os
import pathlib
import sys
import tempfile

from benchmarks.scale import SHARD_ROWS
from benchmarks.timing import seconds_of
from bert_flow_tf.commands.options import ModelOptions
from bert_flow_tf.errors import quiet_libraries
from bert_flow_tf.files.embedding_files import embedding_writer
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.scale.bulk import Job, Settings, in_this_process
from bert_flow_tf.scale.shards import cut

_SETTINGS = Settings(shard_rows=SHARD_ROWS)


def main(arguments: list[str]) -> None:
    waits = "--wait" in arguments
    way, bert_hub, cpus, warm_up, *files = (argument for argument in arguments if argument != "--wait")
    # Before TensorFlow makes its threads.
    os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    quiet_libraries()
    load = functools.partial(ModelOptions(bert_hub=bert_hub).load, "float32")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder)
        if way == "ray":
            from bert_flow_tf.scale.on_ray import on_ray

            with on_ray(load, out, _SETTINGS, workers=len(files)) as engine:
                # Of each worker.
                for shard, _ in engine((shard, None) for shard in cut([warm_up] * len(files)).shards):
                    (out / shard.name).unlink()
                seconds = seconds_of(lambda: _job(files, out, engine, engine.model, engine.embedding_size))
        else:
            model = load()
            for _ in model.encode_parts(read_sentences(warm_up)):
                pass
            if waits:
                print("ready", flush=True)
                sys.stdin.readline()
            if way == "encode":
                seconds = seconds_of(lambda: _encode(model, files[0], out / "e.parquet"))
            else:
                engine = in_this_process(model, out, _SETTINGS)
                seconds = seconds_of(lambda: _job(files, out, engine, model.fingerprint, model.embedding_size))
    print(json.dumps({"encode_seconds": seconds}))


def _job(files, out, engine, model, embedding_size) -> None:
    given = cut(files, shard_rows=_SETTINGS.shard_rows)
    Job(given, out, _SETTINGS).run(engine, model, embedding_size, show_progress_bar=False)


def _encode(model, file, out) -> None:
    with embedding_writer(out, file_format="parquet", width=model.embedding_size) as write:
        for part, embeddings in model.encode_parts(read_sentences(file)):
            write(part, embeddings)


if __name__ == "__main__":
    main(sys.argv[1:])
