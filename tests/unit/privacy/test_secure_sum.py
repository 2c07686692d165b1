"""Secure sums: the right sum of the survivors or a clean abort; and what a server that lies cannot learn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats

from fedaux.privacy.secure_sum import (
    PRIME,
    Keys,
    SecureSumError,
    SiteState,
    SumSettings,
    add_pair_mask,
    combine,
    keystream,
    lagrange_weights,
    least_threshold,
    new_site,
    pair_secret,
    split,
    survivors_signed,
    unmasked_sum,
)

NAMES = tuple("abcdef")
SIGNING = {name: Ed25519PrivateKey.generate() for name in NAMES}
ROSTER = {name: key.public_key().public_bytes_raw() for name, key in SIGNING.items()}
SETTINGS = SumSettings("run", "class sums", ROSTER, 5, 3)
VECTORS = {name: np.array([1, -2, 10**6]) * (index + 1) for index, name in enumerate(NAMES)}
NEVER = 5


def play(lost: Mapping[str, int], settings: SumSettings = SETTINGS) -> tuple[np.ndarray, set[str]]:
    """A sum with an honest server, in which each site stops answering at the step that `lost` has for it."""

    def alive(names: Iterable[str], step: int) -> list[str]:
        return [name for name in names if lost.get(name, NEVER) > step]

    sites = {name: new_site(settings, name) for name in settings.roster}
    keys = {name: sites[name].begin(SIGNING[name]) for name in alive(settings.roster, 0)}
    sealed: dict[str, dict[str, bytes]] = {}
    for name in alive(keys, 1):
        sites[name], sealed[name] = sites[name].share(keys.values())
    masked = {}
    for name in alive(sealed, 2):
        received = {other: boxes[name] for other, boxes in sealed.items() if other != name}
        sites[name], masked[name] = sites[name].mask(received, VECTORS[name])
    signatures = {}
    for name in alive(masked, 3):
        sites[name], signatures[name] = sites[name].agree(masked, SIGNING[name])
    replies = []
    for name in alive(signatures, 4):
        sites[name], reply = sites[name].unmask(signatures)
        replies.append(reply)
    return unmasked_sum(settings, keys, masked, sealed, replies), set(masked)


def check(lost: Mapping[str, int]) -> bool:
    """Whether the sum came about; then it is that of the survivors."""
    counts = [sum(step > at for step in lost.values()) for at in range(NEVER)]
    try:
        total, survivors = play(lost)
    except SecureSumError:
        assert min(counts) < SETTINGS.threshold
        return False
    assert min(counts) >= SETTINGS.threshold
    assert survivors == {name for name, step in lost.items() if step > 2}
    assert np.array_equal(total, sum(VECTORS[name] for name in survivors))
    return True


def test_every_number_of_sites_lost_at_every_step() -> None:
    rng = np.random.default_rng(0)
    patterns = list(itertools.combinations_with_replacement(range(NEVER + 1), len(NAMES)))
    done = [check(dict(zip(NAMES, rng.permutation(steps).tolist(), strict=True))) for steps in patterns]
    assert len(patterns) == 462
    assert sum(done) == 6  # nobody is lost, or one at one of five steps


@pytest.mark.slow
def test_every_pattern_of_six_sites_over_five_steps() -> None:
    done = [check(dict(zip(NAMES, steps, strict=True))) for steps in itertools.product(range(NEVER + 1), repeat=6)]
    assert (len(done), sum(done)) == (6**6, 31)


@pytest.mark.parametrize(("sites", "threshold"), [(3, 3), (5, 5), (6, 5), (10, 7), (100, 67), (300, 201)])
def test_a_sum_needs_more_than_two_thirds_and_all_of_a_few(sites: int, threshold: int) -> None:
    assert least_threshold(sites) == threshold
    roster = {str(i): bytes(32) for i in range(sites)}
    SumSettings("r", "p", roster, threshold, 1)
    for wrong in (threshold - 1, sites + 1):
        with pytest.raises(SecureSumError, match=f"of {sites} sites a sum needs between {threshold} and {sites}"):
            SumSettings("r", "p", roster, wrong, 1)


def test_two_sites_are_too_few_for_a_sum_to_hide_anything() -> None:
    with pytest.raises(SecureSumError, match="3 to 300 sites"):
        SumSettings("r", "p", {"a": b"", "b": b""}, 2, 1)


def test_shares_are_points_of_a_polynomial_and_fewer_say_nothing() -> None:
    secret, points = bytes(range(32)), {name: index + 1 for index, name in enumerate(NAMES)}
    shares = split(secret, 4, points)
    for chosen in itertools.combinations(NAMES, 4):
        weights = lagrange_weights([points[name] for name in chosen])
        assert combine([shares[name] for name in chosen], weights) == secret
    # with any three shares, every secret is as possible as the true one: some fourth share gives it
    weights = lagrange_weights([1, 2, 3, 4])
    known = sum(w * int.from_bytes(shares[name], "big") for w, name in zip(weights, NAMES[:3], strict=False))
    for other in (0, 1, 2**255):
        fourth = (other - known) * pow(weights[3], -1, PRIME) % PRIME
        assert (known + weights[3] * fourth) % PRIME == other


# ------------------------------------------------------------------------------------- a server that lies


def started(
    settings: SumSettings = SETTINGS,
) -> tuple[dict[str, SiteState], dict[str, Keys], dict[str, dict[str, bytes]]]:
    """All sites after step 1."""
    sites = {name: new_site(settings, name) for name in NAMES}
    keys = {name: site.begin(SIGNING[name]) for name, site in sites.items()}
    sealed: dict[str, dict[str, bytes]] = {}
    for name in NAMES:
        sites[name], sealed[name] = sites[name].share(keys.values())
    return sites, keys, sealed


def all_masked() -> tuple[dict[str, SiteState], dict[str, Keys], dict[str, np.ndarray]]:
    """All sites after step 2."""
    sites, keys, sealed = started()
    masked = {}
    for name in NAMES:
        received = {other: boxes[name] for other, boxes in sealed.items() if other != name}
        sites[name], masked[name] = sites[name].mask(received, VECTORS[name])
    return sites, keys, masked


def refused(reason: str) -> pytest.RaisesExc[SecureSumError]:
    return pytest.raises(SecureSumError, match=reason)


def test_keys_that_the_server_made_up_or_altered_are_refused() -> None:
    site = new_site(SETTINGS, "a")
    keys = {name: new_site(SETTINGS, name).begin(SIGNING[name]) for name in NAMES} | {"a": site.begin(SIGNING["a"])}
    stranger = Ed25519PrivateKey.generate()
    forged = new_site(SETTINGS, "b").begin(stranger)
    for changed, reason in (
        ({**keys, "b": forged}, "b does not bear its signature"),
        ({**keys, "b": replace(keys["b"], mask_key=keys["c"].mask_key)}, "b does not bear its signature"),
        ({**keys, "z": replace(keys["b"], sender="z")}, "'z' is not in this site's roster"),
        ({**keys, "a": new_site(SETTINGS, "a").begin(SIGNING["a"])}, "this site's own keys are missing"),
        ({name: keys[name] for name in "abcd"}, "4 sites are left, 5 are needed"),
    ):
        with refused(reason):
            site.share(changed.values())
    site.share(keys.values())


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTINGS, run="another"),
        replace(SETTINGS, purpose="second moments"),
        replace(SETTINGS, threshold=6),
        replace(SETTINGS, length=4),
        replace(SETTINGS, roster={**ROSTER, "g": bytes(32)}),
        replace(SETTINGS, roster={**ROSTER, "f": Ed25519PrivateKey.generate().public_key().public_bytes_raw()}),
    ],
    ids=["run", "purpose", "threshold", "length", "one more", "another key"],
)
def test_messages_of_another_sum_or_roster_are_refused(other: SumSettings) -> None:
    elsewhere = {name: new_site(other, name).begin(SIGNING[name]) for name in NAMES}
    site = new_site(SETTINGS, "a")
    with refused("does not bear its signature"):
        site.share([site.begin(SIGNING["a"]), *(elsewhere[name] for name in NAMES if name != "a")])


def test_shares_of_another_start_of_the_sum_are_refused() -> None:
    """A sum that is begun again after step 2 has other keys: what was sent before is of no use."""
    sites, _, _ = started()
    _, _, old = started()
    received = {other: old[other]["a"] for other in NAMES if other != "a"}
    with refused("were altered on their way"):
        sites["a"].mask(received, VECTORS["a"])


def test_a_vector_is_masked_once() -> None:
    """Two vectors under the same masks would show their difference."""
    sites, _, sealed = started()
    received = {other: boxes["a"] for other, boxes in sealed.items() if other != "a"}
    state, _ = sites["a"].mask(received, VECTORS["a"])
    with refused("out of turn"):
        state.mask(received, VECTORS["a"])


def test_a_sum_that_could_overflow_is_refused() -> None:
    sites, _, sealed = started()
    received = {other: boxes["a"] for other, boxes in sealed.items() if other != "a"}
    for large in (2**63 // 6, -(2**63 // 6), -(2**63)):
        with refused("could overflow"):
            sites["a"].mask(received, np.array([0, 0, large]))
    with refused("the sum is of 3 numbers"):
        sites["a"].mask(received, np.zeros(4, np.int64))


def test_a_site_signs_one_set_of_survivors_that_has_itself_in_it() -> None:
    sites, _, _ = all_masked()
    with refused("left out of a sum that it has answered"):
        sites["a"].agree("bcdef", SIGNING["a"])
    with refused("4 sites are left"):
        sites["a"].agree("abcd", SIGNING["a"])
    with refused("had left before"):
        sites["a"].agree("abcdeg", SIGNING["a"])
    state, signature = sites["a"].agree(NAMES, SIGNING["a"])
    assert state.agree(NAMES, SIGNING["a"])[1] == signature  # the same question, the same answer
    with refused("a second set of survivors"):
        state.agree("abcde", SIGNING["a"])


def test_nothing_is_unmasked_without_t_signatures_of_one_set() -> None:
    sites, keys, _ = all_masked()
    with refused("out of turn"):
        sites["a"].unmask({})
    state, _ = sites["a"].agree(NAMES, SIGNING["a"])
    good = {name: sites[name].agree(NAMES, SIGNING[name])[1] for name in NAMES}
    less = {name: SIGNING[name].sign(survivors_signed(SETTINGS, keys, tuple("abcde"))) for name in "bcdef"}
    before = {name: again.agree(NAMES, SIGNING[name])[1] for name, again in all_masked()[0].items()}
    with refused("4 sites are left"):
        state.unmask({name: good[name] for name in "abcd"})
    with refused("does not bear its signature"):
        state.unmask(less)
    with refused("does not bear its signature"):
        state.unmask({**good, "b": good["c"]})
    with refused("does not bear its signature"):  # of the same set, when the same terms came with other keys
        state.unmask(before)
    last, reply = state.unmask(good)
    assert not set(reply.seeds) & set(reply.mask_keys)
    assert (last.mask_key, last.seed, dict(last.shares)) == (b"", b"", {})
    for again in (lambda: last.unmask(good), lambda: last.agree(NAMES, SIGNING["a"])):
        with refused("this sum is finished"):
            again()


def test_a_wrong_share_is_noticed() -> None:
    sites, keys, sealed = started()
    masked = {}
    for name in "abcde":
        received = {other: boxes[name] for other, boxes in sealed.items() if other != name}
        sites[name], masked[name] = sites[name].mask(received, VECTORS[name])
    signatures = {}
    for name in "abcde":
        sites[name], signatures[name] = sites[name].agree("abcde", SIGNING[name])
    replies = [sites[name].unmask(signatures)[1] for name in "abcde"]
    wrong = replace(replies[0], mask_keys={"f": bytes(33)})
    with pytest.raises(SecureSumError, match=r"a site has sent a wrong one"):
        unmasked_sum(SETTINGS, keys, masked, NAMES, [wrong, *replies[1:]])
    assert np.array_equal(unmasked_sum(SETTINGS, keys, masked, NAMES, replies), sum(VECTORS[name] for name in "abcde"))


def both_secrets() -> Iterator[np.ndarray]:
    """The attack that step 3 is there for: one group is told that f has survived, the other that it is lost."""
    sites, keys, masked = all_masked()
    shares: dict[str, dict[str, bytes]] = {"seed": {}, "key": {}}
    for told in (NAMES, tuple("abcde")):
        for name in "abcde":
            state, _ = sites[name].agree(told, SIGNING[name])
            signed = {one: SIGNING[one].sign(survivors_signed(SETTINGS, keys, told)) for one in "abcde"}
            sites[name], reply = state, state.unmask(signed)[1]
            if "f" in reply.seeds:
                shares["seed"][name] = reply.seeds["f"]
            if "f" in reply.mask_keys:
                shares["key"][name] = reply.mask_keys["f"]
    weights = lagrange_weights([SETTINGS.position(name) for name in "abcde"])
    seed, key = (combine([shares[kind][name] for name in "abcde"], weights) for kind in ("seed", "key"))
    alone = masked["f"] - keystream(seed, SETTINGS.length)
    for other in "abcde":
        add_pair_mask(alone, pair_secret(SETTINGS, key, keys[other].mask_key), other, "f")  # what f took off or added
    yield alone.view(np.int64)


def test_two_sets_of_survivors_would_show_a_site_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused("a second set of survivors"):
        next(both_secrets())
    monkeypatch.setattr(SiteState, "_require", lambda self, condition, reason: None)
    assert np.array_equal(next(both_secrets()), VECTORS["f"])  # without the defence, the attack succeeds


def test_masked_vectors_are_uniform_and_independent_of_the_input() -> None:
    settings = replace(SETTINGS, length=20_000)
    inputs = {"zeros": np.zeros(20_000, np.int64), "large": np.full(20_000, 2**40)}
    found = {}
    for kind, vector in inputs.items():
        sites, _, sealed = started(settings)
        received = {other: boxes["a"] for other, boxes in sealed.items() if other != "a"}
        found[kind] = sites["a"].mask(received, vector)[1]
    for masked in found.values():
        counts = np.bincount(masked.view(np.uint8), minlength=256)
        assert stats.chisquare(counts).pvalue > 1e-4
    table = np.array(
        [np.bincount((one >> np.uint64(40)).astype(np.uint8) & 15, minlength=16) for one in found.values()]
    )
    assert stats.chi2_contingency(table).pvalue > 1e-4
