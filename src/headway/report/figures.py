"""Accuracy (the loss, where targets are numbers) over rounds and over megabytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.data.participation import in_words
from headway.runs.run import Result
from headway.runs.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555", "#ee8866")
_DASHES = ("-", "--", "-.", ":")


def _curve(seeds: list[Result], key: str, axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Places, shape (evaluations,), and values, shape (seeds, evaluations), where every seed was evaluated.

    Accuracies are percentages.
    """
    scale = 1 if key == "loss" else 100
    tables = [[record for record in one.records if key in record] for one in seeds]
    length = min(len(table) for table in tables)
    places = [
        record["round"] if axis == "round" else (record["bytes_down_total"] + record["bytes_up_total"]) / 1e6
        for record in tables[0][:length]
    ]
    values = [[record[key] * scale for record in table[:length]] for table in tables]
    return np.array(places, dtype=float), np.array(values, dtype=float)


def _numeric(study: Study) -> bool:
    """Whether the targets are numbers: there are losses and no accuracies."""
    return not any("accuracy" in record for seeds in study.runs.values() for one in seeds for record in one.records)


def _draw(axes: Axes, study: Study, axis: str) -> None:
    thick, thin = ("loss", "loss") if _numeric(study) else ("accuracy_smoothed", "accuracy")
    for number, (name, seeds) in enumerate(study.runs.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        style: dict[str, Any] = {
            "color": colour,
            "linestyle": _DASHES[(number // len(_COLOURS)) % len(_DASHES)],
        }
        places, smooth = _curve(seeds, thick, axis)
        _, raw = _curve(seeds, thin, axis)
        axes.plot(places, raw.mean(0), linewidth=0.8, alpha=0.35, **style)
        axes.plot(places, smooth.mean(0), linewidth=2, label=name, **style)
        if len(seeds) > 1:
            spread = smooth.std(0, ddof=1)
            axes.fill_between(
                places,
                smooth.mean(0) - spread,
                smooth.mean(0) + spread,
                color=colour,
                alpha=0.15,
                linewidth=0,
            )


def compare_picture(study: Study, path: Path) -> Path:
    """Smoothed accuracy (thick), raw accuracy (thin) or the loss, ± one deviation over seeds, and the target."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 11}):
        figure = Figure(figsize=(11, max(4.4, 0.21 * len(study.runs))), layout="constrained")
        FigureCanvasAgg(figure)
        left, right = figure.subplots(1, 2, sharey=True)
        for axes, axis, label in (
            (left, "round", "communication round"),
            (right, "bytes", "megabytes sent, down and up"),
        ):
            _draw(axes, study, axis)
            if study.target is not None:
                axes.axhline(study.target * 100, color="#888888", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
            axes.set_xlabel(label)
            axes.set_xlim(left=0)
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        left.set_ylabel("test loss, mean squared error" if _numeric(study) else "test accuracy, %")
        if len(study.runs) <= 8:
            right.legend(frameon=False, loc="upper right" if _numeric(study) else "lower right")
        else:
            figure.legend(*right.get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
        scenario = next(iter(study.runs.values()))[0].scenario
        figure.suptitle(
            f"{scenario.data}, {scenario.partition}, {in_words(scenario)}",
            fontsize=11,
        )
        figure.savefig(path, dpi=130)
    return path
