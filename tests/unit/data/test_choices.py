"""Settings from a folder of images, each with its reason."""

from pathlib import Path

import numpy as np
import pytest

from fedaux.data.choices import choose_for_images, possible_sites
from helpers.pictures import pictures, save_png


def folders(
    root: Path, size: int = 28, grey: bool = True, private: int = 60, public: int = 50
) -> tuple[Path, Path]:
    x = pictures(private + public, size)
    x = x[..., 0] if grey else x
    for i, image in enumerate(x[:private]):
        save_png(root / "scans" / ("ill" if i % 3 else "well") / f"{i}.png", image)
    for i, image in enumerate(x[private:]):
        save_png(root / "public" / f"{i}.png", image)
    return root / "scans", root / "public"


def chosen(
    root: Path, clients: int = 3, encoder: str = "", **more: object
) -> dict[str, object]:
    choices = choose_for_images(*folders(root, **more), clients, encoder=encoder)  # type: ignore[arg-type]
    return {choice.key: choice.value for choice in choices}


def test_small_grey_images(tmp_path: Path) -> None:
    choices = choose_for_images(*folders(tmp_path), 3)
    found = {choice.key: choice.value for choice in choices}
    assert found["data.options"] == found["aux.options"] == {"size": 28, "mode": "L"}
    assert found["prototypes"] == ["cnn"]
    assert found["pretrain.flip"] is False
    assert found["pretrain.epochs"] == 100  # few public images: the most
    whys = {choice.key: choice.why for choice in choices}
    assert "60 images: 40 ill, 20 well; 20% of them are held out" in whys["data.path"]
    assert "all 28×28 and grey" in whys["data.options"]


def test_larger_images_need_another_network(tmp_path: Path) -> None:
    large = chosen(tmp_path / "large", size=80, grey=False)
    assert large["data.options"] == {"size": 64, "mode": "RGB"}
    assert large["prototypes"] == [{"name": "resnet8", "width": 16}]
    assert large["pretrain.flip"] is True


def test_several_sizes_are_shrunk_to_the_smallest_and_damaged_files_do_not_matter(
    tmp_path: Path,
) -> None:
    private, public = folders(tmp_path)
    save_png(private / "ill" / "a.png", np.zeros((40, 20), np.uint8))
    (private / "well" / "b.png").write_bytes(b"no image")
    found = {choice.key: choice for choice in choose_for_images(private, public, 3)}
    assert found["data.options"].value == {"size": 20, "mode": "L"}
    assert "20×40 to 28×28 pixels" in found["data.options"].why


def test_parts_of_a_data_set_are_written_down(tmp_path: Path) -> None:
    private, public = folders(tmp_path)
    (tmp_path / "whole").mkdir()
    private.rename(tmp_path / "whole" / "train")
    found = {
        choice.key: choice.value
        for choice in choose_for_images(tmp_path / "whole", public, 3)
    }
    assert found["data.options"] == {"size": 28, "mode": "L", "split": "train"}
    save_png(
        tmp_path / "whole" / "test" / "ill" / "1.png", np.zeros((28, 28), np.uint8)
    )
    choices = {
        choice.key: choice
        for choice in choose_for_images(tmp_path / "whole", public, 3)
    }
    assert choices["data.options"].value == {
        "size": 28,
        "mode": "L",
        "split": "train",
        "test": "test",
    }
    assert choices["aux.options"].value == {"size": 28, "mode": "L"}
    assert "tested on those in test" in choices["data.path"].why
    # so train may be a class, too
    save_png(tmp_path / "whole" / "car" / "1.png", np.zeros((28, 28), np.uint8))
    found = {
        choice.key: choice.value
        for choice in choose_for_images(tmp_path / "whole", public, 3)
    }
    assert found["data.options"] == {"size": 28, "mode": "L"}


def test_what_cannot_be_a_start_is_named(tmp_path: Path) -> None:
    private, public = folders(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"nowhere is missing\. It is part of public images"
    ):
        choose_for_images(private, tmp_path / "nowhere", 3)
    with pytest.raises(ValueError, match="at least two classes, not 0"):
        choose_for_images(public, public, 3)


def test_a_published_encoder_is_chosen_for_photos_alone(tmp_path: Path) -> None:
    photos = chosen(
        tmp_path / "photos", encoder="efficientnet-lite0", size=150, grey=False
    )
    assert photos["prototypes"] == ["efficientnet-lite0"]
    assert photos["pretrain.epochs"] == 0
    assert (
        photos["data.options"] == photos["aux.options"] == {"size": 128, "mode": "RGB"}
    )
    small = chosen(
        tmp_path / "small", encoder="efficientnet-lite0", size=32, grey=False
    )
    assert (small["prototypes"], small["data.options"]) == (
        ["efficientnet-lite0"],
        {"size": 32, "mode": "RGB"},
    )
    for name, more in {
        "grey": {"size": 150},
        "tiny": {"size": 28, "grey": False},
    }.items():
        other = chosen(tmp_path / name, encoder="efficientnet-lite0", **more)
        assert other == {
            **chosen(tmp_path / f"{name}-without", **more),
            **{key: other[key] for key in PATHS},
        }


PATHS = ("data.path", "aux.path")


def test_folders_of_sites_are_clients_of_their_own_size(tmp_path: Path) -> None:
    x = pictures(21, 8)
    for i, image in enumerate(x[:20]):
        save_png(
            tmp_path
            / "sites"
            / ("rome" if i < 4 else "oslo")
            / ("ill" if i % 2 else "well")
            / f"{i}.png",
            image,
        )
        save_png(tmp_path / "public" / f"{i}.png", x[20] // (i + 1))
    assert possible_sites(tmp_path / "sites") == {
        "oslo": ["ill", "well"],
        "rome": ["ill", "well"],
    }
    choices = choose_for_images(
        tmp_path / "sites", tmp_path / "public", 3, folders="sites"
    )
    found = {choice.key: choice.value for choice in choices}
    assert found["data.partition"] == "folders"
    assert found["federation.sites"] == ["oslo", "rome"]
    assert (
        "20 images: 10 well, 10 ill" in choices[0].why
        or "20 images: 10 ill, 10 well" in choices[0].why
    )
    assert "oslo 16, rome 4 images" in next(
        one.why for one in choices if one.key == "data.partition"
    )
