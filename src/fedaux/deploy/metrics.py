"""The status of a run for Prometheus, read at every scrape, so that a run that hangs,
died or has not begun shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from fedaux.core.errors import MissingPackageError, install_command
from fedaux.deploy.env import DeployError
from fedaux.deploy.status import State, Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class MetricRow(NamedTuple):
    """One metric. A name that ends in _total is a counter, any other a gauge."""

    name: str
    meaning: str
    values: Mapping[Any, float | None]  # by the tuple of labels; None is left out
    labels: tuple[str, ...] = ()


class StatusCollector:
    """A collector for a registry of prometheus_client. Counters start from 0 with every
    run.
    """

    def __init__(self, read: Callable[[], Status]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = self._read()
        for figure in (*_run_figures(status), *_site_figures(status)):
            kind: Any = GaugeMetricFamily
            if figure.name.endswith("_total"):
                kind = CounterMetricFamily
            name = f"fedaux_{figure.name}"
            family = kind(name, figure.meaning, labels=figure.labels)
            for labelled, value in figure.values.items():
                if value is not None:
                    family.add_metric(labelled, value)
            yield family

    def describe(self) -> list[Metric]:
        """Describe nothing, so that the status is not read before the first scrape."""
        return []


@contextmanager
def serve_metrics(read: Callable[[], Status], host: str, port: int) -> Iterator[str]:
    """Serve the metrics in threads, and yield the address. Port 0 picks a free one."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingPackageError(
            "Cannot serve metrics: prometheus-client is not installed. Run "
            f"{install_command('metrics')}."
        ) from error
    registry = CollectorRegistry()
    registry.register(StatusCollector(read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise DeployError(
            f"Cannot serve metrics: {host}:{port} is not available ({error.strerror}). "
            "Choose another --port."
        ) from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _run_figures(status: Status) -> Iterator[MetricRow]:
    yield MetricRow(
        "link_up", "Whether the SuperLink answers", {(): float(status.link)}
    )
    states = {(state,): float(state == status.state) for state in get_args(State)}
    yield MetricRow("run_state", "1 for the state of the run", states, ("state",))
    run = status.record
    if not run.rounds:
        return
    yield MetricRow("rounds_total", "Rounds finished", {(): run.finished_rounds})
    yield MetricRow("rounds_planned", "Rounds of the run", {(): run.rounds})
    yield MetricRow(
        "run_phase",
        "1 for the phase of the run",
        {(status.phase or "none",): 1.0},
        ("phase",),
    )
    yield MetricRow(
        "run_start_timestamp_seconds",
        "When this process of the run began",
        {(): run.started},
    )
    yield MetricRow(
        "run_last_progress_timestamp_seconds",
        "Last sign of progress",
        {(): run.last_progress},
    )
    yield MetricRow(
        "run_stuck_after_seconds",
        "Silence after which a run is stuck",
        {(): status.stuck_after},
    )
    spent = {(phase,): seconds for phase, seconds in run.seconds.items()}
    yield MetricRow("round_seconds_total", "Seconds of all rounds", spent, ("phase",))
    last = {(phase,): seconds for phase, seconds in run.last_seconds.items()}
    yield MetricRow("last_round_seconds", "Seconds of the last round", last, ("phase",))
    sizes = {("sent",): run.bytes_sent, ("received",): run.bytes_received}
    yield MetricRow(
        "array_bytes_total",
        "Bytes of arrays in orders and replies",
        sizes,
        ("direction",),
    )


def _site_figures(status: Status) -> Iterator[MetricRow]:
    online: dict[Any, float | None] = {}
    asked_at: dict[Any, float | None] = {}
    last_reply: dict[Any, float | None] = {}
    replies: dict[Any, float | None] = {}
    refused: dict[Any, float | None] = {}
    spent: dict[Any, float | None] = {}
    left: dict[Any, float | None] = {}
    for site in status.sites:
        record = site.record
        label = (site.name,)
        if site.connection != "unknown":
            online[label] = float(site.connection == "online")
        if record.asked_for:
            asked_at[label] = record.asked_at
        last_reply[label] = record.last_reply or None
        replies[label] = record.replies
        for kind, count in record.failures.items():
            refused[site.name, kind] = count
        spent[label] = record.epsilon
        left[label] = site.left
    by_site = ("site",)
    yield MetricRow(
        "site_online", "Whether the site's node is connected", online, by_site
    )
    yield MetricRow(
        "site_asked_timestamp_seconds",
        "Since when it has not answered its order",
        asked_at,
        by_site,
    )
    yield MetricRow(
        "site_last_reply_timestamp_seconds",
        "Its last reply that was used",
        last_reply,
        by_site,
    )
    yield MetricRow("replies_total", "Replies that could be used", replies, by_site)
    yield MetricRow(
        "replies_refused_total",
        "Replies that could not, or never came",
        refused,
        ("site", "reason"),
    )
    yield MetricRow(
        "privacy_epsilon_spent", "Spent in all runs, as the site says", spent, by_site
    )
    yield MetricRow(
        "privacy_epsilon_left",
        "What the server's settings leave of its budget",
        left,
        by_site,
    )
