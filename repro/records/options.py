"""How solutions are judged and timed: one record from the command line to the judge and into the manifest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from repro.records.base import Record
from repro.records.fingerprint import Device
from repro.system.jsonio import Json

Trust = Literal["audited", "dev"]
# Torch baselines, and what is measured beside the times: the A/A control, and the profile of each solution's kernels.
# Neither of the latter decides a verdict. Manifests of older bundles also name `hot`, which is no longer measured.
_Mode = Literal["eager", "compile", "reduce_overhead", "max_autotune"]
Pass = Literal["control", "hot", "profile"]
MODES: tuple[_Mode, ...] = ("eager", "compile", "reduce_overhead", "max_autotune")
PASSES: tuple[Pass, ...] = ("control", "profile")
# A quick look: seconds of timing a problem, most blocks, and these baselines alone.
_QUICK_BUDGET_S, _QUICK_BLOCKS, _QUICK_MODES = 1.5, 48, ("eager", "compile")
# The most on the CPU, where no time is a measurement, and of trust `dev`: seconds of timing a problem, and blocks.
_CPU_BUDGET_S, _CPU_BLOCKS = 1.0, 40
_DEV_BUDGET_S, _DEV_BLOCKS = 2.0, 64
# Seconds for the published protocol, four variants of at most 90 s, and for KernelBench's, by solution.
_PARITY_S, _KERNELBENCH_S = 360.0, 180.0
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Options(Record):
    """How solutions of one problem are judged and timed. The same record on the command line, in the judge, in the
    manifest."""

    model_config = ConfigDict(extra="forbid")

    device: Device = "cuda"
    """where solutions run; `on` sets it"""
    trust: Trust = "audited"
    """audited: the solution runs in a process of its own, and every time is checked; dev: one process, quick, for an
    inner loop"""
    timing: bool = True
    """whether solutions are timed"""
    modes: tuple[_Mode, ...] = Field(MODES, strict=False)
    """torch baselines"""
    passes: tuple[Pass, ...] = Field(PASSES, strict=False)
    """what is measured beside the times; none of it decides a verdict"""
    timeout_s: _Seconds = 180.0
    """longest wait for one answer of an audited solution, seconds"""
    timing_budget_s: _Seconds = 10.0
    """time for sampling one problem, seconds; spent again where ratios are still open"""
    # It takes turns with the trials, and 30 s left L3_44's out on an H100.
    compile_timeout_s: _Seconds = 60.0
    """longest wait for torch.compile's max-autotune, seconds; a baseline that takes longer is left out"""
    max_blocks: int = Field(400, ge=1)
    """most blocks of samples; with fewer than 400 an open ratio gets no second budget"""
    checks: tuple[Literal["strides", "sanitizer", "backward"], ...] = Field((), strict=False)
    """what also decides: inputs that are not contiguous, compute-sanitizer, gradients of inputs and parameters"""
    parity: bool = False
    """also time by the published protocol, do_bench(500, 100) in one process, and print it beside ours"""
    kernelbench: bool = False
    """also judge and time as KernelBench does: five draws, allclose, the mean of 100 calls; decides nothing"""
    alone: bool = True
    """whether baselines are timed again without the solutions, which may have slowed them"""
    reloads: bool = False
    """whether solutions that differ from the first one are loaded anew and timed again, so that their ratios to it hold
    across loads"""
    shared: bool = False
    """whether one worker screens one solution after another: for solutions that do not lie about each other"""
    screening: bool = False
    """whether clocks are not compared, as when many candidates are screened"""

    @property
    def controlled(self) -> bool:
        """Return whether an A/A control is timed."""
        return self.device == "cuda" and self.trust == "audited" and "control" in self.passes

    def but(self, **changes: Any) -> Options:
        """Return these options with some of them changed."""
        return Options.model_validate(self.to_json() | changes)

    def on(self, device: str) -> Options:
        """Return these options as they hold on a device.

        torch.compile is a baseline of audited solutions on a GPU alone. On the CPU, and of trust `dev`, the timing is
        shorter.
        """
        bounds = [(self.timing_budget_s, self.max_blocks)]
        bounds += [(_CPU_BUDGET_S, _CPU_BLOCKS)] if device == "cpu" else []
        bounds += [(_DEV_BUDGET_S, _DEV_BLOCKS)] if self.trust == "dev" else []
        modes = self.modes if device == "cuda" and self.trust == "audited" else ("eager",)
        return self.but(device=device, modes=modes, **_least(bounds))

    def quick(self) -> Options:
        """Return these options for a quick look: a shorter timing against fewer baselines, the same verdicts."""
        modes = [mode for mode in self.modes if mode in _QUICK_MODES]
        bounds = [(self.timing_budget_s, self.max_blocks), (_QUICK_BUDGET_S, _QUICK_BLOCKS)]
        return self.but(modes=modes, passes=(), **_least(bounds))

    def job_timeout_s(self, solutions: int) -> float:
        """Return when the engine kills a whole job: every request may take its full time once, with room for baselines.

        solutions: how many the job judges.
        """
        parity_s = _PARITY_S * self.parity + _KERNELBENCH_S * solutions * self.kernelbench
        return 600.0 + 6 * self.timeout_s * solutions + self.timing_budget_s * (1 + 8 * self.reloads) + parity_s

    def to_json(self) -> Json:
        """Return every option, also those with their defaults."""
        return self.model_dump(mode="json")


def _least(bounds: list[tuple[float, int]]) -> Json:
    return {"timing_budget_s": min(s for s, _ in bounds), "max_blocks": min(blocks for _, blocks in bounds)}
