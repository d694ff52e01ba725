"""A bundle whose rows several kinds of GPUs measured, as a part for each kind, so that no table mixes their times."""

from __future__ import annotations

from typing import Any

from repro.bundle.write import Bundle


class Part(Bundle):
    """The rows of a bundle that one kind of GPU measured. It is only read."""

    def __init__(self, whole: Bundle, plan: list[str]) -> None:
        super().__init__(whole.path, whole.manifest | {"plan": plan}, whole._files)
        self.rows = {name: whole.rows[name] for name in plan if name in whole.rows}

    def fingerprints(self) -> dict[str, dict[str, Any]]:
        """Return the fingerprints that its rows name."""
        named = {row.get("fingerprint_id") for row in self.rows.values()}
        return {name: value for name, value in super().fingerprints().items() if name in named}


def parts(bundle: Bundle) -> list[Bundle]:
    """Return a bundle as one part for each kind of GPU that timed its rows; whole if there is one kind.

    Planned rows without a GPU belong to the first part.
    """
    if bundle.manifest["parameters"].get("device") != "cuda":
        return [bundle]
    kinds = {name: value["sku_id"] for name, value in bundle.fingerprints().items()}
    of = {name: kinds.get(row.get("fingerprint_id") or "", "") for name, row in bundle.rows.items()}
    first = next((kind for name in bundle.manifest["plan"] if (kind := of.get(name))), "")
    plans: dict[str, list[str]] = {first: []}
    for name in bundle.manifest["plan"]:
        plans.setdefault(of.get(name) or first, []).append(name)
    return [Part(bundle, plan) for plan in plans.values()] if len(plans) > 1 else [bundle]
