"""Losses by step, of one or several trainings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.losses import Losses
from bert_flow_tf.report.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Beyond so many steps, a curve shows means of windows, because single batches would hide it.
_MOST_POINTS = 400


def losses(trainings: Mapping[str, Losses], *, ax: "Axes | None" = None) -> "Figure":
    """Draw training losses as lines and held-out losses as markers, by name.

    Args:
      trainings: by name, see `training.run_losses.read_losses` and `History.recorded_losses`.
    """
    units = sorted({one.unit for one in trainings.values()})
    if len(units) != 1:
        raise ArgumentError(
            f"panels: found losses in {' and '.join(units) or 'no unit'}, expected trainings of "
            "one kind"
        )
    axes = style.own_axes(ax)
    names = style.shortened([*trainings])
    for i, (name, one) in enumerate(zip(names, trainings.values(), strict=True)):
        look = style.look(i)
        steps, values = _windows(one.training)
        title = f"{name}, " if len(trainings) > 1 else ""
        axes.plot(
            steps,
            values,
            color=look.colour,
            linewidth=1,
            linestyle=look.line,
            alpha=0.8,
            label=style.entry(f"{title}training"),
        )
        if one.held_out:
            axes.plot(
                [*one.held_out],
                [*one.held_out.values()],
                color=look.colour if len(trainings) > 1 else style.look(1).colour,
                marker=look.marker,
                markersize=4,
                linewidth=0.8,
                label=style.entry(f"{title}held out"),
            )
    every = np.concatenate([_windows(one.training)[1] for one in trainings.values()])
    if every.size > 50:
        # The first steps fall from a height that would flatten everything later.
        held_out = [value for one in trainings.values() for value in one.held_out.values()]
        high = max(np.percentile(every, 98), np.percentile(held_out or every, 95))
        low = min(every.min(), min(held_out, default=high))
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    axes.locator_params(axis="x", nbins=6)
    style.label(axes, "Losses of the training", "step", f"loss ({units[0]})")
    style.legend(axes, loc="upper right")
    return axes.figure  # type: ignore[return-value]


def _windows(by_step: Mapping[int, float]) -> tuple[np.ndarray, np.ndarray]:
    steps, values = np.array([*by_step], float), np.array([*by_step.values()])
    count = min(len(steps), _MOST_POINTS)
    parts = np.array_split(np.arange(len(steps)), count)
    means = [(steps[part].mean(), values[part].mean()) for part in parts]
    return tuple(np.transpose(means))  # type: ignore[return-value]
