"""What the scoreboard's page prints: every published step, its predictions, and their errors."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import roofline_helpers as rh
from page_tables import markdown
from roofline_helpers import evidence, published
from roofline_helpers.published import LARGE, PublishedDecode, PublishedStep
from roofline_helpers.show import significant

if TYPE_CHECKING:
    import pandas

    from roofline_helpers.compiled.report import Report

EXAMPLE = "v6e-8-llama-3.1-8b"
PUBLISHED = "published."  # how a constant's name begins that NCCL's own source has
KINDS = {"dense": "dense", "mixture of experts": "experts"}


@cache
def frame() -> pandas.DataFrame:
    """Return the scoreboard, and what kind of step each row is in a word or two."""
    board = rh.scoreboard()
    decode = board.step == "decode"
    return board.assign(what=board.kind.map(KINDS).mask(decode, "decode"))


def board() -> dict[str, str]:
    """Return the texts of the page, by name."""
    rows = frame()
    off, rule = rows.error.abs(), rows["rule of thumb error"].abs()
    peer = rows["mlsysim error"].dropna()
    recipes = off.groupby([rows.chip, rows.model, rows.type, rows.step]).median()
    constants = evidence.load("constants")["without"]
    with_all = evidence.load("constants")["all"]["steps"]
    moving = [name for name, row in constants.items() if abs(row["steps"] - with_all) > 5e-4]
    own = [name for name in constants if not name.startswith(PUBLISHED)]
    dense, experts = rows.what == "dense", rows.error[rows.what == "experts"]
    nearer = (rule < off)[dense]  # the rule of thumb than the prediction
    ours, theirs = (each[dense].groupby(rows.chip).median() for each in (off, rule))
    return {
        "board_rows": str(len(rows)),
        "board_sources": str(len({each.source for each in published.steps()})),
        "board_beaten": str(int((rows["bound s"] > rows["published s"]).sum())),
        "board_closest": f"{(rows['bound s'] / rows['published s']).max():.0%}",
        "board_median": f"{off.median():.1%}",
        "board_within": f"{(off <= LARGE).mean():.0%}",
        "board_nine": f"{off.quantile(0.9):.0%}",
        "board_fast": f"{(rows.error < 0).mean():.0%}",
        "board_dense_median": f"{off[dense].median():.0%}",
        "board_dense_within": f"{(off[dense] <= LARGE).mean():.0%}",
        "board_experts": str(len(experts)),
        "board_experts_times": significant(1 / (1 + experts.median()), 2),
        "board_seats": " and ".join(percent(rows.error[key]) for key in _seated()),
        "board_recipes": str(len(recipes)),
        "board_recipes_median": f"{recipes.median():.0%}",
        "board_blackwell": percent(rows.error[dense & rows.chip.str.contains("b[23]00")].median()),
        "board_v6e": percent(rows.error[dense & (rows.chip == "v6e")].median()),
        "board_rule_median": f"{rule.median():.0%}",
        "board_v6e_rule": f"{theirs['v6e']:.0%}",
        "board_v6e_ours": f"{ours['v6e']:.0%}",
        "board_rule_nearer": f"{int(nearer.sum())} of {len(nearer)}",
        "board_rule_chips": _listed([chip for chip in ours.index if theirs[chip] < ours[chip]]),
        "board_rule_within": f"{(rule <= LARGE).mean():.0%}",
        "board_peer": evidence.load("mlsysim")["version"],
        "board_peer_rows": str(len(peer)),
        "board_peer_median": f"{peer.abs().median():.0%}",
        "board_peer_within": f"{(peer.abs() <= LARGE).mean():.0%}",
        "board_peer_ours": f"{off[peer.index].median():.0%}",
        "board_groups": _groups(rows),
        "board_unseen": _unseen(rows),
        "board_scale": _scale(),
        "board_streamless": _listed(list(dict.fromkeys(rows.chip[_streamless(rows)]))),
        "board_streamless_rows": str(int(_streamless(rows).sum())),
        "board_worst": "\n\n".join(map(_worst, published.worst())),
        "board_constants": _constants(),
        "board_constant_count": str(len(own)),
        "board_constant_published": str(len(constants) - len(own)),
        "board_constant_moving": str(len(moving)),
        "board_collectives": str(int(published.collectives().judged.sum())),
        "board_collectives_median": f"{evidence.load('constants')['all']['collectives']:.0%}",
        "board_block": _block(EXAMPLE),
        "board_programs": _programs(rows),
        "board_crowded": _crowded(),
        "board_fed": _fed(),
        "board_table": _table(),
    }


def _seated() -> list[str]:
    """Return the keys of the mixtures whose recipes bring tokens to seats."""
    steps = (one for one in published.steps() if isinstance(one, PublishedStep))
    return [one.key for one in steps if "capacity" in one.setting]


def percent(error: float) -> str:
    """Return a signed error in percent; a dash where there is none."""
    return "–" if error != error else f"{100 * error:+.0f}".replace("-", "−")


def _groups(rows: pandas.DataFrame) -> str:
    """Return errors by kind of step and, of dense models, by chip."""
    groups = {"all": rows}
    for what, title in (
        ("dense", "training, dense"),
        ("experts", "training, mixtures of experts"),
        ("decode", "decode"),
    ):
        groups[title] = rows[rows.what == what]
    for key in dict.fromkeys(chip.key for chip in rh.all_chips()):
        own = rows[(rows.what == "dense") & (rows.chip == key)]
        if len(own):
            groups[f"dense on {key}"] = own

    def row(name: str, own: pandas.DataFrame) -> list[str]:
        off, rule = own.error.abs(), own["rule of thumb error"].abs()
        medians = [percent(own.error.median())] + [f"{each.median():.0%}" for each in (off, rule)]
        shares = [f"{(each <= LARGE).mean():.0%}" for each in (off, rule)]
        return [name, str(len(own)), *medians, *shares]

    heads = ["of", "rows", "middle error, %", "median error", "of the rule of thumb"]
    heads += ["within 30%", "of the rule of thumb"]
    return markdown(heads, [row(name, own) for name, own in groups.items()], numbers=6)


def waterfall(one: PublishedStep | PublishedDecode) -> Mapping[str, float]:
    """Return what a prediction is made of, in seconds."""
    if isinstance(one, PublishedStep):
        return one.reached.waterfall()
    network = one.reached.comms
    return {"reading and products": one.reached.seconds - network, "exchanges": network}


def _parts(one: PublishedStep | PublishedDecode) -> str:
    return ", ".join(
        f"{name} {rh.si(seconds, 's')}" for name, seconds in waterfall(one).items() if seconds
    )


def _table() -> str:
    """Return every row; its prediction opens into what it is made of."""

    def row(one: PublishedStep | PublishedDecode, its: Any) -> list[str]:
        parts = escape(_parts(one)).replace(", ", "<br>")
        predicted = significant(its["reached s"])
        return [
            f"[{one.key}]({one.url})",
            one.chip,
            one.model.name,
            its["what"],
            one.dtype,
            significant(one.seconds),
            significant(its["bound s"]),
            f"<details><summary>{predicted}</summary>{parts}</details>",
            percent(its["error"]),
            _compiled(one, its),
            percent(its["rule of thumb error"]),
            percent(its["mlsysim error"]),
        ]

    heads = ["row", "chip", "model", "kind", "type", "published s", "bound s"]
    heads += ["predicted s", "error, %", "compiled, %", "rule of thumb, %", "mlsysim, %"]
    board = frame()
    rows = [row(one, board.loc[one.key]) for one in published.steps()]
    return markdown(heads, rows, numbers=7)


def _compiled(one: PublishedStep | PublishedDecode, its: Any) -> str:
    """Return the error of XLA's own program, which opens into what it is made of."""
    if one.compiled is None:
        return "doesn't fit" if isinstance(one, PublishedStep) and one.refused else ""
    parts = one.compiled.waterfall().items()
    lines = "<br>".join(f"{name} {rh.si(seconds, 's')}" for name, seconds in parts if seconds)
    shown = f"{percent(its['compiled error'])}: {rh.si(one.compiled.seconds, 's')}"
    return f"<details><summary>{shown}</summary>{lines}</details>"


def _programs(rows: pandas.DataFrame) -> str:
    """Return the rows that XLA compiled: what both predictions say, and what the program needs."""

    def row(one: PublishedStep, its: Any) -> list[str]:
        program = one.program
        if program is None or program.memory is None:
            needed = one.refused.needed if one.refused else None
            return [one.key, rh.si(needed, "B") if needed else "", *[""] * 6]
        memory = rh.si(program.memory.total, "B")
        again = f"{program.flops * program.devices / one.reached.flops:.2f}"
        seconds = [significant(its[name]) for name in ("published s", "reached s", "compiled s")]
        errors = [percent(its[name]) for name in ("error", "compiled error")]
        return [one.key, memory, again, *seconds, *errors]

    steps = (one for one in published.steps() if isinstance(one, PublishedStep) and one.recipe)
    heads = [
        "row",
        "memory",
        "FLOPs over the count's",
        "published s",
        "predicted s",
    ]
    heads += ["compiled s", "error, %", "compiled, %"]
    return markdown(heads, [row(one, rows.loc[one.key]) for one in steps], numbers=7)


def _listed(keys: Sequence[str]) -> str:
    """Return chips by name, as a sentence lists them."""
    names = [rh.chip(key).name for key in keys]
    return " and ".join([*[", ".join(names[:-1])][: len(names) - 1], names[-1]])


def _compiled_steps() -> Iterator[tuple[PublishedStep, Report]]:
    """Yield the steps that XLA compiled, each with its program."""
    for one in published.steps():
        if isinstance(one, PublishedStep) and one.program is not None:
            yield one, one.program


def _crowded() -> str:
    """Return the rows whose program's sum is more than its chip has."""
    keys = [
        one.key
        for one, program in _compiled_steps()
        if program.memory and program.memory.total > one.place.chip.memory["hbm"].capacity.value
    ]
    return ", ".join(f"`{key}`" for key in keys)


def _fed() -> str:
    """Return the most that products waiting for memory take of a compiled step, and whose it is."""
    shares = {
        one.key: one.compiled.fed / one.compiled.seconds
        for one, _ in _compiled_steps()
        if one.compiled
    }
    key = max(shares, key=lambda each: shares[each])
    return f"{shares[key]:.0%} of `{key}`"


def _worst(one: PublishedStep | PublishedDecode) -> str:
    """Return a paragraph on why a row is far off, after what is known of it."""
    its: Any = frame().loc[one.key]
    return (
        f"**[{one.key}]({one.url})**, {one.model.name} in {one.dtype} on {one.place.chips} "
        f"{one.chip}: published {rh.si(one.seconds, 's')}, predicted "
        f"{rh.si(its['reached s'], 's')}, {percent(its['error'])}%. The prediction is "
        f"{_parts(one)}. {' '.join(one.why.split())}"
    )


SAYS = {
    "efficiency": "share of the links' rate that large messages reach",
    "own_share": "share of the memory's rate at which an own part is copied or added",
    "startup": "begin a collective",
    "step": "each further device",
    "exchange_startup": "begin an all-to-all",
    "small_rate": "by the protocol for small messages",
    "peer_limit": "from which size on one peer gets all channels",
    "bulk_startup": "begin by the protocol for large messages",
    "bulk_step": "each further device by that protocol",
    "matrix": "share of the matrix peak, on chips where nobody published it",
}
WHERE = {
    "startup": "an all-gather on 2×2×1 v7x, and XLA's table, H100",
    "ici": "two all-gathers on 2×2×1 v7x",
    "nvlink": "XLA's table, H100",
    "nvlink.own_share": "XLA's table, H100 and B200",
    "matrix": "Google's products of 8192³ on v6e and 32768³ on v7x",
}


def _constants() -> str:
    """Return every constant with its value, its source, and the errors without it."""
    kept = evidence.load("constants")

    def errors(row: Mapping[str, float]) -> list[str]:
        return [f"{100 * row[name]:.1f}" for name in ("steps", "collectives")]

    def rows() -> Iterator[list[str]]:
        yield ["all of them", "", "", *errors(kept["all"])]
        for name, row in kept["without"].items():
            where = "published: NCCL's source" if name.startswith(PUBLISHED) else None
            place, _, key = name.removeprefix(PUBLISHED).rpartition(".")
            title = f"{place} {key}".strip().replace("_", " ")
            where = where or WHERE.get(name) or WHERE[place or key]
            yield [f"{title}: {SAYS[key]}", _value(key, row), where, *errors(row)]

    heads = ["constant", "value", "from", "median error without it, %", "of collectives, %"]
    return markdown(heads, rows(), numbers=2)


def _value(key: str, row: Mapping[str, float]) -> str:
    if key == "peer_limit":
        return rh.si(row["value"], "B")
    if key.endswith("_rate"):
        return rh.si(row["value"], "B/s")
    return rh.si(row["value"], "s") if row["value"] < 1e-3 else significant(row["value"], 4)


def unseen(rows: pandas.DataFrame) -> pandas.DataFrame:
    """Return median errors of recipes that were left out: as predicted, and times a factor a chip.

    A recipe is one chip, model and type, and has the middle one of its rows. Its factor is the
    middle one of the chip's other recipes; of all others, where the chip has no other.
    """
    import pandas

    columns = {"prediction": "reached s", "bound": "bound s", "rule of thumb": "rule of thumb s"}
    errors = {}
    for title, column in columns.items():
        short = (rows["published s"] / rows[column]).groupby([rows.chip, rows.model, rows.type])
        by = short.median()
        factors = []
        for recipe in by.index:
            others = by.drop(recipe)
            own = others[others.index.get_level_values("chip") == recipe[0]]
            factors.append((own if len(own) else others).median())
        errors[title] = [(times / by - 1).abs().median() for times in (1.0, factors)]
    return pandas.DataFrame(errors, index=["as it is", "with a factor"])


def swept(rows: pandas.DataFrame) -> pandas.Series:
    """Return which rows are of MaxText's tables: one model on many sizes of slice."""
    return rows.model.str.startswith("MaxText")


def _unseen(rows: pandas.DataFrame) -> str:
    dense = rows[rows.what == "dense"]
    tables = [unseen(dense), unseen(dense[~swept(dense)])]

    def row(name: str) -> list[str]:
        return [name, *(f"{error:.1%}" for table in tables for error in table[name])]

    heads = ["dense training, recipe by recipe", "median error", "with a factor"]
    heads += ["without MaxText's tables", "with a factor"]
    return markdown(heads, [row(str(name)) for name in tables[0]], numbers=4)


def _scale() -> str:
    """Return what is predicted and published of one model on the fewest and on the most chips."""
    steps = [one for one in published.steps() if one.key.endswith("-16b") and one.chip == "v5e"]
    few, many = steps[0], steps[-1]
    assert isinstance(few, PublishedStep)
    times = (f"{rh.si(one.seconds, 's')}" for one in (few, many))
    predicted = (f"{rh.si(one.reached.seconds, 's')}" for one in (few, many))
    return (
        f"From {few.place.chips} to {many.place.chips:,} chips of v5e a step of {few.model.name} "
        f"went from {' to '.join(times)}; predicted are {' and '.join(predicted)}"
    )


def _streamless(rows: pandas.DataFrame) -> pandas.Series:
    """Return which rows have no sustained rate of memory that anybody published."""
    return rows.chip.map(lambda key: rh.chip(key).reached.stream() is None)


def _block(key: str) -> str:
    """Return the TOML block of a row, as it is in its file."""
    folder = resources.files("roofline_helpers").joinpath("data", "published")
    for path in folder.iterdir():
        for block in re.split(r"(?=^\[\[)", path.read_text("utf-8"), flags=re.MULTILINE):
            if block.startswith("[[") and tomllib.loads(block).get("row", [{}])[0].get("id") == key:
                return f"```toml\n{block.strip()}\n```"
    raise LookupError(f"no row {key!r}")
