"""Shared by all commands: options, examples in the help, JSON output, errors as one
paragraph.
"""

from __future__ import annotations

import errno
import json
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperCommand

from fedaux.core.errors import Exit, FedauxError, exit_code

Threads = Annotated[
    int,
    typer.Option(
        min=1,
        help=(
            "Threads for PyTorch. 1 is fastest for small models and exactly repeatable."
        ),
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override one setting: --set local.lr=0.01"
    ),
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Also log to tensorboard, mlflow or wandb. You can repeat it.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON object on standard output, and all else on standard error.",
    ),
]


# click 8.2 suggests commands itself, and typer would say the same once more
SUGGEST_COMMANDS = not hasattr(click.exceptions, "NoSuchCommand")


class CommandWithSettings(TyperCommand):
    """A command with --set, which says so of an option that is a setting."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            key = setting_of(error.option_name)
            if not key:
                raise
            raise click.UsageError(
                f"Cannot use the option {error.option_name}: it is a setting. Write "
                f"--set {key}=VALUE.",
                ctx,
            ) from error


def setting_of(option: str) -> str:
    """The key of the setting that an unknown option may mean, or "" if there is none."""
    from fedaux.config.parsing import keys_of
    from fedaux.config.schema import Config

    name = option.lstrip("-").replace("-", "_")
    meant = (key for key in keys_of(Config) if name in (key, key.rpartition(".")[2]))
    return next(meant, "")


def unwrap_summaries(app: typer.Typer) -> None:
    """Let the list of commands wrap their summaries at the terminal's width: rich also
    breaks where a docstring does.
    """
    for command in app.registered_commands:
        paragraph = (command.callback.__doc__ or "").split("\n\n")[0]
        command.short_help = " ".join(paragraph.split())
    for group in app.registered_groups:
        if group.typer_instance is not None:
            unwrap_summaries(group.typer_instance)


def examples(*lines: str) -> str:
    """For `epilog=`: commands to copy, with comments after a #."""
    commands = [f"  $ {escape(line)}" for line in lines]
    return "\n\n".join(["[bold]Examples[/bold]", *commands])


def console_for(as_json: bool) -> Console:
    """Standard output, or standard error if a script reads the former."""
    return Console(stderr=as_json, highlight=False)


def with_local_modules(config: Path) -> Path:
    """The config's path, after making modules next to it importable for a
    `module:function` in it.
    """
    folder = str(config.absolute().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    return config


def print_json(value: Any) -> None:
    """One object on standard output."""
    print(json.dumps(value, ensure_ascii=False))


def print_result(as_json: bool, value: Any, *lines: str) -> None:
    """What a command did: as JSON, or in lines for people."""
    if as_json:
        print_json(value)
        return
    for line in lines:
        console_for(as_json).print(line, soft_wrap=True)


def loading(console: Console) -> AbstractContextManager[None]:
    """Around imports that take seconds: `with loading(console): from fedaux…
    import …`.
    """
    from fedaux.report.busy import busy

    return busy(console, "loading PyTorch and Flower")


def prepare_to_train(threads: int) -> None:
    """Set up this process for the training that follows."""
    import torch

    from fedaux.core.memory import reuse_memory

    torch.set_num_threads(threads)
    reuse_memory()


def print_error(error: BaseException) -> Exit:
    """One paragraph on standard error. An unexpected error leaves its traceback in a
    file.
    """
    code = exit_code(error)
    message = str(error)
    if code is Exit.DISK and not hasattr(error, "code"):
        message = f"{message}. {_disk_advice(error)} The same command then continues."
    name = type(error).__name__
    frames = [] if isinstance(error, FedauxError) else own_frames(error)
    if frames:
        lines = "".join(traceback.format_list(frames)).rstrip()
        Console(stderr=True).print(lines, markup=False, highlight=False, soft_wrap=True)
        message = f"your code failed: {name}: {message}"
    elif code is Exit.BUG:
        file = _write_traceback(error)
        message = (
            f"this should not have happened ({name}: {message}). Please report it with "
            f"{file}."
        )
    Console(stderr=True).print(
        f"[bold red]error:[/bold red] {escape(message)}",
        highlight=False,
        soft_wrap=True,
    )
    return code


def _write_traceback(error: BaseException) -> Path:
    with tempfile.NamedTemporaryFile(
        "w", prefix="fedaux-", suffix=".txt", delete=False
    ) as file:
        file.writelines(traceback.format_exception(error))
    return Path(file.name)


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The lines of the traceback that are the user's own: neither of this package nor
    of an installed one.
    """
    import fedaux

    package = str(Path(fedaux.__file__).parent)
    # Code without a file, such as <string>, is no one's.
    others = ("<", package, *sysconfig.get_paths().values())
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    frames = []
    for link in chain:
        for frame in traceback.extract_tb(link.__traceback__):
            if frame.filename.startswith(others):
                continue
            if Path(frame.filename).exists():
                frames.append(frame)
    return frames


def _disk_advice(error: BaseException) -> str:
    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "Make room, or choose another folder (--out, FEDAUX_CACHE)."
    return (
        "It cannot be written to: change its permissions, or choose another folder "
        "(--out, FEDAUX_CACHE)."
    )


def run_app(app: Callable[[], None]) -> int:
    """Run a command-line app; returns its exit code, with no traceback whatever
    happens.
    """
    sys.path.append(str(Path.cwd()))  # where `module:function` is looked for as well
    try:
        app()
    except KeyboardInterrupt:
        Console(stderr=True).print(
            "Stopped. Files that were being written are as before. The same command "
            "starts again."
        )
        return Exit.STOPPED
    except Exception as error:
        return print_error(error)
    return 0
