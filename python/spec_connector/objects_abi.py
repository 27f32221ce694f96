"""abi/spec_objects.h as ctypes: structures, constants, the function table of objects by key.

Invariant: every size, offset and constant is the header's (tests/test_objects_abi.py asks the
compiler). Pointers to bytes of Python are c_char_p: they accept bytes and keep them alive.
"""
import ctypes
from ctypes import (CFUNCTYPE, POINTER, c_char_p, c_int32, c_uint16, c_uint32, c_uint64, c_void_p)

from .abi import Error, LogFn, Structure

MAJOR, MINOR = 0, 2

OBJECT_BYTES_MAX, KEY_BYTES_MAX, KEYS_MAX, PIECES_MAX = 256 << 20, 1024, 65536, 16
DOMAIN_BYTES_MAX, DOMAINS_MAX, HOLD_NS_MAX = 4096, 1024, 60000000000
TIMEOUT_CONFIGURED, TIMEOUT_NONE = 0, 2**64 - 1

KEY_ABSENT, KEY_DONE, KEY_PENDING, KEY_STORED = 0, 1, 2, 3
EXISTS_HOLD, EXISTS_PREFIX = 1, 2
REMOVE_ERASE = 1
EVENT_STORED, EVENT_REMOVED, EVENT_CLEARED = 1, 2, 3
REMOVED_EVICTED, REMOVED_DELETED, REMOVED_DAMAGED, REMOVED_ELSEWHERE = 1, 2, 3, 4


class Keys(Structure):
    _fields_ = [("struct_size", c_uint32), ("count", c_uint32), ("data", c_char_p),
                ("lengths", c_void_p), ("key_bytes", c_uint32), ("reserved", c_uint32)]


class Pieces(Structure):
    _fields_ = [("struct_size", c_uint32), ("pieces", c_uint32), ("addresses", c_void_p),
                ("sizes", c_void_p), ("piece_bytes", c_uint64)]


class OpenParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("rank", c_uint32), ("rank_count", c_uint32),
                ("log_level_max", c_int32), ("config", c_char_p), ("alloc", c_void_p),
                ("log", LogFn), ("log_user", c_void_p)]


class BytesOf(ctypes.Structure):
    """struct spec_bytes that keeps its Python bytes alive."""
    _fields_ = [("data", c_char_p), ("byte_count", c_uint64)]


class DomainParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("identity", BytesOf),
                ("bytes_min", c_uint64), ("bytes_max", c_uint64)]


class ExistsParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("hold_ns", c_uint64),
                ("ret_status", c_void_p), ("ret_bytes", c_void_p)]


class TransferParams(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("timeout_ns", c_uint64),
                ("ret_status", c_void_p), ("user", c_uint64)]


class Completion(ctypes.Structure):
    _fields_ = [("operation", c_uint64), ("user", c_uint64), ("done_count", c_uint32),
                ("status", c_int32)]


class ObjectEvent(ctypes.Structure):
    _fields_ = [("sequence", c_uint64), ("domain", c_uint64), ("bytes", c_uint64),
                ("kind", c_uint32), ("reason", c_uint32), ("key_offset", c_uint32),
                ("key_bytes", c_uint32)]


EVENT_FORMAT = "=QQQIIII"  # struct.unpack's text for ObjectEvent


class ReadEvents(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("domain", c_uint64),
                ("sequence", c_uint64), ("ret_events", c_void_p), ("capacity", c_uint64),
                ("key_room", c_void_p), ("key_room_bytes", c_uint64), ("ret_count", c_uint64),
                ("ret_missed", c_uint64)]


class List(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("domain", c_uint64),
                ("cursor", c_uint64), ("sequence", c_uint64), ("ret_events", c_void_p),
                ("capacity", c_uint64), ("key_room", c_void_p), ("key_room_bytes", c_uint64),
                ("ret_count", c_uint64)]


STATS = """objects bytes disk_bytes_used disk_bytes_max index_bytes waiting_puts inflight_bytes
    exists_keys exists_hits get_keys get_hits get_bytes put_keys put_stored put_bytes put_present
    put_no_space put_timeouts put_waits put_wait_ns evicted_objects evicted_bytes deleted_objects
    damaged_objects io_errors bounce_bytes events_lost checkpoints""".split()


class Stats(Structure):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), *((n, c_uint64) for n in STATS)]


_store, _domain, _operation, _error = c_void_p, c_uint64, c_uint64, POINTER(Error)
_transfer = (_store, _domain, POINTER(Keys), POINTER(Pieces), POINTER(TransferParams))


def _call(*arguments):
    return CFUNCTYPE(c_int32, *arguments, _error)


EXISTS = (_store, _domain, POINTER(Keys), POINTER(ExistsParams), POINTER(c_uint64), _error)


class Api(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32), ("major", c_uint16), ("minor", c_uint16),
        ("open", _call(POINTER(OpenParams), POINTER(c_void_p))),
        ("close", CFUNCTYPE(None, _store)),
        ("domain_open", _call(_store, POINTER(DomainParams), POINTER(c_uint64))),
        ("domain_close", _call(_store, _domain)),
        ("exists", CFUNCTYPE(c_int32, *EXISTS)),
        ("get", _call(*_transfer)),
        ("put", _call(*_transfer)),
        ("get_submit", _call(*_transfer, POINTER(c_uint64))),
        ("put_submit", _call(*_transfer, POINTER(c_uint64))),
        ("poll", _call(_store, _domain, POINTER(Completion), c_uint64, c_uint64,
                       POINTER(c_uint64))),
        ("event_fd_set", _call(_store, _domain, c_int32)),
        ("cancel", _call(_store, _operation)),
        ("remove", _call(_store, _domain, POINTER(Keys), c_uint32, c_void_p)),
        ("clear", _call(_store, _domain, c_uint32)),
        ("touch", _call(_store, _domain, POINTER(Keys))),
        ("list", _call(_store, POINTER(List))),
        ("events", _call(_store, POINTER(ReadEvents))),
        ("stats", _call(_store, _domain, POINTER(Stats))),
    ]


STRUCTURES = {
    "spec_keys": Keys, "spec_pieces": Pieces, "spec_objects_params": OpenParams,
    "spec_domain_params": DomainParams, "spec_exists_params": ExistsParams,
    "spec_transfer_params": TransferParams, "spec_completion": Completion,
    "spec_object_event": ObjectEvent, "spec_read_events": ReadEvents, "spec_list": List,
    "spec_object_stats": Stats, "spec_objects_api": Api,
}
