"""A connector as a Python object: calls of the ABI with Python values, errors as exceptions.

Threads: as the ABI has it; ctypes lets go of the interpreter's lock during a call.
"""
import ctypes
import dataclasses
import json
import logging
import os

from . import abi
from .library import call_on_every_core, load
from .rope import Rope


LEVELS = {abi.LOG_ERROR: logging.ERROR, abi.LOG_WARN: logging.WARNING, abi.LOG_INFO: logging.INFO,
          abi.LOG_DEBUG: logging.DEBUG}


def log_function(log):
    """A C function for lines of the plugin; log: as logging.Logger.log."""
    return abi.LogFn(lambda level, line, _: log(
        LEVELS.get(level, logging.DEBUG), "%s", line.decode(errors="replace")))


class Error(Exception):
    """A status below 0; .status is its number, .name its name (SPEC_E_IO)."""

    def __init__(self, call, status, text):
        self.status, self.name = status, abi.status_name(status)
        super().__init__(f"{call}: {text} ({self.name})")


class Poisoned(Exception):
    """An invariant of the plugin's own broke: every call says so from now on. No Error: nobody
    goes on with the next request."""


@dataclasses.dataclass
class Model:
    """What makes one model's KV differ from another's: spec_model, of this rank."""
    layers: int
    kv_heads: int
    query_heads: int
    head_size: int
    dtype: int
    weights_id: bytes
    rope: Rope = Rope()
    revision: str = ""
    tp_rank: int = 0
    tp_size: int = 1

    def to_abi(self):
        """The structure, and what it points to, which lives as long."""
        keep = ctypes.create_string_buffer(self.weights_id, len(self.weights_id))
        return abi.Model(
            layer_count=self.layers, kv_head_count=self.kv_heads,
            query_head_count=self.query_heads, head_size=self.head_size, kv_dtype=self.dtype,
            rope_kind=self.rope.kind, rope_theta=self.rope.theta,
            rope_scaling=(ctypes.c_double * 8)(*self.rope.scaling),
            rope_scaling_kind=self.rope.scaling_kind.encode() or None, tp_rank=self.tp_rank,
            tp_size=self.tp_size, revision=self.revision.encode(),
            weights_id=abi.Bytes(ctypes.addressof(keep), len(self.weights_id))), keep


@dataclasses.dataclass
class Found:
    """What a lookup, a peek or an attach says. request 0: there is none."""
    request: int
    matched_tokens: int
    stored_tokens: int
    kind: int  # PROVENANCE_*
    lease: bytes
    state: int
    load_ns: int


@dataclasses.dataclass(frozen=True)
class Identity:
    """What KV depends on beside token ids. extra: (kind, first_token, token_count, value)."""
    salt: bytes = b""
    lora: bytes = b""
    extra: tuple = ()


NO_IDENTITY = Identity()


def _bytes(value, keep):
    if not value:
        return abi.Bytes()
    buffer = ctypes.create_string_buffer(value, len(value))
    keep.append(buffer)
    return abi.Bytes(ctypes.addressof(buffer), len(value))


class Connector:
    """One open store for one model and rank.

    config: a path of a JSON file, or a dict. Opened on a thread of its own that may run on every
    core of the process's set: the plugin's threads inherit that, and an engine may have bound the
    calling thread to one core.
    log: as logging.Logger.log, for the plugin's lines up to log_level; called inside calls, on
    the callers' threads.
    """

    def __init__(self, config, model, *, role=abi.ROLE_AUTO, rank=0, rank_count=1, library=None,
                 log=logging.getLogger("spec_connector").log, log_level=abi.LOG_WARN):
        self._api = load(library)
        self._conn = ctypes.c_void_p()
        text = json.dumps(config) if isinstance(config, dict) else os.fspath(config)
        c_model, keep = model.to_abi()
        self._log = log_function(log)
        params = abi.OpenParams(role=role, config=text.encode(), model=ctypes.pointer(c_model),
                                rank=rank, rank_count=rank_count, log=self._log,
                                log_level_max=log_level)
        error = abi.Error()
        status = call_on_every_core(lambda: self._api.open(
            ctypes.byref(params), ctypes.byref(self._conn), ctypes.byref(error)))
        del keep
        if status != abi.OK:
            self._conn = None
            raise Error("open", status, error.text.decode(errors="replace"))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Ends everything; a second time nothing."""
        if self._conn:
            self._api.close(self._conn)
        self._conn = None

    @staticmethod
    def _unpoisoned(call, status, error):
        if status == abi.E_POISONED:
            raise Poisoned(f"{call}: {error.text.decode(errors='replace')}")
        return status

    def _check(self, call, status, error, also=()):
        self._unpoisoned(call, status, error)
        if status < 0 and status not in also:
            raise Error(call, status, error.text.decode(errors="replace"))
        return status

    # ---- Lookups --------------------------------------------------------------------------------

    def lookup(self, tokens, *, peek=False, exact=False, from_token=0, max_tokens=0, multiple_of=0,
               identity=NO_IDENTITY, retain_s=0, priority=0):
        """tokens: uint32 values as bytes. peek: no request is made. retain_s, priority: hints for
        eviction."""
        keep = []
        extra = (abi.ExtraKey * len(identity.extra))()
        for i, (kind, first, count, value) in enumerate(identity.extra):
            extra[i] = abi.ExtraKey(kind=kind, first_token=first, token_count=count,
                                    value=_bytes(value, keep))
        ids = ctypes.cast(ctypes.c_char_p(tokens), ctypes.c_void_p)
        params = abi.LookupParams(
            flags=(abi.LOOKUP_PEEK if peek else 0) | (abi.LOOKUP_REQUIRE_EXACT if exact else 0),
            tokens=ids, token_count=len(tokens) // 4, from_token=from_token, max_tokens=max_tokens,
            multiple_of=multiple_of, salt=_bytes(identity.salt, keep),
            lora=_bytes(identity.lora, keep),
            extra_keys=ctypes.addressof(extra) if identity.extra else None,
            extra_key_count=len(identity.extra), retain_s=retain_s, priority=priority)
        result, error = abi.LookupResult(), abi.Error()
        self._check("lookup", self._api.lookup(self._conn, params, result, error), error)
        return self._found(result)

    def attach(self, lease, from_token=0):
        """A request for a lease's promise; request 0: ask again."""
        keep = []
        params = abi.AttachParams(lease=_bytes(lease, keep), from_token=from_token)
        result, error = abi.LookupResult(), abi.Error()
        self._check("attach", self._api.attach(self._conn, params, result, error), error)
        return self._found(result)

    @staticmethod
    def _found(result):
        return Found(result.request, result.matched_tokens, result.stored_tokens,
                     result.provenance.kind, bytes(result.lease), result.state, result.load_ns)

    def release(self, request):
        if not self._conn:
            return abi.E_STALE  # it ended with all others
        error = abi.Error()
        return self._check("release", self._api.release(self._conn, request, error), error,
                           also=(abi.E_STALE,))

    # ---- Rows -----------------------------------------------------------------------------------

    def begin_layer(self, requests, layer):
        """Reads of a layer are started, and of the next; requests: an array of c_uint64. It makes
        loads faster, no more: what it refuses is told by what comes behind it."""
        self._api.begin_layer(self._conn, requests, len(requests), layer, abi.Error())

    def submit(self, items):
        """Begins to deliver; items: an array of abi.Important, the caller's until waited for."""
        error, ticket = abi.Error(), ctypes.c_uint64()
        self._check("get_important_submit", self._api.get_important_submit(
            self._conn, items, len(items), ticket, error), error)
        return ticket.value

    def wait_for(self, ticket, timeout_ns=abi.FOREVER):
        """Each item's status says how it ended. A plugin that cannot wait any more (an invariant of
        its own broke) may still write: it is closed, which ends its threads, and this raises."""
        if not self._conn:
            return abi.E_STALE  # close has ended it
        error = abi.Error()
        status = self._api.get_important_wait(self._conn, ticket, timeout_ns, error)
        if status == abi.E_POISONED:
            self.close()
        return self._unpoisoned("get_important_wait", status, error)

    def get(self, items):
        """Delivers a layer; returns the first status that is not OK."""
        error = abi.Error()
        status = self._api.get_important(self._conn, items, len(items), error)
        return self._unpoisoned("get_important", status, error)

    def store(self, steps, want_tickets=False):
        """A layer of each of an array of abi.StoreParams. Tickets: 0 but for last layers."""
        error = abi.Error()
        tickets = (ctypes.c_uint64 * len(steps))() if want_tickets else None
        self._check("store", self._api.store(self._conn, steps, len(steps), tickets, error), error)
        return list(tickets) if want_tickets else None

    def store_abort(self, request, from_token=0):
        error = abi.Error()
        return self._check("store_abort", self._api.store_abort(
            self._conn, request, from_token, error), error, also=(abi.E_STALE,))

    def wait(self, tickets, timeout_ns=abi.FOREVER):
        """Statuses of stores."""
        error = abi.Error()
        array = (ctypes.c_uint64 * len(tickets))(*tickets)
        statuses = (ctypes.c_int32 * len(tickets))()
        self._check("wait", self._api.wait(self._conn, array, len(tickets), timeout_ns, statuses,
                                           error), error)
        return list(statuses)

    def poll(self, ticket):
        """How a store ended; PENDING: it has not."""
        error, status = abi.Error(), ctypes.c_int32()
        self._check("poll", self._api.poll(self._conn, ctypes.c_uint64(ticket), 1, status, error),
                    error)
        return status.value

    def kept(self, ticket):
        """How a store ended (PENDING: it has not), and how many tokens of its range are stored."""
        error, status, kept = abi.Error(), ctypes.c_int32(), ctypes.c_uint64()
        self._check("wait_kept", self._api.wait_kept(
            self._conn, ctypes.c_uint64(ticket), 1, 0, status, kept, error), error,
                    also=(abi.E_TIMEOUT,))
        return status.value, kept.value

    def computed(self, tokens, positions, ns, is_part=False):
        """Tells what a step took: its new tokens, the sum of their positions, its time. is_part:
        they are of one prompt, which goes on in later steps."""
        error = abi.Error()
        step = abi.Computed(flags=abi.COMPUTED_PART if is_part else 0, tokens=tokens,
                            positions=positions, ns=ns)
        self._check("computed", self._api.computed(self._conn, step, error), error)

    # ---- The rest -------------------------------------------------------------------------------

    def reset(self):
        error = abi.Error()
        self._check("reset", self._api.reset(self._conn, error), error)

    def bypass(self, seconds=None):
        """Nothing is promised or stored for so long; None: until it is ended, 0: ends it."""
        ns = 0 if seconds is None else max(int(seconds * 10**9), abi.BYPASS_END)
        params, error = abi.MaintainParams(flags=abi.MAINTAIN_BYPASS, deadline_ns=ns), abi.Error()
        self._check("maintain", self._api.maintain(self._conn, params, error), error)

    def erase(self, salt=None):
        """What was stored under the salt (bytes; None: everything) is a miss from now on, and is
        overwritten in the background: stats()["erasing"] is 0 when it is."""
        flags = abi.MAINTAIN_ERASE if salt is None else abi.MAINTAIN_ERASE_SALT
        keep = []
        params = abi.MaintainParams(flags=flags, salt=_bytes(salt or b"", keep))
        error = abi.Error()
        self._check("maintain", self._api.maintain(self._conn, params, error), error)

    def _stats(self):
        error, stats = abi.Error(), abi.Stats()
        self._check("stats", self._api.stats(self._conn, stats, error), error)
        return stats

    def epoch(self):
        """How many resets of this model's KV this connection knows of."""
        return self._stats().epoch

    def role(self):
        """ROLE_WRITER or ROLE_READER, which changes as other processes of the store end."""
        return self._stats().role

    def stats(self):
        stats = self._stats()
        return {name: getattr(stats, name) for name in ("poisoned", *abi.STATS)}
