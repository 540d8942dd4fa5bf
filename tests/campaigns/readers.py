"""The readers of all files and answers that come from elsewhere: what each one reads, and a valid one of it."""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import socket
import threading
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import pyarrow
import pyarrow.parquet
from absl import flags

from bert_flow_tf import cli, run_siamese
from bert_flow_tf.commands import calibrate, query, similarity
from bert_flow_tf.data import folders, sts_sets, tasks
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import predicted
from bert_flow_tf.files import outputs, ownership
from bert_flow_tf.files.json_files import to_json
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.recipe import environment, run, stages, stamps
from bert_flow_tf.report import page, sections
from bert_flow_tf.results.collect import analysis_plots, collect
from bert_flow_tf.results.sources import find_sources
from bert_flow_tf.runs import folder as run_folder
from bert_flow_tf.runs.record import is_run, read_config
from bert_flow_tf.runs.settings import FLAGS, Settings
from bert_flow_tf.serving import client, server_files
from tests.bert_flow_tf import records, small_runs
from tests.bert_flow_tf.results import written

Folder = pathlib.Path
_TINY = Folder(__file__).parents[1] / "golden" / "data" / "bert_tiny"
_SENTENCES = ["A boat.", "", 'She said "now".', "東京 in spring"]
_ROWS = 6


@dataclasses.dataclass(frozen=True)
class Reader:
    """What reads a folder.

    Attributes:
      make: fills an empty folder with what can be read; it gets the folder that `make_models` has filled, too.
      read: reads such a folder; what it gives is checked by `holds`, which is false of what means nothing.
      share: its part of all inputs, compared with other readers'.
      whole: whether a beginning of a file is always refused.
      models: whether `make` needs what `make_models` makes.
      places: whether something else is put in the place of a file, too.
      is_stream: whether a pipe is waited for.
    """

    make: Callable[[Folder, Folder], object]
    read: Callable[[Folder], Any]
    share: int = 4
    whole: bool = False
    models: bool = False
    places: bool = True
    is_stream: bool = False
    holds: Callable[[Any], bool] = lambda value: True


def make_models(folder: Folder) -> None:
    """Fills the folder with what TensorFlow writes: encoders, a saved model, a run's checkpoints."""
    import safetensors.numpy
    import tensorflow as tf

    from bert_flow_tf import BertFlow
    from bert_flow_tf.encoder.convert.from_huggingface import hugging_face_name
    from bert_flow_tf.encoder.convert.from_tf1 import convert_tf1
    from bert_flow_tf.files.checkpoints import Checkpoint
    from bert_flow_tf.files.json_files import write_json
    from tests.small_bert import write_small_bert

    write_small_bert(_TINY, folder / "tf1")
    convert_tf1(folder / "tf1" / "bert_model.ckpt", folder / "encoder")
    held = Checkpoint(folder / "tf1" / "bert_model.ckpt")
    weights = {hugging_face_name(name): held[name] for name in held.shapes}
    weights = {
        name: np.ascontiguousarray(v.T if v.ndim == 2 and "embed" not in name else v) for name, v in weights.items()
    }
    there = folder / "huggingface"
    there.mkdir()
    safetensors.numpy.save_file(weights, there / "model.safetensors")
    (there / "vocab.txt").write_bytes((folder / "tf1" / "vocab.txt").read_bytes())
    (there / "config.json").write_bytes((folder / "tf1" / "bert_config.json").read_bytes())
    (there / "tokenizer_config.json").write_text('{"do_lower_case": true, "model_max_length": 512}')
    model = BertFlow.from_hub(folder / "encoder", max_seq_length=8)
    flow = small_runs.small_flow_file(folder)
    model.fit([f"w{i} w{i + 1}" for i in range(16)], batch_size=8, flow_model_config=flow).save(folder / "model")
    variables = {name: tf.Variable(np.arange(6.0), name=name) for name in ("a", "b/c")}
    checkpoint = tf.train.Checkpoint(step=tf.Variable(0, dtype=tf.int64), encoder=variables)
    manager = tf.train.CheckpointManager(checkpoint, str(folder / "run"), 3, checkpoint_name="model.ckpt")
    for number in (0, 2, 4):
        checkpoint.step.assign(number)
        manager.save(checkpoint_number=number)
    write_json(folder / "run" / "config.json", records.run_config(encoder_trained=True))


def _files(contents: dict[str, str | bytes]) -> Callable[[Folder, Folder], None]:
    """Writes files, by name."""

    def make(folder: Folder, models: Folder) -> None:
        for name, content in contents.items():
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return make


def _part(name: str) -> Callable[[Folder, Folder], None]:
    """A copy of one of the models."""

    def make(folder: Folder, models: Folder) -> None:
        from tests.campaigns.rubbish import copied

        copied(models / name, folder)

    return make


def _parquet() -> bytes:
    sink = pyarrow.BufferOutputStream()
    table = pyarrow.table({"sentence": _SENTENCES * 40, "other": list(range(160))})
    pyarrow.parquet.write_table(table, sink, row_group_size=100)
    return sink.getvalue().to_pybytes()


def _npy() -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, np.arange(4.0 * _ROWS, dtype=np.float32).reshape(_ROWS, 4))
    return stream.getvalue()


def _strings(found: Any) -> bool:
    return all(isinstance(one, str) or all(isinstance(part, str) for part in one) for one in found)


# Tasks: GLUE's layouts.


def _make_task(task: tasks.Task, folder: Folder) -> None:
    labels = list(task.label_scores or task.label_names) or ["0", "1"]
    # The gold scores last: SICK's are in the file of its test split.
    for layout in filter(None, (task.train, task.dev, task.test, task.gold_test)):
        width = layout.min_columns + (layout.label_column == -1)
        cells = [(f"first {i}", f"second {i}", labels[i % len(labels)]) for i in range(_ROWS)]
        rows = []
        for values in [*([layout.header] if layout.header else []), *cells]:
            rows.append(["-"] * width)
            for column, value in zip(layout.columns, values, strict=False):
                rows[-1][column] = value
        small_runs.write_tsv(folder / layout.name, rows)


def _task_reader(task: tasks.Task) -> Reader:
    def make(folder: Folder, models: Folder) -> None:
        _make_task(task, folder / (task.sibling or task.directory))

    def read(folder: Folder) -> list[np.ndarray]:
        # Each file once.
        splits = {task.layout(split).name: split for split in tasks.SPLITS}.values()
        found = [tasks.read_split(task, folder / task.directory, split).labels for split in splits]
        for split in tasks.SPLITS if task.is_regression else ():
            if task.gold_test or (split != "test" and task.train.label_column is not None):
                found.append(tasks.gold_scores(task, folder, split))
        return found

    def holds(found: list[np.ndarray]) -> bool:
        most = task.label_max if task.is_regression else len(task.label_names) - 1
        return all(
            len(labels) and np.isfinite(labels).all() and 0 <= labels.min() <= labels.max() <= most for labels in found
        )

    return Reader(make, read, 2, holds=holds)


def _make_senteval(folder: Folder, models: Folder) -> None:
    there = folder / "STS" / "STS13-en-test"
    there.mkdir(parents=True)
    for subset in sts_sets.SENTEVAL_SUBSETS["sts13"]:
        (there / f"STS.input.{subset}.txt").write_text("".join(f"a {i}\tb {i}\n" for i in range(_ROWS)))
        (there / f"STS.gs.{subset}.txt").write_text("1.5\n\n2\n3\n0\n5\n")


# Records and results.


def _make_results(folder: Folder, models: Folder) -> None:
    written.write_all(folder)
    made = written.reproduction({"flow-target": [0.7, 0.71, 0.72], "avg": [0.6]}, lambda name, seed: written.CLS)
    written.write(folder / "reproduction" / "reproduction.json", made)


def _report(folder: Folder) -> Any:
    sources, _ = find_sources([folder])
    report = collect(sources, "title", None)
    parts, lead = sections.sections(report), sections.lead(report)
    plots = dict.fromkeys(report["figures"], b"<svg/>")
    plots |= analysis_plots(sources)
    page.html_page("title", lead, parts, plots, report["figures"], report["alternatives"])
    page.markdown_page("title", lead, parts)
    return report


def _page(folder: Folder) -> None:
    sources, _ = find_sources([folder])
    page.write_report(folder.parent / "report", collect(sources, "title", None), analysis_plots(sources))


def _written_back(found: Any) -> bool:
    """Whether JSON can hold what was read, and none of its counts is negative."""
    return not _negative(json.loads(to_json(found)))


def _negative(value: Any, key: str = "") -> bool:
    if isinstance(value, dict):
        return any(_negative(one, name) for name, one in value.items() if name not in ("settings", "flags"))
    if isinstance(value, list):
        return any(_negative(one, key) for one in value)
    return (isinstance(value, int) and value < 0) or (key in ("seconds", "fit_seconds", "std") and (value or 0) < 0)


_STAGE = stages.Stage("stage", "a stage", "module", (), {"seed": "1", "data": "a" * 64}, Folder("."))


def _make_stamp(folder: Folder, models: Folder) -> None:
    stamps.Stamps(folder).write(_STAGE, stamps.FINISHED, seconds=1.5, pearson=0.5, spearman=0.5, split="test")


def _make_run(folder: Folder, models: Folder) -> None:
    written.write(folder / "config.json", records.run_config())
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-2"\n')
    (folder / "eval_results.txt").write_text("eval_loss = 0.5\n")
    made = {"made_by": records.MADE_BY, "model": records.model(), "task": "sts-b", "splits": ["test"], "pairs": 3}
    written.write(folder / "test_results.json", run.Predictions(**made))


def _run(folder: Folder) -> Any:
    """Whatever reads a run's folder before TensorFlow does; each of them must refuse in its own way."""
    config = read_config(folder)
    is_run(folder)
    run_folder.latest_checkpoint(folder)
    run.predictions_record(folder / "test_results.tsv")
    run_folder.write_result(folder / "eval_results.txt", "eval_loss = 0.5\n", False)
    with run_folder.owned_run(folder):
        run_folder.open_run(folder, records.run_config(), False, [folder / "x"])
    return config is None or _written_back(config)


def _bert(folder: Folder) -> Any:
    from bert_flow_tf.encoder.convert import folders, from_huggingface, weights
    from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
    from bert_flow_tf.encoder.convert.families import read_hugging_face_config

    config = read_tf1_config(folder / "bert_config.json")
    weights.variable_shapes(config)
    weights.variable_shapes(read_hugging_face_config(folder / "bert_config.json"))
    from_huggingface.lower_cases(folder)
    return config, folders.read_encoder_record(folder)


def _make_markers(folder: Folder, models: Folder) -> None:
    for name, marker in (("run", "config.json"), ("tf1", "converted_from.json"), ("encoder", "source.json")):
        (folder / name).mkdir()
        (folder / name / marker).write_text('{"tf1_checkpoint": 1, "run_of_bert_flow_tf": 2}')
    subset = sts_sets.ScoredPairs("x", ["a", "b"], ["c", "d"], np.zeros(2))
    folders.write_full_text(folder / "STS-12", [subset], "sts12")


def _markers(folder: Folder) -> None:
    from bert_flow_tf.encoder.convert.folders import CONVERTED_RUN, ENCODER_FOLDER, TF1_CHECKPOINT

    for name, kind in (("run", CONVERTED_RUN), ("tf1", TF1_CHECKPOINT), ("encoder", ENCODER_FOLDER)):
        outputs.output_folder(folder / name, kind, overwrite=True)
    folders.check_folder(folder / "STS-12", "--out", True)
    subset = sts_sets.ScoredPairs("x", ["a", "b"], ["c", "d"], np.zeros(2))
    folders.keep_full_text(folder / "STS-12", [subset], "sts12", flag="--out", overwrite=True)


def _server_files(folder: Folder) -> str:
    server_files.edited_server_files(folder, "stsb")
    server_files.check_destination(folder, None, False)
    return query._name(str(folder))


# Flags: the arguments of a command line, a file for each.

_ARGUMENTS = {
    "analyze lexical": "--model . --task stsb --glue_dir glue --split dev --out x",
    "calibrate": "--embeddings x.npy --task STS-B --glue_dir glue --methods none,flow --seeds 7,8 --out x.json",
    "convert": "--tf1_flow x --sentence_embedding_type avg --max_seq_length 64 --low_dim 2 --out x --cased",
    "encode": "--bert_hub demo --max_seq_length 16 --input x.tsv --column 2 --out y.npy --batch_size 32 --normalize",
    "evaluate": "--bert_hub demo --tasks sts12,stsb --glue_dir glue --senteval_dir x --split test --out x.json",
    "export": "--model . --out x --version 2 --low_dim 4 --max_seq_length 32 --dtype bfloat16 --format onnx",
    "fit": "--bert_hub demo --input x --out y --num_train_epochs 0.5 --train_batch_size 32 --seed 7",
    "prepare": "--data sts12,tfds:glue/stsb --senteval_dir x --out y",
    "pretrain": "--bert_hub demo --text x.tsv y.tsv --column 2 --steps 200 --learning_rate 1e-4 --out y --seed 7",
    "query": "--target http://a:1 --model x --version 3 --timeout 2.5 --batch_size 8 --pair a b",
    "report": "--runs a b --out y --title t",
    "reproduce": "--rows avg --tasks stsb --seeds 3 --glue_dir glue --out y",
    "similarity": "--bert_hub demo --pairs x.tsv --columns 1,2",
}


def _make_arguments(arguments: dict[str, str]) -> Callable[[Folder, Folder], None]:
    def make(folder: Folder, models: Folder) -> None:
        for name, line in arguments.items():
            (folder / name).write_text(line.replace(" ", "\0"))

    return make


def _arguments(path: Folder) -> list[str]:
    return [os.fsdecode(part) for part in path.read_bytes()[:200_000].split(b"\0")]


def _bert_flow(folder: Folder) -> list[tuple[list[str], dict]]:
    """Each command's arguments, and what is made of them before the command itself begins."""
    found = []
    for path in sorted(folder.iterdir()):
        arguments, command = _arguments(path), cli.main
        try:
            for name in path.name.split():
                command = command.get_command(click.Context(command), name)
            found.append((arguments, command.make_context(path.name, list(arguments)).params))
        except click.UsageError as error:
            raise UserError(cli.usage_line(error)) from None
        except click.exceptions.Exit:
            pass
    return found


def _run_siamese(folder: Folder) -> list[tuple[list[str], dict]]:
    values, arguments = flags.FlagValues(), _arguments(folder / "run_siamese")
    run_siamese.define_flags(values)
    run_siamese.parse(["run_siamese", *arguments], values)
    found = {name: getattr(values, name) for name in FLAGS}
    settings = Settings.of(**found)
    settings.check()
    assert settings.output_dir.name
    return [([part for argument in arguments for part in argument.split("=", 1)], found)]


def _as_written(found: list[tuple[list[str], dict]]) -> bool:
    """Whether all numbers were given in ASCII digits."""
    for arguments, values in found:
        for name, value in values.items():
            if type(value) in (int, float) and (flag := f"--{name}") in arguments[:-1]:
                text = arguments[arguments.index(flag) + 1]
                if not text.isascii() or "_" in text:
                    return False
    return True


def _environment(folder: Folder) -> None:
    values = (folder / "values").read_text(errors="surrogateescape").split("\n")
    names = ("BERT_NAME", "BERT_HUB", "RANDOM_SEED", "SKIP_NLI", "TASK_NAME", "INIT_CKPT", "OUTPUT_PARENT_DIR")
    environment.read_environment(dict(zip(names, values, strict=False)))


def _columns(folder: Folder) -> list[str]:
    columns = _arguments(folder / "columns")
    table = folder / "x.tsv"
    table.write_text("a\tb\nc\td\n")
    list(read_sentences(table, columns=columns))
    return columns


def _are_columns(found: list[str]) -> bool:
    """Whether all are names of columns, or numbers of columns as they are written."""
    return all(one in ("a", "b") for one in found) or all(one in ("1", "2") for one in found)


# What TensorFlow reads.


def _checkpoint(folder: Folder) -> Any:
    from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
    from bert_flow_tf.encoder.convert.from_tf1 import read_tf1_weights
    from bert_flow_tf.encoder.tokenizer import Tokenizer
    from bert_flow_tf.encoder.vocabulary import read_vocabulary
    from bert_flow_tf.files.checkpoints import checkpoint_prefix

    prefix = checkpoint_prefix(folder)
    read_tf1_weights(prefix, read_tf1_config(folder / "bert_config.json"))
    return Tokenizer(read_vocabulary(folder / "vocab.txt"), True)


def _run_checkpoints(folder: Folder) -> Any:
    from bert_flow_tf.encoder.convert import from_run
    from bert_flow_tf.files.checkpoints import whole_checkpoint

    prefix, _ = from_run.run_checkpoint(folder)
    found = from_run.run_variables(prefix), from_run.run_step(prefix)
    whole_checkpoint(folder, "model.ckpt", 3, remove=False)
    whole_checkpoint(folder, "model.ckpt", 3, remove=True)
    return found


def _hugging_face(folder: Folder) -> Any:
    from bert_flow_tf.encoder.convert import families, from_huggingface

    from_huggingface.lower_cases(folder)
    config = families.read_hugging_face_config(folder / "config.json")
    return from_huggingface.read_hugging_face_weights(folder, config)


def _make_cache(folder: Folder, models: Folder) -> None:
    from bert_flow_tf.encoder import cache

    cache._write(folder / "embeddings.npy", np.ones([_ROWS, 4], np.float32))


def _cache(folder: Folder) -> Any:
    from bert_flow_tf.encoder import cache

    return cache._read(folder / "embeddings.npy", (_ROWS, 4))


def _cache_of_others(folder: Folder) -> Any:
    """The same where the digest fits whatever the file holds."""
    path = folder / "embeddings.npy"
    if path.is_file() and len(data := path.read_bytes()[:1_000_000]) > 32:
        path.write_bytes(data[:-32] + hashlib.sha256(data[:-32]).digest())
    return _cache(folder)


def _saved_model(folder: Folder) -> Any:
    """A saved model in which half of what was changed has the digest that its configuration says."""
    from bert_flow_tf import BertFlow

    config = folder / "bert_flow.json"
    try:
        record = json.loads(config.read_bytes()) if config.is_file() else {}
        for name in record["files"]:
            if name.endswith((".npz", ".txt", ".json")) and (folder / name).is_file():
                record["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        config.write_text(json.dumps(record))
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        pass
    return BertFlow.from_pretrained(folder)


def _encoder(folder: Folder) -> Any:
    from bert_flow_tf import BertFlow

    return BertFlow.from_hub(folder, max_seq_length=8)


# Answers of servers.


class _Server:
    """A socket that answers every request with the same bytes."""

    def __init__(self) -> None:
        self.answer = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                try:
                    connection.recv(1 << 16)
                    connection.sendall(self.answer)
                except OSError:
                    pass


@functools.cache
def _rest_server() -> _Server:
    return _Server()


def _rest(ask: str, with_headers: bool) -> Callable[[Folder], Any]:
    def read(folder: Folder) -> Any:
        data = (folder / "answer").read_bytes()
        if with_headers:
            data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        _rest_server().answer = data
        target = f"http://127.0.0.1:{_rest_server().port}"
        with client.connect(target, "stsb", timeout=0.15) as served:
            return served.encode(["a", "b"]) if ask == "encode" else served.status()

    return read


@functools.cache
def _grpc_server() -> tuple[Any, int]:
    import concurrent.futures

    import grpc

    answer = [b""]

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: answer[0])

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    server.add_generic_rpc_handlers([Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port, answer


@functools.cache
def _grpc_client() -> Any:
    return client.connect(f"grpc://127.0.0.1:{_grpc_server()[1]}", "stsb", timeout=5)


def _grpc(ask: str) -> Callable[[Folder], Any]:
    def read(folder: Folder) -> Any:
        _grpc_server()[2][0] = (folder / "answer").read_bytes()
        return _grpc_client().encode(["a", "b"]) if ask == "encode" else _grpc_client().status()

    return read


def _make_grpc(ask: str) -> Callable[[Folder, Folder], None]:
    def make(folder: Folder, models: Folder) -> None:
        import tensorflow as tf
        from tensorflow_serving.apis import get_model_status_pb2, predict_pb2

        if ask == "encode":
            answer = predict_pb2.PredictResponse()
            answer.outputs["embedding"].CopyFrom(tf.make_tensor_proto(np.ones([2, 3], np.float32)))
        else:
            answer = get_model_status_pb2.GetModelStatusResponse()
            version = answer.model_version_status.add(version=3, state=30)
            version.status.error_message = "why"
        (folder / "answer").write_bytes(answer.SerializeToString())

    return make


def _embeddings(found: np.ndarray) -> bool:
    return found.shape[0] == 2 and found.dtype == np.float32 and bool(np.isfinite(found).all())


def _states(found: list) -> bool:
    return all(isinstance(version, int) and version >= 0 for version, _ in found)


def _sentences(name: str, columns: list[str] | None = None) -> Callable[[Folder], list]:
    return lambda folder: list(read_sentences(folder / name, columns=columns))


def _flow_config(folder: Folder) -> Any:
    from bert_flow_tf.runs.settings import flow_config

    return flow_config(folder / "flow.json")


_STATUS = '{"model_version_status": [{"version": "3", "state": "AVAILABLE", "status": {"error_code": "OK"}}]}'
_OUTPUTS = '{"outputs": [[0.5, 1e-3, -2], [1, 2.5, 3]]}'
_HTTP = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(_OUTPUTS)}\r\n\r\n{_OUTPUTS}"
_TSV = "sentence\tother\n" + "".join(f"{one}\t{i}\n" for i, one in enumerate(_SENTENCES))
_CSV = "sentence,other\n" + "".join(
    f'"{one.replace(chr(34), 2 * chr(34))}","{i}\n"\n' for i, one in enumerate(_SENTENCES)
)
_JSONL = "".join(json.dumps({"sentence": one, "other": {"x": [i]}}) + "\n" for i, one in enumerate(_SENTENCES))
_PAIRS = "a\tb\nc\td\n"
_BERT_FILES = {
    "bert_config.json": (_TINY / "bert_config.json").read_bytes(),
    "source.json": '{"format_version": 2, "do_lower_case": true, "kind": "x"}',
    "tokenizer_config.json": '{"do_lower_case": true}',
}
_RUN = "--task_name=STS-B --data_dir=glue --output_parent_dir=x --exp_name=y --do_train=true --max_seq_length=64"
_RUN += " --flow=1 --flow_loss=1 --num_examples=0 --learning_rate=1e-3 --train_batch_size=32 --seed=7"

_stream = functools.partial(Reader, is_stream=True, holds=_strings)
_answer = functools.partial(Reader, places=False, share=3)
_model = functools.partial(Reader, models=True)

READERS: dict[str, Reader] = {
    "results": Reader(_make_results, _report, 12, holds=_written_back),
    "page": Reader(_make_results, _page, 1),
    "run": Reader(_make_run, _run, 8, holds=bool),
    "stamp": Reader(_make_stamp, lambda folder: stamps.Stamps(folder).read(_STAGE), whole=True, holds=_written_back),
    "bert_config": Reader(_files(_BERT_FILES), _bert, 6),
    "flow_config": Reader(_files({"flow.json": json.dumps(small_runs.SMALL_FLOW)}), _flow_config, 6, whole=True),
    "markers": Reader(_make_markers, _markers),
    "lock": Reader(_files({"x.lock": ownership._this_process()}), lambda f: ownership._owner(f / "x.lock"), 2),
    "text": _stream(_files({"x.txt": "\n".join(_SENTENCES)}), _sentences("x.txt")),
    "tsv": _stream(_files({"x.tsv": _TSV}), _sentences("x.tsv", ["other", "sentence"])),
    "csv": _stream(_files({"x.csv": _CSV}), _sentences("x.csv", ["other", "sentence"])),
    "jsonl": _stream(_files({"x.jsonl": _JSONL}), _sentences("x.jsonl")),
    "parquet": Reader(_files({"x.parquet": _parquet()}), _sentences("x.parquet"), 8, whole=True, holds=_strings),
    "pairs": _stream(_files({"x": _PAIRS}), lambda folder: list(query._read_pairs(str(folder / "x"))), 2),
    "tsv_pairs": _stream(_files({"x.tsv": _PAIRS}), lambda f: list(similarity._pairs(str(f / "x.tsv"), None, None)), 2),
    **{task.name: _task_reader(task) for task in (*tasks.TASKS.values(), tasks.SNLI)},
    "senteval": Reader(_make_senteval, lambda folder: sts_sets.read_task("sts13", senteval_dir=folder)),
    "predictions": Reader(
        _files({"x": "0.5\n-0.25\n1\n"}),
        lambda folder: predicted.read_predictions(folder / "x"),
        is_stream=True,
        holds=lambda found: len(found) > 0 and bool(np.isfinite(found).all()),
    ),
    "embeddings": Reader(
        _files({"x.npy": _npy()}),
        lambda folder: calibrate._read_embeddings(str(folder / "x.npy"), _ROWS),
        10,
        whole=True,
        holds=lambda found: found.shape[0] == _ROWS and found.dtype.kind == "f" and bool(np.isfinite(found).all()),
    ),
    "server_files": Reader(lambda folder, _: server_files.write_server_files(folder, "stsb"), _server_files),
    "bert_flow": Reader(_make_arguments(_ARGUMENTS), _bert_flow, 10, places=False, holds=_as_written),
    "run_siamese": Reader(_make_arguments({"run_siamese": _RUN}), _run_siamese, 8, places=False, holds=_as_written),
    "environment": Reader(_files({"values": "base\ndemo\n7\n0\nSTS-B\nx"}), _environment, places=False),
    "columns": Reader(_make_arguments({"columns": "2 1"}), _columns, places=False, holds=_are_columns),
    "rest": _answer(_files({"answer": _OUTPUTS}), _rest("encode", with_headers=True), holds=_embeddings),
    "rest_status": _answer(_files({"answer": _STATUS}), _rest("status", with_headers=True), holds=_states),
    "http": _answer(_files({"answer": _HTTP}), _rest("encode", with_headers=False), holds=_embeddings),
    "grpc": _answer(_make_grpc("encode"), _grpc("encode"), holds=_embeddings),
    "grpc_status": _answer(_make_grpc("status"), _grpc("status"), holds=_states),
    "cache": Reader(_make_cache, _cache, holds=lambda x: x is None or np.array_equal(x, np.ones([_ROWS, 4]))),
    "cache_of_others": Reader(_make_cache, _cache_of_others, holds=lambda x: x is None or x.shape == (_ROWS, 4)),
    "tf1": _model(_part("tf1"), _checkpoint, 3),
    "checkpoints": _model(_part("run"), _run_checkpoints, 4),
    "huggingface": _model(_part("huggingface"), _hugging_face, 4),
    "saved_model": _model(_part("model"), _saved_model, 1),
    "encoder": _model(_part("encoder"), _encoder, 1),
}
