"""Models of the Hugging Face Hub from a cache, without the hub."""

import pathlib
import shutil
import types

import huggingface_hub.constants
import numpy as np
import pytest
from huggingface_hub.utils import filter_repo_objects

from bert_flow_tf import BertFlow
from bert_flow_tf.encoder import handles
from bert_flow_tf.encoder.handles import downloaded_model, is_model_name
from tests.refusals import refused, succeeds, user_error

COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Port 9 of this machine refuses connections.
ENDPOINT = "http://127.0.0.1:9"


@pytest.fixture
def publish(tmp_path, monkeypatch):
    """A function that puts a model into the library's cache."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", ENDPOINT)
    downloaded_model.cache_clear()

    def put(name, revision, folder):
        model = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (model / "refs").mkdir(parents=True, exist_ok=True)
        (model / "refs" / revision).write_text(COMMIT)
        shutil.copytree(folder, model / "snapshots" / COMMIT, dirs_exist_ok=True)

    yield put
    downloaded_model.cache_clear()


@pytest.fixture
def folder(golden_dir):
    return golden_dir / "transformers" / "sentence_transformer"


def test_a_name_with_a_revision_is_an_encoder(publish, folder, tmp_path):
    publish("acme/tiny", "v1", folder)
    for handle, out in (("acme/tiny@v1", "a.npy"), (folder, "b.npy")):
        succeeds(
            "encode",
            "--bert_hub",
            handle,
            "--input",
            "-",
            "--out",
            tmp_path / out,
            input="a cat\nthe cats\n",
        )
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


@pytest.mark.parametrize("flag", ["--bert_hub", "--model"])
def test_a_model_that_the_hub_does_not_give_is_one_line(publish, folder, tmp_path, flag):
    publish("acme/tiny", "v1", folder)
    for name in ("acme/none", "acme/tiny@v9"):
        line = refused(
            "encode", flag, name, "--input", "-", "--out", tmp_path / "a.npy", unchanged=tmp_path
        )
        assert line.startswith(f"{flag}={name}: ") and f"{ENDPOINT}: " in line


def test_only_an_encoders_files_are_downloaded():
    files = [
        "config.json",
        "vocab.txt",
        "0_Transformer/vocab.txt",
        "model.safetensors",
        "1_Pooling/config.json",
    ]
    others = ["pytorch_model.bin", "onnx/model.onnx", "README.md", "tf_model.h5"]
    assert list(filter_repo_objects(files + others, allow_patterns=handles._ENCODER_FILES)) == files


def test_an_uploaded_model_holds_nothing_private_and_loads(publish, folder, tmp_path, monkeypatch):
    def create_repo(self, repo_id, **_):
        return types.SimpleNamespace(repo_id=repo_id)

    def upload_folder(self, *, repo_id, folder_path, revision, **_):
        publish(repo_id, revision, folder_path)
        return f"{ENDPOINT}/{repo_id}/commit/{COMMIT}"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    model = BertFlow.from_hub(folder)
    model.fit([f"private sentence {i}" for i in range(64)], method="sn", dev_fraction=0)
    with user_error("acme/my model: "):
        model.push_to_hub("acme/my model")
    address = model.push_to_hub("acme/mine", token="hf_secret", branch="mine")
    assert address.endswith(f"/acme/mine/commit/{COMMIT}")
    uploaded = tmp_path / "hub" / "models--acme--mine" / "snapshots" / COMMIT
    assert "\n# mine\n" in (uploaded / "README.md").read_text()
    for file in filter(pathlib.Path.is_file, uploaded.rglob("*")):
        for private in (str(tmp_path), str(folder.parent), "private sentence", "hf_secret"):
            assert private.encode() not in file.read_bytes(), (file, private)
    again = BertFlow.from_pretrained("acme/mine@mine")
    np.testing.assert_array_equal(again.encode(["the cat"]), model.encode(["the cat"]))
    # Another upload under the same name must not be taken for the first.
    model.push_to_hub("acme/mine", branch="mine")
    assert downloaded_model.cache_info().currsize == 0
    publish("acme/tiny", "main", folder)
    with user_error("acme/tiny: found neither"):
        BertFlow.from_pretrained("acme/tiny")


def test_names_of_models_are_told_from_paths(tmp_path, monkeypatch):
    (tmp_path / "existing_folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert all(
        map(is_model_name, ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2@main"))
    )
    assert not any(
        map(
            is_model_name,
            ("my_modl", "/models/bert", "a/b/c", "https://tfhub.dev/x", "existing_folder/a"),
        )
    )
