"""Objects by key (abi/spec_objects.h) as Python objects: values of a host under keys, on SSD.

    with Objects({"path": "/var/lib/kv", "disk_bytes": "200GiB"}) as store:
        domain = store.domain(b"model, weights, layout, rank")
        statuses = domain.put(keys, addresses, sizes)
        found, leading = domain.exists(keys, hold=True)

keys        list of bytes, or of str (encoded as UTF-8). One join packs them; no loop of Python
            runs over the keys of a call.
addresses   of memory, one for each piece of each key: an array("Q"), a numpy array of uint64, or
            any iterable of int. Key i has the pieces [i * pieces, (i + 1) * pieces).
sizes       bytes of each piece, as addresses; or one int for all
statuses    array("i") with KEY_* or abi.E_* of each key: a call of which some keys failed does not
            raise

Errors: a call that fails as a whole raises Error, which names the status, or Poisoned.
Threads: any, except that nothing may run beside Objects.close, and nothing of a domain beside its
close. ctypes releases the interpreter's lock during calls, except in exists_one.
Memory: what a submitted operation reads or writes must live until its completion; pass its owner as
`keep`. Tests: tests/test_objects.py
"""
import collections
import contextlib
import ctypes
import itertools
import json
import logging
import math
import os
import struct
import threading
import weakref
from array import array

from . import abi
from . import objects_abi as c
from .connector import Error, Poisoned, log_function
from .library import call_on_every_core, load_objects

BATCH = 64  # completions of one poll
LISTED, KEY_ROOM_BYTES = 2048, 512 << 10  # events of one call, and memory for their keys
EVENT = struct.Struct(c.EVENT_FORMAT)

# operation: its number; user: what submit was given; status: abi.OK, abi.PENDING (some keys were
# absent) or the first failure; statuses: array("i") of all keys
Completion = collections.namedtuple("Completion", "operation user done_count status statuses")


def _raise(call, status, error):
    text = error.text.decode(errors="replace")
    if status == abi.E_POISONED:
        raise Poisoned(f"{call}: {text}")
    raise Error(call, status, text)


def pack(keys):
    """A struct spec_keys of them, and what it points to."""
    if isinstance(keys[0], str):
        text = "".join(keys)
        data = text.encode("utf-8", "surrogatepass")
        if len(data) != len(text):  # lengths in characters are not lengths in bytes
            keys = [key.encode("utf-8", "surrogatepass") for key in keys]
    else:
        data = b"".join(keys)
    first = len(keys[0])
    if len(set(map(len, keys))) == 1:
        return c.Keys(count=len(keys), data=data, key_bytes=first), None
    lengths = array("I", map(len, keys))
    return c.Keys(count=len(keys), data=data, lengths=lengths.buffer_info()[0]), lengths


def _column(values):
    """Address and length of an array of 64-bit numbers, and its owner."""
    face = getattr(values, "__array_interface__", None)
    if face is not None and face["typestr"] in ("<u8", "<i8") and face["strides"] is None:
        return face["data"][0], math.prod(face["shape"]), values
    if not (isinstance(values, array) and values.typecode in "QqLl" and values.itemsize == 8):
        values = array("Q", values)
    return *values.buffer_info(), values


def _timeout(seconds):
    """None: the configuration's; math.inf: as long as it takes."""
    if seconds is None:
        return c.TIMEOUT_CONFIGURED
    return c.TIMEOUT_NONE if seconds == math.inf else max(1, int(seconds * 10**9))


class _Transfer:
    """Arguments of one get or put: of keys [first, last) of those given."""

    def __init__(self, keys, addresses, sizes, pieces, timeout, part=None):
        first, last = part or (0, len(keys))
        if last - first > c.KEYS_MAX:
            raise ValueError(f"{last - first} keys, above {c.KEYS_MAX} of one operation")
        self.keys, lengths = pack(keys if part is None else keys[first:last])
        at, count, owner = _column(addresses)
        size_at, piece_bytes, size_owner = 0, 0, None
        if isinstance(sizes, int):
            piece_bytes, size_count = sizes, count
        else:
            size_at, size_count, size_owner = _column(sizes)
            size_at += 8 * pieces * first
        if count != len(keys) * pieces or size_count != count:
            raise ValueError(f"{len(keys)} keys of {pieces} pieces have {count} addresses and "
                             f"{size_count} sizes")
        self.pieces = c.Pieces(pieces=pieces, addresses=at + 8 * pieces * first,
                               sizes=size_at or None, piece_bytes=piece_bytes)
        self.statuses = array("i", bytes(4 * (last - first)))
        self.params = c.TransferParams(timeout_ns=_timeout(timeout),
                                       ret_status=self.statuses.buffer_info()[0])
        self.owners = lengths, owner, size_owner


class _One(threading.local):
    """Arguments of exists_one, made once for each thread."""

    def __init__(self):
        self.status = (ctypes.c_int8 * 1)()
        self.keys, self.error = c.Keys(count=1), abi.Error()
        self.params = c.ExistsParams(flags=c.EXISTS_HOLD,
                                     ret_status=ctypes.addressof(self.status))
        self.tail = (ctypes.byref(self.keys), ctypes.byref(self.params), None,
                     ctypes.byref(self.error))


class _Polled(threading.local):
    """Room for completions, made once for each thread."""

    def __init__(self):
        self.room, self.count = (c.Completion * BATCH)(), ctypes.c_uint64()
        self.error = abi.Error()


class Domain:
    """Values that no other domain has or finds. Made by Objects.domain."""

    def __init__(self, objects, number):
        self._objects, self._number = objects, number
        self._api, self._store = objects._api, objects._store
        self._one, self._polled = _One(), _Polled()
        self._exists_holding_lock = objects._exists_holding_lock
        self._poll = self._api.poll
        self._submitted = objects._submitted  # user number -> what an operation needs until it ends

    def _check(self, call, status, error):
        if status < 0:
            _raise(call, status, error)

    def close(self):
        """Cancels what was submitted and waits until the device has let go of memory. Completions
        that were not polled are dropped."""
        number, self._number = self._number, 0
        if not number or not self._objects.is_open:
            return
        error = abi.Error()
        self._check("domain_close", self._api.domain_close(self._store, number, error), error)
        self._objects.domain_closed(number)

    # ---- Which keys are stored -------------------------------------------------------------------

    def exists(self, keys, hold=False, prefix=False, hold_seconds=0.0):
        """Statuses of the keys, one byte each (KEY_ABSENT, KEY_DONE, KEY_PENDING), and how many of
        the first keys are stored without a gap.

        hold: what is found is not evicted for hold_seconds (0: as configured).
        prefix: keys behind the first gap are reported absent, and are not held."""
        found, leading, error = [], 0, abi.Error()
        for first in range(0, len(keys), c.KEYS_MAX):
            part = keys[first:first + c.KEYS_MAX] if len(keys) > c.KEYS_MAX else keys
            statuses, run = (ctypes.c_int8 * len(part))(), ctypes.c_uint64()
            params = c.ExistsParams(
                flags=(c.EXISTS_HOLD if hold else 0) | (c.EXISTS_PREFIX if prefix else 0),
                hold_ns=int(hold_seconds * 10**9), ret_status=ctypes.addressof(statuses))
            packed, _lengths = pack(part)
            self._check("exists", self._api.exists(self._store, self._number, packed, params, run,
                                                   error), error)
            found.append(bytes(statuses))
            leading += run.value if leading == first else 0
            if prefix and leading < first + len(part):
                found.append(bytes(len(keys) - first - len(part)))
                break
        return b"".join(found), leading

    def exists_one(self, key):
        """Status of one key (bytes), which is held as configured. Arguments are kept for each
        thread, and the interpreter's lock is kept: the call never waits."""
        one = self._one
        one.keys.data, one.keys.key_bytes = key, len(key)
        status = self._exists_holding_lock(self._store, self._number, *one.tail)
        if status:
            _raise("exists", status, one.error)
        return one.status[0]

    def sizes(self, keys):
        """array("Q") of the values' bytes; 0: not stored."""
        sizes, error = array("Q", bytes(8 * len(keys))), abi.Error()
        for first in range(0, len(keys), c.KEYS_MAX):
            params = c.ExistsParams(ret_bytes=sizes.buffer_info()[0] + 8 * first)
            packed, _lengths = pack(keys[first:first + c.KEYS_MAX])
            self._check("exists", self._api.exists(self._store, self._number, packed, params, None,
                                                   error), error)
        return sizes

    def touch(self, keys):
        """Marks keys as used now."""
        error = abi.Error()
        for first in range(0, len(keys), c.KEYS_MAX):
            packed, _lengths = pack(keys[first:first + c.KEYS_MAX])
            self._check("touch", self._api.touch(self._store, self._number, packed, error), error)

    # ---- Values ----------------------------------------------------------------------------------

    def _transfer(self, name, function, keys, addresses, sizes, pieces, timeout):
        statuses, error = array("i"), abi.Error()
        for first in range(0, len(keys), c.KEYS_MAX):
            part = None if len(keys) <= c.KEYS_MAX else (first, min(len(keys), first + c.KEYS_MAX))
            call = _Transfer(keys, addresses, sizes, pieces, timeout, part)
            with self._objects.running():
                status = function(self._store, self._number, call.keys, call.pieces, call.params,
                                  error)
            self._check(name, status, error)
            statuses = statuses + call.statuses if part else call.statuses
        return statuses

    def get(self, keys, addresses, sizes, pieces=1, timeout=None):
        """Reads values into memory; returns statuses: KEY_DONE, KEY_ABSENT, or a failure. Memory of
        a key without KEY_DONE is undefined."""
        return self._transfer("get", self._api.get, keys, addresses, sizes, pieces, timeout)

    def put(self, keys, addresses, sizes, pieces=1, timeout=None):
        """Stores values; returns statuses: KEY_DONE, KEY_STORED (it was stored before), or a
        failure."""
        return self._transfer("put", self._api.put, keys, addresses, sizes, pieces, timeout)

    def _submit(self, name, function, keys, addresses, sizes, pieces, timeout, user, keep):
        call = _Transfer(keys, addresses, sizes, pieces, timeout)
        number, operation, error = self._objects.next_number(), ctypes.c_uint64(), abi.Error()
        call.params.user = number
        # before the call: another thread may poll the completion at once
        self._submitted[number] = self._number, user, call.statuses, keep, call.owners
        status = function(self._store, self._number, call.keys, call.pieces, call.params,
                          operation, error)
        if status < 0:
            del self._submitted[number]
            _raise(name, status, error)
        return operation.value

    def get_submit(self, keys, addresses, sizes, pieces=1, timeout=None, user=None, keep=None):
        """Begins to read values; returns the operation's number. `user` is returned with the
        completion. Memory, and `keep`, which owns it, stay alive until then."""
        return self._submit("get_submit", self._api.get_submit, keys, addresses, sizes, pieces,
                            timeout, user, keep)

    def put_submit(self, keys, addresses, sizes, pieces=1, timeout=None, user=None, keep=None):
        """Begins to store values; as get_submit."""
        return self._submit("put_submit", self._api.put_submit, keys, addresses, sizes, pieces,
                            timeout, user, keep)

    def poll(self, timeout=0.0):
        """Up to BATCH completions of this domain; waits at most `timeout` seconds for one."""
        polled = self._polled
        with self._objects.running() if timeout else contextlib.nullcontext():
            status = self._poll(self._store, self._number, polled.room, BATCH,
                                int(timeout * 10**9), polled.count, polled.error)
        if status < 0:
            _raise("poll", status, polled.error)
        if not polled.count.value:
            return []
        done = []
        for at in polled.room[:polled.count.value]:
            _domain, user, statuses, *_owners = self._submitted.pop(at.user)
            done.append(Completion(at.operation, user, at.done_count, at.status, statuses))
        return done

    def event_fd_set(self, fd):
        """1 is added to this eventfd for each completion; -1: to none."""
        error = abi.Error()
        self._check("event_fd_set", self._api.event_fd_set(self._store, self._number, fd, error),
                    error)

    def cancel(self, operation):
        """Keys that were not handed to the device fail as abi.E_DROPPED; the completion still
        comes. Returns False if the operation has ended."""
        error = abi.Error()
        status = self._api.cancel(self._store, operation, error)
        if status != abi.E_STALE:
            self._check("cancel", status, error)
        return status != abi.E_STALE

    def remove(self, keys, erase=False):
        """Removes keys; statuses, one byte each: KEY_DONE or KEY_ABSENT. erase: neither keys nor
        values can be read from the files when it returns."""
        removed, error = [], abi.Error()
        for first in range(0, len(keys), c.KEYS_MAX):
            packed, _lengths = pack(keys[first:first + c.KEYS_MAX])
            statuses = (ctypes.c_int8 * packed.count)()
            with self._objects.running():
                status = self._api.remove(self._store, self._number, packed,
                                          c.REMOVE_ERASE if erase else 0, statuses, error)
            self._check("remove", status, error)
            removed.append(bytes(statuses))
        return b"".join(removed)

    def clear(self, erase=False):
        """Removes every object of this domain."""
        error = abi.Error()
        with self._objects.running():
            status = self._api.clear(self._store, self._number, c.REMOVE_ERASE if erase else 0,
                                     error)
        self._check("clear", status, error)

    # ---- What is in it ---------------------------------------------------------------------------

    def list(self):
        """Batches of (keys, sizes) of all objects; .sequence is where events begin that were not
        listed."""
        return Listing(self._objects, self._number)

    def events(self, sequence):
        """Reads events of this domain from a sequence number (of a Listing) on."""
        return Events(self._objects, self._number, sequence)

    def stats(self):
        """Counts of this domain since it was opened, and levels, by name."""
        return self._objects._stats(self._number)


class _Batch:
    """Memory for events and their keys, and their rows."""

    def __init__(self):
        self.events = ctypes.create_string_buffer(EVENT.size * LISTED)
        self.keys = ctypes.create_string_buffer(KEY_ROOM_BYTES)

    def members(self):
        return {"ret_events": ctypes.addressof(self.events), "capacity": LISTED,
                "key_room": ctypes.addressof(self.keys), "key_room_bytes": KEY_ROOM_BYTES}

    def rows(self, count):
        """(kind, reason, bytes, key) of each event."""
        raw = ctypes.string_at(self.events, EVENT.size * count)
        room = ctypes.string_at(self.keys, max((at + n for *_, at, n in EVENT.iter_unpack(raw)),
                                               default=0))
        return [(kind, reason, size, room[at:at + n])
                for _, _, size, kind, reason, at, n in EVENT.iter_unpack(raw)]


class Listing:
    """Iterates over batches (keys, sizes). The first batch is read when it is made, so .sequence is
    known from then on. One thread."""

    def __init__(self, objects, number):
        self._objects, self._batch = objects, _Batch()
        self._list = c.List(domain=number, **self._batch.members())
        self._rows = self._read()
        self.sequence = self._list.sequence

    def _read(self):
        error = abi.Error()
        status = self._objects._api.list(self._objects._store, self._list, error)
        if status < 0:
            _raise("list", status, error)
        return self._batch.rows(self._list.ret_count)

    def __iter__(self):
        while True:
            yield [row[3] for row in self._rows], array("Q", (row[2] for row in self._rows))
            if not self._list.cursor:
                return
            self._rows = self._read()


class Events:
    """Iterates over runs (kind, reason, keys) of equal kind and reason until no event is left; a
    later iteration continues there. `missed` becomes true if events were lost: the reader lists
    the domain again, then calls restart. One thread."""

    def __init__(self, objects, number, sequence):
        self._objects, self._batch, self.missed = objects, _Batch(), False
        self._read = c.ReadEvents(domain=number, sequence=sequence, **self._batch.members())
        self._call, self._error = objects._api.events, abi.Error()

    def restart(self, sequence):
        self._read.sequence, self.missed = sequence, False

    @property
    def sequence(self):
        return self._read.sequence

    def __iter__(self):
        while True:
            status = self._call(self._objects._store, self._read, self._error)
            if status < 0:
                _raise("events", status, self._error)
            self.missed = self.missed or bool(self._read.ret_missed)
            if not self._read.ret_count:
                return
            for (kind, reason), rows in itertools.groupby(
                    self._batch.rows(self._read.ret_count), key=lambda row: row[:2]):
                yield kind, reason, [row[3] for row in rows]


def _end(close, store, running, *_alive):
    """close waits for the device; _alive: what the library may use until then. Where the process
    ends while a thread still waits in a call, nothing is closed: no call may run beside close."""
    if not running:
        close(store)


class Objects:
    """One open store of one rank.

    config: a path of a JSON file, or a dict. log: as logging.Logger.log, for the library's lines up
    to log_level; it is called inside calls, on the callers' threads."""

    def __init__(self, config, *, rank=0, rank_count=1, library=None,
                 log=logging.getLogger("spec_connector").log, log_level=abi.LOG_WARN):
        self._api, self._store = load_objects(library), ctypes.c_void_p()
        text = json.dumps(config) if isinstance(config, dict) else os.fspath(config)
        self._log = log_function(log)
        params = c.OpenParams(config=text.encode(), rank=rank, rank_count=rank_count,
                              log=self._log, log_level_max=log_level)
        error = abi.Error()
        status = call_on_every_core(lambda: self._api.open(
            ctypes.byref(params), ctypes.byref(self._store), ctypes.byref(error)))
        if status != abi.OK:
            _raise("open", status, error)
        self._submitted, self._numbers = {}, itertools.count(1)
        self._openers = collections.Counter()  # of domains, by number
        self._running = set()  # calls that may wait
        # A store that nobody closed still writes into memory of submitted operations.
        self._closed = weakref.finalize(self, _end, self._api.close, self._store, self._running,
                                        self._log, self._submitted)
        address = ctypes.cast(self._api.exists, ctypes.c_void_p).value
        self._exists_holding_lock = ctypes.PYFUNCTYPE(ctypes.c_int32, *c.EXISTS)(address)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def is_open(self):
        return self._closed.alive

    def next_number(self):
        return next(self._numbers)

    @contextlib.contextmanager
    def running(self):
        """A call that may wait is under way."""
        call = object()
        self._running.add(call)
        try:
            yield
        finally:
            self._running.discard(call)

    def close(self):
        """Cancels what was submitted, waits for the device, and closes; a second time nothing."""
        self._running.clear()  # the caller says that none runs
        self._closed()
        self._store.value = None  # later calls of its domains are invalid, not wild
        self._submitted.clear()

    def domain(self, identity, bytes_min=0, bytes_max=0):
        """Opens the domain of these bytes, or makes it. bytes_min is not evicted for others;
        bytes_max is a hard limit (0: none)."""
        params = c.DomainParams(identity=c.BytesOf(identity, len(identity)), bytes_min=bytes_min,
                                bytes_max=bytes_max)
        number, error = ctypes.c_uint64(), abi.Error()
        status = self._api.domain_open(self._store, params, number, error)
        if status < 0:
            _raise("domain_open", status, error)
        self._openers[number.value] += 1
        return Domain(self, number.value)

    def domain_closed(self, number):
        """Domain.close's part: forgets operations of a domain that nobody has open."""
        self._openers[number] -= 1
        if self._openers[number] == 0:
            for user in [u for u, entry in list(self._submitted.items()) if entry[0] == number]:
                self._submitted.pop(user, None)

    def domains(self):
        """{identity: bytes of its values} of all domains, open or not."""
        return {identity: size for keys, sizes in Listing(self, 0)
                for identity, size in zip(keys, sizes)}

    def _stats(self, number):
        error, stats = abi.Error(), c.Stats()
        status = self._api.stats(self._store, number, stats, error)
        if status < 0:
            _raise("stats", status, error)
        return {name: getattr(stats, name) for name in c.STATS}

    def stats(self):
        """Counts and levels of the store, by name."""
        return self._stats(0)
