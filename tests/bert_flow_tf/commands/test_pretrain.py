"""`bert-flow pretrain` on the command line: an encoder folder from text, and one line for each mistake."""

import json

import pytest

from bert_flow_tf import BertFlow
from tests.refusals import refused, succeeds

STEPS = ["--steps", 6, "--num_warmup_steps", 2, "--train_batch_size", 8]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"w{i} w{i % 7} w3 w{i + 1}\n" for i in range(40)) + "\n" + "w1 w2 " * 40 + "\n")
    return path


def test_the_text_makes_an_encoder_folder_that_loads_by_its_name(text, tiny_encoder_dir, tmp_path):
    out = tmp_path / "encoder"
    said = succeeds(
        *("pretrain", "--bert_hub", tiny_encoder_dir, "--text", text, text, "--out", out, *STEPS),
        *("--max_seq_length", 24, "--learning_rate", 0.01, "--save_checkpoints_steps", 4),
    )
    # Of each file 40 lines, and one that 22 pieces at a time are cut from; one of a hundred is held out.
    assert said == f"encoder folder written: {out} (88 sentences, 6 steps)\n"
    record = json.loads((out / "source.json").read_text())
    assert list(record["dev_losses"]) == ["0", "4", "6"]
    assert record["dev_losses"]["6"] < record["dev_losses"]["0"]
    before, after = (
        BertFlow.from_hub(folder, max_seq_length=8).encode(["w1 w2"]) for folder in (tiny_encoder_dir, out)
    )
    assert abs(before - after).max() > 0.01
    left = sorted(path.name for path in (tmp_path / "encoder.pretraining").iterdir())
    assert left[:2] == ["config.json", "dev_losses.json"] and left[3:] == ["train_results.json"]


def test_a_bert_with_random_weights_learns_from_its_own_vocabulary(text, golden_dir, tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path / "cache"))
    config = golden_dir / "bert_tiny" / "bert_config.json"
    command = ["pretrain", "--bert_config_file", config, "--text", text, *STEPS, "--max_seq_length", 24]
    succeeds(*command, "--out", tmp_path / "new", "--dev_fraction", 0)
    assert "w1" in (tmp_path / "new" / "vocab.txt").read_text().split()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "found neither, expected either --bert_hub or --bert_config_file"),
        (("--bert_hub", "demo", "--vocab_file", "x"), "--vocab_file: found --bert_hub, expected --bert_config_file"),
        (("--bert_config_file", "{config}", "--preprocess_hub", "x"), "--preprocess_hub: found --bert_config_file"),
        (
            ("--bert_config_file", "{config}", "--vocab_file", "{text}", "--max_seq_length", "24"),
            "{text}, line 41: empty, expected a word piece",
        ),
        (("--bert_config_file", "{config}"), "--max_seq_length: found 64, expected at most 24, the max_position_emb"),
        (("--bert_config_file", "{text}"), "found text that is not JSON"),
    ],
)
def test_an_encoder_that_is_not_named_well_is_one_line(options, line, text, golden_dir, tmp_path):
    config = golden_dir / "bert_tiny" / "bert_config.json"
    options = [option.format(config=config, text=text) for option in options]
    command = ["pretrain", *options, "--text", text, "--out", tmp_path / "out", *STEPS]
    assert line.format(text=text) in refused(*command, unchanged=tmp_path)


@pytest.mark.parametrize(
    ("contents", "options", "line"),
    [
        ("\n \n", (), "--text={text}: found no text"),
        ("a\n" + "b" * 10_000_000 + "\n", (), "--text={text}, sentence 2: found 10,000,000 characters"),
        ("a\n", ("--num_warmup_steps", "6"), "--steps: found 6, which end in the warm-up"),
        ("a\n", ("--minutes", "1"), "--steps: found both steps and minutes"),
        ("a\n", ("--dev_fraction", "1"), "'--dev_fraction'"),
        # Text from an address.
        ("\n", ("{uri}",), "--text={text} {uri}: found no text"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_written(contents, options, line, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(contents)
    options = [option.format(uri=text.as_uri()) for option in options]
    command = ["pretrain", "--bert_hub", "demo", "--text", text, "--out", tmp_path / "out", *STEPS, *options]
    assert line.format(text=text, uri=text.as_uri()) in refused(*command, unchanged=tmp_path)
