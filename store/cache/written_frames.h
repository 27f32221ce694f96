/* What frames of the staging pool hold while others have no need of them: bytes of extents, by
 * name.
 *
 *   key      copy     of an extent or section: a number that is never used again (copy_number.c)
 *            at       bytes from its beginning, as if its layers were laid end to end:
 *                     layer * stride + the place in the layer
 *   entry    a frame, and which bytes [at, + bytes) of one copy are in it: several layers of a
 *            small model, or a part of one layer of a large one
 *
 *   take -> enter -> (filled, written) -> put -> kept -> get, unpin .. -> forget -> free
 *                                           \-> somebody takes the frame: a miss from then on
 *
 * The writer of bytes enters them, so that a task that makes something of them (codes) need not
 * read them back from the disk. A frame that is kept counts as free, and the pool gives it away
 * when it has no other (store/cache/staging_pool.h, keep). So the cache takes no memory from
 * anybody, and holds what happens to be there; nothing is held for longer.
 *
 * Holds: what get gives are the bytes that were put under that name, and nobody writes them until
 * unpin; a copy has each of its bytes in one entry at most.
 * Does not: know a file, a page or what bytes mean; read what it does not have; verify.
 * Threads: any. One lock (rank 55), the frames' inside it; no bytes are copied under it.
 * Tests: tests/unit/store/test_cache.c, test_inline_quant.c */
#ifndef SC_STORE_CACHE_WRITTEN_FRAMES_H
#define SC_STORE_CACHE_WRITTEN_FRAMES_H

#include "store/cache/staging_pool.h"

struct sc_store_cache;

/* blocks: entries are found by at / block_bytes, and none is longer. */
spec_status sc_store_cache_open(struct sc_alloc *alloc, struct sc_staging *frames,
                                uint64_t block_bytes, struct sc_store_cache **ret_cache,
                                struct spec_error *reterr);
/* No frame is out or pinned. Kept frames are the pool's already. Takes NULL. */
void sc_store_cache_close(struct sc_store_cache *cache);

/* A frame of the pool, to write into; its old bytes are forgotten. NULL: no more than `leaves` are
 * free. */
uint8_t *sc_store_cache_take(struct sc_store_cache *cache, uint64_t leaves);
/* The frame, which take gave, holds these bytes, or will before anybody asks for them. */
void sc_store_cache_enter(struct sc_store_cache *cache, uint8_t *frame, uint64_t copy, uint64_t at,
                          uint64_t bytes);
/* The frame, which is out, holds no more than so many of them. Nobody asked for the others yet. */
void sc_store_cache_shorten(struct sc_store_cache *cache, uint8_t *frame, uint64_t bytes);
/* The writer needs the frame no more. */
void sc_store_cache_put(struct sc_store_cache *cache, uint8_t *frame);

struct sc_store_cache_entry;
/* Bytes [at, + bytes) of the copy. All in one frame: their address there, and the frame is pinned.
 * In several: they are copied to dst, and ret_pin is NULL. NULL: some of them are not here. */
const uint8_t *sc_store_cache_get(struct sc_store_cache *cache, uint64_t copy, uint64_t at,
                                  uint64_t bytes, uint8_t *dst,
                                  struct sc_store_cache_entry **ret_pin);
/* For bytes that get did not find: copies to dst as many of the first and of the last as are here.
 * The caller reads those between, [ret_from, ret_to), from the disk. */
void sc_store_cache_edges(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t bytes,
                          uint8_t *dst, uint64_t *ret_from, uint64_t *ret_to);
/* Takes NULL. */
void sc_store_cache_unpin(struct sc_store_cache *cache, struct sc_store_cache_entry *pin);
/* Entries of the copy that lie wholly in [at, end) are not needed any more: their frames become
 * ordinary free ones, now or once they are put and unpinned. */
void sc_store_cache_forget(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t end);

#endif
