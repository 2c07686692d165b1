"""The panel of a whole run."""

from pathlib import Path

from fedaux import Config, run
from fedaux.report.live import Live
from helpers.terminals import console, shown
from helpers.tiny import MLP, TINY


def test_a_run_in_a_terminal_shows_all_that_matters(tmp_path: Path) -> None:
    on = console(terminal=True)
    with Live(on) as live:
        result = run(
            Config.from_dict(TINY),
            tmp_path / "run",
            cache=tmp_path,
            on_progress=live.on_progress,
        )
    panel = shown(live)
    for words in (
        "FedAUX",
        "digits: 3 clients",
        MLP.label,
        "2/2",
        f"{100 * result.accuracy:.1f} %",
    ):
        assert words in panel
    assert f"{result.state.history[-1].effective_teachers:.1f} effective of 3" in panel
    assert "ε = 1, δ = 1e-05, 3 clients: scores only, models are not covered" in panel
    assert "failed" not in panel


def test_seeded_noise_is_called_what_it_is(tmp_path: Path) -> None:
    live = Live(console(terminal=True))
    config = Config.from_dict(TINY, ["privacy.unsafe_seed=1"])
    run(config, tmp_path / "run", cache=tmp_path, on_progress=live.on_progress)
    assert "NOT PRIVATE" in shown(live)
    assert "ε = " not in shown(live)
