"""An opened export gives what `BertFlow` gives, and imports no TensorFlow."""

import concurrent.futures
import json
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.export.formats import ExportSettings, export_path
from bert_flow_tf.model.any_encoder import calibrate_array
from bert_flow_tf.runtime.model import open_export
from bert_flow_tf.runtime.programs import PROGRAMS
from tests.refusals import user_error

TEXTS = [
    "the cat",
    "",
    "Ünder 2nd brown, lazy special",
    "x" * 300,
    "東京 tab\tand\nline 🙂",
    "the quick brown fox jumps over the lazy dog " * 9,
    "the cat",
    "\ue000 [CLS] ΟΔΟΣ",
]
_BLOCKED = ("absl", "msgspec", "pyarrow", "scipy", "sklearn", "tensorflow", "tqdm")
_ALONE = f"""
import sys
sys.modules |= dict.fromkeys({_BLOCKED!r})
import numpy as np
from bert_flow_tf import open_export
model = open_export(sys.argv[1])
texts = ["the cat", "a dog", "brown"]
print(model.encode(texts)[0, 0], model.similarity("the cat", texts).shape, model.prompts["query"])
"""


@pytest.fixture(scope="module", params=sorted(PROGRAMS))
def backend(request, require):
    require({"onnx": "onnxruntime"}.get(request.param, request.param))
    return request.param


@pytest.fixture(scope="module")
def opened(onnx_dir, backend):
    return open_export(onnx_dir, backend)


def assert_close(found, expected):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    sizes = np.maximum(1, np.abs(expected).max(axis=0))
    assert (np.abs(found - expected) <= 1e-5 * sizes).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"prompt": "brown "},
        {"prompt_name": "query", "normalize_embeddings": True},
        {"batch_size": 2, "truncate_dim": 3},
    ],
)
def test_encode_gives_the_models_embeddings(opened, prompted, options):
    assert_close(opened.encode(TEXTS, **options), prompted.encode(TEXTS, **options))
    assert_close(opened.encode(TEXTS[2], **options), prompted.encode(TEXTS[2], **options))


def test_methods_and_properties_are_the_models(opened, prompted):
    assert_close(opened.encode_query(TEXTS[0]), prompted.encode_query(TEXTS[0]))
    assert_close(opened.encode_document(TEXTS), prompted.encode_document(TEXTS))
    assert_close(opened.similarity(TEXTS[:2], TEXTS), prompted.similarity(TEXTS[:2], TEXTS))
    words = [f"the {a} {b}" for a in ("cat", "dog", "fox") for b in "abcdefghijklmnop"]
    found = opened.threshold(words, 0.1)
    assert found.cosine == pytest.approx(prompted.threshold(words, 0.1).cosine, abs=1e-5)
    np.testing.assert_array_equal(opened.only_unknown(TEXTS), prompted.only_unknown(TEXTS))
    for name in (
        *("prompts", "default_prompt_name", "document_prompt", "similarity_fn_name"),
        *("embedding_size", "max_seq_length", "fingerprint", "normalizes", "dtype"),
    ):
        assert getattr(opened, name) == getattr(prompted, name), name
    assert opened.get_sentence_embedding_dimension() == opened.embedding_size
    for (texts, found), (expected_texts, expected) in zip(
        opened.encode_blocks(iter(TEXTS)), prompted.encode_blocks(iter(TEXTS)), strict=True
    ):
        assert texts == expected_texts
        assert_close(found, expected)


def test_many_batches_and_threads_keep_the_order(onnx_dir, backend):
    model = open_export(onnx_dir, backend, truncate_dim=4)
    texts = [
        " ".join(["the", "cat", "dog"][: 1 + i % 3] * (1 + i % 2)) + f" {i}" for i in range(40)
    ]
    expected = model.encode(texts)
    assert expected.shape == (40, 4) == (40, model.embedding_size)
    assert_close(model.encode(texts, batch_size=2), expected)
    assert_close(model.encode(texts, batch_size=99), expected)
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        found = [*executor.map(model.encode, texts)]
    assert_close(np.array(found), expected)


def test_texts_that_lose_words_are_warned_of(opened, caplog):
    opened.encode([TEXTS[5], "🙂", "the cat"], prompt="")
    assert "1 of 3 texts are longer than 12 word pieces" in caplog.text
    assert "1 of 3 texts hold only unknown word pieces" in caplog.text


def test_blocks_refuse_a_bar_as_encode_does(opened):
    for call in (
        opened.encode,
        lambda *texts, **options: [*opened.encode_blocks(*texts, **options)],
    ):
        with user_error("show_progress_bar: found True"):
            call(["the cat"], show_progress_bar=True)


def test_record_has_the_channels_that_the_export_keeps(prompted, require, tmp_path):
    require("tf2onnx")
    require("onnxruntime")
    prompted.export(tmp_path / "out", format="onnx", truncate_dim=6)
    assert open_export(tmp_path / "out").model_record.truncate_dim == 6
    assert open_export(tmp_path / "out", truncate_dim=4).model_record.truncate_dim == 4


def test_length_can_be_shortened_and_not_lengthened(onnx_dir, prompted):
    model = open_export(onnx_dir)
    model.max_seq_length = 5
    shorter = prompted.__copy__()
    shorter.max_seq_length = 5
    assert_close(model.encode(TEXTS), shorter.encode(TEXTS))
    with user_error("max_seq_length: found 13", "from 3 to 12"):
        model.max_seq_length = 13


def test_only_the_three_libraries_are_imported(onnx_dir, prompted):
    found = subprocess.run(
        [sys.executable, "-c", _ALONE, onnx_dir], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.split()[1:] == ["(1,", "3)", "the", "lazy"]
    assert float(found.stdout.split()[0]) == pytest.approx(prompted.encode("the cat")[0], abs=1e-5)


def damage_weights(folder):
    path = folder / "model.onnx"
    data = bytearray(path.read_bytes())
    start = data.index(b"bert.encoder.layer_0.intermediate.dense.kernel\x4a")
    data[start + 60 : start + 260] = np.full(50, 3, "<f4").tobytes()
    path.write_bytes(data)


def change_description(**changes):
    def change(folder):
        path = folder / "export.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda folder: (folder / "export.json").unlink(), "export.json: no such file"),
        (change_description(format_version=2), "found format_version 2, expected 3"),
        (change_description(prompts=None), "prompts: found None"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "as a tokenizer"),
        (lambda folder: (folder / "model.onnx").write_bytes(b"x" * 99), "as an exported model"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx: no such file"),
        (damage_weights, "the program gives other embeddings than its export.json"),
    ],
)
def test_damaged_or_foreign_folder_is_one_line(copied, damage, part):
    damage(copied)
    with user_error(str(copied), part):
        open_export(copied)


def test_a_calibrations_export_is_told_from_a_models(tmp_path):
    calibrated = calibrate_array(
        np.random.default_rng(0).normal(size=(40, 3)), FitSettings(method="whitening")
    )
    write_json(tmp_path / "export.json", calibrated._saved())
    with user_error("export.json: found the export of a calibration, which sentence-transformers"):
        open_export(tmp_path)


def test_invalid_argument_is_one_line(onnx_dir, opened, monkeypatch, tmp_path):
    with user_error("backend: found 'onx'", "did you mean onnx?"):
        open_export(onnx_dir, "onx")
    with user_error("no such folder"):
        open_export(tmp_path / "none")
    with user_error("truncate_dim: found 0"):
        open_export(onnx_dir, truncate_dim=0)
    for options, part in (
        ({"convert_to_tensor": True}, "convert_to_tensor"),
        ({"prompt_name": "none"}, "prompt_name: found 'none'"),
        ({"batch_size": 0}, "batch_size: found 0"),
        ({"truncate_dim": True}, "truncate_dim: found True"),
    ):
        with user_error(part):
            opened.encode("the cat", **options)
    with user_error("sentences[0]: found int 1"):
        opened.encode([1])
    assert opened.encode([]).shape == (0, opened.embedding_size)
    monkeypatch.setattr(type(opened.encoder._program), "_run", lambda *_: np.full((1, 4), np.nan))
    with user_error("not finite"):
        opened.encode("the cat")


def test_openvino_folder_gives_the_models_embeddings(prompted, require, tmp_path):
    require("tf2onnx")
    require("openvino")
    exported = prompted.export(tmp_path / "out", format="openvino")
    assert exported.max_difference <= 1e-5 * max(1.0, exported.max_value)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"openvino_model.xml", "openvino_model.bin"} < names and "model.onnx" not in names
    # The folder's files say which program runs it.
    assert_close(open_export(tmp_path / "out").encode(TEXTS), prompted.encode(TEXTS))
    # Another export may replace the folder.
    export_path(tmp_path / "out", ExportSettings(format="openvino"), overwrite=True)
