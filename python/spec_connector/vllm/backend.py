"""vLLM's CPU attention, which tells a pending layered load its queries before it computes.

An engine whose connector is asked for layered loads has its layers' attention extended (extend),
when its caches are registered. In all other engines, and in all other processes, nothing of vLLM
is replaced, whether the package is installed or not.

Holds: what is computed is vLLM's own, with rows that were delivered before. A layer is extended
only if its attention is of the class that Impl extends. Where no load is pending, a call costs one
comparison.
Threads: the worker's one. Tests: tests/test_backend.py, tests/test_requests.py.
"""
import vllm
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl
from vllm.v1.attention.backends.registry import AttentionBackendEnum

VERSIONS = ("0.32.",)  # whose CPU attention is called as Impl has it

_pending = None  # called with (layer's name, impl, query, key, metadata) in front of each attention


def set_pending(deliver):
    """None: no layered load is pending."""
    global _pending
    _pending = deliver


class Impl(CPUAttentionBackendImpl):
    """Has no state of its own, so that an object of its base may become one."""

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        if _pending is not None and attn_metadata is not None:
            _pending(layer.layer_name, self, query, key, attn_metadata)
        return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args,
                               **kwargs)


def is_known():
    """Whether layers on the CPU have an attention that can be extended: this vLLM has it, and
    nobody has put another one in its place."""
    return (vllm.__version__.startswith(VERSIONS)
            and not AttentionBackendEnum.CPU_ATTN.is_overridden())


def extend(layers):
    """Extends the attention of these layers ({name: module}). Returns the name of a layer whose
    attention cannot be extended: then none is; None: all of them are."""
    for name, module in layers.items():
        if not is_known() or type(module.impl) not in (CPUAttentionBackendImpl, Impl):
            return name
    for module in layers.values():
        module.impl.__class__ = Impl
    return None
