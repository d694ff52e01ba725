"""Tests of claims as records: those that ship, and what `repro compare --claims` writes of them."""

from __future__ import annotations

import json

import pytest
from conftest import ROOT
from pydantic import ValidationError

from repro.analysis import claims, published, records
from repro.bundle.write import Bundle
from repro.records.claim import Claim, ClaimVerdict, JudgedClaims
from repro.system import jsonio


def test_every_shipped_claim_is_read_again_as_it_was_written():
    for claim in published.load():
        assert Claim.written(claim.to_json()) == claim
        assert jsonio.dumps(Claim.written(json.loads(jsonio.dumps(claim.to_json()))).to_json()) == jsonio.dumps(
            claim.to_json()
        ), "a whole number stays one"


def test_judged_claims_are_read_again_as_they_were_written():
    bundle = next((ROOT / "artifacts" / "results" / "h100-pinned").glob("*-benchmark"))
    found = claims.judge(published.load(), [records.read(Bundle.open(bundle))])
    text = jsonio.dumps(found.to_json())
    again = JudgedClaims.written(json.loads(text))
    assert again == found and jsonio.dumps(again.to_json()) == text
    assert {outcome.side(side).verdict for _, outcome in again.pairs() for side in claims.SIDES} <= {*claims.VERDICTS}


def test_a_verdict_is_one_of_the_words():
    with pytest.raises(ValidationError, match="REPRODUCED"):
        ClaimVerdict.written({"verdict": "HOLDS", "reason": "", "measured": None, "ci95": None})
