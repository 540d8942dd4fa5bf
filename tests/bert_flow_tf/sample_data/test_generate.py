"""The sample in the repository is what the generator writes, and it is the sample that is promised."""

import collections
import pathlib

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from bert_flow_tf import sample_data, tasks
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import metrics
from bert_flow_tf.sample_data import generate

GLUE = pathlib.Path(sample_data.sample_glue_dir())
STS_SIZES = {"train": 800, "dev": 200, "test": 400}


def pairs_of(examples):
    return list(zip(examples.sentences_a, examples.sentences_b, strict=True))


@pytest.fixture(scope="module")
def sts():
    """STS-B's splits as a training run reads them."""
    return {split: tasks.read_split("sts-b", GLUE / "STS-B", split) for split in tasks.SPLITS}


@pytest.fixture(scope="module")
def files():
    """All files of the default seed."""
    return generate.sample_files(generate.DEFAULT_SEED)


def test_the_repositorys_files_are_the_generators_byte_for_byte(files):
    found = {str(path.relative_to(GLUE)): path.read_bytes() for path in GLUE.rglob("*") if path.is_file()}
    assert found == {name: text.encode() for name, text in files.items()}


def test_another_seed_gives_other_sentences(files):
    other = generate.sample_files(generate.DEFAULT_SEED + 1)
    assert other.keys() == files.keys()
    assert all(other[name] != files[name] for name in files)


def test_sts_sizes_and_gold(sts):
    assert {split: len(examples) for split, examples in sts.items()} == STS_SIZES
    assert not sts["test"].has_labels
    assert len(tasks.gold_scores("sts-b", GLUE, "test")) == 400


def test_the_gold_file_lists_the_test_pairs_in_order(sts):
    rows = [line.split("\t") for line in tasks.read_lines(GLUE / "STS-B" / "sts-test.csv")]
    assert [(row[5], row[6]) for row in rows] == pairs_of(sts["test"])


@pytest.mark.parametrize("split", tasks.SPLITS)
def test_sts_scores_cover_the_whole_scale(split):
    counts, _ = np.histogram(tasks.gold_scores("sts-b", GLUE, split), bins=[0, 1, 2, 3, 4, 5.001])
    assert counts.sum() == STS_SIZES[split]
    assert counts.min() >= 0.1 * STS_SIZES[split] and counts.max() <= 0.4 * STS_SIZES[split]


def test_allnli_trains_on_1200_pairs_with_every_label_as_often():
    mnli = tasks.read_split("mnli", GLUE / "MNLI", "train")
    assert len(tasks.read_train("allnli", GLUE / "ALLNLI")) == 1200
    assert collections.Counter(mnli.labels.tolist()) == {0: 240, 1: 240, 2: 240}


@pytest.mark.parametrize("name", ["MNLI/train", "MNLI/dev_matched", "SNLI/train", "SNLI/dev", "SNLI/test"])
def test_nli_labels_are_balanced_in_every_file(name):
    rows = [line.split("\t") for line in tasks.read_lines(GLUE / f"{name}.tsv")]
    counts = collections.Counter(row[-1] for row in rows[1:])
    assert set(counts) == {"contradiction", "entailment", "neutral"} and len(set(counts.values())) == 1


def test_no_sentence_occurs_twice_in_the_sts_part_and_no_split_shares_one_with_another(sts):
    sentences = [s for examples in sts.values() for pair in pairs_of(examples) for s in pair]
    assert len(set(sentences)) == len(sentences) == 2800


def test_no_nli_sentence_occurs_in_the_sts_part(sts):
    nli = tasks.read_train("allnli", GLUE / "ALLNLI", use_full_for_training=True)
    assert len(nli) == 1380
    sentences = nli.sentences_a + nli.sentences_b
    assert len(set(sentences)) == len(sentences)
    assert not set(sentences) & {s for examples in sts.values() for pair in pairs_of(examples) for s in pair}


def test_sentences_are_of_natural_length_and_varied(sts):
    sentences = [s for examples in sts.values() for pair in pairs_of(examples) for s in pair]
    lengths = [len(sentence.split()) for sentence in sentences]
    assert 8 <= np.mean(lengths) <= 18 and min(lengths) >= 4 and max(lengths) <= 40
    assert len({word.lower().strip('.,"') for sentence in sentences for word in sentence.split()}) > 800


def test_accents_quotes_and_digits_occur(sts):
    text = " ".join(s for examples in sts.values() for pair in pairs_of(examples) for s in pair)
    assert all(character in text for character in "éüãû\"'-7")


def test_sentences_are_well_formed(sts):
    for examples in sts.values():
        for sentence in (*examples.sentences_a, *examples.sentences_b):
            assert sentence.lstrip('"')[0].isupper() or sentence.lstrip('"')[0].isdigit(), sentence
            assert sentence.endswith("."), sentence
            assert not any(slip in sentence for slip in ("  ", " ,", "the a ", "the the ", " a a ", "..")), sentence


def edit_similarity(a, b):
    return -Levenshtein.normalized_distance(a.split(), b.split())


def test_the_score_is_not_to_be_had_from_the_words_alone(sts):
    similarity = [edit_similarity(a, b) for a, b in pairs_of(sts["test"])]
    assert abs(metrics.spearman(similarity, tasks.gold_scores("sts-b", GLUE, "test"))) < 0.3


def test_the_demo_encoder_finds_the_score_where_words_alone_do_not(sts, demo_dir):
    # 0.60 is the figure that the sample promises; it was 0.79 when the sample was made, and -0.06 for the words alone.
    from bert_flow_tf.encoder import SentenceEncoder, resolve_encoder
    from bert_flow_tf.tokenizer import Tokenizer

    source = resolve_encoder(bert_hub=demo_dir)
    encoder = SentenceEncoder(source, "avg", trainable=False)
    tokenizer = Tokenizer.from_source(source)

    def embeddings(sentences):
        batches = [sentences[start : start + 100] for start in range(0, len(sentences), 100)]
        vectors = np.concatenate([encoder(tokenizer(batch, 64)).numpy() for batch in batches])
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    cosine = np.sum(embeddings(sts["test"].sentences_a) * embeddings(sts["test"].sentences_b), axis=1)
    gold = tasks.gold_scores("sts-b", GLUE, "test")
    by_words = metrics.spearman([edit_similarity(a, b) for a, b in pairs_of(sts["test"])], gold)
    by_encoder = metrics.spearman(cosine, gold)
    assert by_encoder >= 0.60
    assert by_encoder - by_words >= 0.15


def test_writing_needs_overwrite_where_a_file_exists(tmp_path, capsys):
    out = str(tmp_path / "glue")
    assert generate.main(["--out", out, "--seed", "5"]) == 0
    train = tmp_path / "glue" / "STS-B" / "train.tsv"
    before = train.read_bytes()
    assert generate.main(["--out", out, "--seed", "6"]) == 2
    assert capsys.readouterr().err == f"error: --out: {train} exists already, expected a new folder or --overwrite\n"
    assert train.read_bytes() == before
    assert generate.main(["--out", out, "--seed", "6", "--overwrite"]) == 0
    assert train.read_bytes() == generate.sample_files(6)["STS-B/train.tsv"].encode()
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out: .*file.* cannot be written"):
        generate.write_sample(tmp_path / "file")


@pytest.mark.parametrize("arguments", [[], ["--out", "x", "--seed", "many"], ["--out", "x", "--color"]])
def test_bad_flags_are_one_line(capsys, arguments):
    assert generate.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
