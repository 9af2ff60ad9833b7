"""Custom calls: what their authors declare, and what the calls of NVIDIA's libraries state.

Pallas kernels are counted from what JAX traced of them (`compiled.pallas`), where it was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofline_helpers.hlo.blocks import PallasKernel
from roofline_helpers.hlo.module import Instruction, Site
from roofline_helpers.hlo.opcodes import PRODUCTS
from roofline_helpers.hlo.shapes import Shape


def declared(each: Instruction) -> dict[str, Any] | None:
    """Return the cost that the author of a custom call declares; None where there is none."""
    if each.base != "custom-call":
        return None
    estimate = each.config.get("custom_call_config", {}).get("cost_estimate")
    return estimate if isinstance(estimate, dict) else None


def library_product(site: Site) -> tuple[Instruction, Shape, Shape] | None:
    """Return the dot or convolution that a call of cuBLAS or cuDNN states that it does.

    Also the shapes of its operands. None for every other call.
    """
    each, operands = site.instruction, site.operands
    result = each.shape.parts[0] if each.shape.parts else each.shape
    if each.target.startswith("__cublas$") and len(operands) >= 2:
        stated = each.config.get("gemm_backend_config", each.config)
        inner = stated.get("dot_dimension_numbers", {}).get("lhs_contracting_dimensions")
        if inner is None:
            return None
        attributes = {"lhs_contracting_dims": ",".join(map(str, inner))}
        return Instruction(each.name, "dot", result, (), attributes), operands[0], operands[1]
    if "dim_labels" not in each.attributes or len(operands) < 2:
        return None
    first, second = operands[:2]
    roles = {  # input, kernel and result of the forward convolution, whose window and labels count
        "__cudnn$convForward": (first, second, result),
        "__cudnn$convBackwardInput": (result, second, first),
        "__cudnn$convBackwardFilter": (first, result, second),
    }
    for name, (lhs, rhs, out) in roles.items():
        if each.target.startswith(name):
            return Instruction(each.name, "convolution", out, (), each.attributes), lhs, rhs
    return None


def is_product(site: Site) -> bool:
    """Return whether an instruction is a product of its first two operands: also a library's."""
    opcode = site.instruction.opcode
    return (opcode in PRODUCTS and len(site.operands) >= 2) or library_product(site) is not None


def results(each: Instruction) -> Shape:
    """Return what an instruction writes.

    The instruction that starts an asynchronous pair also names its source, and a call of a library
    also its scratch memory: both are left out.
    """
    parts = each.shape.parts
    if each.opcode == "send":
        return Shape(parts=())
    if each.target.startswith(("__cublas$", "__cudnn$")) and parts and len(parts) > 1:
        return Shape(parts=parts[:-1])  # the last is the library's scratch memory
    if not each.opcode.endswith("-start") or not parts:
        return each.shape
    if each.opcode == "copy-start":  # (destination, source, context)
        return parts[0]
    if each.opcode == "all-reduce-start":  # results only
        return each.shape
    return parts[1] if len(parts) > 1 else parts[0]  # (sources, results, context …)


PALLAS = ("tpu_custom_call", "mosaic_gpu", "mosaic_gpu_v2", "__gpu$xla.gpu.triton")
"""Targets of custom calls that are Pallas kernels."""


def counted_as(site: Site, kernels: Sequence[PallasKernel]) -> PallasKernel | None:
    """Return the count of a Pallas kernel; None for other calls, and where there is none."""
    each = site.instruction
    if each.target not in PALLAS:
        return None
    dims = [shape.dims for shape in site.operands if shape.dims]
    same = [
        kernel
        for kernel in kernels
        if [one.shape for one in kernel.operands if one.shape and not one.result] == dims
    ]
    named = [
        kernel for kernel in same if kernel.name and kernel.name in f"{each.name} {each.op_name}"
    ]
    counts = {(k.matrix_flops, k.vector_flops, k.reads, k.writes): k for k in named or same}
    return next(iter(counts.values())) if len(counts) == 1 else None
