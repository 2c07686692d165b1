"""The initial settings of a server and its sites, with the comments for their TOML files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedaux.config.methods import find_method
from fedaux.config.schema import Config
from fedaux.config.sections import AuxConfig, DataConfig, FederationConfig

SERVER_HEAD = """\
The server's settings: what is learned, how long, and from whom.
A site's own site.toml decides what it reveals; nothing in this file can change that.
Paths may be relative to this folder. Every key that is left out has a default."""

SERVER_NOTES = {
    "method": "fedaux, or feddf+p, fedavg+p, ... : `fedaux compare --help`",
    "rounds": "",
    "prototypes": "networks, dealt to the sites in turn",
    "data.source": "labelled TEST data, held by the server: npy, npz, images, csv, jsonl, parquet, huggingface,\n"
    "or module:function; "
    'for example source = "npy", path = "test" with test/x.npy and test/y.npy',
    "data.path": "",
    "data.classes": "names of the labels, the same at the server and at every site; left empty, they are the lines of\n"
    "a file classes.txt beside the data",
    "data.partition": "real sites: nothing here is split",
    "aux.source": "PUBLIC data without labels: what the extractor learns from and what models are distilled on",
    "aux.path": "",
    "privacy.scorer": "what the server asks for; a site answers only if its own settings say the same",
    "federation.sites": "the sites, by the names in their own settings",
    "federation.registered_only": "a key answers only for the name under which register.sh has registered it",
    "federation.connect_timeout": "seconds for the sites to come up",
    "federation.timeout": "seconds for the replies of a round; a site that is later misses the round",
    "federation.quorum": "share of the sites that a round needs",
}

SITE_HEAD = """\
The settings of the site {name}. They alone decide what it reveals: no server can change or overrule them.
Paths may be relative to this folder. Every key that is left out has a default."""

SITE_NOTES = {
    "rounds": "private training is planned for so many rounds, unless privacy.train_rounds says otherwise",
    "prototypes": "the networks that this site trains: an order for any other, or for another size of one, is refused",
    "data.source": "this site's PRIVATE records with labels: npy, npz, images, csv, jsonl, parquet, huggingface,\n"
    "or module:function; "
    'for example source = "npy", path = "records" with records/x.npy and records/y.npy',
    "data.path": "",
    "data.classes": "names of the labels, as the server declares them: a record with any other label counts, but\n"
    "teaches nothing; left empty, they are the lines of a file classes.txt beside the data",
    "data.partition": "all records of the source are this site's",
    "local.epochs": "private training is refused if the server asks for other epochs or batches than these",
    "local.batch_size": "",
    "privacy.scorer": "what may be released: class-embedding, mean-embedding or logistic",
    "privacy.epsilon_total": "of everything that ever leaves under noise; vault/ keeps the account, and more is "
    "refused\n0: one release of scores and no more",
    "privacy.epsilon": "of one release of scores, out of the total; the noise is drawn here",
    "privacy.delta": "",
    "privacy.private_training": "true spends the rest of the total on training; false sends models WITHOUT any privacy",
    "privacy.train_rounds": "how often this site may train privately, ever; 0: as often as rounds, above",
    "federation.sites": "who this site is",
    "federation.max_epochs": "that an order may ask for in a round of training without privacy",
}


TEACHING_NOTES = {  # where sites run their own models on public data
    "seed": "of what is drawn from the public data: the same as at the server",
    "aux.source": "PUBLIC data without labels, the same as at the server: this site runs its model on its own copy",
    "aux.path": "",
    "teachers.run_on": "",
}


SUMS_NOTES = {  # where sites send sums of their features
    "method": "one that computes its head lets this site send sums of its features WITHOUT any privacy",
    "head_init": "so does the name of one here",
}


def site_notes(base: Config) -> dict[str, str]:
    teaching = TEACHING_NOTES if base.teachers.run_on == "clients" else {}
    return {**(SUMS_NOTES if sends_sums(base) else {}), **SITE_NOTES, **teaching}


def sends_sums(config: Config) -> bool:
    """Whether clients send sums of features, which nothing protects."""
    return config.analytic_head is not None and config.analytic_head.sums


def server_config(base: Config, sites: Sequence[str]) -> Config:
    """The server's settings from `base`; where it names no public data, its own source stands in."""
    data = _own_data(base.data)
    privacy = replace(base.privacy, unsafe_seed=-1)
    federation = replace(base.federation, sites=tuple(sites), registered_only=True)
    return replace(base, data=data, aux=_public_data(base), privacy=privacy, federation=federation)


def site_config(base: Config, name: str) -> Config:
    """A site's settings from `base`: its records, its budget, and the training that the budget is planned for."""
    sums = sends_sums(base)  # only where the site's own settings say so
    own = ":" in base.method or (sums and find_method(base.method).analytic)  # as code, which is run only then
    teaching: dict[str, Any] = {"seed": base.seed, "aux": _public_data(base), "teachers": base.teachers}
    return Config(
        method=base.method if own else Config.method,
        method_options=base.method_options if own else (),
        rounds=base.rounds,
        head_only=base.head_only,
        head_init=base.head_init if sums else Config.head_init,
        prototypes=base.prototypes,
        data=_own_data(base.data),
        local=base.local,
        privacy=replace(base.privacy, unsafe_seed=-1),
        federation=FederationConfig(sites=(name,)),
        **(teaching if base.teachers.run_on == "clients" else {}),
    )


def _public_data(base: Config) -> AuxConfig:
    aux, data = replace(base.aux, path=_absolute(base.aux.path)), _own_data(base.data)
    return aux if aux.source else replace(aux, source=data.source, path=data.path, options=data.options)


def demo_config() -> Config:
    """Scikit-learn's digits as everybody's data, so that a new deployment can run before it has any."""
    from fedaux.config.presets import DEMO

    return replace(DEMO, data=replace(DEMO.data, classes=tuple("0123456789")), aux=AuxConfig(source="digits"))


def _own_data(data: DataConfig) -> DataConfig:
    """The party's own source, with the classes and the person field that all share."""
    own = DataConfig(data.source, _absolute(data.path), data.options, data.classes, data.person)
    return replace(own, partition="own")


def _absolute(path: str) -> str:
    """Scripts run in another folder than the command that named the path."""
    return str(Path(path).expanduser().absolute()) if path else ""
