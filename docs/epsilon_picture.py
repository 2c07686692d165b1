"""Draws images/epsilon.svg: accuracy against ε on a published encoder, after one exchange and after twenty rounds.

It reads what `python -m studies.secure_sums studies/published.toml` and `python -m studies.encoders` have measured.
"""

import json
import re
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "studies" / "results"
EPSILONS = (0.1, 0.3, 1.0, 3.0)
SPOKEN = """<title>Accuracy against ε</title>
<desc>CIFAR-10 on a published encoder: the private head at four ε, beside methods without protection.</desc>"""
CASE = "α = 0.01"
HEADS = {
    "secure, 20 sites": ("private head, secure sum", "#0072B2"),
    "local, 20, class moments": ("private head, noise at each site", "#56B4E9"),
}
FLAT = {"ridge": "#000000", "FedAVG+P": "#D55E00", "SCAFFOLD+P": "#CC79A7", "FedPFT": "#999999"}


def main() -> None:
    heads = json.loads((RESULTS / "secure-sums-published.json").read_text(encoding="utf-8"))
    cells = json.loads((RESULTS / "heads-published.json").read_text(encoding="utf-8"))["cells"]

    def trained(name: str, at: int) -> float:
        curves = [cell["curve"] for key, cell in cells.items() if key.startswith(f"{CASE}|{name}|")]
        return float(np.mean([curve[min(at, len(curve)) - 1] for curve in curves]))

    def draw(axes: Axes, at: int) -> None:
        for arm, (label, colour) in HEADS.items():
            means = [np.mean([v[0] for key, v in heads.items() if key.startswith(f"{arm}|{e:g}|")]) for e in EPSILONS]
            axes.plot(EPSILONS, means, "o-", color=colour, label=label)
        name = "FedAUX, ε = {:g}, private-head start"
        known = [e for e in EPSILONS if f"{CASE}|{name.format(e)}|0" in cells]
        axes.plot(
            known,
            [trained(name.format(e), at) for e in known],
            "s--",
            color="#009E73",
            label="FedAUX (its models are not protected)",
        )
        for rival, colour in FLAT.items():
            label = f"{rival.removesuffix('+P')}, no protection"
            axes.axhline(trained(rival, at), color=colour, linestyle=":", label=label)
        axes.set(xscale="log", xlabel="ε", xticks=EPSILONS, xticklabels=[f"{e:g}" for e in EPSILONS])
        axes.set_title("one exchange" if at == 1 else f"{at} rounds", fontsize=10)
        axes.minorticks_off()
        axes.grid(axis="y", alpha=0.3)

    with mpl.rc_context(
        {"svg.hashsalt": "fedaux", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(8, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        draw(left, 1)
        draw(right, 20)
        left.set_ylabel("test accuracy, CIFAR-10")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    text = re.sub(r"(<svg[^>]*>)", rf"\1\n{SPOKEN}", drawn.getvalue(), count=1)
    (DOCS / "images" / "epsilon.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
