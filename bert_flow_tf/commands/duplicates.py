"""`bert-flow duplicates`: groups of rows that say nearly the same."""

import csv
import dataclasses
import logging
import pathlib
from collections.abc import Sequence

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUTS, InputForm
from bert_flow_tf.commands.lists import name_list
from bert_flow_tf.commands.model_options import EncodingOptions
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.tasks.sentence_files import SENTENCE, TextFile, read_tables
from bert_flow_tf.vectors import thresholds
from bert_flow_tf.vectors.neighbours import chains, numbered_by_size, similar_groups

logger = logging.getLogger(__name__)

# Fewer sentences may well be one group.
_FEW_ROWS = 20
_TIGHTER = "a higher --threshold, or a smaller --false_matches, gives tighter groups"


@dataclasses.dataclass(frozen=True, kw_only=True)
class DuplicateSettings(Settings):
    """The cosine from which sentences are similar."""

    threshold: float | None = flag(None, "Least cosine of a pair.", ge=-1, le=1)
    false_matches: float = flag(
        1e-4, "Without --threshold: share of random pairs above it.", gt=0, lt=1
    )


@command(
    epilog="\b\nbert-flow duplicates --model my_model --input tickets.csv --column text --keep id "
    "--out groups.csv",
    one_of=[("model", "bert_hub")],
    excludes={"threshold": ("false_matches",)},
)
@setting_options(EncodingOptions, name="model")
@INPUTS
@setting_options(InputForm, name="form")
@option("--keep", callback=name_list(), metavar="NAMES", help="Columns to copy.")
@setting_options(DuplicateSettings)
@option("--out", required=True, metavar="FILE.csv", help="Groups.")
@option("--overwrite", is_flag=True, help="Replace --out.")
def duplicates(
    model: EncodingOptions,
    inputs: tuple[str, ...],
    form: InputForm,
    keep: list[str] | None,
    settings: DuplicateSettings,
    out: str,
    overwrite: bool,
) -> None:
    """Write groups of rows whose sentences are equal or similar.

    A group is connected by pairs with a cosine above the threshold, so its ends may be less
    similar; a warning names such chains, and a group of more than a tenth of the rows. Sentences
    without a word that the encoder knows are kept apart. FILE.csv has the columns group (from 1,
    the largest first), cosine (to the nearest other sentence; 1 for equal ones), the kept columns
    and the sentence. --false_matches bounds matches of unrelated sentences, not of those that
    differ in a detail.
    """
    if not out.endswith(".csv"):
        raise UserError(f"--out={out}: found another ending, expected .csv")
    path = locked_file(out, overwrite=overwrite)
    sentences, kept = _read(form.files(inputs, keep), keep or ())
    if empty := sum(not sentence.strip() for sentence in sentences):
        click.echo(f"empty sentences, left out: {empty:,}", err=True)
        kept = [one for one, text in zip(kept, sentences, strict=True) if text.strip()]
        sentences = [text for text in sentences if text.strip()]
    different = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
    if len(different) < 2:
        raise UserError(f"--input: found {len(different)} different sentences, expected 2 or more")
    share = settings.false_matches
    threshold = settings.threshold
    if threshold is None:
        thresholds.check_enough(len(different), share)
    loaded = model.open()
    u = loaded.encode(list(different), normalize_embeddings=True)
    unreadable = loaded.only_unknown(list(different))
    # Their embeddings are all alike, so only equal ones are a group; zeros are like nothing.
    u[unreadable] = 0
    if threshold is None:
        found = thresholds.threshold(u[~unreadable], share)
        threshold = found.cosine
        click.echo(f"threshold: one in {1 / share:,.0f} random pairs exceeds a cosine of {found}")
    groups, nearest = similar_groups(u, threshold)
    rows = np.array([different[sentence] for sentence in sentences])
    # Equal sentences have a cosine of 1.
    cosines = np.where(np.bincount(rows, minlength=len(different)) > 1, 1.0, nearest)
    numbers = numbered_by_size(groups[rows])
    header = ["group", "cosine", *(keep or ()), form.column or SENTENCE]
    _write(path, header, numbers, cosines[rows], kept, sentences)
    _warn_of_groups(u, groups, threshold)
    equal = len(sentences) - len(different)
    say(
        f"groups written: {out} ({numbers.max():,} groups of {np.count_nonzero(numbers):,} rows, "
        f"{equal:,} rows repeat another)"
    )


def _read(files: Sequence[TextFile], keep: Sequence[str]) -> tuple[list[str], list[tuple]]:
    """Return the sentences of all files, and their kept columns."""
    sentences: list[str] = []
    kept: list[tuple] = []
    for file in files:
        for table in read_tables(file):
            sentences += table.column(0).to_pylist()
            kept += [tuple(row[name] for name in keep) for row in table.to_pylist()]
    return sentences, kept


def _write(
    path: pathlib.Path,
    header: list[str],
    numbers: np.ndarray,
    cosines: np.ndarray,
    kept: Sequence[tuple],
    sentences: Sequence[str],
) -> None:
    """Write the rows [n] that have a group's number, by number."""
    with new_file(path) as new, new.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for i in np.argsort(numbers, kind="stable")[np.count_nonzero(numbers == 0) :]:
            writer.writerow([numbers[i], f"{cosines[i]:.4f}", *kept[i], sentences[i]])


def _warn_of_groups(u: np.ndarray, groups: np.ndarray, threshold: float) -> None:
    """Warn of a very large group, and of groups of unlike sentences.

    Args:
      u: embeddings [n, D] of norm 1, of the different sentences.
      groups: the group of each sentence [n].
    """
    count = len(groups)
    largest = int(np.bincount(groups).max())
    if count >= _FEW_ROWS and largest > count / 10:
        logger.warning(
            "one group has %s of %s different sentences; %s",
            f"{largest:,}",
            f"{count:,}",
            _TIGHTER,
        )
    found = chains(u, groups, threshold)
    if found.count:
        logger.warning(
            "%s groups are chains: their least similar sentences have a cosine of %.2f; %s",
            f"{found.count:,}",
            found.least_cosine,
            _TIGHTER,
        )
