"""Small encoders and runs to test with, and virtual CPUs."""

import json

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.hugging_face import read_hugging_face
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.weights import TextRules
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.sample_pairs import VOCAB
from tests.refusals import succeeds

SMALL_VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "the", "cat", "##s", "sat", "."]

LENGTHS = {"word": 11, "position": 10, "token_type": 2}
DENSE = {
    f"attention.{name}": (8, 8) for name in ("self.query", "self.key", "self.value", "output.dense")
}
DENSE |= {"intermediate.dense": (12, 8), "output.dense": (8, 12)}


def pytest_configure():
    """Make four virtual CPUs, before TensorFlow does anything."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 4
        )


@pytest.fixture(scope="module", autouse=True)
def _models_share_encoders(shared_encoders):
    pass


@pytest.fixture(scope="session")
def tiny_encoder_dir(tiny_source, tmp_path_factory):
    """Encoder folder of the golden data's BERT."""
    return write_encoder_folder(tmp_path_factory.mktemp("tiny") / "encoder", tiny_source.pretrained)


@pytest.fixture(scope="session")
def tokenizer():
    """Tokenizer of the words of `sample_pairs`."""
    return Tokenizer(VOCAB, TextRules(do_lower_case=True))


@pytest.fixture(scope="session")
def encoder(tiny_source):
    """The golden data's BERT, its last layer averaged."""
    return SentenceEncoder(tiny_source, "avg", trainable=False)


@pytest.fixture(scope="session")
def small_hugging_face_dir(tmp_path_factory):
    """Hugging Face folder of a random, cased, 1-layer BERT with dropout 0.5."""
    folder = tmp_path_factory.mktemp("small_hugging_face")
    config = {
        "model_type": "bert",
        "vocab_size": 11,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "type_vocab_size": 2,
    }
    config |= {
        "intermediate_size": 12,
        "max_position_embeddings": 10,
        "num_attention_heads": 2,
        "hidden_act": "gelu",
    }
    config |= {
        "hidden_dropout_prob": 0.5,
        "attention_probs_dropout_prob": 0.5,
        "layer_norm_eps": 1e-12,
    }
    shapes = {f"embeddings.{name}_embeddings.weight": (n, 8) for name, n in LENGTHS.items()}
    shapes |= {"embeddings.LayerNorm.weight": (8,), "embeddings.LayerNorm.bias": (8,)}
    shapes |= {"pooler.dense.weight": (8, 8), "pooler.dense.bias": (8,)}
    for part, (out, width) in DENSE.items():
        shapes[f"encoder.layer.0.{part}.weight"] = (out, width)
        shapes[f"encoder.layer.0.{part}.bias"] = (out,)
    for part in ("attention.output", "output"):
        shapes |= {f"encoder.layer.0.{part}.LayerNorm.{kind}": (8,) for kind in ("weight", "bias")}
    rng = np.random.default_rng(0)
    tensors = {
        f"bert.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(SMALL_VOCAB) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    return folder


@pytest.fixture(scope="session")
def small_encoder_dir(small_hugging_face_dir, tmp_path_factory):
    """Encoder folder of `small_hugging_face_dir`."""
    folder = tmp_path_factory.mktemp("small") / "encoder"
    return write_encoder_folder(folder, read_hugging_face(small_hugging_face_dir))


@pytest.fixture(scope="session")
def small_source(small_encoder_dir):
    """`EncoderSource` of `small_encoder_dir`."""
    return resolve_encoder(bert_hub=small_encoder_dir)


@pytest.fixture(scope="session")
def small_hub_dir(small_encoder_dir, require, built_once):
    """TF-Hub's encoder and preprocess model of `small_source`, by tf-models."""
    require("official")
    command = ("convert", "--bert_hub", small_encoder_dir, "--to_tfhub")

    def convert(folder):
        assert succeeds(*command, folder) == f"written: {folder}\n"

    return built_once("small_hub", convert)


@pytest.fixture(scope="session")
def sts_run(tiny_trio, built_once):
    """Folder of a finished flow run; its data lies beside it."""
    # The config.json names the folders of the process that trained.

    def train(root):
        stsb = small_runs.write_stsb(root / "STS-B", small_runs.TINY_WORDS[:25], (12, 12, 12))
        settings = {**tiny_trio}
        settings |= {
            "task_name": "STS-B",
            "data_dir": str(stsb),
            "output_parent_dir": str(root),
            "exp_name": "run",
        }
        settings |= {
            "do_train": True,
            "do_predict": True,
            "num_train_epochs": 1.0,
            "train_batch_size": 4,
        }
        settings |= {"sentence_embedding_type": "avg-last-2", "max_seq_length": 8}
        flow = {"flow": 1, "flow_loss": 1, "flow_model_config": small_runs.small_flow_file(root)}
        small_runs.run(settings, **flow, num_examples=0)
        (root / "place.json").write_text(json.dumps(str(root)))

    root = built_once("sts_run", train)
    config = (
        (root / "run" / "config.json")
        .read_text()
        .replace(json.loads((root / "place.json").read_text()), str(root))
    )
    (root / "run" / "config.json").write_text(config)
    return root / "run"


@pytest.fixture(scope="session")
def sts_version(sts_run, built_once):
    """Folder of a version that `sts_run` was exported to, with its defaults."""
    from bert_flow_tf.api import BertFlow

    return (
        built_once("sts_version", lambda folder: BertFlow.load(sts_run).export(folder / "sts"))
        / "sts"
        / "1"
    )
