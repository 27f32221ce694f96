/* selector.h: the parts of a selector: which selector keys of a layer are read, and to where.
 *
 *   selector_plan.c    ranges -> blocks: which bytes of which segments
 *   selector.c         blocks -> reads in flight -> frames, or areas; waiting and notification
 *   selector_memory.c  frames -> the load's memory, verified and copied; areas: verified in place
 *   selector_host.c    slabs of host memory <-> the load's memory
 *
 *   run      adjacent rows of one extent
 *   block    rows of a run: their probe rows, the tags of those, the rows' tags; read into one
 *            frame, or an area of the load's memory. The first two may be in a derived section
 *   layer    [....pppp....][....tttt....][....TTTT....]   up to three reads, or one over small gaps
 *   memory   [probe rows][zeros to 64][row tags]    a run of the store's pool, one load's
 *            quantised: [a struct sc_store_quant_range per range][area of each block]
 *            [K, V block of the ranges read in parts][row tags]
 *
 * Quantised loads  Blocks have quantised blocks (store/rows/quant_blocks.h): K's in place of the
 *                  probe rows, V's in place of their tags. A block has as many ranges as one read
 *                  takes (quant_frame_bytes), or a part of one range. Row tags are blocks of their
 *                  own, before those. Each block is read into its own page-aligned area and stays
 *                  there; only parts and row tags are copied. The last part of a range verifies it.
 *                  A range without good quantised rows is marked so and fails nothing.
 * Host memory      Ranges in host memory are not read: a task copies them and verifies the copy. A
 *                  slab that was evicted, or fails, is read to frames after all else is planned.
 *
 * Threads: a plan: the selector's lock. Memory: threads that hold it in the pool.
 * Tests: tests/unit/store/test_selector.c, test_quant.c, test_selector_host.c */
#ifndef SC_STORE_READ_SELECTOR_H
#define SC_STORE_READ_SELECTOR_H

#include "store/cache/host_tier_slab.h"
#include "store/load.h"
#include "store/rows/quant_blocks.h"

#define SC_STORE_SELECTOR_SECTIONS 3u

/* ---- Blocks (selector_plan.c) ---------------------------------------------------------------- */

struct sc_store_selector_section {
    uint64_t start, end; /* bytes of the segment file */
    uint64_t at;         /* offset of start in the frame or area */
    uint32_t segment;
};

/* All that a completion needs: the ranges may be invalid by then. */
struct sc_store_selector_block {
    uint64_t extent_id, piece; /* the first row's */
    uint64_t copy;             /* copy that has the probe rows */
    uint64_t extent_row, row_first, row_count;
    uint64_t tag_count;                     /* rows whose tags it has, from row_first on */
    uint64_t probe_row_bytes, wanted_bytes; /* per probe row: stored; wanted */
    uint32_t layer, part_count;
    bool is_quant;
    uint64_t range_first, range_count; /* ranges of a quantised block or of its tags; 0, 0: none */
    uint64_t k_at, v_at;               /* offsets of the sections in a layer of quantised rows */
    uint64_t area;                     /* quantised: destination, in bytes from the run's start */
    /* The first two are empty if nothing is wanted; quantised: K's and V's blocks. */
    struct sc_store_selector_section probes, probe_tags, tags;
    struct {
        struct sc_store_where where; /* first page */
        uint64_t bytes, at;          /* bytes to read; offset in the destination */
    } parts[SC_STORE_SELECTOR_SECTIONS];
};

/* The blocks of a load: set by begin, then walked by next. */
struct sc_store_selector_plan {
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count, wanted_bytes; /* wanted_bytes: per probe row; 0: none */
    const uint8_t *run;      /* the load's memory: which ranges are quantised; NULL: as of now */
    uint64_t area, area_end; /* quantised: the next block's area; end of all areas */
    uint32_t layer;
    bool is_quant, k_alone;

    /* Bits of ranges; both NULL: host memory is not used. */
    const uint64_t *host_slab; /* in host memory: not planned */
    const uint64_t *missed; /* not found there after all: planned alone when is_again */
    bool is_again;

    uint64_t range, range_row, row_next; /* next row */
    uint64_t quant_at; /* block bytes of the range in earlier blocks */
    const struct sc_store_extent_entry *extent;
    struct sc_store_probes probes;
    struct sc_store_row_copy row_copy; /* has the tags */
    uint64_t row, left, step; /* the run's next row, rows left, rows per block */
    uint64_t tagged;          /* quantised: rows from here on whose tags a block has */

    struct sc_store_selector_block block; /* made by next */
};

/* Makes the next block that has something to read. PENDING: made; OK: there is none; CORRUPT: a
 * range was dropped since begin. ret_skipped: rows before it that need no read. */
spec_status sc_store_selector_plan_next(struct sc_store_selector_plan *plan, uint64_t *ret_skipped);

/* Walks a copy of the plan, with that run. Returns the end of the last area; the first is at
 * `area`. */
uint64_t sc_store_selector_plan_areas(const struct sc_store_selector_plan *plan, const uint8_t *run,
                                      uint64_t area);

/* ---- Memory (selector_memory.c) -------------------------------------------------------------- */

static inline bool sc_store_selector_bit(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

struct sc_store_quant_range {  /* one per range, in the load's memory */
    uint64_t piece, row_first; /* row_first: in the order of the ranges */
    uint32_t row_count;
    uint64_t k_at, v_at;                /* its blocks, from the run's start. 0 until whole blocks
                                         * were read; set at begin if in parts or in host memory */
    const struct sc_store_section *codes; /* found when the load began; NULL: none */
    uint32_t row;                       /* row of the quantised rows with which the range begins */
    _Atomic uint32_t left;              /* blocks of it, and of its tags, not yet read */
    bool is_good, has_v;
    bool is_in_host_tier; /* read from host memory */
};

struct sc_store_selector_memory { /* memory of a load */
    uint8_t *run;     /* the keys, in the pool; NULL: no rows, or no load */
    uint64_t tags_at; /* bytes from the run's start */
    uint64_t area, area_end; /* bytes from the run's start; quantised: begin and end of the areas */

    /* Slabs begun for what is read; others are begun if their rank suffices. */
    struct sc_host_slab_fill *fills;
    uint64_t fill_count;
};

/* Takes memory for a load of probe rows. Returns false if the pool has no such run. */
bool sc_store_selector_memory_take(struct sc_store *store, uint64_t rows, uint64_t probe_row_bytes,
                                   struct sc_store_selector_memory *ret_memory);
/* Takes memory for a quantised load of that plan, which has no run yet. */
bool sc_store_selector_memory_take_quant(struct sc_store *store,
                                         const struct sc_store_selector_plan *plan, uint64_t rows,
                                         struct sc_store_selector_memory *ret_memory);
/* Returns the range's quantised rows and its blocks; NULL if it has none. */
const struct sc_store_section *sc_store_selector_quant_of(const struct sc_store *store,
                                                          const struct sc_store_range *range,
                                                          struct sc_store_blocks *ret_blocks);
/* Lays out the caller's memory with the quantised rows of now. Returns the bytes needed. The caller
 * sets `run`, then calls begin. */
uint64_t sc_store_selector_memory_lay(const struct sc_store *store,
                                      const struct sc_store_selector_plan *plan, uint64_t rows,
                                      struct sc_store_selector_memory *ret_memory);
/* Returns false if there are more quantised rows than at the layout. */
bool sc_store_selector_memory_begin(const struct sc_store *store,
                                    const struct sc_store_selector_plan *plan,
                                    const struct sc_store_selector_memory *memory);
/* Takes what a block's reads brought, from its frame or area. Returns CORRUPT if a probe row fails
 * verification. The caller holds the memory; no lock. */
spec_status sc_store_selector_memory_came(struct sc_store *store,
                                          const struct sc_store_selector_block *block,
                                          const uint8_t *frame, spec_status status,
                                          int32_t sys_errno,
                                          const struct sc_store_selector_memory *memory);

/* ---- Host memory (selector_host.c) ----------------------------------------------------------- */

/* A load's wants for a range that may be in a slab. The range may be invalid by then. */
struct sc_store_selector_take {
    struct sc_host_tier_key key;
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *piece;
    struct sc_store_quant_range
        *quantised;                /* in the load's memory, if quantised; else NULL */
    uint64_t row_first, row_count; /* in the order of the ranges */
    uint64_t row;                  /* first row, in the slab */
    uint64_t wanted_bytes, probe_row_bytes;
};

/* Returns false if no slab can have the range. With run NULL, quantised rows are those of now. */
bool sc_store_selector_take_set(const struct sc_store_selector_plan *plan, uint64_t range,
                                uint64_t row_first, struct sc_store_selector_take *ret_take);
bool sc_store_selector_take_has(const struct sc_store *store,
                                const struct sc_store_selector_take *take);
/* Describes the slab of a range that is all of its piece; false if there is none. The plan has no
 * run. */
bool sc_store_selector_wish(const struct sc_store_selector_plan *plan, uint64_t range,
                            struct sc_host_slab_wish *ret_wish);
/* Copies the slab's part to its place and verifies it. Returns false if it is not there or fails; a
 * failing slab is forgotten. The caller holds the memory; no lock. */
bool sc_store_selector_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                            const struct sc_store_selector_memory *memory);
/* Copy verified whole pieces to slabs. The caller holds the memory; no lock. */
void sc_store_selector_give_block(const struct sc_store *store,
                                  const struct sc_store_selector_block *block, const uint8_t *frame,
                                  const struct sc_store_selector_memory *memory);
void sc_store_selector_give_quant(const struct sc_store *store,
                                  const struct sc_store_quant_range *quantised,
                                  const struct sc_store_blocks *blocks, uint32_t layer,
                                  const struct sc_store_selector_memory *memory);

/* Returns the piece with the row, searching from `id` on; NULL if none is near. Pieces of adjacent
 * rows have consecutive ids, given by their commit. */
const struct sc_store_piece_entry *
sc_store_selector_piece_with(const struct sc_store *store,
                             const struct sc_store_selector_block *block, uint64_t *id,
                             uint64_t row);

static inline uint64_t sc_store_selector_tags_bytes(const struct sc_store *store, uint64_t rows)
{
    return rows * store->shape.tags_per_row * 8;
}

static inline uint64_t sc_store_selector_reads(const struct sc_store *store,
                                               const struct sc_store_blocks *blocks, bool k_alone)
{
    uint64_t bite = sc_store_quant_frame_bytes(store);
    return (blocks->k_bytes + (k_alone ? 0 : blocks->v_bytes) + bite - 1) / bite;
}

static inline const struct sc_store_quant_range *sc_store_quant_range_of(const uint8_t *run,
                                                                         uint64_t range)
{
    return &((const struct sc_store_quant_range *)(const void *)run)[range];
}

/* The piece must be in a state in which its extent and rows are constant. */
static inline const struct sc_store_piece_entry *
sc_store_quant_piece(const struct sc_store *store, uint64_t id,
                     const struct sc_store_extent_entry **ret_extent)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    *ret_extent = sc_store_table_extent(&store->table, piece->extent);
    return piece;
}

#endif
