"""The keyed digest of a timed output: what it sees, that pieces add up, and that the GPU's kernel computes the same.

Where there is no GPU the kernel is followed instruction by instruction, and assembled for every GPU that counts.
"""

from __future__ import annotations

import re
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from repro.judge import digests, driver, outputs

DTYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool"]
KEY = (0x1234ABCD << 32) | 0x0FEDCBA9
WORD = (1 << 32) - 1


def plainly(words: list[int], start: int, key: int) -> int:
    """The digest as it is defined, number by number."""
    total = 0
    for place, word in enumerate(words, start):
        h = ((place & WORD) ^ (key & WORD)) * 0x9E3779B1 & WORD
        h = ((h ^ h >> 15) + (key >> 32)) * 0x85EBCA6B & WORD
        h = (h ^ h >> 13) * 0xC2B2AE35 & WORD
        total += word * ((h ^ h >> 16) | 1)
    return total % (1 << 64)


def unsigned(values: torch.Tensor) -> list[int]:
    """An output's words in memory as unsigned numbers."""
    data = bytes(values.contiguous().view(torch.uint8).flatten().tolist())
    size = min(4, values.element_size())
    return [int.from_bytes(data[at : at + size], "little") for at in range(0, len(data), size)]


def drawn(dtype: str, *shape: int) -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * 100
    if dtype == "bool":
        return values > 0
    return values.abs().byte() if dtype == "uint8" else values.to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("start", [0, 977, (1 << 32) - 20])
def test_a_digest_is_the_weighted_sum_of_unsigned_words(dtype: str, start: int) -> None:
    values = drawn(dtype, 130)
    words = unsigned(values)
    assert digests.keyed(values, start, KEY) == plainly(words, start * (len(words) // 130), KEY)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_digest_depends_on_every_bit_its_place_and_the_key(dtype: str) -> None:
    values = drawn(dtype, 64)
    bits = values.view(torch.uint8).clone()
    found = {digests.keyed(values, 0, KEY), digests.keyed(values, 1, KEY), digests.keyed(values, 0, KEY + 2),
             digests.keyed(values, 0, KEY ^ (1 << 40)), digests.keyed(values.flip(0), 0, KEY)}  # fmt: skip
    changed = set()
    for bit in range(8 * bits.numel() if dtype != "bool" else 0):
        other = bits.clone()
        other[bit // 8] ^= 1 << bit % 8
        changed.add(digests.keyed(other.view(values.dtype), 0, KEY))
    assert len(found) == 5 and not found & changed and len(changed) == (8 * bits.numel() if dtype != "bool" else 0)


def test_pieces_add_up_whatever_the_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    values = drawn("float64", 40, 250)
    whole = digests.keyed(values, 0, KEY)
    for rows in (1, 7, 40):
        parts = [digests.keyed(values[i : i + rows], 250 * i, KEY) for i in range(0, 40, rows)]
        assert sum(parts) & digests.MASK == whole, rows
    monkeypatch.setattr(digests, "STEP", 333)
    assert digests.keyed(values, 0, KEY) == whole
    wide = torch.zeros(40, 500, dtype=torch.float64)
    wide[:, ::2] = values
    assert digests.keyed(wide[:, ::2], 0, KEY) == digests.keyed(values.t().contiguous().t(), 0, KEY) == whole
    assert digests.keyed(wide.view(-1)[::2], 0, KEY) == whole, "gaps of one dimension are left out too"
    assert digests.keyed(values[:0], 0, KEY) == 0
    one = wide[:, ::2].reshape(1, 1, -1).expand(3, 1, -1)
    assert digests.keyed(one, 5, KEY) == digests.keyed(one.contiguous(), 5, KEY)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("order", [(0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)])
def test_an_output_is_digested_in_the_order_of_its_memory(
    dtype: str, order: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker copies nothing for it; the judge, who has the elements in their own order, finds their places."""
    shape = (6, 5, 4, 3)
    memory = drawn(dtype, *(shape[d] for d in order))
    output = memory.permute(*(order.index(d) for d in range(4)))
    assert output.shape == shape and not output.is_contiguous()
    described = outputs.describe(output, [])
    assert described["order"] == list(order) and described["dense"]
    (told,) = outputs.keyed(output, KEY)
    assert told == digests.keyed(memory, 0, KEY) != digests.keyed(output, 0, KEY)
    monkeypatch.setattr(digests, "STEP", 50)
    for rows in (1, 4, 6):
        parts = [digests.reordered(output[i : i + rows], 60 * i, KEY, list(shape), list(order))
                 for i in range(0, 6, rows)]  # fmt: skip
        assert sum(parts) & digests.MASK == told, rows


def test_dimensions_of_one_element_lie_anywhere() -> None:
    assert outputs.describe(torch.zeros(4, 1, 3, 1), [])["order"] == [0, 1, 2, 3]
    assert outputs.describe(torch.zeros(3, 1, 4).permute(2, 1, 0), [])["order"] == [2, 0, 1]
    assert outputs.describe(torch.tensor(1.0), [])["order"] == []


# -- the kernel, without a GPU -----------------------------------------------------------------------------------------

PTX = {name: Path(driver.__file__).with_name(f"{name}.ptx").read_text() for name in ("digest", "gate")}
INSTRUCTION = re.compile(r"^(?:@(?P<if>%\w+) )?(?P<op>[\w.]+)(?: (?P<rest>.*))?;$")
LANES = 32


class Thread:
    """One thread of the kernel, run up to its next exchange with the other lanes of its warp."""

    def __init__(self, lines: list[str], labels: dict[str, int], values: dict[str, int], memory: bytes) -> None:
        self.lines, self.labels, self.memory, self.at, self.added = lines, labels, memory, 0, 0
        self.registers: dict[str, Any] = dict(values)

    def of(self, name: str) -> int:
        return self.registers[name] if name.startswith("%") else int(name, 0)

    def run(self) -> Iterator[tuple[int, int]]:
        """Yields (value, distance) where it asks another lane; `send` gives it that lane's value."""
        while True:
            found = INSTRUCTION.match(self.lines[self.at])
            assert found is not None, self.lines[self.at]
            self.at += 1
            if found["if"] and not self.registers[found["if"]]:
                continue
            op, rest = found["op"], found["rest"] or ""
            if op == "ret":
                return
            if op == "bra":
                self.at = self.labels[rest]
            elif op.startswith("shfl"):
                to, value, distance, clamp, mask = rest.split(", ")
                assert (op, int(clamp, 0), int(mask, 0)) == ("shfl.sync.down.b32", 31, WORD)
                self.registers[to] = yield self.of(value), self.of(distance)
            elif not op.startswith("bar.warp"):
                self.do(op, rest)

    def do(self, op: str, rest: str) -> None:
        if op == "mov.b64":
            joined = re.fullmatch(r"(%\w+), {(%\w+), (%\w+)}", rest)
            split = re.fullmatch(r"{(%\w+), (%\w+)}, (%\w+)", rest)
            if joined:
                self.registers[joined[1]] = self.of(joined[2]) | self.of(joined[3]) << 32
            else:
                assert split is not None, rest
                self.registers[split[1]], self.registers[split[2]] = self.of(split[3]) & WORD, self.of(split[3]) >> 32
            return
        to, *names = re.sub(r"[\[\]]", "", rest).split(", ")
        if op.startswith("red"):
            assert (op, to) == ("red.global.add.u64", "%total")
            self.added = self.of(names[0])
            return
        if op.startswith("ld.global"):
            size = {"u8": 1, "u16": 2, "u32": 4}[op.rsplit(".", 1)[1]]
            address = self.of(names[0])
            assert 0 <= address <= len(self.memory) - size and address % size == 0
            self.registers[to] = int.from_bytes(self.memory[address : address + size], "little")
            return
        if op.startswith("ld.param"):
            self.registers[to] = self.registers[names[0]]
            return
        numbers = [self.of(name) for name in names]
        kinds: dict[str, Callable[..., int]] = {
            "mov": lambda a: a, "cvta": lambda a: a, "add": lambda a, b: a + b, "xor": lambda a, b: a ^ b,
            "or": lambda a, b: a | b, "and": lambda a, b: a & b, "shr": lambda a, b: a >> b, "mul": lambda a, b: a * b,
            "mad": lambda a, b, c: a * b + c,
        }  # fmt: skip
        if op.startswith("setp"):
            compare = {"eq": numbers[0] == numbers[1], "ne": numbers[0] != numbers[1], "ge": numbers[0] >= numbers[1]}
            self.registers[to] = compare[op.split(".")[1]]
            return
        bits = 64 if op.endswith(("u64", "b64")) or ".wide." in op else 32
        self.registers[to] = kinds[op.split(".")[0]](*numbers) % (1 << bits)


def followed(memory: bytes, count: int, width: int, start: int, key: int, blocks: int, threads: int) -> int:
    """What the kernel adds to its total, thread by thread."""
    body = PTX["digest"].split("{", 1)[1].rsplit("}", 1)[0]
    lines: list[str] = []
    labels: dict[str, int] = {}
    for line in (line.split("//")[0].strip() for line in body.splitlines()):
        if line.endswith(":"):
            labels[line[:-1]] = len(lines)
        elif line and not line.startswith(".reg"):
            lines.append(line)
    total = 0
    values = {"data": 0, "count": count, "width": width, "start": start & WORD, "low": key & WORD, "high": key >> 32,
              "total": 0, "%ntid.x": threads, "%nctaid.x": blocks}  # fmt: skip
    for block in range(blocks):
        for warp in range(0, threads, LANES):
            warp_of = [Thread(lines, labels, values | {"%ctaid.x": block, "%tid.x": warp + lane}, memory)
                       for lane in range(LANES)]  # fmt: skip
            running = [thread.run() for thread in warp_of]
            asked = [next(each) for each in running]
            while asked:
                given = [asked[lane + d][0] if lane + d < LANES else value for lane, (value, d) in enumerate(asked)]
                asked = []
                for each, value in zip(running, given, strict=True):
                    try:
                        asked.append(each.send(value))  # type: ignore[attr-defined]
                    except StopIteration:
                        continue
            total += sum(thread.added for thread in warp_of)
    return total % (1 << 64)


@pytest.mark.parametrize("width, letter", [(1, "B"), (2, "H"), (4, "I")])
def test_the_kernel_as_written_computes_the_digest(width: int, letter: str) -> None:
    """Every instruction of it, over words of each width, more than there are threads and no multiple of them."""
    generator = torch.Generator().manual_seed(width)
    for count, start, blocks in ((0, 0, 1), (5, 0, 1), (300, 11, 2), (171, WORD - 40, 1)):
        words = torch.randint(0, 1 << 8 * width, (count,), generator=generator).tolist()
        memory = struct.pack(f"<{count}{letter}", *words)
        assert followed(memory, count, width, start, KEY, blocks, 64) == plainly(words, start, KEY), (count, start)


@pytest.mark.parametrize("name", PTX)
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_the_kernels_assemble_for_every_gpu_that_counts(name: str, target: str, tmp_path: Path) -> None:
    file = tmp_path / f"{name}.ptx"
    file.write_text(PTX[name])
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    done = subprocess.run([ptxas, f"-arch={target}", file, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "out").stat().st_size > 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_digests_on_the_gpu_are_those_of_the_cpu(dtype: str) -> None:
    for shape in ((1,), (1000,), (1031, 977)):
        values = drawn(dtype, *shape)
        for start in (0, 12345):
            found = digests.keyed(values.cuda(), start, KEY)
            assert found == digests.keyed(values, start, KEY), (shape, start)
    assert digests.keyed(values.cuda().t(), 7, KEY) == digests.keyed(values.t(), 7, KEY)


@pytest.mark.gpu
def test_a_digest_takes_little_of_the_time_in_which_nobody_looks() -> None:
    """200 MB of it: by torch's operations on eight-byte numbers it took over a millisecond."""
    values = torch.randn(50 << 20, device="cuda")
    digests.keyed(values, 0, KEY)
    took = []
    for _ in range(15):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        digests.keyed(values, 0, KEY)
        took.append(1e3 * (time.perf_counter() - begin))
    assert sorted(took)[7] < 0.4, took
