"""The status of a run for Prometheus: read afresh whenever it is asked for, so that there is something to say of a run
that hangs, has died or has not begun."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from fedaux.core.errors import MissingPackageError
from fedaux.deploy.layout import DeployError
from fedaux.deploy.status import State, Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric


class StatusCollector:
    """A collector for a registry of prometheus_client's. Counters begin anew with every run."""

    def __init__(self, read: Callable[[], Status]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        status = self._read()
        yield _gauge("link_up", "Whether the SuperLink answers", {(): float(status.link)})
        states = {(state,): float(state == status.state) for state in get_args(State)}
        yield _gauge("run_state", "1 for the state of the run", states, "state")
        yield from _run_metrics(status)
        yield from _site_metrics(status)

    def describe(self) -> list[Metric]:
        """Nothing is read before somebody asks."""
        return []


@contextmanager
def serve(read: Callable[[], Status], host: str, port: int) -> Iterator[str]:
    """Answer in threads; the address. Port 0 is a free one."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError as error:
        raise MissingPackageError("metrics need prometheus-client: pip install 'fedaux[metrics]'") from error
    registry = CollectorRegistry()
    registry.register(StatusCollector(read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise DeployError(f"{host}:{port} cannot be listened at ({error.strerror}); choose another --port") from error
    try:
        yield f"http://{host}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _run_metrics(status: Status) -> Iterator[Metric]:
    if not status.rounds:
        return
    yield _counter("rounds", "Rounds finished", {(): status.finished_rounds})
    yield _gauge("rounds_planned", "Rounds of the run", {(): status.rounds})
    yield _gauge("run_phase", "1 for the phase of the run", {(status.phase or "none",): 1.0}, "phase")
    yield _gauge("run_start_timestamp_seconds", "When this process of the run began", {(): status.started})
    yield _gauge("run_last_progress_timestamp_seconds", "Last sign of progress", {(): status.last_progress})
    yield _gauge("run_stuck_after_seconds", "Silence after which a run is stuck", {(): status.stuck_after})
    spent = {(phase,): seconds for phase, seconds in status.seconds.items()}
    yield _counter("round_seconds", "Seconds of all rounds", spent, "phase")
    last = {(phase,): seconds for phase, seconds in status.last_seconds.items()}
    yield _gauge("last_round_seconds", "Seconds of the last round", last, "phase")
    sizes = {("sent",): status.bytes_sent, ("received",): status.bytes_received}
    yield _counter("array_bytes", "Bytes of arrays in orders and replies", sizes, "direction")


def _site_metrics(status: Status) -> Iterator[Metric]:
    sites = {site.name: site for site in status.sites}

    def of_each(value: Callable[[Any], float | None]) -> dict[tuple[str], float | None]:
        return {(name,): value(site) for name, site in sites.items()}

    refused = {(name, kind): count for name, site in sites.items() for kind, count in site.failures.items()}
    known = {name: site for name, site in sites.items() if site.connection != "unknown"}
    online = {(name,): float(site.connection == "online") for name, site in known.items()}
    yield _gauge("site_online", "Whether the site's node is connected", online, "site")
    yield _gauge(
        "site_asked_timestamp_seconds",
        "Since when it has not answered its order",
        of_each(lambda site: site.asked_at if site.asked_for else None),
        "site",
    )
    last_reply = of_each(lambda site: site.last_reply)
    yield _gauge("site_last_reply_timestamp_seconds", "Its last reply that was used", last_reply, "site")
    yield _counter("replies", "Replies that could be used", of_each(lambda site: site.replies), "site")
    yield _counter("replies_refused", "Replies that could not, or never came", refused, "site", "reason")
    epsilon, left = of_each(lambda site: site.epsilon), of_each(lambda site: site.left)
    yield _gauge("privacy_epsilon_spent", "Spent in all runs, as the site says", epsilon, "site")
    yield _gauge("privacy_epsilon_left", "What the server's settings leave of its budget", left, "site")


Values = Mapping[Any, float | None]  # by the tuple of labels; None is left out


def _gauge(name: str, text: str, values: Values, *labels: str) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    return _filled(GaugeMetricFamily(f"fedaux_{name}", text, labels=labels), values)


def _counter(name: str, text: str, values: Values, *labels: str) -> Metric:
    """Prometheus sees it as fedaux_NAME_total."""
    from prometheus_client.core import CounterMetricFamily

    return _filled(CounterMetricFamily(f"fedaux_{name}", text, labels=labels), values)


def _filled(family: Any, values: Values) -> Metric:
    for labels, value in values.items():
        if value is not None:
            family.add_metric(labels, value)
    return family  # type: ignore[no-any-return]
