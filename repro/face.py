"""The face of the project: what `import repro` gives, from any folder.

    import repro

    verdict = repro.evaluate("my_rmsnorm.py", problem="L1_36")
    print(verdict.verdict, verdict.precision_class)

The Python of `.venv` finds it once `make setup` ran, any other after `pip install .`. If `import repro` fails, put the
checkout into `PYTHONPATH`.

A problem is a shipped id (`L1_36`), one of the fetched KernelBench, or the path of a KernelBench file. `repro problems`
lists the ids; `repro.problem(…).path` is the file, with the Model that a solution must equal. A solution is a `Path`, a
name that ends in `.py`, or the text of its source. It defines `ModelNew`, a module with the constructor and the
parameters of the problem's `Model`:

    class ModelNew(torch.nn.Module):
        def __init__(self, num_features, eps=1e-5):
            super().__init__()
            self.eps = eps

        def forward(self, x):
            return x / torch.sqrt(x.square().mean(1, keepdim=True) + self.eps)

`size`, `engine`, `device` and `gpus` are those of the [command line](command-line.md#repro-evaluate). Bundles and
fixtures go below `results`, by default the folder of that name here.
What cannot be done raises a `repro.errors.ReproError`, whose text says what happened, why, and what to do.

`verdict.verdict` is `correct`, `incorrect`, `rejected`, `error`, `timeout`, `inconclusive` or `unjudgeable`. The
`precision_class` of a correct one is `fp32`, `tf32` or `bf16`: the narrowest whose limits it keeps. A wrong one
names the widest class, whose limits it exceeds too. Its `reasons` have a code, a detail, the trial, the value and the
limit ([all codes](json.md)).
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from repro import config
from repro.analysis import compare as comparing
from repro.analysis import gate
from repro.analysis import records as measured
from repro.bundle import verify as verifying
from repro.bundle import write
from repro.engines import choose
from repro.errors import EngineError, UsageError
from repro.problems import catalogue
from repro.records.comparison import Comparison
from repro.records.manifest import Manifest
from repro.records.options import Options
from repro.records.row import Row
from repro.records.verdict import Verdict
from repro.runs import fixtures
from repro.runs.loop import Run
from repro.runs.progress import Progress
from repro.studies import evaluation
from repro.studies.evaluation import Submission
from repro.system.digest import sha256
from repro.system.jsonio import Json

if TYPE_CHECKING:
    import torch

    from repro.engines.base import Engine
    from repro.engines.session import Session as OpenSession
    from repro.optimize.runner import Finished

Size = Literal["auto", "full", "smoke"]
_Dtype = Literal["float32", "bfloat16", "float16"]
T = TypeVar("T")


def _chosen(engine: str, device: str, gpus: str) -> Engine:
    """Return the engine, as `--engine`, `--device` and `--gpus` name it. Raises PrerequisiteError where it cannot run
    here."""
    return choose(engine, gpus=gpus, device=device, say=lambda _: None)


def evaluate(
    solution: str | Path,
    problem: str | Path,
    *,
    size: Size = "auto",
    dtype: _Dtype = "float32",
    shapes: str | Path | Sequence[Json] = (),
    against: str | Path | None = None,
    options: Options | None = None,
    engine: str = "auto",
    device: str = "auto",
    gpus: str = "all",
    results: str | Path | None = None,
) -> Verdict:
    """Judge one solution of one problem, and time it if it is correct.

    The run leaves a bundle below `results`, as `repro evaluate` does; `Bundle.newest()` opens it. For many solutions
    of one problem, a `Session` is quicker.

    >>> verdict = repro.evaluate("my_rmsnorm.py", problem="L1_36", size="smoke", device="cpu", engine="local")
    >>> verdict.verdict, verdict.precision_class
    ('correct', 'fp32')
    >>> verdict.rel_l2 < 1e-6
    True

    On a GPU, `verdict.time_ms.median` is its time in ms and `verdict.speedup["eager"].ratio` its speedup. With
    `against`, an older solution, both are timed in turns beside eager alone, and `verdict.against` has `ratio`, `ci95`
    and `word`. With `shapes`, rows such as `{"batch_size": 16, "weight": 0.5}` or a file of them, it must be right at
    all; `verdict.workloads` has the verdict at each, and speedups are weighted means. A solution that is wrong says
    why:

    >>> zeros = "import torch\\nclass ModelNew(torch.nn.Module):\\n    def __init__(self, *sizes):\\n        super().__init__()\\n    def forward(self, x):\\n        return torch.zeros_like(x)\\n"
    >>> verdict = repro.evaluate(zeros, problem="L1_36", size="smoke", device="cpu", engine="local")
    >>> verdict.verdict, verdict.reasons[0].code
    ('incorrect', 'rel_l2')
    """  # noqa: E501
    chosen = _chosen(engine, device, gpus)
    run = Run(chosen, _folder(results), Progress(quiet=True), options or Options(), chosen.size(size))
    with _file(solution) as file, _file(against) if against is not None else contextlib.nullcontext() as old:
        given = [str(shapes)] if isinstance(shapes, str | Path) else shapes
        _, rows = evaluation.evaluate(run, [file], [str(problem)], dtype, given, old)
    return gate.judged(rows)[-1]


def _folder(results: str | Path | None) -> Path:
    """Return the folder of bundles and fixtures."""
    return Path(results) if results is not None else config.results_dir()


class Session:
    """A warm judge of one problem: reference, ceilings, baselines and workers are paid once.

    It is the reward of a training loop, or the inner loop of a search. Solutions run in processes of their own; one
    that crashes or hangs costs itself alone. Use it in one thread, and as a context manager or with `close`.

    >>> with repro.Session("L1_36", size="smoke", device="cpu", engine="local") as session:
    ...     source = open("my_rmsnorm.py").read()
    ...     checked = session.check(source)
    ...     timed = session.time(source, tier="quick")
    >>> checked.verdict, checked.time_ms is None
    ('correct', True)
    >>> timed.verdict, timed.measurement  # no time on the CPU is a measurement
    ('correct', False)
    """

    def __init__(
        self,
        problem: str | Path,
        *,
        size: Size = "auto",
        dtype: _Dtype = "float32",
        options: Options | None = None,
        engine: str = "auto",
        device: str = "auto",
        gpus: str = "all",
        results: str | Path | None = None,
    ) -> None:
        self._engine = _chosen(engine, device, gpus)
        self._problem = catalogue.resolve(str(problem), size=self._engine.size(size), dtype=dtype)
        self._run = Run(self._engine, _folder(results), Progress(quiet=True), options or Options())
        self._open = contextlib.ExitStack()
        self._session: OpenSession | None = None
        self._checked: dict[str, Verdict] = {}

    def check(self, source: str | Path) -> Verdict:
        """Judge whether a solution is correct, on inputs of fresh secret seeds, without timing it.

        Raises EngineError if the session itself failed. The next call then opens a new one.
        """
        submission = _submission(source)
        verdict = self._asked(lambda session: session.check([submission]))[0]
        self._checked = {submission.name: verdict}
        return verdict

    def time(self, source: str | Path, *, tier: Literal["quick", "full"] = "quick") -> Verdict:
        """Time a solution beside the torch baselines; check it first, unless it was the last one checked.

        tier: `quick` takes seconds, against eager torch; `full` takes until the times are known, against every
        baseline of the options. The verdict of a solution that is not correct has no time.
        """
        submission = _submission(source)
        checked = self._checked.get(submission.name) or self.check(source)
        if checked.verdict != "correct":
            return checked
        return self._asked(lambda session: session.time([submission], tier)).results[0]

    def close(self) -> None:
        """End the session and every process of it."""
        self._session, self._checked = None, {}
        self._open.close()

    def __enter__(self) -> Session:
        self._warm()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _warm(self) -> OpenSession:
        if self._session is None:
            fixtures.ensure(self._run, [self._problem])
            job = evaluation.session_job(self._run, self._problem)
            self._session = self._open.enter_context(self._engine.session(job, self._run.progress.step))
        return self._session

    def _asked(self, request: Callable[[OpenSession], T]) -> T:
        try:
            return request(self._warm())
        except EngineError:
            with contextlib.suppress(EngineError):
                self.close()
            raise


class Problem:
    """One problem at one size: its inputs and its exact outputs, for a notebook.

    >>> problem = repro.problem("L1_36", size="smoke")
    >>> inputs = problem.inputs(seed=0)
    >>> [tuple(x.shape) for x in inputs]
    [(4, 64, 12, 20)]
    >>> problem.reference(*inputs).dtype
    torch.float64
    """

    def __init__(self, known: catalogue.Problem) -> None:
        self._known = known
        self.id, self.name, self.path, self.size, self.dtype = known.id, known.name, known.path, known.size, known.dtype

    def __repr__(self) -> str:
        return f"Problem({self.id!r}, {self.name!r}, size={self.size!r}, dtype={self.dtype!r})"

    def inputs(self, seed: int = 0, device: str = "cpu") -> list[Any]:
        """Return the inputs that this seed gives: the same bits on the CPU and on any GPU."""
        import torch

        from repro.problems import plan

        return plan.plan(self._known).make(seed, torch.device(device))

    def again(
        self, solution: str | Path, seed: int, stress: str | float | None = None, *, perturbed: bool = False,
        device: str = "cpu",
    ) -> tuple[Any, Any]:  # fmt: skip
        """Call a solution's file in this process on the inputs of a trial; return its output and the reference's.

        `repro evaluate --explain` prints such a call for a debugger. On the CPU, Triton must not be imported before.
        """
        from repro.studies import again

        return again.call(self._known, Path(solution), seed, stress, perturbed=perturbed, device=device)

    def reference(self, *inputs: Any) -> torch.Tensor | list[torch.Tensor]:
        """Return what the problem's Model computes of these inputs in fp64, with its published weights.

        It is a list if the Model returns several tensors.
        """
        import torch

        from repro.judge.correctness.reference import Reference
        from repro.problems import plan

        drawn = plan.plan(self._known)
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))
        outputs = Reference(drawn, plan.weights(self._known, drawn.module), device)(list(inputs))
        return outputs[0] if len(outputs) == 1 else outputs


def problem(
    id_or_path: str | Path, *, size: Literal["full", "smoke"] = "full", dtype: _Dtype = "float32", **constants: Any
) -> Problem:
    """Return a problem: a shipped id, one of the fetched KernelBench, or a KernelBench file.

    Constants of its file may be others:

    >>> repro.problem("L1_36", size="smoke", batch_size=1)
    Problem('L1_36', 'RMSNorm', size='smoke', dtype='float32')
    """
    known = catalogue.resolve(str(id_or_path), size=size, dtype=dtype)
    known.check_names(constants)
    return Problem(known.at(constants))


def suite(name: str, *, size: Literal["full", "smoke"] = "full") -> list[Problem]:
    """Return the problems of a suite: `agent`, `artifacts`, or `kernelbench` once it is fetched.

    >>> [problem.id for problem in repro.suite("artifacts")]
    ['L1_04', 'L1_36', 'L1_43', 'L1_77', 'L1_82']
    """
    return [Problem(known) for known in catalogue.suite(name, size=size)]


def search(
    problem: str | Path,
    kernel: str | Path | None = None,
    *,
    minutes: float = 10.0,
    rounds: int = 8,
    seed: int = 0,
    size: Size = "auto",
    engine: str = "auto",
    device: str = "auto",
    gpus: str = "all",
    results: str | Path | None = None,
) -> Finished:
    """Search a faster kernel by rewrites, from a kernel or the input kernel that ships for the problem.

    The result's `state` holds every program with its verdict, `state.best` names the best one, and `exported` is the
    folder with its source, or None if nothing was faster. Other proposers, such as a model: `repro optimize`.
    """
    from repro.optimize import runner
    from repro.optimize.proposers.search import Search
    from repro.records.search import Options as SearchOptions

    chosen = _chosen(engine, device, gpus)
    with _file(kernel if kernel is not None else runner.shipped_kernel(str(problem))) as file:
        start = runner.read_kernel(file)
    dtype = "bfloat16" if start.entry == "kernel_function" else "float32"
    known = catalogue.resolve(str(problem), size=chosen.size(size), dtype=dtype)
    options = SearchOptions(
        known.key, known.size, dtype, chosen.device, sha256(start.source), minutes=minutes,
        rounds=rounds, seed=seed, screen=runner.SCREEN[chosen.device],
    )  # fmt: skip
    return runner.optimize(
        known, start, options, lambda _: [Search()], _folder(results), chosen, Progress(quiet=True)
    )  # fmt: skip


class Bundle:
    """The folder that a run leaves: its rows, its manifest, and the checks that show whether it was changed.

    >>> bundle = repro.Bundle.newest("results")
    >>> bundle.verify().state
    'ok'
    >>> [row.status for row in bundle.rows()]
    ['done']
    >>> [verdict.verdict for verdict in bundle.verdicts()]
    ['incorrect']
    """

    def __init__(self, path: str | Path) -> None:
        self._bundle = write.Bundle.open(Path(path))
        self.path = self._bundle.path

    def __repr__(self) -> str:
        return f"Bundle({str(self.path)!r})"

    @staticmethod
    def newest(results: str | Path | None = None) -> Bundle:
        """Return the newest bundle of a results folder. Raises UsageError where there is none."""
        folder = _folder(results)
        newest = write.latest(folder, ("run", "evaluate", "benchmark", "self-test"))
        if newest is None:
            raise UsageError(f"no bundle in {folder}", "", "Evaluate a solution first, or name a bundle.")
        return Bundle(newest.path)

    @property
    def manifest(self) -> Manifest:
        """What was planned, by which code, and the hash of every file."""
        return Manifest.model_validate(self._bundle.manifest)

    def verify(self) -> verifying.Verified:
        """Run every check of `repro verify`."""
        return verifying.verify(self.path)

    def rows(self) -> list[Row]:
        """Return the rows in the order of the plan."""
        return list(self._bundle.records().values())

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts of all rows; a row that was not judged gives an `error` with its reason."""
        return evaluation.results_of(self.rows())

    def frame(self) -> Any:
        """Return the verdicts as a pandas frame, a line each. Raises UsageError where pandas is not installed."""
        try:
            import pandas  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise UsageError("pandas is not installed", "", "Use rows() or verdicts(), or install pandas.") from error
        return pandas.json_normalize([verdict.to_json() for verdict in self.verdicts()])


def compare(a: str | Path | Bundle, b: str | Path | Bundle) -> Comparison:
    """Compare two bundles row by row: verdicts, speedups, and times where the machines are alike.

    >>> comparison = repro.compare(repro.Bundle.newest("results"), repro.Bundle.newest("results"))
    >>> comparison.verdict_changes
    []
    """
    bundles = [bundle if isinstance(bundle, Bundle) else Bundle(bundle) for bundle in (a, b)]
    return comparing.compare(*(measured.read(bundle._bundle) for bundle in bundles))


@contextlib.contextmanager
def _file(solution: str | Path) -> Iterator[Path]:
    """Yield the file of a solution; the text of one becomes a file for the block."""
    if isinstance(solution, Path) or (solution.endswith(".py") and "\n" not in solution):
        yield Path(solution)
        return
    with tempfile.TemporaryDirectory(prefix="repro-solution-") as folder:
        file = Path(folder, "solution.py")
        file.write_text(solution)
        yield file


def _submission(source: str | Path) -> Submission:
    """Return a solution under a name that only its text has."""
    with _file(source) as file:
        read = evaluation.read(file)
    return Submission(f"solution_{sha256(read.source)[:12]}", read.source, read.entry)
