"""What a request holds approximately is nobody else's: its blocks leave vLLM's prefix cache.

    before   A: h0 h1 h2 h3      vLLM puts blocks into its prefix cache when they are allocated,
                   ^ first       before they are loaded, and what is computed on them later as well
    after    A: h0 p1 p2 p3 ..   p = SHA-256(nonce, h): vLLM chains all later hashes of A from p3

The hash of a block is its name there, and each is made from the one before. So another request over
the same tokens finds h0 alone, whether the rows of A behind it were loaded or computed on those; A
itself works as before.

Holds: both halves are checked in a private KVCacheManager of the engine's own kind before the
layered mode is offered; a manager of which they do not hold is refused by a line.
Threads: the scheduler's. Tests: tests/test_isolation.py.
"""
import dataclasses
import hashlib
import secrets

from vllm import SamplingParams
from vllm.v1.core.kv_cache_utils import BlockHash, get_request_block_hasher
from vllm.v1.request import Request

from .served import Refused


def isolate(manager, request, held, first, block):
    """Blocks of the request from token `first` on; held: ids of all its blocks, of `block` tokens.
    """
    manager.evict_blocks(set(held[first // block:]))
    hashes, nonce = request.block_hashes, secrets.token_bytes(32)
    for i in range(first // manager.block_pool.hash_block_size, len(hashes)):
        hashes[i] = BlockHash(hashlib.sha256(nonce + hashes[i]).digest())


def _request(name, ids, block):
    """Hashed by vLLM's own function, from a first hash that is given: the engine's seed of all
    hashes is made after its connectors."""
    chain = get_request_block_hasher(block, lambda parts: hashlib.sha256(
        repr(parts).encode()).digest())

    def hasher(request):
        if not request.block_hashes:
            first = repr(request.all_token_ids[:block]).encode()
            request.block_hashes.append(BlockHash(hashlib.sha256(first).digest()))
        return chain(request)

    return Request(name, list(ids), SamplingParams(max_tokens=4 * block), None,
                   block_hasher=hasher)


def _load(manager, request, block):
    """The request begins as one does that has two blocks from a connector behind what it finds."""
    blocks, found, _ = manager.get_computed_blocks(request)
    new = request.num_tokens - found - 2 * block
    if manager.allocate_slots(request, new, found, blocks,
                              num_external_computed_tokens=2 * block) is None:
        raise Refused("isolation: a private cache manager has no room")
    request.num_computed_tokens = request.num_tokens
    return found


def _decode(manager, request, count):
    for token in range(count):
        request.append_output_token_ids(token)
        manager.allocate_slots(request, 1)
        request.num_computed_tokens += 1


def check(manager, kv_config):
    """Refused: what a request holds alone would be found by others, in this vLLM."""
    spec = kv_config.kv_cache_groups[0].kv_cache_spec
    if type(spec).__name__ != "FullAttentionSpec":
        raise Refused(f"isolation: a cache of {type(spec).__name__}")
    block = spec.block_size
    if not manager.enable_caching:
        return
    private = type(manager)(
        dataclasses.replace(kv_config, num_blocks=32, kv_cache_tensors=[]), 64 * block, block,
        manager.block_pool.hash_block_size, enable_caching=True)
    _compute(private, "first", list(range(block + 1)), block)  # its first block is everyone's
    ids = [*range(block), *range(1000, 1001 + 3 * block)]
    for name, is_alone in (("open", False), ("alone", True)):
        asked = [*ids[:block], *(token + 7 * is_alone for token in ids[block:])]
        request = _request(name, asked, block)
        begin = _load(private, request, block)
        if begin != block:
            raise Refused(f"isolation: {begin} tokens of an exact prefix are found, not {block}")
        if is_alone:
            isolate(private, request, private.get_block_ids(name)[0], begin, block)
        _decode(private, request, 2 * block)
        _expect(private, request.all_token_ids, block, block if is_alone else 6 * block)
        if is_alone:  # exact blocks in the place of its own do not lead to what it computed
            _compute(private, "exact", asked, block)
            _expect(private, request.all_token_ids, block, 4 * block)


def _compute(manager, name, ids, block):
    """A request without a connector."""
    request = _request(name, ids, block)
    blocks, found, _ = manager.get_computed_blocks(request)
    manager.allocate_slots(request, len(ids) - found, found, blocks)


def _expect(manager, ids, block, count):
    """How many tokens another request finds."""
    found = manager.get_computed_blocks(_request("another", ids, block))[1]
    if found != count:
        raise Refused(f"isolation: another request finds {found} tokens, not {count}")
