import pytest
from tests.bert_flow_tf import small_runs

@pytest.mark.parametrize("replicas", [0, 2])
def test_early(small_encoder_dir, tmp_path, replicas):
    values = {
        "task_name": "STS-B",
        "data_dir": str(small_runs.write_stsb(tmp_path / "STS-B", small_runs.SMALL_WORDS)),
        "output_parent_dir": str(tmp_path / "out"), "exp_name": "early",
        "bert_hub": str(small_encoder_dir),
        "max_seq_length": 10, "train_batch_size": 8, "num_train_epochs": 3.0, "learning_rate": 1e-3,
        "do_train": True, "do_predict": True, "early_stopping": True, "num_logical_cpus": replicas,
    }
    process = small_runs.start(small_runs.as_flags(values))
    status, stderr = small_runs.finish(process)
    assert status == 0, stderr[-6000:]
