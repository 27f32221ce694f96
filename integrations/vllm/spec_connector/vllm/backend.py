"""vLLM's CPU attention, which tells a pending layered load its queries before it computes.

An engine whose connector is not asked for layered loads gets vLLM's own class, so that it costs
nothing there; where it is, and no load is pending, a call costs one comparison.

Holds: what is computed is vLLM's own, with rows that were delivered before.
Threads: the worker's one. Tests: tests/test_backend.py.
"""
from vllm.config import get_current_vllm_config_or_none
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend, CPUAttentionBackendImpl

_pending = None  # called with (layer's name, impl, query, key, metadata) in front of each attention


def set_pending(deliver):
    """None: no layered load is pending."""
    global _pending
    _pending = deliver


class Impl(CPUAttentionBackendImpl):
    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs):
        if _pending is not None and attn_metadata is not None:
            _pending(layer.layer_name, self, query, key, attn_metadata)
        return super().forward(layer, query, key, value, kv_cache, attn_metadata, output, *args,
                               **kwargs)


class Backend(CPUAttentionBackend):
    @staticmethod
    def get_impl_cls():
        config = get_current_vllm_config_or_none()
        transfer = config.kv_transfer_config if config is not None else None
        if transfer is None or not transfer.kv_connector_extra_config.get("layered"):
            return CPUAttentionBackendImpl
        return Impl
