"""The values of a page's fields, and the words by which a question names them.

Two sets of pages share one format: those about GPU kernels, and the placebo's, which are about house and garden.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from repro.errors import UsageError
from repro.knowledge.words import ends, fold

HERE = Path(__file__).parent
KINDS = ("concept", "technique", "playbook", "pitfall", "error", "priors")


@dataclass(frozen=True)
class Vocabulary:
    """ops, archs, dtypes: value -> words of a question that mean it. columns: of the tables of priors."""

    folder: Path
    ops: dict[str, str]
    archs: dict[str, str]
    dtypes: dict[str, str]
    languages: tuple[str, ...]
    columns: tuple[str, ...]

    def facets(self, text: str) -> dict[str, set[str]]:
        """Return the values of each facet that a text names."""
        folded = f" {fold(ends(text))} "
        found = {}
        for facet in ("ops", "archs", "dtypes"):
            values: dict[str, str] = getattr(self, facet)
            found[facet] = {value for value, words in values.items() if re.search(rf" (?:{words}) ", folded)}
        return found


# The words are in the form that `words.fold` makes, with canonical names.
LOCAL = Vocabulary(
    folder=HERE / "pages",
    ops={
        "memory": "memory|dram|bandwidth|l2|cache|load|loads|store|stores",
        "reduction": "reduction|reductions|reduce|sum|mean|max|argmax|cumsum|scan",
        "normalisation": r"norm|rms norm|layer norm|group norm|batch norm|variance",
        "softmax": "softmax|logsumexp|log softmax",
        "attention": "attention|causal|kv|query|queries|heads",
        "gemm": "gemm|matvec|tensor core|tensor cores|split k",
        "epilogue": "epilogue|bias|gelu|swish|relu|activation|activations",
        "convolution": r"convolution|transposed convolution|pointwise convolution|depthwise|winograd|mobilenet",
        "pooling": "pool|pooling|max pool|avg pool",
        "elementwise": "elementwise|gelu|swish|relu|sigmoid|tanh",
        "fusion": "fuse|fused|fusing|fusion",
        "precision": "precision|accuracy|tolerance|fp32|fp16|bf16|fp8|tf32|nan|inf",
        "launch": "launch|launches|overhead|cuda graph|small kernels|tiny kernels",
        "compile": "compile|compilation|build|nvcc|ninja|torch compile",
        "debug": "debug|error|wrong|crash|hang|nan",
        "timing": "timing|benchmark|benchmarking|measure|profile|profiling|ncu|nsys",
    },
    archs={"sm_80": "ampere", "sm_89": "ada", "sm_90": "hopper", "sm_100": "blackwell"},
    dtypes={name: name for name in ("fp32", "tf32", "fp16", "bf16", "fp8")},
    languages=("triton", "cuda", "torch"),
    columns=("op", "arch", "dtype", "shape", "block sizes", "num_warps", "num_stages", "why"),
)
PLACEBO = Vocabulary(
    folder=HERE / "placebo",
    ops={
        "soil": "soil|compost|mulch|bed|beds",
        "sowing": "sow|sowing|seed|seeds|seedling|seedlings",
        "watering": "water|watering|drip|drought",
        "pruning": "prune|pruning|trim",
        "harvest": "harvest|storage|store|apples",
        "timber": "timber|wood|board|boards|plank",
        "joinery": "joint|joints|joinery|glue|dovetail|mortise",
        "sharpening": "sharpen|sharpening|edge|chisel|plane",
        "finishing": "finish|finishing|oil|varnish|sanding",
        "dough": "dough|knead|kneading|gluten|flour",
        "baking": "bake|baking|oven|crust|loaf",
        "leaven": "yeast|leaven|sourdough|starter|proof",
        "pastry": "pastry|butter|lamination|shortcrust",
    },
    archs={name: name for name in ("mild", "cold", "dry")},
    dtypes={name: name for name in ("small", "large")},
    languages=("hand", "machine"),
    columns=("task", "climate", "size", "amount", "setting", "time", "repeats", "why"),
)
BY_KIND = {"local": LOCAL, "placebo": PLACEBO}


def of(kind: str) -> Vocabulary:
    """Return the vocabulary of `local` or `placebo`. Raises UsageError for another kind."""
    if kind not in BY_KIND:
        raise UsageError(f"no knowledge base is called {kind!r}", "there are local and placebo", "Name one of them.")
    return BY_KIND[kind]
