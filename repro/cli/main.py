"""The command line: parse, choose an engine, run the verb, report. One function a verb."""

from __future__ import annotations

import argparse
import difflib
import functools
import importlib.util
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from repro import __version__, config
from repro.bundle import origin
from repro.bundle.write import Bundle
from repro.cli import device, ending, offline, optimize
from repro.engines import names
from repro.engines.base import Engine
from repro.errors import ReproError, UsageError
from repro.records import wording
from repro.records.options import MODES, Options
from repro.records.verdict import Verdict
from repro.runs.progress import Progress
from repro.system.screen import MANY, Column, Screen

SHOWN = 100
# The verbs, as the help groups them.
GROUPS = {
    "judge": ("evaluate", "fixtures", "problems", "audit"),
    "studies": ("run", "benchmark", "claims", "optimize", "fetch", "artifacts"),
    "evidence": ("status", "report", "compare", "verify", "bundle"),
    "machine": ("doctor", "fingerprint", "gc"),
}
DESCRIPTION = "Re-run, judge and publish GPU-kernel results."
EXAMPLES = """examples:
  repro doctor                                  check what this machine lacks, and what to do
  repro evaluate my_kernel.py --problem L1_36   judge one solution
  repro run --agent oracle                      judge and time the shipped solutions
  repro run --solutions mine=DIR                judge any agent's solutions, from a folder
  repro benchmark 36 --json out.json            time one problem of the artifact study
  repro claims                                  test every published figure of the artifact study
  repro benchmark --artifacts DIR --parity      time a folder in the published layout, both ways
  repro optimize L1_36 --minutes 10             search a faster kernel, also --from FILE
  repro artifacts lint DIR                      check such a folder without running it
  repro report                                  draw the newest bundle again
  repro report A B -o DIR                       draw bundles side by side: HTML, markdown, LaTeX
  repro compare A B                             compare two bundles row by row
  repro compare --claims B                      list which published figures a bundle reproduces
  repro verify                                  check the newest bundle
  repro bundle share B -o public                copy a bundle without host, user, path, GPU, key

exit codes: 0 the work is done, whatever the verdicts; 1 wrong use, a faulty problem file, or
something is missing here; 2 the tool failed, `artifacts lint` found an error or `verify` a failure;
3 with --strict, a solution was not correct or a claim was not reproduced; 130 interrupted."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help that ends with the default of every argument that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text = action.help
        shown = action.default is not argparse.SUPPRESS and (action.default or action.default == 0)
        if text and shown and action.default is not False and "default" not in text:
            return text + " (default: %(default)s)"
        return text


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong use in one line, as every other error of the tool."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, "", f"See `{self.prog} --help`.")


def _where(parser: argparse.ArgumentParser) -> None:
    """Arguments that choose an engine and its device."""
    parser.add_argument(
        "--engine", choices=names(), default="auto",
        help="where jobs run; auto: docker where an engine answers, else local",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", default="all",
        help="all, none, or indices or UUIDs separated by commas; with --engine ray: all, none or part of a GPU's name",
    )  # fmt: skip
    parser.add_argument(
        "--address", default="", metavar="A",
        help="with --engine ray: auto (the cluster of this machine), HOST:PORT, or local (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto", help="auto: a GPU where there is one, else the CPU"
    )


def _common(parser: argparse.ArgumentParser, *, problem: bool = True, timed: bool = True) -> None:
    """Arguments of a verb that measures. timed: it measures times."""
    _where(parser)
    if timed:
        parser.add_argument(
            "--mixed", action="store_true", help="time on GPUs of different kinds too; tables are then grouped by kind"
        )
    parser.add_argument(
        "--size", choices=("auto", "full", "smoke"), default="auto",
        help="full: the published shapes; smoke: small ones; auto: full on a GPU, else smoke",
    )  # fmt: skip
    offline.results_option(parser, "bundles and fixtures")
    parser.add_argument("--resume", action="store_true", help="continue the newest unfinished bundle of the same plan")
    if problem:
        parser.add_argument(
            "--problem", action="append", default=[], metavar="ID", help="only this problem (repeatable)"
        )


def _judging(
    parser: argparse.ArgumentParser, *, budget_s: float = 10.0, compile_timeout_s: float | None = None
) -> None:
    offline.json_option(parser, "write the results")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a solution is not correct")
    parser.add_argument("--no-timing", action="store_true", help="only judge, do not time")
    parser.add_argument(
        "--strict-nonfinite", action="store_true",
        help="judge a solution whose output hides a NaN of its inputs as wrong; by default this is only reported",
    )  # fmt: skip
    parser.add_argument(
        "--trust", choices=("audited", "dev"), default="audited",
        help="audited: the solution runs in a process of its own, and every time is checked; "
        "dev: one process, quick, for an inner loop",
    )  # fmt: skip
    parser.add_argument("--no-compile", action="store_true", help="leave out the torch.compile baselines")
    parser.add_argument(
        "--timeout-s", type=float, default=180.0, help="longest wait for one answer of a solution, seconds"
    )
    parser.add_argument(
        "--compile-timeout-s", type=float, default=compile_timeout_s or 60.0,
        help="longest wait for torch.compile's max-autotune, seconds; a baseline that takes longer is left out",
    )  # fmt: skip
    parser.add_argument(
        "--budget-s",
        type=float,
        default=budget_s,
        help="time for sampling one problem, seconds; spent again where ratios are still open",
    )


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    from repro.studies.agent import options
    from repro.studies.artifact_study import BUDGET_S, COMPILE_TIMEOUT_S

    top = _Parser(prog="repro", usage="repro [-h] [--version] VERB ...", epilog=EXAMPLES)
    top.add_argument("--version", action="version", version=f"repro {__version__}")
    parsers = top.add_subparsers(prog="repro", dest="verb", metavar="VERB", required=True, help=argparse.SUPPRESS)
    told: dict[str, str] = {}

    def verb(name: str, text: str, run: Callable[[argparse.Namespace, Progress], int]) -> argparse.ArgumentParser:
        told[name] = text
        sub = parsers.add_parser(name, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(run=run)
        amount = sub.add_mutually_exclusive_group()
        amount.add_argument("-q", "--quiet", action="store_true", help="print the last line alone")
        amount.add_argument("-v", "--verbose", action="store_true", help="print everything")
        return sub

    evaluate = verb("evaluate", "judge solutions: a file, or a folder of ID_Name.py files", _evaluate)
    evaluate.add_argument("path", type=Path, nargs="*", help="a solution, or a folder of them")
    evaluate.add_argument(
        "--self-test", action="store_true",
        help="judge the judge by its adversarial and honest cases; PATH narrows them by name",
    )  # fmt: skip
    evaluate.add_argument(
        "--suite", default="", metavar="NAME", help="with --identity: agent, artifacts or the fetched kernelbench"
    )
    evaluate.add_argument(
        "--identity", action="store_true", help="judge every problem of a suite by its own Model, which must be correct"
    )
    evaluate.add_argument(
        "--parity", choices=("kernelbench",),
        help="also judge and time as KernelBench does: five draws, allclose, the mean of 100 calls; decides nothing",
    )  # fmt: skip
    _common(evaluate)
    _judging(evaluate)
    evaluate.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="dtype of model and inputs"
    )
    evaluate.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", dest="overrides",
        help="override a constant of the problem file, such as batch_size=16 (repeatable)",
    )  # fmt: skip
    fixtures = verb("fixtures", "measure what judging needs: checksums, error bounds, limits, margins", _fixtures)
    _common(fixtures, timed=False)
    audit = verb("audit", "find the problems of a suite that cannot tell a cheat from an honest kernel", _audit)
    audit.add_argument("--suite", default="kernelbench", help="agent, artifacts, or kernelbench once it is fetched")
    _common(audit, timed=False)
    audit.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the table as markdown")
    offline.json_option(audit, "write the table")
    problems = verb("problems", "list the shipped problems and suites", offline.problems)
    problems.add_argument("--suite", default="", help="list this suite with traffic, arithmetic, memory and status")
    problems.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="of the columns memory and status")
    problems.add_argument(
        "--size", choices=("full", "smoke"), default="full", help="the published shapes, or small ones"
    )
    offline.results_option(problems, "bundles and fixtures")
    run = verb("run", "run the agent study: judge and time an agent's solutions", _run)
    _common(run)
    _judging(run)
    options.add(run)
    benchmark = verb(
        "benchmark", "run the artifact study: eager, torch.compile, input and optimised kernels", _benchmark
    )
    benchmark.add_argument("name", nargs="*", help="problems by number or name (default: all)")
    benchmark.add_argument(
        "--artifacts", type=Path, default=config.ARTIFACTS_DIR,
        help="folder in the published layout (default: the shipped one)",
    )  # fmt: skip
    benchmark.add_argument(
        "--quick", action="store_true", help="time for 1.5 s a problem, against eager and torch.compile alone"
    )
    benchmark.add_argument(
        "--parity", action="store_true",
        help="also time by the published protocol, do_bench(500, 100) in one process, and print it beside ours",
    )  # fmt: skip
    benchmark.add_argument("--rounds", action="store_true", help="also judge and time the kernel of every round")
    benchmark.add_argument(
        "--profile", action="store_true",
        help="also read hardware counters of both kernels by Nsight Compute (ncu), in bfloat16 and float32",
    )  # fmt: skip
    _common(benchmark, problem=False)
    _judging(benchmark, budget_s=BUDGET_S, compile_timeout_s=COMPILE_TIMEOUT_S)
    claims = verb("claims", "test every published figure of the artifact study: fetch, measure, verdicts", _claims)
    claims.add_argument("name", nargs="*", help="problems by number or name (default: all)")
    claims.add_argument("--from", dest="origin", default="", metavar="DIR|URL",
                        help="another copy or address of the published folder")  # fmt: skip
    _common(claims, problem=False)
    offline.json_option(claims, "write every claim with its verdicts")
    claims.add_argument("--strict", action="store_true", help="exit 3 where a claim is not reproduced")
    optimize.add(verb, functools.partial(_common, problem=False, timed=False))
    offline.add(verb)
    report = verb("report", "draw bundles as markdown, one HTML file, LaTeX", _report)
    report.add_argument("bundle", type=Path, nargs="*", help="bundles to draw (default: the newest)")
    offline.results_option(report, "bundles and fixtures")
    report.add_argument(
        "--format", metavar="F,F", help="md, html, tex, svg, csv (default: md,html; with -o md,html,tex)"
    )
    report.add_argument(
        "-o", "--output", type=Path, metavar="DIR",
        help="one document of all bundles side by side (default: a report of each into the bundle)",
    )  # fmt: skip
    report.add_argument(
        "--artifacts", type=Path, default=config.ARTIFACTS_DIR,
        help="folder whose traces html and tex show (default: the shipped one)",
    )  # fmt: skip
    offline.json_option(report, "write the report")
    doctor = verb("doctor", "check what this machine lacks for a run, and say what to do about it", _doctor)
    doctor.add_argument("--engine", choices=names(), default="auto", help="where jobs would run")
    doctor.add_argument("--gpus", default="all", help="all, none, or indices or UUIDs separated by commas")
    doctor.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda: a GPU is needed")
    offline.results_option(doctor, "bundles and fixtures")
    offline.json_option(doctor, "write every check")
    fingerprint = verb("fingerprint", "describe this machine's GPU, driver, software and container", _fingerprint)
    _where(fingerprint)
    offline.json_option(fingerprint, "write it")
    gc = verb("gc", "remove containers and volumes that a dead run left behind", _gc)
    gc.add_argument("--all", action="store_true", help="also those of live runs")
    groups = (f"{group}:\n" + "\n".join(f"  {name:<13}{told[name]}" for name in of) for group, of in GROUPS.items())
    top.description = "\n\n".join((DESCRIPTION, *groups))
    return top


def _known(argv: list[str]) -> None:
    """Raises UsageError where the command line's verb is none, and names the nearest one and those that there are."""
    given = next((word for word in argv if not word.startswith("-")), None)
    known = [name for of in GROUPS.values() for name in of]
    if given is None or given in known:
        return
    near = difflib.get_close_matches(given, known, 1)
    hint = f"Did you mean `repro {near[0]}`? " if near else ""
    raise UsageError(f"no verb {given!r}", f"there are {', '.join(known)}", f"{hint}See `repro --help`.")


def _unknown(word: str, args: argparse.Namespace) -> UsageError:
    """The error of an argument that the verb does not take, with the nearest flag that it takes."""
    flags = [f"--{name.replace('_', '-')}" for name in vars(args)]
    near = difflib.get_close_matches(word.partition("=")[0], flags, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return UsageError(f"unknown argument {word}", "", f"{hint}See `repro {args.verb} --help`.")


def _options(args: argparse.Namespace) -> Options:
    if not all(math.isfinite(value) and value > 0 for value in (args.timeout_s, args.budget_s, args.compile_timeout_s)):
        raise UsageError("--timeout-s, --budget-s and --compile-timeout-s must be positive numbers of seconds")
    options = Options(
        timing=not args.no_timing, modes=("eager",) if args.no_compile else MODES, timeout_s=args.timeout_s,
        timing_budget_s=args.budget_s, trust=args.trust, compile_timeout_s=args.compile_timeout_s,
        parity=getattr(args, "parity", None) is True, kernelbench=getattr(args, "parity", None) == "kernelbench",
        strict_nonfinite=args.strict_nonfinite,
    )  # fmt: skip
    return options.quick() if getattr(args, "quick", False) else options


def _draw(bundle: Bundle, args: argparse.Namespace) -> dict[str, Any]:
    """Writes report.json and report.md into a bundle, prints its table and the last line, and returns the report."""
    from repro.report import output, terminal

    whole, files = output.into(bundle, ["md"])
    screen = Screen.of(args)
    terminal.draw(whole, screen)
    terminal.last(whole, screen, files)
    return whole.to_json()


def _conclude(
    args: argparse.Namespace, bundle: Bundle, value: Any = None, judged: Iterable[wording.Judged] = ()
) -> int:
    """Draws a bundle, writes the JSON file that was asked for, and returns the exit code. Every verb that measures ends
    with it.

    value: what `--json` gets, by default the report. judged: the verdicts that `--strict` looks at.
    """
    whole = _draw(bundle, args)
    offline.write_json(getattr(args, "json", None), whole if value is None else value)
    return _exit_code(bundle, judged if getattr(args, "strict", False) else ())


def _exit_code(bundle: Bundle, judged: Iterable[wording.Judged]) -> int:
    """Where rows were not measured, says why and returns 1 (a prerequisite) or 2 (the tool). Else 3 where a verdict is
    not correct, or 0. A solution that this machine cannot judge because it needs CUDA counts neither way."""
    missing = [bundle.record(name) for name in bundle.manifest["plan"] if not bundle.done(name)]
    if missing:
        count = f"{len(missing)} of {len(bundle.manifest['plan'])} rows were not measured"
        again = "Mend that and repeat with --resume." if any(row.status != "unmet" for row in missing) else ""
        ending.complain(f"{count}, first {missing[0].row}: {missing[0].error.rstrip('.')}. {again}".rstrip())
        return 1 if all(row.status == "unmet" for row in missing) else 2
    return 3 if any(entry.verdict != "correct" and not wording.not_judged(entry) for entry in judged) else 0


def _short(value: Any) -> str:
    """A value for a table; `--json` holds it whole."""
    text = str(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def _fingerprint(args: argparse.Namespace, progress: Progress) -> int:
    from repro import fingerprint
    from repro.records.job import Job

    engine = device.chosen(args, progress)
    (outcome,) = engine.submit([Job("fingerprint", "fingerprint", device=engine.device, timeout_s=120)], progress.step)
    if outcome.fingerprint is None:
        raise ReproError("no fingerprint", outcome.error)
    values = outcome.fingerprint.values
    screen = Screen.of(args)
    rows = [[name, _short(each.value if each.value is not None else each.status), each.klass, each.source]
            for name, each in values.items() if screen.verbose or each.value is not None]  # fmt: skip
    columns = (Column("name", whole=True), Column("value"), Column("class", 2, whole=True), Column("source", 1))
    screen.table(columns, rows)
    observed = outcome.result.to_json() if outcome.result else {}
    if sampler := (observed.get("telemetry") or {}).get("sampler"):  # an image of an older release has none
        screen.line(f"sampler: {sampler['status']}, {sampler['samples']} samples, one in {sampler['period_ms']} ms")
    absent = sum(each.value is None for each in values.values())
    if absent and not screen.verbose:
        screen.line(f"{absent} values are absent on this machine; -v lists them with the reason.")
    machine = outcome.fingerprint.to_json()
    screen.last(fingerprint.headline(machine))
    offline.write_json(args.json, machine | {"observed": observed})
    return 0


def _doctor(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 1 where something is missing that the default use needs."""
    from repro import doctor

    report = doctor.examine(doctor.Setting(args.engine, args.device, args.gpus, args.results))
    offline.write_json(args.json, report)
    doctor.draw(report, Screen.of(args))
    return 0 if report["ready"] else 1


def _fixtures(args: argparse.Namespace, progress: Progress) -> int:
    from repro.runs import fixtures

    engine, size = device.sized(args, progress)
    bundle = fixtures.run(args.problem, size, args.results, engine, progress, resume=args.resume)
    return _conclude(args, bundle)


def _run(args: argparse.Namespace, progress: Progress) -> int:
    from repro.studies.agent import options, runner, study

    if args.repeats < 1:
        raise UsageError("--repeats must be at least 1")
    name = options.agent(args)
    goes_on = args.baseline or args.with_kb or args.solutions or not args.generate
    if goes_on:  # else it ends with the fixtures, which need no key
        options.foresee(args)
    if args.check:
        return 0
    if args.generate:
        code = _fixtures(args, progress)
        if code or not goes_on:
            return code
    engine, size = device.sized(args, progress)
    pace = options.pace(args)
    controls, folders = options.chosen_controls(args, engine.device, size), options.folders(args)
    if engine.device == "cpu" and any(control.torch_control for control in controls):
        progress.say("TF32 does not exist on the CPU: the controls of that name are the plain Model there")
    elif engine.device == "cpu" and not args.controls and (folders or name not in options.SHIPPED):
        progress.say("no controls tf32 and tf32_compile: TF32 does not exist on the CPU")
    if folders or name in options.SHIPPED:
        arms = [*(folders or study.shipped(name, args.repeats)), *controls]
        bundle = study.run(
            args.problem, arms, size, args.results, engine, _options(args), progress, resume=args.resume,
            jobs=args.jobs,
        )  # fmt: skip
    else:
        plan = options.build(args, size)
        if not engine.contained:
            progress.say(study.NOTICE)
        bundle = runner.run(
            plan, args.problem, size, args.results, engine, _options(args), pace, progress, controls=controls,
            resume=args.resume,
        )  # fmt: skip
    rows = bundle.records().values()
    judged = [row.judged.results for row in rows if row.judged and not (row.control or row.torch_control)]
    return _conclude(args, bundle, judged=itertools.chain(*judged))


def _audit(args: argparse.Namespace, progress: Progress) -> int:
    from repro.artifacts import sources
    from repro.problems import catalogue
    from repro.report import audit
    from repro.runs import fixtures

    if args.suite == catalogue.KERNELBENCH:
        sources.check(sources.named(args.suite))
    engine, size = device.sized(args, progress)
    bundle = fixtures.audit(
        args.suite, args.problem, size, args.results, engine, progress, resume=args.resume
    )  # fmt: skip
    entries = audit.rows(bundle)
    if args.output is not None:
        offline.write_text(args.output, audit.markdown(bundle, entries))
    screen = Screen.of(args)
    apart = [entry for entry in entries if entry.verdict != "judged" or entry.refused_classes]
    shown = entries if screen.verbose or len(entries) <= MANY else apart
    screen.table(audit.COLUMNS, [audit.cells(entry) for entry in shown])
    if left := len(entries) - len(shown):
        screen.line(f"{left} more are judged in every class; -v shows all here, -o FILE writes them.", "dim")
    screen.line(audit.counted(entries))
    return _conclude(
        args,
        bundle,
        {"schema_version": 1, "bundle": str(bundle.path), "problems": [entry.to_json() for entry in entries]},
    )


def _evaluate(args: argparse.Namespace, progress: Progress) -> int:
    from repro.problems import constants
    from repro.studies import evaluation

    if args.self_test and args.overrides:
        raise UsageError("--set does not go with --self-test", "its cases have sizes of their own")
    if args.identity and not args.suite:
        raise UsageError("--identity needs --suite NAME", "", "Write --suite kernelbench --identity.")
    if args.suite and (not args.identity or args.path or args.self_test or args.overrides):
        raise UsageError("--suite goes with --identity alone", "", "Write --suite kernelbench --identity.")
    if args.identity:
        engine, size = device.sized(args, progress)
        bundle, results = evaluation.identities(
            args.suite, args.problem, size, args.results, engine, _options(args), progress, resume=args.resume
        )
        return _conclude(args, bundle, _judged(bundle, results), results)
    if not args.path and not args.self_test:
        raise UsageError("nothing to evaluate", "no file or folder was named", "Give a path, or --self-test.")
    if not args.self_test:
        chosen = {file for file, _ in evaluation.find(args.path, args.problem)}  # wrong use comes before any other line
        others = [file.name for path in args.path for file in sorted(path.glob("*.py")) if file not in chosen]
        if others:
            progress.say(f"not used, not named after a problem that was asked for: {', '.join(others)}")
    engine, size = device.sized(args, progress)
    if args.self_test:
        return _self_test(args, engine, progress)
    bundle, results = evaluation.evaluate(
        args.path, args.problem, size, args.dtype, args.results, engine, _options(args), progress, resume=args.resume,
        overrides=constants.given(args.overrides),
    )  # fmt: skip
    return _conclude(args, bundle, _judged(bundle, results), results)


def _judged(bundle: Bundle, results: list[Verdict]) -> dict[str, Any]:
    """What `evaluate --json` writes."""
    from repro.report import parity
    from repro.studies.evaluation import SCHEMA_VERSION

    entries = [result.to_json() for result in results]
    value = {"schema_version": SCHEMA_VERSION, "bundle": str(bundle.path), "results": entries}
    return value | ({"fast_p": found} if (found := parity.fast(results)) else {})


def _self_test(args: argparse.Namespace, engine: Engine, progress: Progress) -> int:
    """Exit 2 where the judge is wrong about a case: that is the tool's failure."""
    from repro.studies import self_test

    names = [str(path) for path in args.path]
    suites = [name for name in names if name in self_test.SUITES]
    bundle, entries = self_test.run(
        suites or list(self_test.SUITES), [name for name in names if name not in suites], args.results, engine,
        _options(args), progress, resume=args.resume,
    )  # fmt: skip
    told = [entry.to_json() for entry in entries]
    code = _conclude(args, bundle, {"schema_version": 1, "bundle": str(bundle.path), "cases": told})
    return 2 if any(entry.complaints for entry in entries) else code


def _benchmark(args: argparse.Namespace, progress: Progress) -> int:
    from repro.artifacts import layout
    from repro.studies import artifact_study as benchmark

    layout.find(args.artifacts, args.name)  # wrong use comes before any line on an engine
    if args.size == "auto" and args.device == "auto" and config.in_container():
        from repro.engines import resources

        if not resources.visible():
            raise UsageError(
                "no GPU in this container", "it was started without --gpus all, or the host has none",
                "For the smoke size on the CPU: docker run repro benchmark --device cpu --size smoke",
            )  # fmt: skip
    engine, size = device.sized(args, progress)
    bundle, entries = benchmark.run(
        args.artifacts, args.name, size, args.results, engine, _options(args), progress,
        resume=args.resume, with_rounds=args.rounds, with_profiles=args.profile,
    )  # fmt: skip
    judged: list[wording.Judged] = [kernel for entry in entries for kernel in entry.kernels.values()]
    value = [entry.to_json() for entry in entries]
    return _conclude(args, bundle, value, judged or [wording.Told("none", [])])


def _claims(args: argparse.Namespace, progress: Progress) -> int:
    """Fetch the published folder, measure it by both protocols with rounds and profiles, and judge every claim."""
    from repro.analysis import claims as replication
    from repro.analysis import published, records
    from repro.artifacts import sources
    from repro.report import claims as drawn
    from repro.report import output
    from repro.studies import artifact_study as benchmark

    engine, size = device.sized(args, progress)
    if engine.device == "cpu" and args.device == "auto":
        raise UsageError("no GPU here", "the published kernels run on CUDA alone",
                         "`repro artifacts lint` reads their folder without one.")  # fmt: skip
    source, _ = sources.fetch(benchmark.PUBLISHED, args.origin)
    options = Options(timing_budget_s=benchmark.BUDGET_S, compile_timeout_s=benchmark.COMPILE_TIMEOUT_S, parity=True)
    bundle, _ = benchmark.run(
        source.folder, args.name, size, args.results, engine, options, progress,
        resume=args.resume, with_rounds=True, with_profiles=True,
    )  # fmt: skip
    claims = [claim for claim in published.load() if claim.study == "artifact"]
    found = replication.judge(claims, [records.read(bundle)])
    _, files = output.into(bundle, _formats(args, progress))
    drawn.draw(found, Screen.of(args), report=output.first(files))
    offline.write_json(args.json, found.to_json())
    code = _exit_code(bundle, ())
    return code or (3 if args.strict and not replication.reproduced(found) else 0)


def _formats(args: argparse.Namespace, progress: Progress) -> list[str]:
    """The formats asked for, else markdown and the page, with -o also LaTeX; markdown alone where the page's packages
    are not installed, as in the image."""
    from repro.report import output

    lacking = [name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None]
    if lacking and getattr(args, "format", None) is None:
        progress.say(f"drawing markdown alone: the page needs {' and '.join(lacking)}, which are not installed here")
    usual = "md" if lacking else "md,html" if getattr(args, "output", None) is None else output.USUAL
    return output.formats(getattr(args, "format", None) or usual)


def _report(args: argparse.Namespace, progress: Progress) -> int:
    """Exit 2 where a bundle fails `repro verify`: the report is drawn all the same, and says so."""
    from repro.report import output

    screen = Screen.of(args)
    bundles = [Bundle.open(path) for path in args.bundle] or [offline.newest(args.results)]
    chosen = _formats(args, progress)
    if args.output is not None:
        drawn = iter([output.beside(bundles, chosen, args.artifacts, args.output)])
    else:
        drawn = (output.into(bundle, chosen, args.artifacts, forks=True) for bundle in bundles)
    for whole, files in drawn:
        from repro.report import document, terminal  # `output` has imported most of it while processes started

        if args.output is None:
            terminal.draw(whole, screen, tables=screen.verbose)
        terminal.last(whole, screen, files)
    if args.output is None and len(bundles) > 1:
        whole = document.build(bundles, args.artifacts)
    offline.write_json(args.json, whole.to_json())
    return 0 if whole.verified else 2


def _gc(args: argparse.Namespace, progress: Progress) -> int:
    from repro.engines import docker

    removed = docker.collect_garbage(everything=args.all)
    screen = Screen.of(args)
    for name in removed:
        screen.line(f"removed {name}")
    screen.last(f"{len(removed)} removed")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return the exit code. `entry.main` calls it for every verb that a person may use."""
    words = sys.argv[1:] if argv is None else argv
    config.load_dotenv()
    origin.COMMAND[:] = words

    def run(args: argparse.Namespace) -> int:
        _known(words)
        _, unknown = parser().parse_known_args(words, args)
        if unknown:
            raise _unknown(unknown[0], args)
        code: int = args.run(args, Progress(quiet=args.quiet))
        return code

    return ending.exit_code(run)
