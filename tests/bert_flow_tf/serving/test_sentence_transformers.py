"""A folder that sentence-transformers itself loads with its own modules, and whose embeddings are ours."""

import copy
import json
import pathlib
import re
import shlex
import subprocess

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.peers import peer_environment
from bert_flow_tf.api import BertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from tests.glow.bijector_checks import perturb
from tests.refusals import files_below, refused, succeeds, user_error

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "serving.md"
FLOW = GlowConfig(n_levels=2, depth=2, coupling_width=4)
# Pooling, flow and options of an export.
EXPORTS = {
    "avg": ("avg", FLOW, {}),
    "cls": ("cls", FLOW, {}),
    "last_two": ("avg-last-2", FLOW, {"low_dim": 4}),
    "first_of_two": ("avg-last-last-2", GlowConfig(n_levels=1, depth=1, permutation=False), {"normalize": True}),
    "papers": ("paper-avg-last-2", GlowConfig.from_name("config_l2_d3_w32_residual"), {"max_seq_length": 5}),
    "papers_cls": ("paper-cls", None, {"low_dim": 8}),
}
# What the library is asked, in a process without TensorFlow.
THEIRS = """
import json, sys, warnings
import numpy as np
from sentence_transformers import SentenceTransformer
warnings.simplefilter("error", FutureWarning)
sentences = json.load(open("sentences.json"))
for name in sys.argv[1:]:
    model = SentenceTransformer(name, trust_remote_code=False, device="cpu")
    np.save(f"{name}.npy", model.encode(sentences, show_progress_bar=False))
    said = [model.similarity_fn_name, model.prompts, model.max_seq_length, [type(one).__name__ for one in model]]
    json.dump(said, open(f"{name}.json", "w"))
"""


@pytest.fixture(scope="module")
def models(golden_dir, sentences, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tmp_path_factory.mktemp("cache")))
        model = BertFlow.from_hub(golden_dir / "transformers" / "sentence_transformer", pooling="avg")
    made = {}
    for name, (pooling, config, options) in EXPORTS.items():
        made[name] = copy.copy(model)
        made[name].sentence_embedding_type = pooling
        made[name].encoder = made[name].pooled = model.encoder.with_pooling(pooling)
        if config is not None:
            made[name].flow = Glow(config, 16, seed=0)
            perturb(made[name].flow.trainable_variables, seed=1)
            made[name].flow.initialize_from_data(made[name].encoder.embed(model.tokenize(sentences)))
        made[name].low_dim = options.get("low_dim", -1)
        made[name].embedding_size = options.get("low_dim", 16)
        made[name].prompts, made[name].similarity_fn_name = {"query": "the ", "document": ""}, "dot"
        if "max_seq_length" in options:
            made[name].max_seq_length = options["max_seq_length"]
        made[name]._make_batchers()
    return made


@pytest.fixture(scope="module")
def sentences(golden_dir):
    """Those that both tokenizers split alike, see test_like_sentence_transformers.py, and a word of 150 letters."""
    cases = json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
    texts = [case["text"] for case in cases if "[CLS]" not in case["text"] and len(case["text"]) < 90]
    return [*(text for text in texts if "\u03a3" not in text), "a" * 150, "lower " * 30]


@pytest.fixture(scope="module")
def exported(models, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported")
    for name, model in models.items():
        options = {key: value for key, value in EXPORTS[name][2].items() if key == "normalize"}
        model.export(folder / name, format="sentence-transformers", **options)
    return folder


def cosines(embeddings):
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    return (embeddings / norms) @ (embeddings / norms).T


def test_the_library_itself_gives_our_embeddings(models, sentences, exported, require):
    python = require("sentence-transformers")
    (exported / "sentences.json").write_text(json.dumps(sentences))
    done = subprocess.run(
        [str(python), "-c", THEIRS, *EXPORTS],
        cwd=exported,
        # No packages of this process.
        env=peer_environment() | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, model in models.items():
        ours = model.encode(sentences, normalize_embeddings="normalize" in EXPORTS[name][2]).astype(np.float64)
        theirs = np.load(exported / f"{name}.npy").astype(np.float64)
        of_cosines = np.abs(cosines(theirs) - cosines(ours)).max()
        of_embeddings = np.abs(theirs - ours).max() / np.abs(ours).max()
        print(
            f"{name}: largest deviation of cosines {of_cosines:.1e}, of embeddings {of_embeddings:.1e} of the largest"
        )
        assert of_cosines < 1e-5 and of_embeddings < 1e-5, name
        function, prompts, length, modules = json.loads((exported / f"{name}.json").read_text())
        assert (function, prompts, length) == ("dot", model.prompts, model.max_seq_length)
        assert modules.count("WeightedLayerPooling") == (name in ("last_two", "first_of_two", "papers")), name


def test_it_is_an_encoder_here_as_well(models, exported, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path))
    model = copy.copy(models["avg"])
    model.flow, model._folded = None, None
    model._make_batchers()
    model.export(tmp_path / "plain", format="sentence-transformers")
    again = BertFlow.from_hub(tmp_path / "plain")
    assert (again.sentence_embedding_type, again.max_seq_length) == ("avg", model.max_seq_length)
    np.testing.assert_array_equal(again.encode(["the cat", "Ünder"]), model.encode(["the cat", "Ünder"]))


@pytest.mark.parametrize(
    ("pooling", "changed", "said"),
    [
        ("paper-concat-last-2", {}, "the pooling paper-concat-last-2"),
        ("avg", {"coupling": "affine"}, "affine couplings of activation relu"),
        ("avg", {"activation": "gatu"}, "additive couplings of activation gatu"),
    ],
)
def test_what_no_module_computes_is_named(models, tmp_path, pooling, changed, said):
    model = copy.copy(models["avg"])
    model.sentence_embedding_type, model.encoder = pooling, model.encoder.with_pooling(pooling)
    model.flow = Glow(GlowConfig(**(FLOW.to_dict() | changed)), model.encoder.embedding_size, seed=0)
    with user_error(
        f"format: found sentence-transformers with {said}, which none of its modules", "expected savedmodel or onnx"
    ):
        model.export(tmp_path / "out", format="sentence-transformers")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_whose_flow_the_disk_changed_is_refused_and_leaves_nothing(models, tmp_path, monkeypatch):
    write = safetensors.numpy.save_file

    def changed(tensors, path, metadata):
        factor = np.float32(1.01 if "Dense" in str(path) else 1)
        write({name: value * factor for name, value in tensors.items()}, path, metadata)

    monkeypatch.setattr("safetensors.numpy.save_file", changed)
    with user_error("out: the written files differ from the model by", "nothing was written"):
        models["avg"].export(tmp_path / "out", format="sentence-transformers")
    assert list(tmp_path.iterdir()) == []


def test_the_guides_command_writes_it_and_replaces_nothing_else(sts_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "stsb_flow").symlink_to(sts_run)
    (command,) = re.findall(r"<!-- snippet: folder -->\n```bash\nbert-flow (.+)\n```", GUIDE.read_text())
    arguments, out = shlex.split(command), pathlib.Path("exported/st")
    said = succeeds(*arguments)
    assert said.startswith(f"sentence-transformers written: {out} (reloaded: max difference ")
    written = files_below(out)
    assert "exists, expected a new folder, or --overwrite" in refused(*arguments, unchanged=out)
    succeeds(*arguments, "--overwrite")
    assert files_below(out) == written
    (out / "export.json").unlink()
    assert "holds no modules.json of an export" in refused(*arguments, "--overwrite", unchanged=out)
