"""The page of a run: its figures, what is left out where it is not known, and nothing
that a client wrote can act.
"""

import base64
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import AuxConfig
from fedaux.core.failures import Failure
from fedaux.data.federated import open_data
from fedaux.report.reported_run import (
    confusion,
    expected_accuracy,
    image_strip,
    load_run,
    may_show,
    recall,
)
from fedaux.report.run_page import (
    accuracy_chart,
    data_name,
    describe_setting,
    write_run_report,
)
from fedaux.runs.callbacks import round_metrics
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState, StateError
from fedaux.server.run_writer import RunWriter
from helpers.pages import Page
from helpers.runs import finished_run
from helpers.tiny import CNN, TINY_CONFIG


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return finished_run(
        tmp_path_factory.mktemp("done"),
        replace(TINY_CONFIG, method="feddf", prototypes=(CNN,)),
    )


def page_of(state: RunState, folder: Path) -> str:
    RunWriter(folder).save(state)
    return write_run_report(folder).read_text()


def test_its_figures_are_those_of_the_run(done: FinishedRun) -> None:
    text = write_run_report(done.folder).read_text()
    page = Page(text)
    assert page.sections == [
        "learning",
        "split",
        "classes",
        "clients",
        "teachers",
        "privacy",
        "costs",
        "settings",
    ]
    assert page.loads == []
    assert f"<b>{100 * done.accuracy:.1f} %</b>" in text
    assert "always the commonest class" in text
    assert "nothing was released under differential privacy" in text
    assert "<b>6 s</b>" in text  # two rounds of three seconds
    assert "6 kB to clients and 4 kB from them" in text
    assert "clients = 3" in text
    assert "failed at least once" not in text
    assert all(text.count(client) >= 3 for client in ("client-000", "client-002"))


def test_a_real_site_keeps_its_split_to_itself(
    done: FinishedRun, tmp_path: Path
) -> None:
    sites = replace(
        done.state.config.federation, sites=("client-000", "client-001", "client-002")
    )
    config = replace(
        done.state.config,
        data=replace(done.state.config.data, partition="own"),
        federation=sites,
    )
    assert (
        "split"
        not in Page(page_of(replace(done.state, config=config), tmp_path)).sections
    )


def test_failures_are_counted_and_listed_as_text(
    done: FinishedRun, tmp_path: Path
) -> None:
    evil = "<script>alert('x')</script><img src=http://evil>"
    first = replace(done.state.history[0], failures=(Failure("client-001", evil),))
    text = page_of(
        replace(done.state, history=(first, *done.state.history[1:])), tmp_path
    )
    assert Page(text).sections[-2:] == ["failures", "settings"]
    assert "client failed at least once" in text
    assert "script" not in Page(text).tags
    assert "&lt;script&gt;" in text


def test_without_its_data_a_run_still_has_a_page(
    done: FinishedRun, tmp_path: Path
) -> None:
    config = replace(
        done.state.config,
        data=replace(done.state.config.data, source="npz", path="gone.npz"),
    )
    text = page_of(replace(done.state, config=config), tmp_path)
    assert Page(text).sections == [
        "learning",
        "classes",
        "clients",
        "teachers",
        "privacy",
        "costs",
        "settings",
    ]
    assert "Cannot read the data: gone.npz is missing." in text
    facts = load_run(tmp_path)
    assert facts.counts is None
    # by number, as the confusion matrix has them
    assert facts.classes == tuple("0123456789")


def test_a_run_without_a_round_has_no_page(done: FinishedRun, tmp_path: Path) -> None:
    with pytest.raises(
        StateError, match=r"has not finished a round yet\. Continue with `fedaux resume"
    ):
        page_of(replace(done.state, round=0, history=()), tmp_path)


def test_a_collapsed_model_is_a_warning_above_everything_else(
    done: FinishedRun, tmp_path: Path
) -> None:
    label = next(iter(done.state.weights))
    last = replace(
        done.state.history[-1], confusion={label: [[36, *[0] * 9] for _ in range(10)]}
    )
    text = page_of(
        replace(done.state, history=(*done.state.history[:-1], last)), tmp_path
    )
    assert 'role="alert"' in text
    assert text.index("does not beat always answering") < text.index("<nav>")
    good = replace(last, confusion={label: (36 * np.eye(10, dtype=int)).tolist()})
    assert 'role="alert"' not in page_of(
        replace(done.state, history=(*done.state.history[:-1], good)), tmp_path
    )


def test_expected_accuracy_is_that_of_the_clients_mix() -> None:
    counts, recalls = np.array([[30, 10], [0, 5], [0, 0]]), np.array([0.9, 0.5])
    assert expected_accuracy(counts, recalls) == pytest.approx([0.8, 0.5, 0.0])
    assert expected_accuracy(counts, np.array([0.9, np.nan]))[1] == 0


def test_counts_and_recalls_of_all_prototypes_together(
    result: FinishedRun, tmp_path: Path
) -> None:
    config = replace(result.state.config, method="feddf")  # a method without scores
    RunWriter(tmp_path).save(replace(result.state, config=config, releases={}))
    facts = load_run(tmp_path)
    assert (facts.counts == open_data(config).counts()).all()
    matrices = [
        np.array(matrix)
        for matrix in (facts.state.history[-1].confusion or {}).values()
    ]
    assert len(matrices) == 2
    table = confusion(facts.state)
    assert (table == matrices[0] + matrices[1]).all()
    assert recall(facts.state) == pytest.approx(
        np.diag(table) / table.sum(axis=1), nan_ok=True
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_a_strip_is_a_picture_of_all_images(channels: int) -> None:
    images = (
        np.random.default_rng(0).integers(0, 255, (4, 8, 8, channels)).astype(np.uint8)
    )
    picture = Image.open(
        io.BytesIO(base64.b64decode(image_strip(images).split(",")[1]))
    )
    assert picture.size == (4 * 48 + 3 * 3, 48)
    pixels = np.asarray(picture).reshape(48, -1, channels)
    # enlarged without smoothing
    assert np.array_equal(pixels[::6, 51 : 51 + 48 : 6], images[1])


def test_records_are_shown_only_if_anyone_may_see_them() -> None:
    """Private images were shown as public examples where aux.path was data.path."""
    assert may_show(TINY_CONFIG)  # digits are published
    own = replace(TINY_CONFIG, aux=AuxConfig(source="images", path="public"))
    assert not may_show(own)
    assert may_show(replace(own, aux=replace(own.aux, public=True)))
    # held out
    assert not may_show(
        replace(
            TINY_CONFIG, data=replace(TINY_CONFIG.data, source="images", path="scans")
        )
    )


def test_a_secure_sum_shows_no_records_of_one_site(
    done: FinishedRun, tmp_path: Path
) -> None:
    """Every site had the mean of all, as if that were its own number."""
    config = done.state.config
    count = done.state.history[-1].client_metrics["client-000"].records
    row = f"<td>client-000</td><td>{count:,}</td>"
    assert row in page_of(done.state, tmp_path / "open")
    federation = replace(config.federation, secure=True)
    secure = replace(config, method="fedavg", federation=federation)
    text = page_of(replace(done.state, config=secure), tmp_path / "secure")
    assert row not in text
    assert "<td>client-000</td><td>–</td>" in text
    assert "no one learns the records and losses of one site" in text


def test_where_nothing_trains_there_is_no_loss(
    done: FinishedRun, tmp_path: Path
) -> None:
    """ "last local loss 0.000" stood beside every site of a private head."""
    assert round_metrics(done.state.history[-1])["local_loss"] > 0
    (last,) = done.state.history[-1:]
    still = {
        name: replace(metrics, loss=0.0)
        for name, metrics in last.client_metrics.items()
    }
    last = replace(last, client_metrics=still)
    assert "local_loss" not in round_metrics(last)
    config = replace(done.state.config, method="ridge")
    state = replace(done.state, config=config, history=(last,), round=1)
    assert "0.000</td>" not in page_of(state, tmp_path)


def test_titles_have_names_that_a_reader_knows(
    done: FinishedRun, tmp_path: Path
) -> None:
    """The page was "FedAUX on here:data-c63ca03c"."""
    config = done.state.config
    handed = replace(config, data=replace(config.data, source="here:data-c63ca03c"))
    assert data_name(handed) == "your data"
    files = replace(config, data=replace(config.data, source="npy", path="/a/scans"))
    assert data_name(files) == "scans"
    net = PrototypeSpec("here:Net-f5294eac")
    assert "Net · seed 0" in describe_setting(replace(handed, prototypes=(net,)))
    text = page_of(replace(done.state, config=handed), tmp_path)
    assert "<h1>FedDF on your data</h1>" in text


def test_round_0_is_the_start_and_a_fall_below_it_is_a_warning(
    done: FinishedRun, tmp_path: Path
) -> None:
    """FedAUX fell from a head of 63 % to 24 % in round 1, without a word."""
    label = next(iter(done.state.weights))
    first, *others = done.state.history
    assert FinishedRun(done.state, tmp_path).start is None
    better = replace(first, start={label: first.accuracy[label] - 0.05})
    risen = replace(done.state, history=(better, *others))
    assert FinishedRun(risen, tmp_path).start == better.mean_start
    assert not any("below" in one for one in FinishedRun(risen, tmp_path).warnings)
    chart = accuracy_chart(risen)
    assert chart.x_values == ["0", "1", "2"]
    assert len(chart.lines[0].values) == 3
    worse = replace(first, start={label: first.accuracy[label] + 0.05})
    fallen = FinishedRun(replace(done.state, history=(worse, *others)), tmp_path)
    assert any(
        one.startswith("Round 1 has accuracy") and "below the" in one
        for one in fallen.warnings
    )
    assert "Round 1 has accuracy" in page_of(fallen.state, tmp_path / "page")
    RunWriter(tmp_path / "stored").save(risen)
    assert RunState.load(tmp_path / "stored").history[0].start == better.start


def test_one_round_without_a_start_is_a_bar(done: FinishedRun, tmp_path: Path) -> None:
    """A private head has one exchange, and had a curve of one point."""
    last = replace(done.state.history[-1], round=1)
    text = page_of(replace(done.state, round=1, history=(last,)), tmp_path)
    learning = text[text.index('id="learning"') : text.index('id="split"')]
    assert "rail" in learning
    assert "curve" not in learning


def test_one_exchange_is_a_bar_however_many_rounds_were_asked(tmp_path: Path) -> None:
    """Rounds that change nothing are no learning curve."""

    def learning(state: RunState, name: str) -> str:
        text = page_of(state, tmp_path / name)
        return text[text.index('id="learning"') : text.index('id="split"')]

    ridge = finished_run(tmp_path / "run", replace(TINY_CONFIG, method="ridge")).state
    assert "rail" in learning(ridge, "same")
    # clients that send later change the head
    first, *others = ridge.history
    worse = {label: accuracy / 2 for label, accuracy in first.accuracy.items()}
    risen = replace(ridge, history=(replace(first, accuracy=worse), *others))
    assert "curve" in learning(risen, "risen")


def test_a_guarantee_that_promises_nothing_is_a_warning(
    result: FinishedRun, tmp_path: Path
) -> None:
    """ε = 1000 and δ = 0.5 ran without a word."""

    def warnings(**privacy: float) -> list[str]:
        config = result.state.config
        changed = replace(config, privacy=replace(config.privacy, **privacy))
        state = replace(result.state, config=changed)
        return FinishedRun(state, tmp_path).warnings

    assert not any("next to nothing" in one for one in warnings(epsilon=10.0))
    assert any("ε = 1000 promises next to" in one for one in warnings(epsilon=1000.0))
    assert any("δ = 0.5 promises next to" in one for one in warnings(delta=0.5))
    metrics = result.state.history[-1].client_metrics
    records = max(client.records for client in metrics.values())
    at_least = 1 / records
    assert any("δ =" in one for one in warnings(delta=at_least))
    assert not any("δ =" in one for one in warnings(delta=0.9 * at_least))
