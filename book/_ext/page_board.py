"""What the scoreboard's page prints: every published step, its predictions, and their errors."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import median
from typing import TYPE_CHECKING, Any

import roofline
import roofline_helpers as rh
from roofline import evidence as files
from roofline import network, validation
from roofline.training.step import SLICES
from roofline.validation import PublishedDecode, PublishedStep
from roofline.validation.networks import LARGE
from roofline.validation.rivals import ratios
from roofline_helpers import measured
from roofline_helpers.common.show import significant
from roofline_helpers.measured.kernels import kernel_laws, measured_kernels
from roofline_helpers.measured.tables import FOLDER

if TYPE_CHECKING:
    import pandas


PUBLISHED = "published."  # how a constant's name begins that NCCL's own source has
KINDS = {"dense": "dense", "mixture of experts": "experts"}


@cache
def frame() -> pandas.DataFrame:
    """Return the scoreboard, and what kind of step each row is in a word or two.

    "law s" and "error" are of the prediction by laws of measured kernels, "reached s" of ceilings.
    """
    board, ceilings = roofline.scoreboard(law=True), roofline.scoreboard()
    what = board.kind.map(KINDS).mask(board.step == "decode", "decode")
    board = board.rename(columns={"predicted s": "law s"})
    return board.assign(what=what, **{"reached s": ceilings["predicted s"]})


def markdown(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: int = 0,
) -> str:
    """Return a table; its last columns, as many as `numbers`, are right-aligned."""
    texts = len(header) - numbers
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * texts + "---:|" * numbers]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def board() -> dict[str, str]:
    """Return the texts of the page, by name."""
    rows = frame()
    off, rule = rows.error.abs(), rows["rule of thumb error"].abs()
    peer = rows["mlsysim error"].dropna()
    lawful = rows["law s"] != rows["reached s"]
    ceilings = (rows["reached s"] / rows["published s"] - 1).abs()
    late = rows.source.str.contains("mlcommons|JAX-Toolbox")
    constants = files.load("constants")["without"]
    own = [name for name in constants if not name.startswith(PUBLISHED)]
    streamless = rows.chip[rows.chip.map(lambda key: rh.chip(key).reached.stream() is None)]
    dense = rows.what == "dense"
    recipes = (1 / ratios(rows[rows.step == "training"], "law s") - 1).abs()
    ours, theirs = (each[dense].groupby(rows.chip).median() for each in (off, rule))
    return {
        "board_rows": str(len(rows)),
        "board_sources": str(len({step.source for step in validation.steps()})),
        "board_beaten": str(int((rows["bound s"] > rows["published s"]).sum())),
        "board_closest": f"{(rows['bound s'] / rows['published s']).max():.0%}",
        "board_median": f"{off.median():.1%}",
        "board_within": f"{(off <= LARGE).mean():.0%}",
        "board_nine": f"{off.quantile(0.9):.0%}",
        "board_fast": f"{(rows.error < 0).mean():.0%}",
        "board_across": _worst(validation.published_step("b200-256-deepseek-v3-fp8")),
        "board_h200": percent(rows.error["h200-256-llama-3.1-70b"]),
        "board_late": f"{late.sum()} rows of {len(ratios(rows[late], 'law s'))} recipes",
        "board_late_median": f"{off[late].median():.0%}",
        "board_late_ceilings": f"{ceilings[late].median():.0%}",
        "board_late_rule": f"{rule[late].median():.0%}",
        "board_tpu_experts": percent(rows.error[(rows.what == "experts") & ~lawful].median()),
        "board_gpu_experts": percent(rows.error[(rows.what == "experts") & lawful].median()),
        "board_v6e": percent(rows.error[dense & (rows.chip == "v6e")].median()),
        "board_v6e_rule": f"{theirs['v6e']:.0%}",
        "board_v6e_ours": f"{ours['v6e']:.0%}",
        "board_peer": files.load("mlsysim")["version"],
        "board_peer_rows": str(len(peer)),
        "board_peer_median": f"{peer.abs().median():.0%}",
        "board_peer_ours": f"{off[peer.index].median():.0%}",
        "board_groups": _groups(rows),
        **_kinds(),
        "board_recipes": str(len(recipes)),
        "board_recipes_median": f"{recipes.median():.0%}",
        "board_lawful": str(int(lawful.sum())),
        "board_lawful_dense": _before(ceilings[lawful & dense], off[lawful & dense]),
        "board_lawful_experts": _before(ceilings[lawful & ~dense], off[lawful & ~dense]),
        "board_lawful_worse": ", ".join(f"`{key}`" for key in off.index[off > ceilings + 0.05]),
        "board_slices": f"{SLICES:.1%}",
        "board_streamless_rows": str(len(streamless)),
        "board_laws": _laws(),
        **_kernel_laws(),
        **dict(zip(("board_network_small", "board_network_large"), _network(), strict=True)),
        "board_exchanges": _exchanges(),
        "board_fp8": _fp8(rows),
        "board_worst": "\n\n".join(map(_worst, validation.worst())),
        "board_constants": _constants(),
        "board_constant_count": str(len(own)),
        "board_constant_published": str(len(constants) - len(own)),
        "board_collectives": str(int(validation.collectives().judged.sum())),
        "board_table": _table(),
    }


def percent(error: float) -> str:
    """Return a signed error in percent; a dash where there is none."""
    return "–" if error != error else f"{100 * error:+.0f}".replace("-", "−")


def _groups(rows: pandas.DataFrame) -> str:
    """Return errors by kind of step and, of dense models, by chip."""
    kinds = {"training, dense": "dense", "training, mixtures of experts": "experts"}
    kinds["decode"] = "decode"
    groups = {"all": rows} | {title: rows[rows.what == what] for title, what in kinds.items()}
    on = dict(iter(rows[rows.what == "dense"].groupby("chip")))
    groups |= {f"dense on {chip.key}": on[chip.key] for chip in rh.all_chips() if chip.key in on}

    def row(name: str, own: pandas.DataFrame) -> list[str]:
        off, rule = own.error.abs(), own["rule of thumb error"].abs()
        ceilings = (own["reached s"] / own["published s"] - 1).abs()
        medians = [percent(own.error.median())]
        medians += [f"{each.median():.0%}" for each in (off, ceilings, rule)]
        shares = [f"{(each <= LARGE).mean():.0%}" for each in (off, rule)]
        return [name, str(len(own)), *medians, *shares]

    heads = ["of", "rows", "signed median, %", "median error", "without laws"]
    heads += ["the envelope's", "within 30%", "the envelope within 30%"]
    return markdown(heads, [row(name, own) for name, own in groups.items()], numbers=7)


EVERY = 3
"""Of the served engines each so manieth is predicted, which takes seconds."""


def _kinds() -> dict[str, str]:
    """Return errors by kind of step and of load, where the model has no skill, what it refuses."""
    kinds, points = validation.kinds(every=EVERY), validation.served(EVERY)
    few = kinds.rows < 10

    def row(what: Any, its: Any) -> list[str]:
        rest = [percent(its["signed"])]
        names = ("median error", "in range", "rule of thumb", "with one factor per chip")
        rest += [f"{its[name]:.0%}" if its[name] == its[name] else "–" for name in names]
        days = f"{its['from'][:7]} to {its['to'][:7]}"
        # Pages of training and decode steps rarely name a version: their software is older
        step = what.startswith(("training", "decode"))
        return [what, str(its["rows"]), f"page read {days}" if step else days, *rest]

    heads = ["of", "rows", "software of", "signed, %", "median error", "in its range"]
    heads += ["the envelope's", "envelope, one factor per chip"]
    without = kinds[~kinds.skill & ~few]
    doubts = [*validation.points().doubt.dropna().unique(), "the numbers of workers aren't given"]
    reasons = points[(points.quantity == "time per token") & (points.refused != "")].refused
    own = reasons.where(reasons.isin(doubts), "memory or sizes contradict the point")
    return {
        "board_kinds": markdown(heads, [row(what, its) for what, its in kinds.iterrows()], 5),
        "board_no_skill": "; ".join(
            f"{what} ({its['median error']:.0%}, the envelope with a factor "
            f"{its['with one factor per chip']:.0%})"
            for what, its in without.iterrows()
        ),
        "board_few": "; ".join(f"{what} ({its['rows']})" for what, its in kinds[few].iterrows()),
        "board_served": f"{len(validation.points()):,}",
        "board_left_out": "\n".join(f"- {n}: {why}" for why, n in own.value_counts().items()),
    }


def waterfall(one: PublishedStep | PublishedDecode) -> Mapping[str, float]:
    """Return what a prediction is made of, in seconds."""
    if isinstance(one, PublishedStep):
        return one.by_law.waterfall()
    network = one.reached.comms
    return {"reading and matmuls": one.reached.seconds - network, "exchanges": network}


def _table() -> str:
    """Return every row."""
    board = frame()

    def row(one: PublishedStep | PublishedDecode, its: Any) -> list[str]:
        about = [f"[{one.key}]({one.url})", one.chip, one.model.name, its["what"], one.dtype]
        times = [significant(its[f"{name} s"]) for name in ("published", "bound", "law")]
        errors = [percent(its[f"{name}error"]) for name in ("", "rule of thumb ", "mlsysim ")]
        return [*about, *times, *errors]

    heads = ["row", "chip", "model", "kind", "type", "published s", "bound s"]
    heads += ["predicted s", "error, %", "envelope, %", "mlsysim, %"]
    return markdown(heads, [row(one, board.loc[one.key]) for one in validation.steps()], numbers=6)


def _worst(one: PublishedStep | PublishedDecode) -> str:
    """Return a paragraph on why a row is far off, after what is known of it."""
    its: Any = frame().loc[one.key]
    parts = [f"{name} {rh.si(part, 's')}" for name, part in waterfall(one).items() if part]
    return (
        f"**[{one.key}]({one.url})**, {one.model.name} in {one.dtype} on {one.topology.chips} "
        f"{one.chip}: published {rh.si(one.seconds, 's')}, predicted "
        f"{rh.si(its['law s'], 's')}, {percent(its['error'])}%. The prediction is "
        f"{', '.join(parts)}. {' '.join(one.why.split())}"
    )


def _constants() -> str:
    """Return every constant, and the errors without it."""
    kept = files.load("constants")

    def errors(row: Mapping[str, float]) -> list[str]:
        return [f"{100 * row[name]:.1f}" for name in ("steps", "collectives")]

    without = kept["without"].items()
    rows = [["all of them", *errors(kept["all"])]]
    rows += [[f"`{name.removeprefix(PUBLISHED)}`", *errors(row)] for name, row in without]
    heads = ["constant", "median error without it, %", "of collectives, %"]
    return markdown(heads, rows, numbers=2)


LAWS = [
    *(("matmul", dtype) for dtype in ("bf16", "fp8", "fp8 in blocks", "nvfp4")),
    *((f"{phase}_attention", "bf16") for phase in ("prefill", "decode")),
    *(("grouped_matmul", dtype) for dtype in ("bf16", "fp8 in blocks")),
    *((kind, "fp16") for kind in network.measured.COLLECTIVES),
]
"""Family and type of the laws that the page judges."""


def _laws() -> str:
    """Return the laws' errors by family: of each chip's, the middle one."""

    def middle(found: Sequence[measured.laws.Law], which: str, name: str) -> str:
        errors = [getattr(law, which) for law in found if getattr(law, which)]
        return f"{median(getattr(error, name) for error in errors):.0%}" if errors else "–"

    rows, every = [], measured.laws.every_law()
    for family, dtype in LAWS:
        own = [law for law in every if (law.family, law.dtype) == (family, dtype)]
        best = [law for law in own if law.library == measured.laws.FASTEST]
        known = [law for law in own if law.library != measured.laws.FASTEST]
        row = [middle(best, "law", name) for name in ("median", "p90")]
        row += [middle(best, which, "median") for which in ("roof", "nearest", "unseen")]
        title = f"{family.replace('_', ' ')}, {dtype}"
        rows.append([title, str(len(best)), *row, middle(known, "law", "median")])
    heads = ["kernels", "chips", "median", "nine in ten", "the bare roof", "nearest shape"]
    heads += ["chip left out", "library known"]
    return markdown(heads, rows, numbers=7)


def _kernel_laws() -> dict[str, str]:
    """Return the errors of the laws of XLA's kernels, by class, and how far they hold together."""
    with (FOLDER / "kernel-errors.csv").open(encoding="utf-8") as file:
        errors = {(e["kind"], e["left_out"], e["chip"]): e for e in csv.DictReader(file)}
    laws, rows = kernel_laws(), []
    kinds = list(dict.fromkeys(kind for kind, *_ in errors))
    for kind in kinds:
        both = [errors[kind, "cases", key] for key in ("h100", "h200")]
        moved = [errors[kind, "chip", key] for key in ("h100", "h200")]
        family = errors.get((kind, "family", ""))
        rows.append(
            [
                kind,
                str(laws.kinds[kind].cases),
                *(f"{float(one['median_error']):.0%}" for one in both),
                *(f"{float(one['inside']):.0%}" for one in both),
                significant(median(float(one["width"]) for one in both), 2),
                *(f"{float(one['median_error']):.0%}" for one in moved),
                f"{float(family['median_error']):.0%}" if family else "–",
            ]
        )
    heads = ["kernels", "cases", "error, H100", "H200", "inside, H100", "H200", "high ÷ low"]
    heads += ["fitted on an H200, judged on an H100", "the other way", "family left out"]
    kept = [one for (_, what, _), one in errors.items() if what == "cases"]
    every = sum(float(one["cases"]) for one in kept)

    def over(name: str) -> float:
        return sum(float(one[name]) * float(one["cases"]) for one in kept) / every

    beside = laws.kinds["matmul beside libraries"]
    ends = (beside.weights["law"] * end for end in (beside.low, beside.high))
    return {
        "board_kernel_laws": markdown(heads, rows, numbers=9),
        "board_kernels": f"{len(measured_kernels()):,}",
        "board_kernels_inside": f"{over('inside'):.0%}",
        "board_kernels_error": f"{over('median_error'):.0%}",
        "board_kernel_gap": rh.si(laws.call.gap, "s", digits=2),
        "board_kernel_least": " and ".join(rh.si(t, "s", digits=2) for t in laws.least.values()),
        "board_kernel_libraries": " to ".join(f"{end:.2f}" for end in ends),
        "board_kernel_calls": f"{laws.call.low:.2f} to {laws.call.high:.2f}",
    }


def _network() -> list[str]:
    """Return the network model's median errors on NCCL's times: below 4 MiB, and from there on."""
    rows = measured.table("collective")
    rows = rows[(rows.dtype == "fp16") & (rows.op != "alltoall")]
    rows = rows[rows.chip.isin([law.chip for law in measured.laws_of("all-reduce")])]
    off: dict[bool, list[float]] = {False: [], True: []}
    columns: Any = (rows[name] for name in ("chip", "op", "gpus", "bytes", "seconds"))
    for chip, op, gpus, nbytes, seconds in zip(*columns, strict=True):
        over = roofline.network.topology(chip, int(gpus), ceilings="reached").fast
        one = roofline.network.collective(op.replace("_", "-"), float(nbytes), over)
        off[bool(nbytes >= 4 * 2**20)].append(abs(one.seconds / seconds - 1))
    return [f"{median(each):.0%}" for each in off.values()]


def _exchanges() -> str:
    """Return the network model's errors on measured collectives, by source and by size."""
    rows = validation.collectives()

    def row(name: str, own: pandas.DataFrame) -> list[str]:
        cells = [name]
        for some in (own[own.judged], own):
            off = some.error.abs()
            cells += [str(len(off)), f"{off.median():.1%}", str(int((off > LARGE).sum()))]
        return cells

    sizes = {"below 1 MB": (0, 1e6), "1 to 10 MB": (1e6, 1e7), "10 to 500 MB": (1e7, 5e8)}
    sizes["above"] = (5e8, float("inf"))
    groups = [row(str(source), own) for source, own in rows.groupby("source")]
    groups += [
        row(name, rows[(low <= rows.bytes) & (rows.bytes < high)])
        for name, (low, high) in sizes.items()
    ]
    heads = ["of", "judged", "median error", "over 30%", "all rows", "median error", "over 30%"]
    return markdown(heads, [*groups, row("all of them", rows)], numbers=6)


def with_fp8(one: PublishedStep, rate: float) -> roofline.training.TrainingStep:
    """Return the step as predicted without laws and with another fp8 ceiling, in FLOP/s."""
    place = one.reached.setting.topology
    reached = place.chip.reached
    matrix = {**reached.matrix, "fp8": replace(reached.matrix["fp8"], value=rate)}
    chip = replace(place.chip, reached=replace(reached, matrix=matrix))
    return roofline.training.step(
        one.model,
        replace(place, chip=chip),
        one.mesh,
        batch=one.batch,
        seq=one.seq,
        **one.setting,
    )


def fp8_ceilings() -> dict[str, float]:
    """Return an H100's two fp8 ceilings: with a slow transpose before the matmul, and without."""
    first = measured.device_records()["h100"].sample("matmul 8192×8192×8192 fp8").rate
    assert first is not None
    return {"with the transpose": first, "without": rh.chip("h100").reached.matrix["fp8"].value}


def _fp8(rows: pandas.DataFrame) -> str:
    """Return the errors of fp8 steps on H100s by each ceiling, and by laws."""
    own = rows[(rows.chip == "h100") & (rows.type == "fp8") & (rows.what == "dense")]
    ceilings = fp8_ceilings()
    lines = []
    for key in own.index[own.source.str.contains("NeMo/Megatron")]:
        one = validation.published_step(key)
        assert isinstance(one, PublishedStep)
        errors = [with_fp8(one, rate).seconds / one.seconds - 1 for rate in ceilings.values()]
        lines.append([key, *map(percent, [*errors, rows.error[key]])])
    heads = [f"{name}, {rate / 1e12:,.0f} TFLOP/s" for name, rate in ceilings.items()]
    return markdown(["error, %", *heads, "by laws"], lines, numbers=3)


def _before(before: pandas.Series, now: pandas.Series) -> str:
    return f"{before.median():.0%} to {now.median():.0%}"
