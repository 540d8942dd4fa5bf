"""The verdict: claims of sameness with the original, and the evidence for each."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import scipy.stats

from bert_flow_tf.results.records import Checked, Verification, summarize
from bert_flow_tf.results.rows import ScoreRow
from bert_flow_tf.results.table import Table, number

SAME, ALIKE, DIFFERENT, NOT_RUN = "✓", "≈", "✗", "–"
# x100. Without a flow nothing is random: what is left is rounding, of cosines whose ranks are compared.
_ROUNDING = 0.03
# x100. The deviation over seeds in the paper's Table 8 is up to half of that.
_OF_THE_PAPER = 1.0
_SEEDS = 5
SELF_CHECK = "self-check"
_REPRODUCE = "bert-flow reproduce --bert_hub demo --glue_dir GLUE --rows avg,last2avg,flow-target --seeds 5 --out DIR"


class Claim(NamedTuple):
    """One claim, a mark of the four above, and in words its deviation, the limit of that, and the evidence."""

    name: str
    mark: str
    deviation: str
    limit: str
    evidence: str


def verdict(verifications: Iterable[Verification], rows: Sequence[ScoreRow]) -> list[Claim]:
    """Return the claims that results decide, and those that they leave open; empty where they decide none."""
    claims = [claim for one in verifications for claim in _computed(one)]
    claims = claims or [Claim("computation", NOT_RUN, "", "", "bert-flow verify")]
    claims += [_without_flow(rows), *_with_flow(rows), _paper(rows)]
    return claims if any(claim.mark != NOT_RUN for claim in claims) else []


def verdict_table(claims: Sequence[Claim]) -> Table:
    """Return a row for each claim; a self-check alone says nothing of the original."""
    by_original = any(claim.mark != NOT_RUN and not claim.evidence.startswith(SELF_CHECK) for claim in claims)
    question = "is it the original?" if by_original else "does the flow keep its equations?"
    note = f"{SAME} equal up to rounding; {ALIKE} statistically indistinguishable, or near; {DIFFERENT} different; "
    return Table((question, "", "deviation", "limit", "evidence"), claims, notes=[f"{note}{NOT_RUN} not run."])


def _computed(verification: Verification) -> Iterator[Claim]:
    """Yield a claim for each group of deviations, which their names begin with, by the one nearest to its limit."""
    groups: dict[str, list[Checked]] = {}
    for one in verification.deviations:
        groups.setdefault(one.what.partition(",")[0], []).append(one)
    for group, found in groups.items():
        sizes = [math.inf if one.found is None else one.found for one in found]
        size, worst = max(zip(sizes, found, strict=True), key=lambda one: one[0] / (one[1].limit or 1e-300))
        what = worst.what.removeprefix(f"{group}, ")
        evidence = f"{verification.evidence}: {what}{f' (worst of {len(found)})' if len(found) > 1 else ''}"
        deviation = "not finite" if worst.found is None else f"{worst.found:.0e}"
        yield Claim(group, DIFFERENT if size > worst.limit else SAME, deviation, f"{worst.limit:.0e}", evidence)
    yield from (Claim("every check", DIFFERENT, "", "", failed) for failed in verification.failed)
    yield from (Claim("more of it", NOT_RUN, "", "", reason) for reason in verification.not_run)


def _without_flow(rows: Sequence[ScoreRow]) -> Claim:
    name = "scores without flow"
    compared = [(row, row.published.original[0]) for row in rows if row.model.flow is None and row.published.original]
    if not compared:
        return Claim(name, NOT_RUN, "", "", _REPRODUCE)
    off = max((row.mean_x100 - theirs for row, theirs in compared), key=abs)
    pairs = (f"{row.task}, {row.model.pooling} {row.mean_x100:.2f} for {theirs:.2f}" for row, theirs in compared)
    return Claim(name, SAME if abs(off) <= _ROUNDING else DIFFERENT, f"{off:+.3f}", f"{_ROUNDING}", "; ".join(pairs))


def _with_flow(rows: Sequence[ScoreRow]) -> Iterator[Claim]:
    """Yield a comparison of distributions for each row: both codes are random, one seed gives them other numbers."""
    compared = [row for row in rows if row.model.flow is not None and row.published.original]
    if not compared:
        yield Claim("scores with flow", NOT_RUN, "", "", _REPRODUCE)
    for row in compared:
        name, ours, theirs = f"scores with flow, {row.model.pooling}", row.values_x100, row.published.original
        evidence = f"{row.task}: {_spread(ours)} over {len(ours)} seeds for {_spread(theirs)} over {len(theirs)} runs"
        is_enough, low, high = len(ours) >= _SEEDS and len(theirs) > 1, -math.inf, math.inf
        if is_enough:
            low, high = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
        # A wide interval holds 0 almost wherever it lies.
        if high - low > 2 * _OF_THE_PAPER:
            yield Claim(name, NOT_RUN, "", "more seeds" if is_enough else f"{_SEEDS} seeds", evidence)
            continue
        off = f"{sum(ours) / len(ours) - sum(theirs) / len(theirs):+.2f} [{low:+.2f}, {high:+.2f}]"
        yield Claim(name, ALIKE if low <= 0 <= high else DIFFERENT, off, "95% interval holds 0", evidence)


def _spread(values: Sequence[float]) -> str:
    summary = summarize(values)
    return number(summary.mean, spread=summary.std).text or ""


def _paper(rows: Sequence[ScoreRow]) -> Claim:
    name, found = "the paper's rows", [(row, row.published.paper) for row in rows if row.published.paper is not None]
    if not found:
        return Claim(name, NOT_RUN, "", "", "needs the weights of BERT-base or -large: --bert_premodels")
    worst, paper = max(found, key=lambda one: abs(one[0].mean_x100 - one[1]))
    off, evidence = worst.mean_x100 - paper, f"{worst.published.row}, {worst.task} (worst of {len(found)})"
    return Claim(name, ALIKE if abs(off) <= _OF_THE_PAPER else DIFFERENT, f"{off:+.2f}", f"{_OF_THE_PAPER}", evidence)
