"""What a candidate compiles to, without a GPU: a hash of its PTX, registers, shared memory, and occupancy from them.

The candidate is called with tensors on the device `meta`, which have shapes but no memory, and each launch ends after
the compiler. Its code runs outside of the judge's sandbox, so the loop compiles only the user's own kernel and what its
rewrites have made of it.

    python -m repro.optimize.compiled PROBLEM SIZE DTYPE ARCH FILE...        prints one JSON object a file
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import config
from repro.records.search import Compiled, CompiledKernel

TIMEOUT_S = 120.0
AT_ONCE = 8
# Comments, which may name what two equal programs differ in.
PLACES = re.compile(r"^\s*//.*$", re.MULTILINE)
REGISTERS = re.compile(r"Used (\d+) registers")


@dataclass(frozen=True)
class Limits:
    """What a multiprocessor holds. Source: CUDA C++ Programming Guide, compute capabilities."""

    warps: int
    registers: int
    shared_bytes: int
    blocks: int


LIMITS = {
    80: Limits(64, 65536, 164 << 10, 32), 89: Limits(48, 65536, 100 << 10, 24), 90: Limits(64, 65536, 228 << 10, 32),
    100: Limits(64, 65536, 228 << 10, 32),
}  # fmt: skip


def occupancy(arch: int, warps: int, registers: int, shared_bytes: int) -> float | None:
    """Return the share of a multiprocessor's warps that can be resident at once; None for an unknown architecture."""
    limits = LIMITS.get(arch)
    if limits is None:
        return None
    a_warp = -(-registers * 32 // 256) * 256  # registers are given out in units of 256
    shared = shared_bytes + 1024  # which the system keeps for itself
    blocks = min(limits.blocks, limits.warps // warps, limits.registers // max(1, a_warp * warps),
                 limits.shared_bytes // shared)  # fmt: skip
    return blocks * warps / limits.warps


def compile_all(problem: str, size: str, dtype: str, arch: int, sources: dict[str, str]) -> dict[str, Compiled]:
    """Return name -> what it compiles to, each from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="repro-compile-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def one(name: str) -> Compiled:
            file = Path(folder) / f"{name.replace('.', '_')}.py"
            file.write_text(sources[name])
            words = (problem, size, dtype, str(arch), str(file))
            command = [sys.executable, "-P", "-m", "repro.optimize.compiled", *words]
            env = config.job_env({"TRITON_CACHE_DIR": f"{folder}/cache", "PYTHONPATH": os.pathsep.join(sys.path)})
            env.pop("TRITON_INTERPRET", None)
            try:
                done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=TIMEOUT_S, check=False)
                return Compiled.model_validate(json.loads(done.stdout.splitlines()[-1]))
            except (subprocess.TimeoutExpired, ValueError, IndexError):
                return Compiled(error="it did not compile")

        return dict(zip(sources, pool.map(one, sources), strict=True))


def aim(arch: int) -> None:
    """Make Triton compile for an architecture, whatever GPU is here. Each has a device of its own, which keeps Triton's
    caches apart."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget

    class Driver:
        """Stands in for Triton's driver."""

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", arch, 32)

        def get_current_device(self) -> int:
            return arch

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("meta")

    triton.runtime.driver.set_active(Driver())


def compile_one(problem: str, size: str, dtype: str, arch: int, file: Path) -> Compiled:
    """Compile every kernel that a solution launches on a problem's shapes. Raises what the solution raises."""
    import torch
    import triton
    from triton.runtime.jit import JITFunction

    from repro.judge.worker.binding import bind
    from repro.problems import catalogue

    found: list[CompiledKernel] = []
    run = JITFunction.run

    def compiled(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        meta = kernel.metadata
        registers = _registers(kernel.asm["ptx"])
        text = PLACES.sub("", kernel.asm["ptx"]).replace(meta.name, "kernel")
        parts = grid(dict(zip(self.arg_names, args, strict=False)) | kwargs) if callable(grid) else grid
        found.append(CompiledKernel(
            name=self.__name__, ptx=hashlib.sha256(text.encode()).hexdigest(), grid=list(parts),
            warps=meta.num_warps, shared_bytes=meta.shared, registers=registers,
            occupancy=occupancy(arch, meta.num_warps, registers, meta.shared) if registers else None,
        ))  # fmt: skip
        return kernel

    triton.knobs.compilation.disable_line_info = True  # which names the file, so that equal programs would differ
    JITFunction.run = compiled
    aim(arch)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    reference = catalogue.resolve(problem.partition("@")[0], size=size, dtype=dtype).module()
    with torch.device("meta"), torch.no_grad():
        inputs = [t.to(getattr(torch, dtype)) if torch.is_tensor(t) else t for t in reference.get_inputs()]
        given = reference.get_init_inputs()
        if hasattr(module, "ModelNew"):
            module.ModelNew(*given).to(getattr(torch, dtype)).eval()(*inputs)
        else:
            model = reference.Model(*given).to(getattr(torch, dtype))
            bind(module.kernel_function, model, len(inputs))(*inputs)
    # the launches decide too: equal kernels on other grids are other programs
    ptx = hashlib.sha256(json.dumps([[k.ptx, k.grid, k.warps] for k in found]).encode()).hexdigest()
    return Compiled(ptx=ptx, kernels=found)


def _registers(ptx: str) -> int | None:
    """Return the registers of a thread, as Triton's own ptxas reports them."""
    import triton.backends.nvidia

    ptxas = Path(triton.backends.nvidia.__file__).parent / "bin" / "ptxas"
    target = re.search(r"\.target (sm_\w+)", ptx)
    if not ptxas.exists() or target is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [str(ptxas), "-v", f"--gpu-name={target.group(1)}", file.name, "-o", os.devnull]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
    told = REGISTERS.search(said.stderr + said.stdout)
    return int(told.group(1)) if told else None


def main(arguments: list[str]) -> int:
    """Compile files; print one JSON object each."""
    problem, size, dtype, arch, *files = arguments
    from triton.runtime.jit import JITFunction

    run = JITFunction.run
    for file in files:
        JITFunction.run = run
        try:
            found = compile_one(problem, size, dtype, int(arch), Path(file))
        except Exception as error:  # of the solution
            found = Compiled(error=f"{type(error).__name__}: {error}"[:300])
        print(json.dumps(found.to_json()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
