/* The parts of a selector: what is to be read of a layer, block by block, and where it goes.
 *
 *   selector_plan.c    ranges -> blocks: which bytes of which segments
 *   selector.c         blocks -> reads in flight -> frames, or areas; who waits, who is told
 *   selector_memory.c  frames -> the load's memory: verified, copied out. areas: verified
 *   selector_host.c    slabs of host memory -> the load's memory, and what was read into slabs
 *
 *   run      adjacent rows of one extent
 *   block    rows of a run: their probe rows, the tags of those, the rows' tags; read into one
 *            frame, or an area of the load's memory. The first two may lie in a derived section
 *   layer    [....pppp....][....tttt....][....TTTT....]   up to three reads, or one over small gaps
 *   memory   [probe rows][zeros to 64][row tags]    a run of the store's pool, for one load alone
 *            of a load of codes: [a struct sc_store_quant_range a range][area of each block]
 *            [K, V block of the ranges that come in parts][row tags]
 *
 * A load of codes has blocks of codes (store/rows/quant_blocks.h) in the place of probe rows, and
 * those of V in that of their tags; those of as many ranges as one read takes (quant_frame_bytes),
 * or, where the blocks of one range are more than that, a part of them after another. Rows' tags
 * are blocks of their own, before those: of a run's rows together, as they lie. Each is read into
 * an area of whole pages of its own and stays there: only what comes in parts, and row tags, is
 * copied to where it is looked for. Who copies the last of a range verifies it. A range without
 * good codes is marked so and fails nothing.
 *
 * What host memory has of a range is not read: a task copies it to its place and verifies it there.
 * A slab that is gone by then, or fails, is read after all, by frames, once all else is planned.
 *
 * Threads: a plan: the selector's lock. Memory: whoever holds it in the pool.
 * Tests: tests/unit/store/test_selector.c, test_quant.c, test_selector_host.c */
#ifndef SC_STORE_READ_SELECTOR_H
#define SC_STORE_READ_SELECTOR_H

#include "store/cache/host_tier_slab.h"
#include "store/load.h"
#include "store/rows/quant_blocks.h"

#define SC_STORE_SELECTOR_SECTIONS 3u

/* ---- Blocks (selector_plan.c) ---------------------------------------------------------------- */

struct sc_store_selector_section {
    uint64_t start, end; /* of the segment file */
    uint64_t at;         /* of start, in the frame or area */
    uint32_t segment;
};

/* All that a completion needs: the ranges may be gone by then. */
struct sc_store_selector_block {
    uint64_t extent_id, piece; /* of the first row */
    uint64_t copy;             /* of what has the probe rows */
    uint64_t extent_row, row_first, row_count;
    uint64_t tag_count;                     /* rows whose tags it has, from row_first on */
    uint64_t probe_row_bytes, wanted_bytes; /* of each probe row: as it lies there; of it */
    uint32_t layer, part_count;
    bool is_quant;
    uint64_t range_first, range_count; /* of codes, or of tags beside; 0, 0: it has none, or is of
                                          probe rows */
    uint64_t k_at, v_at;               /* where the sections begin, in a layer of codes */
    uint64_t area;                     /* of codes: where it is read to, behind the run's start */
    /* The first two are empty when nothing is wanted; of codes, K's and V's blocks. */
    struct sc_store_selector_section probes, probe_tags, tags;
    struct {
        struct sc_store_where where; /* pages of it, */
        uint64_t bytes, at;          /* so many, and where they go */
    } parts[SC_STORE_SELECTOR_SECTIONS];
};

/* Which blocks a load has: set by begin, then walked by next. */
struct sc_store_selector_plan {
    const struct sc_store *store;
    const struct sc_store_range *ranges;
    uint64_t range_count, wanted_bytes; /* of each probe row; 0: none */
    const uint8_t *run;      /* the load's memory: of codes, which ranges have them; NULL: as now */
    uint64_t area, area_end; /* of codes: the next block's area; where areas end */
    uint32_t layer;
    bool is_quant, k_alone;

    /* Bits of ranges; both NULL: host memory is not asked. */
    const uint64_t *host_slab; /* it has them: they are passed over */
    const uint64_t *missed; /* of those: it had not. They alone are planned when is_again */
    bool is_again;

    uint64_t range, range_row, row_next; /* the next row */
    uint64_t quant_at; /* bytes of the range's codes that earlier blocks have; its rows come last */
    const struct sc_store_extent_entry *extent;
    struct sc_store_probes probes;
    struct sc_store_row_copy row_copy; /* where the tags are */
    uint64_t row, left, step; /* of the run: its next row, rows that are left, a block's rows */
    uint64_t tagged;          /* of codes: rows from there on whose tags a block has */

    struct sc_store_selector_block block; /* the one that next made */
};

/* The next block that has something to read. PENDING: it is there; OK: there is none; CORRUPT: a
 * range was dropped since begin. ret_skipped: rows before it of which nothing is to be read. */
spec_status sc_store_selector_plan_next(struct sc_store_selector_plan *plan, uint64_t *ret_skipped);

/* Walks a copy of the plan, with that run, to its end. Returns where the last area ends, if the
 * first one is at `area`. */
uint64_t sc_store_selector_plan_areas(const struct sc_store_selector_plan *plan, const uint8_t *run,
                                      uint64_t area);

/* ---- Memory (selector_memory.c) -------------------------------------------------------------- */

static inline bool sc_store_selector_bit(const uint64_t *bits, uint64_t i)
{
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

struct sc_store_quant_range {  /* of a range, in memory */
    uint64_t piece, row_first; /* row_first: in the order of the ranges */
    uint32_t row_count;
    uint64_t k_at, v_at;                /* its blocks, behind the run's start; as long as whole
                                           ones are not there, 0 (of those in parts, or that
                                           host memory has, never) */
    const struct sc_store_section *codes; /* as they were when the load began; NULL: it has none */
    uint32_t row;                       /* of the coded rows, that the range begins with */
    _Atomic uint32_t left;              /* blocks of it, and of its tags, that have not come */
    bool is_good, has_v;
    bool is_in_host_tier; /* they came from host memory */
};

struct sc_store_selector_memory { /* of a load */
    uint8_t *run;     /* of the pool; the keys; NULL: the load is of no rows, or none is begun */
    uint64_t tags_at; /* bytes behind the run's start */
    uint64_t area, area_end; /* the same; of codes: where areas begin and end */

    /* Slabs that were begun for what is read; any other gets one if it is worth it. */
    struct sc_host_slab_fill *fills;
    uint64_t fill_count;
};

/* Memory of a load of probe rows. false: the pool has no such run. */
bool sc_store_selector_memory_take(struct sc_store *store, uint64_t rows, uint64_t probe_row_bytes,
                                   struct sc_store_selector_memory *ret_memory);
/* The same, of a load of codes that is planned so; the plan has no run yet. */
bool sc_store_selector_memory_take_quant(struct sc_store *store,
                                         const struct sc_store_selector_plan *plan, uint64_t rows,
                                         struct sc_store_selector_memory *ret_memory);
/* What codes the range has, that fit what may be read at once; NULL: none. */
const struct sc_store_section *sc_store_selector_quant_of(const struct sc_store *store,
                                                          const struct sc_store_range *range,
                                                          struct sc_store_blocks *ret_blocks);
/* The same of memory that is the caller's, not the pool's: where what lies, of codes as they are
 * now. Returns how many bytes it takes; the caller sets `run`, and then begins. */
uint64_t sc_store_selector_memory_lay(const struct sc_store *store,
                                      const struct sc_store_selector_plan *plan, uint64_t rows,
                                      struct sc_store_selector_memory *ret_memory);
/* false: there are more codes than when it was laid. */
bool sc_store_selector_memory_begin(const struct sc_store *store,
                                    const struct sc_store_selector_plan *plan,
                                    const struct sc_store_selector_memory *memory);
/* A block's reads have ended so: what they brought, from its frame, or its area. CORRUPT: a probe
 * row fails verification. The memory is held; no lock. */
spec_status sc_store_selector_memory_came(struct sc_store *store,
                                          const struct sc_store_selector_block *block,
                                          const uint8_t *frame, spec_status status,
                                          int32_t sys_errno,
                                          const struct sc_store_selector_memory *memory);

/* ---- Host memory (selector_host.c) ----------------------------------------------------------- */

/* What a load wants of a range that a slab may have. The range may be gone by then. */
struct sc_store_selector_take {
    struct sc_host_tier_key key;
    const struct sc_store_extent_entry *extent;
    const struct sc_store_piece_entry *piece;
    struct sc_store_quant_range
        *quantised;                /* of a load of codes, in the load's memory; else NULL */
    uint64_t row_first, row_count; /* in the order of the ranges */
    uint64_t row;                  /* of the slab's, that it begins with */
    uint64_t wanted_bytes, probe_row_bytes;
};

/* false: no slab may have the range. Load of codes: run NULL, codes are as they are now. */
bool sc_store_selector_take_set(const struct sc_store_selector_plan *plan, uint64_t range,
                                uint64_t row_first, struct sc_store_selector_take *ret_take);
bool sc_store_selector_take_has(const struct sc_store *store,
                                const struct sc_store_selector_take *take);
/* The slab that what is read of the range, all of its piece, becomes; false: it becomes none. The
 * plan has no run. */
bool sc_store_selector_wish(const struct sc_store_selector_plan *plan, uint64_t range,
                            struct sc_host_slab_wish *ret_wish);
/* Copies it to its place and verifies it. false: it is not there; what fails is found no more. The
 * memory is held; no lock. */
bool sc_store_selector_take(const struct sc_store *store, const struct sc_store_selector_take *take,
                            const struct sc_store_selector_memory *memory);
/* What was read and verified of whole pieces gets into slabs: of a block of probe rows, or of row
 * tags alone; and of a range of codes. The memory is held; no lock. */
void sc_store_selector_give_block(const struct sc_store *store,
                                  const struct sc_store_selector_block *block, const uint8_t *frame,
                                  const struct sc_store_selector_memory *memory);
void sc_store_selector_give_quant(const struct sc_store *store,
                                  const struct sc_store_quant_range *quantised,
                                  const struct sc_store_blocks *blocks, uint32_t layer,
                                  const struct sc_store_selector_memory *memory);

/* The piece from `id` on that has the row; NULL: none near. Pieces of adjacent rows have ids in a
 * row, as their commit gave them. */
const struct sc_store_piece_entry *
sc_store_selector_piece_with(const struct sc_store *store,
                             const struct sc_store_selector_block *block, uint64_t *id,
                             uint64_t row);

/* Bytes of the tags of so many rows. */
static inline uint64_t sc_store_selector_tags_bytes(const struct sc_store *store, uint64_t rows)
{
    return rows * store->shape.tags_per_row * 8;
}

/* Into how many reads the blocks of a range go. */
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

/* Of a piece whose state is such that its extent and rows are constant. */
static inline const struct sc_store_piece_entry *
sc_store_quant_piece(const struct sc_store *store, uint64_t id,
                     const struct sc_store_extent_entry **ret_extent)
{
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, id);
    *ret_extent = sc_store_table_extent(&store->table, piece->extent);
    return piece;
}

#endif
