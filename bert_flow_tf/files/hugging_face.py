"""Models of the Hugging Face Hub by their names, in that library's own cache."""

import contextlib
import functools
import pathlib
import re
from typing import Any

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.user_cache import say_download

# Names without an organisation are as old as BERT's: nearly all of them begin so.
_NAME = re.compile(r"([\w.-]+/[\w.-]+|(distil)?bert-[\w.-]+)(@[\w./-]+)?")
# What an encoder is made of, and no weights of other libraries.
_FILES = ("*.json", "vocab.txt", "*/vocab.txt", "model*.safetensors", "*/model*.safetensors")


def is_model_name(handle: str) -> bool:
    """Whether a handle can be a model's name there: `bert-base-uncased`, `ORGANISATION/MODEL`, `…@REVISION`."""
    place = pathlib.Path(handle)
    # `encoders/mine`, where there is a folder `encoders`, is a mistake in a path.
    return bool(_NAME.fullmatch(handle)) and not (len(place.parts) > 1 and place.parent.is_dir())


@functools.cache
def downloaded_model(name: str) -> pathlib.Path:
    """Folder of a model's files, which are downloaded where the library's cache has not got them.

    The library's own variables count: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, ….

    Args:
      name: of the model, with `@REVISION` (a branch, tag or commit) for another than the last of `main`.

    Raises:
      UserError: the hub cannot be reached and the cache has not got the model, there is no such model or revision, or
        it asks for a token.
    """
    # It takes half a second to import.
    import huggingface_hub
    from huggingface_hub.errors import DryRunError, HFValidationError

    model, _, revision = name.partition("@")
    asked: dict[str, Any] = {"repo_id": model, "revision": revision or None, "allow_patterns": list(_FILES)}
    try:
        # Without the hub nothing is known of sizes, and nothing is downloaded.
        with contextlib.suppress(DryRunError):
            files = huggingface_hub.snapshot_download(**asked, dry_run=True)
            size = sum(file.file_size for file in files if file.will_download)
            if size:
                say_download(name, size, pathlib.Path(huggingface_hub.constants.HF_HUB_CACHE))
        return pathlib.Path(huggingface_hub.snapshot_download(**asked))
    except (OSError, HFValidationError) as error:
        # All of the library's errors are OSErrors; what follows the first lines is how to get a token.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = " ".join(lines[:2]) or type(error).__name__
        endpoint = huggingface_hub.constants.ENDPOINT
        raise UserError(f"{name}: no such folder, and no model at {endpoint} ({said})") from error
