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
from bert_flow_tf.scale.on_ray import RayEngine, connected
from bert_flow_tf.scale.parts import PartSettings
from bert_flow_tf.scale.shards import Job, ThisProcess, input_files

_SETTINGS = PartSettings(shard_rows=SHARD_ROWS)


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
            with connected(None, len(files), 1):
                engine = RayEngine(load, out, _SETTINGS, workers=len(files), threads=1)
                _job([warm_up], out / "warm_up", engine)
                seconds = seconds_of(lambda: _job(files, out, engine))
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
                seconds = seconds_of(lambda: _job(files, out, ThisProcess(model, out, _SETTINGS)))
    print(json.dumps({"encode_seconds": seconds}))


def _job(files, out, engine) -> None:
    Job(input_files(files), out, _SETTINGS, overwrite=True).run(engine, show_progress_bar=False)


def _encode(model, file, out) -> None:
    with embedding_writer(out, file_format="parquet", width=model.embedding_size) as write:
        for part, embeddings in model.encode_parts(read_sentences(file)):
            write(part, embeddings)


if __name__ == "__main__":
    main(sys.argv[1:])
