"""How a page's nodes become HTML: Sphinx's translator, with what this book's frame wants otherwise.

No inline style is written, so that the content security policy needs no exception; parts of code
and of signatures that look like what is around them get no element of their own, which is half of
a page's elements; wide tables scroll inside themselves; pictures have a size, wait below the fold,
and have a version for dark pages.
"""

from html import escape
from typing import Any

from docutils import nodes
from pygments.formatters import HtmlFormatter
from sphinx.highlighting import PygmentsBridge
from sphinx.writers.html5 import HTML5Translator

import figures
import table_widths

PLAIN_TOKENS = ("", "n", "p", "w", "py", "nx")  # tokens in the colour of the text
PLAIN_PARTS = {*PLAIN_TOKENS, "default_value"}  # and what else signatures have
REFUSED = {"style", "align", "valign", "border"}  # attributes: a style sheet's business
ROLES = {"doc-biblioentry", "heading"}  # not allowed where they are written, or no heading at all


class CodeFormatter(HtmlFormatter):  # type: ignore[misc]
    """Writes highlighted code without elements for what has no colour of its own."""

    def _get_css_class(self, ttype: Any) -> str:
        name = str(super()._get_css_class(ttype))
        return "" if name in PLAIN_TOKENS else name


class CodeHighlighter(PygmentsBridge):  # type: ignore[misc]
    """Highlights code for the pages."""

    html_formatter = CodeFormatter


class BookTranslator(HTML5Translator):  # type: ignore[misc]
    """Writes a page's nodes for the theme in ``book/theme``."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.highlighter = CodeHighlighter("html")
        self.pictures = 0
        self.in_table = 0

    def starttag(
        self, node: nodes.Element, tagname: str, *arguments: Any, **attributes: Any
    ) -> str:
        """Write a tag without inline styles, and with the ``data-`` attributes of its node."""
        kept = {name: value for name, value in attributes.items() if name.lower() not in REFUSED}
        if next((kept[name] for name in kept if name.lower() == "role"), None) in ROLES:
            kept = {name: value for name, value in kept.items() if name.lower() != "role"}
        if isinstance(node, nodes.Element):
            kept |= {name: node[name] for name in node.attributes if name.startswith("data-")}
        return str(super().starttag(node, tagname, *arguments, **kept))

    # --- text ---------------------------------------------------------------------------------

    def visit_Text(self, node: nodes.Text) -> None:
        """Write text, that of literals too, without an element for each of its words."""
        self.body.append(self.encode(node.astext()))

    def visit_inline(self, node: nodes.inline) -> None:
        """Write an element only where it looks different, or is a target."""
        self.context.append("</span>" if node["ids"] or set(node["classes"]) - PLAIN_PARTS else "")
        if self.context[-1]:
            self.body.append(self.starttag(node, "span", ""))

    def depart_inline(self, node: nodes.inline) -> None:
        """Close what was opened."""
        self.body.append(self.context.pop())

    def add_permalink_ref(self, node: nodes.Element, title: str) -> None:
        """Write a heading's link to itself: for the mouse, silent for everybody else."""
        if node["ids"]:
            link = f'<a class="headerlink" href="#{node["ids"][0]}" tabindex="-1"'
            self.body.append(f'{link} aria-hidden="true">#</a>')

    def visit_citation(self, node: nodes.citation) -> None:
        """Open a citation; the roles that docutils gives it are not allowed on these elements."""
        at = len(self.body)
        super().visit_citation(node)
        self.body[at] = self.body[at].replace(' role="list"', "")

    # --- tables -------------------------------------------------------------------------------

    def visit_table(self, node: nodes.table) -> None:
        """Open what a wide table scrolls in; on a phone a few texts become cards."""
        rows = [list(row) for row in node.findall(nodes.row)]
        head, *body = [[cell.astext().strip() for cell in row] for row in rows]
        look = table_widths.narrow_look(head, body) if any(node.findall(nodes.thead)) else ""
        node["classes"] += [look] if look else []
        if look == "cards":
            for row in rows[1:]:
                for name, cell in zip(head[1:], row[1:], strict=True):
                    cell["data-name"] = name
        self.in_table += 1
        self.body.append('<div class="scroll">')
        super().visit_table(node)

    def depart_table(self, node: nodes.table) -> None:
        """Close it."""
        super().depart_table(node)
        self.body.append("</div>\n")
        self.in_table -= 1

    def visit_thead(self, node: nodes.thead) -> None:
        """Leave out a head without a word: Markdown can't write a table that has none."""
        if not node.astext().strip():
            raise nodes.SkipNode
        super().visit_thead(node)

    def visit_row(self, node: nodes.row) -> None:
        """Write a row; no style asks which ones are odd."""
        self.body.append(self.starttag(node, "tr", ""))
        node.column = 0

    def visit_entry(self, node: nodes.entry) -> None:
        """Write a cell; above a column of names there is none to be a heading."""
        super().visit_entry(node)
        if self.context[-1].startswith("</th") and not node.astext().strip():
            self.context.pop()
            self.body[-1] = "<td></td>\n"
            raise nodes.SkipNode

    def is_fold(self, node: nodes.paragraph) -> bool:
        """Tell whether a cell's paragraph is a fold, which may not be in an element of its own."""
        return self.in_table > 0 and node.astext().startswith("<details")

    def visit_paragraph(self, node: nodes.paragraph) -> None:
        """Open a paragraph, but not around a fold; one in parentheses is an aside."""
        said = node.astext().strip()
        if not self.in_table and said.startswith("(") and said.endswith(")"):
            node["classes"].append("aside")
        if not self.is_fold(node):
            super().visit_paragraph(node)

    def depart_paragraph(self, node: nodes.paragraph) -> None:
        """Close what was opened."""
        if not self.is_fold(node):
            super().depart_paragraph(node)

    # --- pictures -----------------------------------------------------------------------------

    def visit_image(self, node: nodes.image) -> None:
        """Write a picture with its size and its dark version, where it has them."""
        source = node["uri"]
        super().visit_image(node)
        picture = figures.Picture.of(self.builder.srcdir / source)
        if picture is None:
            return
        self.body[-1] = picture.markup(node["uri"], escape(node.get("alt", "")), self.pictures > 0)
        self.pictures += 1
