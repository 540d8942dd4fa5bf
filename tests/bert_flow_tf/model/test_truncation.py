"""`truncate_dim` of a model holds in every way to an embedding."""

import functools

import numpy as np
import pyarrow.parquet
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.scale.settings import ShardSettings
from glow.config import GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import refused, succeeds, user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = [" ".join(TINY_WORDS[i : i + 1 + i % 5]) for i in range(12)]


@pytest.fixture
def model(tiny_encoder_dir):
    return BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8, truncate_dim=6)


def test_an_argument_of_encode_comes_before_the_models_own(model, tiny_encoder_dir):
    whole = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encode(SENTENCES)
    assert model.get_sentence_embedding_dimension() == 6
    np.testing.assert_array_equal(model.encode(SENTENCES), whole[:, :6])
    model.truncate_dim = np.int64(5)
    np.testing.assert_array_equal(model.encode(SENTENCES, truncate_dim=np.int32(4)), whole[:, :4])
    assert type(model.record.truncate_dim) is int
    model.truncate_dim = 6
    np.testing.assert_array_equal(model.encode(SENTENCES, truncate_dim=9), whole[:, :9])
    np.testing.assert_array_equal(model.reduce(whole), whole[:, :6])
    for value in (0, whole.shape[1] + 1, 2.0, True):
        with user_error(f"truncate_dim: found {value!r}"):
            model.truncate_dim = value
    assert model.truncate_dim == 6


def test_it_is_saved_and_part_of_the_fingerprint(model, tmp_path):
    model.save(tmp_path / "saved")
    again = BertFlow.from_pretrained(tmp_path / "saved")
    np.testing.assert_array_equal(again.encode(SENTENCES), model.encode(SENTENCES))
    assert again.fingerprint == model.fingerprint
    narrower = BertFlow.from_pretrained(tmp_path / "saved", truncate_dim=3)
    np.testing.assert_array_equal(narrower.encode(SENTENCES), model.encode(SENTENCES)[:, :3])
    model.truncate_dim = None
    assert len({model.fingerprint, again.fingerprint, narrower.fingerprint}) == 3
    assert "| width of an embedding | 6 |" in (tmp_path / "saved" / "README.md").read_text()


def test_a_calibration_of_fewer_channels_ends_it(model):
    with pytest.warns(UserWarning):
        model.fit(SENTENCES * 6, method="soft-whitening-0.1-4")
    assert (model.truncate_dim, model.embedding_size) == (None, 4)


def test_truncating_a_flow_says_that_its_channels_have_no_order(model):
    size = model.encoder.embedding_size
    model.truncate_dim = None
    model.flow = Glow(GlowConfig(n_levels=2, depth=1), size, seed=0)
    with pytest.warns(UserWarning, match="not ordered.*whitening-5 and auto-5"):
        model.truncate_dim = 5
    # A loop of one's own and a graph give the same channels.
    found = model.trainable()(SENTENCES)["embeddings"]
    np.testing.assert_allclose(found, model.encode(SENTENCES), atol=1e-4)
    assert found.shape == (len(SENTENCES), 5)


def test_commands_truncate(model, tiny_encoder_dir, tmp_path):
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in SENTENCES))
    encoder = ("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8)
    given = (*encoder, "--truncate_dim", 6, "--input", tmp_path / "texts.txt")
    said = succeeds("encode", *given, "--out", tmp_path / "out.npy")
    assert "(12 of width 6)" in said
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), model.encode(SENTENCES))
    cosine = model.similarity(SENTENCES[3], SENTENCES[4])[0, 0]
    pair = ("similarity", *encoder, "--truncate_dim", 6, SENTENCES[3], SENTENCES[4])
    assert float(succeeds(*pair)) == pytest.approx(cosine, abs=1e-5)
    nearest = succeeds("search", *given, "--top_k", 2, SENTENCES[3], "--embeddings", tmp_path / "e")
    expected = np.sort(model.similarity(SENTENCES[3], SENTENCES)[0])[::-1][:2]
    found = [float(line.split("\t")[1]) for line in nearest.splitlines()[-2:]]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    said = refused(
        "search", *given[:4], "--input", tmp_path / "texts.txt", "x", "--embeddings", tmp_path / "e"
    )
    assert "e: model: found" in said
    wrong = ("encode", "--calibration", "c", "--embeddings", "u.npy", "--out", "z.npy")
    assert "--truncate_dim: missing --model" in refused(*wrong, "--truncate_dim", 3)
    model.save(tmp_path / "saved")
    with user_error("low_dim: found 8 with an affine calibration"):
        model.low_dim = 8
        model.flow = AffineMap(model.encoder.embedding_size, matrix=np.eye(32, 4))
    export = ("--model", tmp_path / "saved", "--truncate_dim", 3, "--out", tmp_path / "st")
    succeeds("export", *export, "--format", "sentence-transformers")
    assert '"out_features": 3' in (tmp_path / "st" / "2_Dense" / "config.json").read_text()


def test_averages_of_an_affine_maps_channels_are_refused(tiny_encoder_dir):
    size = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encoder.embedding_size
    first, second = (BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8) for _ in range(2))
    first.low_dim = 8
    with user_error("low_dim: found 8 with an affine calibration"):
        first.flow = AffineMap(size)
    second.flow = AffineMap(size)
    with user_error("low_dim: found 8 with an affine calibration"):
        second.low_dim = 8


def test_a_folder_has_one_kind_of_norm(tmp_path, demo_dir):
    model = BertFlow.from_hub("demo", truncate_dim=6)
    (tmp_path / "texts.txt").write_text("a boat\nthe rain\n")
    encode = functools.partial(model.encode_dataset, tmp_path / "texts.txt", tmp_path / "out")
    assert model.tail.normalizes and not model.normalizes
    encode()
    found = pyarrow.parquet.read_table(next((tmp_path / "out").glob("part-*")))["embedding"]
    np.testing.assert_allclose(found.to_pylist(), model.encode(["a boat", "the rain"]), atol=1e-6)
    assert np.linalg.norm(found.to_pylist()[0]) < 0.9
    for normalize in (True, False):
        with user_error("normalize_embeddings: found "):
            encode(ShardSettings(normalize_embeddings=normalize))


def test_an_order_that_sentence_transformers_lacks_is_refused(tmp_path, demo_dir):
    model = BertFlow.from_hub("demo", low_dim=192, truncate_dim=6)
    with user_error("no module for low_dim with truncate_dim"):
        model.export(tmp_path / "st", format="sentence-transformers")
    assert not any(tmp_path.iterdir())
