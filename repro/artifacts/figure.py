"""The convergence of one trace as an SVG: times of the rounds, running best recomputed and published, and the floor.

Matplotlib is imported here alone and only when a figure is drawn. The same trace gives the same bytes.
"""

from __future__ import annotations

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.artifacts import layout, readme, trace
from repro.errors import PrerequisiteError, UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that can be distinguished with every common colour vision (Okabe and Ito).
BEST, PUBLISHED, ROUNDS, FLOOR = "#0072B2", "#D55E00", "#777777", "#009E73"
WIDTH_IN, HEIGHT_IN = 7.2, 4.0


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


def alt(facts: dict[str, Any]) -> str:
    """Return the figure in one or two sentences, for readers without the picture. facts: `trace.summary`."""
    timed = [r for r in facts["rounds"] if r["time_ms"] is not None]
    first, last = timed[0]["running_best_ms"], timed[-1]["running_best_ms"]
    text = (
        f"Running best kernel time of {facts['problem']} over {len(timed)} rounds: {first:.4g} ms after round "
        f"{timed[0]['round']}, {last:.4g} ms after round {timed[-1]['round']}, reached in round {facts['best_round']}."
    )
    published = [r for r in facts["rounds"] if r["published_best_ms"] is not None]
    if published:
        text += f" The README ends at {published[-1]['published_best_ms']:.4g} ms."
    if facts["floor_ms"]:
        text += f" The floor is {facts['floor_ms']:.4g} ms."
    return text


def svg(facts: dict[str, Any]) -> str:
    """The figure of one artifact (`trace.summary`) as SVG text, with a title and a description for screen readers.

    At least one round must have a time. Raises PrerequisiteError without matplotlib.
    """
    matplotlib = plotting()
    with matplotlib.rc_context({"svg.hashsalt": "repro", "svg.fonttype": "none", "font.size": 10}):
        figure = matplotlib.figure.Figure(figsize=(WIDTH_IN, HEIGHT_IN), layout="constrained")
        canvas = matplotlib.backends.backend_svg.FigureCanvasSVG(figure)
        _draw(figure.add_subplot(), facts)
        out = io.StringIO()
        title = f"Convergence of {facts['problem']}"
        canvas.print_svg(out, metadata={"Title": title, "Date": None, "Creator": "repro"})
    text = out.getvalue()
    described = f'role="img" aria-label="{html.escape(alt(facts), quote=True)}"'
    head, _, rest = text.partition("<svg ")
    return f"{head}<svg {described} {rest}"


def _draw(axes: Axes, facts: dict[str, Any]) -> None:
    own = {r["round"]: r["time_ms"] for r in facts["rounds"] if r["time_ms"] is not None}
    best = {r["round"]: r["running_best_ms"] for r in facts["rounds"] if r["running_best_ms"] is not None}
    published = {r["round"]: r["published_best_ms"] for r in facts["rounds"] if r["published_best_ms"] is not None}
    axes.step(list(own), list(own.values()), where="mid", color=ROUNDS, linewidth=1, marker="o", markersize=4,
              label="time of the round")  # fmt: skip
    axes.step(list(best), list(best.values()), where="mid", color=BEST, linewidth=2.2, label="running best, recomputed")
    if published:
        axes.step(list(published), list(published.values()), where="mid", color=PUBLISHED, linewidth=1.6,
                  linestyle="--", label="running best, as published")  # fmt: skip
    if facts["floor_ms"]:
        label = f"floor {facts['floor_ms']:.3g} ms: compulsory bytes in bfloat16 at {facts['bandwidth_gb_s']:.0f} GB/s"
        axes.axhline(facts["floor_ms"], color=FLOOR, linewidth=1.4, linestyle=":", label=label)
    axes.set_title(f"Convergence of {facts['problem']}")
    axes.set_xlabel("round")
    axes.set_ylabel("kernel time (ms)")
    axes.set_xticks(sorted({*own, *published}))
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)


def draw(root: Path, names: list[str], out: Path | None) -> tuple[list[Path], dict[str, str]]:
    """Writes a figure of every artifact below `root` that has times. Returns the files, and artifact -> why not.

    out: a file, or with several artifacts a folder; without it `<folder>_convergence.svg` in the current folder.
    Raises UsageError where there is nothing to draw or nowhere to write.
    """
    found = layout.find(root, names)
    published = readme.read(*layout.readme(root)).artifacts
    left_out = {a.name: f"no round in {layout.TRACE} has a time" for a in found if not trace.times(a)}
    if len(left_out) == len(found):
        raise UsageError(f"nothing to draw in {root}", next(iter(left_out.values())))
    folder = len(found) > 1 or out is None or out.is_dir()
    files = []
    for artifact in found:
        if artifact.name in left_out:
            continue
        text = svg(trace.summary(artifact, published[artifact.number or 0]))
        file = (out or Path()) / f"{artifact.name}_convergence.svg" if folder or out is None else out
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        except OSError as error:
            raise UsageError(f"cannot write {file}", error.strerror or str(error)) from error
        files.append(file)
    return files, left_out
