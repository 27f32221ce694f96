/* What the log said, resident: pieces and extents by id, ascending, in slabs that never move.
 *
 *   root     [folder 0][folder 1] ...              1,024 folders of 1,024 slabs
 *   pieces   slab 0 [1 2 3 ... ] slab 1 [...]      48 bytes a piece; a slab that no id of the log
 *   extents  slab 0 [1 2 3 ... ]                   needs is absent; parts in an arena of their own
 *
 *   a piece's life:  NONE -> LIVE -> DROPPED -> QUARANTINED -> FREED
 *                        \-> DOOMED (replay) -^          pages are held up to here
 *
 * Holds: a LIVE piece and its extent are constant, and stay as they are when it is dropped; state
 * is published last, so a reader needs no lock; ids are never used again.
 * Does not: shrink while open, keep tokens.
 * Threads: one writer at a time (the log lock); sc_store_table_piece from any.
 * Tests: tests/unit/store/test_store.c, test_log.c */
#ifndef SC_STORE_LOG_TABLE_H
#define SC_STORE_LOG_TABLE_H

#include "store/log/record.h"

#define SC_STORE_TABLE_SLAB   4096u                /* entries of a slab */
#define SC_STORE_TABLE_FOLDER 1024u                /* slabs of a folder, and folders of the root */
#define SC_STORE_TABLE_IDS    UINT64_C(0xFFFFFFFF) /* ids are below: they are linked by 32 bits */

enum sc_store_piece_state {
    SC_STORE_PIECE_NONE,
    SC_STORE_PIECE_DOOMED, /* replay: a later record drops it; holds space until then */
    SC_STORE_PIECE_LIVE,
    SC_STORE_PIECE_REFUSED, /* replay: not believed, and no later record drops it yet */
    SC_STORE_PIECE_DROPPED, /* void, or never believed; pages are held while an extent knows it */
    SC_STORE_PIECE_QUARANTINED, /* void in the log; pages are held until its time */
    SC_STORE_PIECE_FREED        /* its pages are others' */
};

struct sc_store_piece_entry {
    uint8_t hash[SC_STORE_HASH_BYTES];
    uint64_t first_position;
    uint32_t extent;
    uint16_t extent_row, row_count; /* row_count 1 .. SC_STORE_ROWS_MAX */
    _Atomic uint16_t state;
    uint16_t skip;         /* leading rows that are never read: another piece has them */
    uint32_t next;         /* space lock: the next piece in its quarantine bucket; 0: none. Log
                            * lock: of those whose drop record is not written */
    _Atomic uint64_t mark; /* the caller's; relaxed */
};
_Static_assert(sizeof(struct sc_store_piece_entry) == 48, "a million pieces are 48 MB");
_Static_assert(SC_STORE_ROWS_MAX <= UINT16_MAX, "rows of an entry");

/* What became of an extent's rows where they were stored first, while another copy of the rows
 * stays. */
enum sc_store_rows_state {
    SC_STORE_ROWS_HELD,
    SC_STORE_ROWS_VOID, /* void in the log; pages are held until their time */
    SC_STORE_ROWS_FREED /* its pages, but those of derived sections, are others' */
};

struct sc_store_extent_entry {
    struct sc_store_part *parts; /* segment: an index of the open store */
    uint64_t row_offset, stride;
    uint64_t probe_offset, probe_tag_offset, tag_offset; /* as its record says */
    uint64_t copy;                                       /* likewise */
    uint32_t probe_row_bytes;                            /* 0: no probe rows */
    uint32_t part_count, row_count;
    uint32_t space; /* id of its namespace */
    /* Pieces LIVE or DOOMED; changed under the log lock, read by any thread. */
    _Atomic uint32_t live_count;
    struct sc_store_provenance provenance;
    struct sc_store_salt salt; /* constant */
    _Atomic bool is_erased;    /* of what is being erased (store/erase/); set once, read by any */
    /* Its probe rows, when they are not its own: set once in a writer, released. NULL: none. */
    struct sc_store_section *_Atomic derived;
    struct sc_store_section *_Atomic codes; /* likewise its codes */
    /* Likewise its second copy of the rows: all of a layer, rows in another order. What stands in
     * `parts` is the same, until it goes. */
    struct sc_store_section *_Atomic permutation;
    _Atomic bool is_quantising; /* inline_quant_task.c makes them, or tells build_sections.c to */
    /* Ids of its pieces: set by commit or replay, then constant; in row order, maybe with gaps. */
    uint64_t piece_first, piece_last; /* 0, 0: none */
    /* Space lock. */
    uint32_t held_pages;        /* of the space map, from the trim on */
    uint32_t void_pages;        /* of them, those that only QUARANTINED pieces hold */
    bool trimmed;               /* rows that no piece covers were given back */
    bool leaves_ids;            /* as its record says; constant */
    _Atomic uint8_t rows_state; /* enum sc_store_rows_state; read by any thread */
    uint32_t rows_next;         /* the next extent whose rows wait; 0: none */
    uint64_t rows_due_ns;       /* executor's clock */
    uint64_t copied;            /* of the last checkpoint that copied its record */
    /* Writer, changed under the space lock: a derived section whose pages count among held_pages.
     * */
    struct sc_store_section *_Atomic held_section;
    struct sc_store_section *_Atomic held_quant;
    struct sc_store_section *_Atomic held_permutation;
    /* build_sections.c's: a copy of the rows that is found and has no record; the next such, 0:
     * none. */
    uint32_t order_next;
    uint64_t permutation_moment;
};

/* Sections of an extent that were built later and lie elsewhere; constant. */
struct sc_store_section {
    struct sc_store_section *next; /* the table's list */
    uint64_t copy, stride, probe_offset, probe_tag_offset;
    struct sc_store_codec_shape codec_shape; /* bits_k 0: no codes */
    uint16_t
        *slots; /* of a copy of the rows (row_permutation.h), behind the parts; NULL: it is none */
    uint64_t tag_offset, row_offset; /* of a copy of the rows */
    uint32_t probe_row_bytes, part_count;
    struct sc_store_part parts[]; /* segment: an index of the open store */
};

/* Where the extent says which derived section of this kind it has, */
static inline struct sc_store_section *_Atomic *
sc_store_section_place(struct sc_store_extent_entry *extent, const struct sc_store_section *derived)
{
    return derived->slots != NULL             ? &extent->permutation
           : derived->codec_shape.bits_k != 0 ? &extent->codes
                                              : &extent->derived;
}

/* and which has pages. */
static inline struct sc_store_section *_Atomic *
sc_store_section_held(struct sc_store_extent_entry *extent, const struct sc_store_section *derived)
{
    return derived->slots != NULL             ? &extent->held_permutation
           : derived->codec_shape.bits_k != 0 ? &extent->held_quant
                                              : &extent->held_section;
}

/* Where the layers of an extent are: as it was stored, or in another order. */
struct sc_store_row_copy {
    const struct sc_store_part *parts;
    const struct sc_store_section *derived; /* NULL: as it was stored */
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

/* Where an extent's probe rows are: in front of its rows, or in a derived section. */
struct sc_store_probes {
    const struct sc_store_part *parts;
    uint32_t part_count;
    uint32_t row_bytes; /* 0: it has none */
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
    struct sc_store_section *derived_sections; /* all that were ever made */
    uint64_t piece_next, extent_next;  /* ids that come next */
};

bool sc_store_table_init(struct sc_store_table *table, struct sc_alloc *alloc);
void sc_store_table_done(struct sc_store_table *table);

/* Makes room for so many ids from the next ones on and for so many parts in a row. false: no
 * memory, or ids are used up; nothing changed that matters. (A replay that finds a gap in the ids
 * sets the next one first: slabs of the gap are not made.) */
bool sc_store_table_reserve(struct sc_store_table *table, uint64_t pieces, uint64_t extents,
                            uint64_t parts);
/* Parts that reserve made room for. */
struct sc_store_part *sc_store_table_parts(struct sc_store_table *table, uint64_t count);

/* A derived section that stays until the table is done: its members and parts, and so many words of
 * slots, are the caller's to set. NULL: no memory. */
struct sc_store_section *sc_store_table_section(struct sc_store_table *table, uint32_t part_count,
                                                uint64_t slot_words);

/* The entry's memory; NULL: no such id was ever reserved. Any thread. */
struct sc_store_piece_entry *sc_store_table_piece(const struct sc_store_table *table, uint64_t id);
struct sc_store_extent_entry *sc_store_table_extent(const struct sc_store_table *table,
                                                    uint64_t id);
/* The first id from `id` on that has memory: as the two above say; UINT64_MAX: none. Ids may leave
 * gaps of any length. */
uint64_t sc_store_table_piece_from(const struct sc_store_table *table, uint64_t id);
uint64_t sc_store_table_extent_from(const struct sc_store_table *table, uint64_t id);
/* The extent has this piece too: ids ascend. false: so far from its first that it cannot be its. */
bool sc_store_table_join(struct sc_store_extent_entry *extent, uint64_t piece);
/* A follower's piece that its writer dropped may be read until the lease on it ends, which the
 * caller knows: the piece when it is LIVE or DROPPED, else NULL. Any thread. */
const struct sc_store_piece_entry *sc_store_table_leased(const struct sc_store_table *table,
                                                         uint64_t id);
/* The piece when it is LIVE, else NULL. Any thread. */
const struct sc_store_piece_entry *sc_store_table_live(const struct sc_store_table *table,
                                                       uint64_t id);

#endif
