"""Shapes of the pictures: boxes, words and arrows in an SVG that reads on light and on
dark pages.
"""

from collections.abc import Iterable
from html import escape
from pathlib import Path

IMAGES = Path(__file__).resolve().parent / "images"
SERVER, SITE, PROTECTED, GREY = "#2f5d8c", "#7d4a78", "#2e7560", "#4a5466"
ON_SERVER, ON_SITE = "#1f4266", "#5c3358"
INNER = "#ffffff2e"
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"
     role="img" aria-labelledby="t d"
     font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif">
  <!-- Drawn by docs/{script}. Text is on filled shapes, so it reads on light and on dark pages. -->
  <title id="t">{title}</title>
  <desc id="d">{described}</desc>
  <style>
    text {{ fill: #fff; font-size: 16px; }}
    .h {{ font-size: 18px; font-weight: 600; }}
    .m {{ text-anchor: middle; }}
    .s {{ font-size: 15px; }}
    .e {{ font-size: 12px; text-anchor: end; fill: #d7deea; }}
    .line {{ stroke: #8a94a6; stroke-width: 2.5; fill: none; }}
  </style>
  <defs>
    <marker id="a" viewBox="0 0 10 10" refX="8.5" refY="5" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 0 L10 5 L0 10 z" fill="#8a94a6"/>
    </marker>
  </defs>
"""


def picture(
    title: str,
    described: str,
    size: tuple[float, float],
    shapes: Iterable[str],
    script: str = "pictures.py",
) -> str:
    width, height = size
    head = HEAD.format(
        width=f"{width:g}",
        height=f"{height:g}",
        script=script,
        title=escape(title),
        described=escape(described),
    )
    return head + "".join(f"  {shape}\n" for shape in shapes) + "</svg>\n"


def box(left: float, top: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" '
        f'rx="9" fill="{fill}"/>'
    )


def words(left: float, top: float, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{left:g}" y="{top:g}"{named}>{escape(text)}</text>'


def arrow(path: str) -> str:
    return f'<path class="line" d="{path}" marker-end="url(#a)"/>'
