"""What `fedaux init` writes: configs that load, with all they need, and never over a
file that is there.
"""

import ast
from pathlib import Path

import pytest

from fedaux.config.schema import Config
from fedaux.config.starters import STARTERS, StarterError, fill, write_starter
from fedaux.core.errors import Exit, UnknownNameError
from fedaux.data.table_schema import TableSchema


@pytest.mark.parametrize("kind", STARTERS)
def test_a_starter_is_a_commented_config_that_loads(kind: str, tmp_path: Path) -> None:
    paths = write_starter(kind, tmp_path / "new")
    assert paths == [tmp_path / "new" / name for name in STARTERS[kind]]
    text = paths[0].read_text()
    assert Config.load(paths[0]).method == (
        "private-head" if kind in ("head", "table") else "fedaux"
    )
    assert text.count("#") >= 10
    assert max(map(len, text.splitlines())) <= 120


def test_the_schema_beside_a_table_s_settings_can_be_read(tmp_path: Path) -> None:
    config_file, schema = write_starter("table", tmp_path)
    described = TableSchema.load(schema)
    assert described.header.classes == Config.load(config_file).data.classes
    assert {column.kind for column in described.columns.values()} == {
        "number",
        "category",
        "flag",
    }
    assert max(map(len, schema.read_text().splitlines())) <= 120


def test_the_module_beside_a_config_has_the_functions_that_it_names(
    tmp_path: Path,
) -> None:
    config_file, module = write_starter("model", tmp_path)
    config = Config.load(config_file)
    functions = {
        node.name
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }
    named = [
        name for name in (config.data.source, config.prototypes[0].name) if ":" in name
    ]
    assert named
    for name in named:
        assert name.partition(":")[0] == module.stem
        assert name.partition(":")[2] in functions


def test_no_file_is_written_over_and_none_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text("mine")
    with pytest.raises(
        StarterError, match=r"my_model\.py: it is already there\. Name another folder"
    ) as caught:
        write_starter("model", tmp_path)
    assert caught.value.code == Exit.FOLDER
    assert [path.name for path in tmp_path.iterdir()] == ["my_model.py"]
    assert (tmp_path / "my_model.py").read_text() == "mine"


def test_an_unknown_kind_names_the_others(tmp_path: Path) -> None:
    with pytest.raises(
        UnknownNameError,
        match=r"'image': it is unknown \(did you mean 'images'\?\). Choose from head, images, table, text, model",
    ):
        write_starter("image", tmp_path)


def test_values_take_the_place_of_those_in_the_template_and_comments_stay(
    tmp_path: Path,
) -> None:
    values = {
        "data.path": "a b",
        "aux.path": "public",
        "data.options": {"size": 28, "mode": "L"},
        "rounds": 7,
    }
    (path,) = write_starter("images", tmp_path, values)
    config = Config.load(path)
    assert (config.data.path, config.aux.path, config.rounds) == ("a b", "public", 7)
    assert dict(config.data.options) == {"mode": "L", "size": 28}
    assert '\npath = "a b"                 # my-images/cat/001.png' in path.read_text()
    with pytest.raises(AssertionError, match=r"does not have data\.paht"):
        fill("[data]\npath = 1", {"data.paht": 2})


@pytest.mark.parametrize("kind", STARTERS)
def test_nobody_but_the_user_says_that_public_records_may_be_shown(
    kind: str, tmp_path: Path
) -> None:
    config = Config.load(write_starter(kind, tmp_path)[0])
    assert not config.aux.public


def test_a_comment_names_other_values_than_the_chosen_one(tmp_path: Path) -> None:
    """`partition = "folders"` stood beside `# or "folders"`."""
    write_starter("images", tmp_path, {"data.partition": "folders"})
    (line,) = [
        line
        for line in (tmp_path / "images.toml").read_text().splitlines()
        if line.startswith("partition = ")
    ]
    assert line.startswith('partition = "folders"')
    assert 'or "folders"' not in line
    assert "my-images/berlin/cat/001.png" in line
