"""Pictures of embeddings, calibrations and trainings, from typed results."""

from bert_flow_tf.report.plots.agreement import ScoredPairs, gold, reliability
from bert_flow_tf.report.plots.bars import Score, bars, scores_of_comparison
from bert_flow_tf.report.plots.cosines import cosines, cosines_of
from bert_flow_tf.report.plots.losses import losses
from bert_flow_tf.report.plots.plane import plane
from bert_flow_tf.report.plots.spectrum import spectrum
from bert_flow_tf.report.plots.style import Picture, panels, save, to_svg
from bert_flow_tf.report.plots.words import distances, frequency, word_plane

__all__ = [
    "Picture",
    "Score",
    "ScoredPairs",
    "bars",
    "cosines",
    "cosines_of",
    "distances",
    "frequency",
    "gold",
    "losses",
    "panels",
    "plane",
    "reliability",
    "save",
    "scores_of_comparison",
    "spectrum",
    "to_svg",
    "word_plane",
]
