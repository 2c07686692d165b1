"""What Prometheus reads, over HTTP; and that dashboard and alerts ask for nothing
else.
"""

import json
import re
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedaux.core.errors import MissingPackageError
from fedaux.deploy import layout
from fedaux.deploy.env import DeployError
from fedaux.deploy.metrics import serve_metrics
from fedaux.deploy.status import Status
from helpers.statuses import NOW, RUNNING

OF_PROMETHEUS = {"up"}


def scrape(read: Callable[[], Status]) -> dict[tuple[str, ...], float]:
    """{(name, label, …): value}, as it comes over HTTP: labels in the order of their
    names.
    """
    with serve_metrics(read, "127.0.0.1", 0) as address:
        answer = httpx.get(address)
        assert answer.status_code == 200
    families = text_string_to_metric_families(answer.text)
    return {
        (one.name, *(label for _, label in sorted(one.labels.items()))): one.value
        for family in families
        for one in family.samples
    }


def test_all_of_the_status_is_there() -> None:
    found = scrape(lambda: RUNNING)
    assert {
        key: value for key, value in found.items() if key[0] != "fedaux_run_state"
    } == {
        ("fedaux_link_up",): 1,
        ("fedaux_rounds_total",): 1,
        ("fedaux_rounds_planned",): 5,
        ("fedaux_run_phase", "train"): 1,
        ("fedaux_run_start_timestamp_seconds",): NOW - 600,
        ("fedaux_run_last_progress_timestamp_seconds",): NOW - 10,
        ("fedaux_run_stuck_after_seconds",): 300,
        ("fedaux_round_seconds_total", "train"): 19.5,
        ("fedaux_round_seconds_total", "distil"): 0.5,
        ("fedaux_last_round_seconds", "train"): 9.5,
        ("fedaux_last_round_seconds", "distil"): 0.25,
        ("fedaux_array_bytes_total", "sent"): 2_500_000,
        ("fedaux_array_bytes_total", "received"): 840_000,
        ("fedaux_site_online", "berlin"): 1,
        ("fedaux_site_online", "paris"): 0,
        ("fedaux_site_asked_timestamp_seconds", "paris"): NOW - 65,
        ("fedaux_site_last_reply_timestamp_seconds", "berlin"): NOW - 10,
        ("fedaux_replies_total", "berlin"): 3,
        ("fedaux_replies_total", "paris"): 0,
        ("fedaux_replies_refused_total", "no-answer", "paris"): 2,
        ("fedaux_privacy_epsilon_spent", "berlin"): 0.75,
        ("fedaux_privacy_epsilon_left", "berlin"): 0.25,
        ("fedaux_privacy_epsilon_left", "paris"): 1,
    }
    states = {
        key[1]: value for key, value in found.items() if key[0] == "fedaux_run_state"
    }
    assert states == {
        **dict.fromkeys(
            ("none", "starting", "waiting", "stuck", "finished", "failed", "stopped"), 0
        ),
        "running": 1,
    }


def test_every_scrape_is_a_new_look_also_without_a_run_or_a_server() -> None:
    unknown = replace(RUNNING.sites[0], connection="unknown")
    looks = iter([RUNNING, Status(NOW, "none", link=False, sites=(unknown,))])
    read = lambda: next(looks)  # noqa: E731
    assert scrape(read)["fedaux_run_state", "running"] == 1
    found = scrape(read)
    assert (found["fedaux_link_up",], found["fedaux_run_state", "none"]) == (0, 1)
    assert not {"fedaux_rounds_total", "fedaux_site_online"} & {
        name for name, *_ in found
    }


def test_a_port_that_is_taken_and_a_package_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(DeployError, match="Choose another --port"),
            serve_metrics(lambda: RUNNING, "127.0.0.1", port),
        ):
            pass
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with (
        pytest.raises(MissingPackageError, match=r"pip install -e '\.\[metrics\]'"),
        serve_metrics(lambda: RUNNING, "127.0.0.1", 0),
    ):
        pass


def test_it_is_served_to_this_machine_alone_unless_told_otherwise() -> None:
    with serve_metrics(lambda: RUNNING, "127.0.0.1", 0) as address:
        port = int(re.findall(r":(\d+)/", address)[0])
        report_to = (
            Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
        ).splitlines()
        local = [
            line.split()[1]
            for line in report_to
            if f":{port:04X} " in line and line.split()[3] == "0A"
        ]
    assert local == [f"0100007F:{port:04X}"]


EXPRESSIONS = {
    "dashboard.json": lambda text: [
        target["expr"]
        for panel in json.loads(text)["panels"]
        for target in panel["targets"]
    ],
    "alerts.yml": lambda text: re.findall(r"^\s+expr: (.+)$", text, re.MULTILINE),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_what_is_asked_for_exists(name: str) -> None:
    exposed = {key[0] for key in scrape(lambda: RUNNING)}
    expressions = EXPRESSIONS[name](layout.monitoring_files()[name])
    asked = {
        metric
        for text in expressions
        for metric in re.findall(r"\b(fedaux_\w+|up)\b", text)
    }
    assert len(asked) >= 6
    assert asked <= exposed | OF_PROMETHEUS
    if name == "dashboard.json":
        assert exposed - asked == set()  # and all that there is, is shown


def test_grafana_finds_a_dashboard() -> None:
    board = json.loads(layout.monitoring_files()["dashboard.json"])
    assert (board["uid"], board["title"], board["schemaVersion"]) == (
        "fedaux",
        "fedaux",
        38,
    )
    (variable,) = board["templating"]["list"]
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["type"] in ("stat", "timeseries", "bargauge")
        assert panel["datasource"] == {
            "type": "prometheus",
            "uid": f"${{{variable['name']}}}",
        }
        assert [target["refId"] for target in panel["targets"]] == [*"AB"][
            : len(panel["targets"])
        ]
