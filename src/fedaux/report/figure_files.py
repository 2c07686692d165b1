"""A chart as a file: SVG as it is; PDF and PNG, for papers and slides, with matplotlib drawing the same shapes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fedaux.core.errors import Exit, FedauxError, MissingPackageError
from fedaux.core.io import write_atomically
from fedaux.report.svg import Chart, read_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("svg", "pdf", "png")
_INCH = 96.0  # pixels
_WIDTHS = {"hero": 3.0, "thin": 1.5, "lead": 1.5, "others": 1.3}  # of lines; 2 for all others, as in charts.css
_SIZES = {"title": 15.0, "cell": 11.0}  # of text; 12 for all other


class FigureError(FedauxError):
    """A format that nobody draws."""

    code = Exit.USAGE


def save_chart(chart: Chart, path: Path, title: str = "") -> None:
    """In the format that the name of the file ends with. Papers have captions: PDF has no title."""
    suffix = path.suffix.removeprefix(".")
    if suffix == "svg":
        write_atomically(path, chart.standalone(title).encode())
        return
    if suffix not in FORMATS:
        raise FigureError(f"{path.name}: figures are {', '.join(FORMATS)}, not {suffix!r}.")
    write_atomically(path, _draw(chart, suffix))


def _draw(chart: Chart, suffix: str) -> bytes:
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingPackageError(f"{suffix} files are drawn by matplotlib: pip install 'fedaux[figures]'.") from error
    with mpl.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none"}):  # fonts are embedded, as publishers ask
        figure = Figure(figsize=(chart.width / _INCH, chart.height / _INCH), dpi=_INCH)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.set(xlim=(0, chart.width), ylim=(chart.height, 0))
        axes.axis("off")
        _paint(axes, ElementTree.fromstring(f"<svg>{chart.body}</svg>"), read_colours(), 0.0, (0.0, 0.0))
        file = io.BytesIO()
        metadata = {"CreationDate": None} if suffix == "pdf" else None  # the same chart is the same file
        figure.savefig(file, format=suffix, dpi=2 * _INCH, metadata=metadata)
    return file.getvalue()


def _paint(
    axes: Axes, parent: ElementTree.Element, colours: dict[str, str], angle: float, origin: tuple[float, float]
) -> None:
    from matplotlib.patches import Circle, Polygon, Rectangle

    for node in parent:
        kinds = node.get("class", "").split()
        colour = next((colours[kind] for kind in kinds if kind in colours), colours["ink"])
        at = _numbers(node)
        fill: dict[str, Any] = {"color": colour, "linewidth": 0}
        if node.tag == "g":
            turned = node.get("transform", "")
            inner = (-float(turned.split("rotate(")[1].rstrip(")")), _pair(turned)) if turned else (angle, origin)
            _paint(axes, node, colours, *inner)
        elif node.tag == "line":
            axes.plot([at["x1"], at["x2"]], [at["y1"], at["y2"]], color=colours["faint"], linewidth=0.75)
        elif node.tag == "polyline":
            _curve(axes, node, kinds, colours["faint"] if "others" in kinds else colour)
        elif node.tag == "polygon" and "quiet" not in kinds:
            tone = next(colours[kind] for kind in parent.get("class", "").split() if kind in colours)
            axes.add_patch(Polygon(_places(node), closed=True, color=tone, linewidth=0, alpha=0.2))
        elif node.tag == "rect":
            colour = colours["faint"] if "rail" in kinds else colours["t0"] if "heat" in kinds else colour
            fill |= {"color": colour, "alpha": float(node.get("fill-opacity", 1))}
            axes.add_patch(Rectangle((at["x"], at["y"]), at["width"], at["height"], **fill))
        elif node.tag == "circle" and "touch" not in kinds:
            axes.add_patch(Circle((at["cx"], at["cy"]), at["r"], **fill))
        elif node.tag == "text":
            _text(axes, node, kinds, colours, angle, origin)


def _curve(axes: Axes, node: ElementTree.Element, kinds: list[str], colour: str) -> None:
    width = 0.75 * next((_WIDTHS[kind] for kind in reversed(kinds) if kind in _WIDTHS), 2.0)
    style: Any = "-"
    if node.get("stroke-dasharray"):
        on, off = (0.75 * float(part) / width for part in node.get("stroke-dasharray", "").split())
        style = (0.75 * float(node.get("stroke-dashoffset", 0)) / width, (on, off))
    xs, ys = zip(*_places(node), strict=True)
    axes.plot(xs, ys, color=colour, linewidth=width, linestyle=style, dash_capstyle="butt", solid_joinstyle="round")


def _text(
    axes: Axes,
    node: ElementTree.Element,
    kinds: list[str],
    colours: dict[str, str],
    angle: float,
    origin: tuple[float, float],
) -> None:
    soft = {"tick", "label", "none"} & set(kinds)
    at = _numbers(node)
    axes.text(
        at["x"] + origin[0],
        at["y"] + origin[1],
        (node.text or "").replace("$", r"\$"),
        color="white" if "dark" in kinds else colours["soft" if soft else "ink"],
        fontsize=0.75 * next((_SIZES[kind] for kind in kinds if kind in _SIZES), 12.0) * 0.92,
        fontweight="bold" if "hero" in kinds else "normal",
        ha={"start": "left", "middle": "center", "end": "right"}[node.get("text-anchor", "start")],
        va="baseline",
        rotation=angle,
        rotation_mode="anchor",
    )


def _numbers(node: ElementTree.Element) -> dict[str, float]:
    return {key: float(value) for key, value in node.attrib.items() if key in _PLACES}


_PLACES = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height"}


def _places(node: ElementTree.Element) -> list[tuple[float, float]]:
    return [_pair(f"({pair.replace(',', ' ')})") for pair in node.get("points", "").split()]


def _pair(words: str) -> tuple[float, float]:
    """The first two numbers in brackets."""
    x, y = words[words.index("(") + 1 : words.index(")")].split()
    return float(x), float(y)
