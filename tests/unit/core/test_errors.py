"""Errors that name the remedy, their exit codes, and functions by their name."""

import errno
from pathlib import Path

import pytest

from fedaux.core.errors import (
    Exit,
    FedauxError,
    MissingPackageError,
    UnknownNameError,
    UserCodeError,
    exit_code,
    import_attribute,
    import_function,
    unknown_name,
    user_code,
)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_functions.py").write_text(
        "number = 3\ndef make(): return 4\ndef _hidden(): return 5\n"
    )
    (tmp_path / "my_broken_functions.py").write_text("import a_package_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "my_functions"


def test_a_function_by_its_name(module: str) -> None:
    assert import_function(f"{module}:make", "source")() == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "no_such_module:make",
            r"thing 'no_such_module:make': there is no module 'no_such_module'. .*PYTHONPATH",
        ),
        ("my_functions.room:make", r"no module 'my_functions\.room'"),
        (
            "my_functions:mak",
            r"function of module 'my_functions' 'mak': it is unknown \(did you mean 'make'\?\). Choose from make\.$",
        ),
        (
            "my_functions:number",
            "the function of module 'my_functions' 'number': it is unknown",
        ),
        ("my_functions:", "is not of the form module:function"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_function_that_is_not_there(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message) as caught:
        import_function(name, "thing")
    assert isinstance(caught.value, FedauxError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.usefixtures("module")
def test_a_module_that_misses_another_says_which() -> None:
    with pytest.raises(ModuleNotFoundError, match="a_package_nobody_has"):
        import_function("my_broken_functions:make", "source")


class OwnError(FedauxError):
    code = Exit.PRIVACY


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OwnError(), Exit.PRIVACY),
        (FedauxError(), Exit.DATA),
        (UnknownNameError(), Exit.SETTINGS),
        (MissingPackageError(), Exit.MISSING),
        (ModuleNotFoundError(), Exit.MISSING),
        (PermissionError(), Exit.DISK),
        (OSError(errno.ENOSPC, "full"), Exit.DISK),
        (OSError(errno.EROFS, "read-only"), Exit.DISK),
        (FileNotFoundError(errno.ENOENT, "gone"), Exit.DATA),
        (ValueError(), Exit.DATA),
        (OverflowError(), Exit.DATA),
        (KeyError(), Exit.BUG),
        (ZeroDivisionError(), Exit.BUG),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_has_its_exit_code(error: BaseException, code: Exit) -> None:
    assert exit_code(error) == code


def test_exit_codes_are_a_promise_to_scripts() -> None:
    names = (
        "NEGATIVE",
        "USAGE",
        "SETTINGS",
        "DATA",
        "FOLDER",
        "MISSING",
        "CLIENTS",
        "DIVERGED",
        "DISK",
        "PRIVACY",
    )
    expected = {name: number for number, name in enumerate(names, start=1)} | {
        "BUG": 70,
        "STOPPED": 130,
    }
    assert {code.name: int(code) for code in Exit} == expected


def test_an_unknown_name_comes_with_the_nearest_and_all_allowed() -> None:
    near = str(unknown_name("norm", "bacth", ["batch", "group"]))
    assert (
        near == "Cannot use the norm 'bacth': it is unknown (did you mean 'batch'?). "
        "Choose from batch, group."
    )
    assert "did you mean" not in str(unknown_name("norm", "xyz", ["batch"]))
    assert str(unknown_name("norm", "x", iter([]))).endswith("Choose from none at all.")


def test_what_fails_in_a_users_function_is_said_to_be_theirs() -> None:
    with (
        pytest.raises(
            UserCodeError,
            match=r"source 'mine:load': it failed with KeyError: 'x'. Correct .*test_errors\.py, line",
        ) as caught,
        user_code("source", "mine:load"),
    ):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize(
    "error", [OwnError("said"), FileNotFoundError("said"), ImportError("said")]
)
def test_errors_that_say_enough_pass_as_they_are(error: Exception) -> None:
    with (
        pytest.raises(type(error), match="said") as caught,
        user_code("source", "mine:load"),
    ):
        raise error
    assert caught.value is error


def test_a_failure_of_our_own_function_is_not_blamed_on_the_user() -> None:
    with pytest.raises(KeyError), user_code("source", "digits"):
        raise KeyError("x")


def test_a_run_of_python_says_how_it_is_continued_and_exported() -> None:
    with pytest.raises(UnknownNameError) as found:
        import_attribute("here:data-c63ca03c", "source", "function", callable)
    for words in (
        "fedaux.run again",
        "continues the run",
        "save(FOLDER)",
        "write_report",
    ):
        assert words in str(found.value)
