"""One thing to measure, and the arrays that it takes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roofline_helpers._checks import BadValue, name_of
from roofline_helpers.dtypes import dtype as dtype_of
from roofline_helpers.measure.programs import jax_program
from roofline_helpers.measure.timing import Program
from roofline_helpers.work import Work

JAX_DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "int32": "int32",
}
"""JAX's names of the data types that are measured."""


@dataclass(frozen=True)
class Case:
    """One thing to measure.

    Parameters
    ----------
    name : str
        Unique within a record, together with `source`.
    group : str
        "memory", "levels", "compute" and "vector" are ceilings; any other name is a set of kernels.
    work : Work
        FLOPs and bytes, counted by hand.
    make : callable
        Returns the arguments. Called anew at each pass, so that they needn't stay in memory.
    fn : callable, optional
        A JAX function of those arguments.
    start : callable, optional
        For other frameworks, in place of `fn`: takes the arguments, returns a `Program`.
    source : str
        Whose code it is: "jax", or another framework's name.
    needs : float
        Bytes of memory that it takes at the same time. Twice `work.bytes` if not given.
    loops : int
        How often one call does the work, inside the compiled program.
    warm : float
        Seconds to run before the first sample (`clock`).
    options : mapping
        Further arguments of `jax_program`.

    Examples
    --------
    >>> from roofline_helpers.measure.workloads import matmul_case
    >>> case = matmul_case(512, 512, 512)
    >>> case.key, case.work.flops
    (('matmul 512×512×512 bf16', 'jax'), 268435456)
    """

    name: str
    group: str
    work: Work
    make: Callable[[], tuple[Any, ...]]
    fn: Callable[..., Any] | None = None
    start: Callable[..., Program] | None = None
    source: str = "jax"
    needs: float | None = None
    loops: int = 1
    warm: float = 0.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str]:
        """Name and source – what tells a case from the others of a record."""
        return self.name, self.source

    def program(self, args: tuple[Any, ...], compiled: Any = None) -> Any:
        """Return these arguments' program: what `clock` times.

        Parameters
        ----------
        args : tuple
            What `make` returned.
        compiled : optional
            What an earlier program of this case has in its `compiled` (see `jax_program`).

        Raises
        ------
        BadValue
            The case has neither `fn` nor `start`.
        """
        if self.fn is not None:
            return jax_program(self.fn, args, compiled=compiled, **self.options)
        if self.start is not None:
            return self.start(*args)
        raise BadValue(f"nothing to run: {self.name} has neither fn nor start")


def kind_of(dtype: Any) -> Any:
    """Return JAX's data type of one of `JAX_DTYPES`."""
    import jax.numpy as jnp

    return jnp.dtype(JAX_DTYPES[name_of("data type to measure", dtype_of(dtype), JAX_DTYPES)])


def array(*shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
    """Return an array of normally distributed numbers on the default device.

    The numbers repeat after 1,048,583, a prime, so that no two rows are the same. Zeros would be
    easier to make, and easier on the device: products of zeros take less power and run faster.

    Examples
    --------
    >>> array(2, 3, dtype="bf16").shape
    (2, 3)
    """
    import jax

    kind = kind_of(dtype)
    n = math.prod(shape)
    pool = np.random.default_rng(0).standard_normal(min(1_048_583, n), np.float32) * scale
    pool = (np.rint(pool * 20) if kind.kind in "iu" else pool).astype(kind)
    if jax.devices()[0].platform == "cpu":
        return jax.device_put(np.resize(pool, shape))
    return _repeated()(jax.device_put(pool), shape)  # sent once, repeated there


@functools.cache
def _repeated() -> Callable[..., Any]:
    import jax
    import jax.numpy as jnp

    def repeated(pool: Any, shape: tuple[int, ...]) -> Any:
        n = math.prod(shape)
        return jnp.tile(pool, -(-n // pool.size))[:n].reshape(shape)

    jitted: Callable[..., Any] = jax.jit(repeated, static_argnums=1)
    return jitted
