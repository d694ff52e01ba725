"""The values of a page's fields.

Two sets of pages share one format: those about GPU kernels, and the placebo's, which are about house and garden.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from repro.errors import UsageError

HERE = Path(__file__).parent
KINDS = ("concept", "technique", "playbook", "pitfall", "error", "priors")


@dataclass(frozen=True)
class Vocabulary:
    """What the facets of the pages in a folder may be."""

    folder: Path
    ops: tuple[str, ...]
    archs: tuple[str, ...]
    dtypes: tuple[str, ...]
    languages: tuple[str, ...]


BY_KIND = {
    "local": Vocabulary(
        HERE / "pages",
        ops=("memory", "reduction", "normalisation", "softmax", "attention", "gemm", "epilogue", "convolution",
             "pooling", "elementwise", "fusion", "precision", "launch", "compile", "debug", "timing"),
        archs=("sm_80", "sm_89", "sm_90", "sm_100"),
        dtypes=("fp32", "tf32", "fp16", "bf16", "fp8"),
        languages=("triton", "cuda", "torch"),
    ),
    "placebo": Vocabulary(
        HERE / "placebo",
        ops=("soil", "sowing", "watering", "pruning", "harvest", "timber", "joinery", "sharpening", "finishing",
             "dough", "baking", "leaven", "pastry"),
        archs=("mild", "cold", "dry"),
        dtypes=("small", "large"),
        languages=("hand", "machine"),
    ),
}  # fmt: skip


def of(kind: str) -> Vocabulary:
    """Return the vocabulary of `local` or `placebo`. Raises UsageError for another kind."""
    if kind not in BY_KIND:
        raise UsageError(f"no knowledge base is called {kind!r}", "there are local and placebo", "Name one of them.")
    return BY_KIND[kind]
