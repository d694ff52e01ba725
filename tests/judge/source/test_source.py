"""Labels, bans and kernel names: what is found in a source, and what is not mistaken for it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.config import ROOT
from repro.judge.source import bans, labels
from repro.judge.source import kernels as origins

Write = Callable[[str], Path]
HONEST = sorted(
    {
        *(ROOT / "artifacts").glob("*/*.py"),
        *(ROOT / "artifacts" / "oracle").glob("*.py"),
        *(ROOT / "problems").glob("*.py"),
        *(ROOT / "tests" / "honest").glob("*.py"),
    }
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a solution."""

    def written(source: str) -> Path:
        (tmp_path / "solution.py").write_text(source)
        return tmp_path / "solution.py"

    return written


# -- labels


@pytest.mark.parametrize(
    "source, expected",
    [
        ("@triton.jit\ndef k(x): pass\n", ["triton"]),
        ("@triton.autotune([], [])\n@triton.jit\ndef k(x): pass\n", ["autotuned", "triton"]),
        ("y = torch.matmul(a, b)\n", ["no_custom_kernel", "torch_fallback"]),
        ("y = a @ b\n", ["no_custom_kernel", "torch_fallback"]),
        ("y = F.conv2d(a, b)\n", ["no_custom_kernel", "torch_fallback"]),
        ("y = torch.nn.functional.softmax(a)\n", ["no_custom_kernel", "torch_fallback"]),
        ("y = nn.functional.linear(a, b)\n", ["no_custom_kernel", "torch_fallback"]),
        ("f = torch.compile(g)\n", ["no_custom_kernel", "torch_compile"]),
        (
            "with torch.cuda.graph(g): pass\ns = torch.cuda.Stream()\n",
            ["cuda_graph", "no_custom_kernel", "side_stream"],
        ),
        ("torch.backends.cuda.matmul.allow_tf32 = True\n", ["no_custom_kernel", "sets_tf32"]),
        ("torch.set_float32_matmul_precision('high')\n", ["no_custom_kernel", "sets_tf32"]),
        ("m = torch.utils.cpp_extension.load_inline('m', '')\n", ["inline_cuda"]),
        ("x = torch.empty(3)\n", ["no_custom_kernel"]),
        ("def broken(:\n", ["unreadable"]),
    ],
)
def test_labels_say_what_a_source_uses(write, source, expected):
    assert labels.labels(write(source)) == expected


@pytest.mark.parametrize(
    "source, label",
    [
        ("exec(s)", "dynamic_code"),
        ("f = eval", "dynamic_code"),
        ("compile(s, '', 'exec')", "dynamic_code"),
        ("__import__(name)", "dynamic_code"),
        ("from importlib import import_module as i\ni(name)", "dynamic_code"),
        ("import threading", "threads"),
        ("from concurrent.futures import ThreadPoolExecutor", "threads"),
        ("import _thread as q", "threads"),
        ("import os\nos.fork()", "subprocess"),
        ("from os import system as s\ns('x')", "subprocess"),
        ("import multiprocessing.pool", "subprocess"),
        ("from ctypes import CDLL", "ctypes"),
        ("import cffi", "ctypes"),
        ("x = open('f')", "reads_files"),
        ("from pathlib import Path\nPath('f').read_bytes()", "reads_files"),
        ("import torch as t\nt.load('f')", "reads_files"),
        ("import numpy as n\nn.load('f')", "reads_files"),
        ("y = x.half()", "half_precision"),
        ("y = x.bfloat16()", "half_precision"),
        ("import triton.language as q\n@triton.jit\ndef k(x):\n    x.to(q.float16)", "half_precision"),
        ("from torch import bfloat16", "half_precision"),
        ("with torch.amp.autocast('cuda'): pass", "autocast"),
        ("try:\n    y = k(x)\nexcept Exception:\n    y = torch.matmul(a, b)", "exception_fallback"),
        ("try:\n    y = k(x)\nexcept Exception:\n    y = a @ b", "exception_fallback"),
        ("try:\n    y = k(x)\nexcept Exception:\n    y = super().forward(x)", "exception_fallback"),
        ("class ModelNew(Model): pass", "inherits_model"),
        ("class ModelNew(problem.Model): pass", "inherits_model"),
        ("from L1_36_RMSNorm import Model as M", "inherits_model"),
        ("import problems.L1_36 as q", "inherits_model"),
        ("from torch.cuda import graph as g\nwith g(x): pass", "cuda_graph"),
        ("import torch as t\nE = t.cuda\ns = E.Stream()", "side_stream"),
        ("from triton import jit\n@jit\ndef k(x): pass", "triton"),
        ("import triton\ndef k(x): pass\nk2 = triton.jit(k)", "triton"),
        ("torch.backends.fp32_precision = 'tf32'", "sets_tf32"),
        ("y = torch.ops.aten.mm.default(a, b)", "torch_fallback"),
        ("y = torch._C._nn.linear(a, b)", "torch_fallback"),
        ("def f(a, b):\n    return a.matmul(b)", "torch_fallback"),
        (
            "class M(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(2, 2)\n"
            "    def forward(self, x):\n        return self.fc(x)",
            "torch_fallback",
        ),
    ],
)
def test_a_label_is_found_whatever_it_is_called(write, source, label):
    assert label in labels.labels(write(source))


@pytest.mark.parametrize(
    "source",
    [
        '"""exec, eval, open, ctypes, threading, subprocess: a pass over torch.matmul and torch.compile."""',
        "# torch.compile(f); open('x'); a @ b; import ctypes\nx = 1",
        "s = 'torch.cuda.Stream() and x.half() and F.linear'",
        "import re\nr = re.compile('x')\nmodel.eval()",
        "def f(open, compile):\n    return open(compile)",
        "@triton.jit\ndef k(a, b):\n    return a @ b",
        "class M(nn.Module):\n    def __init__(self):\n        self.fc = nn.Linear(2, 2)\n"
        "    def forward(self, x):\n        return k(x, self.fc.weight)",
        "try:\n    import nvtx\nexcept ImportError:\n    nvtx = None",
        "def open(x): return x\ny = open(3)",
        "out.copy_(x); self.weight.data = y; model.x = 1",
        "class M:\n    def f(self, name):\n        return getattr(self, name)",
    ],
)
def test_words_are_no_uses(write, source):
    """Prose, strings, names that a file uses for something else, and weights that are held and not applied."""
    assert set(labels.labels(write(source))) <= {"no_custom_kernel", "triton"}


def test_labels_of_no_file():
    assert labels.labels(None) == []
    assert labels.labels(Path("nowhere.py")) == ["unreadable"]


# -- bans

BANNED = {
    "import torch\ntorch.cuda.Event.elapsed_time = f": "writes to torch.cuda.Event.elapsed_time",
    "import torch\nE = torch.cuda.Event; E.elapsed_time = f": "writes to torch.cuda.Event.elapsed_time",
    "import torch.cuda as c\nc.synchronize = f": "writes to torch.cuda.synchronize",
    "from torch.cuda import Event as E\nE.record = f": "writes to torch.cuda.Event.record",
    "import torch\ndef g():\n    E = torch.cuda.Event\n    E.record = f": "writes to torch.cuda.Event.record",
    "import torch\na, b = torch.cuda, 1\na.Event.record = f": "writes to torch.cuda.Event.record",
    "import torch\n(E := torch.cuda.Event).record = f": "writes to torch.cuda.Event.record",
    "import torch\nfor torch.cuda.synchronize in [f]: pass": "writes to torch.cuda.synchronize",
    "import torch\nwith f() as torch.cuda.synchronize: pass": "writes to torch.cuda.synchronize",
    "import torch\ndel torch.cuda.synchronize": "writes to torch.cuda.synchronize",
    "import torch\ntorch.x += 1": "writes to torch.x",
    "import torch\nsetattr(torch.cuda.Event, 'elapsed' + '_time', f)": "writes to torch.cuda.Event.elapsed_time",
    "import torch\nsetattr(torch.cuda, name, f)": "writes to torch.cuda.?",
    "import torch\nfor n in names:\n    setattr(torch.cuda, f'{n}', f)": "writes to torch.cuda.{}",
    "import builtins, torch\nbuiltins.setattr(torch, 'rand', f)": "writes to torch.rand",
    "import torch\ndelattr(torch, 'rand')": "writes to torch.rand",
    "import torch\nobject.__setattr__(torch.cuda, 'synchronize', f)": "writes to torch.cuda.synchronize",
    "import torch\ntype.__setattr__(torch.cuda.Event, 'record', f)": "writes to torch.cuda.Event.record",
    "import torch\ntorch.cuda.__setattr__('synchronize', f)": "writes to torch.cuda.synchronize",
    "import torch\ntorch.cuda.__dict__['synchronize'] = f": "writes to torch.cuda.synchronize",
    "import torch\nvars(torch.cuda)['synchronize'] = f": "writes to torch.cuda.synchronize",
    "import torch\nvars(torch.cuda).update(synchronize=f)": "writes to torch.cuda.?",
    "import torch\ngetattr(torch, 'cuda').synchronize = f": "writes to torch.cuda.synchronize",
    "import sys\nsys.modules['torch.cuda'].synchronize = f": "writes to torch.cuda.synchronize",
    "__import__('torch').rand = f": "writes to torch.rand",
    "from unittest import mock\nmock.patch('torch.cuda.synchronize', f).start()": "writes to torch.cuda.synchronize",
    "import torch\nfrom unittest.mock import patch\npatch.object(torch.cuda, 'synchronize', f)":
        "writes to torch.cuda.synchronize",
    "import triton\ntriton.testing.do_bench = f": "writes to triton.testing.do_bench",
    "import time\ntime.perf_counter = f": "writes to time.perf_counter",
    "import builtins\nbuiltins.print = f": "writes to builtins.print",
    "__builtins__['print'] = f": "writes to builtins[...]",
    "import sys\nsys.stdout = f": "writes to sys.stdout",
    "import os\nos.write = f": "writes to os.write",
    "import os\nos.environ = {}": "writes to os.environ",
    "import os\nos.environ: dict = {}": "writes to os.environ",
    "import os\nos.environ += {}": "writes to os.environ",
    "import os\nos.sep |= f": "writes to os.sep",
    "import os\nos.environ.data |= {}": "writes to os.environ.data",
    "from unittest import mock\nmock.patch('os.environ', {})": "writes to os.environ",
    "import os\nfrom unittest import mock\nmock.patch.dict(os.environ.data, {})": "writes to os.environ.data",
    "import torch\ntorch.compiler.config.sys.stdout = f": "writes to torch.compiler.config.sys.stdout",
    "import torch\ntorch.compiler.config = f": "writes to torch.compiler.config",
    "import torch\ntorch.compiler.compile = f": "writes to torch.compiler.compile",
    "import torch.fx as x\nx.experimental._config.os.write = f": "writes to torch.fx.experimental._config.os.write",
    "import torch\ntorch._dynamo.config.os.write = f": "writes to torch._dynamo.config.os.write",
    "import torch\ntorch._inductor.config.torch.ones = f": "writes to torch._inductor.config.torch.ones",
    "import os\nfrom unittest import mock\nmock.patch.dict(os.__dict__, {})": "writes to os.?",
    "import json\njson.dumps = f": "writes to json.dumps",
    "import sys\nsys.modules['x'] = f": "writes to sys.modules[...]",
    "import sys\nsys.modules.pop('torch')": "writes to sys.modules[...]",
    "from sys import modules as m\ndel m['torch']": "writes to sys.modules[...]",
    "import repro.judge.correctness.tolerances": "imports repro",
    "from repro.judge import worker": "imports repro",
    "import importlib\nimportlib.import_module('repro.judge')": "reaches for repro.judge",
    "__import__('repro')": "reaches for repro",
    "import __main__": "imports __main__",
    "import sys\nw = sys.modules['__main__']": "reaches for __main__",
    "import sys\nw = sys.modules.get('repro.judge.worker.server')": "reaches for repro.judge.worker.server",
    "import sys\nf = sys._getframe(1)": "uses sys._getframe",
    "from sys import _getframe as g": "uses sys._getframe",
    "import sys\nf = getattr(sys, '_get' + 'frame')(1)": "uses sys._getframe",
    "import inspect\ninspect.stack()": "uses inspect.stack",
    "from inspect import currentframe": "uses inspect.currentframe",
    "f = e.__traceback__.tb_frame": "uses tb_frame",
    "g = frame.f_back.f_globals": "uses f_back",
    "import gc\ngc.get_objects()": "uses gc.get_objects",
    "import gc as g\ng.get_referrers(x)": "uses gc.get_referrers",
    "import sys\nsys.settrace(f)": "uses sys.settrace",
    "import threading\nthreading.setprofile(f)": "uses threading.setprofile",
    "libc.ptrace(16, pid, 0, 0)": "uses ptrace",
    "f = libc['process_vm_writev']": "names process_vm_writev",
    "f = getattr(libc, 'mprotect')": "names mprotect",
    "s = '#include <sys/mman.h>\\nvoid f() { mprotect(p, n, 7); }'": "names mprotect",
    "open('/proc/self/mem', 'r+b')": "names /proc/self/mem",
    "open(f'/proc/{pid}/mem')": "names /proc/{}/mem",
    "open('/proc/' + pid + '/mem')": "names /proc/{}/mem",
    "open(b'/proc/7/task/7/mem')": "names /proc/7/task/7/mem",
    "env = {'LD_PRELOAD': 'x.so'}": "names LD_PRELOAD",
    "import os\nos.kill(os.getppid(), 9)": "signals its parent",
    "import os\np = os.getppid()\nos.kill(p, 9)": "signals its parent",
    "from os import killpg, getpgid, getppid\nkillpg(getpgid(getppid()), 9)": "signals its parent",
}  # fmt: skip


@pytest.mark.parametrize("source", BANNED)
def test_banned_operations_are_named_with_their_line(write, source):
    found = bans.bans(write("\n" + source))
    reasons = {detail.split(": ", 1)[1]: detail.split(": ", 1)[0] for detail in found}
    assert BANNED[source] in reasons
    assert int(reasons[BANNED[source]].removeprefix("line ")) in range(2, 3 + source.count("\n"))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "import torch\ntorch.backends.cudnn.benchmark = True\nm = torch.backends.cuda.matmul\nm.allow_tf32 = True",
        "import torch\nsetattr(torch.backends.cudnn, 'allow_tf32', True)",
        "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True",
        "import torch._inductor.config as c\nc.max_autotune = True",
        "import torch\ntorch.compiler.config.cache_key_tag = 'v2'",
        "import torch\nsetattr(torch.compiler.config, name, 'v2')",
        "import torch.fx.experimental._config as c\nc.use_duck_shape = False",
        "import torch.utils.cpp_extension as e\ne.CUDA_HOME = '/usr/local/cuda'\nsetattr(e, 'COMMON_NVCC_FLAGS', [])",
        "import triton\ntriton.knobs.runtime.debug = True\ntriton.set_allocator(f)",
        "import os\nos.environ['X'] = '1'\nos.environ.update(Y='2')\ndel os.environ['X']",
        "import os\nos.environ |= {'X': '1'}",
        "import os\nfrom unittest import mock\nwith mock.patch.dict(os.environ, {'X': '1'}):\n    f()",
        "from unittest.mock import patch\npatch.dict('os.environ', X='1').start()",
        "import sys\nsys.path.insert(0, 'x')\nsys.path = [*sys.path, 'y']\nm = sys.modules[__name__]",
        "import inspect\ninspect.signature(f)\ninspect.getsource(f)",
        "import gc\ngc.collect()",
        "import time\nt = time.perf_counter()",
        "import os\nos.kill(os.getpid(), 9)\np = os.getppid()",
        "self.weight.data = x\nmodel.x = y\nout.copy_(z)\nkernel.cache = {}",
        "import torch\nE = torch.cuda.Event\nE = Mine()\nE.x = 1",
        "import torch\ndef f(torch):\n    torch.x = 1",
        "import time\nclass M:\n    time = 0\n    def f(self, time):\n        time.x = 1",
        "class M:\n    time = Clock()\n    def f(self):\n        self.time.x = 1\ntime = Clock()\ntime.x = 1",
        "import torch\nx = torch.empty(3)\nx.mine = 1\nsetattr(x, 'y', 2)\nsetattr(self, name, x)",
        "import torch\ntorch.nn.Module.__setattr__(self, 'x', 1)\nobject.__setattr__(self, 'y', 2)",
        "import torch\nclass M(torch.nn.Module):\n    def __setattr__(self, n, v):\n        super().__setattr__(n, v)",
        '"""Reads no /proc/self/mem, sets no LD_PRELOAD, calls no mprotect( and no ptrace."""',
        "x = 1  # torch.cuda.Event.elapsed_time = f; import repro",
        "open('/proc/meminfo')\nopen('/proc/self/status')",
        "if __name__ == '__main__':\n    main()",
        "self.__dict__['x'] = 1\nvars(self).update(y=2)\nglobals()['z'] = 3",
        "d = {}\nd.update(x=1)\nd.pop('x')\ncache['__main__'] = 1",
        "reproduce = 1\nrepro = 2\nimport reprolib",
        "def broken(:",
    ],
)
def test_ordinary_code_is_not_banned(write, source):
    assert bans.bans(write(source)) == []


def test_no_honest_file_is_banned():
    """Artifacts, oracles, problems and every honest kernel of the suite."""
    assert {file: banned for file in HONEST if (banned := bans.bans(file))} == {}


def test_bans_of_no_file():
    assert bans.bans(None) == bans.bans(Path("nowhere.py")) == []


def test_the_coding_of_a_file_is_honoured(tmp_path):
    """What is read is what Python runs, and not what the bytes look like."""
    file = tmp_path / "solution.py"
    file.write_bytes(b"# coding: utf-7\n+AGkAbQBwAG8AcgB0- sys\nsys.stdout = None\n")
    assert bans.bans(file) == ["line 3: writes to sys.stdout"]


# What makes a reader slow that follows names, chains and nested calls.
SLOW_TO_READ = {
    "subscripts": "x = a" + "[0]" * 80,
    "dicts": "x = a" + ".__dict__['x']" * 80,
    "calls": "f" + "()" * 80,
    "getattrs": "x = " + "getattr(" * 60 + "t" + ", 'x')" * 60,
    "sums": "x = " + " + ".join(["'x'"] * 900),
    "elifs": "if a: pass\n" + "elif a: pass\n" * 3000,
    "minuses": "x = " + "-" * 100_000 + "1",
    "long string": "x = '" + "a" * 5_000_000 + "'",
    "long code": "s = '__global__ " + "void " * 20_000 + "'",
    "open comments": "s = '__global__ " + "/*a" * 400_000 + "'",
    "open brackets": "s = '" + "__global__ __launch_bounds__(" * 40_000 + "'",
    "long names": ("a" + ".b" * 900 + "\n") * 80,
    "long chains": ("a" + ".b()" * 450 + "\n") * 80,
    "many getattrs": ("x = " + "getattr(" * 90 + "t" + ", 'x')" * 90 + "\n") * 200,
    "names and functions": "".join(f"a{i} = 1\n" for i in range(30_000)) + "def f(): pass\n" * 30_000,
}
SECONDS = ("long names", "long chains", "many getattrs", "names and functions")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in SECONDS else name for name in SLOW_TO_READ]
)
def test_a_source_that_is_made_to_be_slow_is_read_in_bounded_time(write, name):
    begin = time.process_time()
    path = write(SLOW_TO_READ[name])
    for read in (labels.labels, bans.bans, origins.own_names):
        read(path)
    assert time.process_time() - begin < 20


@pytest.mark.slow
def test_sources_too_long_to_check_are_not_run(write):
    """A source whose names cannot be followed in bounded time is not run unread."""
    path = write(("a" + ".b" * 900 + "\n") * 80 + "import torch\ntorch.cuda.Event.record = None\n")
    assert bans.bans(path) == [bans.UNREADABLE]
    assert labels.labels(path) == ["unreadable"] and origins.own_names(path) == set()


# -- kernels


def test_own_kernels_are_recognised_by_their_name_in_the_source():
    own = {"rms_norm_kernel", "reduce_kernel"}
    for name in (
        "rms_norm_kernel",
        "void rms_norm_kernel<float, 4>(float const*, float*)",
        "mine::rms_norm_kernel(int)",
        "void (anonymous namespace)::rms_norm_kernel(float*)",
        "_Z15rms_norm_kernelPKfPfi",
    ):
        assert origins.is_own(name, own), name
    assert not origins.is_own("void at::native::reduce_kernel<512, 1>(int)", own), "a namesake in a library"
    assert not origins.is_own("rms_norm_kernel_2", own)


def test_own_names_are_jit_functions_and_global_functions(write):
    source = '''
from triton import jit, autotune
import triton as t
@jit
def one(x): pass
@autotune([], [])
@t.jit(do_not_specialize=[])
def two(x): pass
def three(x): pass
three_jit = t.jit(three)
def helper(x): pass
CODE = """
// __global__ void commented(float*) {}
template <typename T> __global__ void four(T* x) {}
__global__ static void __launch_bounds__(256, 2)
five(float* x) {}
"""
NAME = "six"
MORE = f"extern \\"C\\" __global__ void seven(float* {NAME}) {{}}"
'''
    assert origins.own_names(write(source)) == {"one", "two", "three", "four", "five", "seven"}
    assert origins.own_names(None) == origins.own_names(Path("nowhere.py")) == set()


def test_shares_are_of_time(write):
    source = write("@triton.jit\ndef mine(x): pass\n")
    assert origins.share([["mine", 30.0], ["ampere_sgemm_128x64_tn", 10]], source) == 0.75


def test_a_kernel_that_does_not_run_has_no_share(write):
    unused = write("@triton.jit\ndef mine(x): pass\n")
    assert origins.share([["nvjet_tst_128x256", 5.0]], unused) == 0


def test_a_profile_that_lies_breaks_nothing(write):
    """Kernels come from the worker: anything may stand there."""
    times = ["1", None, -1, True, float("nan"), float("inf"), 10**400]
    garbage = [None, 3, "x", {}, [3, 1], ["x"], *(["x", us] for us in times)]
    assert origins.share(garbage, None) is None
    assert origins.share([*garbage, ["n" * 10**6, 1]], None) == 0


def test_only_the_first_kernels_of_a_profile_are_read(write):
    """A worker may tell of any number of kernels, and each is held against every name in the source."""
    source = write("".join(f"@triton.jit\ndef k{i}(x): pass\n" for i in range(10_000)))
    begin = time.process_time()
    assert origins.share([[f"_Z{i}", 1] for i in range(100_000)], source) == 0
    assert time.process_time() - begin < 20


def test_nothing_is_profiled_without_a_gpu(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert origins.profile(lambda: None) == ([], "no GPU")


@pytest.mark.gpu
def test_a_profile_names_the_kernels_of_a_call():
    import torch

    a = torch.ones(512, 512, device="cuda")
    kernels, reason = origins.profile(lambda: torch.mm(a, a).add_(1))
    names = " ".join(name for name, _ in kernels)
    assert not reason and re.search("gemm|nvjet|cutlass", names) and "at::native" in names, kernels


@pytest.mark.gpu
def test_profiling_does_not_wait_for_the_compiler_s_imports():
    """torch.profiler imports all of torch.compile, seconds in every solution's process."""
    program = (
        "import sys, torch; from repro.judge.source import kernels\n"
        "print(kernels.profile(lambda: torch.ones(512, device='cuda').add_(1)))\n"
        "assert not {'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert "elementwise" in done.stdout, done.stdout


def test_the_source_is_read_without_torch():
    """The judge reads a solution before anything heavy is imported."""
    program = "import sys; from repro.judge.source import bans, kernels, labels; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
