/* section: builds a derived section of an extent from its rows: probe rows, quantised rows, or the
 * permuted rows themselves (docs/decisions/0008).
 *
 *   spans    [piece 7][gap][piece 9][piece 10] ...     the extent's rows, first to last; those of a
 *                                                      gap belong to no live piece
 *   window   rows of one span or several, from the cache or read back, and verified
 *   layer    in memory, one at a time; written when it is complete
 *
 * build_sections.c builds sections of stored extents, inline_quant_task.c of extents being stored.
 * Each owns a desk, memory for one window and one layer, and builds one section after another.
 *
 * Invariants: sections are made of rows that agree with their tags; gaps are zeros, which nobody
 * reads. A step never waits.
 * Threads: its maker's task.
 * Tests: tests/unit/store/test_build.c, test_quant.c, test_inline_quant.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_SECTION_SECTION_H
#define SC_STORE_SECTION_SECTION_H

#include "store/cache/readback.h"
#include "store/write/extent.h"

#define SC_STORE_BUILDER_ROOM_NS 1000000ull /* until a layer asks for frames again */

struct sc_store_span {
    uint64_t first, count;
    const struct sc_store_piece_entry *piece; /* NULL: a gap */
};

struct sc_store_desk {
    struct sc_store *store;
    struct sc_store_readback back; /* its task is the maker's */
    uint64_t rows_max;             /* of a window, unless a piece has more */
    uint8_t *layer;
    uint64_t layer_bytes; /* allocated */
};

enum sc_store_builder_kind {
    SC_STORE_BUILDER_PROBES,
    SC_STORE_BUILDER_QUANT,
    SC_STORE_BUILDER_PERMUTATION,
    SC_STORE_BUILDER_KINDS
};

struct sc_store_format; /* one a kind: section.c */

struct sc_store_builder {
    struct sc_store_desk *desk;
    const struct sc_store_format *format;
    const struct sc_store_extent_entry *extent;
    struct sc_store_piece_plan *plans; /* [limits.pieces_max], the maker's memory */
    struct sc_store_span *spans;       /* [limits.pieces_max] */
    uint64_t span_count, piece_count;
    const uint16_t *slots;       /* permutation (row_permutation.h) */
    struct sc_store_place place; /* of a permuted layer */

    struct sc_store_extent *derived; /* NULL: not begun */
    uint64_t layer_bytes;          /* of a layer */
    uint32_t layer;                /* next layer, or the current one */
    bool is_open;                  /* the layer has begun */
    bool is_bad;                   /* rows are unreadable or failed their tags */
    uint32_t waits;                /* for frames, in a row */
    uint64_t span, row, rows;      /* position; rows of the current window, 0: none */
};

/* Takes memory for windows of rows_max. Returns false without memory; the desk is empty then. */
bool sc_store_desk_take(struct sc_store_desk *desk, uint64_t rows_max);
/* Frees the desk's memory. The desk may be empty. */
void sc_store_desk_leave(struct sc_store_desk *desk);

/* Resets the builder to an extent without spans; desk, plans and spans are set. For a permutation,
 * set slots before begin. */
void sc_store_builder_set(struct sc_store_builder *builder,
                          const struct sc_store_extent_entry *extent,
                          enum sc_store_builder_kind kind);
/* Adds a span: rows [first, end), if there are any; at most pieces_max spans. piece NULL: a gap. */
void sc_store_builder_span(struct sc_store_builder *builder, uint64_t first, uint64_t end,
                           const struct sc_store_piece_entry *piece);
/* Returns the frames that putting a layer takes. */
uint64_t sc_store_builder_frames(const struct sc_store_builder *builder);
/* Returns the frames that may be in use after a layer was put: an eighth fewer than for stored
 * rows, which have priority. */
uint64_t sc_store_builder_frames_most(const struct sc_store *store);

/* Begins the derived section after all spans were added. `written` is called like on_written
 * (store.h) after OVER or an abort has ended it. */
spec_status sc_store_builder_begin(struct sc_store_builder *builder, sc_store_written *written,
                                   void *user, struct spec_error *reterr);

enum sc_store_builder_next {
    SC_STORE_BUILDER_STEP,  /* step again */
    SC_STORE_BUILDER_READ,  /* a window is being read: step when the desk's task is posted */
    SC_STORE_BUILDER_ROOM,  /* no frames for the layer: step after SC_STORE_BUILDER_ROOM_NS */
    SC_STORE_BUILDER_LAYER, /* a layer was put, and there are more */
    SC_STORE_BUILDER_OVER   /* the last layer was put, or it failed: `written` says which */
};
/* Continues the layer by the rows of one window, or puts it. ret_bytes: bytes of the used window
 * that were read from the disk. After OVER `written` may have been called. */
enum sc_store_builder_next sc_store_builder_step(struct sc_store_builder *builder,
                                                 uint64_t *ret_bytes);
/* Drops the layer being made. Not while a window is being read. */
void sc_store_builder_leave(struct sc_store_builder *builder);
/* Return offsets from the extent's beginning: of the next row, and of the layer's first row. */
uint64_t sc_store_builder_at(const struct sc_store_builder *builder);
uint64_t sc_store_builder_rows_at(const struct sc_store_builder *builder);

#endif
