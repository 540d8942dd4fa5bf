"""The schema of results; `kind` names the type of a record."""

import pathlib
import statistics
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec

from bert_flow_tf.evaluation import isotropy
from bert_flow_tf.evaluation.words import RankBin
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.record import Count, Encoder, Model, Positive, Result, Seconds, TrainingResults

SCORES_FILE = "recipe_scores.json"
RESULTS_FILE = "results.json"
REPRODUCTION_FILE = "reproduction.json"
Score = Annotated[float, msgspec.Meta(ge=-1, le=1)]  # a correlation or an AUC, as a fraction
Deviation = Annotated[float, msgspec.Meta(ge=0)]
Metric = Literal["spearman", "auc", "accuracy"]


class PairScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of pairs by metric; None for other tasks' metrics."""

    spearman: Score | None = None
    pearson: Score | None = None
    auc: Score | None = None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Similarities and gold scores of at most 500 pairs, for a plot.

    `mean`, `std` and `counts` (40 equal bins from -1 to 1) describe the similarities of all pairs.
    """

    similarities: Annotated[list[float], msgspec.Meta(min_length=1)]
    gold: list[float]
    mean: float
    std: Deviation
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]


class TaskScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of a task by protocol; a single set has only "all".

    A classifier's regularisation was chosen for the best `dev_accuracy`.
    """

    title: str  # the paper's name
    metric: Metric  # the main metric
    split: str
    source: str  # folder or data set of the pairs
    pairs: Count
    spearman: dict[str, Score] = {}
    pearson: dict[str, Score] = {}
    auc: dict[str, Score] = {}
    accuracy: dict[str, Score] = {}
    dev_accuracy: Score | None = None
    f1: Score | None = None  # MRPC's positive class
    subsets: dict[str, dict[str, int | float]] = {}  # `pairs` and scores of each set
    agreement: Agreement | None = None

    @property
    def by_protocol(self) -> dict[str, float]:
        return getattr(self, self.metric)


class Scores(Result, frozen=True, kw_only=True, tag="scores"):
    """Scores of a model by task, with and without its flow."""

    model: Model
    tasks: dict[str, TaskScores]
    without_flow: dict[str, TaskScores] | None = None


class Predictions(Result, frozen=True, kw_only=True, tag="predictions"):
    """The record of a file of predicted cosines, one per pair."""

    model: Model
    task: str
    splits: list[str]
    pairs: Count


class Summary(NamedTuple):
    """Statistics of a score over seeds; `std` divides by n - 1."""

    mean: float
    std: float | None
    median: float


def summarize(values: Sequence[float]) -> Summary:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), std, statistics.median(values))


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    seed: Count
    directory: str
    model: Model
    scores: TaskScores


class Reproduction(Result, frozen=True, kw_only=True, tag="reproduction"):
    """Rows of the paper's tables over seeds, by task and row."""

    encoder: str
    encoder_flags: dict[str, str]
    with_nli: bool
    seeds: list[Count]
    tasks: dict[str, dict[str, Annotated[list[SeedRun], msgspec.Meta(min_length=1)]]]


class SeedScores(PairScores, frozen=True, kw_only=True, omit_defaults=True):
    seed: Count
    fit_seconds: Seconds


class CalibrationRow(PairScores, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of one calibration.

    Attributes:
      k, dev, dev_by_k: for a tuned method, the chosen number of vectors, its score on dev, and every k's score.
      std, median, by_seed: for the flow, over seeds; `std` divides by n - 1 and is None for one seed.
      seconds: time to fit and score.
    """

    method: str
    k: Positive | None = None
    dev: Score | None = None
    std: Deviation | None = None
    median: Score | None = None
    by_seed: list[SeedScores] = []
    dev_by_k: dict[str, Score] = {}
    seconds: Seconds


class Calibrations(Result, frozen=True, kw_only=True, tag="calibrations"):
    model: Model
    task: str
    glue_dir: str
    pairs: dict[Literal["train", "dev", "test"], Count]
    sentences_sha256: str
    flow_model_config: str
    metric: Literal["spearman", "auc"]
    fit_on: Literal["all", "train"]
    fit_rows: Count
    width: Positive
    constant_channels: list[Count]
    dropout: bool = False  # True if the flow was learned with the encoder's dropout.
    seeds: list[Count]
    rows: list[CalibrationRow]


# For each similarity, these are Spearman's correlations times 100; None means undefined.
Correlations = dict[str, dict[Literal["edit distance", "gold"], float | None]]


class CloseCorrelations(msgspec.Struct, frozen=True, kw_only=True):
    """Correlations of pairs up to an edit distance; `undefined` gives reasons."""

    max_distance: Count
    pairs: Count
    rows: Correlations
    undefined: list[str]


class Lexical(Result, frozen=True, kw_only=True, tag="lexical"):
    model: Model
    task: str
    split: str
    pairs: Count
    rows: Correlations
    close: CloseCorrelations


class Words(Result, frozen=True, kw_only=True, tag="words"):
    """Results of `bert-flow analyze words` on BERT's input embeddings."""

    encoder: Encoder
    pieces: Count
    ranked_words: Count
    frequencies: str
    bins: Annotated[list[RankBin], msgspec.Meta(min_length=4, max_length=4)]


class IsotropyResults(Result, frozen=True, kw_only=True, tag="isotropy"):
    """Results of `bert-flow analyze isotropy`; `reference` is a standard normal's."""

    model: Model
    task: str
    split: str
    sentences: Count
    measures: dict[str, isotropy.Isotropy]
    reference: isotropy.Isotropy
    bits_per_dim: dict[str, float]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A deviation from the TF1 code or an equation, and its limit."""

    what: str
    found: Deviation | None  # None if not finite
    limit: Deviation


class Verification(Result, frozen=True, kw_only=True, tag="verification"):
    """Results of `bert-flow verify`; `evidence` is the folder of its tests."""

    evidence: str
    deviations: list[Checked]
    failed: list[str]
    not_run: list[str]


# `RunConfig` is left out because a configuration is not a result.
_KINDS = {kind.__struct_config__.tag: kind for kind in Result.__subclasses__() if kind.__module__ == __name__}
_KINDS[TrainingResults.__struct_config__.tag] = TrainingResults


def kind_of(path: pathlib.Path) -> type[Result] | None:
    """Return the type of a result file, or None for other JSON.

    Raises:
      UserError: the file cannot be read, or is not JSON.
    """
    values = read_json(path, object, expected="results of bert-flow", versioned=False)
    return _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None


def read_result(path: pathlib.Path) -> Result | None:
    """Return the result in a JSON file, or None for other JSON.

    Raises:
      UserError: as `kind_of`, or the format version or a value is invalid.
    """
    kind = kind_of(path)
    return read_json(path, kind, expected=f"results of bert-flow, {kind.__name__}") if kind else None
