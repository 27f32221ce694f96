/* table: pieces and extents of the log by id, in memory, in slabs that never move.
 *
 *   root     [folder 0][folder 1] ...              1,024 folders of 1,024 slabs
 *   pieces   slab 0 [1 2 3 ... ] slab 1 [...]      48 bytes a piece; unused slabs are absent
 *   extents  slab 0 [1 2 3 ... ]                   parts in an arena of their own
 *
 *   piece states     NONE -> LIVE -> DROPPED -> QUARANTINED -> FREED
 *                        \-> DOOMED (replay) -^          pages are held up to here
 *
 * Invariants: a LIVE piece and its extent are constant, also after the drop. state is published
 * last, so readers need no lock. Ids are not reused. The table does not shrink and keeps no tokens.
 * Threads: one writer at a time (log lock); sc_store_table_piece from any.
 * Tests: tests/unit/store/test_store.c, test_log.c */
#ifndef SC_STORE_LOG_TABLE_H
#define SC_STORE_LOG_TABLE_H

#include "store/log/record.h"

#define SC_STORE_TABLE_SLAB   4096u                /* entries per slab */
#define SC_STORE_TABLE_FOLDER 1024u                /* slabs per folder, folders of the root */
#define SC_STORE_TABLE_IDS    UINT64_C(0xFFFFFFFF) /* ids are below: links have 32 bits */

enum sc_store_piece_state {
    SC_STORE_PIECE_NONE,
    SC_STORE_PIECE_DOOMED, /* replay: a later record drops it; holds pages until then */
    SC_STORE_PIECE_LIVE,
    SC_STORE_PIECE_REFUSED,     /* replay: not believed, no drop record so far */
    SC_STORE_PIECE_DROPPED,     /* void; pages are held while an extent refers to it */
    SC_STORE_PIECE_QUARANTINED, /* drop recorded; pages are held until the lease time ends */
    SC_STORE_PIECE_FREED        /* pages reused */
};

struct sc_store_piece_entry {
    uint8_t hash[SC_STORE_HASH_BYTES];
    uint64_t first_position;
    uint32_t extent;
    uint16_t extent_row, row_count; /* row_count 1 .. SC_STORE_ROWS_MAX */
    _Atomic uint16_t state;
    uint16_t skip; /* leading rows never read: another piece has them */
    uint32_t next; /* space lock: next in its bucket; log lock: next without a drop record */
    _Atomic uint64_t mark; /* the caller's number; relaxed */
};
_Static_assert(sizeof(struct sc_store_piece_entry) == 48, "a million pieces are 48 MB");
_Static_assert(SC_STORE_ROWS_MAX <= UINT16_MAX, "rows of an entry");

/* State of an extent's original rows once a permuted copy exists. */
enum sc_store_rows_state {
    SC_STORE_ROWS_HELD,
    SC_STORE_ROWS_VOID, /* void in the log; pages are held until the lease time ends */
    SC_STORE_ROWS_FREED /* pages reused, except those of derived sections */
};

struct sc_store_extent_entry {
    struct sc_store_part *parts; /* segment: an index of the open store */
    uint64_t row_offset, stride;
    uint64_t probe_offset, probe_tag_offset, tag_offset; /* as recorded */
    uint64_t copy;                                       /* as recorded */
    uint32_t probe_row_bytes;                            /* 0: no probe rows */
    uint32_t part_count, row_count;
    uint32_t space; /* namespace id */
    /* LIVE or DOOMED pieces; changed under the log lock, read by any thread. */
    _Atomic uint32_t live_count;
    struct sc_store_provenance provenance;
    struct sc_store_salt salt; /* constant */
    _Atomic bool is_erased; /* covered by an erasure (store/erase/); set once, read by any thread */
    /* Derived section with probe rows; set once by a writer (release). NULL: none. */
    struct sc_store_section *_Atomic derived;
    struct sc_store_section *_Atomic codes; /* the same with quantised rows */
    /* The newest permuted copy of all rows, and the one before, which nothing plans with. `parts`
     * stay valid until they are freed. Log lock, or replay; `permutation` is read by any thread. */
    struct sc_store_section *_Atomic permutation;
    struct sc_store_section *older_permutation;
    _Atomic bool is_quantising; /* quantised by inline_quant_task.c, else build_sections.c */
    /* Piece ids, in row order, perhaps with gaps; set by commit or replay, then constant. */
    uint64_t piece_first, piece_last; /* 0, 0: none */
    /* Guarded by the space lock. */
    uint32_t held_pages;        /* pages in the page map, from the trim on */
    uint32_t void_pages;        /* those of them that only QUARANTINED pieces hold */
    bool trimmed;               /* rows without a piece were given back */
    bool is_unplaced;           /* an heir's: its record takes its pages once more */
    bool leaves_ids;            /* as recorded; constant */
    _Atomic uint8_t rows_state; /* enum sc_store_rows_state; read by any thread */
    bool rows_wait;             /* in the list of extents whose void copies wait, by: */
    uint32_t rows_next;         /* next extent there; 0: none */
    uint64_t rows_due_ns;       /* executor's clock */
    uint64_t copied;            /* last checkpoint that copied its record */
    uint64_t copied_void;       /* last one that copied that its original rows are void */
    /* Writer, space lock: derived sections whose pages count in held_pages. */
    struct sc_store_section *_Atomic held_section;
    struct sc_store_section *_Atomic held_quant;
    struct sc_store_section *_Atomic held_permutation;
    struct sc_store_section *_Atomic held_replaced; /* the permuted copy before held_permutation */
    _Atomic bool replaced_is_void; /* void in the log; pages are held until the lease time ends */
    /* build_sections.c's: next extent with a permuted copy but without its record; 0: none. */
    uint32_t order_next;
    bool order_waits;        /* in that list */
    uint64_t order_requests; /* requests per row when its permutation was last judged; 0: never */
    uint64_t permutation_moment;
};

/* Sections of an extent that were built later, in pages of their own; constant. */
struct sc_store_section {
    struct sc_store_section *next; /* the table's list */
    uint64_t copy, stride, probe_offset, probe_tag_offset;
    struct sc_store_codec_shape codec_shape; /* bits_k 0: no quantised rows */
    uint16_t *slots; /* permuted copy's slots (row_permutation.h), behind the parts; or NULL */
    uint64_t tag_offset, row_offset; /* permuted copy's */
    uint64_t permuted_at_ns;         /* permuted copy's, of its record; 0: none so far */
    uint64_t reusable_ns; /* replaced permuted copy's: executor's clock; no load has it by then */
    uint32_t probe_row_bytes, part_count, part_room;
    struct sc_store_part parts[]; /* segment: an index of the open store */
};

/* The extent's member for this kind of derived section, */
static inline struct sc_store_section *_Atomic *
sc_store_section_place(struct sc_store_extent_entry *extent, const struct sc_store_section *derived)
{
    return derived->slots != NULL             ? &extent->permutation
           : derived->codec_shape.bits_k != 0 ? &extent->codes
                                              : &extent->derived;
}

/* and the one that counts its pages. */
static inline struct sc_store_section *_Atomic *
sc_store_section_held(struct sc_store_extent_entry *extent, const struct sc_store_section *derived)
{
    return derived->slots != NULL             ? &extent->held_permutation
           : derived->codec_shape.bits_k != 0 ? &extent->held_quant
                                              : &extent->held_section;
}

/* The layers of an extent: as stored, or permuted. */
struct sc_store_row_copy {
    const struct sc_store_part *parts;
    const struct sc_store_section *derived; /* NULL: as stored */
    uint64_t stride, probe_offset, probe_tag_offset, tag_offset, row_offset;
    uint32_t part_count;
};
static inline struct sc_store_row_copy
sc_store_row_copy_of(const struct sc_store_extent_entry *extent)
{
    const struct sc_store_section *derived =
        atomic_load_explicit(&extent->permutation, memory_order_acquire);
    if (derived != NULL)
        return (struct sc_store_row_copy){.parts = derived->parts,
                                          .derived = derived,
                                          .stride = derived->stride,
                                          .probe_offset = derived->probe_offset,
                                          .probe_tag_offset = derived->probe_tag_offset,
                                          .tag_offset = derived->tag_offset,
                                          .row_offset = derived->row_offset,
                                          .part_count = derived->part_count};
    return (struct sc_store_row_copy){.parts = extent->parts,
                                      .stride = extent->stride,
                                      .probe_offset = extent->probe_offset,
                                      .probe_tag_offset = extent->probe_tag_offset,
                                      .tag_offset = extent->tag_offset,
                                      .row_offset = extent->row_offset,
                                      .part_count = extent->part_count};
}

/* An extent's probe rows: before its rows, or in a derived section. */
struct sc_store_probes {
    const struct sc_store_part *parts;
    uint32_t part_count;
    uint32_t row_bytes; /* 0: none */
    uint64_t copy, stride, offset, tag_offset;
};
static inline struct sc_store_probes sc_store_probes_of(const struct sc_store_extent_entry *extent)
{
    const struct sc_store_section *derived =
        atomic_load_explicit(&extent->derived, memory_order_acquire);
    if (derived != NULL && derived->probe_row_bytes > extent->probe_row_bytes)
        return (struct sc_store_probes){.parts = derived->parts,
                                        .part_count = derived->part_count,
                                        .row_bytes = derived->probe_row_bytes,
                                        .copy = derived->copy,
                                        .stride = derived->stride,
                                        .offset = derived->probe_offset,
                                        .tag_offset = derived->probe_tag_offset};
    const struct sc_store_row_copy row_copy = sc_store_row_copy_of(extent);
    return (struct sc_store_probes){.parts = row_copy.parts,
                                    .part_count = row_copy.part_count,
                                    .row_bytes = extent->probe_row_bytes,
                                    .copy = extent->copy,
                                    .stride = row_copy.stride,
                                    .offset = row_copy.probe_offset,
                                    .tag_offset = row_copy.probe_tag_offset};
}

struct sc_store_table_folder;

struct sc_store_table {
    struct sc_alloc *alloc;
    struct sc_store_table_folder *_Atomic *pieces; /* [SC_STORE_TABLE_FOLDER] */
    struct sc_store_table_folder *_Atomic *extents;
    struct sc_store_parts_slab *parts; /* newest first */
    struct sc_store_section *derived_sections; /* all ever made */
    uint64_t piece_next, extent_next;          /* next ids */
};

bool sc_store_table_init(struct sc_store_table *table, struct sc_alloc *alloc);
void sc_store_table_done(struct sc_store_table *table);

/* Reserves memory for the next ids and for consecutive parts. false: no memory or no ids left. A
 * replay sets the next id past a gap first, so slabs inside the gap are not made. */
bool sc_store_table_reserve(struct sc_store_table *table, uint64_t pieces, uint64_t extents,
                            uint64_t parts);
/* Takes reserved parts. */
struct sc_store_part *sc_store_table_parts(struct sc_store_table *table, uint64_t count);

/* Allocates a derived section, freed with the table; the caller fills it. NULL: no memory. */
struct sc_store_section *sc_store_table_section(struct sc_store_table *table, uint32_t part_count,
                                                uint64_t slot_words);

/* The same for the extent's next permuted copy; reuses the memory of its replaced one if now_ns has
 * reached reusable_ns. */
struct sc_store_section *sc_store_table_permutation(struct sc_store_table *table,
                                                    struct sc_store_extent_entry *extent,
                                                    uint32_t part_count, uint64_t slot_words,
                                                    uint64_t now_ns);
/* Publishes it: loads planned from now on read it. */
void sc_store_table_permutation_set(struct sc_store_extent_entry *extent,
                                    struct sc_store_section *derived, uint64_t reusable_ns);

/* Returns the entry's memory; NULL: never reserved. Any thread. */
struct sc_store_piece_entry *sc_store_table_piece(const struct sc_store_table *table, uint64_t id);
struct sc_store_extent_entry *sc_store_table_extent(const struct sc_store_table *table,
                                                    uint64_t id);
/* Returns the first id >= `id` that has memory; UINT64_MAX: none. */
uint64_t sc_store_table_piece_from(const struct sc_store_table *table, uint64_t id);
uint64_t sc_store_table_extent_from(const struct sc_store_table *table, uint64_t id);
/* Adds a piece to the extent's range of ids. false: too far from its first. */
bool sc_store_table_join(struct sc_store_extent_entry *extent, uint64_t piece);
/* Returns the piece if LIVE, DROPPED or QUARANTINED, else NULL: a follower may read a dropped piece
 * until its lease ends, which the caller checks. Any thread. */
const struct sc_store_piece_entry *sc_store_table_leased(const struct sc_store_table *table,
                                                         uint64_t id);
/* Returns the piece if LIVE, else NULL. Any thread. */
const struct sc_store_piece_entry *sc_store_table_live(const struct sc_store_table *table,
                                                       uint64_t id);

#endif
