"""A native L2 client of LMCache (0.5.6) over objects by key.

    lmcache server --l2-adapter '{"type": "native_plugin", "module_path": "spec_connector.lmcache",
        "class_name": "Client", "adapter_params": {"config": {"path": "/var/lib/kv",
        "disk_bytes": "200GiB"}}}' ...

Keys of adapter_params:
  config        the configuration of the store: a dict, or a path of a JSON file
  weights       {model name: folder of its weights, or "name"}, or one of these for all models;
                default: the model's own folder
  weights_full  true: identities read every byte of the weights
  layout        any text that separates values: LMCache does not tell an adapter dtype or chunk size
  library       another libspec_connector.so

LMCache calls submit_* under a lock, from any thread, and drain_completions from one. A key begins
with the model's name, and each model has a domain of its own. Lookups and removals are answered at
once. A failure of a call is a miss. max_capacity_gb must stay 0: the store evicts by itself, and
LMCache has no way to learn of it. Tests: integrations/lmcache/tests/test_lmcache.py
"""
import ctypes
import importlib.metadata
import os
import threading
from array import array
from collections import deque

from . import abi, hosts
from .objects import Objects

SEPARATOR = "@"


def _version():
    try:
        return importlib.metadata.version("lmcache")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _address_of(view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


class Client:
    def __init__(self, config, weights=None, weights_full=False, layout="", library=None):
        self._weights, self._weights_full, self._layout = weights, weights_full, layout
        self._failures = hosts.Failures()
        self._store = Objects(hosts.settings_of(config), library=library,
                              log=self._failures.log_line)
        self._domains, self._opening = {}, threading.Lock()  # model name -> Domain
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        for model in weights if isinstance(weights, dict) else ():
            self._open_domain(model)  # reads weights: before the first request
        self._ready, self._last = deque(), 0  # answers without an operation; their numbers: < 0

    def event_fd(self):
        return self._fd

    def _domain_of(self, keys):
        model = keys[0].partition(SEPARATOR)[0]
        begin = model + SEPARATOR
        if not all(key.startswith(begin) for key in keys):
            raise ValueError(f"keys of several models in one batch, the first is {keys[0]!r}")
        domain = self._domains.get(model)
        return self._open_domain(model) if domain is None else domain

    def _open_domain(self, model):
        with self._opening:
            if model not in self._domains:
                weights = self._weights
                if isinstance(weights, dict):
                    weights = weights.get(model)
                domain = self._store.domain(hosts.identity_of(
                    "lmcache", version=_version(), model=model, layout=self._layout,
                    weights=hosts.weights_of(weights, model, self._weights_full)))
                domain.event_fd_set(self._fd)
                self._domains[model] = domain
            return self._domains[model]

    def _answer(self, ok, text, bools):
        """A completion that is ready now."""
        with self._opening:
            self._last -= 1
            number = self._last
        self._ready.append((number, ok, text, bools))
        os.eventfd_write(self._fd, 1)
        return number

    def _failed(self, name, error, keys):
        self._failures.add(name, error)
        return self._answer(False, str(error), [False] * len(keys))

    def _submit(self, name, keys, views):
        try:
            submit = getattr(self._domain_of(keys), f"{name}_submit")
            # the one loop over objects: LMCache gives memory as views
            return submit(keys, array("Q", map(_address_of, views)),
                          array("Q", [view.nbytes for view in views]), keep=views)
        except hosts.FAILURES as error:
            return self._failed(name, error, keys)

    def submit_batch_get(self, keys, views):
        return self._submit("get", keys, views)

    def submit_batch_set(self, keys, views):
        return self._submit("put", keys, views)

    def submit_batch_exists(self, keys):
        try:
            found, _leading = self._domain_of(keys).exists(keys, hold=True)
        except hosts.FAILURES as error:
            return self._failed("exists", error, keys)
        return self._answer(True, "", [status == 1 for status in found])

    def submit_batch_delete(self, keys):
        try:
            removed = self._domain_of(keys).remove(keys)
        except hosts.FAILURES as error:
            return self._failed("delete", error, keys)
        return self._answer(True, "", [status == 1 for status in removed])

    def drain_completions(self):
        """[(number, ok, text, [bool of each key])]: of a get, ok means that no key failed."""
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass
        done = [self._ready.popleft() for _ in range(len(self._ready))]
        for domain in list(self._domains.values()):
            while completions := domain.poll():
                done += [(at.operation, at.status >= 0,
                          "" if at.status >= 0 else abi.status_name(at.status),
                          [status > 0 for status in at.statuses]) for at in completions]
        return done

    def close(self):
        self._store.close()
        os.close(self._fd)
