"""The connector in the scheduler's process: it promises what a peek found, and says what is
computed by now. A reader; it keeps no request of the plugin.

Holds: what goes wrong with one request, in its inputs or in the handling of it, ends that
request's use of the tier alone (refuse).
Threads: the engine's one.
"""
import array
import dataclasses

from vllm.logger import init_logger

from .. import abi, requests
from ..connector import NO_IDENTITY, Error, Identity
from ..requests import InputError
from . import isolation, step_time
from .messages import Load, Save, SpecMetadata
from .served import (Adapters, Refused, asked, counts_media, identity_of, is_layered,
                     may_be_lossy, open_connector)

logger = init_logger("vllm.spec_connector")  # below vllm, so that its level and format are taken


@dataclasses.dataclass
class Tracked:
    """A request that runs, as the scheduler knows it."""
    request: object
    identity: Identity
    blocks: list = dataclasses.field(default_factory=list)
    sent_tokens: int = 0
    sent_blocks: int = 0
    is_old: bool = False  # it holds rows from before a reset
    is_counted: bool = False
    is_refused: bool = False  # it is neither found nor kept any more
    lossy: tuple = None  # (first, end) of rows that came layered; those behind depend on them
    ids: array.array = dataclasses.field(default_factory=lambda: array.array("I"))

    def known(self):
        """Ids as uint32; those that are new since the last time are converted."""
        have = len(self.ids)
        if have < self.request.num_tokens:
            requests.add_tokens(self.ids, self.request.all_token_ids[have:])
        return self.ids


class Scheduler:
    def __init__(self, config, kv_config, counts):
        self.counts = counts
        self.block = kv_config.kv_cache_groups[0].kv_cache_spec.block_size
        self.conn = open_connector(config, kv_config, 0, abi.ROLE_READER)
        self.tracked, self.found, self.saves, self.ended = {}, {}, [], []
        self.adapters, self.counts_media = Adapters(), counts_media(config)
        self.manager, self.kv_config = None, kv_config  # vLLM's; None: no layered loads
        self.wants_layered = is_layered(config)

    def bind(self, manager):
        """vLLM's cache manager, from which layered loads are kept apart."""
        if not self.wants_layered:
            return
        from . import backend
        if not backend.is_known():
            raise Refused("layered: the CPU attention cannot be extended: this vLLM has another "
                          "version, or its CPU_ATTN was replaced")
        isolation.check(manager, self.kv_config)
        self.manager = manager

    def track(self, request):
        """None: its KV is neither found nor kept."""
        tracked = self.tracked.get(request.request_id)
        if tracked is None:
            is_unnamed = self.counts_media and request.mm_features
            who = None if is_unnamed else identity_of(request, self.adapters)
            tracked = None if who is None else Tracked(request, who)
            self.tracked[request.request_id] = tracked
        return tracked

    def is_current(self, tracked):
        """Whether its adapter's files are those that name it: a worker reads them when it runs."""
        lora = tracked.request.lora_request
        try:
            return lora is None or self.adapters.identity(lora) == tracked.identity.lora
        except (OSError, ValueError):
            return False

    def refuse(self, request, place, error):
        """Nothing of this request is loaded or stored from now on. Its blocks are still known, so
        that a reset finds them."""
        tracked = self.tracked.get(request.request_id)
        if tracked is None:
            tracked = self.tracked[request.request_id] = Tracked(request, NO_IDENTITY)
        tracked.is_refused = True
        self.found.pop(request.request_id, None)
        self.counts.refusals.add(request.request_id, place, error)
        if not tracked.is_counted:
            self.counts.add("requests", "refused")
        tracked.is_counted = True

    def match(self, request, computed):
        try:
            return self.look(request, computed)
        except Exception as error:  # pylint: disable=broad-except
            self.refuse(request, "match", error)
            return 0

    def look(self, request, computed):
        tracked = self.track(request)
        matched, outcome = self.ask(tracked, request, computed)
        if tracked is None or not tracked.is_counted:  # it may be asked again and again
            self.counts.add("requests", outcome)
            self.counts.add("tokens", "matched", matched)
        if tracked is not None:
            tracked.is_counted = True
        return matched

    def ask(self, tracked, request, computed):
        """How many tokens from `computed` on the store has, and a word for the counters."""
        if tracked is None or tracked.is_refused or not asked(request, "load"):
            return 0, "disabled"
        if request.skip_reading_prefix_cache or not self.is_current(tracked):
            return 0, "disabled"
        if tracked.lossy is not None and computed <= tracked.lossy[0]:
            tracked.lossy = None  # it was preempted, and holds nothing of them any more
        if request.num_tokens - 1 < computed + self.block:
            return 0, "short"
        layered = self.manager is not None and may_be_lossy(request)
        try:
            found = self.conn.lookup(tracked.known().tobytes(), peek=True, exact=not layered,
                                     from_token=computed, multiple_of=self.block,
                                     identity=tracked.identity)
        except Error as error:
            if error.status == abi.E_INVALID:
                raise InputError("plugin", str(error)) from error
            logger.warning("spec_connector: request %s: %s", request.request_id, error)
            return 0, "error"
        self.found[request.request_id] = (computed, found, layered)
        matched = max(0, found.matched_tokens - computed)
        return matched, "hit" if matched else "absent"

    def load_of(self, request, held, count):
        """`count` tokens of what the last match found come into blocks that the request holds.
        None: they do not come, and are computed."""
        try:
            return self.describe_load(request, held, count)
        except Exception as error:  # pylint: disable=broad-except
            self.refuse(request, "load_of", error)
            return None

    def describe_load(self, request, held, count):
        first, found, layered = self.found[request.request_id]
        if first + count != found.matched_tokens:
            raise ValueError(f"{count} tokens from {first} on, but {found.matched_tokens} matched")
        if layered:
            isolation.isolate(self.manager, request, held, first, self.block)
            lossy = self.tracked[request.request_id].lossy or (first, 0)
            self.tracked[request.request_id].lossy = (lossy[0], first + count)
        return Load(request.request_id, found.lease, first, first + count,
                    held[first // self.block:(first + count) // self.block], layered,
                    request.num_tokens)

    def save(self, tracked, computed):
        """What is computed, known and was not sent yet, by whole blocks."""
        if tracked.is_refused:
            return
        end = min(computed, tracked.request.num_tokens) // self.block * self.block
        if end <= tracked.sent_tokens or tracked.is_old or not asked(tracked.request, "store"):
            return
        if end // self.block > len(tracked.blocks) or not self.is_current(tracked):
            return
        ids = tracked.known()
        self.saves.append(Save(tracked.request.request_id, end,
                               ids[tracked.sent_tokens:end].tobytes(),
                               tracked.blocks[tracked.sent_blocks:end // self.block],
                               tracked.identity, tracked.lossy))
        tracked.sent_tokens, tracked.sent_blocks = end, end // self.block

    def try_save(self, tracked, computed):
        try:
            self.save(tracked, computed)
        except Exception as error:  # pylint: disable=broad-except
            self.refuse(tracked.request, "save", error)

    def restart(self, request_id):
        """Its blocks went to others: the worker forgets it."""
        tracked = self.tracked.get(request_id)
        if tracked is not None:
            tracked.blocks, tracked.sent_tokens, tracked.sent_blocks = [], 0, 0
            tracked.is_old = False  # it is computed anew
        self.ended.append(request_id)

    def build(self, output):
        for request_id in output.preempted_req_ids or ():
            self.restart(request_id)
        for new in output.scheduled_new_reqs:
            tracked = self.tracked.get(new.req_id)
            if tracked is not None:  # what it computes is there when its next step is scheduled
                tracked.blocks = list(new.block_ids[0])
        cached = output.scheduled_cached_reqs
        for i, request_id in enumerate(cached.req_ids):
            tracked, blocks = self.tracked.get(request_id), cached.new_block_ids[i]
            if tracked is None:
                continue
            if request_id in cached.resumed_req_ids:
                tracked.blocks = list(blocks[0])
                continue
            self.try_save(tracked, cached.num_computed_tokens[i])
            if blocks is not None:
                tracked.blocks.extend(blocks[0])
        epoch = self.conn.epoch() if self.saves else 0
        metadata = SpecMetadata([], self.saves, self.ended, epoch,
                                step=step_time.step_of(output, self.tracked, self.counts))
        self.saves, self.ended = [], []
        return metadata

    def finished(self, request):
        tracked = self.tracked.get(request.request_id)
        if tracked is not None and tracked.blocks:
            self.try_save(tracked, request.num_computed_tokens)
        self.tracked.pop(request.request_id, None)
        self.found.pop(request.request_id, None)
        self.ended.append(request.request_id)

    def unsave(self):
        """Rows of this step never came, and who ended in it may have computed on them. A rank whose
        own came does not know it: what such requests would store at last is not stored."""
        self.saves = []

    def reset(self, manager):
        """Of all; manager: vLLM's, which keeps its cache where requests run. What they hold and
        will compute on it is found by nobody from now on, and so not stored as new either."""
        self.conn.reset()
        self.saves = []
        for request_id, tracked in self.tracked.items():
            held = manager.get_block_ids(request_id)[0]
            if tracked is not None and held:
                tracked.is_old = True
                isolation.isolate(manager, tracked.request, held, 0, self.block)
        manager.evict_blocks(set(range(len(manager.block_pool.blocks))))
        return True

    def close(self):
        self.conn.close()
