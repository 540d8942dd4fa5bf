"""The snippets of docs/vectors.md run and agree."""

import pathlib
import re
import shlex

import numpy as np

from bert_flow_tf import BertFlow
from tests.bert_flow_tf import small_runs
from tests.refusals import succeeds

_PAGE = (pathlib.Path(__file__).parents[1] / "docs" / "vectors.md").read_text(encoding="utf-8")
_SNIPPETS = dict(re.findall(r"<!-- snippet: ([^\n]+) -->\n```\w+\n(.+?)```\n", _PAGE, re.DOTALL))


def test_every_index_finds_the_nearest(documented_encoder_dir, require, tmp_path, monkeypatch):
    require("faiss")
    assert list(_SNIPPETS) == ["faiss", "graph", "folder", "parquet", "index"]
    monkeypatch.chdir(tmp_path)
    small_runs.write_sentences(tmp_path / "sentences.txt", 100)
    sentences = (tmp_path / "sentences.txt").read_text().splitlines()
    BertFlow.from_hub(documented_encoder_dir).save("my_model")
    names = {}
    exec(_SNIPPETS["faiss"], names)
    expected = names["model"].similarity("A boat.", sentences)[0]
    np.testing.assert_allclose(names["cosines"][0], np.sort(expected)[::-1][:3], atol=1e-6)
    exec(_SNIPPETS["graph"], names)
    np.testing.assert_allclose(names["found"][0], names["cosines"][0], atol=1e-5)
    succeeds(*shlex.split(_SNIPPETS["folder"])[1:])
    exec(_SNIPPETS["parquet"], names)
    index = names["index"]
    assert index.ntotal == 2 * len(sentences)
    np.testing.assert_allclose(
        index.reconstruct_n(len(sentences), len(sentences)), names["vectors"], atol=1e-6
    )
    exec(_SNIPPETS["index"].replace("64", "8"), names)
    z = names["calibrated"].encode([*sentences, "A boat."])
    assert z.shape == (101, 8)
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    expected = np.sort(z[:-1] @ z[-1])[::-1][:3]
    np.testing.assert_allclose(names["cosines"][0], expected, atol=1e-5)
