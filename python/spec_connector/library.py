"""Finds and loads libspec_connector.so: SPEC_CONNECTOR_LIBRARY, or the one in this package."""
import ctypes
import os

from . import abi

NAME = "libspec_connector.so"
_loaded = {}


def load(path=None):
    """The function table of the plugin at `path`, checked for its version; loaded once."""
    path = path or os.environ.get("SPEC_CONNECTOR_LIBRARY") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), NAME)
    path = os.path.realpath(path)
    if path in _loaded:
        return _loaded[path]
    if not os.path.exists(path):
        raise OSError(f"{path} is absent: install the wheel, or name the library by "
                      "SPEC_CONNECTOR_LIBRARY")
    library = ctypes.CDLL(path)
    get_api = library.spec_connector_api
    get_api.argtypes, get_api.restype = [ctypes.c_uint32], ctypes.POINTER(abi.Api)
    table = get_api(abi.MAJOR)
    if not table or (table.contents.minor, table.contents.struct_size) != (
            abi.MINOR, ctypes.sizeof(abi.Api)):
        said = f"{table.contents.major}.{table.contents.minor}" if table else "another major one"
        raise OSError(f"{path} speaks ABI {said}, expected {abi.MAJOR}.{abi.MINOR}")
    _loaded[path] = table.contents
    return _loaded[path]
