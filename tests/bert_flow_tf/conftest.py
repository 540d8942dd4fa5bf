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
from bert_flow_tf.run_siamese import run
from bert_flow_tf.runs.settings import Settings
from tests.bert_flow_tf.sample_pairs import VOCAB

SMALL_VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "The", "the", "cat", "##s", "sat", "."]


def pytest_configure():
    """Four virtual CPUs, which TensorFlow must know before it does anything, for tests of replicas."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    if tf.config.get_logical_device_configuration(cpu) is None:
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)


@pytest.fixture(scope="session")
def tiny_encoder_dir(tiny_source):
    """Encoder folder of the golden data's BERT."""
    return tiny_source.encoder_dir.parent


@pytest.fixture(scope="session")
def tokenizer():
    """Tokenizer of the words of `sample_pairs`."""
    return Tokenizer(VOCAB, do_lower_case=True)


@pytest.fixture(scope="module")
def encoder(tiny_source):
    """The golden data's BERT, its last layer averaged."""
    return SentenceEncoder(tiny_source, "avg", trainable=False)


@pytest.fixture(scope="session")
def small_hugging_face_dir(tmp_path_factory):
    """Hugging Face folder of a random 1-layer, 8-wide, cased BERT with dropout 0.5."""
    folder = tmp_path_factory.mktemp("small_hugging_face")
    config = {
        "model_type": "bert",
        "vocab_size": len(SMALL_VOCAB),
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 10,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.5,
        "attention_probs_dropout_prob": 0.5,
        "layer_norm_eps": 1e-12,
    }
    shapes = {
        "embeddings.word_embeddings.weight": (11, 8),
        "embeddings.position_embeddings.weight": (10, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        "embeddings.LayerNorm.weight": (8,),
        "embeddings.LayerNorm.bias": (8,),
        "pooler.dense.weight": (8, 8),
        "pooler.dense.bias": (8,),
    }
    for part, (out, width) in {
        "attention.self.query": (8, 8),
        "attention.self.key": (8, 8),
        "attention.self.value": (8, 8),
        "attention.output.dense": (8, 8),
        "intermediate.dense": (12, 8),
        "output.dense": (8, 12),
    }.items():
        shapes[f"encoder.layer.0.{part}.weight"] = (out, width)
        shapes[f"encoder.layer.0.{part}.bias"] = (out,)
    for part in ("attention.output", "output"):
        shapes |= {f"encoder.layer.0.{part}.LayerNorm.{kind}": (8,) for kind in ("weight", "bias")}
    rng = np.random.default_rng(0)
    tensors = {f"bert.{name}": rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(SMALL_VOCAB) + "\n")
    return folder


@pytest.fixture(scope="session")
def small_encoder_dir(small_hugging_face_dir, built_once):
    """Encoder folder of `small_hugging_face_dir`."""
    return built_once(
        "small_encoder", lambda folder: write_encoder_folder(folder, read_hugging_face(small_hugging_face_dir))
    )


@pytest.fixture(scope="session")
def small_source(small_encoder_dir):
    """`EncoderSource` of `small_encoder_dir`."""
    return resolve_encoder(bert_hub=small_encoder_dir)


@pytest.fixture(scope="session")
def sts_run(tiny_trio, built_once):
    """Directory of a finished run, three steps of the flow, with predictions; the data is in `STS-B` beside it."""
    # The config.json names the folders of the process that trained.

    def train(root):
        _train_on_sts(root, tiny_trio)
        (root / "places.json").write_text(json.dumps([str(root), str(tiny_trio["cache_dir"])]))

    root = built_once("sts_run", train)
    config = (root / "run" / "config.json").read_text()
    for there, here in zip(json.loads((root / "places.json").read_text()), (root, tiny_trio["cache_dir"]), strict=True):
        config = config.replace(there, str(here))
    (root / "run" / "config.json").write_text(config)
    return root / "run"


@pytest.fixture(scope="session")
def sts_version(sts_run, built_once):
    """Folder of a version that `sts_run` was exported to, with its defaults."""
    from bert_flow_tf.api import BertFlow

    return built_once("sts_version", lambda folder: BertFlow.load(sts_run).export(folder / "sts")) / "sts" / "1"


def _train_on_sts(root, tiny_trio):
    data_dir = root / "STS-B"
    data_dir.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for split in ("train", "dev", "test"):
        lines = ["index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"]
        for i in range(12):
            pair = [" ".join(f"w{n}" for n in rng.integers(25, size=rng.integers(2, 9))) for _ in range(2)]
            lines.append("\t".join([str(i), *["-"] * 6, *pair, f"{rng.uniform(0, 5):.3f}"]))
        (data_dir / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    flags = {name: value for name, value in tiny_trio.items() if name != "cache_dir"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
        settings = Settings(
            task_name="STS-B",
            data_dir=str(data_dir),
            output_parent_dir=str(root),
            exp_name="run",
            max_seq_length=8,
            sentence_embedding_type="avg-last-2",
            do_train=True,
            do_predict=True,
            train_batch_size=4,
            num_train_epochs=1.0,
            flow=1,
            flow_loss=1,
            num_examples=0,
            **flags,
        )
        run(settings)
