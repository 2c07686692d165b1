"""The layer around the mechanism: which orders a site answers, what its sums agree on,
what an approval covers.

Each test is an attack that succeeded on an earlier version. The variants in which it
succeeds again, because one behaviour was replaced, are in `helpers.mutations`.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from fedaux import Config
from fedaux.audit.approvals import ESCAPE, own_approvals
from fedaux.audit.gate import own_gate
from fedaux.audit.own_site import OwnSite
from fedaux.audit.secure_sums import COPIES, SITES, SecureSites, flipped_sign, own_sums
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.audit.training import by_method, whole_network
from fedaux.cli import app
from fedaux.client.approvals import LOG, ApprovalLog
from fedaux.config.methods import METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sends import needed_by
from fedaux.core.failures import Refusal
from fedaux.deploy.certificates import generate_key_pair, site_fingerprint
from fedaux.deploy.layout import site_config
from fedaux.flower.federation import read_reply
from fedaux.messages import (
    Consent,
    Masked,
    PlanOrder,
    PrepareOrder,
    Release,
    SumOrder,
    SumReply,
    SumsOrder,
    TrainOrder,
    plan_of,
)
from fedaux.methods.summed_update import to_vector
from fedaux.privacy import curve25519
from fedaux.privacy.curve25519 import public_key
from fedaux.privacy.roster import load_signing_key
from fedaux.privacy.secure_sum import Keys, SecureSumError, SiteState, sum_settings
from fedaux.privacy.secure_sum import keys as session_keys
from fedaux.privacy.secure_sum.masks import keystream
from fedaux.privacy.secure_sum.shamir import SHARE, combine, lagrange_weights, split
from fedaux.privacy.secure_sum.site import survivors_signed
from fedaux.privacy.site_account import SiteAccount
from helpers.audited_sites import audited_site, write_rows
from helpers.mutations import find_mutation

SPEC = PrototypeSpec.of("mlp", hidden=4, features=4, norm="none")
NETWORK = {"name": "mlp", "hidden": 4, "features": 4, "norm": "none"}


def rows(folder: Path, count: int = 12) -> Path:
    rng = np.random.default_rng(0)
    return write_rows(
        folder, np.abs(rng.normal(size=(count, 4))), [0, 1] * (count // 2)
    )


def settings(method: str, **federation: object) -> Config:
    """The settings of a site with its own records, as the audit's synthetic sites get
    them.
    """
    return Config.from_dict(
        {
            "method": method,
            "prototypes": [NETWORK],
            "head_init": "random" if METHODS[method].sends == "models" else "auto",
            "data": {
                "source": "npy",
                "path": "/nowhere",
                "classes": ["a", "b"],
                "partition": "own",
            },
            "federation": {"sites": ["site"], **federation},
        }
    )


def own(config: Config) -> OwnSite:
    return OwnSite(config, ("a", "b"), (4,))


def training_orders(server: HostileServer) -> list[TrainOrder]:
    """Orders to train heads and whole networks, by every method."""
    head = server.train(np.zeros(10), lr=0.1)
    whole = whole_network(head, server)
    return [by_method(method, order) for method in METHODS for order in (head, whole)]


@pytest.mark.parametrize(
    "written_by_deploy", [False, True], ids=["by hand", "by deploy init"]
)
def test_a_site_for_the_private_head_trains_for_nobody(
    tmp_path: Path, written_by_deploy: bool
) -> None:
    """Its models would have no noise: eighty of them told eight records to seven
    digits.
    """
    data = rows(tmp_path / "data")
    site = audited_site(
        data,
        SPEC,
        method="private-head",
        privacy={"epsilon": 0.1, "scorer": "class-moments"},
    )
    if written_by_deploy:
        base = replace(
            site.config, federation=replace(site.config.federation, sends=())
        )
        written = site_config(base, "site")
        site = replace(
            site, config=replace(written, data=replace(written.data, path=str(data)))
        )
    assert site.config.federation.sends == ("noisy sums",)
    server = HostileServer.against(site, (4,), 2)
    orders = training_orders(server)
    assert len(orders) == 2 * len(METHODS)
    reasons = {site.send(order).error.reason for order in orders}
    assert reasons == {Refusal.ORDER}
    assert SiteAccount.read(site.vault, 1e-5).entries == ()
    release = site.release(server.prepare(server.map(column=np.eye(4)[0])))
    assert json.loads(release.account)["epsilon"] == pytest.approx(0.1, rel=1e-5)


def test_a_method_without_scores_releases_nothing(tmp_path: Path) -> None:
    site = audited_site(rows(tmp_path / "data"), SPEC, method="feddf+p")
    server = HostileServer.against(site, (4,), 2)
    reply = site.send(server.prepare(server.map(column=np.eye(4)[0])))
    assert reply.error.reason == Refusal.ORDER
    assert SiteAccount.read(site.vault, 1e-5).entries == ()


def test_a_site_that_does_not_say_what_may_leave_answers_nothing(
    tmp_path: Path,
) -> None:
    site = audited_site(rows(tmp_path / "data"), SPEC)
    silent = replace(site.config, federation=replace(site.config.federation, sends=()))
    site = replace(site, config=silent)
    server = HostileServer.against(site, (4,), 2)
    orders = [
        server.prepare(server.map()),
        *training_orders(server),
        *map(server.sums, ("class-sums", "moments")),
    ]
    assert {site.send(order).error.reason for order in orders} == {Refusal.SETTINGS}


@pytest.mark.parametrize(
    "method", ["private-head", "ridge", "fedavg", "fedaux", "feddf+p", "class-means"]
)
def test_no_order_tells_what_the_owner_does_not_list(
    tmp_path: Path, method: str
) -> None:
    config = settings(method)
    sends = config.federation.sends or needed_by(config)
    config = replace(config, federation=replace(config.federation, sends=sends))
    result = own_gate(own(config), tmp_path)
    assert not result.violated, result.detail
    answered = int(result.detail.partition("orders ")[2].split()[0])
    assert answered > 0, result.detail


@pytest.mark.parametrize("method", ["private-head", "ridge", "fedavg"])
def test_sites_of_one_sum_are_asked_the_same_and_have_keys_of_their_own(
    tmp_path: Path, method: str
) -> None:
    """Asked different things, the others' answers are known, and the sum is the vector
    of one site.
    """
    result = own_sums(own(settings(method, secure=True)), tmp_path)
    assert not result.violated, result.detail
    assert "are refused" in result.detail


@pytest.mark.parametrize("method", ["private-head", "ridge", "fedavg"])
def test_honest_sums_are_answered(tmp_path: Path, method: str) -> None:
    """What refuses the attacks refuses no honest sum."""
    sites = SecureSites.at(own(settings(method, secure=True)), tmp_path)
    for order in sites.orders():
        assert sites.accepts_unequal(order, order, same_terms=True)


@pytest.mark.parametrize("how", COPIES)
def test_a_copied_key_that_were_taken_would_give_other_masks(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second line of defence: without any check of keys, the masks of a copied key
    do not cancel.
    """
    monkeypatch.setattr(session_keys, "check_possession", lambda *_: None)
    monkeypatch.setattr(session_keys, "check_encoding", lambda *_: None)
    monkeypatch.setattr(curve25519, "has_full_order", lambda _: True)
    sites = SecureSites.at(own(settings("ridge", secure=True)), tmp_path)
    truth, alone = opened_alone(sites, how)
    assert not np.array_equal(alone, truth)


def opened_alone(sites: SecureSites, how: str) -> tuple[np.ndarray, np.ndarray]:
    """The exact sums of bern, and what the server and cairo compute of them with a copy
    of athens' mask key.
    """
    (order,) = (
        order
        for order in sites.orders()
        if isinstance(order, SumsOrder) and order.sends == "moments"
    )
    terms = sites.terms(order)
    text = terms.to_json()
    agreed = sum_settings(terms, sites.roster)
    athens, bern, cairo = SITES

    def ask(name: str, step: str, arrays: dict[str, bytes]) -> dict[str, bytes]:
        sent = {key: np.frombuffer(value, np.uint8) for key, value in arrays.items()}
        answer = sites.ask(SumOrder(name, text, step, sent))
        assert answer is not None, (name, step)
        return answer

    keys = {}
    for name in (athens, bern):
        answer = sites.ask(replace(order, client=name, sum=text))
        assert answer is not None
        keys[name] = answer[name]
    share_key = secrets.token_bytes(32)
    copied = COPIES[how](Keys.from_bytes(athens, keys[athens]).mask_key)
    signing_key = load_signing_key(sites.sites[cairo].vault)
    unsigned = Keys(cairo, copied, public_key(share_key), bytes(64), bytes(64), b"")
    forged = replace(unsigned, signature=signing_key.sign(unsigned.signed(agreed)))
    if how == "as it is":  # equal bytes are refused in any case
        forged = replace(forged, mask_key=flipped_sign(copied))
        forged = replace(forged, signature=signing_key.sign(forged.signed(agreed)))
    keys[cairo] = forged.to_bytes()
    shares = {name: ask(name, "shares", keys) for name in (athens, bern)}
    parsed = {name: Keys.from_bytes(name, content) for name, content in keys.items()}
    helper = SiteState(
        agreed,
        cairo,
        secrets.token_bytes(32),
        share_key,
        secrets.token_bytes(32),
        keys=parsed,
    )
    points = {name: agreed.position(name) for name in SITES}
    junk = [split(secrets.token_bytes(32), agreed.threshold, points) for _ in range(2)]
    shares[cairo] = {
        name: helper._seal(name, junk[0][name] + junk[1][name])
        for name in (athens, bern)
    }
    masked = {}
    for name in (athens, bern):
        sealed = {
            other: np.frombuffer(shares[other][name], np.uint8)
            for other in SITES
            if other != name
        }
        reply = sites.sites[name].send(SumOrder(name, text, "masked", sealed))
        assert not reply.has_error()
        masked[name] = read_reply(Masked, reply).arrays["masked"]
    survivors = dict.fromkeys(SITES, b"")
    signatures = {
        name: ask(name, "survivors", survivors)[name] for name in (athens, bern)
    }
    signatures[cairo] = signing_key.sign(survivors_signed(agreed, parsed, tuple(SITES)))
    opened = {name: ask(name, "unmask", signatures) for name in (athens, bern)}
    own_share = helper._open(bern, shares[bern][cairo])[SHARE:]
    weights = lagrange_weights([points[name] for name in SITES])
    seed = combine(
        [opened[athens]["seed bern"], opened[bern]["seed bern"], own_share], weights
    )
    alone = (masked[bern] - keystream(seed, terms.length)).view(np.int64)
    plain = replace(sites.sites[bern].config.federation, secure=False)
    honest = replace(
        sites.sites[bern], config=replace(sites.sites[bern].config, federation=plain)
    )
    from fedaux.messages import Sums

    truth = to_vector(read_reply(Sums, honest.send(replace(order, client=bern))).arrays)
    return truth, alone


@pytest.mark.parametrize("method", ["private-head", "ridge"])
def test_one_approval_answers_what_the_plan_says(tmp_path: Path, method: str) -> None:
    """One approval once answered 81 different sums, from which every age could be
    read.
    """
    result = own_approvals(own(settings(method, approval="ask")), tmp_path)
    assert not result.violated, result.detail


def asking_site(
    folder: Path, method: str, standing: tuple[str, ...] = (), **more: object
) -> AuditedSite:
    federation = {"sites": ["site"], "approval": "ask", "standing": list(standing)}
    return audited_site(
        rows(folder / "data"),
        SPEC,
        method=method,
        head_only=True,
        federation=federation,
        **more,
    )


def test_of_81_sums_one_is_answered(tmp_path: Path) -> None:
    """With random features, every other standardisation is another exact statistic."""
    site = asking_site(tmp_path, "ridge", random_features=8)
    server = HostileServer.against(site, (4,), 2)

    def order(mean: float) -> SumsOrder:
        statistics = {
            "mean": np.full(4, mean, np.float32),
            "deviation": np.ones(4, np.float32),
        }
        return replace(server.sums("class-sums"), standardisation=statistics)

    honest = order(0.0)
    plan = plan_of("run", "ridge", 1, False, [honest])
    assert (
        read_reply(Consent, site.send(PlanOrder("site", plan.to_json()))).decision
        == "pending"
    )
    log = ApprovalLog(site.vault)
    log.decide(plan.hash, "approved", "owner")
    answered = [
        not site.send(replace(order(mean), plan=plan.hash)).has_error()
        for mean in np.linspace(0, 1, 81)
    ]
    assert answered == [True] + 80 * [False]
    # the same question again
    assert not site.send(replace(honest, plan=plan.hash)).has_error()
    lines = [entry for entry in log.entries() if entry.event == "answered"]
    assert len({entry.facts["order"] for entry in lines}) == 1
    assert all(len(entry.facts["order"]) == 64 for entry in lines)


def test_a_standing_rule_for_releases_approves_no_training(tmp_path: Path) -> None:
    """Proposals once had 64 bits, and were written down before they were valid: a
    collision took 44 minutes.
    """
    site = asking_site(tmp_path, "fedaux", standing=("noisy sums",), head_init="random")
    server = HostileServer.against(site, (4,), 2)
    release = server.prepare(server.map(column=np.eye(4)[0]))
    training = server.train(np.zeros(10), lr=0.1)
    both = plan_of("run", "fedaux", 1, False, [release, training])
    assert len(both.hash) == 64
    assert (
        read_reply(Consent, site.send(PlanOrder("site", both.to_json()))).decision
        == "pending"
    )
    alone = plan_of("run", "fedaux", 1, False, [release])
    assert (
        read_reply(Consent, site.send(PlanOrder("site", alone.to_json()))).decision
        == "approved"
    )
    assert site.send(replace(training, plan=alone.hash)).error.reason == Refusal.ORDER
    assert site.send(replace(training, plan=both.hash)).error.reason == Refusal.APPROVAL
    assert read_reply(Release, site.send(replace(release, plan=alone.hash))).epsilon > 0


def test_an_order_that_is_not_valid_is_not_written_down(tmp_path: Path) -> None:
    site = asking_site(tmp_path, "fedaux", head_init="random")
    server = HostileServer.against(site, (4,), 2)
    release = replace(server.prepare(server.map()), prototype="fe093ed0209ef6d4")
    assert site.send(release).error.reason == Refusal.ORDER
    assert not (site.vault / LOG).exists()


def test_a_plan_has_as_many_orders_as_it_says(tmp_path: Path) -> None:
    site = asking_site(tmp_path, "fedavg", head_init="random")
    server = HostileServer.against(site, (4,), 2)
    order = server.train(np.zeros(10), lr=0.1)
    plan = plan_of("run", "fedavg", 1, False, [order])
    at_most = plan.asks[0].at_most
    site.send(PlanOrder("site", plan.to_json()))
    ApprovalLog(site.vault).decide(plan.hash, "approved", "owner")
    # other rounds and other seeds are other orders: each gets another model
    changes = [{"round": number} for number in range(1, 4)] + [
        {"seed": number} for number in range(1, at_most)
    ]
    replies = [
        site.send(replace(order, plan=plan.hash, **change)) for change in changes
    ]
    assert [reply.has_error() for reply in replies] == [False] * at_most + [True] * 2
    again = site.send(replace(order, plan=plan.hash, **changes[0]))
    assert not again.has_error()  # an order that was answered
    assert {reply.error.reason for reply in replies[at_most:]} == {Refusal.APPROVAL}


def test_the_owner_s_screen_shows_what_is_approved(tmp_path: Path) -> None:
    """Cursor sequences in a run's name once rewrote the line that says what leaves."""
    site = asking_site(tmp_path, "fedavg", head_init="random")
    server = HostileServer.against(site, (4,), 2)
    order = server.train(np.zeros(10), lr=0.1)
    hidden = plan_of(ESCAPE, "fedavg", 1, False, [order])
    assert site.send(PlanOrder("site", hidden.to_json())).error.reason == Refusal.ORDER
    assert not (site.vault / LOG).exists()
    honest = plan_of("run", "fedavg", 1, False, [order])
    site.send(PlanOrder("site", honest.to_json()))
    (site.folder / "site.env").write_text(
        "NAME=site\nSERVER=localhost:1\n", encoding="utf-8"
    )
    shown = CliRunner().invoke(app, ["site", "pending", "--site", str(site.folder)])
    assert shown.exit_code == 0
    assert "models WITHOUT noise" in shown.output
    assert "at most 6 orders to train" in shown.output
    assert all(letter.isprintable() or letter == "\n" for letter in shown.output)


def test_an_order_cannot_fill_the_memory_of_a_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One order once asked a site whose own number of random features is zero for 74.5
    GiB.
    """
    site = audited_site(rows(tmp_path / "data"), SPEC, method="ridge", head_only=True)
    server = HostileServer.against(site, (4,), 2)
    order = replace(server.sums("moments"), random_features=100_000, width=100_000)
    assert site.send(order).error.reason == Refusal.ORDER
    assert "random_features = 0" in caplog.text
    assert "allocate" not in caplog.text


def test_both_keys_of_a_site_are_replaced_and_named_together(tmp_path: Path) -> None:
    before = generate_key_pair(tmp_path).read_bytes()
    after = generate_key_pair(tmp_path, replace=True).read_bytes()
    sum_keys = [content.split(b"sum=")[1] for content in (before, after)]
    assert sum_keys[0] != sum_keys[1]
    forged = after.replace(sum_keys[1], sum_keys[0])
    assert site_fingerprint(forged) != site_fingerprint(after)
    assert len(site_fingerprint(after)) == len("SHA256:") + 43  # 256 bits


@pytest.mark.parametrize(
    ("name", "attack", "method"),
    [
        ("layer.owners_settings_allow_everything", "gate", "private-head"),
        ("layer.sites_of_a_sum_compare_no_orders", "sums", "private-head"),
        ("layer.keys_may_be_copied", "sums", "ridge"),
        ("layer.plan_fixes_only_kinds", "approvals", "private-head"),
        ("layer.plan_fixes_only_kinds", "approvals", "fedavg"),
    ],
)
def test_the_owners_audit_finds_what_is_taken_out(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    attack: str,
    method: str,
) -> None:
    find_mutation(name)(monkeypatch)
    approval = "ask" if attack == "approvals" else "none"
    config = settings(method, secure=attack == "sums", approval=approval)
    federation = replace(config.federation, sends=needed_by(config))
    attacks = {"gate": own_gate, "sums": own_sums, "approvals": own_approvals}
    result = attacks[attack](own(replace(config, federation=federation)), tmp_path)
    assert result.violated, name


def test_signing_with_another_key_is_no_proof_of_possession() -> None:
    key = Ed25519PrivateKey.generate()
    other = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    session_keys.check_possession("a", public, key.sign(b"message"), b"message")
    for proof in (other.sign(b"message"), key.sign(b"another")):
        with pytest.raises(SecureSumError, match="does not prove"):
            session_keys.check_possession("a", public, proof, b"message")


def test_the_kinds_of_this_page_are_those_that_exist() -> None:
    """A new kind of order needs a row in the gate, and an attack here."""
    from fedaux.client.gate import _GATES
    from fedaux.client.handlers import _HANDLERS
    from fedaux.messages import ORDERS

    assert set(_GATES) == set(_HANDLERS) == set(ORDERS)
    assert {PrepareOrder, SumsOrder, TrainOrder, SumOrder, PlanOrder} < set(ORDERS)
    assert SumReply not in ORDERS
