/* An extent that is being written: the object, which is one of a pool that open makes.
 *
 *   pool     extent_pool.c   take .. put back
 *   life     extent.c   begin [references] last one gone: on_written, discard
 *   rows     pack.c     put_layer -> windows -> writes, each one a reference
 *   records  extent_commit.c   what was written gets ids, and one append to the log tells of it
 *
 * It has `pending` references: one of its producer, one a write. on_written runs, on an executor
 * thread, when the last is gone: after put_layer of the last layer, after a put_layer that failed,
 * or after abort, and never before; so the producer's handle stays good.
 *
 * Threads: per member, below.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_WRITE_EXTENT_H
#define SC_STORE_WRITE_EXTENT_H

#include "store/internal.h"
#include "store/rows/where.h"

/* Windows that are queued by one call: half of what is in flight. */
#define SC_STORE_EXTENT_READY 4u
/* Windows that are open: two with tags, the current one, one that a row straddles into. */
#define SC_STORE_EXTENT_WINDOWS 4u

/* As params.on_written, but for one extent. */
typedef void sc_store_written(struct sc_store_extent *extent, spec_status status, void *user);

struct sc_store_window {
    struct sc_store_write *write;
    uint64_t start, end; /* bytes of the segment file */
};

/* What the queue of writes knows of an extent (write_queue.c). */
struct sc_store_queued {
    struct sc_store_write *head, *tail; /* its windows, in the order of the file */
    uint64_t count;
    struct sc_store_extent *next, *before; /* extents with a producer */
    bool is_packing;                       /* its windows are the producer's */
    bool is_cancelled, is_whole;           /* whole: all layers are packed */
};

struct sc_store_extent {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct sc_store_piece_plan *pieces; /* [pieces_max] */
    struct sc_store_part *parts;        /* [layer_count] */
    struct sc_store_part *record_parts; /* likewise, with file numbers: for commit */
    struct sc_host_tier_memory_slab *
        *kept;                          /* write_through.c; NULL: nothing that is written is kept */
    uint8_t *bounce;                    /* a row that straddles two windows */
    struct sc_store_extent *next;       /* free list: space lock */
    bool is_begun;                      /* it has places; space lock */
    _Atomic bool is_erased;             /* begun before its rows were erased: it is not committed */

    /* Set by begin, constant until it is free again. */
    uint32_t piece_count, part_count;
    uint64_t row_count, probe_row_bytes, log_bytes;
    uint64_t quant_stride; /* of rows: room that their codes' job gives back (inline_quant.h) */
    uint64_t copy;         /* of the extent or the derived section */
    struct sc_store_place place;
    struct sc_store_pass_share *share; /* of its pass; NULL: its writes are not queued */
    uint64_t order;                    /* of its pass: tokens before it */
    bool is_part;                      /* of a pass of several extents: others go first */
    bool is_firm;                      /* it is never cancelled for others */
    struct sc_store_place
        permutation_place; /* of a copy of the rows: where sections of its bytes begin */
    struct sc_store_provenance provenance;
    struct sc_store_salt salt;
    bool is_background; /* a merge or a derived section: no host is waited for */
    void *user;
    bool is_section; /* probe rows alone, codes, or a copy of the rows */
    bool is_raw;     /* of a derived section: bytes as they are; else probe rows */
    struct sc_store_codec_shape codec_shape; /* of a derived section; bits_k 0: no codes */
    const uint16_t
        *slots; /* of a copy of the rows (store/rows/row_permutation.h); the maker's memory */
    struct sc_store_inline_quant_job *live; /* of rows; NULL: nobody codes them now */
    sc_store_written *written;         /* NULL: params.on_written */
    struct sc_host_tier_memory_slab **slabs; /* kept, or a merge's [layer_count] */
    bool keeps;                        /* what is written goes to host memory, too */
    bool is_heir; /* of rows that are there: it keeps layers that the compactor says, as loads do */

    /* The producer's. */
    uint32_t layer_next;
    bool inherits; /* an heir's next layer */
    bool ended;    /* the producer's reference is gone */
    struct sc_store_window windows[SC_STORE_EXTENT_WINDOWS];
    uint32_t window_count;
    uint64_t wait_until_ns; /* for frames, in the layer that is packed */
    uint64_t windows_base;  /* of the segment file: windows are laid out from here on */
    struct sc_store_write *ready[SC_STORE_EXTENT_READY]; /* filled, to be queued together */
    uint32_t ready_count;

    /* Of pages that did not go to the device yet, taken from the write budget: the producer's, or
     * where writes are queued, guarded by the queue's lock. */
    uint64_t due_bytes;
    struct sc_store_queued queued; /* guarded by the queue's lock */

    /* Any thread. */
    _Atomic uint32_t pending;
    _Atomic int32_t status; /* the first failure */
    struct sc_task finish;
};

/* ---- The pools (extent_pool.c) -------------------------------------------------------------- */

spec_status sc_store_extents_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_extents_close(struct sc_store *store);
bool sc_store_extents_idle(const struct sc_store *store); /* none is begun */
/* An extent; NULL: all are taken, or the rest is left to beginnings of passes. */
struct sc_store_extent *sc_store_extent_take(struct sc_store *store, bool is_beginning);
/* The object returns to its pool; its places are not freed by this. */
void sc_store_extent_put(struct sc_store_extent *extent);
/* So many operations of so many bytes go to the device. */
void sc_store_write_counted(struct sc_store *store, enum sc_store_write_budget_kind kind,
                            uint64_t bytes, uint64_t ops);
/* A frame with the operation that will carry it; NULL: no more than `leaves` are free. */
struct sc_store_write *sc_store_write_take(struct sc_store *store, uint64_t leaves);
/* Those who wait look again. */
void sc_store_write_wake(struct sc_store *store);
void sc_store_write_put(struct sc_store *store, struct sc_store_write *write);

/* The first failure is what on_written is told. */
void sc_store_extent_fail(struct sc_store_extent *extent, spec_status status);
/* The last one posts extent->finish. */
void sc_store_extent_unref(struct sc_store_extent *extent);

/* ---- Writes (extent.c) ---------------------------------------------------------------------- */

/* As sc_store_write_take, after a wait until then. NULL: staging is still full, or the extent was
 * cancelled. */
struct sc_store_write *sc_store_write_await(struct sc_store_extent *extent, uint64_t leaves,
                                            uint64_t until_ns);
/* One write ended; op->status says how. */
void sc_store_write_done(struct sc_store_write *write);

/* ---- Annexes (extent.c, extent_commit.c) ----------------------------------------------------- */

/* What a derived section has in each layer. */
struct sc_store_section_form {
    uint64_t raw_bytes; /* 0: probe rows of params.probe_row_bytes */
    /* NULL: those bytes are codes; else all of a layer, rows in another order, laid out so. Kept by
     * pointer until the derived section is committed or discarded. */
    const uint16_t *slots;
    struct sc_store_place place;
};

/* Reserves a derived section of an extent, whose rows from the first to the last the pass' pieces
 * cover, in order (positions do not matter). Written as an extent is, by put_layer with PROBE rows
 * alone, or, raw, with K_CODES, whose rows are bytes. */
spec_status sc_store_section_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                   const struct sc_store_section_form *form,
                                   sc_store_written *written, struct sc_store_extent **ret_section,
                                   struct spec_error *reterr);
/* In the place of commit: the record, then selectors of the extent are found. DROPPED: the extent
 * has gone meanwhile. The object returns to its pool. Executor thread. A copy of the rows is found,
 * and read, but has no record yet: store/section/permute_extent.h. */
spec_status sc_store_section_commit(struct sc_store_extent *derived, uint64_t extent_id,
                                    struct spec_error *reterr);

#endif
