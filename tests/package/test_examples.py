"""The reference: each name has an example, run as a doctest."""

import doctest
import importlib
import inspect
import re

from tools import books

PAGES = [books.ROOT / "book/api.md", *sorted((books.ROOT / "book/api").glob("*.md"))]
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)$", re.M)


def public(module):
    """Return the names that a page shows of a module."""
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return list(getattr(module, "__all__", own))


def documented():
    """Yield what the reference has, by its name."""
    for page in PAGES:
        for kind, path in DIRECTIVE.findall(page.read_text("utf-8")):
            place, _, name = (path, "", "") if kind == "module" else path.rpartition(".")
            module = importlib.import_module(place)
            for each in [name] if name else public(module):
                yield f"{place}.{each}", getattr(module, each)


def without_example(names):
    spoken = ((n, v) for n, v in names if inspect.isclass(v) or inspect.isroutine(v))
    return [name for name, value in spoken if ">>> " not in (value.__doc__ or "")]


def test_every_name_of_the_reference_has_an_example():
    names = dict(documented())
    assert len(names) > 100
    assert without_example(iter(names.items())) == []


def test_the_first_page_s_examples_say_what_they_print():
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGES[0].read_text("utf-8"), re.M | re.S)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "api.md", None, 0)
    assert len(examples.examples) > 15
    assert doctest.DocTestRunner().run(examples).failed == 0
