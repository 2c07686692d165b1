"""What a test at the sites shows: figures with intervals, for readers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedaux.core.metrics import METRIC_NAMES
from fedaux.core.noisy_metrics import Estimate, estimates
from fedaux.core.results import NoisyCounts, SiteTest
from fedaux.privacy.accounting import round_up

ALL_SITES = "all sites"


@dataclass(frozen=True)
class SiteFigures:
    """The figures of one network, on the records that some sites hold out.

    Attributes:
        network: The label of the prototype, or the name of one site.
        sites: Whose records were counted.
        figures: By name, `accuracy` among them. A figure that noise hides is missing.
    """

    network: str
    sites: tuple[str, ...]
    figures: dict[str, Estimate]

    def to_dict(self) -> dict[str, Any]:
        """Return a table for JSON."""
        figures = {name: vars(figure) for name, figure in self.figures.items()}
        return {"network": self.network, "sites": list(self.sites), "figures": figures}


def figures_of_test(test: SiteTest) -> list[SiteFigures]:
    """Return the figures of each network, over all its sites."""
    return [_figures(test, label, counts) for label, counts in test.counts.items()]


def figures_of_sites(test: SiteTest) -> list[SiteFigures]:
    """Return the figures of each site; none of them are known of a secure sum."""
    return [_figures(test, site, counts) for site, counts in test.by_site.items()]


def _figures(test: SiteTest, name: str, counts: NoisyCounts) -> SiteFigures:
    figures = estimates(counts.values, counts.deviation, test.edges)
    return SiteFigures(name, counts.sites, figures)


def figure_in_words(name: str, figure: Estimate) -> str:
    """`accuracy 81.3 % (78.0 to 84.6)`."""
    value, low, high = (
        100 * share for share in (figure.value, figure.low, figure.high)
    )
    return f"{METRIC_NAMES.get(name, name)} {value:.1f} % ({low:.1f} to {high:.1f})"


def describe_cost_of_look(test: SiteTest) -> str:
    """Say what the look cost each site, beside what learning had cost."""
    words = f"The look cost ε = {round_up(test.epsilon)}"
    if test.total is None:
        return f"{words}."
    if test.total_before is None:
        return f"{words}, and learning was not under noise."
    return (
        f"Learning cost ε = {round_up(test.total_before)}, the look "
        f"ε = {round_up(test.epsilon)}, and both together ε = {round_up(test.total)}."
    )


def describe_site_test(test: SiteTest) -> str:
    """Return the test in a sentence for each network."""
    sentences: list[str] = []
    found = figures_of_test(test)
    for network in found:
        name = f"{network.network} at" if len(found) > 1 else "Tested at"
        figures = ", ".join(
            figure_in_words(name, figure) for name, figure in network.figures.items()
        )
        count = len(network.sites)
        sites = "1 site" if count == 1 else f"{count} sites"
        hidden = "noise hides every figure, so hold out more records"
        sentences.append(f"{name} {sites}, on held-out records: {figures or hidden}.")
    if not found:
        reasons = "; ".join(
            f"{failure.client}: {failure.reason}" for failure in test.failures[:3]
        )
        sentences.append(f"No site has tested the model ({reasons}).")
    return " ".join(sentences)
