"""The results that commands write: one schema for all, in which `kind` says what was measured.

The keys of a file are the attributes below; `runs.record` has those that say what was measured of which model.
"""

import pathlib
import typing
from typing import Annotated, Literal

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import isotropy
from bert_flow_tf.evaluation.protocols import PROTOCOLS
from bert_flow_tf.evaluation.words import RankBin
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.record import Count, Encoder, Model, Positive, Result, Seconds, TrainingResults

# What the recipe scored, in a run's folder.
SCORES_FILE = "recipe_scores.json"
RESULTS_FILE = "results.json"
# The kind of a report's own results.json.
REPORT = "report"

# A correlation, or an area under the ROC curve, as a fraction.
Score = Annotated[float, msgspec.Meta(ge=-1, le=1)]
Deviation = Annotated[float, msgspec.Meta(ge=0)]
Metric = Literal["spearman", "auc", "accuracy"]


class SubsetScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Number of pairs of one set, and its scores."""

    pairs: Count
    spearman: Score | None = None
    pearson: Score | None = None
    auc: Score | None = None


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What plots show of similarities and gold scores, as `evaluation.protocols.agreement` gives it."""

    similarities: Annotated[list[float], msgspec.Meta(min_length=1)]
    gold: list[float]
    mean: float
    std: Deviation
    counts: Annotated[list[Count], msgspec.Meta(min_length=1)]

    def __post_init__(self) -> None:
        if len(self.gold) != len(self.similarities):
            raise ValueError(f"found {len(self.similarities)} similarities and {len(self.gold)} gold, expected as many")


class TaskScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of one task, as `evaluation.protocols.score_task` gives them."""

    title: str  # As the paper prints it.
    metric: Metric  # The one that stands for the task.
    split: str
    source: str  # Where the pairs were read.
    pairs: Count
    # By protocol; "all" alone for a task of one set.
    spearman: dict[str, Score] = {}
    pearson: dict[str, Score] = {}
    auc: dict[str, Score] = {}
    accuracy: dict[str, Score] = {}
    dev_accuracy: Score | None = None  # Of a classification task, and F1 of MRPC's positive class.
    f1: Score | None = None
    subsets: dict[str, SubsetScores] = {}
    agreement: Agreement | None = None  # None of results that were written before there was any.

    @property
    def by_protocol(self) -> dict[str, float]:
        """The scores by the task's metric."""
        return getattr(self, self.metric)


class Scores(Result, frozen=True, kw_only=True, tag="scores"):
    """What `bert-flow evaluate` and the recipe measured: cosines' agreement with gold scores, by task.

    `without_flow` holds the same tasks' scores by the embeddings before the flow; `evaluate` of a flow writes it.
    """

    model: Model
    similarity: str = "cosine"
    protocols: dict[str, str] = msgspec.field(default_factory=lambda: dict(PROTOCOLS))
    tasks: dict[str, TaskScores]
    without_flow: dict[str, TaskScores] | msgspec.UnsetType = msgspec.UNSET


class Predictions(Result, frozen=True, kw_only=True, tag="predictions"):
    """What the file of predictions beside this one holds: cosines of `pairs` pairs of these splits."""

    model: Model
    task: str
    splits: list[str]
    pairs: Count


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A score over seeds; the deviation is over n - 1, None for one seed."""

    mean: Score
    std: Deviation | None
    median: Score
    values: list[Score]


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One seed's scores of one row, the model they are of, and the folder of the run."""

    seed: Count
    directory: str
    model: Model
    scores: TaskScores


class ReproducedRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row on one task: every seed's run, scores over seeds by metric, and what they compare with."""

    runs: Annotated[list[SeedRun], msgspec.Meta(min_length=1)]
    spearman: Summary | None = None
    pearson: Summary | None = None
    auc: Summary | None = None
    paper: dict | None = None
    paper_seeds: dict | None = None
    original: dict | None = None


class ReproducedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task: how it was scored, and its rows by name; `protocol` is None for a task of one set."""

    title: str
    metric: Metric
    protocol: str | None
    split: str
    source: str
    pairs: Count
    rows: dict[str, ReproducedRow]


class Reproduction(Result, frozen=True, kw_only=True, tag="reproduction"):
    """What `bert-flow reproduce` measured: rows of the paper's tables, each with several seeds."""

    encoder: str
    encoder_flags: dict[str, str]
    with_nli: bool
    seeds: list[Count]
    tasks: dict[str, ReproducedTask]


class SeedScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of a flow that was learned with one seed."""

    seed: Count
    spearman: Score | None = None
    pearson: Score | None = None
    auc: Score | None = None
    fit_seconds: Seconds


class CalibrationRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of one calibration, as `evaluation.compare.compare_calibrations` gives them."""

    method: str
    k: Positive | None = None
    dev: Score | None = None
    spearman: Score | None = None
    pearson: Score | None = None
    auc: Score | None = None
    std: Deviation | None = None
    median: Score | None = None
    by_seed: list[SeedScores] = []
    dev_by_k: dict[str, Score] = {}
    seconds: Seconds


class SplitPairs(msgspec.Struct, frozen=True, kw_only=True):
    """Number of pairs of each split."""

    train: Count
    dev: Count
    test: Count


class CalibrationData(msgspec.Struct, frozen=True, kw_only=True):
    """What was calibrated and scored: the task, its folder, its pairs, and the digest of its sentences."""

    task: str
    glue_dir: str
    pairs: SplitPairs
    sentences_sha256: str


class Calibrations(Result, frozen=True, kw_only=True, tag="calibrations"):
    """What `bert-flow calibrate` measured; `model` is None for `embeddings` that were made elsewhere."""

    model: Model | None
    embeddings: str | None = None
    data: CalibrationData
    flow_model_config: str
    metric: Metric
    fit_on: Literal["all", "train"]
    fit_rows: Count
    width: Positive
    constant_channels: list[Count]
    seeds: list[Count]
    rows: list[CalibrationRow]


class LexicalCorrelations(msgspec.Struct, frozen=True, kw_only=True, rename={"edit_distance": "edit distance"}):
    """Spearman's correlations times 100 of a similarity; None where it is undefined."""

    edit_distance: float | None
    gold: float | None


class CloseCorrelations(msgspec.Struct, frozen=True, kw_only=True):
    """The same of the pairs up to an edit distance, and why some are undefined."""

    max_distance: Count
    pairs: Count
    rows: dict[str, LexicalCorrelations]
    undefined: list[str]


class Lexical(Result, frozen=True, kw_only=True, tag="lexical"):
    """What `bert-flow analyze lexical` measured."""

    model: Model
    task: str
    split: str
    pairs: Count
    rows: dict[str, LexicalCorrelations]
    close: CloseCorrelations


class Words(Result, frozen=True, kw_only=True, tag="words"):
    """What `bert-flow analyze words` measured: word embeddings, which come before the layers and the pooling."""

    encoder: Encoder
    pieces: Count
    ranked_words: Count
    frequencies: str
    bins: Annotated[list[RankBin], msgspec.Meta(min_length=4, max_length=4)]


class Isotropy(Result, frozen=True, kw_only=True, tag="isotropy"):
    """What `bert-flow analyze isotropy` measured; `reference` is of a standard normal."""

    model: Model
    task: str
    split: str
    sentences: Count
    measures: dict[str, isotropy.Isotropy]
    reference: isotropy.Isotropy
    bits_per_dim: dict[str, float]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A deviation from the TF1 code, or from an equation; beyond its limit where that is not kept."""

    what: str
    found: Deviation | None  # None where it is not finite.
    limit: Deviation


class Verification(Result, frozen=True, kw_only=True, tag="verification"):
    """What `bert-flow verify` checked, by what (`evidence`); in words what failed and what was not run."""

    evidence: str
    deviations: list[Checked]
    failed: list[str]
    not_run: list[str]


AnyResult = (
    Verification | TrainingResults | Scores | Predictions | Reproduction | Calibrations | Lexical | Words | Isotropy
)


_EXPECTED = "results of bert-flow"


def is_of_kind(path: pathlib.Path, kind: str) -> bool:
    """Whether a file holds a JSON object of this `kind`; not where it cannot be read."""
    try:
        return _values(path).get("kind") == kind
    except UserError:
        return False


def _values(path: pathlib.Path) -> dict:
    found = read_json(path, object, expected=_EXPECTED, versioned=False)
    return found if isinstance(found, dict) else {}


def read_result(path: pathlib.Path) -> AnyResult | None:
    """The result in a JSON file; None where it holds something else.

    Raises:
      UserError: the file cannot be read, is not JSON, is of another format version, or a value is missing or of
        another type.
    """
    values = _values(path)
    for kind in typing.get_args(AnyResult):
        if kind.__struct_config__.tag == values.get("kind"):
            return read_json(path, kind, expected=_EXPECTED)
    if "format_version" in values:
        # Results of version 1 have no kind.
        read_json(path, object, expected=_EXPECTED)
    return None
