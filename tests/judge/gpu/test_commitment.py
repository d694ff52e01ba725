"""What binds a worker to a timed output: states of its segments, and that the GPU's kernel computes the same.

Where there is no GPU the kernel is followed instruction by instruction, and assembled for every GPU that counts.
"""

from __future__ import annotations

import base64
import functools
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import compile_ptx
import pytest
import torch
import triton

from repro.errors import SolutionRejected
from repro.judge.gpu import commitment, driver
from repro.judge.gpu.commitment_check import Seal
from repro.judge.worker import outputs
from repro.system.jsonio import Json

DTYPES = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "bool"]
KEY = bytes(range(16))
WORD = (1 << 32) - 1


def turned(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & WORD


def absorbed(s: list[int], w: list[int]) -> list[int]:
    """One step as it is defined, number by number."""
    a = [x ^ y for x, y in zip(s, w, strict=True)]
    for again in range(2):
        for x, y, z, by in ((0, 1, 3, 16), (2, 3, 1, 12), (0, 1, 3, 8), (2, 3, 1, 7)):
            a[x] = (a[x] + a[y]) & WORD
            a[z] = turned(a[z] ^ a[x], by)
        if not again:
            a = [(x + w[(i + 3) % 4]) & WORD for i, x in enumerate(a)]
    return [x ^ y for x, y in zip(s, a, strict=True)]


def plainly(data: bytes, turns: int, first: int, key: bytes) -> bytes:
    """The states of all segments of some bytes, number by number."""
    size, found = turns * commitment._TURN_BYTES, b""
    k = [int.from_bytes(key[at : at + 4], "little") for at in range(0, 16, 4)]
    for number, begin in enumerate(range(0, len(data), size), first):
        segment = data[begin : begin + size].ljust(size, b"\0")
        lanes = []
        for lane in range(commitment.LANES):
            s = [k[0] ^ number & WORD, k[1] ^ lane, k[2], k[3]]
            for turn in range(turns):
                at = turn * commitment._TURN_BYTES + lane * 16
                s = absorbed(s, [int.from_bytes(segment[at + i : at + i + 4], "little") for i in range(0, 16, 4)])
            lanes.append(s)
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [absorbed(absorbed(lanes[i], lanes[half + i]), lanes[half + i]) for i in range(half)]
        found += b"".join(word.to_bytes(4, "little") for word in lanes[0])
    return found


def drawn(dtype: str, *shape: int) -> torch.Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(3)) * 100
    if dtype == "bool":
        return values > 0
    return values.abs().byte() if dtype == "uint8" else values.to(getattr(torch, dtype))


def raw(values: torch.Tensor) -> bytes:
    return bytes(values.contiguous().view(-1).view(torch.uint8).tolist())


@pytest.mark.parametrize("make", [commitment.states, lambda of, *rest: plainly(raw(of), *rest)])
def test_a_state_depends_on_every_bit_its_place_and_the_key(make):
    values = drawn("float32", 2048).view(torch.uint8)  # two segments of one turn

    def states(of: torch.Tensor, first: int = 0, key: bytes = KEY) -> bytes:
        return make(of, 1, first, key)

    usual = states(values)
    assert len(usual) == 32 and usual[:16] != usual[16:]
    found = {usual}
    for bit in [*range(0, 65536, 977), 0, 1, 65535]:
        other = values.clone()
        other[bit // 8] ^= 1 << bit % 8
        now = states(other)
        half = slice(16, 32) if bit < 32768 else slice(0, 16)
        assert now[half] == usual[half], "the other segment's is its own"
        found.add(now)
    for change in (values.roll(4096), values.roll(16), values.roll(4)):
        found.add(states(change))
    for at in range(16):
        found.add(states(values, 0, KEY[:at] + b"\xff" + KEY[at + 1 :]))
    found.add(states(values, 1))
    assert len(found) == 1 + len({*range(0, 65536, 977), 0, 1, 65535}) + 3 + 16 + 1
    mean = sum(bin(a ^ b).count("1") for x in found - {usual} for a, b in zip(x, usual, strict=True)) / len(found)
    assert 56 < mean < 140, "about half of the bits of a changed state change"


def test_segments_follow_the_size_of_the_output():
    for nbytes, turns in ((1, 8), (128 << 20, 8), ((128 << 20) + 1, 16), (1 << 30, 64), (7516192768, 512)):
        assert commitment.turns(nbytes) == turns, nbytes
        assert -(-nbytes // commitment.segment_bytes(nbytes)) <= commitment._MOST_SEGMENTS


def test_pieces_have_the_states_of_the_whole():
    values = drawn("bfloat16", 50001).view(torch.uint8)
    whole = commitment.of(values, KEY)
    size = commitment.segment_bytes(values.numel())
    assert len(whole) == 16 * -(-values.numel() // size) > 32
    for first in range(len(whole) // 16):
        assert commitment.states(values[first * size : (first + 1) * size], 8, first, KEY) == whole[first * 16 :][:16]
        assert commitment.states(values[first * size :], 8, first, KEY) == whole[first * 16 :]


# -- seals


def sealed(output, dims: int = 1, most: int = 1 << 24) -> tuple[Seal, Json]:
    """A seal as an honest worker's answers make it, and the description that comes with it."""
    seal = Seal(dims, most)
    found = outputs.sealed(output, seal.key)
    seal.roots = [commitment.root(states, size, seal.key) for states, size in found]
    seal.states = [base64.b64encode(states).decode() for states, _ in found]
    return seal, outputs.describe(output, [])


def leaf(value: torch.Tensor) -> Json:
    return {"shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}


ORDERS = {
    "own": (0, 1, 2, 3), "channels last": (0, 2, 3, 1), "rows innermost": (3, 2, 1, 0), "rows within": (2, 0, 1, 3),
    "two in another order": (1, 0, 2, 3), "apart": (0, 2, 1, 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "bool"])
@pytest.mark.parametrize("dims", [0, 1, 2])
@pytest.mark.parametrize("name", ORDERS)
def test_an_honest_workers_bytes_match_its_states(name, dims, dtype):
    """Any rows, in whatever order they lie in memory, and however little is fetched at once; and no other bytes."""
    order = ORDERS[name]
    own = drawn(dtype, 6, 5, 28, 101)
    output = own.permute(order).contiguous().permute(list(map(order.index, range(4))))
    assert torch.equal(output, own)
    rows = own.reshape(-1, *own.shape[dims:]) if dims else own
    wanted = (
        [slice(0, 1), slice(2, min(13, len(rows))), slice(len(rows) - 1, len(rows)), slice(0, len(rows))]
        if dims
        else [None]
    )
    fetched = []

    def fetch(start, count, order, lie=False):
        fetched.append(count)
        data = outputs.part(output, [], start, count, order).clone()
        data.view(torch.uint8)[count // 2] ^= lie
        return data

    def opened(most):
        seal, described = sealed(output, dims, most)
        seal.open([((), leaf(own))], described)
        return seal

    for part in wanted:
        for most in (1, 1 << 24):
            seal = opened(most)
            fetched.clear()
            got = seal.rows(0, part, fetch)
            assert torch.equal(got, rows if part is None else rows[part]), (part, most)
            assert max(fetched) * own.element_size() <= max(most, commitment.segment_bytes(0))
            before = len(fetched)
            assert torch.equal(seal.rows(0, part, fetch), got) and len(fetched) == before, "it is kept"
            with pytest.raises(SolutionRejected, match="changed after the call was answered"):
                opened(most).rows(0, part, functools.partial(fetch, lie=True))


@pytest.mark.parametrize(
    "roots, told",
    [(None, None), ([], []), ([7], [7]), (["0" * 64], ["AAAA"]), (["0" * 64], ["!"]), ("x", "y"), ([None], [None])],
)
def test_malformed_states_are_rejected_as_deferred_write(roots, told):
    value = torch.zeros(3, 40)
    seal, described = sealed(value)
    seal.roots, seal.states = roots, told
    with pytest.raises(SolutionRejected) as caught:
        seal.open([((), leaf(value))], described)
    assert caught.value.code == "deferred_write"


def test_states_must_match_their_root():
    value, later = torch.zeros(3, 40), torch.ones(3, 40)
    seal, described = sealed(value)
    seal.states = [base64.b64encode(outputs.sealed(later, seal.key)[0][0]).decode()]
    with pytest.raises(SolutionRejected, match="digests changed after"):
        seal.open([((), leaf(value))], described)


def test_an_output_of_several_tensors_has_a_root_each():
    values = [drawn("float32", 3, 50), drawn("bfloat16", 3, 7)]
    seal, described = sealed((values[0], [values[1]]))
    spec = [((0,), leaf(values[0])), ((1, 0), leaf(values[1]))]
    seal.open(spec, described)
    for position, value in enumerate(values):
        assert torch.equal(
            seal.rows(position, slice(1, 3), lambda at, n, _, v=value: v.view(-1)[at : at + n]), value[1:]
        )
    seal, described = sealed((values[0], [values[1]]))
    seal.open(spec, described)
    with pytest.raises(SolutionRejected):
        seal.rows(0, slice(0, 3), lambda at, n, _: values[0].view(-1)[at : at + n] + 1)


def test_dimensions_of_one_element_lie_anywhere():
    assert outputs.describe(torch.zeros(4, 1, 3, 1), [])["order"] == [0, 1, 2, 3]
    assert outputs.describe(torch.zeros(3, 1, 4).permute(2, 1, 0), [])["order"] == [2, 0, 1]
    assert outputs.describe(torch.tensor(1.0), [])["order"] == []
    lone = torch.zeros(3, 4, dtype=torch.float64)[:, 0][1:2]  # one element with a stride of four
    assert outputs.sealed(lone, KEY) == outputs.sealed(torch.zeros(1, dtype=torch.float64), KEY)


# -- the kernel, without a GPU

PTX = {name: (compile_ptx.FOLDER / f"{name}.ptx").read_text() for name in compile_ptx.KERNELS}
INSTRUCTION = re.compile(r"^(?:@(?P<not>!?)(?P<if>%\w+)\s+)?(?P<op>[\w.]+)(?:\s+(?P<rest>.*))?;$")
COMPUTED = {"ld": "{}", "mov": "{}", "cvt": "{}", "cvta": "{}", "add": "{} + {}", "xor": "{} ^ {}", "or": "{} | {}",
            "and": "{} & {}", "shr": "{} >> {}", "shl": "{} << {}", "mul": "{} * {}", "mad": "{} * {} + {}",
            "shf": "turned({0}, {2})"}  # fmt: skip
COMPARED = {"eq": "==", "ne": "!=", "ge": ">=", "gt": ">", "lt": "<"}
SPACES = {"ld.global": "memory", "ld.shared": "shared", "st.shared": "shared", "st.global": "out"}


def places(space: bytes, begin: int, size: int, count: int) -> list[slice]:
    """Where some words lie in a memory."""
    assert begin % (size * count) == 0
    assert 0 <= begin <= len(space) - size * count, "outside of the memory that it was given"
    return [slice(at, at + size) for at in range(begin, begin + size * count, size)]


def loaded(space: bytes, *place: int) -> list[int]:
    return [int.from_bytes(space[at], "little") for at in places(space, *place)]


def stored(words: list[int], space: bytearray, *place: int):
    for at, word in zip(places(space, *place), words, strict=True):
        space[at] = word.to_bytes(at.stop - at.start, "little")


def moved(kind: str, space: str, *vector: str, names: list[str], values: list[str], size: int) -> str:
    """A load or a store of one word or of four in Python."""
    at, words = (-1, names[:-1]) if kind == "ld" else (0, names[1:])  # where the address stands
    assert len(words) == (4 if vector[0] == "v4" else 1)
    held, place = ", ".join(f"r['{word}']" for word in words), f"{values[at]}, {size}, {len(words)}"
    space = SPACES[f"{kind}.{space}"]
    return f"[{held}] = loaded({space}, {place})" if kind == "ld" else f"stored([{held}], {space}, {place})"


def translated(op: str, names: list[str]) -> str:
    """An instruction in Python. `r` has the thread's registers and parameters, which are unsigned numbers."""
    kind, *more = op.split(".")
    if kind in ("ret", "bar"):
        return {"ret": "return", "bar": "yield"}[kind]
    if kind == "bra":
        return f"at = {names[0]!r}; continue"
    values = [name if name.isdigit() else "(r['{}'] + {})".format(*f"{name}+0".split("+")[:2]) for name in names]
    target, bits = f"r['{names[0]}']", int(more[-1][1:])
    if f"{kind}.{more[0]}" in SPACES:
        return moved(kind, *more, names=names, values=values, size=bits // 8)
    if kind == "setp":
        assert more[0] in ("eq", "ne") or more[1].startswith("u"), "the registers hold unsigned numbers"
        return f"{target} = {values[1]} {COMPARED[more[0]]} {values[2]}"
    assert kind != "shf" or (more == ["l", "wrap", "b32"] and names[1] == names[2])
    wide = 2 * bits if "wide" in more else int(more[0][1:]) if kind == "cvt" else bits
    return f"{target} = ({COMPUTED[kind].format(*values[1:])}) % {1 << wide}"


def program(name: str) -> Callable[..., Iterator[None]]:
    """A kernel as a function of Python: a thread, which yields where it waits for its block."""
    body = PTX[name].split("{", 1)[1].rsplit("}", 1)[0]
    lines = [line.split("//")[0].strip() for line in body.splitlines()]
    text = ["def thread(r, memory, shared, out):", " at = ''", " while True:", "  if not at:"]
    for line in lines:
        if line.endswith(":"):
            text.append(f"  if not at or at == {line[:-1]!r}:\n   at = ''")
        elif line and not line.startswith("."):
            found = INSTRUCTION.match(line)
            assert found is not None, line
            when = f"if {'not' * bool(found['not'])} r['{found['if']}']: " if found["if"] else ""
            names = [part.strip("[]{} ") for part in (found["rest"] or "").split(",")]
            text.append(f"   {when}{translated(found['op'], names)}")
    made = {}
    exec("\n".join(text), globals(), made)
    return made["thread"]


def followed(memory: bytes, turns: int, first: int, key: bytes) -> bytes:
    """What the kernel writes, thread by thread."""
    thread, blocks = program("digest"), -(-len(memory) // (turns * commitment._TURN_BYTES))
    out = bytearray(16 * blocks)
    words = [int.from_bytes(key[4 * i : 4 * i + 4], "little") for i in range(4)]
    parameters = (0, len(memory), turns, first & WORD, *words, 0)  # memory and states begin at address 0
    values = {f"digest_param_{i}": value for i, value in enumerate(parameters)} | {"_ZZ6digestE6shared": 0}
    for block in range(blocks):
        shared = bytearray(4096)
        threads = [thread(values | {"%ctaid.x": block, "%tid.x": lane}, memory, shared, out)
                   for lane in range(driver._DIGEST_THREADS)]  # fmt: skip
        while threads:  # up to the next barrier, which all of them must meet
            running = [thread for thread in threads if next(thread, "ended") is None]
            assert running == threads or not running
            threads = running
    return bytes(out)


@pytest.mark.parametrize("count, turns, first", [(1, 1, 0), (4099, 1, 3), (8190, 2, 0), (8216, 2, WORD - 1)])
def test_the_kernel_as_shipped_computes_the_states(count, turns, first):
    """Every instruction of it, by all threads of each block: whole and partial loads, several turns, an edge."""
    values = drawn("uint8", count)
    assert followed(raw(values), turns, first, KEY) == plainly(raw(values), turns, first, KEY)


@pytest.mark.parametrize("name", PTX)
def test_the_ptx_that_is_shipped_is_made_from_the_source_beside_it(name):
    assert compile_ptx.compile_ptx(compile_ptx.FOLDER / f"{name}.cu") == PTX[name]


@pytest.mark.parametrize("name", PTX)
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90", "sm_100"])
def test_the_kernels_assemble_for_every_gpu_that_counts(name, target, tmp_path):
    file = tmp_path / f"{name}.ptx"
    file.write_text(PTX[name])
    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    done = subprocess.run([ptxas, f"-arch={target}", file, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "out").stat().st_size > 0, done.stderr


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_states_on_the_gpu_are_what_they_are_defined_to_be(dtype):
    for shape in ((1,), (1000,), (131, 277)):
        values = drawn(dtype, *shape)
        flat = commitment.dense_bytes(values, list(range(values.dim())))
        for turns, first in ((1, 0), (8, 12345), (32, WORD)):
            assert commitment.states(flat.cuda(), turns, first, KEY) == plainly(raw(flat), turns, first, KEY), shape
        shifted = raw(values.view(-1)[1:])
        usual = [(plainly(shifted, commitment.turns(len(shifted)), 0, KEY), len(shifted))]
        assert outputs.sealed(values.cuda().view(-1)[1:], KEY) == usual, "memory that begins anywhere"


@pytest.mark.gpu
def test_pieces_of_more_than_four_gigabytes_have_the_states_of_the_whole():
    flat = torch.randint(0, 256, ((5 << 30) + 12345,), dtype=torch.uint8, device="cuda")
    whole, size = commitment.of(flat, KEY), commitment.segment_bytes(flat.numel())
    count = len(whole) // 16
    for first in (0, count // 2, count - 1):
        piece = flat[first * size : (first + 1) * size]
        assert commitment.states(piece, commitment.turns(flat.numel()), first, KEY) == whole[16 * first :][:16]
    assert plainly(raw(piece.cpu()), commitment.turns(flat.numel()), count - 1, KEY) == whole[-16:]


@pytest.mark.gpu
def test_sealing_takes_little_time():
    """200 MB of it: by torch's operations on eight-byte numbers it took over a millisecond."""
    values = torch.randn(50 << 20, device="cuda")
    took = []
    for _ in range(15):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for states, nbytes in outputs.sealed(values, KEY):
            commitment.root(states, nbytes, KEY)
        took.append(1e3 * (time.perf_counter() - begin))
    assert sorted(took)[7] < 0.4, took
