"""transformers and sentence-transformers open an encoder folder and agree."""

import json
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.peers import peer_environment
from bert_flow_tf import BertFlow
from bert_flow_tf.encoder.source import resolve_encoder
from tests.refusals import refused, succeeds, user_error

LENGTH = 16
# The other libraries run in a process without TensorFlow.
THEIRS = """
import json, sys
import numpy as np, torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer
texts = json.load(open("texts.json"))
for name in sys.argv[1:]:
    tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name)
    tokens = tokenizer(texts, padding="max_length", truncation=True, max_length=16, return_tensors="pt")
    with torch.no_grad():
        found = model.eval()(**tokens, output_hidden_states=True)
    library = SentenceTransformer(name, device="cpu")
    library.max_seq_length = 16
    np.savez(f"{name.replace('/', '_')}.npz", ids=tokens["input_ids"], layers=found.hidden_states[1:],
             pooled=found.pooler_output, embeddings=library.encode(texts, show_progress_bar=False))
"""


@pytest.fixture(scope="module")
def place(golden_dir, tiny_encoder_dir, require, tmp_path_factory):
    """A folder with an encoder folder of each command that writes one."""
    root = tmp_path_factory.mktemp("place")
    require("official")
    succeeds("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", root / "tf1")
    theirs = golden_dir / "transformers" / "sentence_transformer"
    succeeds("convert", "--huggingface", theirs, "--out", root / "huggingface")
    BertFlow.from_hub(tiny_encoder_dir, pooling="paper-cls", max_seq_length=LENGTH).save(
        root / "saved"
    )
    (root / "text.txt").write_text("a cat\nthe cats sat\n" * 8)
    succeeds("pretrain", "--bert_hub", tiny_encoder_dir, "--text", root / "text.txt", "--out", root / "pretrained",
             "--steps", 2, "--num_warmup_steps", 0, "--max_seq_length", 8)  # fmt: skip
    return root


def test_other_libraries_give_the_same_ids_layers_and_embeddings(place, golden_dir, require):
    python = require("sentence-transformers")
    cases = json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
    texts = [case["text"] for case in cases]
    (place / "texts.json").write_text(json.dumps(texts))
    # The libraries' own default is the mean.
    names = {"tf1": "avg", "huggingface": "avg", "saved/encoder": "paper-cls", "pretrained": "avg"}
    environment = peer_environment() | {"PYTHONPATH": ""}
    command = [str(python), "-c", THEIRS, *names]
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, pooling in names.items():
        model, found = (
            BertFlow.from_hub(place / name, pooling=pooling, max_seq_length=LENGTH),
            dict(np.load(place / f"{name.replace('/', '_')}.npz")),
        )
        tokens = model.tokenizer(tf.constant(texts), LENGTH, pad_to_max=True)
        np.testing.assert_array_equal(found["ids"], tokens["input_word_ids"], err_msg=name)
        outputs = model.encoder._encoder(tokens)
        words = tokens["input_mask"].numpy().astype(bool)
        for ours, theirs in zip(outputs["encoder_outputs"], found["layers"], strict=True):
            assert (
                np.abs(ours[words] - theirs[words]).max() <= 1e-5 * np.abs(theirs[words]).max()
            ), name
        assert np.abs(outputs["pooled_output"] - found["pooled"]).max() <= 1e-5, name
        own = model.encode(texts)
        assert np.abs(own - found["embeddings"]).max() <= 1e-5 * np.abs(own).max(), name


def test_a_folder_keeps_what_it_was_made_from(place, golden_dir, tiny_source):
    # The same weights have the same fingerprint in every format.
    for name in ("tf1", "saved/encoder"):
        assert resolve_encoder(bert_hub=place / name).fingerprint == tiny_source.fingerprint
    theirs = resolve_encoder(bert_hub=golden_dir / "transformers" / "sentence_transformer")
    ours = resolve_encoder(bert_hub=place / "huggingface")
    assert (ours.fingerprint, ours.record) == (theirs.fingerprint, theirs.record)
    assert (ours.record.pooling, ours.record.max_seq_length) == ("avg", 12)
    learned = resolve_encoder(bert_hub=place / "pretrained").record
    assert (
        learned.started_from == tiny_source.fingerprint and learned.training.settings["steps"] == 2
    )


def test_tf_hubs_export_is_read_again_as_the_same_encoder(small_hub_dir, small_encoder_dir):
    hub = small_hub_dir
    command = ("convert", "--bert_hub", small_encoder_dir, "--to_tfhub", hub)
    assert refused(*command).startswith(f"--to_tfhub={hub}: exists")
    source = resolve_encoder(bert_hub=hub)
    assert source.fingerprint == resolve_encoder(bert_hub=small_encoder_dir).fingerprint
    texts = tf.constant(["A cat sat, on Ünder 3 mats."])
    preprocess = tf.saved_model.load(str(hub / "preprocess"))
    ids = source.tokenizer()(texts, 128, pad_to_max=True)["input_word_ids"]
    np.testing.assert_array_equal(preprocess(texts)["input_word_ids"], ids)


def test_a_folder_of_an_earlier_version_is_one_line(place, tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "source.json").write_text('{"format_version": 2, "do_lower_case": true}')
    with user_error("source.json: found format_version 2, expected 3", "make it again"):
        resolve_encoder(bert_hub=tmp_path)
