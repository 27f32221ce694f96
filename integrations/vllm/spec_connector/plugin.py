"""What vLLM's entry point calls, in every process of it: its CPU attention becomes a subclass that
lets a layered load see the queries (vllm/backend.py). Imports vLLM when it is called, not before.

Does not: anything in a vLLM that it was not made for, or where somebody else has put a backend; the
layered mode is refused there.
"""

VERSIONS = ("0.32.",)
BACKEND = "spec_connector.vllm.backend.Backend"


def register():
    import vllm
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
    backend = AttentionBackendEnum.CPU_ATTN
    if vllm.__version__.startswith(VERSIONS) and not backend.is_overridden():
        register_backend(backend, BACKEND)


def is_registered():
    from vllm.v1.attention.backends.registry import AttentionBackendEnum
    return AttentionBackendEnum.CPU_ATTN.get_path() == BACKEND
