"""Mutations of what is made of private records: how they are read, what a network makes
of them, sums and noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from fedaux.client import held_out, summaries
from fedaux.data import federated, images, text
from fedaux.data.labels import DeclaredClasses
from fedaux.messages import Tallies
from fedaux.models.inference import predict_batches
from fedaux.privacy import accounting, dp_sgd, mechanism, module_validation, per_record
from fedaux.privacy.units import Units
from fedaux.scoring import class_moments, embedding, second_moments
from helpers.mutations.registry import fails, found_by

SOURCE_CONTRACT = "attacks/test_source_contract.py::test_one_record_changes_no_other"
PER_RECORD = "unit/privacy/test_per_record.py::test_integers_in_the_public_map_are_refused_and_too_many_bits_raise"
LOOKS = "attacks/test_looks.py"
HELD_OUT = "unit/client/test_held_out.py"
CLASS_MOMENTS = "unit/scoring/test_class_moments.py"
MODULE_VALIDATION = "unit/privacy/test_module_validation.py"
ONE_DRAW = 100  # a hundred draws show that noise is wrong altogether
MANY_DRAWS = 400  # so many show with certainty that it has half the scale
Integers = NDArray[np.int64]
Noise = Callable[[Integers, float], Integers]


# how records are read


@found_by("new-label")
def labels_by_record(patch: pytest.MonkeyPatch) -> None:
    """Labels are numbered from the records that are there."""
    patch.setattr(
        federated,
        "_cached_private",
        lambda data, classes: federated._open_corpus(data).train,
    )


@fails(
    SOURCE_CONTRACT,
    red="'<=' not supported between instances of 'int' and 'NoneType'",
    attack="17",
)
def every_label_is_a_number(patch: pytest.MonkeyPatch) -> None:
    """A label that is no number is compared with numbers."""
    patch.setattr(DeclaredClasses, "label", DeclaredClasses.by_number)


@fails(
    SOURCE_CONTRACT,
    red="test_one_record_changes_no_other[images-in train]",
    attack="16",
)
def guessed_split(patch: pytest.MonkeyPatch) -> None:
    """A sub-folder called train is taken for the training images."""
    subfolder = images.subfolder

    def guess(path: Path, name: str) -> Path:
        return path / "train" if (path / "train").is_dir() else subfolder(path, name)

    patch.setattr(images, "subfolder", guess)


@fails(
    SOURCE_CONTRACT,
    red="UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
    attack="19",
)
def odd_value_ends_in_an_error(patch: pytest.MonkeyPatch) -> None:
    """One value of a table that cannot be read ends in an error."""
    patch.setattr(text, "python_value", lambda scalar: scalar.as_py())


@fails(
    "unit/data/test_text.py::test_neighbouring_tables_differ_in_one_record",
    red=": nothing in ",
    attack="d",
)
def sources_do_not_know_the_classes(patch: pytest.MonkeyPatch) -> None:
    """A source of private records is not told which classes are declared."""
    patch.setattr(federated, "accepts", lambda source, option: False)


@found_by("person", "person-training")
def persons_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every record is a unit of its own."""
    of = Units.of
    patch.setattr(Units, "of", lambda records, unit, cap: of(records, "record", cap))


@found_by("person")
def cap_of_a_person_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """Each record of a person counts 1/cap, however many there are."""
    of = Units.of

    def uncapped(records: Any, unit: str, cap: int) -> Units:
        return Units(of(records, unit, 10**6).rows, np.full(len(records), 1 / cap))

    patch.setattr(Units, "of", uncapped)


# what a network makes of them


@found_by("text-length", "batch-shape-network")
def whole_batches(patch: pytest.MonkeyPatch) -> None:
    """Features of many records in one call: texts share a padding, rows a kernel,
    BatchNorm a mean.
    """
    patch.setattr(per_record, "outputs", predict_batches)


@found_by("drop-in-batchnorm")
def unchecked_modules(patch: pytest.MonkeyPatch) -> None:
    """What a network is made of is not looked at; it sees records in batches."""
    patch.setattr(per_record, "validate_module", lambda module, training=False: None)
    patch.setattr(per_record, "outputs", predict_batches)


@found_by("embedding-memory")
def trusted_modules(patch: pytest.MonkeyPatch) -> None:
    """What a network is made of is not looked at, before a pass or after it."""
    patch.setattr(per_record, "validate_module", lambda module, training=False: None)
    patch.setattr(per_record, "verified", lambda replicas, attempt: nullcontext())


@fails(
    "attacks/test_module_enumeration.py::test_a_module_that_does_not_keep_its_authors_word_is_caught",
    red="DID NOT RAISE ImpureModuleError",
    attack="15",
)
def changed_tensors_are_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """A pass over private records may write to any tensor of the network."""
    patch.setattr(per_record, "_version", lambda tensor: 0)
    patch.setattr(per_record, "_same_bits", lambda tensor, copied: True)


@fails(
    f"{MODULE_VALIDATION}::test_an_option_that_is_not_free_has_its_default",
    red="DID NOT RAISE UnsupportedModuleError",
    attack="15",
)
def embeddings_may_rewrite_their_weights(patch: pytest.MonkeyPatch) -> None:
    """An embedding may have a largest norm, to which each lookup shortens its
    weights.
    """
    free = module_validation.FREE_OPTIONS
    rewriting = free[nn.Embedding] | {"max_norm", "norm_type"}
    patch.setattr(module_validation, "FREE_OPTIONS", {**free, nn.Embedding: rewriting})


@found_by("functional-dropout")
@fails(
    f"{MODULE_VALIDATION}::test_functional_dropout_of_a_library_is_refused_in_training",
    red="DID NOT RAISE UnsupportedModuleError",
    attack="22",
)
def dropout_is_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    """A network may draw masks at random in private training."""
    patch.setattr(module_validation, "_dropouts", lambda module: [])


# sums


@found_by("batch-shape-map")
def matrix_product(patch: pytest.MonkeyPatch) -> None:
    """The public map is one product over all rows."""

    def project(rows: Any, mean: Any, basis: Any) -> Any:
        return (np.asarray(rows, np.float64) - mean) @ np.asarray(basis, np.float64)

    patch.setattr(summaries.embedding, "project", project)


@fails(PER_RECORD, red="DID NOT RAISE ValueError", attack="14")
def integers_are_features(patch: pytest.MonkeyPatch) -> None:
    """Features and the public map may be integers, which wrap."""
    patch.setattr(per_record, "_as_floats", lambda array: array)


@fails(PER_RECORD, red="DID NOT RAISE AssertionError", attack="14")
def bits_of_a_product_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """The integers of the public map may be too long for an exact product."""
    patch.setattr(per_record, "_check_bits", lambda steps, bits: None)


@fails(
    f"{CLASS_MOMENTS}::test_a_split_that_would_break_the_proof_is_refused_before_a_record_is_read",
    red="DID NOT RAISE OrderError",
    attack="14",
)
def split_has_any_norm(patch: pytest.MonkeyPatch) -> None:
    """The server may weigh first and second moments as it likes."""

    def any_split(public: Any) -> Any:
        return public["split"].astype(np.float64)

    for module in (class_moments, second_moments, summaries.moments):
        patch.setattr(module, "exact_split", any_split)


@fails(
    "attacks/test_sensitivity.py::test_a_label_turned_round_moves_a_signed_sum_by_its_whole_claim",
    red="1.41",
    attack="42",
)
def signed_sum_has_the_bound_of_class_sums(patch: pytest.MonkeyPatch) -> None:
    """A signed sum is taken for a sum of each class, which a record of another class
    moves by less.
    """

    def of_class_sums(split: Any, adjacency: str) -> float:
        padded = np.append(split, 0.0) if len(split) == 2 else split
        return second_moments.sensitivity(padded, adjacency)

    patch.setattr(class_moments, "sensitivity", of_class_sums)


@fails(
    f"{CLASS_MOMENTS}::test_a_map_that_would_fill_the_memory_is_refused",
    red="DID NOT RAISE OrderError",
    attack="10",
)
def second_moments_have_any_dimension(patch: pytest.MonkeyPatch) -> None:
    """A server may ask for second moments of any dimension."""
    patch.setattr(class_moments, "MAX_DIMENSION", 10**9)


@found_by("noise-scores", draws=MANY_DRAWS, slow=True)
def half_the_reach(patch: pytest.MonkeyPatch) -> None:
    """The sensitivity of a sum counts one of the two records that are exchanged."""
    patch.setattr(embedding, "SENSITIVITY", {"replace-one": 1.0, "add-remove": 1.0})


@found_by("noise-look", draws=MANY_DRAWS)
@fails(
    f"{LOOKS}::test_counts_of_neighbours_are_as_hard_to_tell_apart_as_claimed",
    red="<= 4.0",
    attack="43",
)
def tallies_are_paid_for_once(patch: pytest.MonkeyPatch) -> None:
    """The sensitivity of a look is that of one tally, however many it asks for."""
    sensitivity = Tallies.sensitivity

    def of_one(self: Tallies, adjacency: str) -> float:
        name, tally = next(iter(self.by_name.items()))
        return sensitivity(Tallies({name: tally}), adjacency)

    patch.setattr(Tallies, "sensitivity", of_one)


@fails(
    f"{HELD_OUT}::test_parts_of_neighbours_differ_in_one_record_at_most",
    red="assert",
    attack="44",
)
def places_decide_who_is_held_out(patch: pytest.MonkeyPatch) -> None:
    """Who is held out follows from a record's place in the file."""

    def by_place(records: Any, secret: bytes, unit: str) -> NDArray[np.uint64]:
        rng = np.random.default_rng(list(secret))
        return rng.integers(0, 2**64, len(records), np.uint64)

    patch.setattr(held_out, "unit_ranks", by_place)


# private training


@found_by("batch-shape-training")
def batched_gradients(patch: pytest.MonkeyPatch) -> None:
    """Gradients of all drawn records come from one pass over them."""

    def sums_received(workers: Any, records: Any, positions: Any, clip: float) -> Any:
        model = workers[0]
        rows = np.concatenate(positions)
        x = records.batch(rows)
        labels = torch.from_numpy(records.labels[rows])
        with torch.no_grad():
            error = torch.softmax(model(x), dim=1) - torch.nn.functional.one_hot(
                labels, model.head.out_features
            )
        gradients = torch.cat(
            [(error[:, :, None] * x[:, None, :]).flatten(1), error], dim=1
        )
        return dp_sgd.quantize(dp_sgd.clip_rows(gradients.double().numpy() / clip)).sum(
            axis=0
        )

    patch.setattr(dp_sgd, "sum_clipped_gradients", sums_received)


@found_by("person-training")
def gradients_of_a_person_are_summed(patch: pytest.MonkeyPatch) -> None:
    """A person's gradient is the sum of their records', each shortened by itself."""
    clipped = dp_sgd.clipped_unit_gradient

    def summed(
        model: Any, records: Any, labels: Any, rows: Sequence[int], clip: float
    ) -> Any:
        return sum(
            clipped(model, records, labels, rows[i : i + 1], clip)
            for i in range(len(rows))
        )

    patch.setattr(dp_sgd, "clipped_unit_gradient", summed)


@found_by("canaries", "noise-training", draws=ONE_DRAW)
def gradients_are_not_clipped(patch: pytest.MonkeyPatch) -> None:
    """Gradients are as long as they are."""
    patch.setattr(dp_sgd, "clip_rows", lambda rows: rows)
    patch.setattr(
        dp_sgd, "quantize", lambda rows: np.trunc(rows * 2**30).astype(np.int64)
    )


@fails(
    "unit/privacy/test_accounting.py::test_sampled_training_has_the_noise_that_bisection_finds_with_few_compositions",
    red="<= 8",
    attack="g",
)
def noise_is_guessed_badly(patch: pytest.MonkeyPatch) -> None:
    """The search for the noise of private training begins at a multiplier of 100."""
    patch.setattr(accounting, "_guess", lambda *target: 100.0)


# noise

_add_noise = mechanism.add_noise


@found_by("noise-look", "noise-scores", draws=MANY_DRAWS)
@found_by("noise-mean", "noise-drop-in", "noise-training", draws=MANY_DRAWS, slow=True)
def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    """Noise has half the scale that is claimed."""
    patch.setattr(
        mechanism, "add_noise", lambda values, scale: _add_noise(values, scale / 2)
    )


@found_by("noise-scores", "noise-training", draws=ONE_DRAW)
@found_by("noise-mean", "noise-drop-in", draws=ONE_DRAW, slow=True)
def noise_from_a_known_seed(patch: pytest.MonkeyPatch) -> None:
    """Everybody can compute the noise, and take it off."""

    def seeded(values: Integers, scale: float) -> Integers:
        noise = np.random.default_rng(3).normal(0, scale, len(values))
        return values + np.rint(noise).astype(np.int64)

    patch.setattr(mechanism, "add_noise", seeded)


@found_by("canaries")
def no_noise(patch: pytest.MonkeyPatch) -> None:
    """Nothing is added to a sum."""
    patch.setattr(mechanism, "add_noise", lambda values, scale: values)


@found_by("noise-scores", draws=ONE_DRAW)
def counts_without_noise(patch: pytest.MonkeyPatch) -> None:
    """The last number of each class stays bare."""

    def noise_on_embeddings(values: Integers, scale: float) -> Integers:
        noisy = _add_noise(values, scale)
        noisy[1::2] = values[1::2]
        return noisy

    patch.setattr(mechanism, "add_noise", noise_on_embeddings)
