"""Options of labelled pairs."""

import dataclasses
from typing import TYPE_CHECKING

import click

from bert_flow_tf.commands.command import Decorator, option
from bert_flow_tf.common.settings import Settings, flag

if TYPE_CHECKING:
    from bert_flow_tf.tasks.labelled_pairs import LabelledPairs


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairOptions(Settings):
    """The options of a file of labelled pairs."""

    pairs: str | None = flag(None, "TSV, CSV, JSONL or Parquet.", metavar="FILE")
    pair_columns: str | None = flag(
        None, "Names or numbers.", metavar="A,B,SCORE", needs=("pairs",)
    )
    no_pair_header: bool = flag(False, "The first row of --pairs is data.", needs=("pairs",))

    def read(self) -> "LabelledPairs | None":
        """Return the pairs and their scores, which differ; None without `--pairs`."""
        if self.pairs is None:
            return None
        from bert_flow_tf.tasks.labelled_pairs import checked_pairs, read_labelled_pairs

        found = read_labelled_pairs(self.pairs, self.pair_columns, no_header=self.no_pair_header)
        return checked_pairs(found)


def metric_option() -> Decorator:
    """Return a decorator that adds `--metric`."""
    # Most commands do not need the methods of calibration.
    from bert_flow_tf.calibration.settings import METRICS

    return option(
        "--metric",
        type=click.Choice(METRICS),
        needs=("pairs", "glue_dir"),
        help="Decides on --pairs.  [default: by their scores]",
    )
