"""Histories of fits with known figures."""

import dataclasses

import numpy as np

from bert_flow_tf.calibration.history import History
from bert_flow_tf.calibration.judgement import BestF1, Judgement, Measured
from bert_flow_tf.calibration.witness import Witness
from bert_flow_tf.vectors.isotropy import Change, measure_isotropy
from bert_flow_tf.vectors.thresholds import Threshold


def history(
    spearman=None,
    interval=(0.0, 0.0),
    auc=None,
    f1=None,
    witness=None,
    directions=30,
    mean_cosine=None,
    threshold=None,
    choice="",
):
    """Return a history.

    Args:
      spearman: before and after; `interval` is that of the change.
      auc: after.
      f1: after, with its cosine.
      witness: before and after.
      mean_cosine, threshold: after.
    """
    judgement = None
    if spearman:
        measures = {"spearman": Measured(*spearman, *interval)}
        if auc:
            measures["auc"] = Measured(auc, auc, 0.0, 0.0)
        best = f1 and (BestF1(*f1, 0.01), BestF1(*f1, 0.02))
        judgement = Judgement(60, measures, ("spearman",), best)
    change = None
    if mean_cosine:
        rows = np.random.default_rng(0).normal(size=(20, 4))
        isotropy = dataclasses.replace(measure_isotropy(rows), mean_cosine=mean_cosine)
        change = Change(isotropy, isotropy)
    cut = threshold and Threshold(
        false_matches=1e-3, cosine=threshold, low=threshold, high=threshold, sentences=200
    )
    return History(
        judgement=judgement,
        witness=witness and Witness(100, *witness, directions),
        change=change,
        thresholds=cut and (cut, cut),
        choice=choice,
    )
