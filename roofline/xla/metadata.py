"""The origin of an instruction: the reader's line of code, named scope and pass, noted by JAX.

Newer JAX prints tables before the computations (FileNames, FunctionNames, FileLocations and
StackFrames), and an instruction refers to a frame of them; JAX 0.7.2 writes one file and line into
each instruction:

    metadata={op_name="jit(step)/transpose(jvp(mlp))/up/dot_general" stack_frame_id=27}
    metadata={op_name="jit(step)/jit(main)/mlp/up/dot_general" source_file="a.py" source_line=3}
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path


@dataclass(frozen=True)
class SourceLine:
    """A line of code: its file, with a short path, and its function.

    A line of a notebook has the file "cell", and counts from the top of its cell. A baseline has no
    line: it is 0.

    Examples
    --------
    >>> print(SourceLine("model.py", 18, "mlp"))
    model.py:18
    """

    file: str
    line: int = 0
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


# --- lines of code --------------------------------------------------------------------------------

_PACKAGES = Path(__file__).parents[2]
_PATH = re.compile(r".*[/\\](roofline(?:_helpers)?[/\\].+)")
_CALLERS = ("roofline/xla/", "roofline/diagnosis/", "roofline/measure/")
_LIBRARIES = re.compile(r"^.*[/\\](?:site|dist)-packages[/\\]|^.*[/\\]lib[/\\]python3\.\d+[/\\]|^<")
_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]|^<ipython-input|^/tmp/ipython-input")
_NUMBER = re.compile(r"((?:\w+_)?id|line)=(\d+)")


@dataclass(frozen=True)
class Frames:
    """The tables of a module that map an instruction to lines of code.

    Examples
    --------
    >>> line = {"file_name_id": 1, "function_name_id": 1, "line": 18}
    >>> tables = Frames({1: "model.py"}, {1: "mlp"}, {1: line}, {1: {"file_location_id": 1}})
    >>> list(tables.stack(1))
    [('model.py', 18, 'mlp')]
    """

    files: Mapping[int, str]
    functions: Mapping[int, str]
    locations: Mapping[int, Mapping[str, int]]
    calls: Mapping[int, Mapping[str, int]]

    @cached_property
    def _shift(self) -> int:
        """The offset of printed parents: JAX 0.10.2 prints the frame after it."""
        parents = ((frame, call.get("parent_frame_id", 0)) for frame, call in self.calls.items())
        return int(any(parent >= frame for frame, parent in parents))

    def stack(self, frame: int) -> Iterator[tuple[str, int, str]]:
        """Yield the file, line and function of a frame and of its callers, innermost first."""
        while frame in self.calls:
            call = self.calls[frame]
            location = self.locations.get(call.get("file_location_id", 0), {})
            yield (
                self.files.get(location.get("file_name_id", 0), ""),
                location.get("line", 0),
                self.functions.get(location.get("function_name_id", 0), ""),
            )
            parent = call.get("parent_frame_id", 0) - self._shift
            frame = parent if parent < frame else 0


def frames(text: str) -> Frames:
    """Read the tables of a module; empty if it has none."""

    def names(title: str) -> dict[int, str]:
        return {number: line.strip('"') for number, line in _table(text, title)}

    def numbers(title: str) -> dict[int, dict[str, int]]:
        lines = _table(text, title)
        return {n: {key: int(value) for key, value in _NUMBER.findall(line)} for n, line in lines}

    return Frames(
        names("FileNames"),
        names("FunctionNames"),
        numbers("FileLocations"),
        numbers("StackFrames"),
    )


def _table(text: str, title: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of each line of a table."""
    start = text.find(f"\n{title}\n")
    if start < 0:
        return
    end = text.find("\n\n", start + 1)
    for line in text[start:end].splitlines()[2:]:
        number, _, rest = line.partition(" ")
        if number.isdigit():
            yield int(number), rest


def source_of(metadata: str, tables: Frames) -> SourceLine | None:
    """Return the reader's line of code for an instruction; None if unknown.

    It is the innermost line outside of this package and of installed ones, or else of an installed
    one. Lines that only call `analyze` don't count.
    """
    frame = re.search(r"stack_frame_id=(\d+)", metadata)
    if frame:
        return _reader_s_line(list(tables.stack(int(frame.group(1)))))
    file = re.search(r'source_file="([^"]+)"', metadata)
    line = re.search(r"source_line=(\d+)", metadata)
    if file is None or line is None:
        return None
    return _reader_s_line([(file.group(1), int(line.group(1)), "")])


def _reader_s_line(stack: Sequence[tuple[str, int, str]]) -> SourceLine | None:
    inside = []
    for file, line, function in stack:
        own = _own(file)
        if own.startswith(_CALLERS):  # further frames are the caller of `analyze`
            break
        if file and not own:
            inside.append((file, line, function))
    readers = [frame for frame in inside if not _LIBRARIES.match(frame[0])]
    for file, line, function in [*readers, *inside][:1]:
        return SourceLine(shortened(file), line, _without_lambdas(function))
    return None


@lru_cache(maxsize=1024)
def _own(file: str) -> str:
    """Return the path of a file of these packages in them, wherever they are installed, or ""."""
    found = _PATH.match(file)
    path = found[1].replace("\\", "/") if found else ""
    installed = _LIBRARIES.match(file) or (_PACKAGES / path).exists()
    return path if path and installed else ""


@lru_cache(maxsize=1024)
def shortened(file: str) -> str:
    """Return a file's path relative to this folder, or to the installed packages."""
    if _CELL.search(file):
        return "cell"
    if _LIBRARIES.match(file):
        return _LIBRARIES.sub("", file).replace("\\", "/")
    here = os.path.join(os.getcwd(), "")
    if file.startswith(here):
        return file[len(here) :].replace("\\", "/")
    if not os.path.isabs(file):
        return file
    return "/".join(re.split(r"[/\\]", file)[-2:])


def _without_lambdas(function: str) -> str:
    """Return the name of a function without nested anonymous ones."""
    named = [part for part in function.split(".") if not part.startswith("<")]
    return named[-1] if named else ""


# --- scopes ---------------------------------------------------------------------------------------

_UNWRAPPED = frozenset(
    "jvp transpose vmap pmap remat checkpoint custom_jvp custom_vjp shard_map pjit".split()
)
MARKS = frozenset(
    "while body cond scan closed_call core_call checkpoint remat remat2 rematted_computation pjit "
    "custom_jvp_call custom_vjp_call custom_vjp_call_jaxpr custom_lin shard_map pallas_call jit "
    "xla_call main eval_jaxpr".split()
)
"""Parts of JAX's names that are only transformations."""

_LIBRARY = frozenset(
    "clip where take dynamic_index_in_dim dynamic_update_index_in_dim dynamic_slice_in_dim gelu "
    "silu swish relu relu6 elu selu softplus softmax log_softmax logsumexp one_hot sigmoid einsum "
    "matmul dot tensordot norm var std mean sum max min argmax argmin sort argsort cumsum cumprod "
    "floor_divide remainder mod power square sqrt tril triu isnan allclose linspace arange roll "
    "split concatenate stack take_along_axis searchsorted unique nonzero iota main fn ravel "
    "true_divide standardize dot_product_attention".split()
)


@dataclass(frozen=True)
class Scope:
    """The parts of JAX's name of an operation.

    `path` are the named scopes around it, and the reader's own jitted functions; `calls` the jitted
    functions of JAX's library, such as "gelu"; `einsum` the formula of one; `step` is "forward",
    "backward" or "recomputed"; `primitive` is the operation itself.
    """

    path: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    einsum: str = ""
    step: str = "forward"
    primitive: str = ""

    @property
    def name(self) -> str:
        """The named scopes, joined with dots: "mlp.up"."""
        return ".".join(self.path)


@lru_cache(maxsize=65536)
def scope_of(op_name: str) -> Scope:
    """Read JAX's name of an operation.

    Examples
    --------
    >>> scope = scope_of("jit(step)/transpose(jvp(mlp))/up/jit(gelu)/mul")
    >>> scope.name, scope.step, scope.calls, scope.primitive
    ('mlp.up', 'backward', ('gelu',), 'mul')
    """
    parts = _split(op_name.split(";")[0])
    if len(parts) < 2:
        return Scope(primitive=parts[0] if parts else "")
    path: list[str] = []
    calls: list[str] = []
    einsum, backward, recomputed = "", False, "rematted_computation" in parts
    for part in parts[:-1]:
        backward = backward or part.startswith("transpose(")
        for word in _words(part):
            jitted = re.fullmatch(r"jit\((.*)\)", word)
            name = jitted.group(1) if jitted else word
            if not name or name in MARKS or re.fullmatch(r"branch_\d+_fun", name):
                continue
            if "->" in name:
                einsum = name
            elif jitted and (name in _LIBRARY or name.startswith(("_", "<"))):
                calls.append(name)
            elif not (jitted and part is parts[0]):
                path.append(name)
    step = "recomputed" if recomputed else "backward" if backward else "forward"
    return Scope(tuple(path), tuple(calls), einsum, step, parts[-1])


def _split(name: str) -> list[str]:
    """Split at the slashes outside of brackets."""
    parts, depth, piece = [], 0, ""
    for character in name:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "/" and depth == 0:
            parts.append(piece)
            piece = ""
        else:
            piece += character
    return [part for part in [*parts, piece] if part]


def _words(part: str) -> list[str]:
    """Take the transformations off a part of a name: transpose(jvp(mlp)) is mlp."""
    wrapped = re.fullmatch(r"(\w+)\((.*)\)", part)
    if wrapped and wrapped.group(1) in _UNWRAPPED:
        return [word for inner in _split(wrapped.group(2)) for word in _words(inner)]
    return [part]
