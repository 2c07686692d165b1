"""Where the records of each party are: every site has its own folder. The server has
labelled test data of its own, or the sites test the final model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.deploy.env import DeployError

# where the server has no test data
SITE_TEST_FRACTION = 0.2
LOOK_EPSILON = 1.0


def parse_paths(words: Sequence[str], sites: Sequence[str]) -> dict[str, str]:
    """Read words such as berlin=/srv/scans.

    Args:
        words: What was given with --data.
        sites: The names that may be used.

    Returns:
        The path of each site that is named.
    """
    paths: dict[str, str] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or not path or name in paths:
            raise DeployError(
                f"Cannot read --data {word}: it is not NAME=PATH. Write --data "
                "NAME=PATH, once for each site, such as --data berlin=scans."
            )
        if name not in sites:
            raise DeployError(
                f"Cannot use --data {word}: {name} is not among the sites "
                f"{', '.join(sites)}. Correct the name."
            )
        paths[name] = path
    return paths


def with_own_data(
    base: Config, sites: Sequence[str], paths: Mapping[str, str], test: str = ""
) -> tuple[Config, dict[str, Config]]:
    """Give every party its own data, and all of them the same classes.

    Args:
        base: The settings of the run, as they were simulated.
        sites: The names of the sites.
        paths: The path of each site's records. They need not be on this machine.
        test: The path of the server's labelled test data. Without any, the sites test
            the final model, unless digits stand in for all data.

    Returns:
        The settings for the server and those for each site. A path that no one has
        named stays empty, to be filled in.
    """
    if not test and base.data.source != "digits":
        base = with_site_test(base)
    if not (base.data.path or paths or test):
        return base, dict.fromkeys(sites, base)
    if not base.aux.source:
        raise DeployError(
            "Cannot write a deployment: the config holds public data out of the "
            "private records, and real sites need public data of their own. Name it in "
            "[aux], source and path."
        )
    root = Path(base.data.path)
    folders = {
        name: paths.get(name) or _default_path(base, root, name) for name in sites
    }
    missing = [name for name in sites if not folders[name]]
    if missing and base.data.path:
        words = " ".join(f"--data {name}=PATH" for name in missing)
        raise DeployError(
            f"Cannot assign records to sites: {base.data.path} cannot be those of all. "
            f"Add {words}."
        )
    _refuse_shared({**folders, "the server's test data": test})
    classes = base.data.classes or _classes(base, list(folders.values()), test)
    data = replace(base.data, partition="iid", classes=classes)
    federation = replace(base.federation, sites=())
    bases = {
        name: replace(base, data=replace(data, path=path), federation=federation)
        for name, path in folders.items()
    }
    return replace(base, data=replace(data, path=test), federation=federation), bases


def with_site_test(base: Config) -> Config:
    """Return settings with which the sites test the final model. Those that say already
    how stay as they are.
    """
    fraction = base.data.site_test_fraction or SITE_TEST_FRACTION
    look_epsilon = base.privacy.look_epsilon or LOOK_EPSILON
    _check_budget(base, look_epsilon)
    data = replace(base.data, site_test_fraction=fraction)
    privacy = replace(base.privacy, look_epsilon=look_epsilon)
    return replace(base, data=data, privacy=privacy)


def _check_budget(base: Config, look_epsilon: float) -> None:
    """Refuse a test at the sites that no site could pay for."""
    privacy = base.privacy
    if privacy.private_training:
        raise DeployError(
            "Cannot let the sites test the final model: private training spends all of "
            "privacy.epsilon_total. Name labelled test data of the server: --test PATH."
        )
    released = privacy.epsilon if base.releases else 0.0
    left = privacy.epsilon_total - released
    if privacy.epsilon_total > 0 and look_epsilon > left:
        raise DeployError(
            f"Cannot let the sites test the final model: privacy.epsilon_total = "
            f"{privacy.epsilon_total:g}, and releases cost {released:g} and the test "
            f"{look_epsilon:g}. Raise privacy.epsilon_total, set a lower "
            "privacy.look_epsilon, or name labelled test data of the server: --test "
            "PATH."
        )


def _default_path(base: Config, root: Path, name: str) -> str:
    """The folder of a site below that of a simulation whose clients are folders."""
    if base.data.partition != "folders":
        return ""
    split = str(dict(base.data.options).get("split", ""))
    return str(root / split / name)


def _refuse_shared(paths: Mapping[str, str]) -> None:
    """Refuse a folder that two parties would read, or that lies within another's."""
    resolved = {
        name: Path(path).expanduser().resolve() for name, path in paths.items() if path
    }
    for first, second in combinations(resolved, 2):
        within = resolved[first].is_relative_to(resolved[second])
        contains = resolved[second].is_relative_to(resolved[first])
        if within or contains:
            raise DeployError(
                f"Cannot assign records to sites: {paths[first]} of {first} and "
                f"{paths[second]} of {second} are the same records, or contain them. "
                "Name a separate folder for each."
            )


def _classes(base: Config, paths: Sequence[str], test: str) -> tuple[str, ...]:
    """The names of the classes, from the folders of images, from the schema of tables,
    or from the server's test data. No site's records are read.
    """
    from fedaux.data.image_folders import subfolders
    from fedaux.data.labels import named_by_numbers
    from fedaux.data.sources import open_source
    from fedaux.data.tables import schema_of

    classes: tuple[str, ...] = ()
    schema = schema_of(base.data)
    if base.data.source == "images":
        present = filter(_is_here, [*paths, test])
        folders = [Path(path).expanduser() for path in present]
        names = {folder.name for path in folders for folder in subfolders(path)}
        classes = tuple(sorted(names))
    elif schema is not None:
        classes = schema.header.classes
    elif _is_here(test):
        options = dict(base.data.options)
        corpus = open_source(base.data.source, test, **options)
        classes = named_by_numbers(corpus).classes
    if not classes:
        raise DeployError(
            "Cannot read the classes: these folders do not show them. Write them into "
            '[data], classes = ["first", "second"].'
        )
    return classes


def _is_here(path: str) -> bool:
    return path != "" and Path(path).expanduser().exists()
