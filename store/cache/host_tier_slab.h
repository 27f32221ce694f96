/* host_tier_slab: maps ranges of pieces to slabs of the host tier, and fills these with rows read.
 *
 *   slab    [tags of its rows | pad to 64 | rows, or K rows, then V rows]
 *           one piece, without its skipped rows; other kinds: store/read/selector_host.c
 *   half    [K rows], or [V rows]
 *           one piece of a split layout, when chosen rows are read from one half only
 *   chunk   [rows, or K rows, then V rows]
 *           chunk_tokens slots of an extent's permuted copy (row_permutation.h), from a multiple of
 *           chunk_tokens on; rows of any pieces
 *
 * Invariants: a slab has all readable rows of its piece, as they were verified; readers verify them
 * again. Slabs of a void piece are not found. A chunk's rows are verified when they are wanted, so
 * it may have unverified rows. A chunk is found while a row of its extent may be read.
 * Threads: any; a fill: its load's consumer.
 * Tests: tests/unit/store/test_host_tier_slab.c, test_host_tier_slab_slots.c, test_tiers_twin.c,
 * test_write_through.c */
#ifndef SC_STORE_CACHE_HOST_TIER_SLAB_H
#define SC_STORE_CACHE_HOST_TIER_SLAB_H

#include "store/cache/host_tier.h"
#include "store/load.h"
#include "store/log/table.h"
#include "store/log/where.h"

/* Position of a range's rows in a slab. */
struct sc_host_slab {
    struct sc_host_tier_memory_slab *slab; /* pinned; NULL: not found */
    uint32_t tier;                   /* SPEC_TIER_* at the time of the call */
    uint8_t *bytes;
    /* bytes to the range's first row. v_at: split layouts; equals row_at in a half. */
    uint64_t tag_at, row_at, v_at;
};

uint64_t sc_host_slab_bytes(const struct sc_store_shape *shape, uint64_t row_count);
/* Finds the wanted part (enum sc_store_part_wanted) of the range. The piece must be readable. The
 * caller unpins the slab, and calls sc_host_tier_touch when rows are delivered. */
struct sc_host_slab sc_host_slab_get(const struct sc_store *store, uint32_t layer,
                                     const struct sc_store_range *range, uint32_t wanted);
bool sc_host_slab_has(const struct sc_store *store, uint32_t layer,
                      const struct sc_store_range *range, uint32_t wanted);
/* A chunk of a permuted copy, in one layer: rows or, in a split layout, K or V alone. */
struct sc_host_chunk {
    struct sc_host_tier_key key;
    uint64_t first, end;
};
/* Returns the chunk of a slot. row_count: rows of the extent; copy: number of the permuted copy
 * that has the slot; wanted: SC_STORE_WANT_*. */
struct sc_host_chunk sc_host_chunk_of(const struct sc_store *store, uint32_t layer, uint64_t copy,
                                      uint64_t row_count, uint64_t slot, uint32_t wanted);
/* Finds the chunk's slab, or that of whole rows for a half; the caller unpins it. row_at and v_at
 * are of the chunk's first slot. */
struct sc_host_slab sc_host_chunk_get(const struct sc_store *store,
                                      const struct sc_host_chunk *chunk);
bool sc_host_chunk_has(const struct sc_store *store, const struct sc_host_chunk *chunk);
/* Forgets the range's slabs, whose rows failed their tags. */
void sc_host_slab_forget(const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *range);

/* Forgets the range's slabs with tags (quantised rows, probe keys, tags): chosen rows failed
 * them. */
void sc_host_slab_forget_tags(const struct sc_store *store, uint32_t layer,
                              const struct sc_store_range *range);

void sc_host_slab_piece_gone(const struct sc_store *store,
                             const struct sc_store_piece_entry *piece);

struct sc_host_slab_fill {
    struct sc_host_tier_memory_slab *slab; /* NULL: none */
    uint8_t *bytes;
    uint64_t row_count, piece;
    uint64_t rows_given; /* rows appended so far, for chunks and for what rows are selected by */
    struct sc_host_tier_key key;
};
/* A slab of a piece that is to be prefetched. */
struct sc_host_slab_wish {
    struct sc_host_tier_key key;
    uint64_t piece, bytes;
    uint32_t row_count, ops; /* ops: reads to get it again */
};
/* Describes the slab of a range that is all of its piece. Returns false if there can be none. */
bool sc_host_slab_wish(const struct sc_store *store, uint32_t layer,
                       const struct sc_store_range *range, struct sc_host_slab_wish *ret_wish);
/* Keeps the slab (sc_host_tier_keep). Returns false if it is not cached. */
bool sc_host_slab_keep(const struct sc_store *store, const struct sc_host_slab_wish *wish,
                       uint64_t keeper);
/* Begins a kept slab (sc_host_tier_begin_kept). */
enum sc_host_tier_begun sc_host_slab_begin_kept(const struct sc_store *store,
                                                struct sc_host_slab_fill *fill,
                                                const struct sc_host_slab_wish *wish,
                                                uint64_t keeper);

/* Begins a slab of any kind. ops: reads to get it again. Returns true if there is room. */
bool sc_host_slab_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                             const struct sc_host_tier_key *key, uint64_t piece, uint64_t row_count,
                             uint64_t bytes, uint32_t ops);
/* Returns a slab to fill with rows that are being written; NULL if there is no room. */
struct sc_host_tier_memory_slab *sc_host_slab_begin_stored(const struct sc_store *store,
                                                           const struct sc_host_tier_key *key,
                                                           uint64_t row_count);
/* Begins a slab if the range is all of its piece and there is room. rows_used: rows (halves)
 * wanted. */
void sc_host_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                        uint32_t layer, const struct sc_store_range *range, uint32_t wanted,
                        uint64_t rows_used);
/* Writes verified rows [row, + count) of the range and their tags into the slab. v: V rows of a
 * split layout. A half gets `rows` only, without tags. */
void sc_host_slab_put(const struct sc_store *store, const struct sc_host_slab_fill *fill,
                      uint64_t row, uint64_t count, const uint64_t *tags, const uint8_t *rows,
                      const uint8_t *v);
/* Begins a slab for the chunk if there is room. rows_used: rows wanted, of any piece. */
void sc_host_chunk_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                         const struct sc_host_chunk *chunk, uint64_t piece, uint64_t rows_used);
/* Appends `count` slots. v: V rows of a split layout. */
void sc_host_chunk_put(const struct sc_store *store, struct sc_host_slab_fill *fill, uint64_t count,
                       const uint8_t *rows, const uint8_t *v);
void sc_host_slab_end(const struct sc_store *store, struct sc_host_slab_fill *fill, bool is_whole);

#endif
