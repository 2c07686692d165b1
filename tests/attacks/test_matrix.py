"""Every method, every kind of order, every setting: refused, or disclosed by the
statement and entered in the account.

The cells are counted, and the counts are in docs/attacks.md: a new method or a new
setting changes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fedaux import Config
from fedaux.audit.gate import undisclosed
from fedaux.audit.looks import look_order
from fedaux.audit.site import AuditedSite, HostileServer
from fedaux.audit.training import broadcast_of
from fedaux.client.gate import admit
from fedaux.client.site import Site
from fedaux.config.methods import METHODS
from fedaux.config.parsing import ConfigError
from fedaux.config.sends import MEANINGS, needed_by
from fedaux.core.errors import SettingsError
from fedaux.core.failures import OrderError
from fedaux.flower.federation import read_reply
from fedaux.messages import (
    ORDERS,
    DataOrder,
    HelloOrder,
    Order,
    PlanOrder,
    SumOrder,
    SumTerms,
    answer_type,
    identity,
    plan_of,
)
from fedaux.privacy.ledger import disclosed_by, disclosures
from helpers.audited_sites import write_rows

SENDS = [(), *((word,) for word in MEANINGS), tuple(MEANINGS)]  # what an owner may list
SECURE = [False, True]
PRIVATE = [False, True]
CELLS = Counter(refused=8_212, admitted=1_508)  # also in docs/attacks.md


@dataclass(frozen=True)
class Setting:
    """The settings of one site."""

    method: str
    sends: tuple[str, ...]
    secure: bool
    private_training: bool

    def config(self, data: Path) -> Config | None:
        """The settings as a configuration; None if they contradict each other."""
        privacy: dict[str, object] = {"epsilon": 1.0, "look_epsilon": 1.0}
        if self.private_training:
            privacy |= {"private_training": True, "epsilon_total": 3.0}
        try:
            return Config.from_dict(
                {
                    "method": self.method,
                    "head_only": True,
                    "prototypes": [
                        {"name": "mlp", "hidden": 4, "features": 4, "norm": "none"}
                    ],
                    "data": {
                        "source": "npy",
                        "path": str(data),
                        "partition": "own",
                        # no look is left beside private training
                        "site_test_fraction": 0.0 if self.private_training else 0.5,
                    },
                    "teachers": {"run_on": "clients" if self.secure else "server"},
                    "aux": {"source": "npy", "path": str(data)},
                    "local": {"epochs": 1},
                    "privacy": privacy,
                    "federation": {
                        "sites": ["site"],
                        "sends": list(self.sends),
                        "secure": self.secure,
                    },
                }
            )
        except ConfigError:
            return None


def every_setting() -> Iterator[Setting]:
    for method in METHODS:
        for sends in SENDS:
            for secure in SECURE:
                for private in PRIVATE:
                    yield Setting(method, sends, secure, private)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    return write_rows(
        tmp_path_factory.mktemp("matrix") / "data",
        np.abs(rng.normal(size=(8, 4))),
        [0, 1] * 4,
    )


@cache
def server_for(config: Config) -> HostileServer:
    site = AuditedSite(Path("/nowhere"), config)
    return HostileServer.against(site, (4,), 2)


def every_order(config: Config) -> Iterator[tuple[str, Order | HelloOrder]]:
    """One order of each kind, as a server that knows the settings would send it: alone,
    and in a secure sum.
    """
    server = server_for(config)
    release = server.prepare(server.map(column=np.eye(4)[0]))
    training = server.train(np.zeros(10), lr=0.1)
    training = replace(training, broadcast=broadcast_of(training.method, training))
    data_orders: list[tuple[str, DataOrder]] = [("release", release)]
    data_orders += [(sends, server.sums(sends)) for sends in ("class-sums", "moments")]
    data_orders.append(("training", training))
    data_orders.append(
        ("training by another method", replace(training, method=another(config.method)))
    )
    data_orders.append(("look", look_order(server)))
    terms = SumTerms("run", identity(release), 0, ["site", "b", "c"], 3, 1, 0.0, 10)
    yield "hello", HelloOrder()
    yield (
        "plan",
        PlanOrder(
            "site",
            plan_of(
                "run", config.method, 1, config.federation.secure, [release]
            ).to_json(),
        ),
    )
    for name, order in data_orders:
        yield name, order
        yield f"{name} in a secure sum", replace(order, sum=terms.to_json())
    yield "a step of a secure sum", SumOrder("site", terms.to_json(), "shares")


def another(method: str) -> str:
    return "fedavg" if method != "fedavg" else "fedprox"


def test_the_orders_here_are_of_every_kind(data: Path) -> None:
    config = Setting("fedaux", (), False, False).config(data)
    assert config is not None
    assert {type(order) for _, order in every_order(config)} == set(ORDERS)


def test_every_cell_is_refused_or_disclosed_and_entered(
    data: Path, tmp_path: Path
) -> None:
    cells: Counter[str] = Counter()
    impossible = 0
    for number, setting in enumerate(every_setting()):
        config = setting.config(data)
        if config is None:
            impossible += 1
            continue
        site = Site(config, tmp_path / str(number), ("site",))
        for name, order in every_order(config):
            try:
                admit(order, site)
            except (OrderError, SettingsError):
                cells["refused"] += 1
                continue
            cells["admitted"] += 1
            check_admitted(name, order, config, tmp_path / str(number))
    assert cells == CELLS, (
        f"{dict(cells)}, and {impossible} settings that contradict themselves"
    )


def check_admitted(
    name: str, order: Order | HelloOrder, config: Config, folder: Path
) -> None:
    """An order that passes the gate tells only what the owner lists and the statement
    has, and noise is entered.
    """
    sends = config.federation.sends
    if isinstance(order, HelloOrder | PlanOrder):
        return
    assert sends or isinstance(order, SumOrder), (
        f"{name} is admitted though nothing may leave"
    )
    private = config.privacy.private_training
    listed = {
        what
        for what, _ in disclosures(
            private, sums=True, secure=config.federation.secure, looks=True
        )
    }
    expected = {item.what for item in disclosed_by(answer_type(order))}
    assert expected <= listed, f"{name} tells what the statement does not have"
    if isinstance(order, SumOrder) or order.sum:
        assert config.federation.secure
        return
    assert not config.federation.secure
    site = AuditedSite(folder, config)
    reply = site.send(order)
    if reply.has_error():  # sums of a method whose head is another one, for example
        return
    problem = undisclosed(read_reply(answer_type(order), reply), order, site, sends)
    assert not problem, f"{name} with {config.method}: {problem}"


def test_what_a_method_needs_is_what_the_statement_calls_private(data: Path) -> None:
    """Deploy writes `sends` from the method: with it, the method's own orders pass, and
    no word is missing.
    """
    for method in METHODS:
        config = Setting(method, (), False, False).config(data)
        if config is None:
            continue
        words = needed_by(config)
        assert words
        assert set(words) <= set(MEANINGS)
        site = Site(
            replace(config, federation=replace(config.federation, sends=words)),
            data,
            ("site",),
        )
        admitted = []
        for name, order in every_order(site.config):
            try:
                admit(order, site)
            except OrderError:
                continue
            admitted.append(name)
        expected = {"hello", "plan"} if config.releases else {"hello"}
        assert expected <= set(admitted)
        assert ("training" in admitted) == config.trains
        assert ("release" in admitted) == config.releases
        assert "look" in admitted
