"""A calibrated sentence-transformers model leaves as ONNX, and needs no torch there."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf import calibrate, open_export
from tests.refusals import user_error

WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog"]
WORDS += ["cat", "a", "boat", "crosses", "lake", "rain", "train", "coast"]
# Small random models of three architectures are calibrated and exported, beside TensorFlow.
EXPORTED = """
import pathlib, sys
sys.path.append(sys.argv[1])
import numpy as np, tokenizers, torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Dense, Normalize, Pooling, Transformer
from tokenizers import normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast
from bert_flow_tf import UserError, calibrate
from bert_flow_tf.export import library_model

words = sys.argv[2].split()
rng = np.random.default_rng(0)
texts = [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(300)]
torch.manual_seed(0)

def tokenizer(kind):
    if kind == "bert":
        cls, pad, sep, unk = special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]"]
        ids = {word: i for i, word in enumerate([*special, *words])}
        made = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token=unk))
        made.normalizer = normalizers.BertNormalizer()
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    else:
        cls, pad, sep, unk = special = ["<s>", "<pad>", "</s>", "<unk>"]
        pieces = [(one, 0.0) for one in special] + [("\u2581" + word, -1.0) for word in words]
        made = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single=f"{cls} $A {sep}", special_tokens=[(cls, 0), (sep, 2)])
    return PreTrainedTokenizerFast(tokenizer_object=made, cls_token=cls, pad_token=pad,
                                   sep_token=sep, unk_token=unk)

class Own(torch.nn.Module):
    def forward(self, features):
        return features

for kind, method in {"mpnet": "whitening-8", "xlm-roberta": "flow", "bert": "sn"}.items():
    config = AutoConfig.for_model(kind, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=40, vocab_size=len(words) + 4,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, initializer_range=0.5)
    AutoModel.from_config(config).save_pretrained(f"{kind}/model")
    tokenizer(kind).save_pretrained(f"{kind}/model")
    modules = [Transformer(f"{kind}/model", max_seq_length=16), Pooling(32, pooling_mode="mean")]
    modules += [Dense(32, 24), Normalize()] if kind == "bert" else []
    encoder = SentenceTransformer(modules=modules, device="cpu", prompts={"query": "the "},
        default_prompt_name="query" if kind == "bert" else None, similarity_fn_name="dot",
        truncate_dim=20 if kind == "bert" else None)
    options = {"epochs": 2, "batch_size": 16} if method == "flow" else {}
    model = calibrate(encoder, texts, method=method, normalize=kind == "mpnet", **options)
    if kind == "mpnet":
        library_model.LARGE_WEIGHTS = 0
    model.export(f"{kind}/onnx", format="onnx")
    library_model.LARGE_WEIGHTS = 2**28
    if kind == "mpnet":
        model.export(f"{kind}/int8", format="onnx", dtype="int8")
    np.savez(f"{kind}/expected", texts=texts, plain=model.encode(texts), one=model.encode(texts[0]),
             query=model.encode_query(texts), similarity=model.similarity(texts[:3], texts[3:9]))

def refused(part):
    try:
        model.export("refused", format="onnx")
    except UserError as error:
        assert part in str(error), error
        assert not pathlib.Path("refused").exists()
    else:
        raise AssertionError(part)

encoder.append(Own())
refused("format: found the module Own, expected sentence-transformers' own modules")
del encoder[len(encoder) - 1]
encoder.tokenizer.padding_side = "left"
refused("format: found padding_side=left")
encoder.tokenizer.padding_side = "right"
encoder[1].include_prompt = False
refused("format: found a pooling without the prompt's words")
"""
# Nothing of the libraries that export is imported.
ALONE = """
import sys
sys.modules |= dict.fromkeys(["msgspec", "sklearn", "tensorflow", "torch", "transformers"])
from bert_flow_tf import open_export
print(open_export(sys.argv[1]).encode("the quick fox").sum())
"""


@pytest.fixture(scope="module")
def folder(require, tmp_path_factory):
    """The encoders' folders, each with `onnx` and the library's embeddings."""
    python = require("sentence-transformers")
    require("onnxruntime")
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    root = tmp_path_factory.mktemp("library")
    done = subprocess.run(
        [sys.executable, "-c", EXPORTED, theirs.stdout.strip(), " ".join(WORDS)],
        cwd=root,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return root


@pytest.mark.parametrize("kind", ["mpnet", "xlm-roberta", "bert"])
def test_export_gives_the_librarys_embeddings(folder, kind):
    model = open_export(folder / kind / "onnx")
    expected = np.load(folder / kind / "expected.npz")
    texts = expected["texts"].tolist()
    for found, name in (
        (model.encode(texts), "plain"),
        (model.encode(texts[0]), "one"),
        (model.encode_query(texts), "query"),
        (model.similarity(texts[:3], texts[3:9]), "similarity"),
    ):
        size = max(1, np.abs(expected[name]).max())
        np.testing.assert_allclose(found, expected[name], atol=1e-5 * size, rtol=0)
    assert model.prompts["query"] == "the "
    assert (model.max_seq_length, model.similarity_fn_name) == (16, "dot")
    assert model.default_prompt_name == ("query" if kind == "bert" else None)
    assert model.only_unknown(["zebra", "a zebra", ""]).tolist() == [True, False, False]
    assert model.model_record.encoder.handle == "model"
    assert (folder / kind / "onnx" / "model.onnx_data").is_file() == (kind == "mpnet")
    if kind == "mpnet":
        inputs = set(model.tokenize(["a"]))
        assert inputs == {"input_ids", "attention_mask"}


def test_int8_export_is_smaller_and_near(folder):
    model = open_export(folder / "mpnet" / "int8")
    expected = np.load(folder / "mpnet" / "expected.npz")
    found = model.encode(expected["texts"].tolist())
    assert np.sum(found * expected["plain"], axis=1).mean() > 0.98
    assert model.dtype == "int8"
    assert model.fingerprint != open_export(folder / "mpnet" / "onnx").fingerprint


def test_export_needs_neither_torch_nor_tensorflow(folder):
    done = subprocess.run(
        [sys.executable, "-c", ALONE, folder / "xlm-roberta" / "onnx"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = open_export(folder / "xlm-roberta" / "onnx").encode("the quick fox").sum()
    assert float(done.stdout) == pytest.approx(expected, abs=1e-4)


def test_function_leaves_as_its_maps_alone(tmp_path, require):
    require("tf2onnx")
    texts = [f"{word} {other}" for word in WORDS for other in WORDS]
    model = calibrate(
        lambda found: np.array([[len(text), text.count("o")] for text in found], float),
        texts,
        method="whitening",
    )
    with user_error("format: found a function as encoder", ".npz has the maps alone"):
        model.export(tmp_path / "out", format="onnx")
    with user_error("dtype: found int8"):
        model.export(tmp_path / "maps.npz", dtype="int8")
    assert not [*tmp_path.iterdir()]
