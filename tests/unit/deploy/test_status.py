"""What an operator is told, from a run's folder and a SuperLink;
`end_to_end/test_operator.py` has real ones.
"""

import io
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from fedaux.config.schema import Config
from fedaux.core.accounts import Account
from fedaux.core.failures import NO_ANSWER, Failure
from fedaux.core.progress import (
    OrdersSent,
    OwnersAwaited,
    ReplyReceived,
    RoundFinished,
    SitesLooked,
)
from fedaux.core.results import ClientMetrics, RoundResult
from fedaux.deploy.env import DeployError
from fedaux.deploy.link import ControlLink, FlowerRun, LinkError, Node
from fedaux.deploy.status import (
    SiteStatus,
    State,
    Status,
    _spent_on,
    read_status,
    server_folder,
    status_panel,
    watch,
)
from fedaux.runs.status import STATUS_FILE, RunStatus, SiteRecord
from helpers.statuses import NOW, PARIS, RUNNING

START = 1_800_000_000.0
RESULT = RoundResult(
    1, {"mlp": 0.5}, {"berlin": ClientMetrics(9, 0.1, 1.0)}, seconds={"train": 2.0}
)
SPENT = Account(0.75, 1e-5, "replace-one", "record", 2)


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat()


ONLINE = [
    Node(name, node, "online", iso(START - 60))
    for node, name in enumerate(("berlin", "paris"), 1)
]


@dataclass
class Link:
    """A SuperLink that says what it is told to say."""

    down: str = ""
    run: FlowerRun | None = None
    known: list[Node] = field(
        default_factory=lambda: [
            Node("berlin", 1, "online", iso(START - 60)),
            Node("paris", 2, "registered", ""),
        ]
    )

    def check(self) -> None:
        if self.down:
            raise LinkError(self.down)

    def nodes(self) -> list[Node]:
        return self.known

    def last_run(self) -> FlowerRun | None:
        return self.run


@pytest.fixture
def server(folder: Path) -> Path:
    (folder / "server" / "run").mkdir()
    return folder / "server"


def record(server: Path) -> RunStatus:
    """Of a run in its second round, 30 s after its start: berlin has answered, paris
    has not.
    """
    status = RunStatus.start(Config.load(server / "fedaux.toml"), None, START)
    status.update(
        ReplyReceived(
            "release", None, "paris", 0, failure=Failure("paris", "gone", NO_ANSWER)
        ),
        START + 5,
    )
    status.update(RoundFinished(RESULT, 9, ""), START + 10)
    status.update(OrdersSent("train", 2, ("berlin", "paris"), 2000), START + 20)
    status.update(ReplyReceived("train", 2, "berlin", 1000, SPENT), START + 30)
    return status


def store(server: Path, status: RunStatus, alive: float = START + 30) -> None:
    (server / "run" / STATUS_FILE).write_text(status.to_json())
    os.utime(server / "run" / STATUS_FILE, (alive, alive))


def read(
    server: Path,
    now: float = START + 40,
    link: Link | None = None,
    stuck_after: float | None = None,
) -> Status:
    return read_status(server, link or Link(), now, stuck_after)


def test_a_run_that_waits_for_owners_says_so_for_as_long_as_it_takes(
    server: Path,
) -> None:
    """It counted as stuck, and its last message was cut in the middle of a word."""
    status = RunStatus.start(Config.load(server / "fedaux.toml"), None, START)
    status.update(OwnersAwaited("waiting", ("paris",)), START + 5)
    days = 2 * 86400
    store(server, status, alive=START + days)
    found = read(server, START + days)
    assert (found.state, found.phase) == ("waiting", "approval")
    assert [site.record.asked_for for site in found.sites] == ["", "approval"]
    assert not any("progress" in problem for problem in found.problems)
    assert "waiting for the owners of paris for" in " ".join(shown(found, 200))


def test_a_run_that_goes_on(server: Path) -> None:
    status = record(server)
    store(server, status)
    found = read(server)
    assert (found.state, found.link) == ("running", True)
    assert found.problems == (
        "not connected: paris (registered). The log of supernode.sh there has the reason.",
    )
    assert read(server, link=Link(known=ONLINE)).problems == ()
    assert (found.round, found.phase, found.silence, found.stuck_after) == (
        2,
        "train",
        10.0,
        300.0,
    )
    assert [(site.connection, site.since, site.left) for site in found.sites] == [
        ("online", START - 60, 0.25),
        ("registered", None, 1.0),
    ]
    assert [site.record for site in found.sites] == list(status.sites.values())


def test_json_has_all_of_it_and_null_for_what_never_was(server: Path) -> None:
    status = record(server)
    status.update(
        ReplyReceived("train", 2, "berlin", 1, replace(SPENT, epsilon=float("inf"))),
        START + 31,
    )
    store(server, status)
    table = json.loads(json.dumps(read(server).to_dict(), allow_nan=False))
    keys = """time state run flower_run method round finished_rounds rounds phase phase_since started ended
        last_progress stuck_after seconds last_seconds bytes_sent bytes_received link error sites problems"""
    assert set(keys.split()) <= table.keys()
    assert (table["phase"], table["round"], table["ended"], table["started"]) == (
        "train",
        2,
        None,
        START,
    )
    keys = """name connection since asked_for asked_at last_reply replies failures epsilon left last_error
        last_error_at versions"""
    berlin, paris = table["sites"]
    assert set(keys.split()) <= paris.keys()
    assert (
        berlin["name"],
        berlin["epsilon"],
        berlin["left"],
        berlin["last_error_at"],
    ) == ("berlin", None, 0.0, None)
    assert (paris["asked_at"], paris["last_reply"], paris["failures"]) == (
        START + 20,
        None,
        {"no-answer": 1},
    )


def test_what_a_look_cost_is_shown_apart() -> None:
    status = RunStatus.start(Config(), None, START)
    account = replace(SPENT, epsilon=1.4567)
    looked = SitesLooked(1.0, {"berlin": 1.0}, {"berlin": account, "paris": SPENT})
    status.update(looked, START + 1)
    words = [_spent_on(status.sites[name]) for name in ("berlin", "paris")]
    assert words == ["1.46 (before 1, look 1)", f"{SPENT.epsilon:g} (look 1)"]
    assert _spent_on(SiteRecord()) == "?"


def test_one_without_progress_is_stuck_and_who_is_waited_for_is_named(
    server: Path,
) -> None:
    store(server, record(server), alive=START + 400)
    found = read(server, START + 401)
    assert found.state == "stuck"
    assert (
        "no sign of progress for 6:11, in the phase train. Not answered: paris "
        "(registered)" in found.problems[0]
    )
    assert read(server, START + 330).state == "running"
    assert read(server, START + 330, stuck_after=299).state == "stuck"
    status = record(server)
    status.update(ReplyReceived("train", 2, "paris", 1000, SPENT), START + 31)
    store(server, status, alive=START + 400)
    assert "the server's own work" in read(server, START + 401).problems[0]


def test_a_process_that_was_killed_has_failed_unless_it_was_told_to_stop(
    server: Path,
) -> None:
    store(server, record(server))
    found = read(server, START + 91)
    assert found.state == "failed"
    assert "has failed after round 1: the server's process is gone" in found.problems[0]
    assert "run.sh continues it" in found.problems[0]
    stopped = FlowerRun(7, "finished:stopped", "", iso(START - 5))
    found = read(server, START + 91, Link(run=stopped))
    assert (found.state, found.flower_run) == ("stopped", 7)
    assert "the run was stopped after round 1 of" in found.problems[0]
    # nobody is waited for
    assert [site.record.asked_for for site in found.sites] == ["", ""]


@pytest.mark.parametrize(
    ("outcome", "problems"),
    [("finished", 0), ("stopped", 1), ("failed", 1)],
    ids=["finished", "stopped", "failed"],
)
def test_the_runs_own_word_counts_when_it_has_ended(
    server: Path, outcome: str, problems: int
) -> None:
    status = record(server)
    status.end(outcome, "no quorum", START + 35)  # type: ignore[arg-type]
    store(server, status)
    found = read(server, START + 36, Link(known=ONLINE))
    assert (found.state, found.error, len(found.problems)) == (
        outcome,
        "no quorum",
        problems,
    )
    assert (found.phase, found.record.finished_rounds) == ("", 1)
    end = FlowerRun(7, "finished:stopped", "", iso(START - 5))
    stopped = read(server, START + 36, Link(known=ONLINE, run=end))
    assert stopped.state == ("finished" if outcome == "finished" else "stopped")
    assert len(stopped.problems) == (outcome != "finished")


@pytest.mark.parametrize("before", [False, True], ids=["first", "after another"])
def test_a_run_that_has_not_begun_or_never_did(server: Path, before: bool) -> None:
    """Only the SuperLink knows of it."""
    if before:
        status = record(server)
        status.end("finished", "", START + 35)
        store(server, status)
    handed_in = START + 100
    new = FlowerRun(8, "pending", "", iso(handed_in))
    assert read(server, handed_in + 1, Link(run=new)).state == "starting"
    late = read(server, handed_in + 500, Link(run=new))
    assert late.state == "stuck"
    assert "superexec.sh" in late.problems[0]
    wrong = read(
        server,
        handed_in + 1,
        Link(run=replace(new, status="finished:failed", details="bad settings")),
    )
    assert wrong.state == "failed"
    assert "the run has failed: bad settings" in wrong.problems[0]
    assert (
        read(
            server, handed_in + 1, Link(run=replace(new, status="finished:stopped"))
        ).state
        == "stopped"
    )


def test_a_second_run_that_was_refused_does_not_hide_the_first(server: Path) -> None:
    store(server, record(server), alive=START + 45)
    refused = FlowerRun(
        9, "finished:failed", "belongs to a run that is not finished", iso(START + 41)
    )
    found = read(server, START + 50, Link(known=ONLINE, run=refused))
    assert (found.state, found.phase, found.problems) == ("running", "train", ())


@pytest.mark.parametrize("state", ["stopped", "failed", "running"])
def test_sites_that_are_offline_are_named_unless_the_run_is_finished(
    server: Path, state: str
) -> None:
    """A run had been stopped and no site was there, and the status was: no problems."""
    status, gone = record(server), [replace(node, status="offline") for node in ONLINE]
    if state != "running":
        status.end(state, "", START + 35)  # type: ignore[arg-type]
    store(server, status)
    named = "not connected: berlin (offline), paris (offline). The log of supernode.sh there has the reason."
    assert named in read(server, link=Link(known=gone)).problems
    status.end("finished", "", START + 35)
    store(server, status)
    assert read(server, link=Link(known=gone)).problems == ()


def test_a_server_that_is_down_is_a_problem_and_all_else_is_still_told(
    server: Path,
) -> None:
    store(server, record(server))
    found = read(server, link=Link(down="start superlink.sh"))
    assert (found.state, found.link, found.problems) == (
        "running",
        False,
        ("start superlink.sh",),
    )
    assert {site.connection for site in found.sites} == {"unknown"}
    (server / "fedaux.toml").write_text("rounds = -1\n")
    assert "rounds must be" in read(server).problems[-1]


def test_a_site_that_refused_for_its_budget_has_none_left(server: Path) -> None:
    status = record(server)
    status.update(
        ReplyReceived(
            "train", 2, "berlin", 0, failure=Failure("berlin", "budget", "budget")
        ),
        START + 31,
    )
    store(server, status)
    assert read(server).sites[0].left == 0.0


def test_sites_without_a_key_and_keys_without_a_site(server: Path) -> None:
    found = read(
        server, link=Link(known=[Node("rome, oslo", 3, "offline", iso(START - 5))])
    )
    assert (found.state, found.record.rounds) == ("none", 0)
    assert found.problems == (
        (
            "not connected: rome (offline), oslo (offline). The log of supernode.sh "
            "there has the reason."
        ),
    )
    connections = {
        "berlin": "unregistered",
        "paris": "unregistered",
        "rome": "offline",
        "oslo": "offline",
    }
    assert {site.name: site.connection for site in found.sites} == connections


def test_a_regional_server_has_its_run_elsewhere_and_the_sites_of_its_region(
    server: Path, tmp_path: Path
) -> None:
    whole = Config.load(server / "fedaux.toml")
    part = replace(whole, federation=replace(whole.federation, sites=("berlin",)))
    status = RunStatus.start(part, None, START)
    status.update(OrdersSent("train", 1, ("berlin",), 2000), START + 20)
    (tmp_path / STATUS_FILE).write_text(status.to_json())
    os.utime(tmp_path / STATUS_FILE, (START + 30, START + 30))
    link = Link(known=[Node("berlin", 1, "online", iso(START - 60))])
    found = read_status(server, link, START + 40, folder=tmp_path)
    assert (found.state, found.round, [site.name for site in found.sites]) == (
        "running",
        1,
        ["berlin"],
    )
    assert read(server, link=link).state == "none"


def test_the_folder_may_be_the_servers_or_the_deployments(folder: Path) -> None:
    assert (
        server_folder(folder) == server_folder(folder / "server") == folder / "server"
    )
    with pytest.raises(DeployError, match=r"there is no server\.env"):
        server_folder(folder / "sites")


@pytest.fixture
def silent() -> Iterator[str]:
    """Somebody who takes calls and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_server_that_says_nothing_is_not_waited_for(
    server: Path, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedaux.deploy.link.CHECK_TIMEOUT", 0.2)
    env = server / "server.env"
    env.write_text(env.read_text().replace("127.0.0.1:8443", silent))
    found = read_status(server, ControlLink(server))
    assert f"the server at {silent} does not answer" in found.problems[0]
    assert "Start superlink.sh" in found.problems[0]


def shown(status: Status, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(status_panel(status))
    return [
        " ".join(line.strip("│╭╮╰╯─ \n").split())
        for line in console.file.getvalue().splitlines()
    ]  # type: ignore[attr-defined]


def test_the_panel_has_all_that_is_known() -> None:
    lines = shown(RUNNING)
    assert lines[0] == "FedAUX"
    assert lines[1:6] == [
        "run running: round 2 of 5, train for 1:05",
        "progress 10 s ago, stuck after 5:00",
        "last round train 9.5 s, distil 0.2 s",
        "all rounds train 19.5 s, distil 0.5 s",
        "arrays 2.5 MB sent, 840 kB received",
    ]
    assert lines[7:10] == [
        "berlin online 3:20 10 s ago 0.75 0.25",
        "paris offline 1:10 train 1:05 never ? 1 no-answer 2",
        "paris, 1:01 ago: [b]gone",  # as it came, not as markup
    ]


def test_the_panel_says_who_runs_which_versions() -> None:
    sites = tuple(
        SiteStatus(name, "online", record=SiteRecord(versions=versions))
        for name, versions in (
            ("berlin", "fedaux 2"),
            ("paris", "fedaux 1"),
            ("rome", "fedaux 2"),
            ("oslo", ""),
        )
    )
    lines = shown(replace(RUNNING, sites=sites, versions="fedaux 2"))
    assert lines[5:7] == [
        "versions fedaux 2: the server, berlin, rome",
        "versions fedaux 1: paris",
    ]


@pytest.mark.parametrize(
    ("state", "rounds", "text"),
    [
        ("none", 0, "none yet: run.sh starts one"),
        ("starting", 0, "is being started"),
        ("failed", 5, "failed after round 3 of 5"),
    ],
)
def test_the_panel_of_a_run_that_does_not_go_on_is_not_cut_in_80_columns(
    state: State, rounds: int, text: str
) -> None:
    run = RunStatus(finished_rounds=3, rounds=rounds)
    lines = shown(
        Status(NOW, state, record=run, problems=("run.sh goes on",), sites=(PARIS,)), 80
    )
    assert f"run {text}" in lines
    assert "problem: run.sh goes on" in lines
    assert "paris offline 1:10 train 1:05 never ? 1 no-answer 2" in lines


def test_the_panel_is_drawn_until_somebody_stops_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = Status(NOW, "finished", record=RunStatus(finished_rounds=5, rounds=5))
    found, looks = iter([RUNNING, RUNNING, ended]), iter([None, None])

    def sleep(seconds: float) -> None:
        assert seconds == 7.0
        if next(looks, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("fedaux.deploy.status.time.sleep", sleep)
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    assert watch(console, lambda: next(found), 7.0).state == "finished"
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert text.index("running: round 2 of 5") < text.index(
        "finished after round 5 of 5"
    )
