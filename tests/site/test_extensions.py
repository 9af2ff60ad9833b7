"""What the site's extensions make of figures, formulas, tables and terms."""

import pytest

import mathml


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        ("N/3", '<mo lspace="0" rspace="0">/</mo>'),
        (r"\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\max(a)", "<mi>max</mi>"),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", '<mtd class="right"><mi>a</mi></mtd>'),
    ],
)
def test_formulas(formula, part):
    made = mathml.mathml(formula, display=True)
    assert part in made
    assert " style=" not in made
    assert 'display="block"' in made


@pytest.mark.parametrize(
    "formula", [r"\nosuch{x}", r"\frac{a", r"\begin{tikz}x\end{tikz}", "a & b"]
)
def test_formulas_that_are_not_known_are_refused(formula):
    with pytest.raises(ValueError, match="'"):
        mathml.mathml(formula, display=False)
