"""Formulas of the pages are set on the site, and nothing else is touched."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
_spec = importlib.util.spec_from_file_location("formulas", DOCS / "formulas.py")
assert _spec is not None
assert _spec.loader is not None
formulas = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(formulas)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("P ≤ e^ε P′ + e^{−τ²/2}", "P ≤ e<sup>ε</sup> P′ + e<sup>−τ²/2</sup>"),
        ("D_i ∪ D_distill", "D<sub>i</sub> ∪ D<sub>distill</sub>"),
        ("√(2Σa_c²)·G", "√(2Σa<sub>c</sub>²)·G"),
        ("2^53, and e^⟨w,h⟩", "2<sup>53</sup>, and e<sup>⟨w,h⟩</sup>"),
        ("Σ_{m≥1} x", "Σ<sub>m≥1</sub> x"),
        ("p^(1/T)", "p<sup>(1/T)</sup>"),
        ("84.1 ± 0.6 % of 5 %", "84.1\u00a0±\u00a00.6\u00a0% of 5\u00a0%"),
        ("<code>1 ± 2</code> a ± b", "<code>1 ± 2</code> a ± b"),
        ("head_only and my_app stay", "head_only and my_app stay"),
        (
            "<code>a_b^c</code> <a href='x_y'>D_i</a>",
            "<code>a_b^c</code> <a href='x_y'>D<sub>i</sub></a>",
        ),
        ("<pre><span>x_i</span></pre>", "<pre><span>x_i</span></pre>"),
    ],
)
def test_exponents_and_indices(text: str, shown: str) -> None:
    assert formulas.set_formulas(text) == shown


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda path: path.name)
def test_no_formula_is_left_raw(page: Path) -> None:
    """Of what a reader sees as text: fenced and inline code aside."""
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    left = re.findall(
        r"\S*[\^]\S*|\S*_\{\S*", re.sub(r"<[^>]+>", "", formulas.set_formulas(text))
    )
    assert left == []
