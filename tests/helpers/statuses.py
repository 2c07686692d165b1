"""A status with everything in it."""

from fedaux.deploy.status import SiteStatus, Status

NOW = 1_800_000_000.0
BERLIN = SiteStatus("berlin", "online", NOW - 200, "", None, NOW - 10, 3, {}, 0.75, 0.25, "", None)
PARIS = SiteStatus(
    "paris", "offline", NOW - 70, "train", NOW - 65, None, 0, {"no-answer": 2}, None, 1.0, "[b]gone", NOW - 61
)
RUNNING = Status(
    NOW,
    "running",
    method="FedAUX",
    round=2,
    finished_rounds=1,
    rounds=5,
    phase="train",
    phase_since=NOW - 65,
    started=NOW - 600,
    last_progress=NOW - 10,
    stuck_after=300.0,
    last_seconds={"train": 9.5, "distil": 0.25},
    seconds={"train": 19.5, "distil": 0.5},
    bytes_sent=2_500_000,
    bytes_received=840_000,
    sites=(BERLIN, PARIS),
)
