/* extent: an extent that is being written, from a pool made at open.
 *
 *   pool     extent_pool.c     take .. put
 *   life     extent.c          begin [references] last one ended: on_written, discard
 *   rows     pack.c            put_layer -> windows -> writes, one reference each
 *   records  extent_commit.c   assigns ids and appends the records to the log
 *
 * `pending` counts references: the producer's, and one per write. When the last ends, on_written
 * runs on an executor thread. It follows put_layer of the last layer, a put_layer that failed,
 * or abort, never before; so the producer's handle stays valid.
 *
 * Threads: per member, below.
 * Tests: tests/unit/store/test_store.c, tests/fault/test_store_faults.c */
#ifndef SC_STORE_WRITE_EXTENT_H
#define SC_STORE_WRITE_EXTENT_H

#include "store/internal.h"
#include "store/log/where.h"

/* Windows queued by one call: half of what is in flight. */
#define SC_STORE_EXTENT_READY 4u
/* Open windows: two with tags, the current one, one that a row straddles into. */
#define SC_STORE_EXTENT_WINDOWS 4u

/* params.on_written for one extent. */
typedef void sc_store_written(struct sc_store_extent *extent, spec_status status, void *user);

struct sc_store_window {
    struct sc_store_write *write;
    uint64_t start, end; /* bytes of the segment file */
};

/* State of an extent in the write queue (write_queue.c). */
struct sc_store_queued {
    struct sc_store_write *head, *tail;
    uint64_t count;
    struct sc_store_extent *next, *before; /* list of extents with a producer */
    bool is_packing;                       /* the producer is changing its windows */
    bool is_cancelled, is_whole;           /* whole: all layers are packed */
};

struct sc_store_extent {
    /* Set by open, constant after. */
    struct sc_store *store;
    struct sc_store_piece_plan *pieces;
    struct sc_store_part *parts;
    struct sc_store_part *record_parts; /* [layer_count] with file numbers, for commit */
    struct sc_host_tier_memory_slab *
        *kept;                          /* write_through.c; NULL: nothing is written through */
    uint8_t *bounce;                    /* a row that straddles two windows */
    struct sc_store_extent *next;       /* free list; guarded by the space lock */
    bool is_begun;                      /* its places are reserved; guarded by the space lock */
    _Atomic bool is_erased;             /* its rows were erased after begin: not committed */

    /* Set by begin, constant until it is free again. */
    uint32_t piece_count, part_count;
    uint64_t row_count, probe_row_bytes, log_bytes;
    uint64_t quant_stride; /* room for quantised rows; returned by their job */
    uint64_t copy;         /* number of the extent or derived section */
    struct sc_store_place place;
    struct sc_store_pass_share *share; /* its pass's; NULL: its writes are not queued */
    uint64_t order;                    /* tokens of its pass before it */
    bool is_part;                      /* several extents in its pass; single ones are written
                                        * first */
    bool is_firm;                      /* never cancelled for others */
    struct sc_store_place
        permutation_place; /* permuted copy: layout of its sections */
    struct sc_store_provenance provenance;
    struct sc_store_salt salt;
    bool is_background; /* compaction or derived section: no host waits for it */
    void *user;
    bool is_placed; /* counted in its segments' users */
    bool is_handed; /* guarded by the space lock: sc_store_extent_hand */
    bool is_section; /* a derived section: probe rows, quantised rows, or a permuted copy */
    bool is_raw;     /* derived section of raw bytes; else probe rows */
    struct sc_store_codec_shape codec_shape; /* bits_k 0: not quantised */
    const uint16_t
        *slots; /* permuted copy (store/rows/row_permutation.h); the maker's memory */
    struct sc_store_inline_quant_job *live; /* rows only; NULL: not quantised inline */
    sc_store_written *written;         /* NULL: params.on_written */
    struct sc_host_tier_memory_slab **slabs; /* kept, or a compaction's [layer_count] */
    bool keeps;                        /* writes go to host memory too */
    bool is_heir; /* compacted: keeps only the layers that the compactor marks (inherits) */

    /* Owned by the producer. */
    uint32_t layer_next;
    bool inherits; /* is_heir: keep the next layer */
    bool ended;    /* the producer's reference has ended */
    struct sc_store_window windows[SC_STORE_EXTENT_WINDOWS];
    uint32_t window_count;
    uint64_t wait_until_ns; /* limit for frames of the current layer */
    uint64_t windows_base;  /* file offset at which the windows' grid begins */
    struct sc_store_write *ready[SC_STORE_EXTENT_READY]; /* filled, to be queued together */
    uint32_t ready_count;

    /* Bytes charged to the write budget, not yet submitted. The producer's, or guarded by the
     * queue's lock. */
    uint64_t due_bytes;
    struct sc_store_queued queued; /* guarded by the queue's lock */

    /* Any thread. */
    _Atomic uint32_t pending;
    _Atomic int32_t status;
    struct sc_task finish;
};

/* ---- The pools (extent_pool.c) -------------------------------------------------------------- */

spec_status sc_store_extents_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_extents_close(struct sc_store *store);
bool sc_store_extents_idle(const struct sc_store *store);
/* Takes an extent; NULL if all are in use, or the rest is reserved for beginnings of passes. */
struct sc_store_extent *sc_store_extent_take(struct sc_store *store, bool is_beginning);
/* Nothing is written to the extent's segments any more, and no record of it is to come. Before its
 * places are freed, since a segment may go with its last one. */
void sc_store_extent_leave(struct sc_store_extent *extent);
/* Returns the object to its pool; its places stay reserved. */
void sc_store_extent_put(struct sc_store_extent *extent);
void sc_store_write_counted(struct sc_store *store, enum sc_store_write_budget_kind kind,
                            uint64_t bytes, uint64_t ops);
/* Takes a frame and its write operation. Returns NULL if no more than `leaves` frames are free. */
struct sc_store_write *sc_store_write_take(struct sc_store *store, uint64_t leaves);
/* Wakes threads that wait for a frame. */
void sc_store_write_wake(struct sc_store *store);
void sc_store_write_put(struct sc_store *store, struct sc_store_write *write);

/* Records a failure; on_written gets the first one. */
void sc_store_extent_fail(struct sc_store_extent *extent, spec_status status);
/* Ends a reference. The last one posts extent->finish. */
void sc_store_extent_unref(struct sc_store_extent *extent);

/* ---- Writes (extent.c) ---------------------------------------------------------------------- */

/* Takes a write, waiting until until_ns. NULL: staging is still full, or the extent was
 * cancelled. */
struct sc_store_write *sc_store_write_await(struct sc_store_extent *extent, uint64_t leaves,
                                            uint64_t until_ns);
/* Completes a write; op->status has its result. */
void sc_store_write_done(struct sc_store_write *write);
/* An append of this member was torn behind the record of the extent with that copy number, which is
 * read now like another's: its pages are the record's, and not freed with the object. Returns false
 * if it is not this process's. No lock held. */
bool sc_store_extent_hand(struct sc_store *store, uint64_t copy);
/* Takes the pages of all extents that are being written in a map that was cleared. Space lock
 * held. */
void sc_store_extents_retake(struct sc_store *store);

/* ---- Derived sections (extent.c, extent_commit.c) -------------------------------------------- */

/* Contents of each layer of a derived section. */
struct sc_store_section_form {
    uint64_t raw_bytes; /* 0: probe rows of params.probe_row_bytes */
    /* NULL: the bytes are quantised rows; else a permuted copy in this slot order and `place`.
     * Borrowed until the section is committed or discarded. */
    const uint16_t *slots;
    struct sc_store_place place;
};

/* Reserves a derived section of an extent; the pass's pieces cover its rows in order. It is written
 * by put_layer: PROBE rows only or, if raw, K_QUANT, whose rows are bytes. */
spec_status sc_store_section_begin(struct sc_store *store, const struct sc_store_pass *pass,
                                   const struct sc_store_section_form *form,
                                   sc_store_written *written, struct sc_store_extent **ret_section,
                                   struct spec_error *reterr);
/* Commits the section instead of sc_store_extent_commit: appends its record, then publishes it.
 * Returns DROPPED if the extent was evicted meanwhile. The object returns to its pool. Executor
 * thread. A permuted copy is published without a record: store/section/permute_extent.h. */
spec_status sc_store_section_commit(struct sc_store_extent *derived, uint64_t extent_id,
                                    struct spec_error *reterr);

#endif
