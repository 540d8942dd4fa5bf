"""sentence-transformers loads the export and gives our embeddings."""

import json
import pathlib
import re
import shlex
import subprocess

import numpy as np
import pytest

from benchmarks.peers import peer_environment
from bert_flow_tf.api import BertFlow
from bert_flow_tf.calibration.affine import SoftWhitening
from glow.config import GlowConfig
from glow.maps import AffineMap
from tests.bert_flow_tf.export.test_guide import GUIDE
from tests.refusals import files_below, refused, succeeds, user_error

FLOW = GlowConfig(n_levels=2, depth=2, coupling_width=4)
# Each case has a pooling, a flow and options.
EXPORTS = {
    "avg": ("avg", FLOW, {}),
    "cls": ("cls", FLOW, {}),
    "last_two": ("avg-last-2", FLOW, {"low_dim": 4}),
    "first_of_two": (
        "avg-last-last-2",
        GlowConfig(n_levels=1, depth=1, permutation=False),
        {"normalize": True},
    ),
    "papers": ("paper-avg-last-2", GlowConfig.load("config_l2_d3_w32"), {"max_seq_length": 5}),
    "papers_cls": ("paper-cls", None, {"low_dim": 8}),
    "narrow": ("avg", None, {"channels": 5}),
    "truncated": ("avg", FLOW, {"truncate_dim": 3}),
    "of_norm_1": ("avg", None, {"truncate_dim": 3}),
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


def test_the_library_itself_gives_our_embeddings(variant, golden_dir, require, tmp_path):
    python, models = require("sentence-transformers"), {}
    cases = json.loads((golden_dir / "tokenization_uncased.json").read_text())["cases"]
    # Both tokenizers split these alike.
    texts = [
        case["text"] for case in cases if "[CLS]" not in case["text"] and len(case["text"]) < 90
    ]
    sentences = [*(text for text in texts if "\u03a3" not in text), "a" * 150, "lower " * 30]
    for name, (pooling, config, options) in EXPORTS.items():
        model = models[name] = variant(pooling, config, options.get("low_dim", -1))
        if config is not None:
            model.flow.initialize_from_data(model.encoder.network.embed(model.tokenize(sentences)))
        if "channels" in options:
            whitening = SoftWhitening(0.1, 5)
            whitening.fit(model.encode_pooled(sentences))
            model.flow = AffineMap(16, whitening.mean_, whitening.matrix_)
        model.truncate_dim = options.get("truncate_dim")
        model.prompts, model.similarity_fn_name = {"query": "the ", "document": ""}, "dot"
        model.max_seq_length = options.get("max_seq_length", model.max_seq_length)
        model.export(
            tmp_path / name, format="sentence-transformers", normalize="normalize" in options
        )
    (tmp_path / "sentences.json").write_text(json.dumps(sentences))
    # The other interpreter must not see this process's packages.
    environment = peer_environment() | {"PYTHONPATH": ""}
    command = [str(python), "-c", THEIRS, *EXPORTS]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, model in models.items():
        ours = model.encode(sentences, normalize_embeddings="normalize" in EXPORTS[name][2])
        theirs = np.load(tmp_path / f"{name}.npy")
        width = EXPORTS[name][2].get("channels", EXPORTS[name][2].get("truncate_dim"))
        assert width in (None, theirs.shape[1]), name
        assert np.abs(theirs - ours).max() < 1e-5 * np.abs(ours).max(), name
        function, prompts, length, modules = json.loads((tmp_path / f"{name}.json").read_text())
        assert (function, prompts, length) == ("dot", model.prompts, model.max_seq_length)
        assert modules.count("WeightedLayerPooling") == (
            name in ("last_two", "first_of_two", "papers")
        ), name


@pytest.mark.parametrize("pooling", ["avg", "paper-cls"])
def test_it_is_an_encoder_here_as_well(variant, tmp_path, pooling):
    model = variant(pooling, None)
    model.export(tmp_path / "plain", format="sentence-transformers")
    again = BertFlow.from_hub(tmp_path / "plain")
    assert again.source.fingerprint == model.source.fingerprint
    assert (again.sentence_embedding_type, again.max_seq_length) == (pooling, model.max_seq_length)
    np.testing.assert_array_equal(
        again.encode(["the cat", "Ünder"]), model.encode(["the cat", "Ünder"])
    )


def test_a_passage_prompt_is_the_documents_prompt(variant, tmp_path):
    model = variant("avg", None)
    model.prompts = {"query": "the ", "passage": "lower "}
    model.export(tmp_path / "out", format="sentence-transformers")
    settings = json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {**model.prompts, "document": "lower "}
    again = BertFlow.from_hub(tmp_path / "out")
    np.testing.assert_array_equal(again.encode_document(["cat"]), model.encode_document(["cat"]))


@pytest.mark.parametrize(
    ("pooling", "changed", "found"),
    [
        ("paper-concat-last-2", {}, "paper-concat-last-2"),
        ("avg", {"coupling": "affine"}, "affine couplings"),
    ],
)
def test_what_no_module_computes_is_named(variant, tmp_path, pooling, changed, found):
    model = variant(pooling, GlowConfig(**(FLOW.to_dict() | changed)))
    with user_error("format: sentence-transformers", found, "savedmodel or onnx"):
        model.export(tmp_path / "out", format="sentence-transformers")
    assert list(tmp_path.iterdir()) == []


def test_the_guides_command_writes_it_and_replaces_only_it(sts_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "stsb_flow").symlink_to(sts_run)
    (command,) = re.findall(r"<!-- snippet: folder -->\n```bash\nbert-flow (.+)\n```", GUIDE)
    arguments, out = shlex.split(command), pathlib.Path("exported/st")
    assert succeeds(*arguments).startswith(
        f"sentence-transformers written: {out} (reloaded: max difference "
    )
    written = files_below(out)
    succeeds(*arguments, "--overwrite")
    assert files_below(out) == written
    (out / "export.json").unlink()
    assert "holds no modules.json" in refused(*arguments, "--overwrite", unchanged=out)
