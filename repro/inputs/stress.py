"""How an input differs from the problem's own draw. Without torch, because the catalogue of problems needs none.

A stress is the standard deviation of a signed normal draw, or one of these texts. Where inputs are signed whole numbers
come from the lower half of their range, where they are spiked from the upper one; the last is at the other end, and
half of spiked ones are equal.

negative    the problem's own draw with its sign turned
spike       that draw with one element in 8191 far outside it
times F ... that draw, every floating-point tensor multiplied by F; of several numbers, the seed of a trial chooses one
signed F    the same in four regions by turns: as published, below zero, with random signs, above zero; the first
            element is zero, the last one below all others
mixed F     `signed F` for tensors of even index; those of odd index are divided by F
levels F    `times F` for tensors of even index; those of odd index are divided by F
heavy R     the problem's signed draw with heavy tails: one element in 2**t is larger by a factor that grows with t,
            up to 2**R for the largest of the tensor, so that any part of a sum tells little of the whole; half of the
            last elements of a dimension are as large as the largest of its others, the last of all twice as large
tailed R    the problem's own draw with the same tails
shift F     the problem's own draw moved above zero by F of its deviations; where F is negative half of the tensor
            below, that of odd index the other way round. From FAR on whole tensors below and above by turns, by F
            itself, with a deviation of F / 9
bands F     that draw, every slice along one dimension moved by up to F of its deviations: not the first dimension, if
            there is another one
near F      1 plus a signed normal draw of deviation 1 / F
unit 1      1 or -1: every power of two, product and prefix product is exact in every precision
normal F    a signed normal draw of F times the problem's own stress deviation
edit F I    the problem's stress draw, or its own one, with TOUCHED elements of tensor I replaced by values of F
            deviations; the same seed without `edit` gives the same tensors without that change (`base`)
scales F N  the problem's signed draw, with the perturbed weights of the names N F times as large
special I   that draw with one element of tensor I replaced by NaN
"""

from __future__ import annotations

Stress = float | str
# Height of spikes in standard deviations of the draw.
SPIKE_FACTOR = 16.0
# From here on a shift is no multiple of the draw's deviation.
FAR = 10000.0
# Elements of each tensor that an edit changes.
TOUCHED = 2
# Stresses that draw inputs of even and odd index differently -> the stress of one.
_TURNS = {"mixed": "signed", "levels": "times"}


def parts(stress: Stress | None) -> tuple[str, float]:
    """Return the word of a stress and its number; ("", 0.0) for plain ones."""
    if not isinstance(stress, str):
        return "", 0.0
    word, *numbers = stress.split()
    return word, float(numbers[0]) if numbers else 0.0


def edits(stress: Stress | None) -> bool:
    """Return whether a stress changes a few elements of the inputs of another one, its base."""
    return parts(stress)[0] == "edit"


def base(signed: Stress) -> Stress | None:
    """Return the stress of the inputs before an edit, None for published ones. signed: the problem's own stress."""
    return signed if not isinstance(signed, str) else None


def beneath(stress: Stress | None, signed: Stress) -> Stress | None:
    """Return the stress of the inputs that `stress` changes: None for published ones, which most stresses change."""
    return base(signed) if parts(stress)[0] in ("edit", "heavy", "near", "unit") else None


def drawn(stress: Stress | None, turn: int, tensors: list[int]) -> Stress | None:
    """Return one of the forms that a stress has: with one of its numbers, or of one tensor; by turns."""
    if not isinstance(stress, str):
        return stress
    if edits(stress):
        return f"{stress} {tensors[turn % len(tensors)]}"
    word, *numbers = stress.split()
    return f"{word} {numbers[turn % len(numbers)]}" if numbers and not scaled(stress) else stress


def forms(stress: Stress | None, tensors: list[int]) -> int:
    """Return how many forms `drawn` gives."""
    return len(tensors) if edits(stress) else 1 if scaled(stress) else max(1, len(str(stress).split()) - 1)


def scaled(stress: Stress | None) -> str:
    """Return a stress of which weights are scaled, and the empty string for another one."""
    return str(stress) if parts(stress)[0] == "scales" else ""


def of_input(stress: Stress | None, i: int, signed: Stress) -> Stress | None:
    """Return the stress of input i alone, None where it stays as published. signed: the problem's own stress."""
    word, number = parts(stress)
    if word in _TURNS:
        return f"{_TURNS[word]} {1 / number if i % 2 else number:g}"
    if word == "special":
        return stress if i == number else None
    if word == "scales" or (word == "edit" and str(i) != str(stress).split()[2]):
        return base(signed)
    if word == "normal":
        return number * (signed if not isinstance(signed, str) else 1.0)
    return stress
