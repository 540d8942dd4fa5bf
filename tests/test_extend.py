"""Everything that docs/extend.md adds works, and its commands run."""

import copy
import dataclasses
import importlib
import json
import os
import pathlib
import pickle
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from sklearn.preprocessing import QuantileTransformer

from bert_flow_tf import BertFlow
from bert_flow_tf.encoder import source
from bert_flow_tf.encoder.convert import hugging_face
from bert_flow_tf.sample_data import sample_glue_dir, sample_sentences
from bert_flow_tf.tasks import tasks
from glow import config
from glow.coupling import ConvStack
from glow.parameters import Parameters
from tests.bert_flow_tf import small_runs
from tests.glow.bijector_checks import check_bijector, perturb
from tests.refusals import succeeds, user_error

pytestmark = pytest.mark.usefixtures("small_default_flow", "shared_encoders")

_OWN = ("TanhCoupling", "residual_network", "largest")
_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / "docs" / "extend.md").read_text(encoding="utf-8")
_SNIPPETS = dict(re.findall(r"<!-- snippet: ([^\n]+) -->\n```\w+\n(.+?)```\n", _PAGE, re.DOTALL))
_TABLES = tasks.TASKS, hugging_face.FAMILIES
_PARTS = ("coupling", "network", "pooling", "task", "family", "method", "training")


def write_example_files():
    """Write what the page's commands read: an ELECTRA, a task and tanh.json."""
    folder, electra = source.demo_encoder_dir(), pathlib.Path("electra")
    bert = safetensors.numpy.load_file(folder / "model.safetensors")
    electra.mkdir()
    weights = {
        f"electra.{name}": value for name, value in bert.items() if not name.startswith("pooler.")
    }
    safetensors.numpy.save_file(weights, electra / "model.safetensors")
    for name in ("vocab.txt", "tokenizer.json"):
        shutil.copy(folder / name, electra)
    written = json.loads((folder / "config.json").read_text())
    written |= {
        "model_type": "electra",
        "embedding_size": written["hidden_size"],
        "hidden_act": "gelu_new",
    }
    (electra / "config.json").write_text(json.dumps(written))
    sentences = sample_sentences()
    lines = [
        f"{a}\t{b}\t{i % 11}\n"
        for i, (a, b) in enumerate(zip(sentences[::2], sentences[1::2], strict=True))
    ]
    headlines = pathlib.Path("data", "Headlines")
    headlines.mkdir(parents=True)
    for i, split in enumerate(("train", "dev", "test")):
        (headlines / f"{split}.tsv").write_text(
            "first\tsecond\tscore\n" + "".join(lines[i::3]), encoding="utf-8"
        )
    flow = dataclasses.asdict(config.GlowConfig.load("config_l2_d2_w32"))
    pathlib.Path("tanh.json").write_text(
        json.dumps(
            flow
            | {
                "coupling": "my_extensions:TanhCoupling",
                "network": "my_extensions:residual_network",
            }
        )
    )


@pytest.fixture(scope="module")
def workplace(documented_encoder_dir, tmp_path_factory):
    """Folder with the page's files; their additions are removed at the end."""
    folder = tmp_path_factory.mktemp("extend")
    (folder / "my_extensions.py").write_text("\n".join(_SNIPPETS[name] for name in _PARTS))
    before = [dict(table) for table in _TABLES]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("BERT_FLOW_CACHE", str(folder / "cache"))
        patch.syspath_prepend(folder)
        patch.setattr(source, "demo_encoder_dir", lambda: documented_encoder_dir)
        write_example_files()
        # The small BERT knows no words of the sample.
        small_runs.write_sentences(folder / "sentences.txt", 400)
        importlib.import_module("my_extensions")
        yield folder
    del sys.modules["my_extensions"]
    for table, entries in zip(_TABLES, before, strict=True):
        table.clear()
        table.update(entries)


def test_every_addition_is_made_trained_and_scored(workplace, documented_encoder_dir):
    lines = [shlex.split(line) for line in _SNIPPETS["use"].splitlines()]
    assert lines[0] == ["export", "BERT_FLOW_CODE=my_extensions.py"]
    for command, *arguments in lines[1:3]:
        assert command == "bert-flow"
        succeeds(*arguments)
    # In a process of its own, which loads what the other one saved.
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    program = [sys.executable, "-m", "bert_flow_tf.cli"]

    def run(arguments, **variables):
        return subprocess.run(
            [*program, *arguments], env=environment | variables, capture_output=True, text=True
        )

    done = run(lines[3][1:])
    assert done.returncode == 0 and "error" not in done.stderr, done.stderr
    assert run(lines[3][3:], BERT_FLOW_CODE="my_extensions.py").stdout == done.stdout
    without = run(["encode", "--model", "my_electra", "--input", "sentences.txt", "--out", "x.npy"])
    assert without.returncode == 2
    assert "my_electra: pooling: found my_extensions:largest, whose module is not" in without.stderr
    assert "import my_extensions first, or give --code FILE.py" in without.stderr
    assert re.search(r"  HEADLINES  test   Spearman    266 ", done.stdout), done.stdout
    fitted = BertFlow.from_pretrained("my_electra")
    assert {type(bijectors[-1]).__name__ for bijectors in fitted.flow.levels} == {"TanhCoupling"}
    sentences = (workplace / "sentences.txt").read_text().splitlines()[:20]
    np.testing.assert_allclose(
        fitted.inverse(fitted.encode(sentences)), fitted.encode_pooled(sentences), atol=1e-4
    )
    # The ELECTRA computes what the BERT does that it was written from, and the pooling takes the
    # largest.
    bert = BertFlow.from_hub(documented_encoder_dir)
    states = [
        bert.encoder.network.token_states(bert.tokenize([sentence])) for sentence in sentences
    ]
    found = BertFlow.from_hub("encoders/electra", pooling="my_extensions:largest-1").encode(
        sentences
    )
    np.testing.assert_allclose(
        found, [tf.reduce_max(one[0], axis=0) for one in states], rtol=0, atol=1e-5
    )


def test_run_siamese_knows_the_parts_of_a_file(workplace, documented_encoder_dir):
    flags = ["--task_name=STS-B", f"--data_dir={sample_glue_dir()}/STS-B"]
    flags += [f"--bert_hub={documented_encoder_dir}"]
    flags += [
        "--sentence_embedding_type=my_extensions:largest-2",
        "--max_seq_length=8",
        "--output_parent_dir=.",
        "--exp_name=own_run",
    ]
    flags += ["--flow=1", "--flow_loss=1", "--num_examples=0", "--flow_model_config=tanh.json"]
    flags += ["--do_train", "--num_train_epochs=0.1", "--train_batch_size=8"]
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "bert_flow_tf.run_siamese", *flags]
    without = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert without.returncode == 2
    assert "my_extensions:largest, whose module is not imported" in without.stderr
    command += ["--code=my_extensions.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    run = BertFlow.from_pretrained("own_run")
    assert set(run.record.code) == {f"my_extensions:{name}" for name in _OWN}
    # A run of other code is neither resumed nor used.
    file = workplace / "my_extensions.py"
    code = file.read_text()
    file.write_text(f"{code}\n")
    for extra in ([], ["--do_train=false", "--do_predict"]):
        other = subprocess.run([*command, *extra], env=environment, capture_output=True, text=True)
        assert other.returncode == 2 and "my_extensions:largest" in other.stderr, other.stderr
    file.write_text(code)


def test_a_model_of_own_parts_is_copied_and_knows_its_code(workplace):
    model = BertFlow.from_pretrained("my_electra")
    expected = model.encode(["a boat", "two dogs"])
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.encode(["a boat", "two dogs"]), expected)
        assert other.fingerprint == model.fingerprint
    unchanged = model.fingerprint
    # It enters the key of a run's cached embeddings.
    encoder_code = model.encoder.recipe["code"]
    assert encoder_code == {"my_extensions:largest": model.record.code["my_extensions:largest"]}
    file = workplace / "my_extensions.py"
    code = file.read_text()
    file.write_text(f"{code}\n")
    importlib.reload(sys.modules["my_extensions"])
    with pytest.warns(UserWarning, match="^my_extensions: the code has changed since the model"):
        changed = BertFlow.from_pretrained("my_electra")
    assert changed.fingerprint != unchanged
    assert changed.encoder.recipe["code"] != encoder_code
    file.write_text(code)
    importlib.reload(sys.modules["my_extensions"])
    assert BertFlow.from_pretrained("my_electra").fingerprint == unchanged


def test_the_loss_and_the_method_of_the_page_are_used(workplace):
    model = BertFlow.from_hub("electra", max_seq_length=16)
    sentences = (workplace / "sentences.txt").read_text().splitlines()
    shrinking = sys.modules["my_extensions"].shrinking_loss
    latents = [
        np.mean(model.fit(sentences, epochs=20, loss=loss).encode(sentences) ** 2)
        for loss in (None, shrinking)
    ]
    assert latents[1] < latents[0]
    model.fit(sentences, method="my_extensions:pca")
    assert np.flatnonzero(model.encode(sentences).any(axis=0)).tolist() == list(range(16))
    again = BertFlow.from_pretrained(model.save(workplace / "pca"))
    np.testing.assert_array_equal(again.encode(sentences[:9]), model.encode(sentences[:9]))
    model.fit(sentences, method=QuantileTransformer(n_quantiles=50))
    with user_error("save: found QuantileTransformer", "not affine"):
        model.save(workplace / "quantiles")


def test_the_coupling_of_the_page_is_a_bijector(workplace):
    coupling = sys.modules["my_extensions"].TanhCoupling
    parameters = Parameters(seed=3, dtype=tf.float64)
    network = ConvStack(parameters, 3, 6, width=5)
    perturb(parameters.variables.values(), seed=1)
    check_bijector(coupling(network, dtype=tf.float64), 6)
