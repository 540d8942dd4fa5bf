"""The verdict: does this code give the original's results?"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import scipy.stats

from bert_flow_tf.common.table import Table, number
from bert_flow_tf.report.collected import Checked, Verification
from bert_flow_tf.report.rows import ScoreRow, summarize

SAME = "✓"
ALIKE = "≈"
DIFFERENT = "✗"
NOT_RUN = "–"
# Without a flow nothing is random; this limit, for scores times 100, allows for the rounding of
# cosines.
_ROUNDING = 0.03
# This limit is twice the largest deviation over seeds in the paper's Table 8.
_NEAR_PAPER = 1.0
_SEEDS = 5
_REPRODUCE = (
    "bert-flow reproduce --bert_hub demo --glue_dir GLUE --rows avg,last2avg,flow-target "
    "--seeds 5 --out DIR"
)
_NOT_THE_PAPERS = (
    "without a flow nothing is random, so the encoder's weights are not the paper's BERT"
)
_NEEDS_BERT = "needs the weights of BERT-base or -large: --bert_premodels"


class Claim(NamedTuple):
    """A claim and the comparison that decided it.

    Attributes:
      mark: SAME, ALIKE, DIFFERENT or NOT_RUN.
      deviation: the largest difference, or its 95 % interval; "" if nothing was compared.
      evidence: where the deviation comes from, or the command that measures it.
    """

    name: str
    mark: str
    deviation: str
    limit: str
    evidence: str


def verdict(verifications: Iterable[Verification], rows: Sequence[ScoreRow]) -> list[Claim]:
    """Return all claims, or [] if the results decide no claim."""
    claims = [claim for one in verifications for claim in _computed(one)]
    claims = claims or [Claim("computation", NOT_RUN, "", "", "bert-flow verify")]
    known = [row for row in rows if row.published.original]
    plain = [(row, row.published.original[0]) for row in known if not row.model.flow]
    papers = [(row, row.published.paper) for row in rows if row.published.paper is not None]
    claims += [
        _largest("scores without flow", SAME, _ROUNDING, plain, _REPRODUCE),
        *_over_seeds(known),
    ]
    claims.append(_beside_paper(papers))
    return claims if any(claim.mark != NOT_RUN for claim in claims) else []


def verdict_table(claims: Sequence[Claim]) -> Table:
    note = (
        f"{SAME} equal up to rounding; {ALIKE} statistically indistinguishable, or near; "
        f"{DIFFERENT} different; "
    )
    columns = ("same as the original?", "", "deviation", "limit", "evidence")
    return Table(columns, claims, notes=[f"{note}{NOT_RUN} not run."])


def _computed(verification: Verification) -> Iterator[Claim]:
    groups: dict[str, list[Checked]] = {}
    for one in verification.deviations:
        groups.setdefault(one.what.partition(",")[0], []).append(one)
    for group, found in groups.items():
        worst = max(
            found,
            key=lambda one: (math.inf if one.found is None else one.found) / (one.limit or 1e-300),
        )
        what = worst.what.removeprefix(f"{group}, ")
        evidence = (
            f"{verification.evidence}: "
            f"{what}{f' (worst of {len(found)})' if len(found) > 1 else ''}"
        )
        deviation = "not finite" if worst.found is None else f"{worst.found:.0e}"
        is_same = worst.found is not None and worst.found <= worst.limit
        yield Claim(
            group, SAME if is_same else DIFFERENT, deviation, f"{worst.limit:.0e}", evidence
        )
    yield from (Claim("every check", DIFFERENT, "", "", failed) for failed in verification.failed)
    yield from (Claim("other checks", NOT_RUN, "", "", reason) for reason in verification.not_run)


def _beside_paper(papers: Sequence[tuple[ScoreRow, float]]) -> Claim:
    """Return the claim about the paper's rows, and on which encoder."""
    claim = _largest("the paper's rows", ALIKE, _NEAR_PAPER, papers, _NEEDS_BERT)
    plain = [abs(row.mean_x100 - paper) for row, paper in papers if row.model.flow is None]
    if max(plain, default=0) <= _NEAR_PAPER:
        return claim
    return claim._replace(evidence=f"{claim.evidence}; {_NOT_THE_PAPERS}")


def _largest(
    name: str, mark: str, limit: float, compared: Sequence[tuple[ScoreRow, float]], missing: str
) -> Claim:
    """Return a claim about the largest difference between two scores."""
    if not compared:
        return Claim(name, NOT_RUN, "", "", missing)
    row, theirs = max(compared, key=lambda one: abs(one[0].mean_x100 - one[1]))
    difference = row.mean_x100 - theirs
    words = row.published.row or row.model.pooling
    evidence = f"{row.task}, {words} {row.mean_x100:.2f}, expected {theirs:.2f}"
    evidence += f" (worst of {len(compared)})" if len(compared) > 1 else ""
    return Claim(
        name,
        mark if abs(difference) <= limit else DIFFERENT,
        f"{difference:+.3f}",
        f"{limit}",
        evidence,
    )


def _over_seeds(rows: Sequence[ScoreRow]) -> Iterator[Claim]:
    """Yield claims about distributions over seeds.

    Single seeds are not compared, because the same seed gives both codes different numbers.
    """
    with_flow = [row for row in rows if row.model.flow is not None]
    if not with_flow:
        yield Claim("scores with flow", NOT_RUN, "", "", _REPRODUCE)
    for row in with_flow:
        name = f"scores with flow, {row.model.pooling}"
        ours = row.values_x100
        theirs = row.published.original
        evidence = (
            f"{_spread(ours)} over {len(ours)} seeds, expected {_spread(theirs)} over "
            f"{len(theirs)} runs"
        )
        evidence = f"{row.task}: {evidence}"
        if len(ours) < _SEEDS or len(theirs) < 2:
            yield Claim(name, NOT_RUN, "", f"{_SEEDS} seeds", evidence)
            continue
        low, high = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval()
        difference = (
            f"{sum(ours) / len(ours) - sum(theirs) / len(theirs):+.2f} [{low:+.2f}, {high:+.2f}]"
        )
        # A wide interval may hold 0 although the scores differ.
        is_wide = high - low > 2 * _NEAR_PAPER
        mark = ALIKE if low <= 0 <= high else DIFFERENT
        limit = "too wide to tell" if is_wide else "95% interval holds 0"
        yield Claim(
            name, NOT_RUN if is_wide and mark == ALIKE else mark, difference, limit, evidence
        )


def _spread(values: Sequence[float]) -> str:
    summary = summarize(values)
    return number(summary.mean, spread=summary.std).text or ""
