"""Inputs of a request, which a client chose, as the values that the plugin takes.

An input without such a value raises InputError: its request uses the tier no more, and all others
go on. Refusals counts these requests, and logs the first one of each kind.

Holds: inputs that differ have values that differ. Does not: import an engine, or correct an input.
Threads: the caller's. Tests: tests/test_requests.py.
"""
import operator
from collections import Counter
from collections.abc import Mapping

from .connector import Poisoned

EXTRA_IMAGE = 1  # kinds of extra keys
# Limits of the plugin's lookup (abi/spec_connector.h, ABI-027).
VALUE_BYTES_MAX, KEY_POSITIONS_MAX, KEYS_TOGETHER_MAX = 65536, 256, 16


class InputError(Exception):
    """An input of a request that has no value for the plugin. kind: salt, media, adapter, tokens,
    params or plugin, for counters."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


def _bytes_of(value, kind, name):
    """Clients may send halves of surrogate pairs: each has bytes of its own."""
    if not isinstance(value, str):
        raise InputError(kind, f"its {name} is of type {type(value).__name__}, not text")
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > VALUE_BYTES_MAX:
        raise InputError(kind, f"its {name} has {len(data)} bytes, above {VALUE_BYTES_MAX}")
    return data


def salt_of(value):
    return b"" if value is None else _bytes_of(value, "salt", "cache_salt")


def media_of(features, token_count):
    """Extra keys, in ascending order; token_count: of the prompt, in which each begins."""
    keys = []
    for feature in features or ():
        try:
            first = operator.index(feature.mm_position.offset)
            length = operator.index(feature.mm_position.length)
        except TypeError as error:
            raise InputError("media", f"the place of an item is no number: {error}") from error
        if not 0 <= first < token_count or not 0 <= length <= token_count - first:
            raise InputError("media", f"an item has {length} tokens from {first} on, in a prompt "
                                      f"of {token_count}")
        keys.append((EXTRA_IMAGE, first, length,
                     _bytes_of(feature.identifier, "media", "media identifier")))
    keys.sort(key=lambda key: key[1])
    places = Counter(key[1] for key in keys)
    together = max(places.values(), default=0)
    if len(places) > KEY_POSITIONS_MAX or together > KEYS_TOGETHER_MAX:
        raise InputError("media", f"it has media at {len(places)} places, up to {together} items "
                                  "at one of them")
    return tuple(keys)


def add_tokens(ids, tokens):
    """Appends token ids to an array of uint32."""
    try:
        ids.extend(tokens)
    except (OverflowError, TypeError) as error:
        raise InputError("tokens", f"a token id is no 32-bit number: {error}") from error


def words_of(params):
    """What kv_transfer_params say to this connector: {"spec": {...}}. Values of "spec" that are no
    mapping say nothing."""
    if params is None:
        return {}
    if not isinstance(params, Mapping):
        raise InputError("params", "its kv_transfer_params are of type "
                                   f"{type(params).__name__}, not a mapping")
    words = params.get("spec")
    return words if isinstance(words, dict) else {}


class Refusals:
    """Requests that use the tier no more. count(kind) is called for each; the first of a kind, and
    of each exception of the connector's own, has a line."""

    def __init__(self, count, logger):
        self.count, self.logger, self.logged = count, logger, set()

    def add(self, request_id, place, error):
        """error: an InputError, or what the connector raised in `place` while it handled this
        request alone. A poisoned plugin is no request's: it is raised again."""
        if isinstance(error, Poisoned):
            raise error
        is_input = isinstance(error, InputError)
        kind = error.kind if is_input else "failure"
        self.count(kind)
        line = kind if is_input else (place, type(error))
        if line in self.logged:
            return
        self.logged.add(line)
        if is_input:
            self.logger.warning("spec_connector: request %r is computed without the tier: %s; "
                                "further ones are counted (refused_requests, kind %s)",
                                request_id, error, kind)
        else:
            self.logger.error("spec_connector: request %r is computed without the tier: %s: %s; "
                              "further ones are counted (refused_requests, kind %s)", request_id,
                              place, error, kind, exc_info=error)
