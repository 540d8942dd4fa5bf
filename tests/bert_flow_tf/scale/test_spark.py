"""The guide's lines for Spark make the folder that `encode_dataset` makes."""

import os
import pathlib
import re
import subprocess
import sys

import pyarrow.parquet

from bert_flow_tf import BertFlow

_GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "scale.md"


def test_spark_makes_the_same_folder(require, tiny_encoder_dir, tmp_path):
    require("java")
    require("pyspark")
    (tmp_path / "crawl").mkdir()
    for i in range(3):
        table = pyarrow.table({"id": range(100), "text": [f"w{i} w{j % 50}" for j in range(100)]})
        pyarrow.parquet.write_table(table, tmp_path / "crawl" / f"{i}.parquet")
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    model.save(tmp_path / "my_model")
    snippet = re.search(r"<!-- snippet: spark -->\n```python\n(.+?)```", _GUIDE.read_text(), re.DOTALL)[1]
    assert snippet.count("16_384") == 1
    (tmp_path / "run.py").write_text(snippet.replace("16_384", "40"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    # Spark finds its own address by the machine's name, which may lead nowhere.
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    model.encode_dataset(f"{tmp_path}/crawl/*.parquet", tmp_path / "here", column="text", keep=["id"], shard_rows=40)
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("embeddings", "here")
    )
    assert len(found) == 10 and found == expected
