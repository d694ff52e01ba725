"""Figures in a README. It is another study's prose: what is not understood is counted as unread, never guessed.

Read are tables of rounds (as rows or columns), of final times (one row an artifact) and of a profile's metrics, and
lines such as `input kernel: 9.5 ms`. Which artifact a figure is of stands in its row, its line or the heading above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

ROUND = re.compile(r"^(?:r|round)?\s*#?(\d{1,3})$", re.IGNORECASE)
# Commas only part thousands: `1,95` is not read.
NUMBER = r"(?<![\d.,])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![.,]?\d)"
UNIT = r"(?:\s?(?:[mµu]s|[GT]B/s|%)|[x×])(?![\w/])"
FIGURE = re.compile(rf"(?<![\w.,])\d[\d.,]*{UNIT}")
JOB = re.compile(rf"[~≈]?\s*\d[\d.,]*(?:{UNIT})?")
ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
# A name of an artifact in a line of text; headings and jobs also hold `4` or `L1_04`.
NAME = re.compile(r"(?<!\w)(?:L1_)?0*(\d{1,3})_[A-Za-z]")
# What a time is of, from a column's title or the words before it. The first that fits counts.
OF = {
    "compile": r"compile",
    "eager": r"\beager\b",
    "input": r"\binput\b|original",
    "optimized": r"optimi[sz]ed|\bopt\b",
}
BEST = re.compile(rf"\bbest\W+round\s+(\d+)\W+({NUMBER}\s?[mµu]s)\b", re.IGNORECASE)
LABELLED = re.compile(rf"\b(torch\.compile|compile|eager|(?:input|optimi[sz]ed|opt)(?: kernel)?)\s*[:=]\s*({NUMBER})"
                      r"(\s?[mµu]s\b)?", re.IGNORECASE)  # fmt: skip
TOTAL = re.compile(rf"\s({NUMBER})\s+({NUMBER})[x×]\s*$")
RATIO = re.compile(rf"(?<![\w.,])({NUMBER})[x×](?!\w)")
# A row of a table of metrics -> the metric of a profile and how many of its units the README's unit has.
METRICS = {
    r"dram.*throughput": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1.0),
    r"dram.*bandwidth": ("dram__bytes.sum.per_second", 1e9),
    r"compute.memory": ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", 1.0),
    r"compute.*throughput": ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 1.0),
    r"tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 1.0),
    r"occupancy": ("sm__warps_active.avg.pct_of_peak_sustained_active", 1.0),
    r"\bl1\b.*hit": ("l1tex__t_sector_hit_rate.pct", 1.0),
    r"\bl2\b.*hit": ("lts__t_sector_hit_rate.pct", 1.0),
}


@dataclass(frozen=True)
class Metric:
    """A figure of a profile. which: `input` or `optimized`. text: as in the README, with its unit.

    scale: what one of that unit is in the metric's unit. half: half of the last digit, in the metric's unit.
    """

    which: str
    name: str
    value: float
    half: float
    text: str
    unit: str
    scale: float


@dataclass
class Published:
    """A README's figures of one artifact, times in ms.

    rounds: round -> running best. own: round -> the round's time. times: what it is of (OF) -> every time given.
    speedups: ratio and half of its last digit.
    """

    rounds: dict[int, float] = field(default_factory=dict)
    own: dict[int, float] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    best_round: int | None = None
    speedups: list[tuple[float, float]] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)

    def ms(self, of: str) -> float | None:
        """Return the first time given of the input kernel, the optimized one, `compile` or `eager`."""
        return self.times.get(of, [None])[0]

    def add(self, of: str, value: float) -> None:
        self.times.setdefault(of, []).append(value)


@dataclass(frozen=True)
class Unread:
    """A figure that was not understood. artifact: by number; None if not known."""

    line: int
    text: str
    artifact: int | None


@dataclass
class Readme:
    """A README's figures by artifact number, and those that were not understood."""

    artifacts: dict[int, Published]
    unread: list[Unread] = field(default_factory=list)


@dataclass
class Table:
    """A markdown table below the heading of an artifact (`above`). read: row and column of what was understood."""

    above: int | None
    head: list[str]
    rows: list[list[str]]
    read: set[tuple[int, int]] = field(default_factory=set)

    def ms(self, at: int, column: int) -> float | None:
        """Return the time in a job, or None; it then counts as read."""
        row = self.rows[at]
        if column >= len(row) or (value := _ms(row[column], f"{self.head[column]} {row[0]}")) is None:
            return None
        self.read.add((at, column))
        return value


def read(text: str, numbers: set[int]) -> Readme:
    """Return a README's figures of the artifacts with these numbers."""
    found = Readme({n: Published() for n in numbers})
    above, level, fenced = None, 0, False
    named: int | None = None
    table: list[tuple[int, str]] = []
    for at, line in enumerate([*text.splitlines(), ""], 1):
        if not fenced and line.lstrip().startswith("|"):
            table.append((at, line))
            continue
        if table:
            _table(table, above, numbers, found)
            table = []
        if line.lstrip().startswith(("```", "~~~")):
            fenced, named = not fenced, None
        elif not fenced and (heading := re.match(r"(#+)\s+(.*)", line)):
            number = _named(_plain(heading[2]), numbers)
            if number is not None or len(heading[1]) <= level:
                above, level = number, len(heading[1])
        else:
            line = line if fenced else _plain(line)
            number = next((int(n) for n in NAME.findall(line) if int(n) in numbers), named)
            named = number if fenced else None
            _line(at, line, above if number is None else number, fenced, found)
    return found


def _plain(text: str) -> str:
    """Return markdown without emphasis, code marks and escapes: `04\\_Matrix` is `04_Matrix`."""
    return ESCAPED.sub(r"\1", re.sub(r"(?<!\\)[*`]", "", text)).strip()


def _jobs(line: str) -> list[str]:
    return [_plain(job) for job in re.split(r"(?<!\\)\|", re.sub(r"^\||(?<!\\)\|$", "", line.strip()))]


def _named(text: str, numbers: set[int]) -> int | None:
    """Return the artifact that a heading or a job names: `4_Matrix`, `[36_RMSNorm](...)`, `L1_36`, `36. RMSNorm`."""
    for match in re.finditer(r"(?<![\d.])(?:L1_)?0*(\d{1,3})(?=[_. :)\]-]*[A-Za-z]|\]|$)", text):
        if int(match.group(1)) in numbers and not re.search(r"round\s*$", text[: match.start()], re.IGNORECASE):
            return int(match.group(1))
    return None


def _value(text: str) -> float | None:
    match = re.search(NUMBER, text)
    return float(match.group().replace(",", "")) if match else None


def _half(text: str) -> float:
    """Return half of the last digit of the number in a text: 0.05 for 89.5, 0.5 for 2,189."""
    match = re.search(NUMBER, text)
    return 0.5 / 10.0 ** len(match.group().partition(".")[2] if match else "")


def _ms(job: str, title: str = "") -> float | None:
    """Return a time in ms. The unit is the job's, else that in the title of its column or row, else ms."""
    value = _value(job)
    unit = re.search(r"\d\s?([mµu]s)\b", job) or re.search(r"\b([mµu]s)\b", title)
    return value / 1e3 if value is not None and unit and unit[1] != "ms" else value


def _of(title: str) -> str | None:
    return next((of for of, words in OF.items() if re.search(words, title, re.IGNORECASE)), None)


def _line(at: int, line: str, artifact: int | None, fenced: bool, found: Readme) -> None:
    """Read labelled times and ratios of one line. The output of a script, in a fence, may leave units out."""
    if artifact is not None:
        published = found.artifacts[artifact]
        rest, told = line, False
        for match in BEST.finditer(line):
            published.best_round = int(match[1])
            rest, told = rest.replace(match[0], " "), True
            published.add("optimized", _ms(match[2]) or 0.0)
        for match in LABELLED.finditer(line):
            if match[3] or fenced:
                published.add(_of(match[1]) or match[1], _ms(match[2] + (match[3] or "")) or 0.0)
                rest, told = rest.replace(match[0], " "), True
        if fenced and not told and (total := TOTAL.search(line)):
            published.add("optimized", _ms(total[1]) or 0.0)
            told = True
        for match in RATIO.finditer(rest) if told else ():
            published.speedups.append((float(match[1].replace(",", "")), _half(match[1])))
            rest = rest.replace(match[0], " ")
        line = rest
    if not fenced or artifact is not None:
        found.unread += [Unread(at, match[0], artifact) for match in FIGURE.finditer(line)]


def _table(lines: list[tuple[int, str]], above: int | None, numbers: set[int], found: Readme) -> None:
    """Read one table; jobs with a figure that no reader took are unread."""
    rows = [_jobs(line) for _, line in lines]
    if len(rows) < 3 or not all(re.fullmatch(r"[:\- ]*", job) for job in rows[1]):
        for at, line in lines:
            _line(at, _plain(line), above, False, found)
        return
    table = Table(above, rows[0], [row[: len(rows[0])] for row in rows[2:]])
    down = any(ROUND.match(row[0]) for row in table.rows)
    if down and re.search(r"round|iteration", table.head[0], re.IGNORECASE):
        _rounds_down(table, numbers, found.artifacts)
    elif not down and sum(bool(ROUND.match(job)) for job in table.head[1:]) >= 2:
        _rounds_across(table, numbers, found.artifacts)
    elif above is not None and any(_metric(row[0]) for row in table.rows):
        _metrics(table, found.artifacts[above])
    else:
        _final(table, numbers, found.artifacts)
    united = re.search(r"\b([mµu]s|[GT]B/s|time|speed-?up|throughput)\b|%", " ".join([*rows[0], *(r[0] for r in rows)]))
    for at, row in enumerate(table.rows):
        for column, job in enumerate(row[1:], 1):
            if JOB.fullmatch(job) and (united or FIGURE.search(job)) and (at, column) not in table.read:
                named = _named(row[0], numbers)
                found.unread.append(Unread(lines[at + 2][0], job, above if named is None else named))


def _columns(head: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the running best and the own times (`rounds`, `own`) of a table of one artifact and their columns."""
    best = next((at for at, job in enumerate(head) if at and re.search("best", job, re.IGNORECASE)), None)
    words = r"time|runtime|latency|\b[mµu]s\b"
    time = next((at for at, job in enumerate(head) if at not in (0, best) and re.search(words, job, re.I)), None)
    if best is None:
        best, time = time, None
    yield from ((name, at) for name, at in (("rounds", best), ("own", time)) if at is not None)


def _rounds_down(table: Table, numbers: set[int], found: dict[int, Published]) -> None:
    named = {at: n for at, job in enumerate(table.head) if at and (n := _named(job, numbers)) is not None}
    columns = [(at, found[n].rounds) for at, n in named.items()]
    if not columns and table.above is not None:
        columns = [(at, getattr(found[table.above], name)) for name, at in _columns(table.head)]
    for at, row in enumerate(table.rows):
        match = ROUND.match(row[0])
        for column, into in columns if match else ():
            value = table.ms(at, column)
            if match and value is not None:
                into.setdefault(int(match.group(1)), value)


def _rounds_across(table: Table, numbers: set[int], found: dict[int, Published]) -> None:
    columns = {at: int(m.group(1)) for at, job in enumerate(table.head) if at and (m := ROUND.match(job))}
    any_best = any(re.search("best", row[0], re.IGNORECASE) for row in table.rows)
    for at, row in enumerate(table.rows):
        n = _named(row[0], numbers)
        n = table.above if n is None else n
        own = any_best and not re.search("best", row[0], re.IGNORECASE)
        if n is None or (own and not re.search(r"time|runtime|latency|\b[mµu]s\b", row[0], re.IGNORECASE)):
            continue
        for column, number in columns.items():
            value = table.ms(at, column)
            if value is not None:
                (found[n].own if own else found[n].rounds).setdefault(number, value)


def _metric(label: str) -> tuple[str, float] | None:
    return next((to for words, to in METRICS.items() if re.search(words, label, re.IGNORECASE)), None)


def _metrics(table: Table, published: Published) -> None:
    """Read a table of one artifact's profiles: a metric a row, the input and the optimised kernel as columns."""
    columns = {at: of for at, job in enumerate(table.head) if at and (of := _of(job)) in ("input", "optimized")}
    for at, row in enumerate(table.rows):
        known = _metric(row[0])
        for column, which in columns.items():
            job = row[column] if column < len(row) else ""
            value = _value(job)
            if known is None or value is None:
                continue
            scale = known[1] * (1e3 if "TB/s" in row[0] + job else 1)
            unit = "%" if scale == 1 else "TB/s" if "TB/s" in row[0] + job else "GB/s"
            text = f"{job.removesuffix(unit).strip()} {unit}"
            published.metrics.append(Metric(which, known[0], value * scale, _half(job) * scale, text, unit, scale))
            table.read.add((at, column))


def _final(table: Table, numbers: set[int], found: dict[int, Published]) -> None:
    """Read rows that name an artifact first, with times of its kernels and baselines, and speedups.

    A table with a baseline and one other column in ms has the optimised kernel's times in that column.
    """
    of = {at: None if re.search(r"speed|vs|%", job, re.I) else _of(job) for at, job in enumerate(table.head)}
    other = [at for at, job in enumerate(table.head) if at and of[at] is None and re.search(r"\b[mµu]s\b", job)]
    if "optimized" not in of.values() and any(of.values()) and len(other) == 1:
        of[other[0]] = "optimized"
    for at, row in enumerate(table.rows):
        n = _named(row[0], numbers)
        for column, job in enumerate(row) if n is not None else ():
            ratio, what = RATIO.search(job), of[column]
            if n is None or not column or re.search(r"%|[GT]B/s", job):
                continue
            if ratio and re.search(r"speed|vs|[x×]", table.head[column], re.IGNORECASE):
                found[n].speedups.append((float(ratio[1].replace(",", "")), _half(ratio[1])))
                table.read.add((at, column))
            elif what and not ratio and (value := table.ms(at, column)) is not None:
                found[n].add(what, value)
