"""The headline metric over rounds and over bytes sent; and how every picture looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.data.participation import in_words
from headway.errors import UserError
from headway.measure.curves import common
from headway.measure.headline import common_headline
from headway.measure.numbers import MethodNumbers
from headway.measure.over_clients import MEASURED
from headway.records import RoundRecord, value_of
from headway.report.clients import are_measured
from headway.report.units import unit_of_axis
from headway.runs.study import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#555555", "#ee8866")
_DASHES = ("-", "--", "-.", ":")

Place = Callable[[RoundRecord], float]
"""Where on the horizontal axis a record is."""


def line(number: int) -> dict[str, Any]:
    """Colour and dashes of one of many curves."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _DASHES[(number // len(COLOURS)) % len(_DASHES)],
    }


def a_round(record: RoundRecord) -> float:
    return float(record["round"])


def curve(
    seeds: Sequence[Sequence[RoundRecord]], key: str, place: Place, scale: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Places, shape (evaluations,), and values, shape (seeds, evaluations), where every seed was evaluated.

    Values of one round belong together. A place is the mean of the seeds' own. Without a scale, accuracies are
    percentages.
    """
    scale = scale or (100 if key.startswith("accuracy") else 1)
    shared = common(seeds, key)
    places = [sum(map(place, records)) / len(seeds) for records in shared]
    values = [[value_of(records[seed], key) * scale for records in shared] for seed in range(len(seeds))]
    return np.array(places, dtype=float), np.array(values, dtype=float)


def mean_line(axes: Axes, places: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """The mean over seeds, and one deviation to both sides; values of shape (seeds, evaluations)."""
    mean = values.mean(0)
    axes.plot(places, mean, **{"linewidth": 2, **style})
    if len(values) > 1:
        spread = values.std(0, ddof=1)
        axes.fill_between(places, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)


def raw_line(axes: Axes, places: np.ndarray, values: np.ndarray, **style: Any) -> None:
    """The mean over seeds, thin, behind what is smoothed."""
    axes.plot(places, values.mean(0), **{"linewidth": 0.8, "alpha": 0.35, **style})


def tidy(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def blank(width: float, height: float) -> Figure:
    """A figure in inches that needs no screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> Path:
    try:
        figure.savefig(path, dpi=130)
    except OSError as fault:
        raise UserError(f"the picture '{path}' cannot be written: {fault.strerror or fault}") from None
    return path


def shrunk(path: Path) -> Path:
    """A PNG file with 255 colours, which are near to all it had: a third of the bytes, where it is kept."""
    from PIL import Image  # which matplotlib brings

    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(255, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


def _sent(record: RoundRecord) -> float:
    return float(record["bytes_down_total"] + record["bytes_up_total"])


def most_sent(study: Study) -> float:
    """The most bytes that a run of a study sent, down and up."""
    return max((_sent(one.records[-1]) for seeds in study.runs.values() for one in seeds if one.records), default=0.0)


def _draw(axes: Axes, study: Study, place: Place) -> None:
    first = study.headline
    for number, (name, results) in enumerate(study.runs.items()):
        seeds = [one.records for one in results]
        raw_line(axes, *curve(seeds, first.metric, place, first.scale), **line(number))
        mean_line(axes, *curve(seeds, first.curve, place, first.scale), label=name, **line(number))


def _draw_clients(axes: Axes, rows: Sequence[MethodNumbers]) -> None:
    """A curve for each method: the clients in the order of their numbers, and these numbers, means over seeds."""
    first = common_headline(rows)
    for number, row in enumerate(rows):
        quantiles = row.get("client_quantiles")
        if quantiles is not None:
            places, values = np.linspace(0, 100, len(quantiles)), np.array(quantiles) * first.scale
            axes.plot(places, values, linewidth=2, **line(number))
    axes.set_xlabel(f"clients in order, % ({MEASURED})")
    axes.set_ylabel(f"{first.name} of a client{', %' if first.percent else ''}")
    axes.set_xlim(0, 100)
    tidy(axes)


def _panels(figure: Figure, rows: Sequence[MethodNumbers]) -> tuple[Axes, Axes]:
    """Two panels for the curves; where clients were measured, a third one is drawn beside them."""
    if not are_measured(rows):
        left, right = figure.subplots(1, 2, sharey=True)
        return left, right
    left, right, clients = figure.subplots(1, 3)
    right.sharey(left)
    right.tick_params(labelleft=False)
    _draw_clients(clients, rows)
    return left, right


FAR = 50
"""A loss or a perplexity that falls by more than this factor is drawn on a logarithmic axis."""


def _falls_far(study: Study) -> bool:
    """Whether the headline falls so far that its end would be flat on a linear axis."""
    first = study.headline
    records = (record for seeds in study.runs.values() for one in seeds for record in one.records)
    values = [value_of(record, first.curve) for record in records if first.curve in record]
    return bool(values) and not first.higher_is_better and 0 < FAR * min(values) < max(values)


def compare_picture(study: Study, path: Path) -> Path:
    """Write the picture of a comparison."""
    return save(compare_figure(study), path)


def compare_figure(study: Study) -> Figure:
    """The headline metric, smoothed (thick) and raw (thin), ± one deviation over seeds, and the target.

    Of short runs the raw metric is thick too: what is smoothed would be behind it. A third panel shows the
    distribution over clients where it was measured.
    """
    import matplotlib

    first = study.headline
    scenario = next(iter(study.runs.values()))[0].scenario
    judged = "test" if scenario.validation is None else "validation"
    with matplotlib.rc_context({"font.size": 11}):
        rows, unit = study.summary(), unit_of_axis(most_sent(study))
        figure = blank(16 if are_measured(rows) else 11, max(4.4, 0.21 * len(study.runs)))
        left, right = _panels(figure, rows)
        for axes, place, label in (
            (left, a_round, "communication round"),
            (right, lambda record: _sent(record) / unit.bytes, f"{unit.name} sent, down and up"),
        ):
            _draw(axes, study, place)
            if study.target is not None:
                axes.axhline(
                    study.target * first.scale, color="#888888", linewidth=0.9, linestyle=(0, (4, 3)), zorder=0
                )
            axes.set_xlabel(label)
            axes.set_xlim(left=0)
            tidy(axes)
        if _falls_far(study):
            left.set_yscale("log")
        left.set_ylabel(f"{judged} {first.name}{', %' if first.percent else ''}")
        if len(study.runs) <= 8:
            right.legend(frameon=False, loc="lower right" if first.higher_is_better else "upper right")
        else:
            figure.legend(*right.get_legend_handles_labels(), frameon=False, loc="outside right upper", fontsize=8)
        figure.suptitle(
            f"{scenario.data}, {scenario.partition}, {in_words(scenario)}",
            fontsize=11,
        )
        return figure
