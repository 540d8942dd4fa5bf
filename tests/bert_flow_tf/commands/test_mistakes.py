"""A mistake in a name is one line before TensorFlow and scikit-learn load, which takes seconds."""

import json
import subprocess
import sys

from bert_flow_tf.sample_data import sample_glue_dir

# Neither can be imported there.
_RUN = """
import json, sys
sys.modules["tensorflow"] = sys.modules["sklearn"] = None
from bert_flow_tf import cli, run_siamese
for command in json.load(sys.stdin):
    program = run_siamese if command[0] == "run_siamese" else cli
    print(program.run_command(command[1:] if program is run_siamese else command), file=sys.stderr)
"""


def test_names_are_checked_before_anything_loads(tmp_path):
    (tmp_path / "s.txt").write_text("w1 w2\n" * 64)
    (tmp_path / "s.tsv").write_text("sentence\nw1 w2\n")
    for name in ("my_model", "folder"):
        (tmp_path / name).mkdir()
    glue_dir = str(sample_glue_dir())
    glue, hub, text = ("--glue_dir", glue_dir), ("--bert_hub", "demo"), ("--input", "s.txt")
    siamese = {
        **{"task_name": "STS-B", "data_dir": f"{glue_dir}/STS-B", "output_parent_dir": "o", "exp_name": "x"},
        **{"do_train": "true", "bert_hub": "demo"},
    }

    def run_siamese(**changes):
        return ["run_siamese", *(f"--{name}={value}" for name, value in (siamese | changes).items())]

    pooling = ("--sentence_embedding_type", "paper-cl")
    mistakes = {
        ("encde",): "did you mean encode?",
        (
            "encode",
            *hub,
            "--preprocess_hub",
            "nowhere",
            *text,
            "--out",
            "o.npy",
        ): "--preprocess_hub=nowhere: no such fo",
        ("pretrain", "--bert_hub", "demmo", "--text", "s.txt", "--steps", "200", "--out", "o"): "did you mean demo?",
        ("similarity", "--model", "my_modl", "a", "b"): "did you mean my_model?",
        ("encode", "--model", "my_modl", *text, "--out", "o.npy"): "did you mean my_model?",
        ("encode", "--model", "folder", *text, "--out", "o.npy"): "folder: holds neither bert_flow.json nor",
        ("encode", *hub, "--input", "ss.txt", "--out", "o.npy"): "ss.txt: no such file",
        ("encode", *hub, "--input", "s.tsv", "--column", "text", "--out", "o.npy"): "expected text, or numbers",
        ("encode", *hub, "--input", "s.tsv", "--column", "sentense", "--out", "o.npy"): "did you mean sentence?",
        ("similarity", *hub, "--pairs", "s.tsv"): (
            "found the columns sentence, expected sentence1 and sentence2, or numbers where no line has names "
            "(see --columns)"
        ),
        ("encode", *hub, *pooling, *text, "--out", "o.npy"): "did you mean paper-cls?",
        ("evaluate", *hub, "--tasks", "stsbb", *glue): "did you mean stsb?",
        ("calibrate", *hub, "--glue_dir", "nowhere"): "nowhere/STS-B: no such folder",
        ("calibrate", *hub, *glue, "--methods", "whitenin"): "did you mean whitening?",
        ("calibrate", *hub, *glue, *pooling): "did you mean paper-cls?",
        ("calibrate", "--embeddings", "u.npy", *glue): "--embeddings=u.npy: no such file",
        ("fit", "--bert_hub", "demp", *text, "--out", "o"): "did you mean demo?",
        ("fit", *hub, *pooling, *text, "--out", "o"): "did you mean paper-cls?",
        ("fit", *hub, *text, "--flow_model_config", "config_l9", "--out", "o"): "did you mean config_l3_d3_w32?",
        ("export", "--model", "folder", "--out", "o"): "folder: holds neither bert_flow.json nor",
        ("reproduce", "--bert_hub", "demp", *glue, "--out", "o"): "did you mean demo?",
        ("convert", "--huggingface", "folder", "--out", "o"): "folder/config.json: no such file",
        ("convert", "--tf1_checkpoint", "folder", "--out", "o"): "folder: found no checkpoint",
        tuple(run_siamese(task_name="STS-BB")): "--task_name: unknown task 'STS-BB'",
        tuple(run_siamese(data_dir="nowhere")): "nowhere: no such folder",
        tuple(run_siamese(sentence_embedding_type="avgg")): "did you mean avg?",
        tuple(run_siamese(flow=1, flow_model_config="config_l9")): "did you mean config_l3_d3_w32?",
        tuple(run_siamese(init_checkpoint="nowhere")): "there is no nowhere.index",
    }
    done = subprocess.run(
        [sys.executable, "-c", _RUN], cwd=tmp_path, input=json.dumps(list(mistakes)), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    for i, (command, said) in enumerate(mistakes.items()):
        line, status = lines[2 * i : 2 * i + 2]
        assert line.startswith("error: ") and said in line and status == "2", (command, line)
    assert len(lines) == 2 * len(mistakes)
