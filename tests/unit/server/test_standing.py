"""A client's last model teaches until it sends another: held against a loop over
dictionaries.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from fedaux.config.distillation import TeachersConfig
from fedaux.config.schema import Config
from fedaux.core.failures import Failure
from fedaux.messages import Order, PrepareOrder, Reply, TrainOrder, Update
from fedaux.methods.contribution import Ensemble
from fedaux.methods.teachers import teacher_logits
from fedaux.server import round as round_module
from fedaux.server.loop import run as run_rounds
from fedaux.server.loop import sample
from fedaux.server.run_state import RunState, StateError
from fedaux.server.standing import StandingTeachers
from helpers.scripted import (
    CLIENTS,
    CONFIG,
    MLP,
    WIDE,
    Answer,
    Scripted,
    fails,
    honest,
    make_server,
)

STANDING = replace(
    CONFIG, rounds=5, fraction=0.5, teachers=TeachersConfig(standing=True)
)


@pytest.fixture
def distilled(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Soft labels of every round."""
    real, found = round_module.distill_students, list[np.ndarray]()

    def spy(
        networks: Any, weights: Any, inputs: Any, ensemble: Ensemble, *rest: Any
    ) -> Any:
        found.append(ensemble.soft_labels())
        return real(networks, weights, inputs, ensemble, *rest)

    monkeypatch.setattr(round_module, "distill_students", spy)
    return found


def finished(
    config: Config, folder: Path, **script: Answer
) -> tuple[RunState, Scripted]:
    federation = Scripted(script)
    server = make_server(config).in_folder(folder)
    return run_rounds(server, federation, None, lambda state: None), federation


def naive_soft_labels(
    config: Config, asked: list[Order], failed: set[tuple[str, int]]
) -> list[np.ndarray]:
    """softmax(Σ e^{log-odds} f / Σ e^{log-odds}) of the last model of everybody who has
    ever sent one.
    """
    server, releases, last_model, labels = make_server(config), {}, {}, []
    state, _ = finished(replace(config, rounds=1, teachers=TeachersConfig()), Path())
    embedding = server.restore(state)
    assert embedding is not None
    for number in range(1, config.rounds + 1):
        orders = [
            order
            for order in asked
            if isinstance(order, TrainOrder) and order.round == number
        ]
        assert [order.client for order in orders] == sample(CLIENTS, config, number)[1]
        for order in orders:
            releases[order.client] = honest(
                next(each for each in asked if each.client == order.client)
            )
            if (order.client, number) not in failed:
                reply = honest(order)
                assert isinstance(reply, Update)
                last_model[order.client] = reply.weights
        odds, logits, part = (
            {},
            {},
            server.public.part(config.teachers.examples, number),
        )
        for client, weights in last_model.items():
            label = server.label_of(client)
            odds[client] = np.exp(
                embedding.teacher_weights(releases, CLIENTS).log_odds(client)
            )  # type: ignore[arg-type]
            logits[client] = teacher_logits(
                server.networks.trained[label], weights, server.public.distill
            )
        mean = (
            sum(odds[client][:, None] * logits[client] for client in odds)
            / sum(odds.values())[:, None]
        )  # type: ignore[index]
        labels.append(softmax(mean if part is None else mean[part], axis=1))
    return labels


CASES = {
    "two of four": STANDING,
    "on a part of D_distill": replace(
        STANDING, teachers=TeachersConfig(standing=True, examples=15)
    ),
    "two prototypes": replace(STANDING, prototypes=(MLP, WIDE)),
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_the_ensemble_has_everybodys_last_model(
    config: Config, distilled: list[np.ndarray], tmp_path: Path
) -> None:
    state, federation = finished(config, tmp_path, d=fails(TrainOrder, 3, 4))
    failed = {
        (failure.client, result.round)
        for result in state.history
        for failure in result.failures
    }
    assert failed == {("d", 3), ("d", 4)}  # its model of round 1 stands
    found = list(distilled)
    for one, other in zip(
        found, naive_soft_labels(config, federation.asked, failed), strict=True
    ):
        assert np.abs(one - other).max() < 1e-4
    assert set(state.last_round) == set(CLIENTS)
    assert state.history[-1].effective_teachers is not None


@pytest.mark.parametrize("method", ["fedaux", "feddf", "fedbe"])
def test_where_everybody_answers_nothing_changes_to_the_bit(
    method: str, tmp_path: Path
) -> None:
    whole = replace(CONFIG, method=method, rounds=3)
    plain, _ = finished(whole, tmp_path)
    standing, _ = finished(
        replace(whole, teachers=TeachersConfig(standing=True)), tmp_path
    )
    assert len(list((tmp_path / "teachers").iterdir())) == 3 * len(CLIENTS)
    for label, arrays in plain.weights.items():
        assert all(
            array.tobytes() == standing.weights[label][name].tobytes()
            for name, array in arrays.items()
        )


def test_teachers_that_stand_count_and_without_scores_count_alike(
    distilled: list[np.ndarray], tmp_path: Path
) -> None:
    config = replace(STANDING, method="feddf")
    state, _ = finished(config, tmp_path)
    known_entries = set[str]()
    for result in state.history:
        known_entries |= set(result.client_metrics)
        assert result.effective_teachers == pytest.approx(len(known_entries))
        assert len(result.client_metrics) == 2
    assert len(known_entries) == len(CLIENTS)


def test_a_model_sent_before_its_release_teaches_from_the_release_on(
    tmp_path: Path,
) -> None:
    def late(order: Order) -> Reply:
        """Its first release fails, and its second update."""
        tried.append(order)
        first = sum(isinstance(each, type(order)) for each in tried) == 1
        return (
            Failure(order.client, "no")
            if first == isinstance(order, PrepareOrder)
            else honest(order)
        )

    tried: list[Order] = []
    config = replace(CONFIG, rounds=2, teachers=TeachersConfig(standing=True))
    state, _ = finished(config, tmp_path, b=late)
    first, second = state.history
    assert "b" in first.client_metrics
    assert first.client_metrics["b"].teacher_share is None
    assert "b" not in second.client_metrics
    shares = [metrics.teacher_share for metrics in second.client_metrics.values()]
    assert None not in shares
    assert sum(shares) < 1 - 1e-6  # type: ignore[arg-type]


def test_an_update_that_makes_no_sense_leaves_the_last_model_a_teacher(
    tmp_path: Path,
) -> None:
    def spoilt(order: Order) -> Reply:
        reply = honest(order)
        if isinstance(reply, Update) and reply.round == 2:
            reply.weights["parameters"][3] = np.inf
        return reply

    config = replace(CONFIG, rounds=2, teachers=TeachersConfig(standing=True))
    spoilt_run, silent_run = (
        finished(config, tmp_path / name, b=answer)[0]
        for name, answer in (("spoilt", spoilt), ("silent", fails(TrainOrder, 2)))
    )
    (label,) = spoilt_run.weights
    assert spoilt_run.last_round["b"] == 1
    assert np.array_equal(
        *(each.weights[label]["parameters"] for each in (spoilt_run, silent_run))
    )


def test_files_that_count_are_kept_and_others_deleted(tmp_path: Path) -> None:
    standing, logits = (
        StandingTeachers.of_run(tmp_path),
        np.arange(6, dtype=np.float32).reshape(3, 2),
    )
    standing.keep({})
    for round_ in (1, 2):
        standing.save("a", round_, round_ * logits)
        standing.save("a.1", round_, logits)
    (standing.folder / ".a.2.npy.half-written").write_bytes(b"0")
    standing.keep({"a": 2, "a.1": 1})
    assert {path.name for path in standing.folder.iterdir()} == {"a.2.npy", "a.1.1.npy"}
    assert np.array_equal(standing.load("a", 2), 2 * logits)
    standing.path("a", 2).write_bytes(standing.path("a", 2).read_bytes()[:-9])
    for client, round_ in (("a", 2), ("b", 1)):
        with pytest.raises(StateError, match="Restore the folder teachers of the run"):
            standing.load(client, round_)
