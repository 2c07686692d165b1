"""The one gate of a site: which orders are answered at all, by the owner's own
settings. Anything else is refused.

Every order passes `admit` before any handler sees it (`client.handlers.answer`). The
table is deny by default: an order is answered only if it asks for something that
`site.toml` lists under `sends`, with the method, the networks, the classes and the
sizes of the site's own settings. Nothing is read from records here, so a refusal
reveals nothing.

| order | what must be in `sends` | further conditions |
|---|---|---|
| HelloOrder, PlanOrder | – | – |
| PrepareOrder | noisy sums | the site's own scorer |
| SumsOrder | sums, second moments, … | own method or `head_init` makes a head of them |
| TrainOrder | models, noisy if private | own method and options, few enough epochs |
| LookOrder | noisy counts | `privacy.look_epsilon`, bins that each record is in once, own columns |
| SumOrder | – | `federation.secure`. The order that began the sum is admitted again |

Each of the middle four must ask for a secure sum if `federation.secure` is set, and
must not if it is not. With `approval = "ask"` it must also belong to a plan that the
owner has approved (`client.approvals`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fedaux.client.approvals import check_approval
from fedaux.client.site import Site
from fedaux.config.methods import allowed_sums, find_method
from fedaux.config.schema import Config
from fedaux.config.sends import (
    MODELS,
    NOISY_COUNTS,
    NOISY_MODELS,
    NOISY_SUMS,
    needed_by,
    word_for_sums,
)
from fedaux.core.arrays import Arrays
from fedaux.core.errors import SettingsError
from fedaux.core.failures import OrderError
from fedaux.data.federated import class_names
from fedaux.data.tables import schema_of
from fedaux.messages import (
    DataOrder,
    EveryOrder,
    HelloOrder,
    LookOrder,
    PlanOrder,
    PrepareOrder,
    RunPlan,
    SumOrder,
    SumsOrder,
    Tallies,
    TrainOrder,
)
from fedaux.messages.plan import KIND_OF_ORDER
from fedaux.methods.hooks import Hooks, hooks_of


def admit(order: EveryOrder, site: Site) -> None:
    """Raise an error unless the owner's settings allow the order."""
    if type(order) not in _GATES:
        raise OrderError(
            f"Cannot answer a {type(order).__name__}: sites do not know such orders. "
            "Install the same version of fedaux at the server and the sites."
        )
    if not isinstance(order, HelloOrder):
        check_name(order.client, site)
    _GATES[type(order)](order, site)


def word_of(kind: str, facts: Mapping[str, Any], site: Site) -> str:
    """Return what would leave for an order of this kind with these fields, in the words
    of `sends`.
    """
    if kind == "release":
        return NOISY_SUMS
    if kind == "sums":
        return word_for_sums(str(facts.get("sends", "")), site.sends)
    if kind == "train":
        return NOISY_MODELS if site.config.privacy.private_training else MODELS
    if kind == "look":
        return NOISY_COUNTS
    raise OrderError(
        f"Cannot read the plan of the run: it asks for {kind!r}, which this version "
        "does not know. Install the same version of fedaux at the server and the sites."
    )


def check_name(client: str, site: Site) -> None:
    if client not in site.clients:
        raise OrderError(
            f"Cannot answer for {client!r}: this site is {', '.join(site.clients)}. "
            "Correct the names in the settings of the server or of the site."
        )


def check_word(word: str, site: Site) -> None:
    """Raise an error unless the owner lists what would leave."""
    config = site.config
    allowed = site.sends
    if not allowed:
        needed = ", ".join(f'"{name}"' for name in needed_by(config))
        raise SettingsError(
            "Cannot answer: site.toml does not list what may leave this site. Add "
            f"sends to its [federation]. For method = {config.method!r} that is sends "
            f"= [{needed}]."
        )
    if word not in allowed:
        raise OrderError(
            f"Cannot send {word}: this site's settings allow {', '.join(allowed)}. Ask "
            "its owner, who can allow more by federation.sends in site.toml."
        )


def admit_plan(order: PlanOrder, site: Site) -> None:
    """Check the plan of a run before an owner is asked: what the settings do not allow
    needs no decision.
    """
    plan = RunPlan.from_json(order.plan)
    plan.check()
    config = site.config
    for ask in plan.asks:
        check_word(word_of(ask.kind, ask.facts, site), site)
        check_network(ask.facts["prototype"], config)
    check_method(plan.method, config)
    _check_secure(plan.secure, config)
    check_schema_hash(plan.schema, config)


def admit_run(server: Config, site: Site) -> None:
    """Raise an error unless the settings of a site admit what a run with the server's
    will order, as far as settings decide it.
    """
    config = site.config
    for word in needed_by(server):
        check_word(word, site)
    check_method(server.method, config)
    for spec in server.prototypes:
        check_network(spec.to_json(), config)
    _check_secure(server.federation.secure, config)
    check_sizes(server.random_features, config)
    if server.releases:
        check_scorer(server.privacy.scorer, config)
    head = server.analytic_head
    if head is not None and head.sums:
        check_head(head.sends, config)
    if server.tests_at_sites:
        check_looks(config)
    if not server.trains:
        return
    check_options(json.dumps(dict(server.method_options)), config)
    check_epochs(server.local_training.epochs, config)
    check_part(server.head_only, config)


def admit_release(order: PrepareOrder, site: Site) -> None:
    _admit_data(order, site)
    check_scorer(order.scorer, site.config)


def admit_sums(order: SumsOrder, site: Site) -> None:
    _admit_data(order, site)
    config = site.config
    check_head(order.sends, config)
    check_sizes(order.random_features, config)


def admit_training(order: TrainOrder, site: Site) -> None:
    _admit_data(order, site)
    config = site.config
    check_method(order.method, config)
    check_options(order.method_options, config)
    check_epochs(order.epochs, config)
    check_sizes(order.random_features, config)
    check_part(bool(order.h0), config)
    if order.client_fit and order.sum:
        raise OrderError(
            "Cannot add a fit of one site to a secure sum: its sites must be asked the "
            "same. Install the same version of fedaux at the server and the sites."
        )
    own_hooks(order, config)


def admit_look(order: LookOrder, site: Site) -> None:
    _admit_data(order, site)
    tallies = Tallies.from_json(order.tallies)
    check_looks(site.config, tallies.needs_model)
    check_sizes(order.random_features, site.config)
    tallies.check(order.classes)
    check_columns(tallies, site.config)
    if tallies.size(order.classes) != order.size:
        raise OrderError(
            f"Cannot count: the order says that there are {order.size} bins, and its "
            f"tallies have {tallies.size(order.classes)}. Install the same version of "
            "fedaux at the server and the sites."
        )


def admit_step(order: SumOrder, site: Site) -> None:
    """One of the later messages of a secure sum. The order that began it is admitted
    for itself.
    """
    if not site.config.federation.secure:
        raise OrderError(
            "Cannot take part in a secure sum: federation.secure is false in this "
            "site's settings. Set it to the same value at the server and at every site."
        )


def _admit_data(order: DataOrder, site: Site) -> None:
    """Check what all orders for private records have in common."""
    config = site.config
    check_word(word_of(KIND_OF_ORDER[type(order)], vars(order), site), site)
    check_network(order.prototype, config)
    _check_secure(bool(order.sum), config)
    declared = len(class_names(config, order.client))
    if order.classes != declared:
        raise OrderError(
            f"Cannot answer for {order.classes} classes: {declared} are declared to "
            "this site. Declare the same classes at the server and at every site."
        )
    check_approval(order, site)


_GATES: dict[type, Callable[[Any, Site], None]] = {
    HelloOrder: lambda order, site: None,
    PlanOrder: admit_plan,
    PrepareOrder: admit_release,
    SumsOrder: admit_sums,
    TrainOrder: admit_training,
    LookOrder: admit_look,
    SumOrder: admit_step,
}


def check_network(prototype: str, config: Config) -> None:
    """Raise an error unless the network is the site's own: another one might name code,
    or be too large.
    """
    if prototype not in [spec.to_json() for spec in config.prototypes]:
        raise OrderError(
            f"Cannot use the network {prototype[:200]}: this site's settings list "
            f"{', '.join(spec.label for spec in config.prototypes)}. Set the same "
            "prototypes at the server and at every site."
        )


def _check_secure(secure: bool, config: Config) -> None:
    if secure == config.federation.secure:
        return
    if secure:
        raise OrderError(
            "Cannot take part in a secure sum: federation.secure is false in this "
            "site's settings. Set it to the same value at the server and at every site."
        )
    raise OrderError(
        "Cannot answer this order: this site takes part in secure sums only "
        "(federation.secure). Set federation.secure to the same value at the server "
        "and at every site."
    )


def check_schema_hash(schema: str, config: Config) -> None:
    """Raise an error if the site's own records are those of a table with another schema
    than the run's: they would become other numbers than everyone else's.
    """
    own = schema_of(config.data)
    if own is None or not schema or schema == own.hash:
        return
    raise OrderError(
        f"Cannot take part: the run's schema of the table has the hash {schema}, and "
        f"this site's own has {own.hash}. Ask the server for its schema.toml, and "
        "compare the columns."
    )


def check_method(method: str, config: Config) -> None:
    """Raise an error unless the method is the one of the site's own settings, which
    alone make it import code.
    """
    if method != config.method:
        raise OrderError(
            f"Cannot train with the method {method!r}: this site's settings have "
            f"{config.method!r}. Ask its owner, who can set method in site.toml."
        )


def check_options(options: str, config: Config) -> None:
    """Raise an error unless the method's options, as JSON, are the site's own."""
    own = dict(config.method_options)
    if json.loads(options) != json.loads(json.dumps(own)):
        raise OrderError(
            f"Cannot train with the options {options}: this site's settings have "
            f"{own}. Set the same method_options at the server and at every site."
        )


def check_scorer(scorer: str, config: Config) -> None:
    own = config.privacy.scorer
    if scorer != own:
        raise OrderError(
            f"Cannot release with the scorer {scorer!r}: this site's settings have "
            f"{own!r}. Set the same privacy.scorer at the server and at every site."
        )


def check_looks(config: Config, of_model: bool = True) -> None:
    """Raise an error unless the owner allows looks, and for one at a model holds
    records out.
    """
    if config.privacy.look_epsilon == 0 and not of_model:
        raise OrderError(
            "Cannot answer a look: this site's settings allow none. Ask its owner, "
            "who can set privacy.look_epsilon in site.toml."
        )
    if of_model and (config.privacy.look_epsilon == 0 or not config.tests_at_sites):
        raise OrderError(
            "Cannot answer a look: this site's settings hold out no records for "
            "it. Ask its owner to set data.site_test_fraction and privacy.look_epsilon "
            "in site.toml."
        )


def check_columns(tallies: Tallies, config: Config) -> None:
    """Raise an error unless the columns that are counted by are those of the site's own
    schema.
    """
    schema = schema_of(config.data)
    for tally in tallies.columns:
        if schema is None or tally.column not in schema.columns:
            raise OrderError(
                f"Cannot count by the column {tally.column!r}: this site's own schema "
                "does not have it. Give the server and every site the same schema.toml."
            )
        if tally.values != schema.columns[tally.column].values:
            raise OrderError(
                f"Cannot count by the column {tally.column!r}: its values are not "
                "those of this site's own schema. Give the server and every site the "
                "same schema.toml."
            )


def check_head(sends: str, config: Config) -> None:
    """Raise an error unless the site's own settings compute a head from such sums."""
    head = config.analytic_head
    if head is None or sends not in allowed_sums(head.sends):
        raise OrderError(
            f"Cannot send {sends} of features: neither method nor head_init of this "
            "site's settings computes a head from them. Set the same method and "
            "head_init at the server and at every site."
        )


def check_epochs(epochs: int, config: Config) -> None:
    allowed = max(config.federation.max_epochs, config.local.epochs)
    if epochs > allowed:
        raise OrderError(
            f"Cannot train for {epochs} epochs in a round: this site allows {allowed}. "
            "Ask its owner, who can allow more by federation.max_epochs."
        )


def check_sizes(random_features: int, config: Config) -> None:
    """Raise an error unless the random features, whose number decides how much memory
    it takes, are the site's own.
    """
    if random_features != config.random_features:
        raise OrderError(
            f"Cannot use {random_features} random features: this site's settings have "
            f"random_features = {config.random_features}. Set the same number at the "
            "server and at every site."
        )


def check_part(head_only: bool, config: Config) -> None:
    """Raise an error unless as much of the network is trained as the owner's settings
    say: the head, or all of it.
    """
    if head_only != config.head_only:
        raise OrderError(
            f"Cannot train {'only the head' if head_only else 'a whole network'}: this "
            f"site's settings have head_only = {str(config.head_only).lower()}. Set "
            "the same value at the server and at every site."
        )


def own_hooks(order: TrainOrder, config: Config) -> Hooks:
    """Return the hooks of the site's own method; raise an error unless the order has
    the arrays that they need.
    """
    hooks = hooks_of(config.method, dict(config.method_options))
    theta = np.zeros(0)
    if "parameters" in order.weights:
        theta = np.zeros(order.weights["parameters"].shape, np.float32)
    expected = array_shapes(hooks.broadcast(hooks.server_state(theta)))
    sent = array_shapes(order.broadcast)
    if sent != expected:
        label = find_method(config.method).label
        raise OrderError(
            f"Cannot train: next to the model, {label} sends arrays of the shapes "
            f"{expected}, and the order has {sent}. Install the same version of fedaux "
            "at the server and the sites."
        )
    return hooks


def array_shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}
