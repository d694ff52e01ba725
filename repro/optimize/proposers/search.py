"""The proposer that needs no model: rewrites of the catalogue, with knobs that Optuna samples.

A direction is one rewrite of a program, or none, or all that helped it, with all knobs of the result. In a round every
rewrite is first tried as it is, then those that helped together; the numbers of
the best directions follow. Each direction is taken in one round. The sampler is made anew for each batch, with a seed
that depends on the run's seed, the direction, and the number of its trials: Optuna resumed from a store continues
otherwise.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from repro.optimize import knobs, rewrites
from repro.optimize.kernel_source import KernelSource, NotApplicable, refusal
from repro.optimize.knobs import Knob, Params
from repro.optimize.state import DUPLICATE, Program, State
from repro.records.search import Proposal, Proposed

KNOBS = "knobs"
SWEEP = "coordinate sweep"
STARTUP_TRIALS = 6
# A rewrite helped if its screening showed this speedup over its parent.
HELPS = 1.02
# What a configuration counts that was refused or failed: slower than any that works.
FAILED = 0.0
# All knobs of a text; and configurations of them with their speedups.
_Space = tuple[Knob, ...]
_Trials = list[tuple[Params, float]]


@dataclass(frozen=True)
class Direction:
    """One strategy for one program: the text to start from, its knobs, and whether it keeps every bit."""

    parent: str
    strategy: str
    text: str
    knobs: _Space
    exact: bool
    why: str

    @property
    def key(self) -> tuple[str, str]:
        return self.parent, self.strategy


class Search:
    """See the module."""

    name, waits = "search", False

    def __init__(self) -> None:
        self.sampler = "optuna" if importlib.util.find_spec("optuna") else SWEEP

    def propose(self, state: State, count: int) -> Proposed:
        """See Proposer.propose. First every rewrite as it is, then what helped together, then numbers of the best."""
        tried = {(p.parent, p.strategy): p.round for p in state.programs.values() if p.proposer == self.name}
        every = [d for parent in state.beam for d in self._known(state, parent)]
        fresh = [d for d in every if d.strategy != KNOBS and d.key not in tried]
        together = () if fresh else (_together(state, parent) for parent in state.beam)
        fresh += [d for d in together if d is not None and d.key not in tried]
        if fresh:
            found = [p for direction in fresh[:count] for p in self._configurations(state, direction, 1)]
        else:
            found = self._numbers(state, [d for d in every if tried.get(d.key, state.round) == state.round], count)
        return Proposed(proposals=found)

    def _known(self, state: State, parent: str) -> list[Direction]:
        """Return every direction of a program, and those of several rewrites that were tried."""
        text = state.source(parent)
        made = directions(parent, text)
        stacks = {p.strategy for p in state.of(parent) if p.proposer == self.name} - {d.strategy for d in made}
        return made + [d for name in sorted(stacks) if (d := _stack(parent, text, tuple(name.split("+"))))]

    def _numbers(self, state: State, untaken: list[Direction], count: int) -> list[Proposal]:
        """Return configurations of the most promising directions, `count` shared among them."""
        chosen = sorted(untaken, key=lambda d: -self._promise(state, d))[: state.options.directions]
        proposals = []
        for at, direction in enumerate(chosen):
            share = count // len(chosen) + (at < count % len(chosen))
            proposals += self._configurations(state, direction, share)
        return proposals

    def _promise(self, state: State, direction: Direction) -> float:
        """Return the best speedup over the input kernel that a direction's candidates have shown."""
        shown = _best(state.of(direction.parent, direction.strategy))
        usual = 1.0 if direction.strategy == KNOBS else FAILED
        return (state.programs[direction.parent].ratio or 1.0) * max(usual, shown)

    def _configurations(self, state: State, direction: Direction, count: int) -> list[Proposal]:
        """Return up to `count` configurations of a direction that were not tried: its own numbers, then usual tiles."""
        past = state.of(direction.parent, direction.strategy)
        now, source = {knob.name: knob.now for knob in direction.knobs}, KernelSource(direction.text)
        trials = [(now | p.params, p.quick or FAILED) for p in past if p.verdict != DUPLICATE]
        seen = [now | p.params for p in past]
        first = [now | tile for tile in _tiles(direction, source)] if past else [now]
        if direction.strategy == KNOBS:
            first = []
            if now not in seen:
                trials, seen = [(now, 1.0), *trials], [now, *seen]
        parent = state.programs[direction.parent]
        given = (state.options.seed, parent.address, direction.strategy, len(past))
        seed = int.from_bytes(hashlib.sha256("|".join(map(str, given)).encode()).digest()[:4])
        asked: list[Params] = []

        def new(params: Params) -> bool:
            return params not in seen and params not in asked and knobs.fits(source, params)

        asked += list(filter(new, first))[:count]
        near = (count - len(asked)) // 2  # neighbours of the best; the rest are the sampler's
        asked += ask(direction.knobs, trials, near, seed, SWEEP, new)
        asked += ask(direction.knobs, trials, count - len(asked), seed, self.sampler, new)
        turned = [{name: value for name, value in params.items() if value != now[name]} for params in asked]
        return [p for params in turned if (p := _proposal(direction, source, parent.entry, params)) is not None]


def _tiles(direction: Direction, source: KernelSource) -> list[Params]:
    """Return usual tiles for products whose own suited others: a rewrite changed what is multiplied or added up."""
    return [] if direction.exact else knobs.tiles(source, direction.knobs)


def _best(programs: list[Program]) -> float:
    """Return the best speedup over their parent that candidates have shown in a screening."""
    return max((p.quick or FAILED for p in programs), default=FAILED)


def _together(state: State, parent: str) -> Direction | None:
    """Return the direction that applies all rewrites that helped a program, the best one first; None below two."""
    text = state.source(parent)
    quick = {d.strategy: _best(state.of(parent, d.strategy)) for d in directions(parent, text) if d.strategy != KNOBS}
    helped = sorted((name for name, ratio in quick.items() if ratio >= HELPS), key=lambda name: -quick[name])
    return _stack(parent, text, tuple(helped))


@functools.lru_cache(256)
def _stack(parent: str, text: str, names: tuple[str, ...]) -> Direction | None:
    """Return the direction of the rewrites among `names` that fit one after another; None below two."""
    source, applied = KernelSource(knobs.named(text)), []
    for name in names:
        rewritten = rewrites.BY_NAME[name].attempt(source)
        if rewritten is not None:
            source = KernelSource(knobs.named(rewritten))
            applied.append(name)
    if len(applied) < 2:
        return None
    return _direction(parent, "+".join(applied), source.text, "what helped, together")


def _proposal(direction: Direction, source: KernelSource, entry: str, turned: Params) -> Proposal | None:
    """Return a direction with some knobs turned; None where the source lacks one."""
    exact = direction.exact and all(knob.exact for knob in direction.knobs if knob.name in turned)
    try:
        text = knobs.apply(source, turned)
    except NotApplicable:
        return None
    kind = rewrites.EXACT if exact else rewrites.REASSOCIATES
    return Proposal(text, entry, direction.parent, direction.strategy, kind, turned, direction.why)


@functools.lru_cache(256)
def directions(parent: str, text: str) -> list[Direction]:
    """Return every direction of a program, in the order of the catalogue. A source without kernels has none."""
    try:
        source = KernelSource(knobs.named(text))
    except NotApplicable:
        return []
    if not source.launches:
        return []
    fitting = rewrites.applicable(source.text)
    found = [_direction(parent, KNOBS, source.text, "the same kernel with other numbers")]
    found += [_direction(parent, strategy, knobs.named(text), "") for strategy, text in fitting.items()]
    return list(filter(None, found))


def _direction(parent: str, strategy: str, text: str, why: str) -> Direction | None:
    """Return the direction of a text with its knobs; None if it may not be judged."""
    if refusal(text):
        return None
    every = [rewrites.BY_NAME[name] for name in strategy.split("+")] if strategy != KNOBS else []
    exact = all(rewrite.kind == rewrites.EXACT for rewrite in every)
    why = why or ", ".join(f"{rewrite.id}: {rewrite.what}" for rewrite in every)
    return Direction(parent, strategy, text, tuple(knobs.find(KernelSource(text))), exact, why)


New = Callable[[Params], bool]


def ask(space: _Space, trials: _Trials, count: int, seed: int, sampler: str, new: New) -> list[Params]:
    """Return up to `count` configurations for which `new` holds. trials: configurations with their speedups."""
    if count <= 0 or not space:
        return []
    how = _asked_of_optuna if sampler == "optuna" else _swept
    return how(space, trials, count, seed, new)


def _asked_of_optuna(space: _Space, trials: _Trials, count: int, seed: int, new: New) -> list[Params]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, optuna.distributions.BaseDistribution] = {
        k.name: optuna.distributions.IntDistribution(0, len(k.values) - 1) for k in space
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = optuna.samplers.TPESampler(
            seed=seed, multivariate=True, constant_liar=True, n_startup_trials=STARTUP_TRIALS
        )
        study = optuna.create_study(direction="maximize", sampler=own)
        for params, value in trials:
            at = {k.name: k.values.index(params[k.name]) for k in space if params[k.name] in k.values}
            if len(at) == len(space):
                study.add_trial(optuna.create_trial(params=at, distributions=distributions, value=value))
        found = []
        for _ in range(4 * count):  # some are known already
            told = study.ask(distributions).params
            params = {k.name: k.values[told[k.name]] for k in space}
            if new(params) and params not in found:
                found.append(params)
            if len(found) == count:
                break
    return found


def _swept(space: _Space, trials: _Trials, count: int, seed: int, new: New) -> list[Params]:
    """Return neighbours of the best configuration: one knob at a time, the nearest values first."""
    now = {knob.name: knob.now for knob in space}
    best = max(trials, key=lambda t: t[1])[0] if trials else now
    steps = []
    for knob in space:
        at = knob.values.index(best[knob.name]) if best[knob.name] in knob.values else 0
        steps += [(abs(i - at), knob.name, value) for i, value in enumerate(knob.values) if i != at]
    random.Random(seed).shuffle(steps)  # noqa: S311 (not used for secrets)
    steps.sort(key=lambda step: step[0])
    found = [params for _, name, value in steps if new(params := best | {name: value})]
    return found[:count]
