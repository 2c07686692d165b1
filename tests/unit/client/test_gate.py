"""What the gate refuses, each in the words that the site's owner reads in the site's
log.

That nothing else is answered, for every method and setting, is in
tests/attacks/test_matrix.py; what the approval of a plan adds is in test_approvals.py.
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaux.client.gate import admit, word_of
from fedaux.client.site import Site
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.sends import MEANINGS
from fedaux.core.errors import FedauxError, SettingsError
from fedaux.core.failures import OrderError, Refusal
from fedaux.data.table_schema import TableSchema
from fedaux.flower.error_redaction import refusal_of
from fedaux.messages import DataOrder, HelloOrder, PlanOrder, RunPlan, plan_of
from fedaux.messages.plan import Ask
from helpers.asked_site import NETWORK, RELEASE, SUMS, TRAIN, asked_site
from helpers.samples import consent, plan_order, sum_order, terms

ORDERS = [RELEASE, SUMS, TRAIN]
TERMS = terms().to_json()
EVERYTHING = list(MEANINGS)
OTHER = PrototypeSpec.of("mlp", hidden=5, features=4, norm="none").to_json()


def proposal(
    *orders: DataOrder, method: str = "fedaux", secure: bool = False
) -> PlanOrder:
    return plan_order(plan=plan_of("cafe", method, 1, secure, orders).to_json())


def proposal_of_kind(kind: str) -> PlanOrder:
    return plan_order(
        plan=RunPlan("cafe", "fedaux", 1, False, (Ask(kind, 1, {}),)).to_json()
    )


@dataclass(frozen=True)
class Case:
    """An order that is refused, by a site with these settings where they are not those
    of `asked_site`.
    """

    name: str
    order: Any
    text: str
    federation: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


ONLY_ITS_OWNER = "Ask its owner, who can allow more by federation.sends in site.toml."
NOT_SECURE = (
    "Cannot take part in a secure sum: federation.secure is false in this site's "
    "settings. Set it to the same value at the server and at every site."
)
NOT_ALONE = (
    "Cannot answer this order: this site takes part in secure sums only "
    "(federation.secure). Set federation.secure to the same value at the server and "
    "at every site."
)
NOT_FEDAVG = (
    "Cannot train with the method 'fedavg': this site's settings have 'fedaux'. Ask "
    "its owner, who can set method in site.toml."
)
NO_HEAD = (
    "Cannot send {} of features: neither method nor head_init of this site's settings "
    "computes a head from them. Set the same method and head_init at the server and "
    "at every site."
)
ONE_VERSION = "Install the same version of fedaux at the server and the sites."
ONE_NETWORK = "Set the same prototypes at the server and at every site."
ONE_NUMBER = "Set the same number at the server and at every site."
SCAFFOLD = {"method": "scaffold", "head_init": "random"}
BY_SCAFFOLD = replace(
    TRAIN, method="scaffold", broadcast={"c": np.zeros(6, np.float32)}
)

CASES = [
    Case(
        "no order",
        consent(),
        f"Cannot answer a Consent: sites do not know such orders. {ONE_VERSION}",
    ),
    *(
        Case(
            f"{type(order).__name__} to another",
            replace(order, client="b"),
            "Cannot answer for 'b': this site is a. Correct the names in the settings of "
            "the server or of the site.",
        )
        for order in (*ORDERS, plan_order(), sum_order())
    ),
    Case(
        "a release that is not listed",
        RELEASE,
        (
            "Cannot send noisy sums: this site's settings allow models, second "
            f"moments. {ONLY_ITS_OWNER}"
        ),
        {"sends": ["models", "second moments"]},
    ),
    Case(
        "sums that are not listed",
        SUMS,
        (
            "Cannot send second moments: this site's settings allow sums. "
            f"{ONLY_ITS_OWNER}"
        ),
        {"sends": ["sums"]},
    ),
    Case(
        "models that are not listed",
        TRAIN,
        (
            "Cannot send models: this site's settings allow noisy models. "
            f"{ONLY_ITS_OWNER}"
        ),
        {"sends": ["noisy models"]},
    ),
    Case(
        "noisy models that are not listed",
        TRAIN,
        (
            "Cannot send noisy models: this site's settings allow models. "
            f"{ONLY_ITS_OWNER}"
        ),
        {"sends": ["models"]},
        {
            "head_init": "random",
            "privacy": {"epsilon": 1.0, "epsilon_total": 4.0, "private_training": True},
        },
    ),
    Case(
        "a plan for what is not listed",
        proposal(RELEASE, TRAIN),
        (
            "Cannot send models: this site's settings allow noisy sums. "
            f"{ONLY_ITS_OWNER}"
        ),
        {"sends": ["noisy sums"]},
    ),
    Case(
        "another scorer",
        replace(RELEASE, scorer="class-moments"),
        (
            "Cannot release with the scorer 'class-moments': this site's settings have "
            "'class-embedding'. Set the same privacy.scorer at the server and at every "
            "site."
        ),
    ),
    Case(
        "sums for no head",
        SUMS,
        NO_HEAD.format("moments"),
        {"sends": EVERYTHING},
        {"head_init": "random"},
    ),
    Case(
        "more sums than the head needs",
        SUMS,
        NO_HEAD.format("moments"),
        {"sends": EVERYTHING},
        {"method": "class-means", "head_init": "auto"},
    ),
    Case("another method", replace(TRAIN, method="fedavg"), NOT_FEDAVG),
    Case("a plan with another method", proposal(TRAIN, method="fedavg"), NOT_FEDAVG),
    Case(
        "other options",
        replace(TRAIN, method_options='{"power": 2}'),
        'Cannot train with the options {"power": 2}: this site\'s settings have {}. Set '
        "the same method_options at the server and at every site.",
    ),
    Case(
        "too many epochs",
        replace(TRAIN, epochs=4),
        "Cannot train for 4 epochs in a round: this site allows 3. Ask its owner, "
        "who can allow more by federation.max_epochs.",
        {"max_epochs": 2},
        {"local": {"epochs": 3}},
    ),
    *(
        Case(
            f"{type(order).__name__} with other random features",
            replace(order, random_features=100_000),
            (
                "Cannot use 100000 random features: this site's settings have "
                f"random_features = 0. {ONE_NUMBER}"
            ),
        )
        for order in (SUMS, TRAIN)
    ),
    Case(
        "arrays that the method does not have",
        replace(TRAIN, broadcast={"c": np.zeros(2, np.float32)}),
        (
            "Cannot train: next to the model, FedAUX sends arrays of the shapes {}, and "
            "the order has {'c': (2,)}. " + ONE_VERSION
        ),
    ),
    Case(
        "arrays that the method needs",
        replace(BY_SCAFFOLD, broadcast={"c": np.zeros(5, np.float32)}),
        "Cannot train: next to the model, SCAFFOLD sends arrays of the shapes {'c': "
        "(6,)}, and the order has {'c': (5,)}. " + ONE_VERSION,
        {},
        SCAFFOLD,
    ),
    Case(
        "a fit of its own in a secure sum",
        replace(TRAIN, client_fit={"x": np.zeros(2)}, sum=TERMS),
        (
            "Cannot add a fit of one site to a secure sum: its sites must be "
            f"asked the same. {ONE_VERSION}"
        ),
        {"secure": True},
    ),
    Case("a step of a secure sum", sum_order(), NOT_SECURE),
    *(
        Case(
            f"{type(order).__name__} in a secure sum",
            replace(order, sum=TERMS),
            NOT_SECURE,
        )
        for order in ORDERS
    ),
    Case("a plan of secure sums", proposal(TRAIN, secure=True), NOT_SECURE),
    *(
        Case(f"{type(order).__name__} alone", order, NOT_ALONE, {"secure": True})
        for order in ORDERS
    ),
    Case("a plan without secure sums", proposal(TRAIN), NOT_ALONE, {"secure": True}),
    *(
        Case(
            f"{type(order).__name__} for other classes",
            replace(order, classes=3),
            "Cannot answer for 3 classes: 2 are declared to this site. Declare the same "
            "classes at the server and at every site.",
        )
        for order in ORDERS
    ),
    *(
        Case(
            f"{type(order).__name__} of another network",
            replace(order, prototype=OTHER),
            (
                f"Cannot use the network {OTHER}: this site's settings list "
                f"{NETWORK.label}. {ONE_NETWORK}"
            ),
        )
        for order in ORDERS
    ),
    Case(
        "a network of many letters",
        replace(RELEASE, prototype="x" * 10**5),
        (
            f"Cannot use the network {'x' * 200}: this site's settings list "
            f"{NETWORK.label}. {ONE_NETWORK}"
        ),
    ),
    Case(
        "a plan of another version",
        proposal_of_kind("everything"),
        (
            "Cannot read the plan of the run: it asks for 'everything', which is not "
            f"known here. {ONE_VERSION}"
        ),
    ),
    Case(
        "no plan",
        plan_order(plan="{}"),
        "Cannot read the plan of the run: it is not of this version of fedaux. Install "
        "the same version at the server and the sites.",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_refusal_says_what_and_why(tmp_path: Path, case: Case) -> None:
    own = asked_site(tmp_path, case.federation, **case.settings)
    with pytest.raises(OrderError) as caught:
        admit(case.order, own)
    assert str(caught.value) == case.text
    assert re.fullmatch(r"Cannot [^:]+: \S.*\.", case.text)
    assert refusal_of(caught.value) is Refusal.ORDER
    # nothing is written, and no plan is shown to the owner
    assert not own.vault.exists()


def silent(own: Site) -> Site:
    """The site of an owner who has not said what may leave."""
    return replace(
        own,
        config=replace(own.config, federation=replace(own.config.federation, sends=())),
    )


@pytest.mark.parametrize(
    "order", [*ORDERS, proposal(*ORDERS)], ids=lambda order: type(order).__name__
)
def test_a_site_that_does_not_say_what_may_leave_says_how(
    tmp_path: Path, order: Any
) -> None:
    own = silent(asked_site(tmp_path))
    with pytest.raises(SettingsError) as caught:
        admit(order, own)
    assert str(caught.value) == (
        "Cannot answer: site.toml does not list what may leave this site. Add sends to "
        "its [federation]. For "
        'method = \'fedaux\' that is sends = ["noisy sums", "second moments", "models"].'
    )
    assert refusal_of(caught.value) is Refusal.SETTINGS
    assert not own.vault.exists()


def test_what_a_silent_site_is_told_to_write_is_enough(tmp_path: Path) -> None:
    own = asked_site(tmp_path, {"sends": ["noisy sums", "second moments", "models"]})
    for order in (*ORDERS, proposal(*ORDERS)):
        admit(order, own)


def test_a_simulated_client_goes_by_its_method(tmp_path: Path) -> None:
    simulated = replace(silent(asked_site(tmp_path)), keeps_results=False)
    for order in ORDERS:
        admit(order, simulated)
    by_fedavg = replace(simulated, config=replace(simulated.config, method="fedavg"))
    with pytest.raises(
        OrderError,
        match="Cannot send noisy sums: this site's settings allow second moments",
    ):
        admit(RELEASE, by_fedavg)


# what is admitted, at the edge of what is not


def test_whoever_asks_is_greeted(tmp_path: Path) -> None:
    for own in (
        asked_site(tmp_path),
        silent(asked_site(tmp_path)),
        asked_site(tmp_path, {"secure": True}),
    ):
        admit(HelloOrder(), own)


@pytest.mark.parametrize("epochs", [2, 3])
def test_as_many_epochs_are_admitted_as_either_setting_allows(
    tmp_path: Path, epochs: int
) -> None:
    admit(
        replace(TRAIN, epochs=3),
        asked_site(tmp_path, {"max_epochs": 3}, local={"epochs": 1}),
    )
    admit(
        replace(TRAIN, epochs=epochs),
        asked_site(tmp_path, {"max_epochs": 2}, local={"epochs": 3}),
    )


def test_random_features_of_the_sites_own_number_are_admitted(tmp_path: Path) -> None:
    own = asked_site(tmp_path, head_only=True, random_features=8)
    for order in (SUMS, replace(TRAIN, h0="0" * 64)):
        admit(replace(order, random_features=8), own)
        with pytest.raises(
            OrderError,
            match="Cannot use 0 random features: this site's settings have",
        ):
            admit(order, own)


def test_who_sends_second_moments_sends_sums_too(tmp_path: Path) -> None:
    own = asked_site(tmp_path)
    admit(replace(SUMS, sends="class-sums"), own)
    assert word_of("sums", {"sends": "class-sums"}, own) == "second moments"


def test_options_are_compared_by_their_values(tmp_path: Path) -> None:
    own = asked_site(tmp_path)
    for same in ("{}", " { } "):
        admit(replace(TRAIN, method_options=same), own)


def test_the_arrays_of_the_sites_own_method_are_admitted(tmp_path: Path) -> None:
    admit(BY_SCAFFOLD, asked_site(tmp_path, **SCAFFOLD))


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_in_secure_sums_orders_with_terms_are_admitted(
    tmp_path: Path, order: DataOrder
) -> None:
    own = asked_site(tmp_path, {"secure": True})
    admit(replace(order, sum=TERMS), own)
    admit(proposal(order, secure=True), own)
    admit(sum_order(), own)


def test_a_word_is_known_for_each_kind_of_a_plan(tmp_path: Path) -> None:
    own = asked_site(tmp_path)
    private = {"epsilon": 1.0, "epsilon_total": 4.0, "private_training": True}
    noisy = asked_site(tmp_path, head_init="random", privacy=private)
    assert word_of("release", {}, own) == "noisy sums"
    assert word_of("train", {}, own) == "models"
    assert word_of("train", {}, noisy) == "noisy models"
    assert word_of("sums", {"sends": "moments"}, own) == "second moments"
    with pytest.raises(FedauxError, match="Cannot read the plan"):
        word_of("", {}, own)


def test_a_table_with_another_schema_is_not_asked(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    columns = "[columns]\nage = {range = [0, 100]}\n"
    schema.write_text(f'label = "y"\nclasses = ["ill", "well"]\n{columns}')
    table = asked_site(tmp_path).config.data
    options = {"schema": str(schema)}
    own = asked_site(tmp_path)
    data = replace(table, source="table", options=tuple(options.items()))
    own = replace(own, config=replace(own.config, data=data))
    known = TableSchema.load(schema).hash
    for named in ("", known):
        plan = replace(plan_of("cafe", "fedaux", 1, False, ORDERS), schema=named)
        admit(plan_order(plan=plan.to_json()), own)
    plan = replace(plan, schema="0123456789abcdef")
    with pytest.raises(OrderError, match=f"0123456789abcdef, and .* own has {known}"):
        admit(plan_order(plan=plan.to_json()), own)
    # records of another kind have no schema
    admit(plan_order(plan=plan.to_json()), asked_site(tmp_path))


def test_an_owner_is_asked_only_for_what_the_settings_allow(tmp_path: Path) -> None:
    """An order that may not leave in any case is refused for that, and not for want of
    an approval.
    """
    own = asked_site(tmp_path, {"approval": "ask"})
    for order, why in (
        (replace(RELEASE, client="b"), "Cannot answer for 'b'"),
        (replace(RELEASE, prototype=OTHER), "Cannot use the network"),
        (replace(RELEASE, classes=3), "Cannot answer for 3 classes"),
        (replace(RELEASE, sum=TERMS), "Cannot take part in a secure sum"),
    ):
        with pytest.raises(OrderError, match=why):
            admit(order, own)
    assert not own.vault.exists()
