"""SGLang's HiCache controller as a driver of integrations/hosts: its back-end factory, its host
pools, its backup and prefetch of pages, without a GPU.
"""
import hashlib
import logging
import os
import sys
from queue import Queue

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), "hosts"),
                os.path.join(os.path.dirname(os.path.dirname(HERE)), "python")]
try:
    import torch
    from sglang.srt.managers import cache_controller as control
    from sglang.srt.mem_cache.device_pool_info import KVBufferLayout, KVBuffers, MHABufferInfo
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
    from sglang.srt.mem_cache.pool_host import base
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
    from sglang.srt.mem_cache.storage import StorageBackendFactory
except ImportError as error:
    print(f"skipped: no SGLang here ({error}): integrations/sglang/setup-test makes it")
    sys.exit(77)
import numpy as np  # noqa: E402
from storage_cases import MIB, config_of, value_of  # noqa: E402

logging.getLogger("sglang").setLevel(logging.ERROR)  # a line for each page that is missed
LAYERS, HEADS, HEAD_SIZE, PAGE, PAGES = 16, 8, 128, 16, 64  # a page of K and V is 1 MiB
DTYPE = torch.float16


def make_pool(layout, page_size=PAGE):
    """A host pool over a small pool of one page that stands for the GPU's."""
    k, v = (tuple(torch.zeros(page_size, HEADS, HEAD_SIZE, dtype=DTYPE) for _ in range(LAYERS))
            for _ in "kv")
    pointers = [torch.tensor([t.data_ptr() for t in side], dtype=torch.uint64) for side in (k, v)]
    nhd = next((at for at in KVBufferLayout if "nhd" in at.name.lower()), [*KVBufferLayout][0])
    info = MHABufferInfo(
        buffers=KVBuffers(k=k, v=v, k_data_ptrs=pointers[0], v_data_ptrs=pointers[1], layout=nhd),
        page_size=page_size, head_num=HEADS, head_dim=HEAD_SIZE, v_head_dim=HEAD_SIZE,
        dtype=DTYPE, device=torch.device("cpu"))
    with base.host_memory_budget_scope(1 << 34):  # SGLang leaves 10 GiB of the machine alone
        return MHATokenToKVPoolHost(
            info, 1.0, 0, page_size, layout, pin_memory=False, device="cpu",
            device_capacity_tokens=page_size, start_layer=0, end_layer=LAYERS,
            host_token_capacity=PAGES * page_size)


def storage_config_of(extra, **members):
    return HiCacheStorageConfig(**{
        "tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
        "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
        "is_page_first_layout": True, "model_name": "org/model", "extra_config": extra, **members})


def ours(folder, config=None, weights="name", **more):
    return {"backend_name": "spec_connector", "module_path": "spec_connector.sglang",
            "class_name": "SpecConnectorStorage", "interface_v1": 1, "weights": weights,
            "config": config_of(folder, config), **more}


def make_controller(name, config, pool):
    """As attach_storage_backend makes it; its own constructor needs a GPU's pools and groups."""
    controller = control.HiCacheController.__new__(control.HiCacheController)
    controller.page_size, controller.storage_config = pool.page_size, config
    controller.storage_host_pool = controller.mem_pool_host = pool
    controller.storage_backend = StorageBackendFactory.create_backend(name, config, pool)
    controller.storage_backend.register_mem_pool_host(pool)
    controller.storage_backend.on_host_pools_registered()
    is_v1 = name == "dynamic" and config.extra_config.get("interface_v1")
    controller.page_get_func = (controller._page_get_zero_copy if is_v1
                                else controller._generic_page_get)
    controller.page_set_func = (controller._page_set_zero_copy if is_v1
                                else controller._generic_page_set)
    controller.prefetch_sync_queue = Queue()
    return controller


def key_of(i):
    return hashlib.sha256(b"%d" % i).hexdigest()  # as SGLang's own


class Driver:
    value_bytes, capacity = MIB, PAGES

    def __init__(self, folder, config=None, weights="name", is_own=False, layout="page_first",
                 members=None, **more):
        self.pool = make_pool(layout)
        extra = {"file_storage_path": folder} if is_own else ours(folder, config, weights, **more)
        self.controller = make_controller("file" if is_own else "dynamic",
                                          storage_config_of(extra, **(members or {})), self.pool)
        self.backend = self.controller.storage_backend

    @staticmethod
    def indices(count):
        return torch.arange(count * PAGE)

    def fill(self, ids):
        for at, i in enumerate(ids):
            page = torch.frombuffer(bytearray(value_of(i, self.value_bytes)), dtype=DTYPE)
            self.pool.set_from_flat_data_page(at * PAGE, page)

    def wipe(self):
        self.pool.kv_buffer.zero_()

    def value(self, position):
        page = self.pool.get_data_page(position * PAGE, flat=True).contiguous()
        return page.view(torch.uint8).numpy().tobytes()

    def store(self, ids):
        tokens = [*range(len(ids) * PAGE)]
        operation = control.StorageOperation(self.indices(len(ids)), tokens,
                                             hash_value=[key_of(i) for i in ids])
        self.controller._page_backup(operation)
        done = operation.completed_tokens // PAGE
        return [at < done for at in range(len(ids))]

    def found(self, ids):
        return [self.backend.exists(key_of(i)) for i in ids]

    def _prefetch(self, ids, first):
        """How many of the first pages SGLang takes."""
        operation = control.PrefetchOperation("request", [*range(len(ids) * PAGE)])
        operation.hash_value = [key_of(i) for i in ids]
        operation.host_indices = self.indices(first + len(ids))[first * PAGE:]
        return self.controller._page_transfer(operation)

    def load(self, ids):
        """SGLang stops behind the first page that fails; the others are asked for one by one."""
        done = self._prefetch(ids, 0)
        return [at < done or self._prefetch([i], at) == 1 for at, i in enumerate(ids)]

    def close(self):
        if hasattr(self.backend, "close"):
            self.backend.close()


def random_pages(pool, seed):
    """Fills the pool with values that no other seed gives."""
    flat = pool.kv_buffer.view(torch.int16)
    numbers = np.random.default_rng(seed).integers(-9000, 9000, flat.numel(), dtype=np.int16)
    flat.copy_(torch.from_numpy(numbers).view(flat.shape))
