"""The verdict: is this the same as the original, claim by claim, and how one knows."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import scipy.stats

from bert_flow_tf.results.records import Checked, Verification
from bert_flow_tf.results.rows import summarize
from bert_flow_tf.results.table import Entry, Table

SAME, ALIKE, OTHER, NOT_RUN = "✓", "≈", "✗", "–"
# x100. Without a flow nothing is drawn: what is left is rounding, of cosines whose ranks are compared.
_ROUNDING = 0.03
# x100. The deviation over seeds in the paper's Table 8 is up to half of that.
_OF_THE_PAPER = 1.0
# Fewer seeds say little of a distribution.
_SEEDS = 5
# Evidence of a check without the golden values, which says nothing of the original.
SELF_CHECK = "self-check"
_REPRODUCE = "bert-flow reproduce --bert_hub demo --glue_dir GLUE --rows avg,last2avg,flow-target --seeds 5 --out DIR"


class Claim(NamedTuple):
    """One claim, a mark of the four above, and in words how far off it is, how far it may be, and what shows it."""

    name: str
    mark: str
    deviation: str
    limit: str
    evidence: str


def verdict(verifications: Iterable[Verification], scores: Sequence[dict]) -> list[Claim]:
    """The claims that these measurements decide, and those that they leave open.

    Args:
      verifications: what `bert-flow verify` measured.
      scores: rows of `comparisons.compared`.

    Returns:
      list of claims; empty where nothing decides any.
    """
    claims = [claim for one in verifications for claim in _computed(one)]
    if not claims:
        claims = [Claim("computation", NOT_RUN, "", "", "bert-flow verify")]
    claims += [*_without_flow(scores), *_with_flow(scores), _paper(scores)]
    return claims if any(claim.mark != NOT_RUN for claim in claims) else []


def is_of_original(claims: Sequence[Claim]) -> bool:
    """Whether a claim is decided by a comparison with the original: a self-check is none."""
    return any(claim.mark != NOT_RUN and not claim.evidence.startswith(SELF_CHECK) for claim in claims)


def verdict_table(claims: Sequence[Claim], *, title: str = "") -> Table:
    """A row for each claim, under the question that those which are decided answer."""
    rows: list[list[Entry]] = [list(claim) for claim in claims]
    notes = (
        f"{SAME} the same, up to rounding; {ALIKE} not to be told apart, or near; {OTHER} not the same; {NOT_RUN} not "
        "run.",
    )
    question = "is it the original?" if is_of_original(claims) else "does the flow keep its equations?"
    return Table((question, "", "deviation", "limit", "evidence"), rows, title=title, notes=notes)


def _computed(verification: Verification) -> list[Claim]:
    """A claim for each group of deviations, which their names begin with, by the one nearest to its limit."""
    groups: dict[str, list] = {}
    for one in verification.deviations:
        groups.setdefault(one.what.partition(",")[0], []).append(one)
    claims = []
    for group, found in groups.items():
        worst = max(found, key=lambda one: (_is_off(one), _size(one) / (one.limit or 1)))
        what = worst.what.removeprefix(f"{group}, ")
        number = f" (worst of {len(found)})" if len(found) > 1 else ""
        evidence = f"{verification.evidence}: {what}{number}"
        mark = OTHER if _is_off(worst) else SAME
        deviation = "not finite" if worst.found is None else f"{worst.found:.0e}"
        claims.append(Claim(group, mark, deviation, f"{worst.limit:.0e}", evidence))
    claims += [Claim("every check", OTHER, "", "", failed) for failed in verification.failed]
    return claims + [Claim("more of it", NOT_RUN, "", "", reason) for reason in verification.not_run]


def _is_off(one: Checked) -> bool:
    return _size(one) > one.limit


def _size(one: Checked) -> float:
    return math.inf if one.found is None else one.found


def _without_flow(scores: Sequence[dict]) -> list[Claim]:
    rows = [row for row in scores if row["flow"] is None and row["original"] is not None]
    name = "scores without flow"
    if not rows:
        return [Claim(name, NOT_RUN, "", "", _REPRODUCE)]
    worst = max(rows, key=lambda row: abs(row["difference_from_original_x100"]))
    off = worst["difference_from_original_x100"]
    evidence = "; ".join(
        f"{row['task']}, {row['pooling']} {row['this_run']['mean_x100']:.2f} for {row['original']['mean_x100']:.2f}"
        for row in rows
    )
    return [Claim(name, SAME if abs(off) <= _ROUNDING else OTHER, f"{off:+.3f}", f"{_ROUNDING}", evidence)]


def _with_flow(scores: Sequence[dict]) -> list[Claim]:
    """Both codes draw at random, and the original gives other numbers for one seed: distributions are compared."""
    claims = []
    for row in scores:
        if row["flow"] is None or row["original"] is None:
            continue
        name = f"scores with flow, {row['pooling']}"
        ours, theirs = (summarize(row[side]["values_x100"]) for side in ("this_run", "original"))
        counts = [len(side["values"]) for side in (ours, theirs)]
        evidence = (
            f"{row['task']}: {ours['mean']:.2f}{_spread(ours)} over {_counted(counts[0], 'seed')} for "
            f"{theirs['mean']:.2f}{_spread(theirs)} over {_counted(counts[1], 'run')}"
        )
        if counts[0] < _SEEDS or counts[1] < 2:
            claims.append(Claim(name, NOT_RUN, "", f"{_SEEDS} seeds", f"{evidence}: too few"))
            continue
        test = scipy.stats.ttest_ind(ours["values"], theirs["values"], equal_var=False)
        low, high = test.confidence_interval()
        off = ours["mean"] - theirs["mean"]
        if high - low > 2 * _OF_THE_PAPER:
            # So wide an interval holds 0 almost wherever it lies.
            claims.append(Claim(name, NOT_RUN, "", "more seeds", f"{evidence}: the interval is {high - low:.1f} wide"))
            continue
        mark = ALIKE if low <= 0 <= high else OTHER
        claims.append(Claim(name, mark, f"{off:+.2f} [{low:+.2f}, {high:+.2f}]", "95% interval holds 0", evidence))
    return claims or [Claim("scores with flow", NOT_RUN, "", "", _REPRODUCE)]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _spread(summary: dict) -> str:
    return "" if summary["std"] is None else f" ± {summary['std']:.2f}"


def _paper(scores: Sequence[dict]) -> Claim:
    rows = [row for row in scores if row["paper"] is not None]
    if not rows:
        return Claim("the paper's rows", NOT_RUN, "", "", "needs the weights of BERT-base or -large: --bert_premodels")
    worst = max(rows, key=lambda row: abs(row["difference_from_paper_x100"]))
    off = worst["difference_from_paper_x100"]
    evidence = f"{worst['paper']['row']}, {worst['task']} (worst of {len(rows)})"
    mark = ALIKE if abs(off) <= _OF_THE_PAPER else OTHER
    return Claim("the paper's rows", mark, f"{off:+.2f}", f"{_OF_THE_PAPER}", evidence)
