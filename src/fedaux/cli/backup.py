"""`fedaux deploy backup | restore | write-off`: copies of what must not be lost, and
what to do when it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedaux.cli.common import Json, examples, print_result

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedaux deploy backup hospitals/server /backup/server-2027-01-31.tar.gz",
        (
            "fedaux deploy backup berlin /backup/berlin-2027-01-31.tar.gz     # at the "
            "site, after every run"
        ),
    )
)
def backup(
    folder: Annotated[
        Path, typer.Argument(help="The folder of the server or of a site.")
    ],
    archive: Annotated[
        Path,
        typer.Argument(help="A new file. It holds keys: keep it as you keep them."),
    ],
    as_json: Json = False,
) -> None:
    """Copy what must not be lost: settings, keys, the link's database and the run, or a
    site's vault. No records.
    """
    from fedaux.deploy.backup import back_up

    made = back_up(folder, archive)
    text = f"{archive} holds the {made.party}, {_spent(made.entries)}"
    print_result(as_json, {"archive": str(archive), **vars(made)}, text)


@app.command(
    epilog=examples("fedaux deploy restore /backup/berlin-2027-01-31.tar.gz berlin")
)
def restore(
    archive: Annotated[Path, typer.Argument(help="A file of `fedaux deploy backup`.")],
    folder: Annotated[Path, typer.Argument(help="A new folder.")],
    as_json: Json = False,
) -> None:
    """Put a backup back. The vault of a site must be the newest: an older one is
    refused when an order comes.
    """
    from fedaux.deploy.backup import restore as put_back

    made = put_back(archive, folder)
    text = f"{folder} is the {made.party} of {made.made}, {_spent(made.entries)}"
    if made.party == "site":
        text += (
            "\nIf it has sent anything under noise since, this vault is too old: its "
            "next order is refused, and the site's log says how many entries are "
            "missing. Put a newer one back, or see `fedaux deploy write-off --help`."
        )
    print_result(as_json, {"folder": str(folder), **vars(made)}, text)


def _spent(entries: dict[str, int]) -> str:
    from fedaux.report.terminal import plural

    return (
        "; ".join(
            f"{path}: {plural(count, 'entry', 'entries')}"
            for path, count in entries.items()
        )
        or "no account"
    )


@app.command(
    "write-off",
    epilog=examples("fedaux deploy write-off hospitals/sites/berlin --entries 7"),
)
def write_off(
    folder: Annotated[Path, typer.Argument(help="The folder of a site.")],
    entries: Annotated[
        int,
        typer.Option(
            min=1,
            help="The number of entries that the server knows of, from the site's log.",
        ),
    ],
    as_json: Json = False,
) -> None:
    """For an owner whose newest vault is lost for good: what is missing counts as all
    that was left of the budget.

    The site answers again what it has stored. Anything new under noise is refused until
    its owner raises privacy.epsilon_total.
    """
    from fedaux.config.schema import Config
    from fedaux.deploy.layout import read_env
    from fedaux.privacy.account import BudgetStore, account_folder
    from fedaux.privacy.accounting import round_up

    name, config = (
        read_env(folder / "site.env")["NAME"],
        Config.load(folder / "site.toml"),
    )
    store = BudgetStore(account_folder(config, folder / "vault", name), config.privacy)
    missing, spent = store.write_off(entries), store.account()
    text = f"{missing} entries are written off: ε = {round_up(spent.epsilon)} in {spent.entries} entries."
    print_result(
        as_json,
        {"missing": missing, "epsilon": spent.epsilon, "entries": spent.entries},
        text,
    )
