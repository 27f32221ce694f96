"""LMCache's L2 adapters as a driver of integrations/hosts: its factory, adapter and memory objects.
"""
import hashlib
import json
import os
import sys
from types import SimpleNamespace

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "hosts"),
                os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")]
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
try:
    from lmcache.cli.commands.bench.l2_adapter_bench import data
    from lmcache.v1.distributed.api import ObjectKey
    from lmcache.v1.distributed.l2_adapters import create_l2_adapter
    from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
except ImportError as error:
    print(f"skipped: no LMCache here ({error}): integrations/lmcache/setup-test makes it")
    sys.exit(77)
import numpy as np  # noqa: E402
from storage_cases import MIB, config_of, value_of  # noqa: E402


def adapter_of(spec):
    """As `lmcache server --l2-adapter JSON` makes it."""
    words = SimpleNamespace(l2_adapter=[json.dumps(spec)])
    return create_l2_adapter(parse_args_to_l2_adapters_config(words).adapters[0])


def ours(folder, config=None, weights="name"):
    return {"type": "native_plugin", "module_path": "spec_connector.lmcache",
            "class_name": "Client", "adapter_params": {"config": config_of(folder, config),
                                                       "weights": weights}}


def own(folder):
    return {"type": "fs_native", "base_path": folder, "num_workers": 4, "use_odirect": True}


class Driver:
    value_bytes, capacity = MIB, 64

    def __init__(self, folder, config=None, weights="name", is_own=False):
        self.adapter = adapter_of(own(folder) if is_own else ours(folder, config, weights))
        self.client = self.adapter._client
        size = self.capacity * self.value_bytes
        self.buffer = data.make_aligned_tensor(size, 4096)
        self.bytes = self.buffer.numpy().reshape(self.capacity, self.value_bytes)
        self.objects = data.make_memory_objects(self.buffer, self.capacity, self.value_bytes, 0)

    @staticmethod
    def keys(ids):
        rank = ObjectKey.ComputeKVRank(1, 0, 1, 0)
        return [ObjectKey(hashlib.sha256(b"%d" % i).digest(), "org/model", rank) for i in ids]

    def fill(self, ids):
        for at, i in enumerate(ids):
            self.bytes[at] = np.frombuffer(value_of(i, self.value_bytes), np.uint8)

    def wipe(self):
        self.bytes[:] = 0

    def value(self, position):
        return self.bytes[position].tobytes()

    def _wait(self, fd, result):
        while (answer := result()) is None:
            assert data.wait_eventfd(fd), "no completion within 60 s"
        return answer

    def store(self, ids):
        task = self.adapter.submit_store_task(self.keys(ids), self.objects[:len(ids)])
        done = {}

        def result():
            done.update(self.adapter.pop_completed_store_tasks())
            return done.get(task)
        stored = self._wait(self.adapter.get_store_event_fd(), result)
        return [stored.is_successful()] * len(ids)

    def _bits(self, bitmap, count):
        return [bitmap.test(i) for i in range(count)]

    def found(self, ids):
        keys = self.keys(ids)
        task = self.adapter.submit_lookup_and_lock_task(keys, {})
        bitmap = self._wait(self.adapter.get_lookup_and_lock_event_fd(),
                            lambda: self.adapter.query_lookup_and_lock_result(task))
        self.adapter.submit_unlock(keys)
        return self._bits(bitmap, len(keys))

    def load(self, ids):
        task = self.adapter.submit_load_task(self.keys(ids), self.objects[:len(ids)])
        return self._bits(self._wait(self.adapter.get_load_event_fd(),
                                     lambda: self.adapter.query_load_result(task)), len(ids))

    def close(self):
        self.adapter.close()
