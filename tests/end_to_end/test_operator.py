"""An operator of a real federation: what the status, the metrics and the logs say while
it runs, when it is stuck, and when it was killed; promtool on the alerts.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from fedaux.deploy.layout import monitoring_files
from helpers.deployments import AWKWARD, SITES, LiveDeployment, until
from helpers.harness import free_port


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("flower-superexec") is None,
    reason="needs Flower's programs on the path",
)
def test_a_federation_that_runs_and_is_killed(tmp_path: Path) -> None:
    metrics_port = free_port()

    def metrics() -> dict[str, float]:
        lines = httpx.get(
            f"http://127.0.0.1:{metrics_port}/metrics", timeout=60
        ).text.splitlines()
        return {
            name: float(value)
            for name, _, value in (
                line.rpartition(" ") for line in lines if line[0] != "#"
            )
        }

    def kill_app() -> None:
        os.kill(
            json.loads((made.server / "run" / "status.json").read_text())["pid"],
            signal.SIGKILL,
        )

    def reached(state: str, rounds: int = 0) -> Callable[[], bool]:
        def reached() -> bool:
            found = made.status()[1]
            return bool(found["state"] == state and found["finished_rounds"] >= rounds)

        return reached

    with LiveDeployment(tmp_path / AWKWARD) as made:
        env = made.server / "server.env"
        env.write_text(
            env.read_text().replace("METRICS_PORT=9464", f"METRICS_PORT={metrics_port}")
        )
        assert made.status()[0] == 1  # nobody answers
        made.start("superlink.sh", "superexec.sh", "metrics.sh")
        made.register()
        code, found = made.status()
        assert (code, found["state"], found["problems"]) == (0, "none", [])
        assert {
            site["name"]: site["connection"] for site in found["sites"]
        } == dict.fromkeys(SITES, "registered")
        made.start_sites()

        run = made.run(4)
        until(reached("running", rounds=1), 600)
        _, found = made.status()
        assert (found["round"] >= 2, found["rounds"], found["link"]) == (True, 4, True)
        assert found["last_seconds"]["train"] > 0
        assert found["bytes_sent"] > found["bytes_received"] > 0
        assert [
            site["replies"] >= 2 and site["epsilon"] <= 1.0 for site in found["sites"]
        ] == [True, True]
        now = metrics()
        assert now['fedaux_run_state{state="running"}'] == now["fedaux_link_up"] == 1
        assert now["fedaux_rounds_total"] >= 1
        assert [now[f'fedaux_site_online{{site="{name}"}}'] for name in SITES] == [1, 1]
        assert time.time() - now["fedaux_run_last_progress_timestamp_seconds"] < 3600

        run.send_signal(signal.SIGINT)  # nobody attends the run, or it would go on
        assert run.wait(60) == 130
        kill_app()
        until(reached("failed"))
        code, found = made.status()
        assert code == 1
        assert re.search(
            r"failed after round \d: the server's process is gone", found["problems"][0]
        )
        assert metrics()['fedaux_run_state{state="failed"}'] == 1

        run = made.run(4)
        until(reached("running"), 600)
        kill_app()
        assert run.wait(900) == 0
        assert "the server's app is gone" in (made.server / "run.log").read_text()
        code, found = made.status()
        assert (code, found["state"], found["finished_rounds"]) == (0, "finished", 4)
        assert metrics()['fedaux_run_state{state="finished"}'] == 1

        made.run(9)
        until(reached("running", rounds=5), 600)
        flower = {**os.environ, "FLWR_HOME": str(made.server / "flwr-home")}
        number = str(made.status()[1]["flower_run"])
        subprocess.run(
            ["flwr", "stop", number, "fedaux"],
            env=flower,
            check=True,
            timeout=120,
            capture_output=True,
        )
        until(reached("stopped"))
        code, found = made.status()
        assert code == 1
        assert "the run was stopped after round" in found["problems"][0]
    told = [
        (row["event"], row["round"], row["site"])
        for row in events(made.server / "log" / "server.jsonl")
    ]
    for name in SITES:
        assert {("reply", number, name) for number in range(1, 6)} <= set(told)
        answered = events(made.site(name) / "log" / "site.jsonl")
        assert {row["task"] for row in answered} == {"hello", "prepare", "train"}
        assert {(row["event"], row["site"]) for row in answered} == {
            ("order-answered", name)
        }
        assert {row["round"] for row in answered if row["task"] == "train"} >= {
            1,
            2,
            3,
            4,
            5,
        }
    assert "run-finished" in [event for event, _, _ in told]


RULES_TEST = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'fedaux_run_state{state="stuck", instance="a"}', values: '0x9 1x9'}
      - {series: 'fedaux_run_state{state="running", instance="a"}', values: '1x9 0x9'}
      - {series: 'fedaux_run_last_progress_timestamp_seconds{instance="a"}', values: '0x99'}
      - {series: 'fedaux_run_stuck_after_seconds{instance="a"}', values: '300x99'}
      - {series: 'fedaux_site_online{site="rome", instance="a"}', values: '0x99'}
      - {series: 'fedaux_replies_refused_total{site="rome", reason="budget", instance="a"}', values: '0x4 1x20'}
    alert_rule_test:
      - {eval_time: 9m, alertname: FedauxRunStuck, exp_alerts: []}
      - eval_time: 12m
        alertname: FedauxRunStuck
        exp_alerts:
          - exp_labels: {severity: critical, state: stuck, instance: a}
            exp_annotations:
              summary: The run makes no progress.
              description: "`fedaux deploy status` names the sites that have not answered."
      - {eval_time: 9m, alertname: FedauxNoProgress, exp_alerts: []}
      - eval_time: 13m
        alertname: FedauxNoProgress
        exp_alerts:
          - exp_labels: {severity: critical, instance: a}
            exp_annotations: {summary: No sign of progress for 13m 0s.}
      - {eval_time: 14m, alertname: FedauxSiteOffline, exp_alerts: []}
      - eval_time: 16m
        alertname: FedauxSiteOffline
        exp_alerts:
          - exp_labels: {severity: warning, site: rome, instance: a}
            exp_annotations: {summary: "rome is not connected, and the run is not finished."}
      - {eval_time: 4m, alertname: FedauxBudgetSpent, exp_alerts: []}
      - eval_time: 10m
        alertname: FedauxBudgetSpent
        exp_alerts:
          - exp_labels: {severity: critical, site: rome, reason: budget, instance: a}
            exp_annotations:
              summary: "rome refuses: its privacy budget is used up. Asking again changes nothing."
      - {eval_time: 10m, alertname: FedauxRepliesRefused, exp_alerts: []}
      - {eval_time: 16m, alertname: FedauxRunStopped, exp_alerts: []}
  - interval: 1m
    input_series:
      - {series: 'fedaux_run_state{state="stopped", instance="a"}', values: '1x30'}
      - {series: 'fedaux_site_online{site="rome", instance="a"}', values: '0x30'}
      - {series: 'fedaux_run_state{state="finished", instance="b"}', values: '1x30'}
      - {series: 'fedaux_site_online{site="rome", instance="b"}', values: '0x30'}
    alert_rule_test:
      - eval_time: 16m
        alertname: FedauxRunStopped
        exp_alerts:
          - exp_labels: {severity: warning, state: stopped, instance: a}
            exp_annotations:
              summary: The run was stopped before its last round.
              description: run.sh continues it.
      - eval_time: 16m
        alertname: FedauxSiteOffline
        exp_alerts:
          - exp_labels: {severity: warning, site: rome, instance: a}
            exp_annotations: {summary: "rome is not connected, and the run is not finished."}
"""


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)"
)
def test_prometheus_takes_the_alerts_and_they_fire(tmp_path: Path) -> None:
    for name, text in monitoring_files().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test.yml").write_text(RULES_TEST)
    for words in (["check", "config", "prometheus.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(
            ["promtool", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
