"""A panel where there is a terminal, lines where there is none."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from fedaux import Config, run
from fedaux.report.live import Bar, Live
from helpers.tables import TINY


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def said(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def shown(live: Live) -> str:
    on = console()
    on.print(live.render())
    return said(on)


def test_plain_lines_without_a_terminal() -> None:
    on = console()
    with Live(on) as live:
        live.tell("pretrain cnn(width=4)", 1, 3, "loss 2.000")
        live.tell("pretrain cnn(width=4)", 2, 3, "loss 1.500")  # too soon to say again
        live.tell("pretrain cnn(width=4)", 3, 3, "loss 1.000")  # the last is always said
        live.tell("round 1", 5, 5, "training")  # the method's own line follows each round
        live.tell("FedAUX", 1, 1, "accuracy 0.500")
        live.tell("FedAUX", 1, 1, "accuracy 0.500")  # saved twice, said once
    assert said(on).splitlines() == [
        "pretrain cnn(width=4): 1/3 loss 2.000",
        "pretrain cnn(width=4): 3/3 loss 1.000",
        "FedAUX: 1/1 accuracy 0.500",
    ]


def test_a_line_again_after_a_while_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 9.0, 10.0])
    monkeypatch.setattr("fedaux.report.live.time.monotonic", lambda: next(now))
    on = console()
    live = Live(on)
    for done in (1, 2, 3):
        live.tell("features", done, 9, "x")
    assert said(on).splitlines() == ["features: 1/9 x", "features: 3/9 x, about 30 s left"]


def test_time_left() -> None:
    assert Bar("x", 3, 10, "", began=0.0, first=1).left(now=4.0) == 14.0  # two of seven more in four seconds
    assert Bar("x", 1, 10, "", began=0.0, first=1).left(now=4.0) is None


def test_a_run_in_a_terminal_shows_all_that_matters(tmp_path: Path) -> None:
    on = console(terminal=True)
    with Live(on) as live:
        result = run(Config.from_dict(TINY), tmp_path / "run", cache=tmp_path, tell=live.tell, trackers=[live])
    panel = shown(live)
    for words in ("FedAUX", "digits: 3 clients", "mlp(features=8, hidden=8)", "2/2", f"{result.accuracy:.3f}"):
        assert words in panel
    assert f"{result.state.history[-1]['teachers']:.1f} of 3 count on an example" in panel
    assert "ε = 0.1, δ = 1e-05, 3 clients: scores only, models are not covered" in panel
    assert "failed" not in panel


def test_what_went_before_stays_in_sight(tmp_path: Path) -> None:
    live = Live(console(terminal=True))
    for method in ("fedavg", "feddf"):
        run(Config.from_dict({**TINY, "method": method}), tmp_path / method, cache=tmp_path, trackers=[live])
        first, *others = shown(live).splitlines()
        assert ("fedavg" in first and "feddf" not in first) == (method == "feddf")
        assert any("no" not in line for line in others)
    assert "privacy" not in shown(live)


def test_seeded_noise_is_called_what_it_is(tmp_path: Path) -> None:
    live = Live(console(terminal=True))
    config = Config.from_dict(TINY, ["privacy.unsafe_seed=1"])
    run(config, tmp_path / "run", cache=tmp_path, trackers=[live])
    assert "NOT PRIVATE" in shown(live)
    assert "ε = " not in shown(live)


def test_an_interrupt_ends_with_its_code_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, Live(console()):
        raise KeyboardInterrupt
    assert caught.value.code == 130
    assert "fedaux resume FOLDER" in capsys.readouterr().err
