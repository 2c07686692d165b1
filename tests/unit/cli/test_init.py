"""`fedaux init`: what it writes, and what it says to do next."""

import json
from pathlib import Path

import pytest

from fedaux.config.prototype import PrototypeSpec
from fedaux.config.schema import Config
from fedaux.data.federated import open_data
from fedaux.data.table_schema import TableSchema
from fedaux.models import published
from helpers.commands import fedaux, paragraph
from helpers.pictures import pictures, save_png


def test_init_says_what_it_wrote_and_what_to_do_next(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fedaux(monkeypatch, "init", "images", "new") == 0
    assert "fedaux run new/images.toml" in capsys.readouterr().out
    assert Config.load(place / "new" / "images.toml").data.source == "images"
    assert fedaux(monkeypatch, "init", "text", "--json") == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["text.toml"]


@pytest.mark.parametrize(
    "words", [("images", "--data", "scans"), ("text", "--data", "a", "--public", "b")]
)
def test_folders_to_choose_from_come_in_pairs_and_with_images(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    assert fedaux(monkeypatch, "init", *words) == 2
    assert "--data and --public together" in capsys.readouterr().err
    assert not (place / f"{words[0]}.toml").exists()


@pytest.mark.parametrize(
    ("words", "there", "expected"),
    [
        ((), True, "efficientnet-lite0"),
        (("--pretrain",), True, "cnn"),
        ((), False, "cnn"),
    ],
)
def test_photos_get_a_published_encoder_where_one_is_installed(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    there: bool,
    expected: str,
) -> None:
    for index, image in enumerate(pictures(12, 32)):
        folder = (
            "public" if index > 7 else ("photos/cat" if index % 2 else "photos/dog")
        )
        save_png(place / folder / f"{index}.png", image)
    monkeypatch.setattr(
        published.Publication, "folder", lambda self: place if there else None
    )
    assert (
        fedaux(
            monkeypatch,
            "init",
            "images",
            "--data",
            "photos",
            "--public",
            "public",
            *words,
        )
        == 0
    )
    config = Config.load(place / "images.toml")
    assert config.prototypes == (PrototypeSpec(expected),)
    assert (config.pretrain.epochs == 0) == (expected == "efficientnet-lite0")


def test_a_head_gets_what_it_chooses_its_dimensions_for_and_no_training(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, image in enumerate(pictures(12, 8)):
        folder = "public" if index > 9 else ("scans/ill" if index % 2 else "scans/well")
        save_png(place / folder / f"{index}.png", image)
    words = ("--data", "scans", "--public", "public", "--clients", "4")
    assert fedaux(monkeypatch, "init", "head", *words) == 0
    config = Config.load(place / "head.toml")
    assert (config.method, config.rounds, config.head_only) == ("private-head", 1, True)
    assert config.privacy.expected_records == 8  # 10 · 0.8
    assert "[local]" not in (place / "head.toml").read_text()
    assert fedaux(monkeypatch, "init", "images", *words) == 0
    assert "expected_records" not in (place / "images.toml").read_text()


REGISTRY = "\n".join(
    ["hospital,age,stage,diagnosis"]
    + [
        f"{'oslo' if number % 3 else 'rome'},{20 + number * 7 % 50},{number % 4},"
        f"{'ill' if number % 2 else 'healthy'}"
        for number in range(60)
    ]
)


def test_a_table_gets_a_schema_and_settings(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "registry.csv").write_text(REGISTRY)
    words = ("--data", "registry.csv", "--label", "diagnosis", "--site", "hospital")
    assert fedaux(monkeypatch, "init", "table", *words) == 0
    said = paragraph(capsys.readouterr().out)
    assert "Wrote table.toml and schema.toml." in said
    assert "Note: ranges and values come from your own records" in said
    config = Config.load(place / "table.toml")
    assert config.prototypes == (PrototypeSpec("linear"),)
    assert config.data.partition == "given"
    assert config.federation.sites == ("oslo", "rome")
    assert config.data.classes == ("healthy", "ill")
    assert config.privacy.expected_records == 48
    data = open_data(config)
    assert data.clients == ("oslo", "rome")
    assert len(data.parts[0]) > len(data.parts[1]) > 0  # 40 in Oslo, 20 in Rome
    assert len(data.aux) == 1000  # drawn from the schema


def test_public_records_of_a_table_decide_on_its_schema(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "registry.csv").write_text(REGISTRY)
    public = ["age,stage", *[f"{20.5 + number},{number % 4}" for number in range(39)]]
    (place / "public.csv").write_text("\n".join(public))
    words = ("--data", "registry.csv", "--label", "diagnosis", "--public", "public.csv")
    assert fedaux(monkeypatch, "init", "table", "new", *words) == 0
    assert "own records" not in capsys.readouterr().out
    config = Config.load(place / "new" / "table.toml")
    assert config.data.partition == "dirichlet"
    assert len(open_data(config).aux) == 39
    assert TableSchema.load(place / "new" / "schema.toml").header.confirmed


def write_sites(place: Path) -> None:
    (place / "sites").mkdir()
    header, *lines = REGISTRY.splitlines()
    columns = header.partition(",")[2]
    for site in ("oslo", "rome"):
        rows = [line.partition(",")[2] for line in lines if line.startswith(site)]
        text = "\n".join([columns, *rows])
        (place / "sites" / f"{site}.csv").write_text(text)


@pytest.mark.parametrize(
    "words",
    [
        ("--data", "sites"),
        ("--data", "sites/rome.csv", "--data", "sites/oslo.csv"),
    ],
)
@pytest.mark.parametrize("folder", [".", "new"])
def test_each_site_may_have_its_file(
    place: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], folder: str
) -> None:
    """The first file was left out, and a folder was "Is a directory"."""
    write_sites(place)
    more = ("--label", "diagnosis")
    assert fedaux(monkeypatch, "init", "table", folder, *words, *more) == 0
    config = Config.load(place / folder / "table.toml")
    data = open_data(config)
    sites = ["oslo", "rome"] if len(words) == 2 else ["rome", "oslo"]
    assert list(data.clients) == sites
    sizes = dict(zip(sites, map(len, data.parts), strict=True))
    assert sizes["oslo"] > sizes["rome"] > 0  # 40 and 20 records
    assert config.privacy.expected_records == 48


def test_public_records_may_lie_in_the_folder(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sites(place)
    public = ["age,stage", *[f"{20.5 + number},{number % 4}" for number in range(100)]]
    (place / "sites" / "public.csv").write_text("\n".join(public))
    words = ("--data", "sites", "--public", "sites/public.csv", "--label", "diagnosis")
    assert fedaux(monkeypatch, "init", "table", *words) == 0
    config = Config.load(place / "table.toml")
    assert open_data(config).clients == ("oslo", "rome")
    assert config.prototypes == (PrototypeSpec("tabular"),)
    comment = (place / "table.toml").read_text()
    assert "cannot show which columns matter" in comment


def test_a_folder_without_a_table_is_named(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "empty").mkdir()
    words = ("--data", "empty", "--label", "diagnosis")
    assert fedaux(monkeypatch, "init", "table", *words) != 0
    assert "there is no .csv and no .parquet in it" in paragraph(
        capsys.readouterr().err
    )
    (place / "one").mkdir()
    (place / "one" / "public.csv").write_text("age,y\n1,a\n")
    words = ("--data", "one", "--public", "one/public.csv", "--label", "y")
    assert fedaux(monkeypatch, "init", "table", *words) == 2
    assert "no table but the public one" in paragraph(
        capsys.readouterr().err.replace("│", "")
    )
    words = ("--data", "empty", "--data", "empty", "--public", "empty")
    assert fedaux(monkeypatch, "init", "images", *words) == 2
    assert "Only a table can be several files" in paragraph(
        capsys.readouterr().err.replace("│", "")
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table", "--data", "registry.csv"), "Add --label COLUMN"),
        (("table", "--label", "diagnosis"), "Add --data FILE"),
        (("images", "--label", "diagnosis"), "fedaux init table"),
    ],
)
def test_words_for_a_table(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    (place / "registry.csv").write_text(REGISTRY)
    assert fedaux(monkeypatch, "init", *words) == 2
    assert said in paragraph(capsys.readouterr().err.replace("│", ""))
    assert list(place.glob("*.toml")) == [place / "tiny.toml"]


def sites(place: Path) -> None:
    for i, image in enumerate(pictures(16, 8)):
        where = (
            f"sites/{'oslo' if i < 6 else 'rome'}/{'ill' if i % 2 else 'well'}"
            if i < 12
            else "public"
        )
        save_png(place / where / f"{i}.png", image)


def test_folders_that_may_be_sites_or_classes_are_asked_about(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sites(place)
    words = ("init", "images", "--data", "sites", "--public", "public")
    assert fedaux(monkeypatch, *words) == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "oslo, rome may be sites or classes" in said
    assert "--folders sites" in said
    assert not (place / "images.toml").exists()
    assert fedaux(monkeypatch, *words, "--folders", "sites") == 0
    config = Config.load(place / "images.toml")
    assert (config.data.partition, config.federation.sites, config.data.clients) == (
        "folders",
        ("oslo", "rome"),
        2,
    )
    assert "each folder is a client: oslo 6, rome 6 images" in capsys.readouterr().out
    assert (
        fedaux(
            monkeypatch, "init", "images", "other", *words[2:], "--folders", "classes"
        )
        == 0
    )
    config = Config.load(place / "other" / "images.toml")
    assert (config.data.partition, dict(config.data.options)["folders"]) == (
        "dirichlet",
        "classes",
    )
    assert fedaux(monkeypatch, *words, "--folders", "hospitals") == 2
