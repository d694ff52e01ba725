"""JSON schemas of the records of a bundle, made from the models."""

from __future__ import annotations

from repro.records.agent import AgentConfig, AgentRecord
from repro.records.base import Record
from repro.records.claim import JudgedClaims
from repro.records.comparison import Comparison
from repro.records.fingerprint import Fingerprint
from repro.records.fixture import FixtureRecord
from repro.records.manifest import Manifest
from repro.records.profile import ProfileResult
from repro.records.result import JudgeResult
from repro.records.row import Row
from repro.system.jsonio import Json

# Files of a bundle and results of jobs: the record of each, and what it is called.
RECORDS: dict[str, tuple[type[Record], str]] = {
    "manifest": (Manifest, "manifest.json of a bundle"),
    "row": (Row, "one line of rows.jsonl"),
    "judge-result": (JudgeResult, "`result` of a row that judged solutions"),
    "fixture": (FixtureRecord, "`result` of a row of `fixtures`, and the file below fixtures/"),
    "profile-result": (ProfileResult, "`result` of a row of `benchmark --profile`"),
    "fingerprint": (Fingerprint, "one file of fingerprints/"),
    "agent-config": (AgentConfig, "`parameters.study` of a manifest: the agents of a study"),
    "agent-record": (AgentRecord, "job.json of an agent's sitting, below agents/ in a bundle"),
    "comparison": (Comparison, "`compare A B --json`"),
    "claims": (JudgedClaims, "`compare --claims --json`, and `claims` of report.json"),
}


def of(name: str) -> Json:
    """Return the JSON schema of a record. What relates several fields is checked by `repro verify` and not in it."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:repro:schema:{name}:2"}
    return head | RECORDS[name][0].model_json_schema()
