"""`bert-flow query`: what it asks a model server, how it writes the answers, and one line for each mistake."""

import json
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf.serving.server_files import write_server_files
from tests import refusals
from tests.bert_flow_tf.serving.stand_in_server import StandIn, toy_cosine, toy_embedding
from tests.refusals import succeeds

SENTENCES = ["A small boat crosses the lake.", "", "東京 and an emoji 🙂", "tab\there"]
TIMEOUT = "--timeout=60"


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def target(stand_in):
    with stand_in.rest() as target:
        yield target


def named(arguments):
    """The command's arguments, for the stand-in's model where no other is named."""
    model = [] if any(str(argument).startswith("--model") for argument in arguments) else ["--model=bert_flow"]
    return ["query", *arguments, *model]


def answered(*arguments, **options):
    """What the command prints."""
    return succeeds(*named(arguments), TIMEOUT, **options)


def refused(*arguments, **options):
    """The line that the command ends with."""
    return refusals.refused(*named(arguments), **options)


def records(text):
    return [json.loads(line) for line in text.split("\n")[:-1]]


def check_embeddings(found, sentences):
    assert [record["sentence"] for record in found] == sentences
    for record in found:
        np.testing.assert_array_equal(np.float32(record["embedding"]), toy_embedding(record["sentence"]))


def test_sentences_of_the_command_line_become_json_lines_by_rest_and_by_grpc(stand_in, target):
    text = answered("--target", target, *SENTENCES)
    check_embeddings(records(text), SENTENCES)
    assert "東京 and an emoji 🙂" in text
    with stand_in.grpc() as by_grpc:
        assert answered("--target", by_grpc, *SENTENCES) == text


def test_lines_of_a_file_or_of_standard_input_are_sentences_empty_ones_too(target, tmp_path):
    data = "\ufeffone\r\n\ntwo 🙂\n\n".encode()
    (tmp_path / "sentences.txt").write_bytes(data)
    text = answered("--target", target, "--input", tmp_path / "sentences.txt")
    check_embeddings(records(text), ["one", "", "two 🙂", ""])
    assert answered("--target", target, "--input", "-", input=data) == text
    assert answered("--target", target, "--input", "-", input=b"") == ""


def test_array_is_written_whole_and_kept_without_overwrite(target, tmp_path):
    path = tmp_path / "new" / "embeddings.npy"
    assert answered("--target", target, "--out", path, *SENTENCES) == f"results written: {path}\n"
    np.testing.assert_array_equal(np.load(path), [toy_embedding(sentence) for sentence in SENTENCES])
    assert np.load(path).dtype == np.float32
    assert "exists, expected a new file" in refused("--target", target, "--out", path, "other", unchanged=tmp_path)
    answered("--target", target, "--out", path, "--overwrite", "other")
    np.testing.assert_array_equal(np.load(path), [toy_embedding("other")])
    assert [file.name for file in path.parent.iterdir()] == ["embeddings.npy"]


def test_pairs_get_cosines(target, tmp_path):
    text = answered("--target", target, "--pair", "a", "b 🙂", "--pair", "c", "")
    found = records(text)
    assert [(record["sentence_a"], record["sentence_b"]) for record in found] == [("a", "b 🙂"), ("c", "")]
    assert [np.float32(record["cosine"]) for record in found] == [toy_cosine("a", "b 🙂"), toy_cosine("c", "")]
    (tmp_path / "pairs.tsv").write_text("a\tb 🙂\nc\t\n", encoding="utf-8")
    assert answered("--target", target, "--similarity", tmp_path / "pairs.tsv") == text
    assert answered("--target", target, "--similarity", "-", input="a\tb 🙂\nc\t\n") == text
    answered("--target", target, "--pair", "a", "b", "--out", tmp_path / "cosines.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "cosines.npy"), [toy_cosine("a", "b")])


def test_model_version_signature_and_batch_size_are_passed_on():
    stand_in = StandIn(model="stsb")
    stand_in.versions = {1: "AVAILABLE", 2: "AVAILABLE"}
    with stand_in.rest() as target:
        flags = ["--model=stsb", "--version=1", "--signature=pooled", "--batch_size=2"]
        found = records(answered("--target", target, *flags, "one", "two", "three"))
    np.testing.assert_array_equal(np.array(found[2]["embedding"], np.float32), toy_embedding("three", 1) + 1)
    assert [len(request.inputs["sentences"]) for request in stand_in.requests] == [2, 1]


def test_exported_folder_stands_for_the_name_in_its_configuration(tmp_path, monkeypatch):
    write_server_files(tmp_path / "exported" / "sts", "sts")
    (tmp_path / "exported" / "sts").rename(tmp_path / "exported" / "renamed")
    monkeypatch.chdir(tmp_path / "exported")
    with StandIn(model="sts").rest() as target:
        for model in ("sts", "renamed", "./renamed/", tmp_path / "exported" / "renamed"):
            check_embeddings(records(answered("--target", target, f"--model={model}", "one")), ["one"])
    line = refused("--target", target, f"--model={tmp_path}", "one")
    assert line == f"--model={tmp_path}: found no models.config there, expected a model's name or exported folder"
    (tmp_path / "models.config").write_text('# name: "x"\nmodel_config_list {}\n')
    line = refused("--target", target, f"--model={tmp_path}", "one")
    assert line == f"{tmp_path}/models.config: found no name, expected the name of one model"


def test_status_lists_versions(stand_in, target):
    stand_in.versions = {2: "LOADING", 1: "AVAILABLE"}
    assert answered("--target", target, "--status") == "1\tAVAILABLE\n2\tLOADING\n"


EVERYTHING = "expected one of SENTENCE, --input, --pair, --similarity, --status"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], f"found no question, {EVERYTHING}"),
        (["one", "--status"], f"found SENTENCE and --status, {EVERYTHING}"),
        (["--pair", "a", "b", "--input", "-"], f"found --input and --pair, {EVERYTHING}"),
        (["--pair", "a", "b", "--signature=pooled"], "--signature=pooled: found with --pair"),
        (["--status", "--out=x.npy"], "--out=x.npy: found with --status"),
        (["one", "--overwrite"], "--overwrite: found without --out"),
        (["one", "--out=x.npz"], "--out=x.npz: expected a name that ends in .npy"),
        (["one", "--target=localhost:8500"], "--target: found 'localhost:8500', expected grpc://"),
        (["one", "--version=99999999999999999999"], "--version: found 99999999999999999999"),
        (["one", "--batch_size=0"], "'--batch_size'"),
        (["one", "--timeout=nan"], "--timeout: found nan"),
        (["one", "--model="], "--model: found ''"),
    ],
)
def test_slips_in_the_flags_are_one_line_each(stand_in, target, arguments, message):
    assert message in refused("--target", target, *arguments)
    assert stand_in.requests == []


@pytest.mark.parametrize(
    ("flag", "text", "message"),
    [
        ("--input", b"one\ntwo\xff\n", "line 2: "),
        ("--similarity", b"a\tb\nc\n\td\te\n", "line 2: number of columns: found 1, expected 2, a tab between"),
        ("--similarity", b"a\tb\nd\te\tf\n", "line 2: number of columns: found 3, expected 2, a tab between"),
    ],
)
def test_broken_files_are_named_with_their_line(target, tmp_path, flag, text, message):
    path = tmp_path / "file"
    path.write_bytes(text)
    assert refused("--target", target, flag, path).startswith(f"{path}, {message}")
    assert refused("--target", target, flag, "-", input=text).startswith(f"standard input, {message}")


def test_server_that_is_not_there_is_one_line_and_writes_nothing(tmp_path):
    with StandIn().rest() as target:
        pass
    line = refused("--target", target, "--out", tmp_path / "new" / "x.npy", "one")
    assert line.startswith(f"{target}: unavailable (Connection refused)")
    assert list(tmp_path.iterdir()) == []


def test_process_answers_bytes_in_any_locale_and_ends_without_a_traceback(stand_in, target):
    command = [sys.executable, "-m", "bert_flow_tf.cli", "query", "--target", target, "--model=bert_flow", TIMEOUT]
    run = {
        "capture_output": True,
        "check": False,
        "env": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
    }
    done = subprocess.run([*command, "--input", "-"], input="one 🙂\n".encode(), **run)
    assert (done.returncode, done.stderr) == (0, b"")
    check_embeddings(records(done.stdout.decode()), ["one 🙂"])
    done = subprocess.run([*command, b"not \xff UTF-8"], **run)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (b"error: sentences[0]: found U+DCFF at character 4, expected text that UTF-8 can hold\n")
