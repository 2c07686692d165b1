"""`fedaux methods`: what there is to choose from."""

from __future__ import annotations

import typer

from fedaux.cli.common import Json, console_for, examples, print_json

app = typer.Typer()

NARROW_TERMINAL = 100  # columns of a terminal
METHOD_COLUMNS = ("method", "what leaves a client", "protected", "needs", "take it for")
NOTE = (
    "Every name takes +p as well (scaffold+p): it then starts from an extractor "
    "pre-trained on public data. private-head, fedaux and fedaux-scaffold always do. "
    "With privacy.private_training, models are under ε as well. All methods send sizes "
    "of data and times of replies."
)


@app.command(epilog=examples("fedaux methods", "fedaux methods --json | jq '.[].name'"))
def methods(as_json: Json = False) -> None:
    """List every method, with the data that it sends, their protection, its needs and
    its use.
    """
    from fedaux.config.method_facts import all_facts
    from fedaux.report.terminal import print_sentences, results_table

    descriptions = all_facts()
    if as_json:
        print_json([vars(description) for description in descriptions])
        return
    rows = [
        (method.name, method.leaves, method.protected, method.needs, method.when)
        for method in descriptions
    ]
    console = console_for(as_json)
    table = results_table(
        "", METHOD_COLUMNS, rows, text_columns=range(len(METHOD_COLUMNS))
    )
    name, leaves, protected, needs, _ = table.columns
    # Names are there to be copied, and the last column has the longest words:
    # on a narrow terminal the others give way.
    name.no_wrap = True
    if console.width < NARROW_TERMINAL:
        leaves.max_width = 13
        protected.max_width = 11
        needs.max_width = 11
    console.print(table)
    print_sentences(console, NOTE)
