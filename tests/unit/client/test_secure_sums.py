"""A site's part in secure sums: what it keeps between messages, and what it refuses a server that lies."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from fedaux.client import handlers
from fedaux.client.secure_sums import FOLDER, Participation, take_part
from fedaux.client.site import Site
from fedaux.config.sections import DataConfig, FederationConfig
from fedaux.core.errors import FedauxError, SettingsError
from fedaux.core.messages import Arrays, OrderError, SumOrder, SumTerms, statistic
from fedaux.privacy.roster import fingerprint, make_signing_key, read_roster, write_roster
from fedaux.privacy.secure_sum import Keys, sum_settings
from helpers.samples import sums_order, train_order
from helpers.sum_server import CONFIG, NAMES, TERMS, SumServer, vector


def file_of(folder: Path, name: str) -> Path:
    (path,) = (folder / name / FOLDER).glob("sum-*.json")
    return path


@pytest.mark.parametrize("lost", [(), ("client-003",)])
def test_the_sum_is_that_of_the_survivors(tmp_path: Path, lost: tuple[str, ...]) -> None:
    expected = sum(vector(name) for name in NAMES if name not in lost)
    assert np.array_equal(SumServer(tmp_path).total(lost), expected)


def test_the_same_question_gets_the_same_bytes_and_another_is_refused(tmp_path: Path) -> None:
    server = SumServer(tmp_path)
    keys, shares = server.keys(), server.shares()
    assert server.keys() == keys
    assert server.shares() == shares
    first = server.masked(NAMES[0], shares).arrays["masked"]
    assert np.array_equal(server.masked(NAMES[0], shares).arrays["masked"], first)
    with pytest.raises(OrderError, match="to another question"):
        server.ask(NAMES[0], "shares", {name: keys[name] for name in NAMES[:5]})
    with pytest.raises(OrderError, match="to another order"):
        server.masked(NAMES[0], {name: shares[name] for name in NAMES[:5]})
    vectors = [server.masked(name, shares) for name in NAMES[1:]]
    assert len(vectors) == 5
    signatures = server.signatures(NAMES)
    with pytest.raises(OrderError, match="to another question"):
        server.ask(NAMES[0], "survivors", dict.fromkeys(NAMES[:5], b""))
    answer = server.ask(NAMES[0], "unmask", signatures)
    assert server.ask(NAMES[0], "unmask", signatures) == answer
    with pytest.raises(OrderError, match="to another question"):
        server.ask(NAMES[0], "unmask", {name: signatures[name] for name in NAMES[:5]})


def test_at_the_end_the_secrets_are_gone(tmp_path: Path) -> None:
    server = SumServer(tmp_path)
    server.shares()
    before = json.loads(file_of(tmp_path, NAMES[0]).read_bytes())
    assert len(before["mask_key"]) == len(before["seed"]) == 64
    server.total()
    text = file_of(tmp_path, NAMES[0]).read_text()
    assert json.loads(text)["finished"]
    assert not any(before[name] in text for name in ("mask_key", "share_key", "seed"))
    assert not any((tmp_path / NAMES[0] / FOLDER).glob("masked-*"))
    assert file_of(tmp_path, NAMES[0]).stat().st_mode & 0o077 == 0


def test_without_noise_a_second_sum_over_one_site_less_is_refused(tmp_path: Path) -> None:
    """The difference of the two sums would be the vector of the site that is left out."""
    SumServer(tmp_path).total()
    second = SumServer(tmp_path, replace(TERMS, sites=NAMES[:5]))
    shares = second.shares()
    with pytest.raises(OrderError, match="has taken part in a sum of sums"):
        second.masked(NAMES[0], shares)


def test_a_sum_that_is_begun_again_after_the_vectors_is_another_release(tmp_path: Path) -> None:
    """With noise a second sum is possible, and the account gets another request with noise of its own."""
    requests = []

    def make(request: str) -> NDArray[np.int64]:
        requests.append(request)
        return vector(NAMES[0])

    for attempt in (0, 1, 1):
        server = SumServer(tmp_path, replace(TERMS, attempt=attempt, scale=1000.0))
        order = server.order(NAMES[0], server.shares())
        Participation.of(order, server.site(NAMES[0])).answer(order, make, 1000.0)
    assert len(requests) == len(set(requests)) == 2


def test_a_forgotten_sum_gets_fresh_keys_and_so_another_request(tmp_path: Path) -> None:
    """A vault from an older copy, or a file that was deleted, must not lead to the same noise in two sums."""
    requests = []
    for _ in range(2):
        server = SumServer(tmp_path, replace(TERMS, scale=1000.0))
        order = server.order(NAMES[0], server.shares())
        Participation.of(order, server.site(NAMES[0])).answer(
            order, lambda request: requests.append(request) or vector(NAMES[0]), 1000.0
        )
        for name in NAMES:
            file_of(tmp_path, name).unlink()
    assert len(set(requests)) == 2


def test_a_forgotten_sum_without_noise_is_not_answered_again(tmp_path: Path) -> None:
    """Its terms are the same, its keys are not: with other survivors the difference would be what one site sent."""
    server = SumServer(tmp_path)
    order = server.order(NAMES[0], server.shares())
    Participation.of(order, server.site(NAMES[0])).answer(order, lambda _: vector(NAMES[0]))
    for name in NAMES:
        file_of(tmp_path, name).unlink()
    server = SumServer(tmp_path)
    order = server.order(NAMES[0], server.shares())
    with pytest.raises(OrderError, match="has taken part in a sum"):
        Participation.of(order, server.site(NAMES[0])).answer(order, lambda _: vector(NAMES[0]))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"threshold": 4}, "ask for at least 5 of 6"),
        ({"colluders": 0}, "with 1"),
        ({"sites": NAMES[1:]}, "takes no part"),
        ({"sites": [*NAMES[:5], NAMES[0]]}, "different names"),
        ({"sites": [*NAMES[:5], 7]}, "different names"),
        ({"sites": NAMES[:2], "threshold": 2}, "protects nobody|3 to 300"),
    ],
)
def test_terms_that_the_site_does_not_accept(tmp_path: Path, changes: dict[str, object], reason: str) -> None:
    with pytest.raises(FedauxError, match=reason):
        SumServer(tmp_path, replace(TERMS, **changes)).ask(NAMES[0], "keys")


def test_the_vector_must_be_what_the_terms_say(tmp_path: Path) -> None:
    server = SumServer(tmp_path)
    shares = server.shares()
    with pytest.raises(OrderError, match="do all sites have the same privacy settings"):
        server.masked(NAMES[0], shares, scale=1000.0)
    order = replace(train_order(NAMES[0]), sum=TERMS.to_json(), sealed=server.order(NAMES[0], shares).sealed)
    with pytest.raises(OrderError, match=r"the terms are for 'sums of"):
        Participation.of(order, server.site(NAMES[0])).answer(order, lambda _: vector(NAMES[0]))
    terms = replace(TERMS, statistic=statistic(train_order()))
    server = SumServer(tmp_path / "other", terms)
    order = replace(train_order(NAMES[0]), run="another", sum=terms.to_json())
    with pytest.raises(OrderError, match="belongs to the run 'another'"):
        Participation.of(order, server.site(NAMES[0])).answer(order, lambda _: vector(NAMES[0]))


def test_steps_of_a_sum_that_the_site_has_not_begun(tmp_path: Path) -> None:
    with pytest.raises(OrderError, match="knows nothing of the sum"):
        SumServer(tmp_path).ask(NAMES[0], "unmask")
    with pytest.raises(OrderError, match="has not shared its secrets"):
        SumServer(tmp_path).masked(NAMES[0], {})


def test_a_site_in_secure_sums_answers_nothing_alone_and_the_other_way_round(tmp_path: Path) -> None:
    order = sums_order(NAMES[0], prototype=CONFIG.prototypes[0].to_json(), classes=10)
    with pytest.raises(OrderError, match="takes part in secure sums only"):
        handlers.validate_order(Site(CONFIG, tmp_path, (NAMES[0],)), order)
    plain = replace(CONFIG, federation=FederationConfig())
    with pytest.raises(OrderError, match=r"federation\.secure is false"):
        handlers.validate_order(Site(plain, tmp_path, (NAMES[0],)), replace(order, sum=TERMS.to_json()))
    with pytest.raises(OrderError, match="takes no part"):
        take_part(SumOrder(NAMES[0], TERMS.to_json(), "keys"), Site(plain, tmp_path, (NAMES[0],)))


def test_a_real_site_has_its_own_roster(tmp_path: Path) -> None:
    """A server that invents a site, or gives one another key, finds nobody who sums with it."""
    federation = FederationConfig(secure=True, sites=tuple(NAMES))
    config = replace(CONFIG, federation=federation, data=DataConfig(partition="own"))
    roster = {name: make_signing_key(tmp_path / name) for name in NAMES}
    for name in NAMES:
        write_roster(tmp_path / name / "roster.json", roster)
    assert read_roster(tmp_path / NAMES[0] / "roster.json") == roster
    write_roster(tmp_path / "twice.json", {**roster, NAMES[1]: roster[NAMES[0]]})
    with pytest.raises(SettingsError, match="one key under two names"):
        read_roster(tmp_path / "twice.json")
    with pytest.raises(OrderError, match="are one site in a secure sum"):
        take_part(SumOrder(NAMES[0], TERMS.to_json(), "keys"), Site(config, tmp_path / NAMES[0], tuple(NAMES[:2])))
    sites = {name: Site(config, tmp_path / name, (name,)) for name in NAMES}

    def ask(name: str, step: str, arrays: Arrays, terms: SumTerms = TERMS) -> Arrays:
        return take_part(SumOrder(name, terms.to_json(), step, arrays), sites[name]).arrays

    keys = {name: ask(name, "keys", {})[name] for name in NAMES}
    assert set(ask(NAMES[0], "shares", keys)) == set(NAMES[1:])
    own = sum_settings(TERMS, roster)
    forged = Keys("client-005", keys[NAMES[5]][:32].tobytes(), keys[NAMES[5]][32:64].tobytes(), b"")
    signature = Ed25519PrivateKey.generate().sign(forged.signed(own))
    text = np.frombuffer(replace(forged, signature=signature).to_bytes(), np.uint8)
    with pytest.raises(OrderError, match="does not bear its signature"):
        ask(NAMES[1], "shares", {**keys, NAMES[5]: text})
    with pytest.raises(FedauxError, match="invented is not in this site's roster"):
        ask(NAMES[1], "keys", {}, replace(TERMS, sites=[*NAMES, "invented"], threshold=6))
    (tmp_path / NAMES[1] / "roster.json").unlink()
    with pytest.raises(FedauxError, match="the roster of all sites"):
        ask(NAMES[1], "keys", {})
    assert fingerprint(roster) != fingerprint({**roster, NAMES[0]: roster[NAMES[1]]})
