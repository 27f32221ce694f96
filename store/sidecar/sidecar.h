/* A sidecar in the making: what extents get beside their rows, probe rows or codes, an annex each
 * (docs/decisions/0008), made from the rows.
 *
 *   spans    [piece 7][gap][piece 9][piece 10] ...     the extent's rows, first to last; nobody has
 *                                                      those of a gap any more
 *   window   rows of one span, or of several: had back, from the cache or the disk, and verified
 *   layer    in memory, one at a time; put when it is whole
 *
 * Who makes them: build.c for extents that are stored (build.c walks the table), live.c for those
 * that are being stored. Both own a desk: memory for one window and one layer, in which one sidecar
 * after another is made.
 *
 * Holds: what is made comes from rows that agree with their tags; rows that no live piece has are
 * zeros, and nothing leads to them. A step waits for nothing.
 * Does not: choose extents, keep to a rate, commit.
 * Threads: its maker's task.
 * Tests: tests/unit/store/test_build.c, test_codes.c, test_live.c,
 * tests/fault/test_store_faults.c */
#ifndef SC_STORE_SIDECAR_H
#define SC_STORE_SIDECAR_H

#include "store/cache/readback.h"
#include "store/write/extent.h"

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

struct sc_store_format; /* probe rows, codes: sidecar.c */

struct sc_store_sidecar {
    struct sc_store_desk *desk;
    const struct sc_store_format *format;
    const struct sc_store_extent_entry *extent;
    struct sc_store_piece_plan *plans; /* [limits.pieces_max], the maker's memory */
    struct sc_store_span *spans;       /* likewise */
    uint64_t span_count, piece_count;

    struct sc_store_extent *annex; /* NULL: not begun */
    uint64_t layer_bytes;          /* of a layer */
    uint32_t layer;                /* the next, or the one that is made */
    bool is_open;                  /* it has begun */
    bool is_bad;                   /* rows cannot be had, or are not what they were */
    uint32_t waits;                /* for room, in a row */
    uint64_t span, row, rows;      /* where it is; rows of the window that is there, 0: none */
};

/* rows_max: of a window. false: no memory; the desk is empty. */
bool sc_store_desk_take(struct sc_store_desk *desk, uint64_t rows_max);
/* The memory goes back. The desk may be empty. */
void sc_store_desk_leave(struct sc_store_desk *desk);

/* Probe rows, or codes, of an extent without spans; desk, plans and spans are set. */
void sc_store_sidecar_set(struct sc_store_sidecar *sidecar,
                          const struct sc_store_extent_entry *extent, bool is_codes);
/* The next rows [first, end), if there are any; at most pieces_max spans. */
void sc_store_sidecar_span(struct sc_store_sidecar *sidecar, uint64_t first, uint64_t end,
                           const struct sc_store_piece_entry *piece);
/* Frames that a layer takes while it is put. */
uint64_t sc_store_sidecar_frames(const struct sc_store_sidecar *sidecar);
/* Rows come first: a sidecar leaves them an eighth of the frames more than they may have. */
uint64_t sc_store_sidecar_frames_most(const struct sc_store *store);

/* Its spans are set: begins its annex. `written` is called as on_written is (store.h): after
 * SIDECAR_OVER. */
spec_status sc_store_sidecar_begin(struct sc_store_sidecar *sidecar, sc_store_written *written,
                                   void *user, struct spec_error *reterr);

enum sc_store_sidecar_next {
    SC_STORE_SIDECAR_STEP,  /* it can go on */
    SC_STORE_SIDECAR_READ,  /* once the desk's task is posted: a window has come */
    SC_STORE_SIDECAR_ROOM,  /* a little later: there are no frames for the layer */
    SC_STORE_SIDECAR_LAYER, /* a layer was put, and there are more */
    SC_STORE_SIDECAR_OVER   /* the last was put, or it cannot be made: `written` says when and which
                             */
};
/* The layer is begun, or goes on: rows of one window, or the put. ret_bytes: what of a window was
 * read from the disk, once it was looked at. After OVER `written` may have been called. */
enum sc_store_sidecar_next sc_store_sidecar_step(struct sc_store_sidecar *sidecar,
                                                 uint64_t *ret_bytes);
/* Its layer will not be made: what of it was had is given up. Not while a window is read. */
void sc_store_sidecar_leave(struct sc_store_sidecar *sidecar);
/* Where the layer is: the first byte of rows that are still to come, from the extent's beginning;
 * and where its rows begin. */
uint64_t sc_store_sidecar_at(const struct sc_store_sidecar *sidecar);
uint64_t sc_store_sidecar_rows_at(const struct sc_store_sidecar *sidecar);

#endif
