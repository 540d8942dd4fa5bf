"""Mutations of every JSON file that the package reads.

Each key and item is dropped and each value gets another type. The file is read, or refused by one
line that names it and the place; no exception of a library is a user interface.
"""

import copy
import json
import shutil

import numpy as np
import pytest

from bert_flow_tf import BertFlow, calibrate, load_calibration, open_export
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.losses import Losses, write_losses
from bert_flow_tf.encoder import source as sources
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.report.collected import read_result
from bert_flow_tf.report.rows import _rows_of
from bert_flow_tf.runtime import programs
from bert_flow_tf.runtime.tokenizing import TextTokenizer
from bert_flow_tf.training.run_records import read_config
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.bert_flow_tf import records
from tests.bert_flow_tf.original import written

_OTHER_TYPES = {str: 7, int: "x", float: "x", bool: "x", list: {}, dict: [], type(None): 7}


def mutations(value, place=()):
    """Yield places, words and values in which one thing has changed."""
    kind = type(value)
    yield place, "of another type", _OTHER_TYPES[kind]
    if value is not None:
        yield place, "null", None
    keys = list(value) if kind is dict else []
    if kind is list and value:
        # The first and the last of many items stand for all.
        keys = sorted({0, len(value) - 1})
    for key in keys:
        changed = copy.copy(value)
        del changed[key]
        yield (*place, key), "dropped", changed
        for inner, words, one in mutations(value[key], (*place, key)):
            changed = copy.copy(value)
            changed[key] = one
            yield inner, words, changed


def check(path, read):
    """Check that each mutation is read, or ends in one line.

    Args:
      read: function that uses all of the file.
    """
    whole = path.read_text()
    read()
    found = []
    for place, words, value in mutations(json.loads(whole)):
        path.write_text(json.dumps(value))
        message = None
        try:
            read()
        except UserError as error:
            message = str(error)
        except Exception as error:
            found.append((place, words, repr(error)[:200]))
        # A reader may name the folder, and a dict instead of its key. Where the configuration has
        # no fault of its own, it differs from the arrays, whose variable is named.
        names = [key for key in place if isinstance(key, str)][-3:] or [path.name]
        if message is not None and not (
            message.startswith((str(path), str(path.parent)))
            and any(name in message for name in (*names, "variable "))
        ):
            found.append((place, words, message[:200]))
    path.write_text(whole)
    assert not found, "\n".join(map(str, found))


@pytest.fixture(scope="module")
def model(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    flow = Glow(GlowConfig(n_levels=2, depth=1), 32, seed=0)
    model.maps = [AffineMap(32, np.ones(32), 2 * np.eye(32)), flow]
    model.prompts = {"own": "w1 ", "query": "w2 "}
    model.default_prompt_name = "own"
    return model


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = model.save(tmp_path_factory.mktemp("saved") / "model")
    losses = Losses(made_by=records.MADE_BY, unit="bits", training={1: 2.0}, held_out={1: 3.0})
    write_losses(folder, losses)
    return folder


def read_saved(saved, model, monkeypatch):
    # Weights and vocabulary stay the same.
    monkeypatch.setattr(sources, "resolve_encoder", lambda **_: model.source)
    found = BertFlow.from_pretrained(saved)
    return found.record, found.default_prompt, found.history_, repr(found)


@pytest.mark.parametrize("name", ["bert_flow.json", "calibration.json", "losses.json"])
def test_a_saved_model(saved, model, name, monkeypatch):
    check(saved / name, lambda: read_saved(saved, model, monkeypatch))


def open_ids(folder, texts):
    """Return the ids of texts by an export's tokenizer."""
    tokenizer = TextTokenizer(folder / "tokenizer.json", 8)
    ids, mask = tokenizer.pack(tokenizer.rows([*texts])[0])
    return [tuple(one[: sum(keep)]) for one, keep in zip(ids, mask, strict=True)]


def test_an_export(model, tmp_path, monkeypatch):
    # This format has the same description, and is written without a converter.
    folder = tmp_path / "export"
    model.export(folder, format="sentence-transformers")
    path = folder / "export.json"
    probes = json.loads(path.read_text())["probes"]
    known = dict(zip(open_ids(folder, probes), probes.values(), strict=True))
    some = next(iter(known.values()))

    class Program:
        def __init__(self, *_):
            pass

        def __call__(self, ids, mask, *, alone):
            rows = (
                known.get(tuple(one[: sum(keep)]), some)
                for one, keep in zip(ids, mask, strict=True)
            )
            return np.array([*rows], np.float32)

        def start_anew(self):
            pass

    monkeypatch.setitem(programs.PROGRAMS, "onnx", Program)

    def read():
        found = open_export(folder)
        _ = found.encode("w1", normalize_embeddings=True), found.encode_query("w1")
        _ = found.fingerprint, found.model_record, repr(found)
        list(found.encode_blocks(["w1"], normalize_embeddings=True))

    check(path, read)


@pytest.mark.parametrize(
    "name",
    [
        "source.json",
        "config.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
def test_an_encoders_folder(saved, tmp_path, name, is_own):
    folder = shutil.copytree(saved / "encoder", tmp_path / "encoder")
    if not is_own:
        (folder / "source.json").unlink()
    if (folder / name).exists():
        check(folder / name, lambda: read_hugging_face(folder).config)


def test_a_calibration(tmp_path):
    words = [f"{a}{b}" for a in "abcdefgh" for b in "ijklmnopq"]
    made = calibrate(
        lambda texts: np.array([[*map(ord, text)] for text in texts]), words, method="sn"
    )
    folder = made.save(tmp_path / "calibration")
    for name in ("record.json", "calibration.json"):
        check(folder / name, lambda: load_calibration(folder).record.method)


RESULTS = {
    "scores": written.scores(
        records.model(flow=records.flow()),
        without_flow={"stsb": written.task_scores(pearson={"all": 0.7})},
        stsb=written.task_scores(pearson={"all": 0.7}),
        sts12=written.task_scores("STS-12", {"all": 0.7, "mean": 0.6, "wmean": 0.8}),
    ),
    "comparison": written.comparison(),
    "isotropy": written.isotropies(),
    "reproduction": written.reproduction({"flow": [0.79, 0.8]}),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results(tmp_path, name):
    path = written.write(tmp_path / f"{name}.json", RESULTS[name])

    def read():
        found = read_result(path)
        str(found)
        for _ in _rows_of(found):
            pass

    check(path, read)


def test_a_runs_configuration(tmp_path):
    config = records.run_config(model=records.model(flow=records.flow()))
    path = written.write(tmp_path / "config.json", config)
    check(path, lambda: read_config(tmp_path).identity)


def test_a_flows_configuration(tmp_path):
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(GlowConfig().to_dict()))

    def read():
        try:
            GlowConfig.load(path)
        except ValueError as error:
            # The commands make a line of it.
            raise UserError(str(error)) from error

    check(path, read)
