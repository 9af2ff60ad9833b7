"""Types wider than the reader asked for, and types without a fast unit."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from roofline.diagnosis.findings.causes import Case, Claim, Claims, whole
from roofline.diagnosis.flow import VIEWS, Flow
from roofline.diagnosis.program import Program
from roofline.diagnosis.rows import TimedRow
from roofline.xla.facts import bits_of
from roofline.xla.graph import Node
from roofline.xla.hlo import Shape


def widened(case: Case) -> Claims:
    """Yield kernels on values that a promotion has widened, by the line of the promotion."""
    for name, program in case.programs.items():
        asked = None if program.intent is None else _promoted(program.intent)
        for row in case.kernels:
            if row.program == name and row.kernel.collective is None:
                yield from _widened(case, program.flow, row, asked)


_Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Planted:
    """The promotions of a program as it was written, and the first one before each product.

    By what they are called and their dimensions, which a compiler keeps.
    """

    casts: dict[_Key, Node] = field(default_factory=dict)
    products: dict[_Key, Node] = field(default_factory=dict)


def _key(node: Node) -> _Key:
    return node.op_name, tuple(sorted(size for size in node.dims if size > 1))


def _promoted(flow: Flow) -> Planted:
    """Return the promotions in a program as written.

    Of a line of code the first one counts: its backward pass widens again what is wide already.
    """
    planted = Planted()
    by_line: dict[str, Node] = {}
    for node in flow.graph.nodes:
        cast = flow.known[node].widened
        if cast is not None and cast is node:
            planted.casts.setdefault(_key(cast), cast)
        if _narrow_side(flow, node):
            plants = [flow.known[operand].widened for operand in node.ops[:2]]
            roots = [_root(flow, plant) for plant in plants if plant is not None]
            first = min(roots, key=_order, default=node)
            first = by_line.setdefault(flow.line(node), first)
            planted.products.setdefault(_key(node), first)
    casts = {key: by_line.get(flow.line(cast), cast) for key, cast in planted.casts.items()}
    return replace(planted, casts=casts)


def _root(flow: Flow, cast: Node) -> Node:
    """Return the cast that made another one necessary: that of what the value meets, if any."""
    for _ in range(8):
        meets = _widening(flow, cast)
        before = None if meets is None else flow.known[meets].widened
        if before is None or before is cast:
            break
        cast = before
    return cast


def _order(node: Node) -> int:
    return node.number


def _widened(case: Case, flow: Flow, row: TimedRow, asked: Planted | None) -> Claims:
    """Yield the claim on a kernel whose arrays, or products, a promotion has widened."""
    nodes, kernel = flow.kernels.get(row.name, []), row.kernel
    plant, source = _plant(flow, nodes), flow
    if plant is not None and asked is None and not plant.op_name.endswith("convert_element_type"):
        plant = None  # the compiler's own
    if asked is not None:  # a CPU's compiler widens on its own: only what was written counts
        cast = None if plant is None else asked.casts.get(_key(plant))
        made = (asked.products.get(_key(node)) for node in nodes)
        plant = next((product for product in made if product is not None), cast)
        source = case.program(row).intent or flow
    if plant is None or plant.size < 2**10:
        return
    plant = _root(source, plant)
    products = [node for node in nodes if _narrow_side(flow, node)]
    factors = {flow.source(operand).number for node in products for operand in node.ops[:2]}
    read = _share(flow, [operand for operand, _, _ in flow.taken(row.name)], factors)
    written = _share(flow, flow.made(row.name), set())
    like = replace(
        kernel,
        matrix_types=tuple(_narrowed(flow, products, kind) for kind in kernel.matrix_types),
        read={level: round(n * read) for level, n in kernel.read.items()},
        written={level: round(n * written) for level, n in kernel.written.items()},
    )
    casts = {node.op for node in nodes} <= {"convert", "copy", "constant", *VIEWS}
    seconds = row.seconds if casts else case.saved(row, like)
    if bits_of(plant.dtype) == 64:  # no law of elementwise work knows how slow its unit is
        seconds = max(seconds, row.seconds - case.likely(row, like))
    if seconds > 0:
        yield _claim(source, row, plant, seconds)


def _claim(flow: Flow, row: TimedRow, plant: Node, seconds: float) -> Claim:
    if plant.op != "convert":
        shapes = " · ".join(str(operand.shape) for operand in plant.ops[:2])
        evidence = f"{shapes} is multiplied in the wider type"
        return Claim("float32", ((row, seconds),), evidence, source=flow.line(plant), known=True)
    narrow, wide = plant.ops[0], plant.dtype
    cause = "float64" if bits_of(wide) == 64 else "float32"
    evidence = f"{narrow.shape} becomes {wide} here, and what follows stays {wide}"
    other, remedy = _widening(flow, plant), ""
    if other is not None and other.op == "parameter" and other.size > 1:
        name = other.op_name or "the other side"
        remedy = f"store {name} ({other.shape}) in {narrow.dtype}, or cast it before the call"
    elif other is not None and flow.known[other].distinct == 1:
        remedy = (
            f"make the number that it meets a Python number, or cast it to {narrow.dtype}: NumPy's "
            f"numbers and arrays have a type of their own ({wide})"
        )
    elif other is not None:
        remedy = f"cast {other.shape}, which it meets, to {narrow.dtype}"
    line = flow.line(plant)
    return Claim(cause, ((row, seconds),), evidence, source=line, remedy=remedy, known=True)


def _plant(flow: Flow, nodes: list[Node]) -> Node | None:
    """Return the cast that widened most of a kernel's values."""
    found: dict[int, float] = {}
    for node in nodes:
        factors = node.ops[:2] if node.number in flow.known.spaces else []
        for each in (node, *factors):
            cast = flow.known[each].widened
            if cast is not None and (each.op != "convert" or each is cast):
                found[cast.number] = found.get(cast.number, 0.0) + node.size
    return flow.graph.nodes[max(found, key=lambda number: found[number])] if found else None


def _narrow_side(flow: Flow, node: Node) -> str:
    """Return the type of a product's narrower side, if it multiplies in a wider one; else empty."""
    if node.number not in flow.known.spaces:
        return ""
    asked = [flow.known[operand].asked for operand in node.ops[:2]]
    narrow = min(asked, key=bits_of)
    own = max(bits_of(operand.dtype) for operand in node.ops[:2])
    return narrow if 0 < bits_of(narrow) < own else ""


def _share(flow: Flow, nodes: list[Node], factors: set[int]) -> float:
    """Return the share of some arrays' bytes that they have in the types that were asked for.

    The `factors` of a product that is to be narrow are narrow.
    """
    arrays = {node.number: node for node in nodes}.values()
    own, asked = sum(node.shape.bytes for node in arrays), 0.0
    for node in arrays:
        narrow, wide = bits_of(flow.known[node].asked), bits_of(node.dtype)
        if flow.source(node).number in factors:
            narrow = min(narrow, 16)
        asked += node.shape.bytes * (min(narrow / wide, 1.0) if narrow and wide else 1.0)
    return asked / own if own else 1.0


def _narrowed(flow: Flow, products: list[Node], kind: str) -> str:
    """Return the type of a kernel's products without promotion: that of the narrower side."""
    precision = kind.partition(" ")[2]
    narrow = next(filter(None, (_narrow_side(flow, node) for node in products)), "")
    return f"{narrow} {precision}".strip() or kind


def _widening(flow: Flow, cast: Node) -> Node | None:
    """Return the operand that a widened value meets first."""
    left = list(cast.users)
    for user in left:
        if user.op in ("broadcast", "reshape", "transpose", "bitcast") and len(left) < 16:
            left += user.users
            continue
        others = [o for o in user.ops if o is not cast and bits_of(o.dtype)]
        for other in others:
            source = other
            while source.op in ("broadcast", "reshape", "bitcast", "copy") and source.ops:
                source = source.ops[0]
            return source
    return None


# --- float64, and sums of narrow integers ---------------------------------------------------------


def float64(case: Case) -> Claims:
    """Yield kernels on float64 arguments: twice the bytes, and half the rate at best.

    A TPU has no such unit: each operation becomes many on float32 and integers, none of which says
    so.
    """
    for name, program in case.programs.items():
        arguments = [p for p in program.module.entry.parameters if _is_wide(p.shape)]
        if not arguments:
            continue
        evidence = f"argument {arguments[0].literal} is {arguments[0].shape}"
        for row in case.kernels:
            if row.program != name:
                continue
            if case.platform == "tpu":
                yield whole("float64", row, f"{evidence}, which a TPU has to emulate")
            elif any(_is_wide(node.shape) for node in program.flow.kernels.get(row.name, ())):
                yield _halved(case, program, row, evidence)


def _halved(case: Case, program: Program, row: TimedRow, evidence: str) -> Claim:
    kernel = row.kernel
    like = replace(
        kernel,
        matrix_types=tuple(dtype.replace("f64", "f32") for dtype in kernel.matrix_types),
        read={"hbm": kernel.read_bytes // 2},
        written={"hbm": kernel.written_bytes // 2},
    )
    saved = max(case.saved(row, like), row.seconds / 2)
    return Claim("float64", ((row, saved),), evidence)


def _is_wide(shape: Shape) -> bool:
    return not shape.is_scalar and any(leaf.dtype in ("f64", "c128") for leaf in shape.leaves)


def narrow_sums(case: Case) -> Claims:
    """Yield integer products whose sums have fewer than 32 bits, far below their roof."""
    for row in filter(case.slow, case.kernels):
        flow = case.program(row).flow
        for node in flow.kernels.get(row.name, ()):
            kinds = [each.dtype for each in (*node.ops[:2], node)]
            narrow = all(re.fullmatch(r"[su](4|8|16)", kind) for kind in kinds)
            if node.number in flow.products and narrow:
                evidence = f"{node.ops[0].shape} · {node.ops[1].shape} → {node.shape}"
                yield Claim("slow-type", ((row, row.lost),), evidence)
