"""What is measured between devices: collectives, and layers spread over them."""

from __future__ import annotations

from roofline_helpers.measure import collectives, spread
from roofline_helpers.measure.case import Case
from roofline_helpers.measure.layers import mlp


def cases(quick: bool = False) -> list[Case]:
    """Return cases over all devices that JAX has, over half of them, and so on down to a pair.

    What tells most comes first, for where time is short: layers and collectives over all devices.

    Raises
    ------
    BadValue
        Fewer than two devices.
    """
    import jax

    devices = list(collectives.mesh(jax.devices()).devices.flat)
    made = []
    while len(devices) > 1:
        if quick:
            made += collectives.cases(collectives.QUICK, devices=devices)
            made += spread.cases((mlp(64, 256, 1024),), devices=devices)
        else:
            made += spread.cases(spread.decoder_layers(), devices=devices)
            made += collectives.cases(devices=devices)
            made += spread.cases(spread.mlps(), devices=devices)
        devices = devices[: len(devices) // 2]
    return made
