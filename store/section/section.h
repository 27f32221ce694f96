/* A derived section in the making: what extents get beside their rows, probe rows, codes or the
 * rows themselves in another order, a derived section each (docs/decisions/0008), made from the
 * rows.
 *
 *   spans    [piece 7][gap][piece 9][piece 10] ...     the extent's rows, first to last; a gap's
 *                                                      belong to no live piece
 *   window   rows of one span, or of several, from the cache or read back, and verified
 *   layer    in memory, one at a time; put when it is whole
 *
 * They are made by build_sections.c for extents that are stored (it walks the table), by
 * inline_quant_task.c for those that are being stored. Each owns a desk: memory for one window and
 * one layer, in which it makes one derived section after another.
 *
 * Holds: what is made comes from rows that agree with their tags; a gap is zeros, which nobody
 * looks up. A step waits for nothing.
 * Does not: choose extents, keep to a rate, commit.
 * Threads: its maker's task.
 * Tests: tests/unit/store/test_build.c, test_quant.c, test_inline_quant.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_SECTION_SECTION_H
#define SC_STORE_SECTION_SECTION_H

#include "store/cache/readback.h"
#include "store/write/extent.h"

#define SC_STORE_BUILDER_ROOM_NS 1000000ull /* pause before a layer asks for frames again */

struct sc_store_span {
    uint64_t first, count;
    const struct sc_store_piece_entry *piece; /* NULL: a gap */
};

struct sc_store_desk {
    struct sc_store *store;
    struct sc_store_readback back; /* its task is the maker's */
    uint64_t rows_max;             /* of a window, but for a piece that has more */
    uint8_t *layer;
    uint64_t layer_bytes; /* of memory */
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
    struct sc_store_span *spans;       /* likewise */
    uint64_t span_count, piece_count;
    const uint16_t *slots;       /* of another order: store/rows/row_permutation.h */
    struct sc_store_place place; /* likewise, of a layer */

    struct sc_store_extent *derived; /* NULL: not begun */
    uint64_t layer_bytes;          /* of a layer */
    uint32_t layer;                /* the next, or the one that is made */
    bool is_open;                  /* it has begun */
    bool is_bad;                   /* rows could not be read, or failed their tags */
    uint32_t waits;                /* for room, in a row */
    uint64_t span, row, rows;      /* where it is; rows of the window that is there, 0: none */
};

/* rows_max: of a window. false: no memory; the desk is empty. */
bool sc_store_desk_take(struct sc_store_desk *desk, uint64_t rows_max);
/* The memory goes back. The desk may be empty. */
void sc_store_desk_leave(struct sc_store_desk *desk);

/* Of an extent without spans; desk, plans and spans are set. Of another order, slots are set before
 * begin. */
void sc_store_builder_set(struct sc_store_builder *builder,
                          const struct sc_store_extent_entry *extent,
                          enum sc_store_builder_kind kind);
/* Adds a span: rows [first, end), if there are any; at most pieces_max spans. piece NULL: a gap. */
void sc_store_builder_span(struct sc_store_builder *builder, uint64_t first, uint64_t end,
                           const struct sc_store_piece_entry *piece);
/* Frames that a layer takes while it is put. */
uint64_t sc_store_builder_frames(const struct sc_store_builder *builder);
/* Frames that may be in use after a layer was put: an eighth fewer than rows that are stored may
 * use, because rows come first. */
uint64_t sc_store_builder_frames_most(const struct sc_store *store);

/* Begins the derived section, once all spans are set. `written` is called as on_written is
 * (store.h), when the step that says OVER, or an abort, has ended it. */
spec_status sc_store_builder_begin(struct sc_store_builder *builder, sc_store_written *written,
                                   void *user, struct spec_error *reterr);

enum sc_store_builder_next {
    SC_STORE_BUILDER_STEP,  /* step again */
    SC_STORE_BUILDER_READ,  /* a window is being read: step when the desk's task is posted */
    SC_STORE_BUILDER_ROOM,  /* no frames for the layer: step after SC_STORE_BUILDER_ROOM_NS */
    SC_STORE_BUILDER_LAYER, /* a layer was put, and there are more */
    SC_STORE_BUILDER_OVER   /* the last layer was put, or it failed: `written` says which */
};
/* Begins the layer or goes on with it: rows of one window, or the put. ret_bytes: what of a window
 * that was just used had been read from the disk. After OVER `written` may have been called. */
enum sc_store_builder_next sc_store_builder_step(struct sc_store_builder *builder,
                                                 uint64_t *ret_bytes);
/* Gives up the layer that is made. Not while a window is read. */
void sc_store_builder_leave(struct sc_store_builder *builder);
/* Where the layer is: the first byte of rows that are still to come, from the extent's beginning;
 * and where its rows begin. */
uint64_t sc_store_builder_at(const struct sc_store_builder *builder);
uint64_t sc_store_builder_rows_at(const struct sc_store_builder *builder);

#endif
