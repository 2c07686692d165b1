"""What is shipped: a wheel and an sdist that hold all they need and work where there is
no checkout.
"""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(wheel, sdist), the wheel made from the sdist, from the files that git knows."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        target = source / name
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(out),
            str(source),
        ],
        check=True,
        capture_output=True,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def test_the_wheel_has_every_module_and_what_they_read(
    built: tuple[Path, Path],
) -> None:
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("fedaux/")}
        metadata = next(
            archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith("METADATA")
        )
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "fedaux").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert inside == wanted
    assert "License-Expression: Apache-2.0" in metadata
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


@pytest.mark.slow
def test_a_newcomer_without_the_checkout(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    """A fresh environment, the wheel with its extras, and the demo up to its report."""
    wheel, _ = built
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment |= {"OMP_NUM_THREADS": "1", "FEDAUX_CACHE": str(tmp_path / "cache")}

    def do(*words: object) -> str:
        done = subprocess.run(
            list(map(str, words)),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    do(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pinned = [
        line
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line.startswith("torch==")
    ]
    do(python, "-m", "pip", "install", "--quiet", *pinned)
    do(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
        wheel,
    )
    do(python, "-m", "pip", "check")
    fedaux = tmp_path / "venv" / "bin" / "fedaux"
    do(fedaux, "demo")
    assert (tmp_path / "fedaux-demo" / "report.html").stat().st_size > 20_000
    assert "fedaux-demo" in do(fedaux, "report", "fedaux-demo")
    do(fedaux, "init", "model")
    do(fedaux, "run", "model.toml")
    extras = "parquet,text,simulation,onnx,tensorboard,mlflow,wandb"
    words = (
        "install",
        "--dry-run",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
        f"{wheel}[{extras}]",
    )
    do(python, "-m", "pip", *words)
