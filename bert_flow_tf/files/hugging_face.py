"""Models of the Hugging Face Hub by their names, in that library's own cache, and folders uploaded there."""

import contextlib
import functools
import pathlib
import re
from collections.abc import Iterator
from typing import Any

from bert_flow_tf.errors import ArgumentError, UserError
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
def downloaded_model(name: str, patterns: tuple[str, ...] = _FILES) -> pathlib.Path:
    """Folder of a model's files, which are downloaded where the library's cache has not got them.

    The library's own variables count: HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE, …. A process asks once for a
    name, and again after an upload.

    Args:
      name: of the model, with `@REVISION` (a branch, tag or commit) for another than the last of `main`.
      patterns: of the files that are wanted.

    Raises:
      UserError: the hub cannot be reached and the cache has not got the model, there is no such model or revision, or
        it asks for a token.
    """
    # It takes half a second to import.
    import huggingface_hub
    from huggingface_hub.errors import DryRunError

    model, _, revision = name.partition("@")
    asked: dict[str, Any] = {"repo_id": model, "revision": revision or None, "allow_patterns": list(patterns)}
    with _refusing(f"{name}: no such folder, and no model at"):
        _check_answer(model, revision or None)
        # Without the hub nothing is known of sizes, and nothing is downloaded.
        with contextlib.suppress(DryRunError):
            files = huggingface_hub.snapshot_download(**asked, dry_run=True)
            size = sum(file.file_size for file in files if file.will_download)
            if size:
                say_download(name, size, pathlib.Path(huggingface_hub.constants.HF_HUB_CACHE))
        return pathlib.Path(huggingface_hub.snapshot_download(**asked))


def _check_answer(model: str, revision: str | None) -> None:
    """Raises the library's error where the hub is silent for HF_HUB_ETAG_TIMEOUT seconds: it would wait for ever."""
    import huggingface_hub

    try:
        huggingface_hub.HfApi().repo_info(
            model, revision=revision, timeout=huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT
        )
    except Exception as error:
        # All others come again, where the cache has not got the model. The classes are those of another library in each
        # version.
        if "Timeout" in type(error).__name__:
            raise


@contextlib.contextmanager
def _refusing(what: str) -> Iterator[None]:
    """A context that makes one line of the library's errors: `what`, the hub's address, and what the error says."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # Of what it asks by, which is another library in each of its versions, HfHubHTTPError inherits the error. What is
    # no JSON is a ValueError: a proxy's page, say.
    errors: Any = (OSError, *HfHubHTTPError.__bases__, HFValidationError, ValueError)
    try:
        yield
    except errors as error:
        # What follows the first lines is how to get a token.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = " ".join(lines[:2]) or type(error).__name__
        raise UserError(f"{what} {huggingface_hub.constants.ENDPOINT} ({said})") from error


def check_upload(repo_id: str, token: str | None) -> None:
    """Raises `ArgumentError` for what can be no repository's name, or where no token is known."""
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ArgumentError(f"repo_id: {' '.join(str(error).split())}") from error
    if not (token or huggingface_hub.get_token()):
        raise ArgumentError("token: found none, expected one that may write: HF_TOKEN, `hf auth login`, or `token`")


def upload_folder(
    folder: pathlib.Path,
    repo_id: str,
    *,
    token: str | None,
    private: bool | None,
    commit_message: str,
    exist_ok: bool,
    revision: str | None,
    create_pr: bool,
) -> str:
    """Address of the commit, or of the pull request, that puts all files of the folder into a model's repository.

    Arguments are those of `BertFlow.push_to_hub`.

    Raises:
      UserError: the hub cannot be reached or refuses, or the repository exists and may not be changed.
    """
    import huggingface_hub

    hub = huggingface_hub.HfApi(token=token)
    with _refusing(f"{repo_id}: cannot be uploaded to"):
        may_exist = exist_ok or create_pr
        if not may_exist and hub.repo_exists(repo_id):
            raise UserError(f"{repo_id}: exists, expected a new repository, or `exist_ok`", arguments=["exist_ok"])
        repo = hub.create_repo(repo_id, private=private, exist_ok=may_exist).repo_id
        if revision is not None:
            hub.create_branch(repo, branch=revision, exist_ok=True)
        done = hub.upload_folder(
            repo_id=repo,
            folder_path=folder,
            commit_message=commit_message,
            revision=revision,
            create_pr=create_pr,
        )
    downloaded_model.cache_clear()
    return (done.pr_url or done.commit_url) if create_pr else done.commit_url
