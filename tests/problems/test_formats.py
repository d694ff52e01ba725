"""Definitions, workloads and solutions of FlashInfer-Bench and SOL-ExecBench: judged as KernelBench files, and back."""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import CPU, Tool

from repro import config
from repro.bundle.write import Bundle
from repro.errors import ReproError, UsageError
from repro.fixtures import calibration
from repro.judge import session
from repro.judge.implementation import Options
from repro.problems import catalogue, derive, formats, meta, shapes
from repro.problems import plan as plans
from repro.problems.catalogue import Problem
from repro.report import traces as exported
from repro.system.jsonio import Json

REFERENCE = """import torch

def run(x, gain, shift, scale):
    y = x.to(torch.float32) * gain * scale
    return {"y": torch.cat((y, y + shift), 1).to(torch.bfloat16)}
"""
DEFINITION = {
    "name": "twice",
    "axes": {"M": {"type": "var"}, "N": {"type": "var"}, "K": {"type": "const", "value": 48},
             "K2": {"type": "expr", "expression": "2 * K"}},
    "inputs": {"x": {"shape": ["M", "K"], "dtype": "bfloat16"}, "gain": {"shape": ["K"], "dtype": "float32"},
               "shift": {"shape": ["K"], "dtype": "int32"}, "scale": {"shape": [], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["N", "K2"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
}  # fmt: skip
HALF = {"scale": {"type": "scalar", "value": 0.5}}
WORKLOAD = {"uuid": "ab12", "axes": {"M": 16, "N": 16}, "inputs": HALF}
FILL = "def run(x, gain, shift, scale, y):\n    half = x.float() * gain * scale\n    y[:, :48] = half\n"
BINDING = (
    '#include "k.h"\n#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
)


def files(folder: Path, sources: dict[str, str], workload: Json | None = None, **changed: Any) -> Path:
    """Write a definition, its workload and a solution as SOL-ExecBench places them; return the solution."""
    folder.mkdir(parents=True, exist_ok=True)
    spec = {"entry_point": f"{list(sources)[-1]}::run", **changed.pop("spec", {})}
    solution = {"name": folder.name, "definition": "twice", "spec": spec,
                "sources": [{"path": path, "content": text} for path, text in sources.items()]}  # fmt: skip
    (folder / "definition.json").write_text(json.dumps(DEFINITION | changed))
    (folder / "workload.jsonl").write_text(json.dumps(workload or WORKLOAD) + "\n")
    (folder / "solution.json").write_text(json.dumps(solution))
    return folder / "solution.json"


RETURNS = {"destination_passing_style": False}
JUDGED = {
    "fills its output": ({"main.py": FILL + "    y[:, 48:] = half + shift\n"}, {}, "correct"),
    "leaves a part of its output unwritten": (
        {"main.py": FILL + "    y[:, 48:-1] = (half + shift)[:, :-1]\n"}, {}, "not_finite"),
    "returns a dictionary": ({"main.py": REFERENCE}, RETURNS, "correct"),
    "returns another dtype": ({"main.py": REFERENCE.replace("bfloat16", "float32")}, RETURNS, "wrong_dtype"),
    "breaks a rule": ({"main.py": REFERENCE + "torch.cuda.Event = None\n"}, RETURNS, "banned"),
}  # fmt: skip


def loaded(solution: Path, size: str = "smoke") -> Problem:
    return catalogue.resolve(str(formats.definition_of(solution)), size=size)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    problem = loaded(files(tmp_path_factory.mktemp("twice"), {"main.py": REFERENCE}))
    assert (problem.id, problem.dtype) == ("twice", "bfloat16")
    problem = derive.complete(problem.at(shapes.workloads([], problem)[0].constants))
    return problem, calibration.build(problem, torch.device("cpu"))


@pytest.mark.parametrize("name", JUDGED)
def test_a_solution_is_judged_by_its_definition(name, calibrated, tmp_path):
    sources, spec, expected = JUDGED[name]
    solution = files(tmp_path, sources, spec=spec)
    text = tmp_path / "solution.py"
    (workload,) = shapes.workloads([], loaded(solution))
    definition = formats.definition_of(solution)
    text.write_bytes(formats.filled(formats.program(solution, definition)[1], definition, workload.line))
    options = Options(device="cpu", timing=False, trust="dev", timeout_s=60)
    (verdict,) = session.evaluate(*calibrated, [("mine", text, "ModelNew")], options).results
    assert expected in (verdict.verdict, *(reason.code for reason in verdict.reasons)), verdict.reasons


def test_inputs_have_their_declared_dtypes_and_values(calibrated, tmp_path):
    plan = plans.plan(calibrated[0])
    assert [recipe and recipe.dtype for recipe in plan.recipes] == [torch.bfloat16, torch.float32, torch.int32, None]
    assert plan.spec[3] == 0.5 and [tuple(plan.spec[i][0]) for i in plan.tensors] == [(16, 48), (48,), (48,)]
    fixed = torch.arange(48, dtype=torch.int32)
    head = json.dumps({"s": {"dtype": "I32", "shape": [48], "data_offsets": [0, 192]}}).encode()
    (tmp_path / "blob").mkdir()
    (tmp_path / "blob/a.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + fixed.numpy().tobytes())
    given = WORKLOAD["inputs"] | {"shift": {"type": "safetensors", "path": "blob/a.safetensors", "tensor_key": "s"}}
    problem = loaded(files(tmp_path / "op", {"main.py": ""}, WORKLOAD | {"inputs": given, "axes": {"M": 3}}))
    (workload,) = shapes.workloads([], problem)
    assert (workload.name, workload.constants) == ("M=3 scale=0.5 #ab12", {"M": 3, "scale": 0.5})
    made = replace(problem, text=formats.filled(problem.text, problem.path, workload.line))
    x, _, shift, _ = plans.plan(made.at(workload.constants | {"M": 5})).make(3, torch.device("cpu"))
    assert torch.equal(shift, fixed) and len(x) == 5


def test_custom_inputs_are_made_from_all_that_a_workload_sets(tmp_path):
    made = "\ndef make(given, device):\n    return {'scale': given['flag'] + given['scale'] + given['K']}\n"
    workload = WORKLOAD | {"axes": {"M": 3, "N": 3, "flag": 4}}
    changed = {"reference": REFERENCE + made, "custom_inputs_entrypoint": "make"}
    assert plans.plan(loaded(files(tmp_path, {"main.py": ""}, workload, **changed))).spec[3] == 52.5


def test_cuda_sources_become_one_call_of_load_inline(tmp_path, monkeypatch):
    sources = {
        "k.h": "#pragma once\nvoid run();\n",
        "k.cu": '#include "k.h"\n#include "k.h"\n#include "other.h"\n__global__ void k() {}\n',
        "main.cpp": BINDING,
    }
    solution = files(tmp_path, sources, spec={"compile_options": {"cuda_cflags": ["-O3"]}})
    called = []
    module = SimpleNamespace(
        load_inline=lambda *texts, **flags: called.append((texts, flags)) or SimpleNamespace(run=0)
    )
    monkeypatch.setitem(sys.modules, "torch.utils.cpp_extension", module)
    exec(formats.program(solution, tmp_path / "definition.json")[1], {})
    ((_, host, device), flags) = called[0]
    assert device == '\nvoid run();\n\n\n#include "other.h"\n__global__ void k() {}\n'
    assert host.count("void run();") == 1 and flags == {"extra_cuda_cflags": ["-O3"]}


NOT_JUDGED = {
    "fp8": ({"outputs": {"y": {"shape": ["M", "K2"], "dtype": "float8_e5m2"}}}, {}, "limits are known for float8_e5m2"),
    "no scalar": ({"inputs": {"n": {"shape": None, "dtype": "int32"}}}, {}, "no value of scalar n"),
    "no file": ({}, {"inputs": {"scale": {"type": "scalar", "value": 1}, "x": {
        "type": "safetensors", "path": "b/x.st", "tensor_key": "x"}}}, "no b/x.st near"),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_a_workload_that_cannot_be_judged_is_named_with_its_reason(name, tmp_path):
    changed, workload, reason = NOT_JUDGED[name]
    problem = loaded(files(tmp_path, {"main.py": ""}, WORKLOAD | workload, **changed), "full")
    (workload,) = shapes.workloads([], problem)
    with pytest.raises(ReproError, match=f"not judged: .*{reason}"):
        problem = replace(problem, text=formats.filled(problem.text, problem.path, workload.line)).at(
            workload.constants
        )
        meta.output_spec(plans.plan(problem), plans.Weights([], {}))


REFUSED = {
    "no reference": ({"main.py": ""}, {"reference": 3}, "is no definition: reference"),
    "a name that is code": ({"main.py": ""}, {"axes": {"M): pass": {"type": "var"}}}, "is no definition: axes"),
    "code that is none": ({"main.py": ""}, {"reference": "def run(:"}, "is not Python"),
    "several sources": ({"a.py": "", "main.py": ""}, {}, "has several sources"),
    "no binding": ({"main.cu": ""}, {}, "no PYBIND11_MODULE"),
    "another definition": ({"main.py": ""}, {"name": "thrice"}, "is thrice"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_definition_or_solution_is_refused_with_its_field(name, tmp_path):
    sources, changed, reason = REFUSED[name]
    solution = files(tmp_path, sources, **changed)
    with pytest.raises(UsageError, match=reason):
        formats.program(solution, loaded(solution).path)


def test_a_folder_is_judged_and_leaves_traces(tool: Tool):
    files(tool.folder / "set/right", {"main.py": REFERENCE}, spec=RETURNS)
    files(tool.folder / "set/wrong", {"main.py": REFERENCE.replace("+ shift", "- shift")}, spec=RETURNS)
    given = WORKLOAD | {"inputs": {"x": {"type": "safetensors", "path": "none.st"}}}
    traced = {"definition": "twice", "workload": WORKLOAD | {"uuid": "c", "axes": {"M": 7, "N": 7}}}
    lines = [WORKLOAD, traced, given | {"uuid": "d"}]
    (tool.folder / "w.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = tool("evaluate", "set", "--shapes", "w.jsonl", *CPU, "--no-timing")
    assert done.code == 1 and "right at 2 of 3 shapes" in done.out and "no none.st near" in done.out, done.out
    assert tool.within("report", tool.bundles()[-1], "-o", "out", "--format", "flashinfer-trace").code == 0
    assert tool.within("share", tool.bundles()[-1], "-o", "copy").code == 0
    assert "schema" not in tool.within("verify", "copy").out
    made = tool.folder / "out/flashinfer-trace"
    traces = list(map(json.loads, (made / "traces/twice.jsonl").read_text().splitlines()))
    assert [trace["evaluation"]["status"] for trace in traces] == 2 * ["PASSED"] + 2 * ["INCORRECT_NUMERICAL"]
    assert traces[1]["workload"] == WORKLOAD | {"uuid": "c", "axes": {"M": 7, "N": 7}}
    solution = made / "solutions/twice/right.json"
    assert b"class ModelNew" in formats.program(solution, tool.folder / "set/right/definition.json")[1]
    spec = json.loads(solution.read_text())["spec"]  # FlashInfer-Bench reads `language`, SOL-ExecBench the lists
    assert (spec["language"], spec["languages"], spec["target_hardware"]) == ("python", ["pytorch"], ["LOCAL"])


def test_their_libraries_get_no_solution_that_they_cannot_run():
    """One that needs constructor arguments or weights: there is no definition of it."""
    (bundle,) = (config.ARTIFACTS_DIR / "results/h200-pinned").glob("20261122*-benchmark")
    assert {file.split("/")[1] for file in exported.files([Bundle.open(bundle)])} == {"traces"}
