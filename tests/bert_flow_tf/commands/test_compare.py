"""`bert-flow compare` and `duplicates`, with known embeddings, and mistakes."""

import csv
import json

import numpy as np
import pytest

from bert_flow_tf import BertFlow, compare
from bert_flow_tf.calibration import judgement
from bert_flow_tf.calibration.comparison import Comparison, Row, recommend
from bert_flow_tf.common.json_files import read_json
from tests.bert_flow_tf.histories import history
from tests.refusals import bert_flow, refused, succeeds, user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

SENTENCES = [f"w{i} w{j} w{(i * j) % 17}" for i in range(20) for j in range(15)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows with an id and repeated texts, and labelled pairs."""
    folder = tmp_path_factory.mktemp("files")
    with (folder / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["id", "text"], *enumerate([*SENTENCES, SENTENCES[7], SENTENCES[7], SENTENCES[9]])]
        )
    pairs = [(SENTENCES[i], SENTENCES[(i * 7) % 300], int(i % 3 == 0)) for i in range(0, 300, 5)]
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["b", "same", "a"], *((b, label, a) for a, b, label in pairs)])
    rows = (dict(zip(("sentence1", "sentence2", "score"), pair, strict=True)) for pair in pairs)
    (folder / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder, pairs


def test_each_row_has_the_figures_of_a_fit_and_embeddings_are_computed_once(
    tiny_encoder_dir, files, monkeypatch
):
    # Six fits draw them, and only equal ones are compared.
    monkeypatch.setattr(judgement, "_RESAMPLES", 100)
    folder, pairs = files
    encoder = ("--bert_hub", tiny_encoder_dir, "--max_seq_length", 8)
    own = ("--input", folder / "rows.csv", "--column", "text", "--methods", "sn,soft-whitening-0.5")
    named = (
        "--pairs",
        folder / "pairs.csv",
        "--pair_columns",
        "a,b,same",
        "--out",
        folder / "found.json",
    )
    printed = succeeds("compare", *encoder, *own, *named)
    found = json.loads((folder / "found.json").read_text())
    assert printed.splitlines()[-1] == f"recommended, {found['reason']}: {found['recommended']}"
    # JSON lines of the default names are the same pairs.
    other = succeeds("compare", *encoder, *own, "--pairs", folder / "pairs.jsonl")
    assert other == printed
    done = bert_flow("compare", *encoder, *own, *named[:-2], "--format", "csv")
    table = list(csv.DictReader(done.stdout.splitlines()))
    assert [row["method"] for row in table] == ["none", "sn", "soft-whitening-0.5"]
    result = read_json(folder / "found.json", Comparison, expected="a comparison")
    none, sn, soft = [row.history for row in result]
    assert [row.method for row in result] == ["none", "sn", "soft-whitening-0.5"]
    assert float(table[1]["AUC"]) == 100 * sn.judgement.measures["auc"].after
    assert float(table[0]["Spearman"]) == 100 * none.judgement.measures["spearman"].after
    assert f"recommended, {found['reason']}" in done.stderr
    model, calls, columns = (
        BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8),
        [],
        list(zip(*pairs, strict=True)),
    )
    given = [*SENTENCES, SENTENCES[7], SENTENCES[7], SENTENCES[9]]
    fitted = model.fit(given, method="soft-whitening-0.5", pairs=columns).history_
    # The file has all of what a fit measures.
    for name in ("judgement", "change", "thresholds", "witness"):
        assert getattr(soft, name) == getattr(fitted, name)
    # The first row is the encoder as it is, on both sides.
    for measured in none.judgement.measures.values():
        assert measured.before == measured.after
    assert none.judgement.best_f1[1] == fitted.judgement.best_f1[0]
    assert none.change.after == none.change.before == fitted.change.before
    assert none.witness.after == fitted.witness.before
    assert "change of AUC" in printed
    by_spearman = succeeds("compare", *encoder, *own, *named[:-2], "--metric", "spearman")
    assert "change of" not in by_spearman

    def encode(sentences):
        calls.append(sentences)
        return model.encode_pooled(sentences)

    again = compare(
        encode,
        given,
        ["sn", "soft-whitening-0.5"],
        pairs=columns,
    )
    assert again.rows[2].history.judgement == fitted.judgement
    assert len(calls) == len({tuple(one) for one in calls}) == 3
    assert str(again).splitlines()[-1] == f"recommended, {again.reason}: {again.recommended}"
    with pytest.warns(UserWarning, match="natsv-99 is left out: fit: found 99 directions"):
        found = compare(encode, given, ["natsv-99", "sn"])
    assert [row.method for row in found.rows] == ["none", "sn"]
    with user_error("fit: found 99 directions"):
        compare(encode, given, ["natsv-99"])


def row(method, change=None, interval=(0.0, 0.0), **others):
    spearman = None if change is None else (0.5, 0.5 + change)
    return Row(method=method, history=history(spearman=spearman, interval=interval, **others))


HELPS = row("sn", 0.1, (0.05, 0.15))
AUTO = row("auto", 0.02, (-0.03, 0.07), choice="soft-whitening-0.3: …")
UNCHANGED = row("auto", 0.0, (0.0, 0.0), choice="left as they are: …")
BETTER = (0.4, 0.5)


@pytest.mark.parametrize(
    ("rows", "pairs", "recommended", "reason"),
    [
        ([HELPS, row("natsv-1", 0.05, (0.01, 0.09))], 60, "sn", "by the labelled pairs"),
        ([row("sn", -0.1, (-0.2, -0.05))], 60, "none", "by the labelled pairs"),
        ([row("sn", 0.003, (-0.003, 0.009))], 60, "none", "by the labelled"),
        (
            [AUTO, row("flow", 0.06, (-0.01, 0.13))],
            60,
            "auto",
            "60 labelled pairs are too few to tell (flow: Spearman +6.00, 95 %: -1.00 to +13.00)",
        ),
        ([UNCHANGED, row("flow", 0.06, (-0.01, 0.13))], 60, "none", "too few"),
        ([row("flow", 0.06, (-0.01, 0.13))], 60, "none", "too few to tell"),
        ([row("auto", choice="soft-whitening-0.3: …")], 0, "auto", "without labelled pairs"),
        ([row("auto", choice="left as they are: …")], 0, "none", "without labelled pairs"),
        ([row("my pca")], 0, "none", "without labelled pairs"),
        ([row("flow", witness=BETTER, directions=5)], 0, "flow", "by the witness"),
        ([row("flow", witness=BETTER[::-1], directions=90)], 0, "none", "by the witness"),
    ],
)
def test_a_recommendation_rests_on_intervals_else_on_auto(rows, pairs, recommended, reason):
    found = recommend([row("none"), *rows], pairs)
    assert found.method == recommended
    assert reason in found.reason


def test_mistakes_in_pairs_are_named(tiny_encoder_dir, files):
    start = (
        "compare",
        "--bert_hub",
        tiny_encoder_dir,
        "--input",
        files[0] / "rows.csv",
        "--column",
        "text",
        "--pairs",
    )
    pairs = files[0] / "pairs.csv"
    assert "pair_columns" in refused(*start, pairs, "--pair_columns", "a,b")
    (files[0] / "pairs.txt").write_text("w1\tw2\t1\n")
    assert "pairs.txt: found text, which has one column" in refused(*start, files[0] / "pairs.txt")
    assert "--metric: missing --pairs or --glue_dir" in refused(*start[:-1], "--metric", "auc")
    fit = ("fit", *start[1:-1], "--out", files[0] / "no_model", "--metric", "auc")
    assert "--metric: missing --pairs, which it needs" in refused(*fit)
    line = refused(*start, pairs)
    assert f"{pairs}: found the columns b, same, a" in line
    assert "; choose with --pair_columns A,B,SCORE, or --pair_columns 1,2,3 --no_pair" in line
    line = refused("similarity", *start[1:3], "--pairs", pairs)
    assert "; choose with --columns A,B, or --columns 1,2 --no_header if" in line
    assert "--methods: found 'whitenning'" in refused(*start[:-1], "--methods", "whitenning,flow")
    assert f"{pairs}: column b: found 'w0 w0 w0', expected a number" in refused(
        *start, pairs, "--pair_columns", "a,same,b"
    )


def test_duplicates_writes_groups_of_rows(tiny_encoder_dir, files, tmp_path):
    model, out = ("duplicates", "--bert_hub", tiny_encoder_dir), tmp_path / "groups.csv"
    own = ("--input", files[0] / "rows.csv", "--column", "text", "--keep", "id", "--out", out)
    printed = succeeds(*model, *own, "--threshold", 1.0)
    rows = list(csv.reader(out.open(newline="")))
    assert rows[0] == ["group", "cosine", "id", "text"]
    equal = [row for row in rows if row[3] == SENTENCES[7]]
    assert {row[2] for row in equal} >= {"7", "300", "301"} and len({row[0] for row in equal}) == 1
    assert {row[1] for row in equal} == {"1.0000"} and f"{len(rows) - 1} rows" in printed
    assert "groups.csv: exists" in refused(*model, *own)
    assert "random pairs exceeds a cosine of" in succeeds(
        *model, *own, "--false_matches", 0.01, "--overwrite"
    )
    assert "--false_matches: found it beside --threshold" in refused(
        *model, *own, "--threshold", 0.5, "--false_matches", 0.01
    )
    assert "expected .csv" in refused(*model, *own[:-1], tmp_path / "groups.parquet")
    line = refused(*model, *own[:-1], tmp_path / "new.csv", "--false_matches", 1e-9)
    assert line.startswith("--false_matches: found ") and "a larger share" in line
    (tmp_path / "one.txt").write_text("w1\nw1\n")
    assert "found 1 different sentences" in refused(
        *model, "--input", tmp_path / "one.txt", "--out", tmp_path / "x.csv"
    )


def _vectors(monkeypatch, vectors):
    """Make every model encode texts as these vectors of norm 1."""
    monkeypatch.setattr(BertFlow, "encode", lambda self, texts, **options: vectors[: len(texts)])


@pytest.mark.parametrize(
    ("angle", "said", "unsaid"),
    [
        (10, "chains", "one group has"),
        (0.1, "one group has 25 of 40 different sentences", "chains"),
    ],
)
def test_loose_groups_are_named(
    tiny_encoder_dir, tmp_path, monkeypatch, caplog, angle, said, unsaid
):
    count = 25 if angle < 1 else 4
    angles = np.radians([angle * i for i in range(count)])
    chain = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    others = np.eye(42)[2:42][: 40 - count]
    vectors = np.zeros((40, 42), np.float32)
    vectors[:count, :2] = chain
    vectors[count:] = others
    _vectors(monkeypatch, vectors)
    monkeypatch.setattr("bert_flow_tf.vectors.neighbours._FAR", 0.1)
    (tmp_path / "rows.txt").write_text("".join(f"w{i}\n" for i in range(40)))
    command = ("duplicates", "--bert_hub", tiny_encoder_dir, "--input", tmp_path / "rows.txt")
    succeeds(*command, "--threshold", 0.98, "--out", tmp_path / "groups.csv")
    assert said in caplog.text
    assert unsaid not in caplog.text


def test_equal_rows_are_no_loose_group(tiny_encoder_dir, tmp_path, caplog):
    (tmp_path / "rows.txt").write_text("w1 w2\n" * 20 + "w3\n\nw4 w5\n\n")
    command = ("duplicates", "--bert_hub", tiny_encoder_dir, "--input", tmp_path / "rows.txt")
    outcome = bert_flow(*command, "--threshold", 0.9999, "--out", tmp_path / "groups.csv")
    assert "one group has" not in caplog.text
    rows = list(csv.reader((tmp_path / "groups.csv").open(newline="")))[1:]
    # Empty sentences say nothing, and are no group.
    assert {row[-1] for row in rows} == {"w1 w2"}
    assert "empty sentences, left out: 2" in outcome.stderr


@pytest.mark.parametrize("command", ["threshold", "duplicates"])
def test_texts_without_a_direction_are_no_random_pairs(tiny_encoder_dir, tmp_path, command):
    known = "".join(f"w{i} w{j}\n" for i in range(20) for j in range(i))
    others = "😀\n🎉\n東\n京\n\n  \n" * 2
    found = []
    for name, text in (("known", known), ("all", known + others)):
        (tmp_path / name).with_suffix(".txt").write_text(text)
        arguments = ("--input", tmp_path / f"{name}.txt", "--false_matches", 0.01)
        if command == "duplicates":
            arguments += ("--out", tmp_path / f"{name}.csv")
        found.append(succeeds(command, "--bert_hub", tiny_encoder_dir, *arguments).splitlines())
    # The threshold is in the first line, or in the table's row.
    line = 0 if command == "duplicates" else -1
    assert found[0][line] == found[1][line]


def test_texts_without_a_known_word_are_kept_apart(tiny_encoder_dir, tmp_path, caplog):
    texts = ["w1 w2", "😀", "🎉", "東", "w3", "🎉"]
    (tmp_path / "rows.txt").write_text("".join(f"{text}\n" for text in texts))
    command = ("duplicates", "--bert_hub", tiny_encoder_dir, "--input", tmp_path / "rows.txt")
    succeeds(*command, "--threshold", 0.9999, "--out", tmp_path / "groups.csv")
    rows = list(csv.reader((tmp_path / "groups.csv").open(newline="")))
    assert [row[-1] for row in rows[1:]] == ["🎉", "🎉"]
    assert "3 of 5 texts hold only unknown word pieces" in caplog.text


@pytest.mark.parametrize("few", [True, False])
def test_unknown_texts_are_counted_once(tiny_encoder_dir, caplog, few):
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    texts = ["w1", "😀", ""] * (1 if few else 2000)
    model.encode(texts)
    count = 1 if few else 2000
    assert caplog.text.count(f"{count:,} of {3 * count:,} texts hold only unknown") == 1
