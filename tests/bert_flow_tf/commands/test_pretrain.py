"""`bert-flow pretrain` on the command line: an encoder folder from text."""

import importlib.util
import json

from bert_flow_tf import BertFlow
from tests.refusals import refused, succeeds


def test_the_text_makes_an_encoder_folder_that_loads_by_its_name(tiny_encoder_dir, tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "encoder"
    text.write_text(
        "".join(f"w{i} w{i % 7} w3 w{i + 1}\n" for i in range(40)) + "\n" + "w1 w2 " * 40 + "\n"
    )
    said = succeeds(
        *(
            "pretrain",
            "--bert_hub",
            tiny_encoder_dir,
            "--text",
            text,
            text,
            "--out",
            out,
            "--steps",
            6,
        ),
        *("--max_seq_length", 24, "--learning_rate", 0.01, "--save_checkpoints_steps", 4),
        *("--num_warmup_steps", 2, "--train_batch_size", 8),
    )
    # Of each file 40 lines, and one that 22 pieces at a time are cut from; one of a hundred is held
    # out.
    assert said == f"encoder folder written: {out} (6 steps)\n"
    losses = json.loads((out / "source.json").read_text())["dev_losses"]
    assert list(losses) == ["0", "4", "6"] and losses["6"] < losses["0"]
    left = sorted(path.name for path in (tmp_path / "encoder.pretraining").iterdir())
    assert left[:2] == ["config.json", "dev_losses.json"] and left[3:] == ["train_results.json"]
    assert BertFlow.from_hub(out, max_seq_length=8).encode("w1 w2").shape == (32,)


def test_a_missing_extra_is_named_before_anything_is_written(
    tiny_encoder_dir, tmp_path, monkeypatch
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "official" else find(name, *rest),
    )
    (tmp_path / "text.txt").write_text("w1 w2\n")
    commands = {
        "pretrain": (
            "pretrain",
            "--bert_hub",
            tiny_encoder_dir,
            "--text",
            tmp_path / "text.txt",
            "--out",
        ),
        "--to_tfhub": ("convert", "--bert_hub", tiny_encoder_dir, "--to_tfhub"),
    }
    for name, command in commands.items():
        line = refused(*command, tmp_path / "out", unchanged=tmp_path)
        assert line.startswith(f"{name}: ") and "pip install -e '.[models]'" in line
