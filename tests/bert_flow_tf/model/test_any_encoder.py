"""Calibrations of any encoder's embeddings, and their files."""

import dataclasses
import doctest
import json
import pathlib
import re
import subprocess
import sys
import sysconfig
import zlib

import numpy as np
import pytest
import safetensors.numpy

from bert_flow_tf import BertFlow, FlowCalibrator, calibrate, load_calibration
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.model import any_encoder
from bert_flow_tf.model.any_encoder import calibrate_array
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import refused, succeeds, user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

WIDTH = 12
_GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "sentence_transformers.md"
APPLY = re.search(
    r"<!-- snippet: numpy -->\n```python\n(.+?)```", _GUIDE.read_text(encoding="utf-8"), re.DOTALL
)[1]
# Random models of six architectures; sentence-transformers runs them beside TensorFlow.
ARCHITECTURES = """
import json, sys
sys.path.append(sys.argv[1])
import numpy as np, tokenizers, torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from bert_flow_tf import UserError, calibrate, load_calibration

texts = json.load(open("texts.json"))
words = sorted({word for text in texts for word in text.split()})
special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
pieces = [(piece, 0.0) for piece in special] + [("\u2581" + word, -1.0) for word in words]
kinds = {"mpnet": "mean", "roberta": "cls", "xlm-roberta": "mean", "modernbert": "mean", "distilbert": "mean",
         "granite": "lasttoken"}
torch.manual_seed(0)
for kind, pooling in kinds.items():
    config = AutoConfig.for_model(kind)
    sizes = {"vocab_size": len(pieces), "hidden_size": 32, "dim": 32, "num_hidden_layers": 2, "n_layers": 2,
             "num_attention_heads": 4, "n_heads": 4, "num_key_value_heads": 4, "intermediate_size": 48,
             "hidden_dim": 48, "max_position_embeddings": 40, "layer_types": ["full_attention"] * 2,
             "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
    for name, size in sizes.items():
        if hasattr(config, name):
            setattr(config, name, size)
    AutoModel.from_config(config).save_pretrained(f"{kind}/model")
    fast = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
    fast.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    names = {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=fast, **names, cls_token="<s>", sep_token="</s>")
    fast.save_pretrained(f"{kind}/model")
    modules = [Transformer(f"{kind}/model", max_seq_length=16), Pooling(32, pooling_mode=pooling)]
    encoder = SentenceTransformer(modules=[*modules, Normalize()] if kind == "mpnet" else modules, device="cpu",
                                  prompts={"query": "find "}, similarity_fn_name="dot")
    calibrated = calibrate(encoder, texts, epochs=2, batch_size=16, normalize=kind == "roberta", dev_fraction=0.1)
    calibrated.export(f"{kind}/appended", format="sentence-transformers")
    calibrated.save(f"{kind}/saved")
    again = SentenceTransformer(f"{kind}/appended", device="cpu")
    assert (again.prompts["query"], again.similarity_fn_name, again.max_seq_length) == ("find ", "dot", 16), kind
    ours, theirs = calibrated.encode(texts, prompt_name="query"), again.encode(texts, prompt_name="query")
    loaded = load_calibration(f"{kind}/saved", encoder).encode(texts, prompt_name="query")
    ours, theirs = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (ours, theirs))
    np.testing.assert_array_equal(loaded / np.linalg.norm(loaded, axis=1, keepdims=True), ours)
    print(kind, np.abs(ours @ ours.T - theirs @ theirs.T).max())
encoder.truncate_dim = 8
try:
    calibrated.export("truncated", format="sentence-transformers")
except UserError as error:
    assert "truncate_dim=8" in str(error)
"""


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(TINY_WORDS, rng.integers(2, 7))) for _ in range(300)]


@pytest.fixture(scope="module")
def u():
    rng = np.random.default_rng(1)
    return (rng.normal(size=[400, WIDTH]) @ rng.normal(size=[WIDTH, WIDTH]) + 3).astype(np.float32)


@pytest.fixture(scope="module", params=["flow", "whitening"])
def calibrated(request, u):
    training = {"batch_size": 32, "epochs": 2.0} if request.param == "flow" else {}
    return calibrate_array(u, FitSettings(method=request.param, **training))


def test_any_function_gets_the_flow_of_fit(tiny_encoder_dir, texts):
    model, options = (
        BertFlow.from_hub(tiny_encoder_dir, max_seq_length=12),
        {"batch_size": 32, "epochs": 4.0},
    )
    pairs = (texts[:20], texts[20:40], list(np.linspace(0, 5, 20)))
    found = calibrate(model.encode_pooled, texts, pairs=pairs, **options)
    model.fit(texts, pairs=pairs, **options)
    np.testing.assert_array_equal(
        found.encode(texts[:30]), found.transform(model.encode_pooled(texts[:30]))
    )
    for ours, theirs in zip(found.calibration.variables, model.flow.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    # The witness was studied on transformers, and a function may be anything.
    assert found.history_.witness is None
    assert found.history_ == dataclasses.replace(
        model.history_, witness=None, losses=found.history_.losses
    )
    assert found.encode("a").shape == (model.embedding_size,)


def test_a_folder_gives_the_same_bits(calibrated, u, tmp_path):
    calibrated.save(tmp_path / "saved")
    again = load_calibration(tmp_path / "saved", lambda texts: u[: len(texts)])
    np.testing.assert_array_equal(again.encode(["a"] * 9), calibrated.transform(u[:9]))
    assert again.record == calibrated.record
    assert again.history_.verdict == calibrated.history_.verdict
    np.testing.assert_array_equal(again.history_.losses, calibrated.history_.losses)
    assert again.history_.held_out_losses == calibrated.history_.held_out_losses
    with user_error("saved: exists"):
        calibrated.save(tmp_path / "saved")
    with user_error("found a calibration without an encoder"):
        load_calibration(tmp_path / "saved").encode(["a"])
    (tmp_path / "saved" / "calibration.npz").write_bytes(b"PK")
    with user_error("calibration.npz: cannot be read"):
        load_calibration(tmp_path / "saved")


class Library:
    """The parts of a `SentenceTransformer` that an export uses."""

    _modules = ()

    def save(self, folder):
        modules = [{"idx": 0, "name": "0", "path": "", "type": "a.Transformer"}]
        (pathlib.Path(folder) / "modules.json").write_text(json.dumps(modules))
        (pathlib.Path(folder) / "sentencepiece.bpe.model").touch()
        settings = {"prompts": {}, "similarity_fn_name": None}
        (pathlib.Path(folder) / "config_sentence_transformers.json").write_text(
            json.dumps(settings)
        )


def applied_modules(folder, u):
    """Return what the modules after the first make of vectors [n, D]."""
    for module in json.loads((folder / "modules.json").read_text())[1:]:
        if module["type"].endswith("Normalize"):
            u = u / np.linalg.norm(u, axis=1, keepdims=True)
            continue
        tensors = safetensors.numpy.load_file(folder / module["path"] / "model.safetensors")
        u = u @ tensors["linear.weight"].T + tensors["linear.bias"]
        slope = tensors.get("activation_function.weight", np.ones(1, np.float32))
        u = np.where(u > 0, u, slope * u)
    return u


@pytest.mark.parametrize("normalize", [True, False])
def test_a_truncation_stays_through_fit_save_and_export(normalize, u, tmp_path, require):
    def encode(texts):
        return u[: len(texts)]

    texts = [f"text {i}" for i in range(300)]
    model = any_encoder.Calibrated(encode, normalize=normalize, truncate_dim=3)
    model.fit(texts, method="whitening", dev_fraction=0)
    whole = calibrate(encode, texts, method="whitening", dev_fraction=0, normalize=normalize)
    expected = whole.encode(texts)[:, :3]
    np.testing.assert_array_equal(model.encode(texts), expected)
    model.save(tmp_path / "saved")
    again = load_calibration(tmp_path / "saved", Library())
    np.testing.assert_array_equal(again.transform(u[:300]), expected)
    again.export(tmp_path / "out", format="sentence-transformers")
    found = applied_modules(tmp_path / "out", u[:300])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    again.export(tmp_path / "layers.npz")
    layers = np.load(tmp_path / "layers.npz")
    found = u[:300] @ layers["kernel_0"] + layers["bias_0"]
    if normalize:
        # A file has no norm, so the cosines are the same.
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    # A map of no more channels ends it.
    model.fit(texts, method="whitening-3", dev_fraction=0)
    assert model.truncate_dim is None and model.embedding_size == 3
    with user_error("calibration: found none"):
        any_encoder.Calibrated(encode).faiss_transform()


def test_an_export_has_the_prompts_that_are_set(u, tmp_path):
    model = any_encoder.Calibrated(Library(), calibrate_array(u, FitSettings(method="sn")).maps)
    model.prompts = {"query": "find "}
    model.export(tmp_path / "out", format="sentence-transformers")
    settings = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {"query": "find "} and settings["similarity_fn_name"] is None


def test_modules_are_appended_and_only_an_export_is_replaced(calibrated, u, tmp_path):
    calibrated.save(tmp_path / "saved")
    again, out = load_calibration(tmp_path / "saved", Library()), tmp_path / "out"
    for _ in range(2):
        again.export(out, format="sentence-transformers", overwrite=True)
    modules = json.loads((out / "modules.json").read_text())
    assert [module["idx"] for module in modules] == list(range(len(modules)))
    z = applied_modules(out, u)
    expected = calibrated.transform(u)
    np.testing.assert_allclose(z, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    # It could be a model that the library or a user wrote.
    (out / "export.json").unlink()
    with user_error("holds no modules.json of an export"):
        again.export(out, format="sentence-transformers", overwrite=True)


def test_numpy_applies_the_dense_layers_without_tensorflow(calibrated, u, tmp_path):
    calibrated.export(tmp_path / "layers.npz")
    np.save(tmp_path / "u.npy", u)
    program = f"{APPLY}\nnp.save('z.npy', apply('layers.npz', np.load('u.npy')))"
    command = [sys.executable, "-c", f"import sys\nsys.modules['tensorflow'] = None\n{program}"]
    subprocess.run(command, cwd=tmp_path, check=True)
    expected = calibrated.transform(u)
    np.testing.assert_allclose(
        np.load(tmp_path / "z.npy"), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
    )


def test_onnx_gives_the_same(calibrated, u, tmp_path, require):
    require("tf2onnx")
    require("onnxruntime")
    import onnxruntime

    calibrated.export(tmp_path / "map.onnx")
    session = onnxruntime.InferenceSession(
        str(tmp_path / "map.onnx"), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(["calibrated_embedding"], {"embedding": u})
    expected = calibrated.transform(u)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_faiss_finds_the_same_neighbours(u, require):
    require("faiss")
    import faiss

    whitening = calibrate_array(u, FitSettings(method="whitening"))
    index = faiss.IndexPreTransform(whitening.faiss_transform(), faiss.IndexFlatIP(WIDTH))
    index.add(u)
    z = whitening.transform(u)
    np.testing.assert_array_equal(
        index.search(u[:20], 5)[1], np.argsort(-(z[:20] @ z.T), axis=1)[:, :5]
    )


@pytest.mark.parametrize("method", ["whitening-5", "auto-5"])
def test_faiss_keeps_the_cosines_of_fewer_channels(method, u, require):
    require("faiss")
    import faiss

    calibrated = calibrate_array(u, FitSettings(method=method), normalize=True)
    index = faiss.IndexPreTransform(faiss.NormalizationTransform(5), faiss.IndexFlatIP(5))
    index.prepend_transform(calibrated.faiss_transform())
    index.add(u)
    z = calibrated.transform(u)
    assert z.shape == (len(u), 5)
    found, rows = index.search(u[:20], 5)
    expected = np.sort(z[:20] @ z.T, axis=1)[:, :-6:-1]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.sum(z[:20, None] * z[rows], axis=2), expected, atol=1e-5)


def test_commands_write_fewer_channels(u, tmp_path):
    np.save(tmp_path / "u.npy", u)
    given = ("--embeddings", tmp_path / "u.npy", "--out")
    succeeds("fit", *given, tmp_path / "map", "--method", "auto-5")
    succeeds("encode", "--calibration", tmp_path / "map", *given, tmp_path / "z.npy")
    expected = load_calibration(tmp_path / "map").transform(u)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), expected)
    assert expected.shape == (len(u), 5)


def test_a_flow_calibrator_is_saved_and_exported(u, tmp_path):
    flow = FlowCalibrator(epochs=2, show_progress_bar=False).fit(u)
    flow.save(tmp_path / "flow")
    for again in (FlowCalibrator.load(tmp_path / "flow"), load_calibration(tmp_path / "flow")):
        expected = flow.transform(u)
        np.testing.assert_allclose(
            again.transform(u), expected, rtol=0, atol=1e-5 * np.abs(expected).max()
        )
    flow.export(tmp_path / "flow.npz")
    for repeat in (
        lambda: flow.save(tmp_path / "flow"),
        lambda: flow.export(tmp_path / "flow.npz"),
    ):
        with pytest.raises(FileExistsError):
            repeat()
    with pytest.raises(ValueError, match=r"expected \.npz or \.onnx"):
        flow.export(tmp_path / "flow.txt")


def test_commands_calibrate_arrays(u, tmp_path):
    np.save(tmp_path / "u.npy", u)
    succeeds(
        "fit",
        "--embeddings",
        tmp_path / "u.npy",
        "--out",
        tmp_path / "flow",
        "--train_batch_size",
        32,
    )
    files = ("--embeddings", tmp_path / "u.npy", "--out", tmp_path / "z.npy")
    succeeds("encode", "--calibration", tmp_path / "flow", *files)
    expected = load_calibration(tmp_path / "flow").transform(u)
    np.testing.assert_array_equal(np.load(tmp_path / "z.npy"), expected)
    assert "missing --calibration, which it needs" in refused(
        "encode", "--bert_hub", "demo", *files
    )
    np.save(tmp_path / "bad.npy", np.zeros([3, 4], int))
    line = refused("fit", "--embeddings", tmp_path / "bad.npy", "--out", tmp_path / "bad")
    assert "bad.npy: cannot be read as embeddings [n, D]: found int64" in line


@pytest.mark.parametrize(
    ("encoder", "options", "found"),
    [
        (
            "all-mpnet-base-v2",
            {},
            "encoder: found 'all-mpnet-base-v2', expected a SentenceTransformer",
        ),
        (lambda texts: np.zeros([1, 4]), {}, "encoder: found 1 embeddings of 80 sentences"),
        (lambda texts: np.zeros(len(texts)), {}, "embeddings: found the shape [80]"),
        (lambda texts: np.full([len(texts), 4], np.nan), {}, "embeddings: found NaN"),
        (lambda texts: np.zeros([len(texts), 4]), {"num_train_epochs": 2}, "did you mean epochs?"),
    ],
)
def test_a_mistake_is_one_line(encoder, options, found, texts):
    with user_error(found):
        calibrate(encoder, texts[:80], dev_fraction=0.0, **options)


def test_six_architectures_of_sentence_transformers(require, texts, tmp_path):
    python = require("sentence-transformers")
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs = sysconfig.get_path("purelib")
    if str(python) != sys.executable:
        theirs = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
    done = subprocess.run(
        [sys.executable, "-c", ARCHITECTURES, theirs],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    differences = dict(line.split() for line in done.stdout.splitlines())
    assert len(differences) == 6
    assert max(map(float, differences.values())) <= 1e-5


def test_examples_in_docstrings_print_what_they_say():
    found = doctest.testmod(any_encoder)
    assert found.attempted > 5 and not found.failed


class _Prompted:
    """An encoder with prompts, as sentence-transformers has them."""

    def encode(self, texts, prompt=""):
        seeds = [zlib.crc32((prompt + text).encode()) for text in texts]
        return np.stack([np.random.default_rng(seed).normal(size=6) for seed in seeds])

    def encode_query(self, texts):
        return self.encode(texts, prompt="query: ")

    def encode_document(self, texts):
        return self.encode(texts, prompt="document: ")


def test_queries_and_documents_get_the_encoders_own_prompts():
    texts = [f"text {i}" for i in range(150)]
    encoder = _Prompted()
    model = calibrate(encoder, texts, method="sn")
    for name in ("encode", "encode_query", "encode_document"):
        expected = model.transform(getattr(encoder, name)(texts))
        np.testing.assert_array_equal(getattr(model, name)(texts), expected)
    np.testing.assert_allclose(model.embed_query("a"), model.encode_query("a"))
    function = calibrate(encoder.encode, texts, method="sn")
    np.testing.assert_array_equal(function.encode_query(texts), function.encode(texts))


def test_a_model_of_our_own_learns_by_its_own_fit(tiny_encoder_dir):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    with user_error("encoder: found a BertFlow, which learns a calibration by its own fit"):
        calibrate(model, ["w1 w2"] * 100)
