"""A job: one unit of work as a record in, and its outcome as a record out. Engines run jobs."""

from __future__ import annotations

from dataclasses import field, replace

from pydantic import ConfigDict, ValidationError
from pydantic.dataclasses import dataclass

from repro.records.base import Record, faults
from repro.records.fingerprint import Fingerprint
from repro.records.options import Options
from repro.records.row import Result, Status
from repro.system.jsonio import Json

JOBS, OUTCOMES = "jobs.jsonl", "outcomes.jsonl"
# The line by which a job process reports a new outcome, and how one of a session with an answer begins.
ENDED, ANSWER = "\x1eended", "\x1eanswer "
_REFUSES_UNKNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_REFUSES_UNKNOWN)
class Job:
    """One unit of work.

    verb: fixture, evaluate, session, profile or fingerprint. problem: an id, or a file name in the job's folder;
    called: the name of such a file in results. overrides: constants of the problem file set by `--shapes`. solutions:
    (name, file name in the folder, entry). dtypes: those of a profile, both by default. files: file name -> content,
    placed in the folder by the engine. timeout_s: the engine kills the job after it. avoid: hash of the UUID of the GPU
    that was throttled when it measured the same. shares: whether it may have its GPU together with others that share,
    because nothing is timed and its code is trusted.
    """

    id: str
    verb: str
    problem: str = ""
    called: str = ""
    overrides: Json = field(default_factory=dict)
    size: str = "full"
    dtype: str = "float32"
    device: str = "cuda"
    variant: str = ""
    solutions: tuple[tuple[str, str, str], ...] = ()
    fixture: str = ""
    options: Options = field(default_factory=Options)
    dtypes: tuple[str, ...] = ()
    files: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    timeout_s: float = 900.0
    avoid: str = ""
    shares: bool = False

    def to_json(self) -> Json:
        """Return the job without its files' contents."""
        return vars(self) | {"options": self.options.to_json(), "files": sorted(self.files)}

    def apart(self, prefix: str) -> Job:
        """Return the same job with file names that no other job of the folder uses."""

        def named(file: str) -> str:
            return f"{prefix}{file}" if file in self.files else file

        return replace(
            self,
            problem=named(self.problem),
            fixture=named(self.fixture),
            solutions=tuple((name, named(file), entry) for name, file, entry in self.solutions),
            files={named(file): content for file, content in self.files.items()},
        )

    @staticmethod
    def from_json(data: Json) -> Job:
        """Return a job as `to_json` wrote it, without files. Raises ValidationError if it is none."""
        return Job(**{k: v for k, v in data.items() if k != "files"})


@dataclass(config=_REFUSES_UNKNOWN)
class Outcome:
    """The outcome of a job.

    status: done, failed (the tool), unmet (a prerequisite or the problem file), lost (the engine) or interrupted.
    result: by the job's verb. node: a hash of the machine that ran it, if the engine has several.
    """

    job: str
    status: Status
    result: Result | None = None
    error: str = ""
    wall_s: float = 0.0
    fingerprint: Fingerprint | None = None
    node: str = ""

    def to_json(self) -> Json:
        """Return the form of a line of outcomes.jsonl."""
        return {name: value.to_json() if isinstance(value, Record) else value for name, value in vars(self).items()}

    @staticmethod
    def from_json(data: Json) -> Outcome:
        """Return an outcome as `to_json` wrote it. One that fits no record has failed, and says why."""
        try:
            return Outcome(**data)
        except ValidationError as error:
            why = f"the job's outcome does not fit its record: {'; '.join(faults(error))}"
            return Outcome(str(data.get("job")), "failed", error=why)
