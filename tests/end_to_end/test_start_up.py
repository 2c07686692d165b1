"""The program as it starts: quick, with nothing heavy imported, and errors in one
paragraph.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.startup import write_site
from studies.paper import STUDIES
from typer.main import get_command

from fedaux import cli

ROOT = Path(__file__).resolve().parents[2]


def test_help_imports_nothing_heavy() -> None:
    import subprocess

    code = "import sys, fedaux.cli.model\nprint(sorted({'torch', 'flwr', 'numpy', 'onnx', 'PIL'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_error_is_one_paragraph_on_stderr_of_the_real_program(
    tmp_path: Path,
) -> None:
    code = "from fedaux.cli import main; main()"
    words = ["run", "none.toml"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "NO_COLOR": "1",
            "PYTHONPATH": str(Path(cli.__file__).parents[1]),
        },
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        "error: Cannot read the config: there is no config file none.toml. Run `fedaux "
        "init` to write one, or `fedaux demo`, which needs none.\n"
    )


def test_help_imports_little_and_names_every_command() -> None:
    """Modules, not seconds: what is imported is what start-up costs, and it is the same
    on a busy machine.
    """
    code = (
        "import sys\nfrom fedaux.cli import main\nsys.argv = ['fedaux', '--help']\n"
        "try: main()\nfinally: print(len(sys.modules))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(said.splitlines()[-1]) < 400  # 340; numpy alone would add 130
    named = set(get_command(cli.app).commands)  # type: ignore[attr-defined]
    assert {"demo", "run", "predict", "deploy"} <= named
    assert all(re.search(rf"│ {name} ", said) for name in named)


def test_completion_is_offered() -> None:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_FEDAUX_COMPLETE": "complete_bash",
    }
    env |= {"COMP_WORDS": "fedaux pre", "COMP_CWORD": "1"}
    words = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'fedaux'; from fedaux.cli import main; main()",
    ]
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert "prepare" in done.stdout
    assert "resume" not in done.stdout


def test_the_list_of_studies_is_quick_and_has_a_line_for_each() -> None:
    code = (
        "import sys\nfrom studies.__main__ import main\nsys.argv = ['studies']\n"
        "try: main()\nfinally: print(sorted({'torch', 'flwr', 'numpy'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    for name in STUDIES:
        assert re.search(
            rf"^{name} +[\d.]+ min  \w.*\?$", done.stdout, flags=re.MULTILINE
        ), name
    assert done.stdout.splitlines()[-1] == "[]"


def test_whole_sums_need_no_accountant() -> None:
    asked = (
        "from fedaux.privacy.accounting import Mechanism, total_epsilon as t; "
        "t([Mechanism(9.0)], 1e-5, 'replace-one')"
    )
    code = f"import sys; {asked}; sys.exit('dp_accounting' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_list_does_not_import_transformers() -> None:
    code = "import sys, fedaux.privacy.module_validation; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


PACKAGE = ROOT / "src" / "fedaux"


# what users start from: copied, never imported
TEMPLATES = PACKAGE / "config" / "templates"


SOURCES = [
    path for path in sorted(PACKAGE.rglob("*.py")) if TEMPLATES not in path.parents
]


@pytest.mark.parametrize("room", ["core", "config", "cli"])
def test_the_ground_floor_starts_without_torch(room: str) -> None:
    modules = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in SOURCES
        if path.relative_to(PACKAGE).parts[0] == room
    ]
    code = (
        f"import importlib, sys\nfor name in {modules}: importlib.import_module(name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_method_needs_torch_to_be_named() -> None:
    configs = "[Config.from_dict({'method': name, 'local': {'optimizer': 'sgd'}}) for name in METHODS]"
    code = f"import sys; from fedaux import METHODS, Config; {configs}"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; sys.exit('torch' in sys.modules)"], check=False
    )
    assert done.returncode == 0


def test_the_public_names_import_nothing_heavy() -> None:
    code = (
        "import sys, fedaux; fedaux.METHODS; dir(fedaux); "
        "sys.exit(bool({'torch', 'flwr', 'numpy'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


HEAVY = (
    "sklearn",
    "scipy.stats",
    "scipy.optimize",
    "torch._dynamo",
    "ray",
    "pandas",
    "cairosvg",
)


@pytest.mark.parametrize("kind", ["prepare", "train"])
def test_a_new_process_imports_little_before_its_first_reply(
    tmp_path: Path, kind: str
) -> None:
    """Flower starts one for each message: every import is paid for in each round at
    each site.
    """
    code = (
        "import sys; from pathlib import Path; from benchmarks.startup import main\n"
        f"main(*map(Path, sys.argv[1:])); print([name for name in {HEAVY} if name in "
        "sys.modules])"
    )
    words = [
        sys.executable,
        "-c",
        code,
        str(write_site(tmp_path)[kind]),
        str(tmp_path / "vault"),
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
