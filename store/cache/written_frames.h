/* written_frames: finds extents' bytes in free staging frames that still hold them.
 *
 *   key      copy     number of an extent or section, never reused (copy_number.c)
 *            at       offset in it, as if its layers were contiguous: layer * stride
 *                     + offset in the layer
 *   entry    a frame, and the bytes [at, + bytes) of one copy in it: several layers of a
 *            small model, or a part of one layer of a large one
 *
 *   take -> enter -> (filled, written) -> put -> kept -> get, unpin .. -> forget -> free
 *                                           \-> the pool reuses the frame: a miss from then on
 *
 * The writer enters its bytes, so that a task that derives a section from them need not read them
 * from disk. A kept frame counts as free, and is reused if there is no other (sc_staging_keep). So
 * this cache takes no memory from anyone.
 *
 * Invariants: get returns the bytes that were entered under that key; nobody overwrites them until
 * unpin. A byte of a copy is in one entry at most. Nothing is verified.
 * Threads: any. One lock (rank 55), outside the staging pool's; no bytes are copied under it.
 * Tests: tests/unit/store/test_cache.c, test_inline_quant.c */
#ifndef SC_STORE_CACHE_WRITTEN_FRAMES_H
#define SC_STORE_CACHE_WRITTEN_FRAMES_H

#include "store/cache/staging_pool.h"

struct sc_store_cache;

/* Entries are found by at / block_bytes; none is longer than block_bytes. */
spec_status sc_store_cache_open(struct sc_alloc *alloc, struct sc_staging *frames,
                                uint64_t block_bytes, struct sc_store_cache **ret_cache,
                                struct spec_error *reterr);
/* No frame may be out or pinned. Kept frames are the pool's already. Accepts NULL. */
void sc_store_cache_close(struct sc_store_cache *cache);

/* Takes a frame and forgets its old bytes. Returns NULL if no more than `leaves` are free. */
uint8_t *sc_store_cache_take(struct sc_store_cache *cache, uint64_t leaves);
/* Enters bytes of a taken frame. They must be there before anyone asks for them. */
void sc_store_cache_enter(struct sc_store_cache *cache, uint8_t *frame, uint64_t copy, uint64_t at,
                          uint64_t bytes);
/* Limits the entry of a frame that is out. Nobody may have asked for the bytes beyond. */
void sc_store_cache_shorten(struct sc_store_cache *cache, uint8_t *frame, uint64_t bytes);
void sc_store_cache_put(struct sc_store_cache *cache, uint8_t *frame);

struct sc_store_cache_entry;
/* Returns bytes [at, + bytes) of the copy: in place and pinned if one frame has all of them, else
 * copied to dst with *ret_pin NULL. Returns NULL if some are missing. */
const uint8_t *sc_store_cache_get(struct sc_store_cache *cache, uint64_t copy, uint64_t at,
                                  uint64_t bytes, uint8_t *dst,
                                  struct sc_store_cache_entry **ret_pin);
/* Copies to dst the leading and trailing bytes that are here, after get found not all. The caller
 * reads the rest, [*ret_from, *ret_to), from disk. */
void sc_store_cache_edges(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t bytes,
                          uint8_t *dst, uint64_t *ret_from, uint64_t *ret_to);
/* Accepts NULL. */
void sc_store_cache_unpin(struct sc_store_cache *cache, struct sc_store_cache_entry *pin);
/* Forgets entries of the copy wholly in [at, end). Frees their frames, now or after put and
 * unpin. */
void sc_store_cache_forget(struct sc_store_cache *cache, uint64_t copy, uint64_t at, uint64_t end);

#endif
