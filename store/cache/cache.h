/* What frames of the staging pool hold while others have no need of them: bytes of extents, by
 * name.
 *
 *   key      copy     of an extent or annex: a number that never comes again (copy.c)
 *            at       bytes from its beginning, if its layers are laid end to end: layer * stride +
 * .. entry    a frame and the bytes [at, + bytes) of one copy in it, which span several layers of a
 *            small model and a part of one of a large one
 *
 *   take -> enter -> (filled, written) -> put -> kept -> get, unpin .. -> forget -> free
 *                                           \-> somebody takes the frame: a miss from then on
 *
 * Bytes are entered by who writes them: those that go to the disk need not be read back by who
 * makes something of them. A frame that is kept is free, and given to somebody when the pool has no
 * other (store/cache/frames.h, keep): so what is cached is bounded by the staging memory and takes
 * none of it from anybody. No frame is admitted for longer.
 *
 * Holds: what get gives are the bytes that were put under that name, and nobody writes them until
 * unpin; a copy has each of its bytes in one entry at most.
 * Does not: know a file, a page or what bytes mean; read what it does not have; verify.
 * Threads: any. One lock (rank 55), the frames' inside it; no bytes are copied under it.
 * Tests: tests/unit/store/test_cache.c, test_live.c */
#ifndef SC_STORE_CACHE_H
#define SC_STORE_CACHE_H

#include "store/cache/frames.h"

struct sc_store_cache;

/* blocks: entries are found by at / block_bytes, and none is longer. */
spec_status sc_store_cache_open(struct sc_alloc *alloc, struct sc_frames *frames,
                                uint64_t block_bytes, struct sc_store_cache **ret_cache,
                                struct spec_error *reterr);
/* No frame is out: those of entries are put back. Takes NULL. */
void sc_store_cache_close(struct sc_store_cache *cache);

/* A frame of the pool, for who writes; NULL: it has none now. What it held is held no more. */
uint8_t *sc_store_cache_take(struct sc_store_cache *cache);
/* The frame, which take gave, holds these bytes, or will when they are asked for. */
void sc_store_cache_enter(struct sc_store_cache *cache, uint8_t *frame, uint64_t copy, uint64_t at,
                          uint64_t bytes);
/* Whoever wrote it is through with it. */
void sc_store_cache_put(struct sc_store_cache *cache, uint8_t *frame);

struct sc_store_cache_entry;
/* Bytes [at, + bytes) of the copy: where they lie in a frame, which is pinned; or, out of several,
 * in dst, and ret_pin is NULL. NULL: some of them are not here. */
const uint8_t *sc_store_cache_get(struct sc_store_cache *cache, uint64_t copy, uint64_t at,
                                  uint64_t bytes, uint8_t *dst,
                                  struct sc_store_cache_entry **ret_pin);
/* Of bytes that get does not give: as many of the first, and of the last, as are here, in dst.
 * Those between, [ret_from, ret_to) of them, are somewhere else. */
void sc_store_cache_edges(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t bytes,
                          uint8_t *dst, uint64_t *ret_from, uint64_t *ret_to);
/* Takes NULL. */
void sc_store_cache_unpin(struct sc_store_cache *cache, struct sc_store_cache_entry *pin);
/* Entries of the copy that lie in [at, end) as a whole are of no use to anybody: their frames are
 * as free as any, now or when they are put and unpinned. */
void sc_store_cache_forget(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t end);

#endif
