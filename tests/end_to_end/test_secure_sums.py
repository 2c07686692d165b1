"""federation.secure: the server sees sums over the sites alone, and the run is the same to the bit."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from fedaux import Config, Result, run
from fedaux.client.loading import open_rows
from fedaux.client.site import Site
from fedaux.config.distillation import DistillConfig, TeachersConfig
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sections import DataConfig, FederationConfig, LocalConfig, PretrainConfig, PrivacyConfig
from fedaux.core.messages import NO_ANSWER, Failure, Federation, Masked, Order, Reply, SumOrder, SumReply
from fedaux.privacy.account import SiteAccount, read_account
from fedaux.privacy.mechanism import noise_scale
from fedaux.runs.runner import in_process
from fedaux.scoring.base import bound_function
from fedaux.server.loop import QuorumError
from fedaux.server.loop import run as run_rounds
from fedaux.server.orders import AccountCounts
from fedaux.server.run_state import RunState, RunWriter
from fedaux.server.server import make_server

SITES = 6
MLP = PrototypeSpec.of("mlp", hidden=16, features=8)
CONFIG = Config(
    rounds=2,
    prototypes=(MLP,),
    data=DataConfig(clients=SITES, alpha=0.3),
    pretrain=PretrainConfig(epochs=0),
    local=LocalConfig(lr=5e-3),
    distill=DistillConfig(lr=1e-3),
    privacy=PrivacyConfig(epsilon=1.0, embedding_dim=8, unsafe_seed=3),
)
AT_CLIENTS = TeachersConfig(run_on="clients")
SGD = LocalConfig(optimizer="sgd", lr=0.05)
CASES = {
    "ridge": replace(CONFIG, method="ridge+p", rounds=1),
    "discriminant": replace(CONFIG, method="discriminant", rounds=1),
    "class-means": replace(CONFIG, method="class-means", rounds=1),
    "ridge start": replace(CONFIG, method="fedavg+p", head_init="ridge", head_only=True),
    "fedavg": replace(CONFIG, method="fedavg"),
    "scaffold": replace(CONFIG, method="scaffold", local=SGD),
    "fednova": replace(CONFIG, method="fednova", local=SGD),
    "feddf": replace(CONFIG, method="feddf", teachers=AT_CLIENTS),
    "fedet": replace(CONFIG, method="fedet", teachers=AT_CLIENTS),
    "fedbe": replace(CONFIG, method="fedbe", teachers=AT_CLIENTS),
    "BatchNorm": replace(CONFIG, method="fedavg", prototypes=(PrototypeSpec.of("cnn", width=4, norm="batch"),)),
    "two networks": replace(CONFIG, method="feddf", teachers=AT_CLIENTS, prototypes=(MLP, PrototypeSpec.of("mlp"))),
}


def secure(config: Config, **changes: Any) -> Config:
    return replace(config, federation=FederationConfig(secure=True, **changes))


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_the_run_is_that_of_a_server_that_sees_everything(config: Config, tmp_path: Path) -> None:
    plain, masked = (run(each, tmp_path / name) for name, each in (("plain", config), ("secure", secure(config))))
    for label, arrays in plain.state.weights.items():
        for name in set(arrays) - {"counters"}:  # which are a maximum, and not summed
            assert np.array_equal(arrays[name], masked.state.weights[label][name]), name
    for label, arrays in plain.state.sums.items():
        assert all(np.array_equal(array, masked.state.sums[label][name]) for name, array in arrays.items())
    assert plain.curve == masked.curve
    assert not any(result.failures for result in masked.state.history)


@pytest.fixture(scope="module")
def private_head(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("private")
    config = replace(CONFIG, method="private-head", rounds=1, privacy=replace(CONFIG.privacy, unsafe_seed=-1))
    return run(secure(config, colluders=2), folder / "run"), folder / "run"


def test_the_releases_are_summed_with_the_noise_of_one(private_head: tuple[Result, Path]) -> None:
    """5 of 6 sites answer at least and 2 of them may be the server's, so 3 shares of noise make one."""
    result, folder = private_head
    (pooled,) = result.state.pooled.values()
    stored = [json.loads(path.read_text()) for path in folder.glob("clients/*/release-*.json")]
    assert len(stored) == SITES
    assert np.array_equal(pooled.arrays["values"], np.sum([one["values"] for one in stored], axis=0))
    whole = noise_scale(len(pooled.arrays["values"]), pooled.sensitivity, result.config.privacy)
    assert [one["scale"] for one in stored] == [pytest.approx(whole / np.sqrt(3))] * SITES
    assert pooled.scale == pytest.approx(whole * np.sqrt(SITES / 3))
    assert not result.state.releases
    for client in result.state.summed:
        _, entries = read_account(folder / "clients" / client)
        assert [entry.noise for entry in entries if entry.steps] == [
            pytest.approx(whole / pooled.sensitivity * 2, rel=1e-6)
        ]


def test_the_statement_names_the_assumption(private_head: tuple[Result, Path]) -> None:
    text = str(private_head[0].state.ledger.statement())
    assert "as a secure sum, against the server and up to 2 of 6 sites together" in text
    assert "sizes" not in text
    own = SiteAccount.read(private_head[1] / "clients" / "client-000", 1e-5).statement()
    assert "Of these, 1 went into secure sums" in own
    crosses = {row["what"]: row["protection"] for row in private_head[0].state.ledger.to_dict()["crosses"]}
    assert crosses["releases, sums of features, or models with their sizes and losses"].endswith("in sums over sites")


def test_a_run_with_secure_sums_is_read_back(private_head: tuple[Result, Path]) -> None:
    state, again = private_head[0].state, RunState.load(private_head[1])
    assert again.summed == state.summed
    assert {label: one.arrays["values"].tolist() for label, one in again.pooled.items()} == {
        label: one.arrays["values"].tolist() for label, one in state.pooled.items()
    }


def test_fedaux_weights_itself_where_nobody_sees_a_client(tmp_path: Path) -> None:
    """The teachers' weights are those of the pooled release and a client's own classes: better than equal ones."""
    config = replace(CONFIG, head_init="private-head", teachers=AT_CLIENTS, rounds=3)
    config = replace(config, data=replace(config.data, alpha=0.05), distill=DistillConfig(lr=0.02, epochs=5))
    weighted = run(secure(config), tmp_path / "fedaux")
    equal = run(secure(replace(config, method="feddf+p")), tmp_path / "feddf")
    assert weighted.state.history[-1].effective_teachers is not None
    assert weighted.state.history[-1].effective_teachers < 4 < equal.state.history[-1].effective_teachers
    assert weighted.curve[-1] > equal.curve[-1]


@dataclass
class Faulty:
    """A federation some of whose sites do not answer some steps, or whose server is killed before one."""

    federation: Federation
    lost: dict[str, Sequence[str]]  # by step
    killed_before: str = ""

    def ask(self, orders: Sequence[Order]) -> Iterator[Reply]:
        step = orders[0].step if isinstance(orders[0], SumOrder) else "masked" if orders[0].sum else ""
        if self.killed_before and step == self.killed_before:
            raise KeyboardInterrupt
        lost = self.lost.get(step, ())
        for reply in self.federation.ask(orders):
            if isinstance(reply, SumReply | Masked) and reply.client in lost:
                yield Failure(reply.client, "lost", NO_ANSWER)
            else:
                yield reply


def rounds(config: Config, folder: Path, lost: dict[str, Sequence[str]], killed_before: str = "") -> RunState:
    saved = RunState.load(folder) if (folder / "state.safetensors").exists() else None
    server = make_server(config, cache=folder.parent / "cache", state=saved).in_folder(folder)
    federation = in_process(config, folder, server.cache, bound_function(server.scorer))
    folder.mkdir(exist_ok=True)
    return run_rounds(server, Faulty(federation, lost, killed_before), saved, RunWriter(folder, saved).save)


STEPS = ("keys", "shares", "masked", "survivors", "unmask")


@pytest.mark.parametrize("step", STEPS)
def test_the_sum_is_that_of_the_survivors_and_below_the_threshold_there_is_none(step: str, tmp_path: Path) -> None:
    config = secure(replace(CONFIG, method="ridge", rounds=1))
    state = rounds(config, tmp_path / "one", {step: ["client-002"]})
    expected = [f"client-{n:03}" for n in range(SITES) if n != 2 or step in ("survivors", "unmask")]
    assert sorted(state.sums_received) == expected
    plain = run(replace(config, federation=FederationConfig()), tmp_path / "plain").state
    whole = json.dumps([array.tolist() for array in plain.sums[MLP.label].values()])
    found = json.dumps([array.tolist() for array in state.sums[MLP.label].values()])
    assert (found == whole) == (len(expected) == SITES)
    with pytest.raises(QuorumError, match="the secure sum was given up"):
        rounds(config, tmp_path / "two", {step: ["client-002", "client-004"]})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("method", ["private-head", "fedavg"])
def test_a_server_that_was_killed_goes_on_with_the_same_sum(step: str, method: str, tmp_path: Path) -> None:
    """Whatever step it was killed before, and whoever comes back meanwhile: sites pay once, and the result is there."""
    config = secure(replace(CONFIG, method=method, rounds=1))
    with pytest.raises(KeyboardInterrupt):
        rounds(config, tmp_path / "run", {"shares": ["client-001"]}, killed_before=step)
    state = rounds(config, tmp_path / "run", {})
    there = state.summed if method == "private-head" else set(state.history[-1].client_metrics)
    assert len(there) == (SITES if step in ("keys", "shares") else SITES - 1)
    for client in there if method == "private-head" else ():
        _, entries = read_account(tmp_path / "run" / "clients" / client)
        assert sum(entry.steps > 0 for entry in entries) == 1


class Times(dict[str, Sequence[str]]):
    """Sites that are lost in the first exchanges of a step, as often as `times` says."""

    times = 1

    def get(self, step: str, default: Any = None) -> Any:
        lost = super().get(step, default)
        self.times -= bool(lost)
        return lost if self.times >= 0 else default


@pytest.mark.parametrize(("times", "entries"), [(1, 1), (2, 2)])
def test_a_sum_is_tried_again_and_another_sum_is_paid_for(times: int, entries: int, tmp_path: Path) -> None:
    """Sites that come back answer as before; those of another sum enter another release."""
    config, lost = (
        secure(replace(CONFIG, method="private-head", rounds=1)),
        Times(survivors=["client-000", "client-001"]),
    )
    lost.times = times
    if entries == 2:
        with pytest.raises(QuorumError, match="privacy budget does not allow"):
            rounds(config, tmp_path / "poor", lost)
    config, lost.times = replace(config, privacy=replace(config.privacy, epsilon_total=2.0)), times
    state = rounds(config, tmp_path / "run", lost)
    assert len(state.summed) == SITES
    assert {state.accounts[client].entries for client in state.summed} == {entries}


def test_a_site_with_an_old_copy_of_its_vault_takes_no_part(tmp_path: Path) -> None:
    """It would draw other noise for what it has sent; the server shows the count that the site has signed."""
    config, folder = secure(replace(CONFIG, method="private-head", rounds=1)), tmp_path / "run"
    config = replace(config, privacy=replace(config.privacy, epsilon_total=3.0))
    first = rounds(config, folder, {})
    known = AccountCounts(tmp_path / "accounts.json")
    known.update(first.accounts)
    (folder / "state.safetensors").unlink()
    vault = folder / "clients" / "client-000"
    for path in [vault / "account.jsonl", *vault.glob("release-*"), *vault.glob("sums/*")]:
        path.unlink()  # a copy from before the run, with its key
    server = make_server(replace(config, seed=1), cache=tmp_path / "cache").in_folder(folder)
    server = server.with_accounts(tmp_path / "accounts.json")
    federation = in_process(server.config, folder, server.cache, bound_function(server.scorer))
    state = run_rounds(server, federation, None, RunWriter(folder).save)
    assert sorted(state.summed) == [f"client-{n:03}" for n in range(1, SITES)]
    reasons = {failure.client: failure.reason for failure in state.history[-1].failures}
    assert "privacy budget does not allow" in reasons["client-000"]


def test_what_cannot_be_summed_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"teachers\.run_on = 'clients'"):
        secure(replace(CONFIG, method="feddf"))
    with pytest.raises(ValueError, match="no secure sum of them"):
        secure(replace(CONFIG, method="fedpft"))
    with pytest.raises(ValueError, match="threshold above 2/3"):
        secure(CONFIG, threshold=0.5)


def test_private_training_in_secure_sums_keeps_one_budget(tmp_path: Path) -> None:
    """The release and each round's gradients, all summed with shared noise, cost what the owner allows in all."""
    privacy = replace(CONFIG.privacy, unsafe_seed=-1, epsilon_total=2.0, private_training=True)
    local = LocalConfig(optimizer="sgd", lr=1.0)
    config = replace(CONFIG, method="fedavg+p", head_only=True, head_init="private-head", rounds=3, local=local)
    result = run(secure(replace(config, privacy=privacy)), tmp_path / "run")
    assert result.curve[-1] > 0.3
    for client in result.state.summed:
        _, entries = read_account(tmp_path / "run" / "clients" / client)
        assert [entry.trains for entry in entries if entry.steps] == [False, True, True, True]
        assert 1.99 < result.state.accounts[client].epsilon <= 2.0
    assert "noisy sums and the local models of this run are together (2, 1e-05)" in result.state.ledger.statement()
    with pytest.raises(QuorumError, match="privacy budget does not allow"):
        run(secure(replace(config, privacy=privacy, rounds=4)), tmp_path / "run")


def test_a_step_of_private_training_goes_down_the_clipped_gradients_of_all_records(tmp_path: Path) -> None:
    """Hardly any noise: the head moves as the oracle says, the gradients of softmax regression record by record."""
    privacy = replace(CONFIG.privacy, epsilon=400.0, epsilon_total=900.0, private_training=True, unsafe_seed=1)
    local = LocalConfig(optimizer="sgd", lr=0.7)
    config = replace(CONFIG, method="fedavg+p", head_only=True, head_init="private-head", local=local, privacy=privacy)
    states = {rounds: run(secure(replace(config, rounds=rounds)), tmp_path / str(rounds)).state for rounds in (1, 2)}
    before, after = (states[rounds].weights[MLP.label]["parameters"].astype(np.float64) for rounds in (1, 2))
    site = Site(config, tmp_path / "1" / "clients", tuple(sorted(states[1].summed)))
    total, count = np.zeros_like(before), 0
    server = make_server(config, cache=tmp_path / "cache", state=states[1])
    server.restore(states[1])
    for client in site.clients:
        order = server.orders.train(replace(states[1], prepared=frozenset()), client)
        model, records = open_rows(order, site)
        psi = model.features(torch.from_numpy(records.gather())).double().numpy()
        head = before.reshape(-1)[:-10].reshape(10, -1), before.reshape(-1)[-10:]
        p = softmax(psi @ head[0].T + head[1], axis=1) - np.eye(10)[records.labels]
        rows = np.concatenate([(p[:, :, None] * psi[:, None, :]).reshape(len(p), -1), p], axis=1)
        total += (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)).sum(axis=0)
        count += len(p)
    moved, expected = after - before, -0.7 * total / count
    assert np.linalg.norm(moved - expected) < 0.05 * np.linalg.norm(expected)
