"""Everything that leaves a client is classified; the statement repeats what clients
account for, never less.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import get_args

import numpy as np
import pytest

from fedaux.core.accounts import Account
from fedaux.core.failures import Failure
from fedaux.core.results import PrivateTraining, RoundResult
from fedaux.messages import (
    Consent,
    Disclosure,
    Hello,
    Masked,
    Release,
    Reply,
    Subtotal,
    SumReply,
    Sums,
    Update,
    fields_of,
)
from fedaux.messages.declaration import REPLIES
from fedaux.messages.replies import (
    COVERED,
    PUBLIC,
    SIDE_CHANNELS,
    UNPROTECTED,
    SecureTotal,
)
from fedaux.privacy.ledger import Ledger, SumAssumption, disclosed_by, disclosures


def release(client: str = "a") -> Release:
    values = {"values": np.zeros(2, np.int64)}
    return Release(
        client,
        "s",
        7,
        0.5,
        1e-5,
        "replace-one",
        "analytic",
        2.0,
        9.0,
        1.0,
        False,
        "",
        values,
    )


def account(
    epsilon: float = 0.5,
    delta: float = 1e-5,
    adjacency: str = "replace-one",
    unit: str = "record",
) -> Account:
    return Account(epsilon, delta, adjacency, unit, 1)


def ledger(
    *accounts: Account,
    history: Sequence[RoundResult] = (),
    awaiting_reply: Sequence[str] = (),
) -> Ledger:
    names = [chr(ord("a") + i) for i in range(len(accounts))]
    told = dict(zip(names, accounts, strict=True))
    return Ledger.of(
        {name: release(name) for name in names}, told, awaiting_reply, history
    )


def test_everything_that_crosses_is_classified() -> None:
    """A new reply, or a new field of one, is in what the statement of some run
    lists.
    """
    # these are made by servers
    replies = {Hello, *get_args(Reply)} - {Failure, Subtotal, SecureTotal}
    assert set(REPLIES) == replies
    listed: dict[str, set[str]] = {}
    for private, sums, secure, looks in itertools.product((False, True), repeat=4):
        for what, how in disclosures(private, sums, secure, looks):
            listed.setdefault(what, set()).add(how)
    for kind in replies:
        assert [field.name for field in fields_of(kind)] == [
            field.name for field in dataclasses.fields(kind)
        ]
        for told in disclosed_by(kind):
            assert listed[told.what] == {told.plain.value, told.private.value}, (
                kind.__name__
            )


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("sums", [False, True])
def test_a_run_lists_what_its_replies_tell_and_no_more(
    sums: bool, secure: bool
) -> None:
    kinds: list[type] = [Hello, Consent]
    kinds += (
        [SumReply, Masked] if secure else [Release, Update, *([Sums] if sums else [])]
    )
    told = {field.marks.disclosure.what for kind in kinds for field in fields_of(kind)}  # type: ignore[union-attr]
    beside = {item.what for item in SIDE_CHANNELS}
    for private in (False, True):
        assert {what for what, _ in disclosures(private, sums, secure)} == told | beside
    assert {item.what for item in disclosed_by(*kinds)} == told


def test_what_is_told_twice_is_told_alike() -> None:
    """A statement has one line for what several replies tell: none of them may be worse
    protected than it says.
    """
    protections: dict[str, set[Disclosure]] = {}
    for kind in REPLIES:
        for item in disclosed_by(kind):
            protections.setdefault(item.what, set()).add(item)
    assert [what for what, items in protections.items() if len(items) > 1] == []


def test_private_training_covers_the_models_and_silences_what_is_beside_them() -> None:
    plain, private = dict(disclosures(False)), dict(disclosures(True))
    assert plain["local models"] == UNPROTECTED.value
    assert private["local models"] == plain["certainty scores"] == COVERED.value
    silenced = [what for what in plain if what.startswith(("loss", "seconds"))]
    assert len(silenced) == 2
    assert {(plain[what], private[what]) for what in silenced} == {
        (UNPROTECTED.value, PUBLIC.value)
    }
    sums = "sums of features per class, or of their products too"
    assert sums not in plain
    assert (
        dict(disclosures(True, sums=True))[sums]
        == dict(disclosures(False, sums=True))[sums]
        == UNPROTECTED.value
    )
    assert [what for what, how in disclosures(True) if how == UNPROTECTED.value] == [
        "number of records (people) of a client, and under add-remove the declared one",
        "when a reply arrives",
        "whether the data could be read at all: one of five words instead of a reply",
    ]


def test_what_is_covered_and_what_is_not() -> None:
    said = ledger(account(0.25), account(0.5)).statement()
    assert (
        "(0.5, 1e-05)-differentially private for one record of a client exchanged for "
        "any other" in said
    )
    assert "Each of 2 clients keeps its own account" in said
    assert "The largest total is that of b." in said
    covered, _, rest = said.partition("Not covered:")
    assert "certainty scores" in covered
    assert (
        "local models, their losses and training times are sent without differential "
        "privacy" in rest
    )
    assert "the sizes of the clients' data are sent as they are" in rest
    assert "outside these accounts adds to this" in rest
    assert (
        ledger()
        .statement()
        .startswith(
            "Nothing was released under differential privacy. Not covered: local models"
        )
    )


@pytest.mark.parametrize(
    ("adjacency", "unit", "words"),
    [
        (
            "add-remove",
            "record",
            "one record of a client added or removed, at a declared size",
        ),
        (
            "replace-one",
            "person",
            "all records of one person at a client exchanged for any others",
        ),
        (
            "add-remove",
            "person",
            (
                "all records of one person at a client added or removed, at a declared "
                "size"
            ),
        ),
    ],
)
def test_the_neighbours_are_spelt_out(adjacency: str, unit: str, words: str) -> None:
    assert (
        f"private for {words}."
        in ledger(account(adjacency=adjacency, unit=unit)).statement()
    )


@pytest.mark.parametrize("epsilon", [2.0026, 0.10049, 1.6601, 0.33333, 9.9999, 12.341])
def test_a_printed_epsilon_is_never_less_than_the_reported_one(epsilon: float) -> None:
    found = ledger(account(epsilon))
    (printed,) = re.findall(r"are \(([\d.]+),", found.statement())
    assert epsilon <= float(printed) < 1.011 * epsilon
    assert float(found.rows()[0][3]) == float(printed)


def test_what_was_not_heard_is_said() -> None:
    said = ledger(account(), awaiting_reply=["a", "q"]).statement()
    assert (
        "a, q did not answer the last order, and may have spent more than could be "
        "reported" in said
    )
    assert "may have spent more" not in ledger(account()).statement()


def test_seeded_noise_spoils_the_statement() -> None:
    said = ledger(account(), account(inf)).statement()
    assert said.startswith(
        "NOT PRIVATE: the noise was drawn from a known seed (privacy.unsafe_seed)"
    )
    assert "differentially private" not in said
    assert ledger(account(inf)).to_dict()["epsilon"] is None


SPENT = PrivateTraining(5.0, 1.0, 1)
TRAINED = [RoundResult(1, {}, {}, private_training={"a": SPENT, "b": SPENT})]


def test_scores_and_private_models_have_one_total() -> None:
    found = ledger(account(1.049), account(0.9), history=TRAINED * 3)
    assert (
        "The certainty scores and the local models of this run are together (1.05, "
        "1e-05)" in found.statement()
    )
    assert "sent without" not in found.statement()
    assert found.rows() == [("a", "1", "3", "1.05"), ("b", "1", "3", "0.9")]
    assert found.to_dict()["covered"] == ["certainty scores", "local models"]
    bare = RoundResult(1, {}, {}, private_training={"a": SPENT}, unprotected_models=1)
    # one takes all models out of the statement
    said = ledger(account(), account(), history=[bare]).statement()
    assert "The certainty scores of this run are (0.5, 1e-05)" in said
    assert "are sent without differential privacy" in said


def test_in_secure_sums_what_is_summed_without_noise_is_named() -> None:
    """Weights of teachers, sizes and losses are in the sum, and two sums can be
    subtracted.
    """
    secure = replace(ledger(account(0.1)), secure=SumAssumption(6, 5, 1))
    said = secure.statement()
    assert said.startswith("The noisy sums of this run are (0.1, 1e-05)-")
    assert (
        "models, sizes, losses and, where sites teach, weighted logits are seen "
        "without differential privacy" in said
    )
    assert "the difference of two sums over different sites" in said
    assert secure.coverage == "noisy sums only, models are not covered"


def test_figures_are_those_of_the_statement() -> None:
    scores = ledger(account(0.1)).to_dict()
    assert (scores["epsilon"], scores["delta"]) == (0.1, 1e-5)
    assert scores["neighbours"] == ["one record of a client exchanged for any other"]
    assert (scores["units"], scores["adjacencies"]) == (["record"], ["replace-one"])
    assert scores["covered"] == ["certainty scores"]
    assert not scores["weights_covered"]

    accounts = dict.fromkeys("ab", account(1.2345))
    # every model was trained privately
    private = Ledger.of({}, accounts, (), TRAINED).to_dict()
    assert private["covered"] == ["local models"]
    assert private["weights_covered"]
    assert "(1.24, 1e-05)" in private["statement"]
    for figures in (scores, private):
        assert figures["statement"].endswith(
            f"Not covered: {'; '.join(figures['not_covered'])}."
        )

    one_bare = [
        *TRAINED,
        RoundResult(2, {}, {}, private_training={"a": SPENT}, unprotected_models=1),
    ]
    bare = Ledger.of({}, accounts, (), one_bare).to_dict()
    assert (bare["epsilon"], bare["delta"], bare["covered"]) == (None, None, [])
    assert not bare["weights_covered"]


def test_sums_of_features_are_named_and_a_run_without_models_names_none() -> None:
    sums, models = (
        "sums of clients' features are sent without differential privacy",
        "local models",
    )
    ridge = Ledger.of({}, {"a": account(0.0)}, (), (), unprotected_sums=1, models=False)
    assert sums in ridge.statement()
    assert models not in ridge.statement()
    assert sums in ridge.to_dict()["not_covered"]
    crosses = [each["what"] for each in ridge.to_dict()["crosses"]]
    assert any("sums of features" in what for what in crosses)
    assert models not in crosses
    assert (ridge.to_dict()["covered"], ridge.to_dict()["weights_covered"]) == (
        [],
        False,
    )
    both = Ledger.of({"a": release()}, {"a": account()}, (), (), unprotected_sums=1)
    assert sums in both.statement()
    assert models in both.statement()
    assert not both.to_dict()["weights_covered"]


def test_a_head_of_releases_alone_is_covered() -> None:
    found = Ledger.of({"a": release()}, {"a": account()}, (), (), models=False)
    assert found.to_dict()["weights_covered"]
    assert "without differential privacy" not in found.statement()
    assert "the head is made of" in found.summary()
    # they score nobody
    assert found.statement().startswith("The noisy sums of this run are (0.5, 1e-05)-")
    assert found.short()[0].startswith("Noisy sums: ε = 0.5")


def test_two_lines_for_a_terminal() -> None:
    assert ledger(account(), account(1.0)).short() == (
        "Scores: ε = 1, δ = 1e-05 per client.",
        "Models are not protected.",
    )
    nothing = Ledger.of({}, {}, (), ())
    assert nothing.short()[0] == "Nothing was sent under noise."
    assert "Models are not protected." in nothing.short()


def test_counts_of_held_out_records_are_covered_and_make_no_model_private() -> None:
    told = {"a": account(1.0)}
    trained = Ledger.of({}, told, (), (), looked=("a",))
    assert trained.coverage == "counts of held-out records only, models are not covered"
    assert trained.to_dict()["covered"] == ["counts of held-out records"]
    assert not trained.to_dict()["weights_covered"]
    assert trained.clients == ["a"]
    head = Ledger.of({"a": release()}, told, (), (), models=False, looked=("a",))
    assert head.coverage == (
        "noisy sums, which the head is made of, and counts of held-out records"
    )
    assert head.short()[0].startswith("Noisy sums and counts of held-out records: ε")
    assert head.to_dict()["weights_covered"]
