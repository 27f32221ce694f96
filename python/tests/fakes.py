"""Stand-ins for vLLM, torch and numpy where they are not installed, so that the connector's own
decisions can be tested: install() makes modules of which every name is a mock, but for the classes
that the connector extends, and Request, which is as in vLLM 0.32 as far as the connector reads it.

Where vLLM is installed its own modules are used. Does not: compute, schedule or hold rows.
"""
import enum
import importlib.util
import sys
import types
from unittest import mock


class Base:
    """vLLM's class that a class of the connector extends."""

    def __init__(self, *arguments):
        pass


class Request:
    """vllm.v1.request.Request; sampling: of its sampling parameters, what a test gives."""

    def __init__(self, request_id, prompt_token_ids, sampling_params, pooling_params=None, *,
                 prompt_embeds=None, mm_features=None, lora_request=None, cache_salt=None,
                 resumable=False):
        self.request_id, self.sampling_params = request_id, sampling_params
        self.kv_transfer_params = (sampling_params.extra_args or {}).get("kv_transfer_params")
        self.prompt_embeds, self.mm_features = prompt_embeds, mm_features or []
        self.lora_request, self.cache_salt = lora_request, cache_salt
        self.resumable, self.skip_reading_prefix_cache = resumable, False
        self.all_token_ids, self.block_hashes = list(prompt_token_ids), []
        self.num_computed_tokens = 0

    @property
    def num_tokens(self):
        return len(self.all_token_ids)


class SamplingParams:
    def __init__(self, max_tokens=16, prompt_logprobs=None, extra_args=None):
        self.max_tokens, self.extra_args = max_tokens, extra_args
        self.prompt_logprobs = prompt_logprobs


class Mocks(types.ModuleType):
    """A module, or a package of them."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class Finder:
    """Imports every module below the given packages as Mocks."""

    def __init__(self, packages, classes):
        self.packages, self.classes = packages, classes

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.packages:
            return None
        return importlib.util.spec_from_loader(name, self)

    def create_module(self, spec):
        return Mocks(spec.name)

    def exec_module(self, module):
        for name, value in self.classes.get(module.__name__, {}).items():
            setattr(module, name, value)


class AttentionBackendEnum(enum.Enum):
    CPU_ATTN = "vllm.v1.attention.backends.cpu_attn.CPUAttentionBackend"

    def is_overridden(self):
        return self in OVERRIDES

    def clear_override(self):
        OVERRIDES.pop(self, None)


OVERRIDES = {}
KV = "vllm.distributed.kv_transfer.kv_connector.v1."
CLASSES = {
    "vllm": {"__version__": "0.32.0", "SamplingParams": SamplingParams},
    "vllm.v1.request": {"Request": Request},
    KV + "base": {name: type(name, (Base,), {}) for name in (
        "KVConnectorBase_V1", "KVConnectorMetadata", "KVConnectorWorkerMetadata")},
    KV + "metrics": {name: type(name, (Base,), {}) for name in (
        "KVConnectorPromMetrics", "KVConnectorStats")},
    "vllm.v1.attention.backends.cpu_attn": {name: type(name, (Base,), {}) for name in (
        "CPUAttentionBackend", "CPUAttentionBackendImpl")},
    "vllm.v1.attention.backends.registry": {"AttentionBackendEnum": AttentionBackendEnum,
                                            "register_backend": OVERRIDES.__setitem__},
}


def install():
    """Whether vLLM is a stand-in."""
    if importlib.util.find_spec("vllm") is not None:
        return False
    absent = [name for name in ("torch", "numpy", "prometheus_client")
              if importlib.util.find_spec(name) is None]
    sys.meta_path.insert(0, Finder({"vllm", *absent}, CLASSES))
    return True
