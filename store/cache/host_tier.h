/* host_tier: caches slabs in host memory and in an upper tier, a model of device memory.
 *
 *   key     copy     number of the extent or section, never reused (copy_number.c)
 *           first    the slab's first row, or first slot
 *           layer, kind
 *   slab    [tags of its rows | rows]      store/cache/host_tier_slab.h
 *   memory  [ a a a | b | . . | c c ]      host_bytes, in pages, first fit
 *
 *   begin -> (filled) -> publish -> get, unpin .. -> evicted, or forgotten -> free
 *                     \-> abandon
 *
 * Eviction   Slabs of the lowest rank (base/policy.h) that are neither pinned nor kept; neighbours
 *            together if one slab is too short (host_window.h).
 * Keeping    A prefetch keeps its slabs until they are used once or expire; at most three quarters
 *            of the memory.
 * Tiers      With upper_bytes, or score ranks, a slab of rows is used when rows are delivered
 *            (touch). If its rank is higher than the lowest of the upper tier, it is promoted (from
 *            disk: inserted there). Displaced slabs are demoted if they outrank the lowest of host
 *            memory, else evicted. A move changes one member; no bytes are copied. The ghost list
 *            keeps the uses of evicted slabs (ghost_list.h). Decision 0046.
 *
 * Invariants: get returns what was published under that key, stable until unpin. A slab is in one
 * tier. Host memory never exceeds `bytes`, the upper tier never `upper_bytes`. A slab that was
 * forgotten, before or after its publication, is not found. Callers verify slabs as if read from
 * disk.
 * Threads: any. One lock (rank 57); no bytes are copied under it.
 * Tests: tests/unit/store/test_host_tier.c, test_host_tier_keep.c, test_host_tier_inside.c,
 * test_host_tier_dual.c */
#ifndef SC_STORE_CACHE_HOST_TIER_H
#define SC_STORE_CACHE_HOST_TIER_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/policy.h"
#include "base/status.h"

enum sc_host_tier_kind {
                         SC_STORE_HOST_ROWS,
                         SC_STORE_HOST_QUANT,  /* quantised rows and the tags of the rows */
                         SC_STORE_HOST_PROBES, /* probe keys and the tags of the rows */
                         SC_STORE_HOST_TAGS,
                         SC_STORE_HOST_K,
                         SC_STORE_HOST_V,
                         /* Slots of an extent with a row permutation: rows, K or V. The slabs of
                          * one copy and kind form one group. */
                         SC_STORE_HOST_SLOTS,
                         SC_STORE_HOST_SLOTS_K,
                         SC_STORE_HOST_SLOTS_V
};

static inline bool sc_host_tier_has_slots(uint32_t kind)
{
    return kind >= SC_STORE_HOST_SLOTS;
}

struct sc_host_tier_key {
    uint64_t copy; /* number of the extent or of its derived section */
    uint32_t first, layer;
    uint32_t kind;
};

/* A slab that is pinned or being filled. */
struct sc_host_tier_memory_slab;
struct sc_host_tier;

struct sc_host_tier_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint64_t bytes;       /* host memory; rounded down to pages */
    uint64_t upper_bytes; /* upper tier, in addition; rounded down to pages */
    uint64_t slab_bytes;  /* usual slab; bounds the number of slabs */
    enum sc_policy policy, upper_policy;
    const uint64_t *windows; /* window of each layer (struct sc_store_params) */
};

/* If both sizes are 0, *ret_host is NULL: an empty tier, accepted by every call below. */
spec_status sc_host_tier_open(const struct sc_host_tier_params *params,
                              struct sc_host_tier **ret_host, struct spec_error *reterr);
void sc_host_tier_close(struct sc_host_tier *host); /* asserts that no slab is in use */

/* Returns the published slab, pinned, and counts a use; NULL if there is none. */
struct sc_host_tier_memory_slab *sc_host_tier_get(struct sc_host_tier *host,
                                                  const struct sc_host_tier_key *key);
/* Returns the same; *ret_tier is SPEC_TIER_UPPER or SPEC_TIER_HOST. */
struct sc_host_tier_memory_slab *sc_host_tier_find(struct sc_host_tier *host,
                                                   const struct sc_host_tier_key *key,
                                                   uint32_t *ret_tier);
/* Notes that `rows` rows of a pinned slab are delivered. With an upper tier or score ranks this is
 * the slab's use and may promote it; else no effect. */
void sc_host_tier_touch(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab,
                        uint64_t rows);
bool sc_host_tier_has(struct sc_host_tier *host, const struct sc_host_tier_key *key);
void sc_host_tier_pin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
void sc_host_tier_unpin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* Returns true if nothing is published. Takes no lock (residency.h). */
bool sc_host_tier_is_empty(const struct sc_host_tier *host);
/* Returns the number of layers with the slab, ignoring key->layer; for SLOTS the slabs of that
 * copy. *ret_risen (may be NULL): those in the upper tier. Takes no lock. */
uint32_t sc_host_tier_layers(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                             uint32_t *ret_risen);
/* Counts layers with a window only. */
uint32_t sc_host_tier_windowed(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                               uint32_t *ret_risen);
/* Counts layers [first, end) only. Takes the lock. */
uint32_t sc_host_tier_layers_in(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                                uint32_t first, uint32_t end);
/* Returns the number of halves of rows (K or V) that were promoted unwanted. Takes no lock. */
uint64_t sc_host_tier_promoted_halves(const struct sc_host_tier *host);

/* Allocates a slab to fill and then publish or abandon. cost_ns: time to read it again. Returns
 * NULL if it exists already, or nothing of lower rank can be evicted. */
struct sc_host_tier_memory_slab *sc_host_tier_begin(struct sc_host_tier *host,
                                                    const struct sc_host_tier_key *key,
                                                    uint32_t row_count, uint64_t bytes,
                                                    uint64_t cost_ns);
/* Begins a slab of which rows_used rows are wanted now. */
struct sc_host_tier_memory_slab *sc_host_tier_begin_used(struct sc_host_tier *host,
                                                         const struct sc_host_tier_key *key,
                                                         uint32_t row_count, uint64_t bytes,
                                                         uint64_t cost_ns, uint64_t rows_used);
/* Begins a slab of stored rows that nobody has asked for: counts half a use. */
struct sc_host_tier_memory_slab *sc_host_tier_begin_stored(struct sc_host_tier *host,
                                                           const struct sc_host_tier_key *key,
                                                           uint32_t row_count, uint64_t bytes,
                                                           uint64_t cost_ns);
void sc_host_tier_publish(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
void sc_host_tier_abandon(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* Hides the slab; its memory is freed when it is unpinned. */
void sc_host_tier_forget(struct sc_host_tier *host, const struct sc_host_tier_key *key);
/* Hides a pinned slab whose rows failed verification. A SLOTS slab is then cached again only if all
 * its rows are wanted, until another one fails. */
void sc_host_tier_forget_pinned(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* Hides the slab in all layers; for SLOTS the whole copy. */
void sc_host_tier_forget_layers(struct sc_host_tier *host, const struct sc_host_tier_key *key);

/* ---- Kept for a coming load ------------------------------------------------------------------ */

enum sc_host_tier_begun {
    SC_STORE_HOST_BEGUN,
    SC_STORE_HOST_THERE, /* published, or being filled (if by a load, a keeper does not get this) */
    SC_STORE_HOST_FULL   /* too much is kept or pinned */
};
/* Begins a slab that is kept from now on. Any slab that is neither pinned nor kept may be evicted
 * for it. A load's unfinished slab of that key is forgotten, because the load may end early. */
enum sc_host_tier_begun sc_host_tier_begin_kept(struct sc_host_tier *host,
                                                const struct sc_host_tier_key *key,
                                                uint32_t row_count, uint64_t bytes,
                                                uint64_t cost_ns, uint64_t keeper,
                                                struct sc_host_tier_memory_slab **ret_slab);
/* Keeps a published slab for the keeper (not 0) until it is used or let go. Returns false on
 * failure. */
bool sc_host_tier_keep(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                       uint64_t keeper);
/* Sets the expiry of the keeper's slabs; 0: now. An earlier keeper's later expiry remains. */
void sc_host_tier_let_go(struct sc_host_tier *host, uint64_t keeper, uint64_t until_ns);
void sc_host_tier_expire(struct sc_host_tier *host, uint64_t now_ns);

/* Returns all memory of both tiers; constant after open. */
uint8_t *sc_host_tier_memory(const struct sc_host_tier *host, uint64_t *ret_bytes);
/* The slab is pinned or being filled. */
uint8_t *sc_host_tier_bytes(const struct sc_host_tier *host,
                            const struct sc_host_tier_memory_slab *slab);
uint32_t sc_host_tier_rows(const struct sc_host_tier_memory_slab *slab);

struct sc_host_tier_stats {
    uint64_t bytes_max, bytes_used;
    uint64_t bytes_kept;
    uint64_t slabs, hits, misses, evictions; /* slabs: of both tiers; hits: in host memory */
    uint64_t upper_bytes_max, upper_bytes_used, upper_hits;
    uint64_t risen, sunk; /* slabs promoted to the upper tier; slabs demoted from it */
};
void sc_host_tier_stats(struct sc_host_tier *host, struct sc_host_tier_stats *ret_stats);

#endif
