"""A status with everything in it."""

from fedaux.deploy.status import SiteStatus, Status
from fedaux.runs.status import RunStatus, SiteRecord

NOW = 1_800_000_000.0
BERLIN = SiteStatus(
    "berlin",
    "online",
    NOW - 200,
    0.25,
    SiteRecord(last_reply=NOW - 10, replies=3, epsilon=0.75),
)
PARIS_RECORD = SiteRecord(
    "train",
    NOW - 65,
    failures={"no-answer": 2},
    last_error="[b]gone",
    last_error_at=NOW - 61,
)
PARIS = SiteStatus("paris", "offline", NOW - 70, 1.0, PARIS_RECORD)
RUN = RunStatus(
    method="FedAUX",
    finished_rounds=1,
    rounds=5,
    phase="train",
    phase_since=NOW - 65,
    started=NOW - 600,
    last_progress=NOW - 10,
    last_seconds={"train": 9.5, "distil": 0.25},
    seconds={"train": 19.5, "distil": 0.5},
    bytes_sent=2_500_000,
    bytes_received=840_000,
)
RUNNING = Status(NOW, "running", stuck_after=300.0, record=RUN, sites=(BERLIN, PARIS))
