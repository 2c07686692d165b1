"""The command line. Heavy imports wait until a command needs them."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fedaux import __version__
from fedaux.cli.common import SUGGEST_COMMANDS, examples, run_app, unwrap_summaries
from fedaux.cli.deploy import app as deploy
from fedaux.cli.init import app as init
from fedaux.cli.look import app as look
from fedaux.cli.methods import app as methods
from fedaux.cli.model import app as model
from fedaux.cli.new import app as new
from fedaux.cli.privacy import app as privacy
from fedaux.cli.run import app as run
from fedaux.cli.site import app as site
from fedaux.cli.sweep import app as sweep
from fedaux.cli.tune import app as tune

app = typer.Typer(
    suggest_commands=SUGGEST_COMMANDS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    epilog=examples(
        "fedaux demo                          # the first result, in a minute or two",
        "fedaux init images                   # a config to start from",
        "fedaux run images.toml               # a run, with a report",
        "fedaux compare images.toml --jobs 2  # nine methods, three seeds",
    ),
)
for kind in (sweep, tune, methods, init, look, run, model, new):
    app.add_typer(kind)
app.add_typer(privacy, name="privacy")
app.add_typer(deploy, name="deploy")
app.add_typer(site, name="site")
unwrap_summaries(app)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"fedaux {__version__}")
        raise typer.Exit


@app.callback()
def fedaux(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version, and nothing else.",
        ),
    ] = False,
) -> None:
    """Federated learning with public auxiliary data, on Flower: a private head in one
    exchange, FedAUX, and the other methods that `fedaux methods` lists.
    """


def main() -> None:
    sys.exit(run_app(app))
