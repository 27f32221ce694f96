"""Which way rows take between the plugin and vLLM's caches: directly where the layout is known and
proved, else by the backend's own hands (the writer's way), else not at all.

`"rows"` of the extra config: "auto", or "direct", "writer", which are then the only way tried.
"""
import vllm
from vllm.logger import init_logger

from .layout import Direct
from .staged import Staged

logger = init_logger("vllm.spec_connector")

STAGING_BYTES = RING_BYTES = 256 << 20


def open_rows(caches, extra):
    """ValueError: why no way is open, in one line."""
    wanted = extra.get("rows", "auto")
    if wanted not in ("auto", "direct", "writer"):
        raise ValueError(f'"rows" is {wanted!r}, expected "auto", "direct" or "writer"')
    reason = ""
    if wanted != "writer":
        try:
            return Direct(caches, vllm.__version__)
        except ValueError as error:
            if wanted == "direct":
                raise
            reason = f"{error}; "
    try:
        rows = Staged(caches, int(extra.get("staging_bytes", STAGING_BYTES)),
                      int(extra.get("ring_bytes", RING_BYTES)))
    except (ValueError, RuntimeError) as error:  # what a backend raises
        raise ValueError(f"{reason}{error}") from error
    logger.warning("spec_connector: rows go through memory of ours (the writer's way): %s",
                   reason.rstrip("; ") or "as asked")
    return rows
