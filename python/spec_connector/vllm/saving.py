"""Saves, in front of a step: what steps before have computed goes to the plugin.

Holds: nothing that was computed on rows that never came is stored, nor rows from before a reset
under what came after it. A reader of the store stores nothing until the plugin has become a writer
(the engine that stored has ended); it notes the tokens of requests, which go on then.
Threads: the engine's one.
"""
import ctypes
import dataclasses

from vllm.logger import init_logger

from .. import abi
from ..connector import Error
from ..requests import InputError
from .memories import records_of

logger = init_logger("vllm.spec_connector")

SUSPECT_STEPS = 3  # so long steps may come that were scheduled before a failed load was told


@dataclasses.dataclass
class Stored:
    """A request whose blocks are stored, in the worker."""
    tokens: bytearray = dataclasses.field(default_factory=bytearray)
    blocks: list = dataclasses.field(default_factory=list)
    request: int = 0  # of the plugin; 0: none
    known: int = 0    # tokens that the plugin has
    end: int = 0      # rows [0, end) are stored, or on their way
    tickets: list = dataclasses.field(default_factory=list)  # of stores that may be under way
    firsts: dict = dataclasses.field(default_factory=dict)  # where the range of each begins
    is_bad: bool = False  # it computed on rows that never came
    is_refused: bool = False  # nothing of it is stored any more
    computed_on: int = abi.PROVENANCE_EXACT
    has_gap: bool = False  # rows that were not stored in time are lost


class Saving:
    def __init__(self, conn, rows, counts, is_reader=False):
        self.conn, self.rows, self.counts = conn, rows, counts
        self.is_reader = is_reader  # nothing can be stored yet
        self.stored, self.suspects = {}, []
        self.tickets = []  # of requests that have ended, to be asked for

    def save(self, metadata):
        self.suspects = [(left - 1, blocks) for left, blocks in self.suspects if left > 1]
        self.tickets = [t for t in self.tickets if self.conn.poll(t) == abi.PENDING]
        steps = []
        if metadata.saves:
            self.follow_role()
        for save in metadata.saves:
            if self.is_reader:
                self.note(save)
                self.counts.add("dropped_saves", "reader")
                continue
            try:
                step = self.step_of(save, metadata.epoch)
            except Error as error:
                if error.status == abi.E_INVALID:
                    self.refuse(save.request_id, InputError("plugin", str(error)))
                    continue
                # the next save of this request begins anew
                logger.warning("spec_connector: request %s: %s", save.request_id, error)
                self.counts.add("dropped_saves", "error")
                continue
            except Exception as error:  # pylint: disable=broad-except
                self.refuse(save.request_id, error)
                continue
            if step is not None:
                steps.append(step)
        for first in range(0, len(steps), abi.CALL_MAX):
            self.store(steps[first:first + abi.CALL_MAX])
        for request_id in metadata.ended:
            self.forget(request_id)

    def follow_role(self):
        """Other processes of the store decide whether this one stores: at any time it may become
        the writer, and one of many writers that cannot follow the others any more reads."""
        is_reader = self.conn.role() == abi.ROLE_READER
        if self.is_reader and not is_reader:
            logger.info("spec_connector: the engine that stored has ended: this one stores now")
        elif is_reader and not self.is_reader:
            logger.warning("spec_connector: this engine loads from the store, and stores nothing "
                           "from now on: it cannot follow the other processes that store")
        self.is_reader = is_reader

    def refuse(self, request_id, error):
        """Nothing of this request is stored from now on."""
        self.counts.refusals.add(request_id, "save", error)
        self.counts.add("dropped_saves", "refused")
        stored = self.stored.setdefault(request_id, Stored())
        stored.is_refused = True
        self.release(stored)

    def note(self, save):
        """The request's state, with the save's tokens and blocks."""
        stored = self.stored.setdefault(save.request_id, Stored())
        if stored.is_refused:
            return stored
        stored.tokens += save.tokens
        stored.blocks += save.blocks
        if any(not blocks.isdisjoint(stored.blocks) for _, blocks in self.suspects):
            stored.is_bad = True
        return stored

    def step_of(self, save, epoch):
        """(stored, first, end, place) of what is to be stored now; None: nothing."""
        stored = self.note(save)
        if stored.is_refused:
            self.counts.add("dropped_saves", "refused")
            return None
        if stored.is_bad:
            self.counts.add("dropped_saves", "distrust")
            return None
        if not self.is_good(stored):
            self.release(stored)  # given up: where it is good to go on, a lookup says
        if stored.request == 0:
            known = len(stored.tokens) // 4
            if save.identity.extra and save.identity.extra[-1][1] >= known:
                return None  # a lookup takes keys that begin in its tokens: a later save has them
            found = self.conn.lookup(bytes(stored.tokens), exact=save.lossy is None,
                                     from_token=known, identity=save.identity)  # none is loaded
            stored.request, stored.known = found.request, known
            stored.end = found.stored_tokens
            if self.conn.epoch() > epoch:  # a reset came between: these rows may be from before it
                self.release(stored)
                self.counts.add("dropped_saves", "reset")
                return None
            if save.lossy is not None and stored.end < save.lossy[1]:
                stored.is_bad = True  # rows of codes would be stored as if they had been computed
                self.counts.add("dropped_saves", "distrust")
                return None
        first = stored.end
        if first >= save.end:
            return None
        stored.computed_on = (abi.PROVENANCE_EXACT if save.lossy is None
                              else abi.PROVENANCE_LOSSY)
        place, end = self.rows.source(stored.blocks, first, save.end)
        if end < save.end and not stored.has_gap:
            stored.has_gap = True
            self.counts.add("tokens", "gap", save.end - end)
        return (stored, first, end, place) if end > first else None

    def is_good(self, stored):
        """Whether the request's stores go on. One that is under way holds up none behind it: the
        request may have ended, and its blocks gone to others, before that one has. One that lost
        its end for want of room is stored again from there. One that the plugin did not want
        (store.admit, store.write_budget) is no reason to begin anew: asked again, the same request
        would pass for a second one with its prompt."""
        while stored.tickets:
            end, kept = self.conn.kept(stored.tickets[0])
            if end == abi.PENDING:
                return True
            first = stored.firsts.pop(stored.tickets.pop(0))
            if end == abi.OK or (end == abi.E_DROPPED and self.refuses()):
                continue
            if end == abi.E_DROPPED:
                return False
            self.counts.add("dropped_saves", "room")
            stored.end = first + kept
            self.leave(stored)  # what was stored behind it hangs on what was lost
        return True

    def leave(self, stored):
        """Nobody looks how these stores end."""
        self.tickets += stored.tickets
        stored.tickets, stored.firsts = [], {}

    def refuses(self):
        """Whether the plugin ever refused what it had room for."""
        stats = self.conn.stats()
        return stats["unadmitted_chunks"] + stats["over_budget_chunks"] > 0

    def store(self, steps):
        params = (abi.StoreParams * len(steps))()
        memories = self.rows.outof([place for _, _, _, place in steps]).for_all()
        news = [bytes(stored.tokens[4 * stored.known:4 * end]) for stored, _, end, _ in steps]
        for param, (stored, first, end, _), memory, new in zip(params, steps, memories.array, news):
            param.struct_size = ctypes.sizeof(abi.StoreParams)
            param.request, param.computed_on = stored.request, stored.computed_on
            param.flags = abi.STORE_LATER  # it was computed by a step before
            param.first_token, param.token_count = first, end - first
            param.memory = ctypes.pointer(memory)
            param.tokens = ctypes.cast(ctypes.c_char_p(new), ctypes.c_void_p) if new else None
            param.tokens_count = len(new) // 4
        members = records_of(params, "layer", "tokens", "tokens_count")
        for layer in range(self.rows.caches.count):
            memories.aim(layer)
            members["layer"] = layer
            if layer > 0:  # the first one's call has taken them
                members["tokens"] = members["tokens_count"] = 0
            try:
                tickets = self.conn.store(params, want_tickets=True)
            except Error as error:
                if layer == 0 and len(steps) > 1:  # nothing was begun, perhaps for one of them
                    for step in steps:
                        self.store([step])
                    return
                logger.warning("spec_connector: %s", error)
                self.counts.add("dropped_saves", "error", len(steps))
                for stored, _, _, _ in steps:
                    self.release(stored)
                return
        for ticket, (stored, first, end, _) in zip(tickets, steps):
            self.counts.add("tokens", "stored", end - first)
            stored.tickets.append(ticket)
            stored.firsts[ticket] = first
            stored.end = end
            stored.known = max(stored.known, end)

    def release(self, stored):
        if stored.request:
            self.conn.release(stored.request)
        self.leave(stored)
        stored.request = stored.end = 0

    def forget(self, request_id):
        stored = self.stored.pop(request_id, None)
        if stored is not None:
            self.release(stored)

    def distrust(self, load):
        """Its rows never came: what is computed on them is not stored."""
        self.suspects.append((SUSPECT_STEPS, set(load.blocks)))
        self.stored.setdefault(load.request_id, Stored()).is_bad = True
