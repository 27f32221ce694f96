"""Finds and loads libspec_connector.so: SPEC_CONNECTOR_LIBRARY, or the one in this package."""
import ctypes
import os
import threading

from . import abi, objects_abi

NAME = "libspec_connector.so"
_loaded = {}  # (path, name of the table) -> table


def _path_of(path):
    path = os.path.realpath(path or os.environ.get("SPEC_CONNECTOR_LIBRARY") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), NAME))
    if not os.path.exists(path):
        raise OSError(f"{path} is absent: install the wheel, or name the library by "
                      "SPEC_CONNECTOR_LIBRARY")
    return path


def _table(path, getter, api, major, minor):
    path = _path_of(path)
    if (path, getter) in _loaded:
        return _loaded[path, getter]
    get_api = getattr(ctypes.CDLL(path), getter, None)
    if get_api is None:
        raise OSError(f"{path} has no {getter}: it is older than this package")
    get_api.argtypes, get_api.restype = [ctypes.c_uint32], ctypes.POINTER(api)
    table = get_api(major)
    if not table or (table.contents.minor, table.contents.struct_size) != (
            minor, ctypes.sizeof(api)):
        said = f"{table.contents.major}.{table.contents.minor}" if table else "another major one"
        raise OSError(f"{path} speaks {getter} {said}, expected {major}.{minor}")
    _loaded[path, getter] = table.contents
    return table.contents


def load(path=None):
    """The function table of the plugin at `path`, checked for its version; loaded once."""
    return _table(path, "spec_connector_api", abi.Api, abi.MAJOR, abi.MINOR)


def load_objects(path=None):
    """The function table of objects by key of the plugin at `path`; loaded once."""
    return _table(path, "spec_connector_objects_api", objects_abi.Api, objects_abi.MAJOR,
                  objects_abi.MINOR)


def call_on_every_core(function):
    """Calls function() on a new thread that may run on every core of the process's set, and returns
    its result. Threads that a library starts inherit that; an engine may have bound the calling
    thread to one core."""
    result = []

    def run():
        try:
            os.sched_setaffinity(0, range(os.cpu_count() or 1))  # the kernel cuts it to the set
        except OSError:
            pass  # the thread stays where it is: slower, not wrong
        result.append(function())

    thread = threading.Thread(target=run, name="spec-connector-open")
    thread.start()
    thread.join()
    return result[0]
