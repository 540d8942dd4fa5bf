"""`fit`, `encode`, `search` and `similarity`: their output and their mistakes."""

import io
import json
import re

import numpy as np
import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.scale.shards import MANIFEST
from bert_flow_tf.vectors import thresholds
from bert_flow_tf.vectors.thresholds import threshold
from tests.bert_flow_tf.small_runs import small_flow_file
from tests.refusals import bert_flow, refusal, refused, succeeds

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = [f"w{i} w{i % 7} w3" for i in range(16)]


@pytest.fixture(scope="module")
def sentences_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "sentences.txt"
    path.write_text("".join(f"{sentence}\n" for sentence in SENTENCES))
    return path


@pytest.fixture(scope="module")
def fit(tiny_encoder_dir, tmp_path_factory):
    """Arguments of `fit`; 2 of the 242 sentences are empty."""
    root = tmp_path_factory.mktemp("fit")
    (root / "many.txt").write_text(
        "\n \n" + "".join(f"w{i} w{j}\n" for i in range(20) for j in range(12))
    )
    arguments = [
        "fit",
        "--bert_hub",
        tiny_encoder_dir,
        "--pooling",
        "avg-last-2",
        "--max_seq_length",
        8,
    ]
    arguments += [
        "--num_train_epochs",
        1,
        "--train_batch_size",
        8,
        "--flow_model_config",
        small_flow_file(root),
    ]
    return [*arguments, "--input", root / "many.txt"]


def without_flow(fit):
    """Return the arguments of `fit` without those of a flow's training."""
    names = ("--num_train_epochs", "--train_batch_size", "--flow_model_config")
    at = {fit.index(name) + i for name in names for i in (0, 1)}
    return [one for i, one in enumerate(fit) if i not in at]


def test_threshold_is_that_of_python_before_and_after(saved, fit):
    many = fit[-1]
    printed = succeeds("threshold", "--model", saved, "--input", many, "--format", "json")
    (row,) = json.loads(printed)["rows"]
    model = BertFlow.load(saved)
    sentences = [line for line in many.read_text().splitlines() if line.strip()]
    after = model.threshold(sentences)
    before = threshold(model.encode_pooled(list(dict.fromkeys(sentences))))
    for side, found in (("before", before), ("after", after)):
        values = [row[f"{side}{end}"] for end in ("", " low", " high")]
        assert values == pytest.approx([found.cosine, found.low, found.high], abs=1e-5)
    shares = ("--false_matches", 0.01, "--false_matches", 0.1)
    lines = succeeds("threshold", "--model", saved, "--input", many, *shares).splitlines()
    assert lines[0].endswith(": 240 different sentences")
    assert [line.split()[0] for line in lines[3:]] == ["0.01", "0.1"]
    few = bert_flow("threshold", "--model", saved, "--input", many, "--false_matches", 1e-5)
    found = "--false_matches: found 240 different sentences for 1e-05"
    refusal(few.exit_code, few.stderr, found, after_log=True)


def test_threshold_of_many_sentences_is_that_of_python(saved, fit, monkeypatch):
    monkeypatch.setattr(thresholds, "_MOST_ROWS", 100)
    options = ("--false_matches", 0.01, "--format", "json")
    (row,) = json.loads(succeeds("threshold", "--model", saved, "--input", fit[-1], *options))[
        "rows"
    ]
    sentences = [line for line in fit[-1].read_text().splitlines() if line.strip()]
    found = BertFlow.load(saved).threshold(sentences, 0.01)
    values = [row[f"after{end}"] for end in ("", " low", " high")]
    assert values == pytest.approx([found.cosine, found.low, found.high], abs=1e-5)


@pytest.fixture(scope="module")
def saved(fit, tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "model"
    outcome = bert_flow(*fit, "--out", out)
    assert outcome.stderr.splitlines()[0] == "empty sentences, skipped: 2"
    said = outcome.stdout.splitlines()
    assert ": 48 held-out sentences " in said[0]
    assert said[1].startswith("48 held-out sentences: mean cosine of random pairs ")
    assert said[2:] == [f"model written: {out} (240 sentences, 24 steps)"]
    return out


@pytest.fixture(scope="module")
def expected(saved):
    return BertFlow.from_pretrained(saved).encode(SENTENCES)


def test_a_harmful_verdict_stays_with_the_model(fit, tmp_path):
    pairs, out = tmp_path / "pairs.csv", tmp_path / "model"
    model = BertFlow.from_hub(fit[2], pooling="avg-last-2", max_seq_length=8)
    # The encoder's own cosines are the labels, so that any change is a loss.
    numbers = [(i, j) for i in range(20) for j in range(6)]
    sides = [f"w{i} w{i % 5} w{j}" for i, j in numbers], [f"w{j} w{i}" for i, j in numbers]
    scores = model.similarity_pairwise(*sides)
    rows = zip(*sides, scores, strict=True)
    pairs.write_text(
        "sentence1,sentence2,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in rows)
    )
    harmful = [*without_flow(fit), "--pairs", pairs, "--method", "sn+natsv-8"]
    outcome = bert_flow(*harmful, "--out", out, "--only_if_helps")
    assert (
        outcome.exit_code == 1
        and "nothing written: the verdict is harms" in outcome.stderr
        and not out.exists()
    )
    said = succeeds(*harmful, "--out", out).splitlines()
    assert said[0].startswith("harms: 120 labelled pairs") and said[0].endswith(
        "; use the encoder as it is"
    )
    loaded = BertFlow.from_pretrained(out)
    assert (
        loaded.history_.claim == "harms"
        and str(loaded.history_).splitlines() == said[: len(said) - 1]
    )
    card = (out / "README.md").read_text()
    assert card.split("---\n")[2].split("# model\n")[1].strip().startswith(said[0])
    with pytest.warns(UserWarning, match="export: found the calibration sn\\+natsv-8, which harms"):
        loaded.export(tmp_path / "exported")


def test_fit_judges_another_method_by_labelled_pairs(fit, tmp_path):
    pairs, out = tmp_path / "pairs.tsv", tmp_path / "model"
    header = "sentence1\tsentence2\tscore\n"
    rows = [f"w{i} w1\tw{i} w{i + 1}\t{i % 5}\n" for i in range(12)]
    pairs.write_text("".join([header, *rows]))
    arguments = [*without_flow(fit), "--pairs", pairs, "--method"]
    said = succeeds(*arguments, "whitening", "--out", out).splitlines()
    assert ": 12 labelled pairs, Spearman x100 " in said[0] and "--pairs" not in "".join(said)
    assert said[-1] == f"model written: {out} (240 sentences, whitening)"
    pairs.write_text(f"{header}w1 w2\tw2\thigh\n")
    for method, found in (
        ("whitening", f"{pairs}: column score: found 'high', expected a number"),
        ("pca", "method: found 'pca'"),
    ):
        outcome = bert_flow(*arguments, method, "--out", tmp_path / "other")
        refusal(outcome.exit_code, outcome.stderr, found, after_log=True)


def test_encode_writes_to_a_file_and_to_standard_output(saved, sentences_file, expected, tmp_path):
    out = tmp_path / "e.npy"
    arguments = ("encode", "--model", saved, "--input")
    outcome = bert_flow(*arguments, sentences_file, "--out", out)
    assert (
        outcome.stdout == f"embeddings written: {out} (16 of width 32)\n"
        and "empty" not in outcome.stderr
    )
    np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-5)
    outcome = bert_flow(
        *arguments, "-", "--out", "-", "--normalize", input=sentences_file.read_bytes()
    )
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.load(io.BytesIO(outcome.stdout_bytes)), expected / norms, rtol=0, atol=1e-5
    )
    given = b"\n" + sentences_file.read_bytes() + b" \n"
    outcome = bert_flow(*arguments, "-", "--out", tmp_path / "more.npy", input=given)
    assert "empty sentences, embedded like the others: 2\n" in outcome.stderr
    assert len(np.load(tmp_path / "more.npy")) == 18
    succeeds(*arguments, sentences_file, "--out", out, "--dtype", "bfloat16", "--overwrite")
    assert 1e-4 < np.abs(np.load(out) - expected).max() <= 0.05 * np.abs(expected).max()


def test_similarity_prints_a_cosine_a_line(saved, expected, tmp_path):
    normalized = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = normalized[:3] @ normalized[5]
    said = succeeds("similarity", "--model", saved, SENTENCES[0], SENTENCES[5])
    assert float(said) == pytest.approx(cosines[0], abs=1e-5)
    assert r"'w1 \udcff'" in refused("similarity", "--model", saved, "w1 \udcff", "w2")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{sentence}\t{SENTENCES[5]}\n" for sentence in SENTENCES[:3]))
    said = succeeds(
        "similarity", "--model", saved, "--pairs", pairs, "--columns", "1,2", "--no_header"
    )
    np.testing.assert_allclose(
        [float(line) for line in said.splitlines()], cosines, rtol=0, atol=1e-5
    )


def test_search_prints_the_nearest_and_keeps_embeddings(saved, sentences_file, expected, tmp_path):
    normalized = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    cosines, folder = normalized @ normalized[5], tmp_path / "kept"
    command = ("search", "--model", saved, "--top_k", 3, "--embeddings", folder, "--input")
    said = [
        line.split("\t") for line in succeeds(*command, sentences_file, SENTENCES[5]).splitlines()
    ]
    found = [float(cosine) for _, cosine, _ in said]
    np.testing.assert_allclose(found, np.sort(cosines)[:-4:-1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(
        found, [cosines[SENTENCES.index(one)] for _, _, one in said], rtol=0, atol=1e-5
    )
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    (tmp_path / "queries.txt").write_text(f"{SENTENCES[5]}\n")
    again = succeeds(
        *command, sentences_file, "w1", "--queries", tmp_path / "queries.txt"
    ).splitlines()
    assert [line.partition("\t")[0] for line in again] == [
        "w1",
        "1",
        "2",
        "3",
        SENTENCES[5],
        "1",
        "2",
        "3",
    ]
    assert written == {path: path.stat().st_mtime_ns for path in written}
    (tmp_path / "other.data").write_text('id,text\n1,"one, two"\n')
    other = (*command, tmp_path / "other.data", "--input_format", "csv", "--column", "text", "w1")
    assert f"--embeddings={folder}: found the columns sentence, not text" in refused(*other)
    (tmp_path / "other.txt").write_text("w1\n")
    assert re.fullmatch(
        f"{folder}: input: .+, or --overwrite", refused(*command, tmp_path / "other.txt", "w1")
    )
    assert succeeds(*other, "--overwrite").endswith("\tone, two\n")
    assert "--queries" in refused(*command, sentences_file)


def test_search_reads_any_folder_of_the_same_model(saved, tmp_path):
    table, folder = tmp_path / "rows.csv", tmp_path / "folder"
    table.write_text(
        "id,text\n" + "".join(f"{i},{one}\n" for i, one in enumerate([*SENTENCES, SENTENCES[5]]))
    )
    corpus = ("--model", saved, "--input", table, "--column", "text")
    made = (
        "--keep",
        "id,text",
        "--shard_rows",
        5,
        "--normalize",
        "--precision",
        "float16",
        "--out",
        folder,
    )
    succeeds("encode-folder", *corpus, *made)
    written = {path: path.stat().st_mtime_ns for path in folder.glob("*")}
    said = succeeds(
        "search", *corpus, "--embeddings", folder, "--keep", "id", "--top_k", 2, SENTENCES[5]
    )
    # The texts are equal, so the product's rounding may decide which comes first.
    assert sorted(line.split("\t")[2:] for line in said.splitlines()) == [
        ["16", SENTENCES[5]],
        ["5", SENTENCES[5]],
    ]
    assert written == {
        path: path.stat().st_mtime_ns for path in folder.glob("*") if "json" not in path.name
    } | {path: time for path, time in written.items() if "json" in path.name}
    unique = succeeds(
        "search", *corpus, "--embeddings", folder, "--unique", "--top_k", 2, SENTENCES[5]
    ).splitlines()
    assert [SENTENCES[5] in line for line in unique] == [True, False]
    missing = refused("search", *corpus, "--embeddings", folder, "--keep", "name", "w1")
    assert f"--embeddings={folder}: found the columns id, text, not name" in missing


def test_interrupted_search_resumes_by_the_same_command(saved, sentences_file, tmp_path):
    folder = tmp_path / "kept"
    command = ("search", "--model", saved, "--embeddings", folder, "--input", sentences_file, "w1")
    expected = succeeds(*command)
    manifest = json.loads((folder / MANIFEST).read_text())
    changes = {"is_complete": False, "parts": {}}
    (folder / MANIFEST).write_text(json.dumps(manifest | changes))
    for part in folder.glob("part-*"):
        part.unlink()
    assert succeeds(*command) == expected


@pytest.fixture(scope="module")
def prompted(saved, tmp_path_factory):
    """The saved model with prompts that change the vectors."""
    model = BertFlow.from_pretrained(saved)
    model.prompts = {"query": "w1 w2 ", "document": "w9 w8 w7 ", "other": "w4 "}
    model.default_prompt_name = "other"
    path = tmp_path_factory.mktemp("prompted") / "model"
    model.save(path)
    return path


def test_search_leaves_empty_sentences_out(saved, tmp_path):
    corpus, empty = tmp_path / "corpus.txt", tmp_path / "empty.txt"
    corpus.write_text(f"{SENTENCES[0]}\n\n  \n{SENTENCES[1]}\n")
    empty.write_text("\n")
    outcome = bert_flow("search", "--model", saved, "--input", corpus, "w1")
    assert [line.split("\t")[0] for line in outcome.stdout.splitlines()] == ["1", "2"]
    assert "empty sentences, left out: 2\n" in outcome.stderr
    said = refused("search", "--model", saved, "--input", empty, "w1")
    assert f"--input={empty}: found no sentences" in said


def test_search_uses_the_prompts_of_query_and_document(prompted, sentences_file, tmp_path):
    model = BertFlow.from_pretrained(prompted)
    query = model.encode_query("w5 w6", normalize_embeddings=True)
    documents = model.encode_document(SENTENCES, normalize_embeddings=True)
    expected = np.sort(documents @ query)[::-1]
    folder = tmp_path / "kept"
    command = ("search", "--model", prompted, "--input", sentences_file, "--top_k", 16, "w5 w6")
    for options in ((), ("--embeddings", folder), ("--embeddings", folder)):
        said = succeeds(*command, *options).splitlines()
        found = [float(line.split("\t")[1]) for line in said]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    other = tmp_path / "other"
    succeeds("encode-folder", "--model", prompted, "--input", sentences_file, "--out", other)
    assert "'w4 '" in refused(*command, "--embeddings", other)


def test_other_files_beside_an_earlier_result_are_kept(sentences_file, tmp_path):
    for name in ("bert_flow.json", "events.out"):
        (tmp_path / name).touch()
    arguments = ("--bert_hub", "demo", "--input", sentences_file, "--out", tmp_path, "--overwrite")
    assert "holds events.out" in refused("fit", *arguments, unchanged=tmp_path)
