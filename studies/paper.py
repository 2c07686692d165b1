"""The paper, study by study: `python -m studies NAME --scale smoke | cpu | paper`.

One table. A study is a grid of settings for each scale, and runs as any sweep does;
some write one more table of what their runs left behind (`after`), and the toys are
functions of their own (`alone`).

- smoke: seconds, on data that come with scikit-learn. Shows that a study works, not what it finds.
- cpu: minutes of one core (heterogeneity: a night), on the data in FEDAUX_DATA, read by `studies/sources.py`.
  Heads on one frozen extractor stand for whole networks, unless the study is about
  these.
- paper: the paper's own sizes, on the official files in FEDAUX_DATA. Days of a GPU; nobody has run these.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaux.config.methods import PAPER_METHODS
from fedaux.config.parsing import ConfigError, set_key
from fedaux.config.presets import PRESETS
from fedaux.core.errors import unknown_name
from fedaux.sweeps.grid import Sweep
from fedaux.sweeps.method_settings import AS_CONFIGURED, MethodSettings

Table = Mapping[str, Any]  # settings by dotted key
SCALES = ("smoke", "cpu", "paper")
PRESET = PRESETS["paper"].settings
PRETRAINED = ["fedavg+p", "feddf+p", "fedaux"]
NINE = list(PAPER_METHODS)
ALPHAS = [0.01, 0.04, 0.16, 0.64, 2.56, 10.24]
# 78,000 parameters; the paper's has 4.9 million
RESNET = [{"name": "resnet8", "width": 16}]
THREE = [{"name": "resnet8"}, {"name": "mobilenetv2"}, {"name": "shufflenet"}]
# studies/networks.toml
WHOLE = {
    "head_only": False,
    "prototypes": RESNET,
    "pretrain.epochs": 24,
    "distill.lr": 5e-5,
}

BASES: dict[str, Table] = {
    "smoke": {
        "rounds": 2,
        "head_init": "random",
        "prototypes": ["cnn"],
        "data.source": "digits",
        "data.clients": 5,
        "aux.limit": 300,
        "pretrain.epochs": 2,
        "pretrain.batch_size": 100,
        "pretrain.min_crop_area": 0.5,
        "pretrain.flip": False,
        "local.epochs": 1,
        "distill.epochs": 1,
        "distill.lr": 1e-3,
        "privacy.epsilon": 1.0,
        "privacy.embedding_dim": 12,
    },
    "cpu": {  # 20 × 500 images on the extractor of studies/cifar10.toml
        **PRESET,
        "rounds": 20,
        "fraction": 0.4,
        "head_only": True,
        "prototypes": [{"name": "resnet8", "width": 32}],
        "data.source": "studies.sources:cifar10",
        "data.options.limit": 10_000,
        "data.clients": 20,
        "aux.source": "studies.sources:tinyimagenet",
        "pretrain.epochs": 60,
        "pretrain.batch_size": 256,
        # a head on frozen features takes larger steps than a network
        "distill.lr": 1e-3,
        "privacy.epsilon": 1.0,
    },
    "paper": {
        **PRESET,
        "rounds": 100,
        "fraction": 0.4,
        "prototypes": [{"name": "resnet8", "width": 64}],
        "data.source": "cifar10",
        "data.path": "{data}",
        "data.clients": 80,
        "aux.source": "stl10",
        "aux.path": "{data}",
        "aux.options.part": "unlabeled",
        "aux.options.size": 32,
    },
}
# the least noise that is ever drawn: far below the differences between clients
NO_NOISE = 1000.0


@dataclass(frozen=True)
class Grid:
    """What a study has at one scale: settings beside those of the scale, and the lists
    that are swept.
    """

    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    settings: Table = field(default_factory=dict)
    minutes: float = 0.0  # of one core, with all seeds; 0: not known
    seeds: int = 3


@dataclass(frozen=True)
class Study:
    """A study of the paper at each scale."""

    title: str
    question: str
    smoke: Grid
    cpu: Grid
    paper: Grid
    # module:function of the sweep's result: writes further files, and returns what to
    # print
    after: str = ""
    # module:function of a folder and a number of seeds, instead of a sweep
    alone: str = ""

    def grid(self, scale: str) -> Grid:
        """Return what the study has at a scale, or raise with the scales that there
        are.
        """
        if scale not in SCALES:
            raise ConfigError(str(unknown_name("scale", scale, SCALES)))
        grid: Grid = getattr(self, scale)
        return grid

    def sweep(
        self,
        scale: str,
        overrides: Sequence[str] = (),
        chosen: MethodSettings = AS_CONFIGURED,
    ) -> Sweep:
        """Return the sweep of a scale. `overrides` are those of `Sweep.from_dict`."""
        grid = self.grid(scale)
        folder = _data_folder(scale)
        table: dict[str, Any] = {}
        for key, value in {**BASES[scale], **grid.settings}.items():
            if isinstance(value, str):
                value = value.replace("{data}", folder)
            set_key(table, key, value, key)
        table["sweep"] = {
            "title": self.title,
            "about": self.question,
            "seeds": grid.seeds,
            **grid.axes,
        }
        return Sweep.from_dict(table, overrides, chosen)


def _data_folder(scale: str) -> str:
    """Return FEDAUX_DATA, `{data}` in the settings; raise if a scale lacks what it
    needs.
    """
    folder = os.environ.get("FEDAUX_DATA", "")
    if scale == "paper" and not folder:
        raise ConfigError(
            "--scale paper needs FEDAUX_DATA, a folder with the official files of "
            "CIFAR-10, STL-10 and what else the study names, unpacked; or take --scale "
            "smoke."
        )
    return folder


STUDIES: dict[str, Study] = {
    "heterogeneity": Study(
        "Heterogeneity",
        "How uneven may the split be, from about one class a client to nearly even?",
        Grid({"method": PRETRAINED, "data.alpha": [0.01, 10.0]}, seeds=1, minutes=0.2),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 0.1, 1.0]},
            {  # whole networks, all images
                **WHOLE,
                "precision": "auto",
                "data.options": {"test_limit": 4000},
                "aux.negatives": 0.75,
            },
            minutes=450,
        ),
        Grid({"method": ["feddf", "feddf+p", "fedaux"], "data.alpha": ALPHAS}),
    ),
    "participation": Study(
        "Participation",
        "How many clients must answer in each round?",
        Grid({"method": PRETRAINED, "fraction": [0.4, 0.8]}, seeds=1, minutes=0.2),
        Grid({"method": PRETRAINED, "fraction": [0.2, 0.4, 0.8]}, minutes=2.5),
        Grid(
            {"method": NINE, "fraction": [0.2, 0.4, 0.8], "data.alpha": [0.01, 100.0]},
            {"data.clients": 20},
        ),
    ),
    "auxiliary": Study(
        "Auxiliary data",
        "How much do the public data matter, from similar images to others?",
        Grid(
            {
                "method": ["feddf+p", "fedaux"],
                "aux.source": [f"studies.smoke_data:{x}" for x in ("photos", "noise")],
            },
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {
                "method": ["feddf+p", "fedaux"],
                "aux.options.name": [
                    "tiny-imagenet",
                    "device",
                    "fashion-mnist",
                    "mnist",
                ],
            },
            {
                "rounds": 10,
                "prototypes": RESNET,
                "data.options.limit": 5000,
                "data.options.test_limit": 2000,
                "aux.source": "studies.sources:auxiliary",
                "pretrain.epochs": 5,
            },
            minutes=5,
        ),
        Grid(
            {"method": ["feddf", "feddf+p", "fedaux"], "data.alpha": [0.01, 100.0]},
            {
                "data.clients": 40
            },  # repeated with --set aux.source=cifar100, and with sources of one's own
        ),
    ),
    "one-shot": Study(
        "One shot",
        "What does a single round reach, in which every client trains for long?",
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 10.0]},
            {"rounds": 1, "local.epochs": 2},
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 0.16, 10.24]},
            {"rounds": 1, "fraction": 1.0, "local.epochs": 40, "distill.epochs": 5},
            minutes=1.5,
        ),
        Grid(
            {
                "method": [
                    "fedavg",
                    "fedprox",
                    "feddf",
                    "fedavg+p",
                    "fedprox+p",
                    "feddf+p",
                    "fedaux",
                ],
                "data.alpha": [0.01, 0.04, 0.16, 10.24],
                "prototypes": [["mobilenetv2"], ["shufflenet"]],
            },
            {"rounds": 1, "fraction": 1.0, "local.epochs": 40, "data.clients": 100},
        ),
    ),
    "linear": Study(
        "Linear evaluation",
        "If only heads train, does accuracy still depend on the split?",
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 10.0]},
            {"head_only": True},
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 0.04, 0.16, 10.24]}, minutes=3.5
        ),
        Grid({"method": PRETRAINED, "data.alpha": ALPHAS}, {"head_only": True}),
    ),
    "privacy": Study(
        "Privacy",
        "What does the noise on the scores cost?",
        Grid(
            {
                "privacy.scorer": ["class-embedding", "logistic"],
                "privacy.epsilon": [0.1, 10.0],
            },
            {"head_only": True},
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {
                "privacy.scorer": ["logistic", "class-embedding"],
                "privacy.epsilon": [0.04, 0.1, 1.0, NO_NOISE],
            },
            {"rounds": 10},
            minutes=3.5,
        ),
        Grid(
            {
                "privacy.epsilon": [0.01, 0.04, 0.1, 0.4, NO_NOISE],
                "privacy.delta": [1e-6, 1e-5, 1e-4],
                "privacy.ridge": [0.001, 0.01, 0.1, 1.0],
            },
            {
                "rounds": 10,
                "data.clients": 40,
                "privacy.scorer": "logistic",
                "teachers.weights": "certainty",
            },
        ),
    ),
    "text": Study(
        "Text",
        "Does it work for text as it does for images?",
        Grid(
            {"method": PRETRAINED},
            {
                "prototypes": [
                    {
                        "name": "bert",
                        "layers": 1,
                        "width": 32,
                        "heads": 2,
                        "inner": 64,
                        "length": 12,
                    }
                ],
                "data.source": "studies.smoke_data:sentences",
                "aux.source": "studies.smoke_data:sentences",
                "aux.options.seed": 1,
            },
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 1.0]},
            {
                "fraction": 1.0,
                "prototypes": ["encoder"],
                "data.source": "studies.sources:ag_news",
                "data.options": {},
                "data.clients": 10,
                "aux.source": "studies.sources:books",
                "aux.limit": 20_000,
            },
        ),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.01, 1.0]},
            {
                "rounds": 20,
                "fraction": 1.0,
                "prototypes": ["bert"],
                "data.source": "csv",
                "data.path": "{data}/ag_news/train.csv",
                "data.options.test": "{data}/ag_news/test.csv",
                "data.clients": 10,
                "aux.source": "csv",
                "aux.path": "{data}/bookcorpus.csv",
                "aux.options": {"label": ""},
                "local.lr": 1e-5,
                "distill.lr": 1e-5,
                "distill.batch_size": 32,
            },
        ),
    ),
    "mixed": Study(
        "Mixed architectures",
        "What do clients with different networks reach together?",
        Grid(
            {"method": PRETRAINED}, {"prototypes": ["mlp", "cnn"]}, seeds=1, minutes=0.2
        ),
        Grid(
            {"method": PRETRAINED, "data.alpha": [0.1]},
            # as in studies/regimes.py; MobileNetV2 and ShuffleNet would pre-train for
            # hours
            {
                **WHOLE,
                "rounds": 10,
                "prototypes": [
                    *RESNET,
                    {"name": "resnet8", "width": 8},
                    {"name": "cnn"},
                ],
                "data.options": {"limit": 20_000, "test_limit": 4000},
                "aux.limit": 12_000,
                "aux.negatives": 0.75,
                "pretrain.epochs": 4,
            },
        ),
        Grid(
            {"method": ["feddf", "feddf+p", "fedaux"], "data.alpha": ALPHAS},
            {"prototypes": THREE, "data.clients": 60},
        ),
    ),
    "toys": Study(
        "Toys",
        (
            "Do weighted teachers find Iris, and are scores the weights that theory "
            "asks for?"
        ),
        Grid(seeds=1, minutes=0.2),
        Grid(minutes=0.3),
        Grid(minutes=0.3),
        alone="studies.toys:study",
    ),
    "leakage": Study(
        "Leakage",
        (
            "Are the public images that a client scores highest closer to its records "
            "than to others?"
        ),
        Grid(
            {
                "privacy.scorer": ["class-embedding", "logistic"],
                "privacy.epsilon": [1.0, NO_NOISE],
            },
            {"rounds": 1, "head_only": True},
            seeds=1,
            minutes=0.2,
        ),
        Grid(
            {
                "privacy.scorer": ["logistic", "class-embedding"],
                "privacy.epsilon": [0.1, 1.0, NO_NOISE],
            },
            {"rounds": 1, "fraction": 1.0},
            # most of them features, which linear, privacy, one-shot and participation
            # share
            minutes=5,
        ),
        Grid(
            {"privacy.epsilon": [0.1, NO_NOISE]},
            {
                "rounds": 1,
                "fraction": 1.0,
                "privacy.scorer": "logistic",
                "privacy.ridge": 0.1,
            },
        ),
        after="studies.leakage:study",
    ),
    "cost": Study(
        "Cost",
        "What does each method cost in bytes and seconds?",
        Grid({"method": ["fedavg", "feddf+p", "fedaux"]}, seeds=1, minutes=0.2),
        Grid(
            {"method": NINE},
            {
                **WHOLE,
                "rounds": 2,
                "data.options.limit": 2000,
                "data.options.test_limit": 500,
                "teachers.examples": 500,
            },
            minutes=5,
        ),
        Grid({"method": NINE}, {"rounds": 2}),
        after="studies.costs:study",
    ),
}


def find_study(name: str) -> Study:
    """Return a study by its name, or raise with the nearest names."""
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    return STUDIES[name]
