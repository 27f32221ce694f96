/* Slabs of the host tier as pieces of a store: what of a load's ranges is there, and how what was
 * read gets there.
 *
 *   slab    [tags of its rows | pad to 64 | rows, or K rows, then V rows]
 *           of one piece, without the rows that it skips; other kinds: store/read/selector_host.c
 *   half    [K rows], or [V rows]
 *           likewise, of a split layout: where picks read one of the two
 *   chunk   [rows, or K rows, then V rows]
 *           chunk_tokens slots of an extent's reordered rows (row_permutation.h), of
 *           whichever pieces, from a multiple of chunk_tokens on
 *
 * Holds: a slab has all rows of its piece that can be read, as they were read and verified; whoever
 * hands them out verifies them again. Of a piece that is void nothing is found. A chunk has
 * whatever bytes its slots have: rows that were wanted when it was read were verified then, others
 * are when they are wanted. It is found as long as a row of the extent may be.
 * Does not: choose what is evicted (host_tier.c), read.
 * Threads: any; a filler: its load's consumer.
 * Tests: tests/unit/store/test_host_tier_slab.c, test_host_tier_slab_slots.c, test_tiers_twin.c,
 * test_write_through.c */
#ifndef SC_STORE_CACHE_HOST_TIER_SLAB_H
#define SC_STORE_CACHE_HOST_TIER_SLAB_H

#include "store/cache/host_tier.h"
#include "store/load.h"
#include "store/log/table.h"
#include "store/rows/where.h"

/* Where a range's rows are in a slab. */
struct sc_host_slab {
    struct sc_host_tier_memory_slab *slab; /* pinned; NULL: it is not there */
    uint32_t tier;                   /* SPEC_TIER_*: where it lay */
    uint8_t *bytes;
    /* Of the range's first row, in bytes; v_at: of a split layout; of a half: the two are one. */
    uint64_t tag_at, row_at, v_at;
};

/* A slab that has no holes takes so many bytes. */
uint64_t sc_host_slab_bytes(const struct sc_store_shape *shape, uint64_t row_count);
/* What is wanted (enum sc_store_part_wanted) of the range, whose piece may be read. Its slab is the
 * caller's to unpin, and to call seen (sc_host_tier_touch) when rows of it are handed out. */
struct sc_host_slab sc_host_slab_get(const struct sc_store *store, uint32_t layer,
                                     const struct sc_store_range *range, uint32_t wanted);
bool sc_host_slab_has(const struct sc_store *store, uint32_t layer,
                      const struct sc_store_range *range, uint32_t wanted);
/* A chunk of a copy of the rows's slots in a layer. */
struct sc_host_chunk {
    struct sc_host_tier_key key;
    uint64_t first, end; /* slots */
};
/* That of a slot, of an extent of so many rows whose slots `where` has. */
struct sc_host_chunk sc_host_chunk_of(const struct sc_store *store, uint32_t layer,
                                      const struct sc_store_slab_where *where, uint64_t row_count,
                                      uint64_t slot);
/* Its slab, likewise the caller's to unpin; row_at and v_at: of the chunk's first slot. */
struct sc_host_slab sc_host_chunk_get(const struct sc_store *store,
                                      const struct sc_host_chunk *chunk);
bool sc_host_chunk_has(const struct sc_store *store, const struct sc_host_chunk *chunk);
/* It does not agree with its tags: it is found no more. */
void sc_host_slab_forget(const struct sc_store *store, uint32_t layer,
                         const struct sc_store_range *range);

/* Chosen rows do not agree with tags that may be of its slabs, which nothing has proved: these are
 * found no more. */
void sc_host_slab_forget_tags(const struct sc_store *store, uint32_t layer,
                              const struct sc_store_range *range);

/* The piece is void: none of its slabs is found any more. */
void sc_host_slab_piece_gone(const struct sc_store *store,
                             const struct sc_store_piece_entry *piece);

/* A slab that is filled. */
struct sc_host_slab_fill {
    struct sc_host_tier_memory_slab *slab; /* NULL: none is */
    uint8_t *bytes;
    uint64_t row_count, piece;
    uint64_t rows_given; /* of what comes in parts: what rows are chosen by, and chunks */
    struct sc_host_tier_key key;
};
/* A slab of a piece that is to come. */
struct sc_host_slab_wish {
    struct sc_host_tier_key key;
    uint64_t piece, bytes;
    uint32_t row_count, ops; /* ops: reads that would bring it again */
};
/* Of the range's rows, which are all of its piece. false: a slab has not all of them. */
bool sc_host_slab_wish(const struct sc_store *store, uint32_t layer,
                       const struct sc_store_range *range, struct sc_host_slab_wish *ret_wish);
/* Whether it is there, and kept from now on: sc_host_tier_keep. */
bool sc_host_slab_keep(const struct sc_store *store, const struct sc_host_slab_wish *wish,
                       uint64_t keeper);
/* It is begun, if there is room: sc_host_tier_begin_kept. */
enum sc_host_tier_begun sc_host_slab_begin_kept(const struct sc_store *store,
                                                struct sc_host_slab_fill *fill,
                                                const struct sc_host_slab_wish *wish,
                                                uint64_t keeper);

/* A slab of any kind, of a piece: so many bytes, which `ops` reads would bring again.
 * true: there is room for what is worth as much, and it is the caller's to end. */
bool sc_host_slab_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                             const struct sc_host_tier_key *key, uint64_t piece, uint64_t row_count,
                             uint64_t bytes, uint32_t ops);
/* Memory for rows that are written now, to be filled as a slab is; NULL: there is none for what
 * nobody has asked for yet. */
struct sc_host_tier_memory_slab *sc_host_slab_begin_stored(const struct sc_store *store,
                                                           const struct sc_host_tier_key *key,
                                                           uint64_t row_count);
/* The range begins, of which so many rows, or halves of rows, are wanted: a slab is begun, if the
 * range is all of its piece and there is room for what is worth as much. */
void sc_host_slab_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                        uint32_t layer, const struct sc_store_range *range, uint32_t wanted,
                        uint64_t rows_used);
/* Verified rows [row, + count) of the range, and their tags; v: V rows of a split layout. Of a half
 * that is begun: those rows, without tags. */
void sc_host_slab_put(const struct sc_store *store, const struct sc_host_slab_fill *fill,
                      uint64_t row, uint64_t count, const uint64_t *tags, const uint8_t *rows,
                      const uint8_t *v);
/* The chunk begins, of which so many rows are wanted, of this piece and others: a slab is begun, if
 * there is room for what is worth as much. */
void sc_host_chunk_begin(const struct sc_store *store, struct sc_host_slab_fill *fill,
                         const struct sc_host_chunk *chunk, uint64_t piece, uint64_t rows_used);
/* What so many more of its slots have, one behind the other; v: V rows of a split layout. */
void sc_host_chunk_put(const struct sc_store *store, struct sc_host_slab_fill *fill, uint64_t count,
                       const uint8_t *rows, const uint8_t *v);
/* All of it is there, or it is not. */
void sc_host_slab_end(const struct sc_store *store, struct sc_host_slab_fill *fill, bool is_whole);

#endif
