"""The page of a look before a run: classes, columns, missing values, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedaux.config.schema import Config
from fedaux.core.noisy_counts import NoisyCount
from fedaux.core.noisy_metrics import Estimate
from fedaux.privacy.accounting import round_up
from fedaux.report.charts import Bars
from fedaux.report.page import Figure, Section, Tile, write_page
from fedaux.report.run_page import PAGE_FILE, data_name
from fedaux.report.tables import MISSING, Table
from fedaux.server.data_figures import (
    SHOWN_QUANTILES,
    DataFigures,
    count_in_words,
    describe_data_look,
    figures_by_site,
    figures_of_all,
)
from fedaux.server.data_look import DataLook
from fedaux.server.site_figures import ALL_SITES

NO_CLASS = "another or no class"
HOW_TO_READ = (
    "The dark lines are intervals of 95 % for the noise. A bar whose line begins at 0 "
    "may be noise alone."
)


def write_look_page(folder: Path, look: DataLook, config: Config) -> Path:
    """`report.html` in the folder of a look."""
    figures = figures_of_all(look)
    epsilon = round_up(look.counted.epsilon)
    records = max(0.0, figures.records.value)
    noun = "people" if look.unit == "person" else "records"
    tiles = [
        Tile(f"{records:,.0f}", f"{noun}, ± {figures.records.half:,.0f}"),
        Tile(str(len(figures.sites)), "sites have counted theirs"),
        Tile(f"ε = {epsilon}", f"at δ = {config.privacy.delta:g}, for this look"),
    ]
    return write_page(
        folder / PAGE_FILE,
        f"A look at {data_name(config)}",
        describe_data_look(look),
        tiles,
        [
            _classes(figures),
            _summary(figures),
            _sites(figures, figures_by_site(look)),
            _failures(look),
            *_columns(figures),
        ],
    )


def _classes(figures: DataFigures) -> Section:
    rows = [*figures.classes, (NO_CLASS, figures.unlabelled)]
    return Section("classes", "Classes", HOW_TO_READ, [Figure(_bars(figures, rows))])


def _bars(figures: DataFigures, rows: Sequence[tuple[str, NoisyCount]]) -> Bars:
    """Bars as long as their shares of all records."""
    shares = [figures.share(count) for _, count in rows]
    return Bars(
        [
            (label, share.value, count_in_words(count))
            for (label, count), share in zip(rows, shares, strict=True)
        ],
        intervals=[(share.low, share.high) for share in shares],
    )


def column_rows(figures: DataFigures) -> Table:
    """Missing values and quantiles of every column, for pages and terminals."""
    header = ["column", "missing", *map(_name_of_quantile, SHOWN_QUANTILES)]
    rows: list[list[str]] = []
    for column in figures.columns:
        missing = figures.share(column.missing)
        cells = [
            quantile_in_words(column.quantiles.get(share)) for share in SHOWN_QUANTILES
        ]
        rows.append([column.name, share_in_words(missing), *cells])
    return Table(header, rows)


def _name_of_quantile(share: float) -> str:
    return "median" if share == 0.5 else f"{100 * share:.0f} % quantile"


def share_in_words(share: Estimate) -> str:
    """`3.1 % (0 to 7.2)`."""
    value, low, high = (100 * number for number in (share.value, share.low, share.high))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def quantile_in_words(value: Estimate | None) -> str:
    if value is None:
        return MISSING
    return f"{value.value:.3g} ({value.low:.3g} to {value.high:.3g})"


def _summary(figures: DataFigures) -> Section | None:
    if not figures.columns:
        return None
    words = (
        "Missing values include those that cannot be read. Quantiles are of numbers, "
        f"within the range of the schema. {MISSING} stands for one that noise hides."
    )
    return Section(
        "missing", "Missing values and quantiles", words, table=column_rows(figures)
    )


def _columns(figures: DataFigures) -> list[Section]:
    sections: list[Section] = []
    for number, column in enumerate(figures.columns, 1):
        rows = [*column.bins, ("missing", column.missing)]
        figure = Figure(_bars(figures, rows))
        sections.append(Section(f"column-{number}", column.name, figures=[figure]))
    return sections


def _sites(figures: DataFigures, sites: Sequence[DataFigures]) -> Section:
    """Records and classes of each site, where they are known."""
    name = "Sites"
    if not sites:
        names = ", ".join(figures.sites)
        words = f"In the secure sum are {names}. Nobody knows the counts of one site."
        return Section("sites", name, words)
    header = ["", "records", *(label for label, _ in figures.classes), NO_CLASS]
    rows = [
        [
            site.name,
            count_in_words(site.records),
            *(count_in_words(count) for _, count in site.classes),
            count_in_words(site.unlabelled),
        ]
        for site in (figures, *sites)
    ]
    words = (
        f"Each site added noise of its own, so {ALL_SITES} have more noise than one."
    )
    return Section("sites", name, words, table=Table(header, rows))


def _failures(look: DataLook) -> Section | None:
    failures = look.counted.failures
    if not failures:
        return None
    rows = [(failure.client, failure.reason) for failure in failures]
    words = "These sites, or sums, have not counted."
    table = Table(("site", "reason"), rows)
    return Section("failures", "Failures", words, table=table)
