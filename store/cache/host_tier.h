/* Host memory as a tier: slabs that were had once, for the next that want them; and a second one
 * above it, whose bytes stand for a device's (decision 0046).
 *
 *   key     copy     of the extent or section: a number that is never used again (copy_number.c)
 *           first    the slab's first row in it, or its first slot
 *           layer, kind
 *   slab    [tags of its rows | rows]      store/cache/host_tier_slab.h
 *   memory  [ a a a | b | . . | c c ]      host_bytes, in pages, first fit
 *
 *   begin -> (filled) -> publish -> get, unpin .. -> evicted, or forgotten -> free
 *                     \-> abandon
 *
 * Who has no room evicts what is worth least by now (base/policy.h) of what nobody has pinned,
 * neighbours together where it takes more than one (host_window.h). A heap of ranks has the least
 * of those at its root: what is pinned is not in it. Nor is what was brought for a load that is to
 * come, and is kept for it until it was used once, or until its time; but never more than KEPT of
 * the memory, so that others find room.
 *
 * Where there is an upper tier (upper_bytes), or slabs are ranked by score, a slab of rows is used
 * when its rows are handed out (seen), which says how many of it were wanted. By its rank then:
 *
 *   above       it stays
 *   in host     it goes up, if it is worth more than the least there, which goes down ..
 *   from disk   likewise, or into host memory, or stays on the disk alone
 *   down        .. if it is worth more than the least there, which goes; else it goes itself
 *
 * Nothing is copied or written for that: where a slab lies is a word of it, and the disk has all.
 * How often what has gone was used is remembered for a while (ghost_list.h).
 *
 * Holds: what get gives is what was published under that key, and stays until unpin; a slab lies in
 * one tier; no more than bytes is ever taken of host memory, nor than upper_bytes of what is above
 * it; a slab that cannot be had without evicting a pinned one is not begun.
 * What was forgotten before a slab was published, or since, is not found.
 * Does not: verify (whoever gets a slab does, as if it had read it), read, know ranges or pieces.
 * Threads: any. One lock (rank 57); no bytes are copied under it.
 * Tests: tests/unit/store/test_host_tier.c, test_host_tier_keep.c, test_host_tier_inside.c,
 * test_host_tier_dual.c */
#ifndef SC_STORE_CACHE_HOST_TIER_H
#define SC_STORE_CACHE_HOST_TIER_H

#include "base/alloc.h"
#include "base/assert.h"
#include "base/policy.h"
#include "base/status.h"

enum sc_host_tier_kind { /* what a slab has of a piece */
                         SC_STORE_HOST_ROWS,
                         SC_STORE_HOST_QUANT,  /* and the tags of its rows */
                         SC_STORE_HOST_PROBES, /* likewise */
                         SC_STORE_HOST_TAGS,
                         SC_STORE_HOST_K,    /* of a split layout, where K is read alone */
                         SC_STORE_HOST_V,    /* likewise */
                         SC_STORE_HOST_SLOTS /* rows of any pieces of an extent with a row
                                               * permutation; all of one are counted together */
};

struct sc_host_tier_key {
    uint64_t copy; /* of what has these bytes: the extent, or its derived section */
    uint32_t first, layer;
    uint32_t kind; /* enum sc_host_tier_kind */
};

/* One slab, pinned or being filled. */
struct sc_host_tier_memory_slab;
struct sc_host_tier;

struct sc_host_tier_params {
    struct sc_alloc *alloc;
    struct sc_poison *poison;
    uint64_t bytes;       /* of memory, whole pages of it */
    uint64_t upper_bytes; /* of the tier above it, likewise, and beside it */
    uint64_t slab_bytes;  /* of the most usual slab: from it follows how many slabs there may be */
    enum sc_policy policy, upper_policy;
    const uint64_t *windows; /* of layers, as struct sc_store_params has it */
};

/* Both 0: *ret_host is NULL, which every call below takes: there is nothing in it. */
spec_status sc_host_tier_open(const struct sc_host_tier_params *params,
                              struct sc_host_tier **ret_host, struct spec_error *reterr);
void sc_host_tier_close(struct sc_host_tier *host); /* nothing is pinned or being filled */

/* The slab that was published under the key, pinned, and used once more; NULL: there is none. */
struct sc_host_tier_memory_slab *sc_host_tier_get(struct sc_host_tier *host,
                                                  const struct sc_host_tier_key *key);
/* The same; ret_tier: SPEC_TIER_UPPER or SPEC_TIER_HOST, where it lies now. */
struct sc_host_tier_memory_slab *sc_host_tier_find(struct sc_host_tier *host,
                                                   const struct sc_host_tier_key *key,
                                                   uint32_t *ret_tier);
/* So many rows of a slab that is pinned are handed out. Where there is an upper tier, or ranks are
 * scores, that is its use, and where it lies follows from it; else get was. */
void sc_host_tier_touch(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab,
                        uint64_t rows);
/* Whether get would give one now. */
bool sc_host_tier_has(struct sc_host_tier *host, const struct sc_host_tier_key *key);
/* One that is pinned is pinned once more. */
void sc_host_tier_pin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
void sc_host_tier_unpin(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* No slab is there that get would give. Takes no lock, as the next (residency.h). */
bool sc_host_tier_is_empty(const struct sc_host_tier *host);
/* Of how many layers, key's or others, get would give the slab (of slots: how many slabs of that
 * copy); ret_risen, which may be NULL: of those, how many lie in the upper tier. Takes no lock. */
uint32_t sc_host_tier_layers(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                             uint32_t *ret_risen);
/* The same of those layers alone that have a window. */
uint32_t sc_host_tier_windowed(const struct sc_host_tier *host, const struct sc_host_tier_key *key,
                               uint32_t *ret_risen);
/* The same of layers [first, end) alone, with the lock. */
uint32_t sc_host_tier_layers_in(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                                uint32_t first, uint32_t end);
/* Halves of rows, K or V, that went up into the upper tier and that nobody wanted then. Any thread;
 * no lock. */
uint64_t sc_host_tier_promoted_halves(const struct sc_host_tier *host);

/* Memory for a slab that is not there yet, to be filled and then published or abandoned. cost_ns:
 * what it takes to have it again. NULL: it is there, or nothing worth less can go. */
struct sc_host_tier_memory_slab *sc_host_tier_begin(struct sc_host_tier *host,
                                                    const struct sc_host_tier_key *key,
                                                    uint32_t row_count, uint64_t bytes,
                                                    uint64_t cost_ns);
/* The same for one of which so many rows are wanted now. */
struct sc_host_tier_memory_slab *sc_host_tier_begin_used(struct sc_host_tier *host,
                                                         const struct sc_host_tier_key *key,
                                                         uint32_t row_count, uint64_t bytes,
                                                         uint64_t cost_ns, uint64_t rows_used);
/* The same for what was stored, and nobody has asked for yet: half a use. */
struct sc_host_tier_memory_slab *sc_host_tier_begin_stored(struct sc_host_tier *host,
                                                           const struct sc_host_tier_key *key,
                                                           uint32_t row_count, uint64_t bytes,
                                                           uint64_t cost_ns);
void sc_host_tier_publish(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
void sc_host_tier_abandon(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* It is found no more, and goes when nobody has it pinned. */
void sc_host_tier_forget(struct sc_host_tier *host, const struct sc_host_tier_key *key);
/* The same for one that the caller has pinned, and that failed: of slots, it is not begun again for
 * less than all of its rows, until another fails. */
void sc_host_tier_forget_pinned(struct sc_host_tier *host, struct sc_host_tier_memory_slab *slab);
/* The same for all layers of it; of slots, for all of that copy. */
void sc_host_tier_forget_layers(struct sc_host_tier *host, const struct sc_host_tier_key *key);

/* ---- Kept for a load that is to come --------------------------------------------------------- */

enum sc_host_tier_begun {
    SC_STORE_HOST_BEGUN,
    SC_STORE_HOST_THERE, /* it is there; or a keeper, or for one that keeps nothing anybody, fills
                          * it now */
    SC_STORE_HOST_FULL   /* as much as may be is kept or pinned */
};
/* As begin, for a slab that is kept from when it is begun: whatever nobody keeps goes for it. What
 * a load fills meanwhile is filled in vain: should it end early, the keeper has the slab. */
enum sc_host_tier_begun sc_host_tier_begin_kept(struct sc_host_tier *host,
                                                const struct sc_host_tier_key *key,
                                                uint32_t row_count, uint64_t bytes,
                                                uint64_t cost_ns, uint64_t keeper,
                                                struct sc_host_tier_memory_slab **ret_slab);
/* get would give one now, and it is kept on behalf of the keeper (not 0) until it was used or let
 * go. false: it is not there, or as much as may be is kept already. */
bool sc_host_tier_keep(struct sc_host_tier *host, const struct sc_host_tier_key *key,
                       uint64_t keeper);
/* What the keeper keeps is let go at that time, by whoever looks for room then; 0: now. What one
 * before it had kept until later stays until then. */
void sc_host_tier_let_go(struct sc_host_tier *host, uint64_t keeper, uint64_t until_ns);
/* Lets go of what was kept until now. */
void sc_host_tier_expire(struct sc_host_tier *host, uint64_t now_ns);

/* All of the memory, and how much: constant. */
uint8_t *sc_host_tier_memory(const struct sc_host_tier *host, uint64_t *ret_bytes);
/* Of a slab that is pinned or being filled. */
uint8_t *sc_host_tier_bytes(const struct sc_host_tier *host,
                            const struct sc_host_tier_memory_slab *slab);
uint32_t sc_host_tier_rows(const struct sc_host_tier_memory_slab *slab);

/* Any thread. */
struct sc_host_tier_stats {
    uint64_t bytes_max, bytes_used; /* pages that are taken */
    uint64_t bytes_kept;
    uint64_t slabs, hits, misses, evictions; /* slabs: of both tiers; hits: in host memory */
    uint64_t upper_bytes_max, upper_bytes_used, upper_hits;
    uint64_t risen, sunk; /* slabs that went into the upper tier, and from there to host memory */
};
void sc_host_tier_stats(struct sc_host_tier *host, struct sc_host_tier_stats *ret_stats);

#endif
