"""Where the paper or its authors' code must not be followed: a check for each ruling
that ours passes and theirs fails.

Letters are the rows of the table in docs/rulings.md. Every test applies the same check
to both versions, so it fails if ours is replaced by theirs, and also if the check
itself goes blind.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, softmax

from fedaux.client.summaries import logistic as summaries
from fedaux.client.summaries import summarise
from fedaux.client.training import train_local
from fedaux.config.methods import METHODS, PAPER_METHODS
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.config.sections import PrivacyConfig
from fedaux.core.accounts import Account
from fedaux.core.results import RoundResult
from fedaux.data.federated import open_data
from fedaux.data.partition import AuxSplit
from fedaux.data.records import Records
from fedaux.methods.contribution import ModelSum
from fedaux.models import build, flatten_state
from fedaux.models.inference import predict_batches
from fedaux.models.optimizer import Optimizer
from fedaux.privacy import mechanism
from fedaux.privacy.ledger import Ledger
from fedaux.privacy.mechanism import GRID, Summary, release
from fedaux.scoring import logistic
from fedaux.scoring.base import Reference
from fedaux.scoring.embedding import ClassEmbeddingScorer
from fedaux.scoring.logistic import LogisticScorer
from fedaux.scoring.registry import make_scorer
from fedaux.scoring.teacher_weights import teacher_weights
from fedaux.server.loop import sample
from fedaux.server.result import FinishedRun
from fedaux.server.run_state import RunState

NONE = np.zeros(0, np.int64)  # for scorers that have no use for labels
Solver = Callable[[np.ndarray, np.ndarray, float], np.ndarray]


ACCOUNT = Account(0.1, 1e-5, "replace-one", "record", 1)


def ours(own: np.ndarray, negatives: np.ndarray, ridge: float) -> np.ndarray:
    """Release-free logistic scorer: w for raw features, in the embedded space."""
    scorer = LogisticScorer(ridge)
    found = summarise(
        scorer,
        scorer.publish(negatives),
        own,
        NONE,
        "replace-one",
        len(own),
        np.ones(len(own)),
    )
    return found.values * found.step


def erm(
    own: np.ndarray,
    negatives: np.ndarray,
    ridge: float,
    sign: float = -1.0,
    scale: float | None = None,
) -> np.ndarray:
    """The paper's eq. 5 to the letter, apart from what the arguments say: l(z) = log(1
    + e^{sign·z}).
    """
    rows = np.concatenate([own, negatives])
    labels = np.concatenate([np.ones(len(own)), -np.ones(len(negatives))])
    rows = rows / (np.linalg.norm(rows, axis=1).max() if scale is None else scale)

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = labels * (rows @ w)
        slopes = sign * labels * expit(sign * margins)
        return float(
            np.logaddexp(0, sign * margins).mean() + ridge / 2 * w @ w
        ), slopes @ rows / len(rows) + ridge * w

    return np.asarray(
        minimize(loss, np.zeros(rows.shape[1]), jac=True, options={"gtol": 1e-10}).x
    )


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return np.abs(rng.normal(size=(1000, 8)) + np.eye(8)[0]), np.abs(
        rng.normal(size=(3000, 8))
    )


def caught(check: Callable[..., None], *theirs: object) -> None:
    with pytest.raises(AssertionError):
        check(*theirs)


def test_a_scores_are_high_on_client_data() -> None:
    rng = np.random.default_rng(0)
    own, negatives = rng.normal(size=(200, 8)) + 1, rng.normal(size=(200, 8)) - 1

    def check(w: np.ndarray) -> None:
        assert (own @ w).mean() > (negatives @ w).mean()

    check(ours(own, negatives, 0.01))
    caught(check, erm(own, negatives, 0.01, sign=+1.0))


def test_b_the_radius_is_public(data: tuple[np.ndarray, np.ndarray]) -> None:
    """One record of 100 times the usual norm rescales all others if the largest private
    norm is the unit.
    """
    own, negatives = data
    neighbour = own.copy()
    neighbour[0] *= 100
    ridge = 0.01

    def check(solver: Solver) -> None:
        moved = np.linalg.norm(
            solver(own, negatives, ridge) - solver(neighbour, negatives, ridge)
        )
        assert moved <= logistic.sensitivity(4000, ridge, "replace-one") * 1.01

    check(ours)
    caught(check, erm)
    theirs = np.linalg.norm(
        erm(own, negatives, ridge) - erm(neighbour, negatives, ridge)
    )
    assert theirs > 30 * logistic.sensitivity(4000, ridge, "replace-one")


def test_b_nothing_but_the_noisy_vector_is_sent(
    data: tuple[np.ndarray, np.ndarray],
) -> None:
    """No γ_i: two clients whose data differ only in scale send releases that differ in
    the vector alone.
    """
    scorer = ClassEmbeddingScorer(2, 4)
    public = scorer.publish(data[1])
    made = [
        release(
            summarise(
                scorer,
                public,
                factor * data[0],
                np.arange(len(data[0])) % 2,
                "replace-one",
                1000,
                np.ones(len(data[0])),
            ),
            "a",
            PrivacyConfig(epsilon=1.0),
        )
        for factor in (1.0, 7.0)
    ]
    plain = [
        {name: value for name, value in vars(one).items() if name != "arrays"}
        for one in made
    ]
    assert plain[0] == plain[1]
    assert set(made[0].arrays) == {"values"}


def test_c_noise_is_neither_too_little_nor_too_much() -> None:
    def classic(epsilon: float, delta: float) -> float:
        return float(np.sqrt(2 * np.log(1.25 / delta)) / epsilon)

    def check(multiplier: Callable[[float, float], float], epsilon: float) -> None:
        assert 0.99e-5 < mechanism.delta_of(multiplier(epsilon, 1e-5), epsilon) <= 1e-5

    def ours(epsilon: float, delta: float) -> float:
        return mechanism.multiplier(epsilon, delta, "analytic", 330, 2.0 * GRID)

    for epsilon in (0.1, 1.0, 10.0):
        check(ours, epsilon)
        caught(check, classic, epsilon)
    assert classic(0.1, 1e-5) == pytest.approx(48.45, abs=0.01)
    # the promise is broken where ε > 1
    assert mechanism.delta_of(classic(10.0, 1e-5), 10.0) > 2e-5


def test_d_the_noise_counts_the_negatives_not_all_auxiliary_data() -> None:
    rng = np.random.default_rng(1)
    own, aux = rng.normal(size=(50, 6)), rng.normal(size=(1000, 6))
    split = AuxSplit.draw(1000, 0.2, rng)
    scorer = LogisticScorer(0.05)
    found = summarise(
        scorer,
        scorer.publish(aux[split.negatives]),
        own,
        NONE,
        "replace-one",
        50,
        np.ones(len(own)),
    )

    def check(sensitivity: float) -> None:
        assert sensitivity >= 2 / (0.05 * (50 + 200))

    check(found.sensitivity * found.step)
    caught(check, 2 / (0.05 * (50 + 1000)))


def test_e_the_released_point_is_the_minimiser() -> None:
    rng = np.random.default_rng(2)
    own, negatives = rng.normal(size=(400, 40)), rng.normal(size=(1600, 40))
    own, negatives = (
        rows / np.linalg.norm(rows, axis=1).max() for rows in (own + 1, negatives)
    )

    def check(w: np.ndarray) -> None:
        gradient = summaries.objective(
            w, own, np.ones(len(own)), negatives, 1e-3, 2000
        )[1]
        assert np.linalg.norm(gradient) <= 1e-3 * 2 / 2000

    check(summaries.solve(own, np.ones(len(own)), negatives, 1e-3, 2000))
    stopped = minimize(
        summaries.objective,
        np.zeros(40),
        (own, np.ones(len(own)), negatives, 1e-3, 2000),
        jac=True,
        tol=1e-4,
        method="L-BFGS-B",
    )
    caught(check, stopped.x)


def test_f_each_adjacency_has_its_own_constant() -> None:
    """Misfit records of opposite tilt: more than √2/(λN) apart, so neither √2 nor
    add/remove's 1 would do.
    """
    tilt, ridge, many = np.deg2rad(75), 0.005, 20_000
    negatives = np.tile([1.0, 0.0], (many, 1))
    pair = [np.array([[np.cos(tilt), side * np.sin(tilt)]]) for side in (1, -1)]
    moved = float(
        np.linalg.norm(
            np.subtract(
                *(
                    summaries.solve(row, np.ones(len(row)), negatives, ridge, many + 1)
                    for row in pair
                )
            )
        )
    )

    def check(bound: float) -> None:
        assert moved <= bound

    check(logistic.sensitivity(many + 1, ridge, "replace-one"))
    caught(check, np.sqrt(2) / (ridge * (many + 1)))
    caught(check, logistic.sensitivity(many + 1, ridge, "add-remove"))
    with pytest.raises(ValueError, match="replace-one, add-remove"):
        PrivacyConfig(adjacency="whatever")


def test_g_the_noise_is_whole_numbers_from_no_seed() -> None:
    summary = Summary(np.zeros(16, np.int64), 1e-6, 2.0**21, "replace-one", 100)

    def check(draw: Callable[[], np.ndarray]) -> None:
        states = []
        for _ in range(2):
            np.random.seed(0)  # noqa: NPY002
            torch.manual_seed(0)
            states.append(draw())
        assert np.issubdtype(states[0].dtype, np.integer)
        assert not np.array_equal(*states)

    check(lambda: release(summary, "a", PrivacyConfig(epsilon=1.0)).arrays["values"])
    caught(check, lambda: np.random.default_rng(0).normal(size=16))
    caught(check, lambda: torch.randn(16).numpy())
    seeded = release(summary, "a", PrivacyConfig(unsafe_seed=1))
    assert seeded.unsafe
    assert "NOT PRIVATE" in Ledger({"a": seeded}, {"a": ACCOUNT}).statement()


@pytest.mark.parametrize("scorer", [ClassEmbeddingScorer(2, 4), LogisticScorer(0.01)])
def test_h_the_mean_does_not_eat_the_norm(
    scorer: ClassEmbeddingScorer | LogisticScorer, data: tuple[np.ndarray, np.ndarray]
) -> None:
    negatives = data[1] + 3.0  # rectified features: far from the origin

    def check(embedded: np.ndarray) -> None:
        assert (
            np.linalg.norm(embedded.mean(axis=0))
            < 0.3 * np.linalg.norm(embedded, axis=1).mean()
        )

    check(scorer.embed(scorer.publish(negatives), negatives))
    caught(check, negatives / np.linalg.norm(negatives, axis=1).max())


def test_i_the_default_scorer_has_a_signal_and_the_papers_is_kept() -> None:
    """Ten clients with a cluster each: literal eq. 5 at λ = 0.1 weighs them all alike,
    the default does not.
    """
    rng = np.random.default_rng(3)
    centres = np.abs(rng.normal(size=(10, 32)))
    clients = [np.abs(centre + 0.3 * rng.normal(size=(625, 32))) for centre in centres]
    public = np.concatenate(
        [np.abs(centre + 0.3 * rng.normal(size=(300, 32))) for centre in centres]
    )

    def check(scores: np.ndarray) -> None:
        shares = scores / scores.sum(axis=0)
        # effective number of teachers, of ten
        assert np.mean(1 / np.square(shares).sum(axis=0)) < 7

    default = make_scorer(Config().privacy, 10)
    facts = default.publish(public)
    reference = default.embed(facts, public)
    sent = []
    for i, own in enumerate(clients):
        made = summarise(
            default, facts, own, np.full(625, i), "replace-one", 625, np.ones(625)
        )
        sent.append(release(made, f"c{i}", PrivacyConfig(epsilon=1.0)))
    fitted = default.fit(facts, Reference(np.asarray(reference, np.float64)), sent)
    seen = reference if fitted.transform is None else fitted.transform(reference)
    odds = np.stack([one(seen) for one in fitted.log_odds.values()])
    check(teacher_weights(odds, odds.max(axis=0), "odds"))
    norm = np.linalg.norm(np.concatenate([*clients, public]), axis=1).max()
    literal = np.stack(
        [expit(public / norm @ erm(own, public, 0.1)) for own in clients]
    )
    caught(check, literal)
    assert Config().privacy.scorer == "class-embedding"
    assert PrivacyConfig(scorer="logistic").scorer == "logistic"


def test_j_the_statement_says_what_it_leaves_out() -> None:
    summary = Summary(np.zeros(4, np.int64), 1e-6, 2.0**21, "replace-one", 100)

    def check(words: str) -> None:
        assert "Not covered: local models, their losses" in words

    check(
        Ledger(
            {"a": release(summary, "a", PrivacyConfig(epsilon=0.1))}, {"a": ACCOUNT}
        ).statement()
    )
    caught(check, "The total privacy cost is (0.1, 1e-05).")


def test_k_a_private_record_equal_to_a_public_one_relabels_nothing() -> None:
    """By set membership, taking on a record that is also public flips the label of the
    public one: twice the reach.
    """
    rng = np.random.default_rng(4)
    negatives = rng.normal(size=(40, 3))
    negatives /= np.linalg.norm(negatives, axis=1).max()
    twin = negatives[np.linalg.norm(negatives, axis=1).argmax()]
    rest, w = 0.1 * rng.normal(size=(9, 3)), 40 * twin

    def by_membership(own: np.ndarray) -> np.ndarray:
        rows = np.concatenate([own, negatives])
        labels = np.array(
            [
                1.0 if any(np.array_equal(row, mine) for mine in own) else -1.0
                for row in rows
            ]
        )
        return -(labels * expit(-labels * (rows @ w))) @ rows / len(rows)

    def by_index(own: np.ndarray) -> np.ndarray:
        return summaries.objective(w, own, np.ones(len(own)), negatives, 0.0, 50)[1]

    def check(gradient: Callable[[np.ndarray], np.ndarray]) -> None:
        """Exchanging the record −twin for twin."""
        moved = gradient(np.vstack([rest, twin])) - gradient(np.vstack([rest, -twin]))
        assert (
            np.linalg.norm(moved)
            <= 1.0 * logistic.gradient_sensitivity(50, "replace-one") / 2 + 1e-9
        )

    check(by_index)
    caught(check, by_membership)


def test_l_odds_do_not_saturate() -> None:
    """Two Gaussian clients: s_i/Σs_j must follow D_i/ΣD_j (Mansour et al.), also where
    both are sure.
    """
    x = np.linspace(-3, 3, 61)
    log_density = np.stack([-((x - at) ** 2) / 2 for at in (-1.0, 1.0)])
    log_odds = log_density + 12.0  # both clients are far denser than the negatives here

    def check(kind: str) -> None:
        weights = np.stack(
            [teacher_weights(one, log_odds.max(axis=0), kind) for one in log_odds]
        )
        assert np.allclose(
            weights / weights.sum(axis=0), softmax(log_density, axis=0), atol=0.01
        )

    check("odds")
    caught(check, "certainty")


def test_m_negatives_and_distillation_data_are_disjoint() -> None:
    found = AuxSplit.draw(1000, 0.2, np.random.default_rng(0))
    assert not set(found.negatives) & set(found.distill)
    assert (len(found.negatives), len(found.distill)) == (200, 800)
    with pytest.raises(ValueError, match="disjoint"):
        AuxSplit(np.arange(0, 200), np.arange(100, 1000))


def test_m_batchnorm_is_in_eval_mode_for_whoever_only_looks() -> None:
    rng = np.random.default_rng(5)
    records = Records(
        rng.normal(size=(64, 4)).astype(np.float32),
        (np.arange(64) % 2).astype(np.int64),
    )
    model = build(PrototypeSpec.of("mlp", norm="batch"), (4,), 2, 0)
    generator = torch.Generator().manual_seed(0)
    train_local(
        model,
        records,
        epochs=1,
        batch_size=16,
        optimizer=Optimizer(lr=1e-2),
        generator=generator,
    )

    def check(predict: Callable[[Records], np.ndarray]) -> None:
        assert np.allclose(
            predict(records)[:8], predict(records.take(np.arange(8))), atol=1e-5
        )

    check(lambda rows: np.concatenate([out for _, out in predict_batches(model, rows)]))

    def in_train_mode(rows: Records) -> np.ndarray:
        with torch.no_grad():
            return model.train()(rows.tensor()).numpy()

    caught(check, in_train_mode)


def test_m_averages_are_weighted_and_keep_buffers() -> None:
    spec = PrototypeSpec.of("mlp", norm="batch")
    updates = [flatten_state(build(spec, (4,), 2, seed)) for seed in (0, 1)]
    updates[1]["buffers"] = updates[1]["buffers"] + 4
    total = ModelSum()
    for weights, records in zip(updates, (10, 30), strict=True):
        total.merge(ModelSum.of(weights, records))

    def check(average: dict[str, np.ndarray]) -> None:
        for name in ("parameters", "buffers"):
            assert np.allclose(
                average[name],
                0.25 * updates[0][name] + 0.75 * updates[1][name],
                atol=1e-6,
            )

    check(total.average())
    caught(
        check, {name: (updates[0][name] + updates[1][name]) / 2 for name in updates[0]}
    )
    caught(check, {**total.average(), "buffers": updates[0]["buffers"]})


def test_m_plain_fedprox_is_not_pretrained() -> None:
    def check(pretrained: Callable[[str], bool]) -> None:
        assert [name for name in PAPER_METHODS if pretrained(name)] == [
            "fedavg+p",
            "fedprox+p",
            "feddf+p",
            "fedbe+p",
            "fedaux",
        ]

    check(lambda name: METHODS[name].pretrained)
    caught(check, lambda name: "P" in name.upper() or name == "fedaux")


def test_m_clients_are_drawn_from_the_runs_seed() -> None:
    clients = [f"c{i}" for i in range(50)]

    def check(draw: Callable[[], list[str]]) -> None:
        assert draw() == draw()

    config = Config(fraction=0.4)
    check(lambda: sample(clients, config, round_=3)[1])
    caught(check, lambda: list(np.random.permutation(clients)[:20]))  # noqa: NPY002
    assert sample(clients, config, round_=3) != sample(clients, config, round_=4)
    assert sample(clients, replace(config, seed=1), round_=3) != sample(
        clients, config, round_=3
    )
    wanted, drawn = sample(clients, config, round_=1)
    assert wanted == len(drawn) == 20


def test_m_pretraining_never_sees_a_label() -> None:
    assert open_data(Config()).aux.y is None


def test_m_the_last_round_is_reported_not_the_best(tmp_path: object) -> None:
    history = tuple(
        RoundResult(t, {"mlp": value}, {}) for t, value in enumerate((0.2, 0.9, 0.6), 1)
    )
    result = FinishedRun(RunState(Config(), 3, {}, history=history), tmp_path)  # type: ignore[arg-type]

    def check(reported: float) -> None:
        assert reported == 0.6

    check(result.accuracy)
    caught(check, max(result.curve))


def test_n_width_is_part_of_a_prototypes_name() -> None:
    wide, narrow = PrototypeSpec("resnet8"), PrototypeSpec.of("resnet8", width=16)
    sizes = [
        sum(p.numel() for p in build(spec, (3, 32, 32), 10, 0).features.parameters())
        for spec in (wide, narrow)
    ]
    assert sizes[0] == 4_898_112
    assert sizes[1] < 0.1 * sizes[0]
    assert "16" in narrow.label
