"""Exports work in other processes; TensorFlow says so where it does not."""

import asyncio
import copy
import functools
import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf import open_export
from bert_flow_tf.runtime.programs import PROGRAMS
from tests.refusals import user_error

_LIMIT = 60
# Servers that load before they fork end their workers as other programs end.
_PRELOADED = """
import os, sys
from bert_flow_tf import open_export
model = open_export(sys.argv[1], sys.argv[2])
texts = ["the quick brown fox"] + [f"the lazy dog {i}" for i in range(99)]
expected = model.encode(texts)
children = []
for _ in range(2):
    if not (child := os.fork()):
        sys.exit(0 if abs(model.encode(texts) - expected).max() < 1e-4 else 3)
    children.append(child)
sys.exit(any(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))
"""


def _send(function, connection):
    try:
        connection.send(function())
    except Exception as error:  # The parent looks at it.
        connection.send(error)


def in_child(function, method="fork"):
    """Return a function's result in a child, or its error there."""
    context = multiprocessing.get_context(method)
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(function, sending))
    child.start()
    sending.close()
    try:
        assert receiving.poll(_LIMIT), "the child hangs"
        return receiving.recv()
    finally:
        child.kill()
        child.join()


@pytest.fixture(params=sorted(PROGRAMS))
def opened(request, onnx_dir, require):
    require({"onnx": "onnxruntime"}.get(request.param, request.param))
    return open_export(onnx_dir, request.param)


@pytest.mark.parametrize("before", [0, 1, 100])
def test_forked_child_encodes_with_an_export(opened, texts, before):
    opened.encode(texts[:before])
    one = in_child(functools.partial(opened.encode, texts[0]))
    many = in_child(functools.partial(opened.encode, texts))
    np.testing.assert_allclose(one, many[0], atol=1e-5)
    # The parent goes on, and a child's child has no threads either.
    np.testing.assert_allclose(opened.encode(texts), many, atol=1e-5)
    np.testing.assert_allclose(
        in_child(functools.partial(in_child, functools.partial(opened.encode, texts))),
        many,
        atol=1e-5,
    )


@pytest.mark.parametrize("backend", sorted(PROGRAMS))
def test_forked_server_ends_after_its_work(onnx_dir, require, backend):
    require({"onnx": "onnxruntime"}.get(backend, backend))
    subprocess.run([sys.executable, "-c", _PRELOADED, onnx_dir, backend], timeout=90, check=True)


def test_export_is_its_folder_and_settings(onnx_dir, texts, tmp_path, monkeypatch):
    monkeypatch.chdir(onnx_dir.parent)
    model = open_export(onnx_dir.name, truncate_dim=5, threads=1)
    model.max_seq_length = 6
    model.prompts = {"query": "the ", "title": "fox "}
    model.default_prompt_name = "query"
    model.similarity_fn_name = "dot"
    monkeypatch.chdir(tmp_path)
    expected = model.encode(texts)
    for again in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(again.encode(texts), expected, atol=1e-5)
        assert (again.fingerprint, again.similarity_fn_name) == (model.fingerprint, "dot")
        assert again.encoder._workers == 1
    again.max_seq_length = 12
    assert model.max_seq_length == 6
    found = in_child(functools.partial(model.encode, texts), "spawn")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_joblib_takes_an_export(exported, texts, require):
    require("joblib")
    import joblib

    halves = (texts[:50], texts[50:])
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(exported.encode)(half) for half in halves)
    np.testing.assert_allclose(np.concatenate(found), exported.encode(texts), atol=1e-5)


def test_bert_flow_in_a_forked_child_is_one_line(prompted, texts, tmp_path):
    from bert_flow_tf import BertFlow, FlowCalibrator

    folder = prompted.save(tmp_path / "saved")
    rows = prompted.encode(texts)
    for action in (
        functools.partial(prompted.encode, "a cat"),
        functools.partial(prompted.encode, texts),
        functools.partial(prompted.fit, texts),
        functools.partial(prompted.sample, 3),
        functools.partial(prompted.chain.transform, rows),
        functools.partial(BertFlow.from_pretrained, folder),
        functools.partial(FlowCalibrator().fit, rows),
    ):
        found = in_child(action)
        assert isinstance(found, RuntimeError), found
        assert str(found).startswith("TensorFlow: found a forked child"), found
        assert "by spawn, or load the model in the workers" in str(found)


def test_service_awaits_embeddings(exported, texts):
    async def both():
        return await asyncio.gather(
            exported.aembed_query(texts[0]), exported.aembed_documents(texts)
        )

    query, documents = asyncio.run(both())
    np.testing.assert_allclose(query, exported.embed_query(texts[0]), atol=1e-5)
    np.testing.assert_allclose(documents, exported.embed_documents(texts), atol=1e-5)


def test_unknown_threads_or_provider_are_one_line(onnx_dir):
    with user_error("threads: found 0, expected a whole number of 1 or more"):
        open_export(onnx_dir, threads=0)
    with user_error("provider: found 'CPUExecutionProvide'", "mean CPUExecutionProvider?"):
        open_export(onnx_dir, provider="CPUExecutionProvide")
