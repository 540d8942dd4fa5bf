"""`bert-flow query`: what it asks a model server, how it writes the answers, and one line for each mistake."""

import json
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from bert_flow_tf.cli import main
from bert_flow_tf.serving.server_files import write_server_files
from tests.bert_flow_tf.serving.stand_in_server import Refusal, StandIn, toy_cosine, toy_embedding

SENTENCES = ["A small boat crosses the lake.", "", "東京 and an emoji 🙂", "tab\there"]
TIMEOUT = "--timeout=60"


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def target(stand_in):
    with stand_in.rest() as target:
        yield target


def query(*arguments, **options):
    """The outcome of the command, for the stand-in's model where no other is named."""
    arguments = [str(argument) for argument in arguments]
    if not any(argument.startswith("--model") for argument in arguments):
        arguments.append("--model=bert_flow")
    return CliRunner().invoke(main, ["query", *arguments], **options)


def answered(*arguments, **options):
    """What the command prints; its status must be 0."""
    outcome = query(*arguments, TIMEOUT, **options)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stderr == ""
    return outcome.stdout


def refused(*arguments, **options):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = query(*arguments, **options)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    return outcome.stderr.removeprefix("error: ").removesuffix("\n")


def records(text):
    return [json.loads(line) for line in text.split("\n")[:-1]]


def check_embeddings(found, sentences, version=1):
    assert [record["sentence"] for record in found] == sentences
    for record in found:
        np.testing.assert_array_equal(
            np.array(record["embedding"], np.float32), toy_embedding(record["sentence"], version)
        )


def test_sentences_of_the_command_line_become_json_lines(target):
    text = answered("--target", target, *SENTENCES)
    check_embeddings(records(text), SENTENCES)
    assert "東京 and an emoji 🙂" in text


def test_grpc_gives_the_same_lines(stand_in, target):
    with stand_in.grpc() as by_grpc:
        assert answered("--target", by_grpc, *SENTENCES) == answered("--target", target, *SENTENCES)


def test_lines_of_a_file_or_of_standard_input_are_sentences_empty_ones_too(target, tmp_path):
    data = "\ufeffone\r\n\ntwo 🙂\n\n".encode()
    (tmp_path / "sentences.txt").write_bytes(data)
    text = answered("--target", target, "--input", tmp_path / "sentences.txt")
    check_embeddings(records(text), ["one", "", "two 🙂", ""])
    assert answered("--target", target, "--input", "-", input=data) == text


def test_file_without_sentences_gives_no_lines(target, tmp_path):
    (tmp_path / "empty.txt").write_bytes(b"")
    assert answered("--target", target, "--input", tmp_path / "empty.txt") == ""


def test_array_is_written_whole_and_kept_without_overwrite(target, tmp_path):
    path = tmp_path / "new" / "embeddings.npy"
    assert answered("--target", target, "--out", path, *SENTENCES) == f"results written: {path}\n"
    found = np.load(path)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [toy_embedding(sentence) for sentence in SENTENCES])
    assert "exists, expected a new file" in refused("--target", target, "--out", path, "other")
    np.testing.assert_array_equal(np.load(path), found)
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
    assert [(request.signature, len(request.inputs["sentences"])) for request in stand_in.requests] == [
        ("pooled", 2),
        ("pooled", 1),
    ]


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


def test_model_is_named_by_whoever_asks(target):
    outcome = CliRunner().invoke(main, ["query", "--target", target, "one"])
    assert outcome.exit_code == 2
    assert "Missing option '--model'" in outcome.stderr


def test_status_lists_versions(stand_in, target):
    stand_in.versions = {2: "LOADING", 1: "AVAILABLE"}
    assert answered("--target", target, "--status") == "1\tAVAILABLE\n2\tLOADING\n"


def test_exactly_one_question_is_wanted(target, stand_in):
    where = ["--target", target]
    everything = "expected one of SENTENCE, --input, --pair, --similarity, --status"
    assert refused(*where) == f"found no question, {everything}"
    assert refused(*where, "one", "--status") == f"found SENTENCE and --status, {everything}"
    assert refused(*where, "--pair", "a", "b", "--input", "-") == f"found --input and --pair, {everything}"
    assert "--signature=pooled: found with --pair" in refused(*where, "--pair", "a", "b", "--signature=pooled")
    assert "--out=x.npy: found with --status" in refused(*where, "--status", "--out=x.npy")
    assert "--overwrite: found without --out" in refused(*where, "one", "--overwrite")
    assert stand_in.requests == []


def test_slips_in_the_flags_are_one_line_each(target, tmp_path):
    where = ["--target", target]
    assert "Missing option '--target'" in refused("one")
    assert refused("--target", "localhost:8500", "one").startswith("target: found 'localhost:8500', expected grpc://")
    assert "'--version'" in refused(*where, "--version=-1", "one")
    assert "'--version'" in refused(*where, "--version=latest", "one")
    assert "version: found 99999999999999999999" in refused(*where, "--version=99999999999999999999", "one")
    assert "'--batch_size'" in refused(*where, "--batch_size=0", "one")
    assert "'--signature'" in refused(*where, "--signature=other", "one")
    for timeout in ("0", "-1", "nan", "inf"):
        assert refused(*where, f"--timeout={timeout}", "one").startswith("timeout: found ")
    assert "'--timeout'" in refused(*where, "--timeout=soon", "one")
    assert "model: found ''" in refused(*where, "--model=", "one")
    assert "--out=x.npz: expected a name that ends in .npy" in refused(*where, "--out=x.npz", "one")
    (tmp_path / "folder.npy").mkdir()
    assert "found a folder" in refused(*where, f"--out={tmp_path / 'folder.npy'}", "one")


def test_broken_files_are_named_with_their_line(target, tmp_path):
    where = ["--target", target]
    path = tmp_path / "file"
    assert refused(*where, "--input", path) == f"--input={path}: cannot be read (No such file or directory), " + (
        "expected a text file"
    )
    assert "Is a directory" in refused(*where, "--similarity", tmp_path)
    path.write_bytes(b"one\ntwo\xff\n")
    assert refused(*where, "--input", path) == f"{path}, line 2: found byte 0xff, expected UTF-8"
    assert refused(*where, "--input", "-", input=b"\xc3") == "standard input, line 1: found byte 0xc3, expected UTF-8"
    path.write_text("a\tb\nc\n\td\te\n")
    assert refused(*where, "--similarity", path) == f"{path}, line 2: found 1 columns, expected 2, a tab between"
    path.write_text("a\tb\nd\te\tf\n")
    assert refused(*where, "--similarity", path) == f"{path}, line 2: found 3 columns, expected 2, a tab between"


def test_what_the_server_refuses_is_one_line(stand_in, target):
    assert "version 7 not AVAILABLE, found version 1 AVAILABLE" in refused("--target", target, "--version=7", "one")
    assert "found no model other" in refused("--target", target, "--model=other", "one")

    def answer(request, version):
        raise Refusal("INVALID_ARGUMENT", "sentences:\nnot UTF-8")

    stand_in.answer = answer
    line = refused("--target", target, "one")
    where = f"{target}, model bert_flow, signature serving_default, input sentences (string [1])"
    assert line == f"{where}: HTTP 400: sentences: not UTF-8"


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


def test_help_shows_how():
    text = query("--help").stdout
    assert 'bert-flow query --target http://localhost:8501 --model stsb "A small boat crosses the lake."' in text
