"""The verdict: what decides a claim, and what leaves it open."""

import pytest

from bert_flow_tf.report.collected import Checked, Verification
from bert_flow_tf.report.paper import Published
from bert_flow_tf.report.rows import ScoreRow
from bert_flow_tf.report.verdict import Claim, verdict
from tests.bert_flow_tf import records


def verification(*deviations, failed=(), not_run=()):
    checked = [Checked(what=what, found=found, limit=limit) for what, found, limit in deviations]
    parts = {"deviations": checked, "failed": [*failed], "not_run": [*not_run]}
    return Verification(made_by=records.MADE_BY, evidence="tests", **parts)


def row(ours, original=(), paper=None, **of_model):
    published = Published("BERT-base", paper, None, tuple(original))
    of_task = {
        "task": "STS-B",
        "split": "test",
        "metric": "spearman",
        "protocol": None,
        "pairs": 1379,
    }
    model = records.model(pooling="avg", **of_model)
    return ScoreRow(
        name="run", model=model, seeds=[], **of_task, values_x100=ours, published=published
    )


def claim_of(name, scores):
    (found,) = (one for one in verdict([], scores) if one.name == name)
    return found


def test_what_nothing_decides_is_open():
    assert verdict([], [row([82.0])]) == []
    assert {claim.name: claim.mark for claim in verdict([], [row([82.03], [82.03])])} == {
        "computation": "–",
        "scores without flow": "✓",
        "scores with flow": "–",
        "the paper's rows": "–",
    }


def test_a_group_stands_with_the_deviation_nearest_its_limit():
    checked = [("flow, z", 1e-6, 2e-6), ("flow, loss", 4e-6, 1e-5), ("tokenizer, strings", 0, 0)]
    claims = verdict([verification(*checked, failed=["test_x"], not_run=["no data"])], [])
    assert claims[:2] == [
        Claim("flow", "✓", "1e-06", "2e-06", "tests: z (worst of 2)"),
        Claim("tokenizer", "✓", "0e+00", "0e+00", "tests: strings"),
    ]
    assert [(claim.mark, claim.evidence) for claim in claims[2:4]] == [
        ("✗", "test_x"),
        ("–", "no data"),
    ]
    for found, limit, said in ((3e-6, 2e-6, "3e-06"), (1, 0, "1e+00"), (None, 2e-6, "not finite")):
        claim, *_ = verdict(
            [verification(("flow, z", found, limit), ("flow, loss", 1e-5, 1e-5))], []
        )
        assert (claim.mark, claim.evidence, claim.deviation) == ("✗", "tests: z (worst of 2)", said)


def test_scores_without_flow_differ_by_rounding_alone():
    for ours, mark in {82.04: "✓", 82.01: "✓", 82.07: "✗", 81.99: "✗"}.items():
        assert (
            claim_of("scores without flow", [row([82.03], [82.03]), row([ours], [82.03])]).mark
            == mark
        )
    for paper, mark in {59.5: "≈", 61.0: "✗"}.items():
        assert (
            claim_of(
                "the paper's rows", [row([59.04], paper=59.04), row([59.04], paper=paper)]
            ).mark
            == mark
        )


@pytest.mark.parametrize(
    ("ours", "theirs", "mark", "limit"),
    [
        ([80.0, 80.2, 80.4, 80.1, 80.3], [80.3, 80.1, 80.5], "≈", "95% interval holds 0"),
        ([80.0, 80.2, 80.4, 80.1, 80.3], [81.3, 81.1, 81.5], "✗", "95% interval holds 0"),
        ([80.0, 80.2, 80.4, 80.1], [80.3, 80.1, 80.5], "–", "5 seeds"),
        ([80.0, 80.2, 80.4, 80.1, 80.3], [80.3], "–", "5 seeds"),
        ([78.0, 82.2, 80.4, 76.1, 84.3], [80.3, 80.1, 80.5], "–", "too wide to tell"),
    ],
)
def test_scores_over_seeds_are_compared_as_distributions(ours, theirs, mark, limit):
    plain, flow = row([82.03], [82.03]), row(ours, theirs, flow=records.flow())
    claim = claim_of("scores with flow, avg", [flow, plain])
    assert (claim.mark, claim.limit) == (
        mark,
        limit,
    ) and f"over {len(ours)} seeds, expected" in claim.evidence
    assert claim_of("scores without flow", [flow, plain]).mark == "✓"


def test_every_row_with_a_flow_is_judged():
    theirs, flow = (80.3, 80.1, 80.5), records.flow()
    rows = [
        row([ours, ours + 0.2, ours + 0.1, ours - 0.1, ours], theirs, flow=flow)
        for ours in (90.0, 80.2)
    ]
    assert [one.mark for one in verdict([], rows) if one.name == "scores with flow, avg"] == [
        "✗",
        "≈",
    ]


def test_the_interval_of_a_difference_is_welchs():
    ours, theirs = [80.0, 80.2, 80.4, 80.1, 80.3], [80.3, 80.1, 80.5]
    # If the variances were the same, the interval would be from -0.41 to +0.21.
    found = claim_of("scores with flow, avg", [row(ours, theirs, flow=records.flow())]).deviation
    assert found == "-0.10 [-0.50, +0.30]"


def test_an_encoder_that_is_not_the_papers_is_named_once():
    far = [row([12.55], paper=47.29), row([20.0], paper=59.04)]
    claim = claim_of("the paper's rows", far)
    assert (claim.mark, claim.deviation) == ("✗", "-39.040")
    assert claim.evidence.endswith("the encoder's weights are not the paper's BERT")
    near = claim_of("the paper's rows", [row([47.3], paper=47.29)])
    assert "weights" not in near.evidence
