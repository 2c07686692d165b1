"""Draws images/live.svg: the panel of a real run of the digits, as it stands in the
middle of a round.
"""

import io
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from fedaux import Config, run
from fedaux.core.progress import ProgressEvent, ReplyReceived
from fedaux.report.live import Live

DOCS = Path(__file__).resolve().parent
# Rich's own form without its buttons and without the fonts that it would fetch; with
# words for those who hear it read.
FORM = """<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width} {height}">
<title>A run as it goes</title>
<desc>A panel in a terminal: rounds and time left, accuracy and its curve, how many teachers count, ε.</desc>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
<rect fill="#0c0c0c" x="1" y="1" width="{width}" height="{height}" rx="8"/>
<text class="{unique_id}-matrix" fill="#8a8a8a" x="{terminal_x}" y="28">$ fedaux run examples/digits.toml</text>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    console = Console(record=True, width=100, file=io.StringIO(), force_terminal=True)
    live = Live(console)

    def on_progress(event: ProgressEvent) -> None:
        live.on_progress(event)
        if isinstance(event, ReplyReceived) and (event.round, event.done) == (4, 6):
            console.print(live.render())

    with tempfile.TemporaryDirectory() as folder:
        run(
            Config.load(DOCS.parent / "examples" / "digits.toml"),
            folder,
            on_progress=on_progress,
        )
    picture = console.export_svg(
        title="", theme=MONOKAI, code_format=FORM, unique_id="live"
    )
    (DOCS / "images" / "live.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
