"""Condense the measured kernels of `aiconfigurator-core` into the package's tables.

    python -m measurements.condense ../shared/measured

Needs pyarrow. For each shape the fastest of the libraries is kept, with its name; what is left out,
and why, is written beside the tables in `sources.json`. Times become 1/64 of an octave, so they are
within 0.6% of what was measured. A table of few shapes is text, with five digits.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from roofline.network.measured import COPIED
from roofline_helpers.chips import chip
from roofline_helpers.common.dtypes import width
from roofline_helpers.measured.tables import FOLDER, STEPS, TEXTS, TYPES, count

CHIPS = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100",
    "h200_sxm": "h200",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000",
}
DTYPES = {"bfloat16": "bf16", "half": "fp16", "fp8_block": "fp8 in blocks", "sq": "int8"}
DTYPES |= {"int8_wo": "int8 weights", "int4_wo": "int4 weights", "w4a16_mxfp4": "mxfp4 weights"}
DTYPES |= {"w4a8_mxfp4_mxfp8": "mxfp4 weights, mxfp8"}
READABLE = 1000
"""Shapes up to which a table is text."""
ORDER = ["chip", "dtype", "op", "mode", "layout", "load", "head_dim", "experts", "local_experts"]
ORDER += ["top_k", "hidden", "inter", "n", "k", "heads", "kv_heads", "batch", "kv_len", "gpus"]
ORDER += ["tokens", "m", "bytes"]


def l2_bytes(on: str) -> float:
    """Return the bytes that a chip's L2 holds."""
    return chip(on).memory["l2"].capacity.value


def read(
    folder: Path, table: str, said: dict[str, Any], timed: str = "latency", unit: float = 1e-3
) -> pd.DataFrame:
    """Return all rows of one table, its chips under this package's names, times in seconds.

    `timed` is the column of the times, `unit` its unit in seconds.
    """
    frames = []
    for path in sorted(folder.glob(f"*.{table}.parquet")):
        chip, _, rest = path.name.split(".", 2)
        library = rest.removesuffix(f".{table}.parquet")
        frame = pd.read_parquet(path).assign(chip=CHIPS[chip], library=library.split("-")[0])
        versions = said.setdefault("versions", {}).setdefault(CHIPS[chip], [])
        versions += [library] if library not in versions else []
        frames.append(frame.rename(columns={"kernel_source": "kernel"}))
    rows = pd.concat(frames, ignore_index=True)
    said["rows"] = said.get("rows", 0) + len(rows)
    dropped = said.setdefault("dropped", {})
    untimed = int((~(rows[timed] > 0)).sum())
    dropped["no positive time"] = dropped.get("no positive time", 0) + untimed
    return rows[rows[timed] > 0].assign(seconds=lambda r: r[timed] * unit)


def drop(rows: pd.DataFrame, said: dict[str, Any], why: str, leave: pd.Series) -> pd.DataFrame:
    """Return the rows without some, and note why."""
    said["dropped"][why] = int(leave.sum())
    return rows[~leave]


def gemm(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    rows = read(folder, "gemm_perf", said)
    hosted = (rows["gemm_dtype"] == "fp8_block") & (rows["library"] == "vllm")
    why = "fp8 in blocks by vLLM: at least 55 to 282 µs at any size, so not the kernel's time"
    rows = drop(rows, said, why, hosted)
    unfilled = rows["gemm_dtype"].isin(["bfloat16", "fp8"]) & (rows["library"] == "vllm")
    why = "bf16 and fp8 by vLLM: its weights are unset or all the same, which needs less power"
    rows = drop(rows, said, why, unfilled)
    named = (rows["gemm_dtype"] == "nvfp4") & (rows["library"] == "vllm")
    weights = rows["n"] * rows["k"] * width("nvfp4")
    warm = named & (weights <= rows["chip"].map({on: l2_bytes(on) for on in CHIPS.values()}))
    why = (
        "nvfp4 by vLLM with weights that the L2 holds: timed warm, one set of them again and again"
    )
    rows = drop(rows, said, why, warm)
    return rows.rename(columns={"gemm_dtype": "dtype"})


def attention(folder: Path, said: dict[str, Any], phase: str) -> pd.DataFrame:
    rows = read(folder, f"{phase}_attention_perf", said)
    rows = drop(rows, said, "sliding windows", rows["window_size"].fillna(0) > 0)
    named = {"attn_dtype": "dtype", "kv_cache_dtype": "cache", "batch_size": "batch"}
    named |= {"num_heads": "heads", "num_key_value_heads": "kv_heads"}
    return rows.rename(columns=named).assign(kv_len=rows["isl"] + rows["step"])


def mla(folder: Path, said: dict[str, Any], phase: str) -> pd.DataFrame:
    rows = read(folder, f"{phase}_mla_perf", said)
    named = {"mla_dtype": "dtype", "kv_cache_dtype": "cache", "batch_size": "batch"}
    named |= {"num_heads": "heads"}
    return rows.rename(columns=named).assign(kv_len=rows["isl"] + rows["step"])


def grouped(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    rows = read(folder, "moe_perf", said)
    nemotron = (rows["topk"] == 22) | (rows["hidden_size"] == 2688)
    ungated = rows["kernel"].str.contains("nongated") | nemotron
    rows = drop(rows, said, "experts without a gate: two matmuls, not three", ungated)
    skewed = rows["distribution"] != "balanced"
    rows = drop(rows, said, "experts with unequal loads", skewed)
    spare = rows["kernel"].str.startswith("sglang_fused_moe_triton")
    others = ~rows["kernel"].str.contains("triton") | (rows["library"] == "vllm")
    types = [rows["chip"], rows["moe_dtype"]]
    shapes = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
    spare &= others.groupby(types).transform("any")
    spare &= ~others.groupby([*types, *(rows[name] for name in shapes)]).transform("any")
    why = "SGLang's Triton kernel where no other was timed, though the type has others: it is for "
    rows = drop(rows, said, why + "shapes that these can't, often with default tiles", spare)
    stands_in = rows["kernel"].str.contains("w4a4mxfp4|situ_as_silu")
    why = "Marlin, which stands in where a model wants mxfp4 activations or another function"
    rows = drop(rows, said, why, stands_in)
    untuned = rows["chip"].isin(["h100", "h200"]) & (rows["moe_dtype"] == "fp8")
    why = "fp8 on Hopper: vLLM alone, untuned, in four times TensorRT-LLM's time without a gate"
    rows = drop(rows, said, why, untuned)
    named = {"moe_dtype": "dtype", "num_tokens": "tokens", "hidden_size": "hidden"}
    named |= {"topk": "top_k", "num_experts": "experts"}
    local = rows["num_experts"] // rows["moe_ep_size"]
    inter = rows["inter_size"] // rows["moe_tp_size"]
    return rows.rename(columns=named).assign(local_experts=local, inter=inter)


LAYOUTS = {(1, 1): "one GPU", (1, 8): "whole experts", (8, 1): "width cut"}
LOADS = {"balanced": "even", "power_law_1.01": "power law 1.01", "power_law_1.2": "power law 1.2"}


def uneven_experts(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    """Return one shape's times by load, on one GPU and split over eight: of these, the fullest's.

    8 of 128 experts of 4096 × 1536, by one library, so that loads are compared in one kernel.
    """
    rows = read(folder, "moe_perf", said)
    shape = {"num_experts": 128, "topk": 8, "hidden_size": 4096, "inter_size": 1536}
    for name, wanted in {**shape, "library": "vllm"}.items():
        rows = rows[rows[name] == wanted]
    split = pd.Series(zip(rows["moe_tp_size"], rows["moe_ep_size"], strict=True), rows.index)
    rows = rows.assign(layout=split.map(LAYOUTS), load=rows["distribution"].map(LOADS))
    kept = int(rows["layout"].count())
    said["dropped"]["another shape, library or split"] = said["rows"] - kept
    named = {"moe_dtype": "dtype", "num_tokens": "tokens"}
    return rows.dropna(subset=["layout", "load"]).rename(columns=named)


DEEPEP = {
    "low latency": ("wideep_deepep_ll_perf", "_avg_t_us"),
    "throughput": ("wideep_deepep_normal_perf", "_transmit_us"),
}
"""Its modes: a copy of a token for each expert, or for each GPU. Each with a table and a column."""


def expert_exchange(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    """Return DeepEP's exchanges in a host, and TensorRT-LLM's copies in an NVLink domain."""
    parts = []
    for mode, (table, column) in DEEPEP.items():
        for op, dtype in (("dispatch", "fp8"), ("combine", "bf16")):
            part = read(folder, table, said, op + column, 1e-6)
            gpus = part["chip"].map({"gb200": 4}).fillna(8).astype(int)
            parts.append(part.assign(op=op, mode=mode, dtype=dtype, gpus=gpus))
    copied = read(folder, "trtllm_alltoall_perf", said)
    copied = copied[copied["kernel"] == "NVLinkOneSided"].assign(mode=COPIED)
    for op, dtype in (("dispatch", "nvfp4"), ("combine", "bf16")):
        part = copied[copied["op_name"] == f"alltoall_{op}"].assign(op=op, dtype=dtype)
        named = {"num_tokens": "num_token", "topk": "num_topk", "moe_ep_size": "gpus"}
        parts.append(part.rename(columns=named))
    named = {"num_token": "tokens", "hidden_size": "hidden"}
    named |= {"num_topk": "top_k", "num_experts": "experts"}
    return pd.concat(parts, ignore_index=True).rename(columns=named)


def collectives(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    rows = read(folder, "nccl_perf", said)
    # message_size counts elements: half has two bytes each
    width = rows["nccl_dtype"].map({"half": 2, "int8": 1})
    rows = rows.assign(bytes=rows["message_size"] * width)
    said["libraries"] = "NCCL, as nccl-tests runs it"
    return rows.rename(columns={"nccl_dtype": "dtype", "op_name": "op", "num_gpus": "gpus"})


def custom_all_reduce(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    rows = read(folder, "custom_allreduce_perf", said).assign(op="all_reduce")
    rows = rows.assign(bytes=rows["message_size"] * 2)
    return rows.rename(columns={"allreduce_dtype": "dtype", "num_gpus": "gpus"})


def quantise(folder: Path, said: dict[str, Any]) -> pd.DataFrame:
    scale = read(folder, "computescale_perf", said)
    cast = read(folder, "scale_matrix_perf", said)
    rows = pd.concat([scale, cast], ignore_index=True)
    return rows.rename(columns={"quant_dtype": "dtype", "op_name": "op"})


FAMILIES = {
    "matmul": gemm,
    "prefill_attention": lambda folder, said: attention(folder, said, "context"),
    "decode_attention": lambda folder, said: attention(folder, said, "generation"),
    "prefill_mla": lambda folder, said: mla(folder, said, "context"),
    "decode_mla": lambda folder, said: mla(folder, said, "generation"),
    "grouped_matmul": grouped,
    "uneven_experts": uneven_experts,
    "expert_exchange": expert_exchange,
    "collective": collectives,
    "custom_all_reduce": custom_all_reduce,
    "quantise": quantise,
}


# Rows that share a kernel and a description: one impossible time condemns them all
TOGETHER = {
    "grouped_matmul": ["chip", "dtype", "library", "hidden", "experts", "top_k"],
    "prefill_attention": ["chip", "dtype", "library", "head_dim"],
    "decode_attention": ["chip", "dtype", "library", "head_dim"],
    "matmul": ["chip", "dtype", "library"],
    "prefill_mla": ["chip", "dtype", "library"],
    "decode_mla": ["chip", "dtype", "library"],
}


def without_impossible(rows: pd.DataFrame, family: str, said: dict[str, Any]) -> pd.DataFrame:
    """Return the rows without those that are faster than the memory.

    What the L2 holds of the operands may come from there; the rest needs the memory's bandwidth.
    One such row condemns all of its kernel and description. Of mixtures it takes one that is a
    tenth faster: a router that picks experts by groups wakes half of those counted; one whose top-k
    doesn't divide them, a few less.
    """
    least = pd.Series(0.0, index=rows.index)
    for (on, dtype), here in rows.groupby(["chip", "dtype"]):
        if dtype in TYPES:
            beyond = np.maximum(count(family, here, dtype).bytes - l2_bytes(str(on)), 0)
            least[here.index] = beyond / chip(on).roofline().bandwidth
    keys = TOGETHER[family]
    far = rows["seconds"] < (0.9 if family == "grouped_matmul" else 0.99) * least
    bad = far.groupby([rows[key] for key in keys], dropna=False).transform("any")
    named = rows.loc[bad, keys].drop_duplicates().astype(str).to_numpy().tolist()
    said["faster than memory"] = sorted(" ".join(one) for one in named)
    rows = drop(rows, said, "kernels with a row far faster than the memory allows", bad)
    beats = rows["seconds"] < 0.99 * least[rows.index]
    return drop(rows, said, "rows faster than the memory allows", beats)


def fastest(rows: pd.DataFrame, family: str, said: dict[str, Any]) -> pd.DataFrame:
    """Return a table: the fastest library for each shape, sorted by shape."""
    keys = [name for name in ORDER if name in rows.columns]
    rows["dtype"] = rows["dtype"].replace(DTYPES)
    if "cache" in rows:
        other = rows["cache"].replace(DTYPES)
        both = rows["dtype"] + ", " + other + " cache"
        rows["dtype"] = rows["dtype"].where(other == rows["dtype"], both)
    if family in TOGETHER:
        rows = without_impossible(rows, family, said)
    best = rows.loc[rows.groupby(keys)["seconds"].idxmin()].sort_values(keys)
    said["shapes"] = len(best)
    said["dropped"]["slower library or second run of a shape"] = len(rows) - len(best)
    return best[[*keys, "library", "seconds"]]


def packed(best: pd.DataFrame) -> dict[str, Any]:
    """Return the arrays of a table."""
    arrays: dict[str, Any] = {}
    for name in best.columns.drop("seconds"):
        values, codes = np.unique(best[name].to_numpy(), return_inverse=True)
        arrays[f"{name}.values"] = values.astype(str if values.dtype == object else np.int64)
        arrays[name] = codes.astype(np.uint8)
        assert len(values) < 256, name
    time = np.round(STEPS * np.log2(best["seconds"].to_numpy() / 1e-9)).astype(np.int32)
    arrays["seconds"] = np.diff(time, prepend=0).astype(np.int16)  # differences compress better
    return arrays


def main() -> None:
    folder = Path(sys.argv[1])
    FOLDER.mkdir(parents=True, exist_ok=True)
    sources = {}
    for family, rows in FAMILIES.items():
        said: dict[str, Any] = {}
        best = fastest(rows(folder, said), family, said)
        if len(best) <= READABLE:
            best.to_csv(TEXTS / f"{family}.tsv", sep="\t", index=False, float_format="%.5g")
        else:
            np.savez_compressed(FOLDER / f"{family}.npz", **packed(best))
        sources[family] = said
        print(family, said["rows"], "rows,", said["shapes"], "shapes")
    (FOLDER / "sources.json").write_text(json.dumps(sources, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
