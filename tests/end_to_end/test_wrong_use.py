"""Wrong use, one case a test: one paragraph that names the remedy, a code for its kind,
and never a traceback.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaux.cli import main
from fedaux.config.sections import PrivacyConfig
from fedaux.core.errors import Exit
from fedaux.privacy.account import BudgetStore
from fedaux.privacy.accounting import release_mechanism
from helpers.accounts import enter, fails
from helpers.harness import Patience
from helpers.tiny import TINY_TOML

MINE = """
import numpy as np
from fedaux import Corpus, Records
def nothing(): return [1, 2, 3]
def failing(): return {}["no such key"]
def one_class(): return Corpus(Records(np.ones((50, 4), np.float32), np.zeros(50, np.int64)))
def unlabelled(): return Corpus(Records(np.ones((50, 4), np.float32)))
def negative(): return Corpus(Records(np.ones((50, 4), np.float32), np.full(50, -1)))
def odd_test():
    train = Records(np.random.rand(90, 4).astype(np.float32), np.arange(90) % 3)
    return Corpus(train, Records(train.x, np.arange(90) % 5), classes=("a", "b", "c"))
def nan():
    x = np.random.rand(600, 64).astype(np.float32); x[:] = np.nan
    return Corpus(Records(x, np.arange(600) % 3))
def nameless():
    train = Records(np.random.rand(90, 4).astype(np.float32), np.arange(90) % 3)
    return Corpus(train, Records(train.x, np.arange(90) % 5))
def halves(): return Corpus(Records(np.random.rand(90, 4).astype(np.float32), np.arange(90) / 2))
def trained(shape):
    import torch; from fedaux.models import Extractor
    own = Extractor(torch.nn.Flatten(), torch.nn.Linear(64, 8), width=8)
    own[1].weight.data = torch.linspace(-1, 1, 512).reshape(8, 64)
    return own
def widthless(shape): import torch; return torch.nn.Flatten()
def broken(shape): raise KeyError("no layer")
"""


def images(folder: Path, names: list[str], size: int = 8) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        for i in range(20):
            Image.fromarray(np.full((size, size, 3), i, np.uint8)).save(
                folder / name / f"{i}.png"
            )


def arrays(folder: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(folder / "unlabelled.npz", x=rng.random((200, 64), np.float32))
    np.savez(folder / "other.npz", x=rng.random((200, 5), np.float32))
    (folder / "damaged.npz").write_bytes(b"PK not really")
    (folder / "notes.csv").write_text("text,label\nhello,a\nworld,b\n" * 50)
    images(folder / "photos", ["cat", "dog"])
    (folder / "photos" / "cat" / "0.png").write_bytes(b"no image")
    (folder / "empty").mkdir()
    scans = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
    for i, image in enumerate(scans):
        for name in (f"scans/{'cat' if i % 2 else 'dog'}", "copies", f"ruins/{i % 2}"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / name / f"{i}.png")
        if i % 4 < 2:
            (folder / f"ruins/{i % 2}/{i}.png").write_bytes(b"no image")
    images(folder / "split" / "train", ["cat", "dog"])
    images(folder / "split" / "test", ["cat", "bird"])


@dataclass(frozen=True)
class Case:
    name: str
    words: str  # of the command; CONFIG, and OUT for a folder of its own
    code: int
    says: str
    sets: list[str] = field(default_factory=list)


RUN = "run CONFIG --out OUT"
CASES = [
    # words
    Case("unknown command", "fly", Exit.USAGE, "No such command 'fly'"),
    Case("missing argument", "run", Exit.USAGE, "Missing argument 'CONFIG'"),
    Case("resume without a folder", "resume", Exit.USAGE, "Missing argument 'FOLDER'"),
    Case("unknown option", "run CONFIG --speed 9", Exit.USAGE, "No such option '--speed'"),
    Case("number out of range", "demo --seeds 0", Exit.USAGE, "0 is not in the range x>=1"),
    # settings
    Case("missing config", "run none.toml", Exit.SETTINGS, "there is no config file none.toml. Run `fedaux init`"),
    Case("a folder for a config", "run empty", Exit.SETTINGS, "there is no config file empty"),
    Case("not TOML", "run notes.csv", Exit.SETTINGS, "notes.csv is not valid TOML"),
    Case("unknown key", RUN, Exit.SETTINGS, "it is unknown (did you mean 'local.lr'?)", ["local.lrr=1"]),
    Case("unknown table", RUN, Exit.SETTINGS, "the key 'lokal': it is unknown (did you mean 'local'?)", ["lokal.lr=1"]),
    Case("no key=value", RUN, Exit.SETTINGS, "is not of the form key=value", ["rounds"]),
    Case("a value for a table", RUN, Exit.SETTINGS, "data must be a table. Write [data] and its settings", ["data=3"]),
    Case("wrong type", RUN, Exit.SETTINGS, "rounds must be a whole number, not 'many'", ["rounds=many"]),
    Case("no rounds", RUN, Exit.SETTINGS, "rounds must be at least 1, not 0", ["rounds=0"]),
    Case("alpha zero", RUN, Exit.SETTINGS, "data.alpha must be above 0, not 0.0: 0.01 is extreme", ["data.alpha=0"]),
    Case("no participation", RUN, Exit.SETTINGS, "fraction must be above 0 and at most 1", ["fraction=0"]),
    Case("unknown method", RUN, Exit.SETTINGS, "did you mean 'fedaux'?", ["method=fedaus"]),
    Case("unknown network", RUN, Exit.SETTINGS, "the prototype 'resnet': it is unknown", ["prototypes=resnet"]),
    Case("no network", RUN, Exit.SETTINGS, "prototypes must name at least one network", ["prototypes=[]"]),
    Case("network option", RUN, Exit.SETTINGS, "the option of prototype 'mlp' 'depth': it is unknown",
         ['prototypes=[{name="mlp", depth=3}]']),
    Case("unknown source", RUN, Exit.SETTINGS, "did you mean 'digits'?", ["data.source=digit"]),
    Case("epsilon zero", RUN, Exit.SETTINGS, "privacy.epsilon must be above 0", ["privacy.epsilon=0"]),
    Case("delta one", RUN, Exit.SETTINGS, "privacy.delta must be above 0 and below 1", ["privacy.delta=1"]),
    Case("add-remove", RUN, Exit.SETTINGS, "needs privacy.declared_records", ["privacy.adjacency=add-remove"]),
    Case("private head", RUN, Exit.SETTINGS, "needs privacy.scorer = 'class-embedding'",
         ["head_init=private-head", "privacy.scorer=logistic"]),
    Case("a head twice", RUN, Exit.SETTINGS, "Leave head_init out", ["head_init=ridge", "method=ridge+p"]),
    Case("head of a trainer", RUN, Exit.SETTINGS, "a method that computes its head", ["head_init=fedavg"]),
    Case("no GPU", RUN, Exit.SETTINGS, "device = 'cuda:99': this machine has only", ["device=cuda:99"]),
    Case("no such module", RUN, Exit.SETTINGS, "Put its folder on PYTHONPATH", ["data.source=nowhere:data"]),
    Case("no such function", RUN, Exit.SETTINGS, "did you mean 'one_class'?", ["data.source=mine:one_clas"]),
    Case("unknown tracker", f"{RUN} --track tensorbord", Exit.SETTINGS, "did you mean 'tensorboard'?"),
    Case("compare what", "compare CONFIG --methods fedvag", Exit.SETTINGS, "did you mean 'fedavg'?"),
    Case("winners that are not there", "compare CONFIG --tuned nowhere", Exit.SETTINGS, "that `fedaux tune` wrote"),
    Case("unknown preset", "compare CONFIG --preset papper", Exit.SETTINGS, "did you mean 'paper'?"),
    Case("tuned and a preset", "compare CONFIG --tuned a --preset paper", Exit.SETTINGS, "Use one of them"),
    Case("an option under a wrong key", RUN, Exit.SETTINGS, "did you mean 'data.options'?", ["data.option.size=3"]),
    Case("sweep of nothing", "sweep CONFIG --out OUT", Exit.SETTINGS, "tiny.toml has no table [sweep]. Add one"),
    Case("init what", "init pictures", Exit.SETTINGS, "Choose from head, images, table, text, model"),
    # data
    Case("no data there", RUN, Exit.DATA, "nowhere.npz is missing", ["data.source=npz", "data.path=nowhere.npz"]),
    Case("damaged data", RUN, Exit.DATA, "damaged.npz is no .npz archive, or a damaged one",
         ["data.source=npz", "data.path=damaged.npz"]),
    Case("unlabelled private data", RUN, Exit.DATA, "these records have no labels. Private and test data need them",
         ["data.source=npz", "data.path=unlabelled.npz"]),
    Case("more clients than records", RUN, Exit.DATA, "cannot make 5000 clients", ["data.clients=5000"]),
    Case("no auxiliary data", RUN, Exit.DATA, "Give more auxiliary data", ["aux.limit=1"]),
    Case("auxiliary data with NaN", RUN, Exit.DATA, "Look for NaN and inf in it", ["data.source=mine:nan"]),
    Case("auxiliary data of another shape", RUN, Exit.DATA, "auxiliary rows have shape (5,)",
         ["aux.source=npz", "aux.path=other.npz"]),
    Case("mismatching classes", RUN, Exit.DATA, "labels 0..2", ["data.source=mine:odd_test", "aux.fraction=0.5"]),
    Case("negative labels", RUN, Exit.DATA, "labels that count from 0", ["data.source=mine:negative"]),
    Case("one class", RUN, Exit.DATA, "at least 2 classes", ["data.source=mine:one_class"]),
    Case("a folder without images", RUN, Exit.DATA, "empty holds no image", ["data.source=images", "data.path=empty"]),
    Case("a damaged image", f"{RUN} --strict", Exit.DATA, "photos/cat/0.png cannot be read as an image",
         ["data.source=images", "data.path=photos"]),
    Case("a folder of damaged images", RUN, Exit.DATA, "20 of 40 files cannot be read as images",
         ["data.source=images", "data.path=ruins"]),
    Case("private images as public ones", RUN, Exit.DATA, "aux.path and data.path are the same, scans",
         ["data.source=images", "data.path=scans", "aux.source=images", "aux.path=scans"]),
    Case("the same by another path", RUN, Exit.DATA, "aux.path and data.path are the same",
         ["data.source=images", "data.path=scans", "aux.source=images", "aux.path=copies/../scans"]),
    Case("a part of the private images", RUN, Exit.DATA, "of 20 records compared, 20 are both in the private data and",
         ["data.source=images", "data.path=scans", "aux.source=images", "aux.path=scans/cat"]),
    Case("copies of private images", RUN, Exit.DATA, "aux.path must hold other, public records",
         ["data.source=images", "data.path=scans", "aux.source=images", "aux.path=copies"]),
    Case("a test class without training images", RUN, Exit.DATA, "has the class bird, of which there is no training",
         ["data.source=images", "data.path=split"]),
    Case("a test label that training lacks", RUN, Exit.DATA, "they have the label 3, 4, which",
         ["data.source=mine:nameless"]),
    Case("labels that are no whole numbers", RUN, Exit.DATA, "labels must be whole numbers from 0 on, not float64",
         ["data.source=mine:halves"]),
    Case("own weights under a plain name", RUN, Exit.SETTINGS, "Set method = 'fedavg+p' to start from yours",
         ["method=fedavg", "prototypes=mine:trained"]),
    Case("own weights, FedProx", RUN, Exit.SETTINGS, "FedProx starts from random ones",
         ["method=fedprox", "prototypes=mine:trained"]),
    Case("init with half of the data", "init images new --data scans", Exit.USAGE, "--data and --public together"),
    Case("init of texts with images", "init text new --data scans --public copies", Exit.USAGE,
         "with `fedaux init images`"),
    Case("init with nothing there", "init images new --data nowhere --public copies", Exit.DATA, "nowhere is missing"),
    Case("init with private images twice", "init images new --data scans --public scans", Exit.DATA,
         "would be the private records themselves"),
    Case("init without classes", "init images new --data copies --public scans", Exit.DATA, "at least two classes"),
    Case("init with an empty folder", "init images new --data scans --public empty", Exit.DATA, "empty has 0 images"),
    Case("a dataset that is not there", RUN, Exit.DATA, "nowhere is missing",
         ["data.source=huggingface", "data.path=nowhere"]),
    Case("text for a network of numbers", RUN, Exit.DATA, "For text 'bert' or 'encoder' will do",
         ["data.source=csv", "data.path=notes.csv"]),
    Case("own source returns something else", RUN, Exit.DATA, "returned list", ["data.source=mine:nothing"]),
    Case("own source fails", RUN, Exit.DATA, "'mine:failing': it failed with KeyError", ["data.source=mine:failing"]),
    Case("own network without width", RUN, Exit.SETTINGS, "give it an integer `width`",
         ["prototypes=mine:widthless"]),
    Case("own network fails", RUN, Exit.DATA, "'mine:broken': it failed with KeyError", ["prototypes=mine:broken"]),
    Case("alpha beyond reason", RUN, Exit.DATA, "alpha must lie between 1e-6", ["data.alpha=1e-9"]),
    Case("private training of BatchNorm", RUN, Exit.PRIVACY, "set norm = 'group' in its prototype, or head_only = true",
         ["privacy.private_training=true", "privacy.epsilon_total=1", 'prototypes=[{name="mlp", norm="batch"}]']),
    Case("a folder without a model", RUN, Exit.DATA, "hf:empty cannot be read (Unrecognized model in empty",
         ["prototypes=hf:empty", "data.source=images", "data.path=scans"]),
    # folders
    Case("a new app over files", "new scans", Exit.FOLDER, "Name a new folder: `fedaux new scans-2`"),
    Case("resume nothing", "resume empty", Exit.FOLDER, "empty holds no run"),
    Case("report of nothing", "report empty", Exit.FOLDER, "empty holds no run"),
    Case("privacy report of nothing", "privacy report empty", Exit.FOLDER, "empty holds no run"),
    Case("export of nothing", "export empty", Exit.FOLDER, "empty holds no run"),
    Case("a file for a folder", "run CONFIG --out notes.csv", Exit.FOLDER, "notes.csv: it is a file. Give --out"),
    Case("check of no site", "deploy check empty", Exit.FOLDER, "Name a folder that `fedaux deploy init` has written"),
    Case("evaluate without a model", "evaluate empty notes.csv", Exit.FOLDER,
         "empty holds no model (card.json is missing)"),
    Case("predict without a model", "predict empty notes.csv", Exit.FOLDER,
         "empty holds no model (card.json is missing)"),
    # clients and training
    Case("every client fails", RUN, Exit.CLIENTS, "round 1 has 0 contributions of 3",
         ["data.source=mine:nan", "aux.source=npz", "aux.path=unlabelled.npz"]),
    # disks
    Case("a folder that may not be written", "run CONFIG --out /sys/fedaux", Exit.DISK, "choose another folder"),
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a config and things to go wrong with."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDAUX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "tiny.toml").write_text(TINY_TOML.replace("rounds = 2", "rounds = 1"))
    (tmp_path / "mine.py").write_text(MINE)
    arrays(tmp_path)
    return tmp_path


Fedaux = Callable[..., tuple[int, str]]


@pytest.fixture
def fedaux(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Fedaux:
    """The command as the console script runs it: (exit code, what it said on standard
    error).
    """

    def call(words: str, sets: list[str] | None = None) -> tuple[int, str]:
        line = words.replace("CONFIG", "tiny.toml").replace("OUT", "out").split()
        monkeypatch.setattr(
            sys,
            "argv",
            ["fedaux", *line, *(w for one in sets or [] for w in ("--set", one))],
        )
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return int(caught.value.code or 0), err

    return call


def one_paragraph(err: str) -> str:
    """The error alone: what was said before it, while work went on, does not count."""
    assert err.count("error: ") == 1, err
    said = err[err.index("error: ") :].strip()
    assert len(said.splitlines()) == 1, said
    return said


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_wrong_use(fedaux: Fedaux, case: Case) -> None:
    code, err = fedaux(case.words, case.sets)
    assert case.says in " ".join(err.split()).replace("│ ", "").replace(" │", ""), err
    assert code == case.code
    if case.code != Exit.USAGE:  # those are click's own, in a box
        one_paragraph(err)


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 40
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_second_run_in_the_same_folder(fedaux: Fedaux) -> None:
    assert fedaux(RUN)[0] == 0
    code, err = fedaux(RUN, ["seed=1"])
    assert (code, one_paragraph(err)) == (
        Exit.FOLDER,
        "error: Cannot run: out holds another run, because it differs in seed. Choose a new folder.",
    )


def test_a_run_of_another_version(fedaux: Fedaux, place: Path) -> None:
    from safetensors.numpy import save_file

    (place / "out").mkdir()
    save_file(
        {"a": np.zeros(1)},
        place / "out" / "state.safetensors",
        metadata={"version": "0"},
    )
    code, err = fedaux("resume out")
    assert code == Exit.FOLDER
    assert "was written by another version of fedaux" in one_paragraph(err)


def test_a_damaged_run(fedaux: Fedaux, place: Path) -> None:
    (place / "out").mkdir()
    (place / "out" / "state.safetensors").write_bytes(b"damaged")
    for words in ("resume out", RUN):
        code, err = fedaux(words)
        assert code == Exit.FOLDER
        assert "is damaged" in one_paragraph(err)


def test_a_starter_is_not_written_over(fedaux: Fedaux) -> None:
    assert fedaux("init model")[0] == 0
    code, err = fedaux("init model")
    assert code == Exit.FOLDER
    assert "model.toml: it is already there. Name another folder" in one_paragraph(err)


def test_a_deployment_is_not_written_over(fedaux: Fedaux) -> None:
    words = "deploy init sites --site a --site b"
    assert fedaux(words)[0] == 0
    code, err = fedaux(words)
    assert code == Exit.FOLDER
    assert "already holds a deployment" in one_paragraph(err)


def test_clients_that_already_spent_their_budget(fedaux: Fedaux, place: Path) -> None:
    """All of them: no scores, so nobody can teach. One of them costs its contribution
    alone.
    """
    privacy = PrivacyConfig()
    for client in range(3):
        store = BudgetStore(place / "out" / "clients" / f"client-00{client}", privacy)
        with pytest.raises(ZeroDivisionError):
            enter(store, "another request", release_mechanism(9, privacy), fails)
    code, err = fedaux(RUN)
    assert code == Exit.CLIENTS
    assert "and no scores" in one_paragraph(err)
    assert "its privacy budget does not allow it" in one_paragraph(err)


def test_distillation_that_diverges(fedaux: Fedaux) -> None:
    code, err = fedaux(RUN, ["distill.lr=1e20", "distill.epochs=5"])
    assert code == Exit.DIVERGED
    assert "Lower distill.lr" in one_paragraph(err)


@pytest.mark.parametrize(
    ("module", "words", "sets", "extra"),
    [
        ("mlflow", f"{RUN} --track mlflow", [], "pip install -e '.[mlflow]'"),
        ("wandb", f"{RUN} --track wandb", [], "pip install -e '.[wandb]'"),
        (
            "transformers",
            RUN,
            ["data.source=csv", "data.path=notes.csv", "prototypes=bert"],
            "pip install -e '.[text]'",
        ),
        (
            "pyarrow.parquet",
            RUN,
            ["data.source=parquet", "data.path=notes.csv"],
            "pip install -e '.[parquet]'",
        ),
    ],
)
def test_a_missing_extra(
    fedaux: Fedaux,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    words: str,
    sets: list[str],
    extra: str,
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    code, err = fedaux(words, sets)
    assert code == Exit.MISSING
    assert extra in one_paragraph(err)


def test_a_module_that_imports_what_is_not_there(fedaux: Fedaux, place: Path) -> None:
    (place / "mine.py").write_text("import no_such_package\ndef data(): ...\n")
    code, err = fedaux(RUN, ["data.source=mine:data"])
    assert code == Exit.MISSING
    assert "no_such_package" in one_paragraph(err)


def test_what_nobody_foresaw_is_reported_as_such(
    fedaux: Fedaux, monkeypatch: pytest.MonkeyPatch
) -> None:
    # fails, in no line of anybody's
    monkeypatch.setattr("fedaux.runs.runner.run", {}.__getitem__)
    code, err = fedaux(RUN)
    assert code == Exit.BUG
    said = one_paragraph(err)
    assert "this should not have happened (TypeError: " in said
    assert "Please report it with" in said
    details = Path(said.split()[-1].rstrip("."))
    assert "Traceback" in details.read_text()
    details.unlink()


def report_to() -> None:
    """Ctrl-C is heard, also where the tests themselves run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def program(
    place: Path, *words: str, before: Callable[[], None] = report_to
) -> "subprocess.Popen[str]":
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-c", "from fedaux.cli import main; main()", *words]
    return subprocess.Popen(
        command,
        cwd=place,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=before,
    )


def test_a_full_disk(place: Path) -> None:
    """A real program whose files may not grow beyond 4 kB: it stops at the first
    checkpoint, and says what to do.
    """

    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    _, err = (
        process := program(place, "run", "tiny.toml", "--out", "out", before=small)
    ).communicate(timeout=300)
    assert process.returncode == Exit.DISK
    assert "Make room, or choose another folder" in one_paragraph(err)
    assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(place: Path) -> None:
    words = ("run", "tiny.toml", "--out", "out", "--set", "rounds=400")
    process = program(place, *words)
    patience = Patience(240)
    while (
        not (place / "out" / "metrics.jsonl").is_file()
        or not (place / "out" / "metrics.jsonl").read_text()
    ):
        assert not patience.over(), "no round within 240 s"
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == Exit.STOPPED, err
    assert (
        err.strip()
        .splitlines()[-1]
        .startswith(
            "Stopped. The same command, or `fedaux resume out`, continues after round"
        )
    )
    assert "Traceback" not in err
    done = len((place / "out" / "history.jsonl").read_text().splitlines())
    out, err = program(
        place, "run", "tiny.toml", "--out", "out", "--set", f"rounds={done + 1}"
    ).communicate(timeout=240)
    assert f"after {done + 1} rounds" in " ".join(out.split()), err
