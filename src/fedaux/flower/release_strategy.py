"""What the strategies for an existing Flower app share: a server around the user's
network, and its one question.

A file keeps what the clients of an app are asked with, since their privacy accounts
identify a question by its bits.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg
from torch import nn

from fedaux.config.methods import find_method
from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.core.arrays import Arrays
from fedaux.core.errors import Exit, FedauxError, SettingsError
from fedaux.core.failures import Failure, Refusal
from fedaux.core.io import write_atomically
from fedaux.data.fingerprints import fingerprint_records
from fedaux.data.records import Records
from fedaux.data.user_rows import UserRecords
from fedaux.flower.federation import GridFederation
from fedaux.flower.serialization import from_array
from fedaux.flower.user_model import ACTION, FeaturesOf, UserExtractor
from fedaux.messages import PrepareOrder, Release
from fedaux.models import flatten_state, load_state
from fedaux.models.compute import place_by_settings
from fedaux.models.inference import predict
from fedaux.privacy.module_validation import validate_module
from fedaux.scoring.base import bound_function
from fedaux.scoring.public_data import PublicData
from fedaux.scoring.registry import make_scorer
from fedaux.server.networks import Networks
from fedaux.server.orders import Orders
from fedaux.server.preparation import collect_releases
from fedaux.server.run_state import RunState, pack, read
from fedaux.server.server import Server

log = logging.getLogger("flwr")  # where Flower's own strategies write
ONLY_PROTOTYPE = PrototypeSpec("model")  # the only prototype
MAX_REASON = 500  # characters to log: clients write some of the reasons
AUTO = "auto"  # the file that `default_file` names


class QuestionMismatchError(FedauxError, ValueError):
    """The file was kept by another app."""


def default_file(
    model: nn.Module,
    public: Records,
    privacy: Mapping[str, Any],
    classes: int,
    seed: int,
) -> Path:
    """Return a file in ~/.fedaux named by everything but the weights, which differ
    between runs of an unseeded app.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    facts = (
        type(model).__name__,
        sorted(shapes.items()),
        sorted(privacy.items()),
        classes,
        seed,
    )
    return (
        Path.home()
        / ".fedaux"
        / f"question-{fingerprint_records(public, facts)}.safetensors"
    )


def first_state(server: Server, label: str, keep: Path | None) -> RunState:
    """Return h0 and what the scorer publishes, from the model as it is or from the file
    that kept them.
    """
    extractor = server.networks.extractors[label]
    # every client would refuse it, and keep the reason to itself
    validate_module(extractor)
    state = RunState(server.config, 0, {})
    if keep is not None and keep.exists():
        own_weights = flatten_state(extractor)
        try:
            _, kept = read(keep)
            load_state(extractor, kept["extractors"][label])
        except ValueError as error:
            raise QuestionMismatchError(
                f"Cannot use keep = {str(keep)!r}: it is of another model. Name "
                "another file. To the clients that is another question, which they "
                "answer if their epsilon_total allows it."
            ) from error
        if any(
            not np.array_equal(own_weights[name], array)
            for name, array in kept["extractors"][label].items()
        ):
            text = (
                "clients are asked with the weights of the first run, which %s has "
                "kept, because the model has others now"
            )
            log.warning(text, keep)
        return replace(state, extractors=kept["extractors"], public=kept["public"])
    state = replace(state, extractors={label: flatten_state(extractor)})
    server.restore(state)
    state = replace(state, public=server.public.publish(server.scorer))
    if keep is not None:
        write_atomically(
            keep, pack({}, {"extractors": state.extractors, "public": state.public})
        )
    return state


class BudgetExhaustedError(FedauxError, RuntimeError):
    """Every client's budget is spent on another question."""

    code = Exit.PRIVACY


class NoReleaseError(FedauxError, RuntimeError):
    """No client has made a release, so none would teach."""

    code = Exit.CLIENTS


class ReleaseStrategy(FedAvg):
    """Flower's FedAvg with the client's releases: clients that are selected for the
    first time are asked for theirs.
    """

    def __init__(
        self,
        config: Config,
        model: nn.Module,
        features: str | FeaturesOf,
        public: Any,
        classes: int,
        keep: str | Path | None,
        **fedavg: Any,
    ) -> None:
        super().__init__(**fedavg)
        self._model = place_by_settings(copy.deepcopy(model), config.device, "float32")
        rows = UserRecords.of(public)
        width = predict(self._model, rows.take(np.arange(min(2, len(rows))))).shape[1:]
        if width != (classes,):
            raise SettingsError(
                f"Cannot use classes = {classes}: {type(model).__name__} gives {width} "
                "numbers for a row. Correct one of them."
            )
        extractor = UserExtractor(self._model, features)
        self.server = _server(config, self._model, extractor, rows, classes)
        if keep == AUTO:
            keep = default_file(
                model,
                self.server.public.aux,
                vars(config.privacy),
                classes,
                config.seed,
            )
        self.state = first_state(
            self.server,
            ONLY_PROTOTYPE.label,
            None if keep is None else Path(keep).expanduser(),
        )
        self._embedding = self.server.restore(self.state)
        self._sent = Arrays()

    @property
    def releases(self) -> dict[str, Release]:
        """The release of each client, by its node."""
        return self.state.releases

    @property
    def privacy(self) -> str:
        """A statement of what in this run is differentially private, and what is
        not.
        """
        return self.state.ledger.statement()

    def _load(self, server_round: int, arrays: ArrayRecord) -> None:
        """Begin a round with the app's arrays, which must be those of the network."""
        self._sent = {name: from_array(array) for name, array in arrays.items()}
        shapes = {
            name: tuple(tensor.shape)
            for name, tensor in self._model.state_dict().items()
        }
        if {name: array.shape for name, array in self._sent.items()} != shapes:
            raise SettingsError(
                f"Cannot continue: the arrays of round {server_round} are not those of "
                f"{type(self._model).__name__}. Start with initial_arrays = "
                "ArrayRecord(model.state_dict()), of the model that "
                f"{type(self).__name__} was given."
            )
        self._model.load_state_dict(arrays.to_torch_state_dict())
        self.state = replace(
            self.state,
            round=server_round - 1,
            weights={ONLY_PROTOTYPE.label: flatten_state(self._model)},
        )

    def _collect_releases(self, grid: Grid, nodes: dict[str, int]) -> list[Failure]:
        policy = self.server.config.federation
        bounds = bound_function(self.server.scorer)
        types: dict[type, str] = {PrepareOrder: f"query.{ACTION}"}
        federation = GridFederation(
            grid,
            nodes,
            policy.timeout,
            policy.max_records,
            bounds=bounds,
            message_types=types,
        )
        self.state, failures = collect_releases(
            self.server, federation, self.state, list(nodes)
        )
        self.state = replace(self.state, releases=_without_repeats(self.state.releases))
        for failure in failures:
            log.warning("node %s has %s", failure.client, failure.reason[:MAX_REASON])
        if failures and not self.state.releases:
            raise _no_release(failures)
        return failures


def _server(
    config: Config, model: nn.Module, extractor: nn.Module, rows: Records, classes: int
) -> Server:
    """The parts of a server around one network that this package has not built. Nothing
    is tested.
    """
    networks = Networks(
        {}, {ONLY_PROTOTYPE.label: extractor}, {ONLY_PROTOTYPE.label: model}
    )
    public = PublicData(rows, None, config.aux.negatives, config.seed)
    heads_only = find_method(config.method).sends == "releases"
    scorer = make_scorer(
        config.privacy, classes, config.data.clients, heads_only=heads_only
    )
    orders = Orders(
        config, classes, scorer, networks, public, lambda node: ONLY_PROTOTYPE
    )
    return Server(config, classes, (), networks, public, scorer, orders)


def _no_release(failures: list[Failure]) -> FedauxError:
    """Say why a run ends in which no one has made a release: it would be plain FedAvg,
    and look like success.
    """
    if all(_is_spent(failure) for failure in failures):
        return BudgetExhaustedError(
            f"Cannot continue: all {len(failures)} clients refuse to make a release "
            f"({Refusal.BUDGET.description}). They have answered another question "
            "before: another network, other weights, other public data or another "
            "scorer. Give `keep` the file of the run that they have answered, or let "
            "their owners raise epsilon_total."
        )
    reasons = "; ".join(
        f"node {failure.client} has {failure.reason[:MAX_REASON]}"
        for failure in failures[:3]
    )
    return NoReleaseError(
        f"Cannot continue: none of {len(failures)} clients has made a release, so none "
        f"would teach ({reasons}). Look at the log of a client for its reason, fix it, "
        "and start the run again: nothing is trained yet."
    )


def _is_spent(failure: Failure) -> bool:
    return failure.reason.endswith(Refusal.BUDGET.description)


def _without_repeats(releases: Mapping[str, Release]) -> dict[str, Release]:
    """A client whose node came back under a new id repeats its release bit for bit: the
    old id is forgotten.
    """
    latest = {
        release.arrays["values"].tobytes(): node for node, release in releases.items()
    }
    return {node: releases[node] for node in latest.values()}
