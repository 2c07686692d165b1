"""Draws images/live.svg: the panel of a real run of the digits, as it stands in the
middle of a round.
"""

import io
import tempfile

from drawing import DOCS, IMAGES, spoken
from rich.console import Console
from rich.terminal_theme import MONOKAI

from fedaux import Config, run
from fedaux.core.progress import ProgressEvent, ReplyReceived
from fedaux.report.live import Live

COLUMNS = 46  # of a terminal that can be read on a phone
# Rich's own form without its buttons and without the fonts that it would fetch; with
# words for those who hear it read.
FORM = """<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}"
viewBox="0 0 {width} {height}">
SPOKEN
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
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True
    )
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
    words = spoken(
        "A run as it goes",
        "A panel in a terminal: rounds and time left, accuracy and its curve, how many "
        "teachers count, ε.",
    )
    picture = console.export_svg(
        title="",
        theme=MONOKAI,
        code_format=FORM.replace("SPOKEN", words),
        unique_id="live",
    )
    (IMAGES / "live.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
