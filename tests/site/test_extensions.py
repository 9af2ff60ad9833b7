"""What the site's extensions make of figures, formulas, tables and terms."""

import docutils.utils
import numpy as np
import pytest
from docutils import nodes

import figures
import mathml
import outputs
import table_widths


def test_white_becomes_the_dark_ground_and_black_its_ink() -> None:
    made = figures.darkened(
        np.array(
            [
                [255, 255, 255],
                [0, 0, 0],
            ]
        )
    )
    assert np.abs(made[0].astype(int) - figures.DARK).max() <= 1
    assert np.abs(made[1].astype(int) - figures.LIGHT).max() <= 1


@pytest.mark.parametrize(
    ("formula", "part"),
    [
        ("N/3", '<mo lspace="0" rspace="0">/</mo>'),
        (r"\frac{a}{b}", "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>"),
        (r"\max(a)", "<mi>max</mi>"),
        (r"\begin{aligned}a&=b\\c&=d\end{aligned}", '<mtd class="right"><mi>a</mi></mtd>'),
    ],
)
def test_formulas(formula: str, part: str) -> None:
    made = mathml.mathml(formula, display=True)
    assert part in made
    assert " style=" not in made
    assert 'display="block"' in made


@pytest.mark.parametrize(
    "formula", [r"\nosuch{x}", r"\frac{a", r"\begin{tikz}x\end{tikz}", "a & b"]
)
def test_formulas_that_are_not_known_are_refused(formula: str) -> None:
    with pytest.raises(ValueError, match="'"):
        mathml.mathml(formula, display=False)


def test_columns_of_numbers_are_found() -> None:
    table = (
        '<table border="1" class="dataframe"><thead><tr style="text-align: right;"><th></th>'
        "<th>chip</th><th>GB/s</th></tr></thead><tbody><tr><th>0</th><td>H100</td><td>3,350</td>"
        f"</tr><tr><th>1</th><td>{'long ' * 12}</td><td>–</td></tr></tbody></table>"
    )
    made = outputs.cleaned(table, None, "")
    assert '<th class="number">GB/s</th>' in made
    assert '<td class="number">3,350</td>' in made
    assert "<td>H100</td>" in made
    assert made.count("number") == 6
    assert "border" not in made
    assert "style" not in made


@pytest.mark.parametrize(
    ("head", "row", "rows", "look"),
    [
        (["chip", "ridge"], ["a very long name " * 9, "312"], 20, ""),  # two columns always fit
        (["chip", "bandwidth"] * 5, ["NVIDIA", "3,350 GB/s"] * 5, 2, "frozen"),
        (["chip", "time", "why"], ["reduce_sum_fusion", "3.5 ms", "synchronisation"], 3, "frozen"),
        (["chip", "maker"] * 5, ["H100", "NVIDIA"] * 5, 5, "cards"),
        (["chip", "maker"] * 5, ["H100", "NVIDIA"] * 5, 8, "frozen"),
        (["wrong", "try", "read"], ["a text of several lines " * 3] * 3, 20, ""),
        (["wrong", "try", "read"], ["roofline/measure"] * 3, 20, "cards"),
    ],
)
def test_numbers_scroll_and_a_few_words_become_cards_where_a_phone_is_too_narrow(
    head: list[str], row: list[str], rows: int, look: str
) -> None:
    assert table_widths.narrow_look(head, [row] * rows) == look


def test_cards_say_whose_value_each_cell_is() -> None:
    names = [f"column {number}" for number in range(9)]
    head = "".join(f"<th>{name}</th>" for name in names)
    row = "<th>reduce_sum_fusion.1</th>" + "<td>the memory of the chip</td>" * 8
    table = f"<table><thead><tr>{head}</tr></thead><tbody><tr>{row}</tr></tbody></table>"
    made = outputs.cleaned(table, None, "")
    assert '<table class="cards">' in made
    assert made.count("data-name=") == 8
    assert '<td data-name="column 1">the memory of the chip</td>' in made


def cell(code: str | None, shown: str = "", folded: bool = True) -> nodes.container:
    """A notebook's cell on its way to the page: code and output, each where there is one."""
    made = nodes.container(nb_element="cell_code")
    if code:
        source = nodes.container("", nodes.literal_block(code, code), nb_element="cell_code_source")
        made += outputs.HideCodeCellNode("", source) if folded else source
    if shown:
        made += nodes.container("", nodes.raw("", shown), nb_element="cell_code_output")
    return made


def test_no_fold_stands_alone_but_above_open_code() -> None:
    page = docutils.utils.new_document("a page")
    page += [
        cell("imports"),
        nodes.paragraph("", "prose"),
        cell("open", "table", folded=False),
        cell("rows"),
        cell("figure", "picture"),
        cell("answers"),
        cell(None, "question"),
        cell("values", '<roofline-ask data-kind="question">'),
        cell("helper"),
        cell("uses helper", folded=False),
    ]
    outputs.gather_folds(page)
    left = [[one.astext() for one in top] for top in page if isinstance(top, nodes.container)]
    assert left == [
        ["open", "table"],
        ["imports\n\nrows\n\nfigure", "picture"],
        ["question", "answers"],
        ['<roofline-ask data-kind="question">', "values"],
        ["helper"],
        ["uses helper"],
    ]
    assert "prose" in page.astext()


def test_a_fold_with_what_its_cell_has_made_stays() -> None:
    page = docutils.utils.new_document("a page")
    evidence = cell("evidence", "table")
    evidence = nodes.container("", outputs.HideCodeCellNode("", *evidence), nb_element="cell_code")
    page += [evidence, nodes.paragraph("", "prose"), cell("figure", "picture")]
    outputs.gather_folds(page)
    left = [top.astext() for top in page if isinstance(top, nodes.container)]
    assert left == ["evidence\n\ntable", "figure\n\npicture"]
