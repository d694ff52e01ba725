"""The convergence of one trace as an SVG: times of the rounds, the running best and the floor.

Matplotlib is imported here alone and only when a figure is drawn. The same trace gives the same bytes.
"""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.artifacts import layout, trace
from repro.artifacts.trace import Facts
from repro.errors import PrerequisiteError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that can be distinguished with every common colour vision (Okabe and Ito).
_BEST, _ROUNDS, _FLOOR = "#0072B2", "#777777", "#009E73"
_SIZE_IN = 7.2, 4.0


def plotting() -> Any:
    """Return matplotlib with all that a figure needs. Raises PrerequisiteError if it is not installed."""
    try:
        import matplotlib
        import matplotlib.backends.backend_svg
        import matplotlib.figure
    except ImportError as error:
        remedy = "Run `make setup` or `pip install .` in a checkout."
        raise PrerequisiteError("a figure needs matplotlib", str(error), remedy) from error
    return matplotlib


def alt(facts: Facts) -> str:
    """Return the figure in one or two sentences, for readers without the picture."""
    timed = [r for r in facts.rounds if r.time_ms is not None]
    first, last = timed[0], timed[-1]
    text = (
        f"Running best kernel time of {facts.problem} over {len(timed)} rounds: {first.running_best_ms:.4g} ms after "
        f"round {first.round}, {last.running_best_ms:.4g} ms after round {last.round}, reached in round "
        f"{facts.best_round}."
    )
    return text + (f" The floor is {facts.floor_ms:.4g} ms." if facts.floor_ms else "")


def svg(facts: Facts) -> str:
    """The figure of one artifact as SVG text, with a title and a description for screen readers.

    At least one round must have a time. Raises PrerequisiteError without matplotlib.
    """
    matplotlib = plotting()
    with matplotlib.rc_context({"svg.hashsalt": "repro", "svg.fonttype": "none", "font.size": 10}):
        figure = matplotlib.figure.Figure(figsize=_SIZE_IN, layout="constrained")
        canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
        _draw(figure.add_subplot(), facts)
        out = io.StringIO()
        title = f"Convergence of {facts.problem}"
        canvas.print_svg(out, metadata={"Title": title, "Date": None, "Creator": "repro"})
    text = out.getvalue()
    described = f'role="img" aria-label="{html.escape(alt(facts), quote=True)}"'
    head, _, rest = text.partition("<svg ")
    return f"{head}<svg {described} {rest}"


def _draw(axes: Axes, facts: Facts) -> None:
    own = {r.round: r.time_ms for r in facts.rounds if r.time_ms is not None}
    best = {r.round: r.running_best_ms for r in facts.rounds if r.running_best_ms is not None}
    axes.step(list(own), list(own.values()), where="mid", color=_ROUNDS, linewidth=1, marker="o", markersize=4,
              label="time of the round")  # fmt: skip
    axes.step(list(best), list(best.values()), where="mid", color=_BEST, linewidth=2.2,
              label="running best, recomputed")  # fmt: skip
    if facts.floor_ms:
        label = f"floor {facts.floor_ms:.3g} ms: compulsory bytes in bfloat16 at {facts.bandwidth_gb_s:.0f} GB/s"
        axes.axhline(facts.floor_ms, color=_FLOOR, linewidth=1.4, linestyle=":", label=label)
    axes.set_title(f"Convergence of {facts.problem}")
    axes.set_xlabel("round")
    axes.set_ylabel("kernel time (ms)")
    axes.set_xticks(list(own))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)


def draw(root: Path, names: list[str], out: Path | None) -> tuple[list[Path], dict[str, str]]:
    """Writes a figure of every artifact below `root` that has times. Returns the files, and artifact -> why not.

    out: a file, or with several artifacts a folder; without it `<folder>_convergence.svg` in the current folder.
    Raises UsageError where there is nothing to draw or nowhere to write.
    """
    drawn, left_out = [], {}
    for artifact in layout.find(root, names):
        if trace.times(artifact):
            drawn.append(artifact)
        else:
            left_out[artifact.name] = f"no round in {layout.TRACE} has a time"
    if not drawn:
        raise UsageError(f"nothing to draw in {root}", next(iter(left_out.values())))
    folder = len(drawn) + len(left_out) > 1 or out is None or out.is_dir()
    files = []
    for artifact in drawn:
        file = (out or Path()) / f"{artifact.name}_convergence.svg" if folder or out is None else out
        text = svg(trace.summary(artifact))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write {file}", error.strerror or str(error)) from error
        files.append(file)
    return files, left_out
