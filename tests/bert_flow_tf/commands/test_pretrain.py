"""`bert-flow pretrain` on the command line: an encoder folder from text."""

import json

import pytest

from bert_flow_tf import BertFlow
from tests.refusals import succeeds

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
    assert said == f"encoder folder written: {out} (6 steps)\n"
    record = json.loads((out / "source.json").read_text())
    assert list(record["dev_losses"]) == ["0", "4", "6"]
    assert record["dev_losses"]["6"] < record["dev_losses"]["0"]
    before, after = (
        BertFlow.from_hub(folder, max_seq_length=8).encode(["w1 w2"]) for folder in (tiny_encoder_dir, out)
    )
    assert abs(before - after).max() > 0.01
    left = sorted(path.name for path in (tmp_path / "encoder.pretraining").iterdir())
    assert left[:2] == ["config.json", "dev_losses.json"] and left[3:] == ["train_results.json"]
