"""`repro run`: the agent study, or any agent's solutions from a folder."""

from __future__ import annotations

import argparse

from repro.bundle.write import Bundle
from repro.cli import arguments, output
from repro.errors import UsageError
from repro.runs.progress import Progress

TEXT = "run the agent study: judge and time an agent's solutions"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from repro.studies.agent import options

    arguments.measuring_problems(parser)
    arguments.judging(parser, budgets=options.BUDGETS)
    options.add(parser)


def run(args: argparse.Namespace, progress: Progress) -> int:
    """Judge what an agent or a folder gives."""
    from repro.studies.agent import options

    if args.repeats < 1:
        raise UsageError("--repeats must be at least 1")
    options.foresee(args)
    if args.check:
        return 0
    bundle = _measured(args, progress)
    rows = [row for row in bundle.records().values() if not (row.control or row.torch_control)]
    return output.conclude(args, bundle, judged=[verdict for row in rows for verdict in row.verdicts])


def _measured(args: argparse.Namespace, progress: Progress) -> Bundle:
    from repro.studies.agent import options, study

    name = options.agent(args)
    measuring = arguments.run_of(args, progress, arguments.options(args))
    engine, pace = measuring.engine, options.pace(args)
    controls, folders = options.chosen_controls(args, engine.device, measuring.size), options.folders(args)
    if engine.device == "cpu" and any(control.torch_control for control in controls):
        progress.say("TF32 does not exist on the CPU: the controls of that name are the plain Model there")
    if folders or name in options.SHIPPED:
        return study.run(measuring, args.problem, [*(folders or study.shipped(name, args.repeats)), *controls])
    from repro.agents import runner

    plan = options.build(args, measuring.size)
    if not engine.contained:
        progress.say(study.NOTICE)
    return runner.run(measuring, plan, args.problem, pace, controls=controls)
