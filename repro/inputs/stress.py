"""How an input differs from the problem's own draw. Without torch, because the catalogue of problems needs none.

A stress is the standard deviation of a signed normal draw, or one of these texts:

negative    the problem's own draw with its sign turned
spike       that draw with one element in 8191 far outside it
times F     that draw, every floating-point tensor multiplied by F
mixed F     the same for tensors of even index; those of odd index are divided by F
normal F    a signed normal draw of F times the problem's own stress deviation
edit F I    the problem's stress draw, or its own one, with TOUCHED elements of tensor I replaced by values of F
            deviations; the same seed without `edit` gives the same tensors without that change (`base`)
special I   that draw with one element of tensor I replaced by NaN
"""

from __future__ import annotations

Stress = float | str
# Height of spikes in standard deviations of the draw.
SPIKE_FACTOR = 16.0
# Elements of each tensor that an edit changes.
TOUCHED = 2


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


def of_tensor(stress: str, i: int) -> str:
    """Return a stress of one tensor, of tensor i; another stress as it is."""
    return f"{stress} {i}" if edits(stress) else stress


def of_input(stress: Stress | None, i: int, signed: Stress) -> Stress | None:
    """Return the stress of input i alone, None where it stays as published. signed: the problem's own stress."""
    word, number = parts(stress)
    if word == "mixed":
        return f"times {1 / number if i % 2 else number:g}"
    if word == "special":
        return stress if i == number else None
    if word == "edit" and str(i) != str(stress).split()[2]:
        return base(signed)
    if word == "normal":
        return number * (signed if not isinstance(signed, str) else 1.0)
    return stress
