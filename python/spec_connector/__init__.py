"""spec_connector: prefix KV kept on disk and loaded faster than it is computed, for Python.

    from spec_connector import Connector, Model
    with Connector({"path": "/var/lib/kv"}, Model(...)) as conn:
        ...

The package carries libspec_connector.so and speaks its C ABI by ctypes: nothing is compiled and
nothing but the standard library is imported. Objects by key are spec_connector.objects. vLLM's
connector is spec_connector.vllm, which imports vllm.
"""
from .connector import Connector, Error, Model, Poisoned
from .library import load
from .rope import Rope

__all__ = ["Connector", "Error", "Model", "Rope", "load"]
__version__ = "0.3.0"
