"""Where the records of each party are: every site has its own folder, and the server
has test data of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.deploy.env import DeployError


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
                f"--data {word}: write --data NAME=PATH, once for each site, such as "
                "--data berlin=scans"
            )
        if name not in sites:
            raise DeployError(
                f"--data {word}: {name} is not among the sites {', '.join(sites)}. "
                "Correct the name."
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
        test: The path of the server's labelled test data.

    Returns:
        The settings for the server and those for each site. A path that no one has
        named stays empty, to be filled in.
    """
    if not (base.data.path or paths or test):
        return base, dict.fromkeys(sites, base)
    if not base.aux.source:
        raise DeployError(
            "the config holds public data out of the private records. Real sites need "
            "public data of their own: name it in [aux], source and path."
        )
    root = Path(base.data.path)
    folders = {
        name: paths.get(name) or _default_path(base, root, name) for name in sites
    }
    missing = [name for name in sites if not folders[name]]
    if missing and base.data.path:
        words = " ".join(f"--data {name}=PATH" for name in missing)
        raise DeployError(
            f"which records does each site have? {base.data.path} cannot be those of "
            f"all: add {words}"
        )
    if base.data.path and not test:
        raise DeployError(
            "name the server's own labelled test data, which no site trains on: --test "
            "PATH"
        )
    _refuse_shared({**folders, "the server's test data": test})
    classes = base.data.classes or _classes(base, [*folders.values(), test])
    data = replace(base.data, partition="iid", classes=classes)
    federation = replace(base.federation, sites=())
    bases = {
        name: replace(base, data=replace(data, path=path), federation=federation)
        for name, path in folders.items()
    }
    return replace(base, data=replace(data, path=test), federation=federation), bases


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
                f"{paths[first]} of {first} and {paths[second]} of {second} are the "
                "same records, or contain them: name a separate folder for each"
            )


def _classes(base: Config, paths: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes, from the folders of images or from the server's test
    data.
    """
    from fedaux.data.image_folders import subfolders
    from fedaux.data.labels import named_by_numbers
    from fedaux.data.sources import open_source

    present = [
        Path(path).expanduser()
        for path in paths
        if path and Path(path).expanduser().exists()
    ]
    classes: tuple[str, ...] = ()
    if base.data.source == "images":
        names = {folder.name for path in present for folder in subfolders(path)}
        classes = tuple(sorted(names))
    elif present:
        options = dict(base.data.options)
        corpus = open_source(base.data.source, present[-1], **options)
        classes = named_by_numbers(corpus).classes
    if not classes:
        raise DeployError(
            "the classes cannot be read from these folders: write them into [data], "
            'classes = ["first", "second"]'
        )
    return classes
