/* Segment files, and who gets which places in them (segment.c, alloc_extent.c).
 *
 * Threads: per call, below.
 * Tests: tests/unit/store/test_store.c, test_space.c */
#ifndef SC_STORE_SPACE_SEGMENT_H
#define SC_STORE_SPACE_SEGMENT_H

#include "store/io/io.h"
#include "store/log/record.h"
#include "store/space/page_map.h"

enum sc_store_segment_state {
    SC_STORE_SEGMENT_ABSENT,
    SC_STORE_SEGMENT_WANTED, /* the maker task will make its file */
    SC_STORE_SEGMENT_READY,
    SC_STORE_SEGMENT_FAILED /* its file could not be made; it goes with its last extent */
};

struct sc_store_extent;

struct sc_store_write { /* one frame on its way to disk */
    struct sc_io_op op;
    struct sc_store_extent *extent;
    struct sc_store_write *next; /* free list, the queue, or a wanted segment's waiting list */
    uint32_t segment;
    bool is_queued; /* it came to the device by the queue of writes */
};

struct sc_store_segment {
    uint32_t number, state; /* enum sc_store_segment_state */
    uint64_t bytes;
    struct sc_io_file *file;
    struct sc_store_write *waiting;
};

#define SC_STORE_WRITES_AT_ONCE 8u /* queued by one call */

/* Places on the disk. Guarded by its lock (rank 40), the store's space lock. */
struct sc_store_disk {
    pthread_mutex_t lock;
    struct sc_store_space space;
    struct sc_store_segment *segments; /* [segment_max] */
    uint64_t segment_max, bytes_max;   /* constant after open; bytes_max: disk_bytes */
    uint64_t segment_count;            /* indices in use are below */
    uint64_t segment_begin;            /* places are looked for from here on, and around */
    uint64_t segment_bytes;            /* of all segments, wanted ones too */
    uint64_t surplus_count;            /* open: segments that disk_bytes does not allow, */
    bool surplus_cuts;                 /* and the last of the others has an end that it does not */
    /* A segment found no space: so much there is in all, until then; none is made before. */
    uint64_t device_bytes, device_until_ns, device_retry_ns;
    uint64_t extent_bytes; /* taken pages, written or being written */
    uint64_t quant_due;    /* of a layer: the room for codes of rows that have places */
    uint64_t retry_ns;     /* no new extents before */
    uint32_t number_next;  /* of a new segment */
    bool maker_posted;
    struct sc_task maker;
};

struct sc_store;

/* Lists segment files and opens them; sizes the space map. */
spec_status sc_store_segments_open(struct sc_store *store, struct spec_error *reterr);
void sc_store_segments_close(struct sc_store *store);
/* After replay: unlinks what disk_bytes does not allow, and empty segments while more is used. */
void sc_store_segments_trim(struct sc_store *store);
/* Space lock held. Parts for all layers of that stride; false: there is no room for all, and
 * nothing was taken. */
bool sc_store_parts_take(struct sc_store *store, uint64_t stride, struct sc_store_part *parts,
                         uint32_t *ret_part_count);
/* Space lock held. Whether so many layers of `bytes` find room, none across two free runs. */
bool sc_store_layers_fit(struct sc_store *store, uint64_t bytes, uint64_t layers);
void sc_store_parts_free(struct sc_store *store, const struct sc_store_part *parts,
                         uint32_t part_count, uint64_t stride);
/* Space lock held. A new segment of up to segment_bytes; false: disk_bytes allows none that holds
 * `pages`, or no index is left. */
bool sc_store_segment_want(struct sc_store *store, uint64_t pages, uint64_t *ret_index);
/* Space lock held. A segment whose file could not be made is removed with its last page. */
void sc_store_segment_leave(struct sc_store *store, uint64_t index);
/* Segments that were wanted for an extent that found no place after all are made nevertheless: they
 * count, and the next extent takes them. true: the caller posts store->disk.maker, without the
 * lock. */
bool sc_store_maker_wake(struct sc_store *store);
/* Index of a file number, during replay; segment_max: no such file. */
uint64_t sc_store_segment_find(const struct sc_store *store, uint32_t number);
void sc_store_busy_end(struct sc_store *store);

/* After a device error: no new extents for SC_STORE_RETRY_NS, said once. Any thread, no lock. */
void sc_store_pause(struct sc_store *store, spec_status status, const char *what);

/* ---- Places of extents (alloc_extent.c) ------------------------------------------------------ */

/* Bytes of the parts' pages. */
uint64_t sc_store_parts_bytes(const struct sc_store_part *parts, uint32_t part_count,
                              uint64_t stride);
/* Takes places for all layers, ret_part_count parts, or none. The three take the space lock.
 *   quant_stride  of rows: bytes of a layer of their codes, which have to find room beside them;
 *                 it is kept from other rows until it is given back. 0: no codes follow */
spec_status sc_store_extent_alloc(struct sc_store *store, uint64_t stride, uint64_t log_bytes,
                                  uint64_t quant_stride, struct sc_store_part *parts,
                                  uint32_t *ret_part_count, struct spec_error *reterr);
void sc_store_quant_due_give(struct sc_store *store, uint64_t quant_stride);
void sc_store_extent_free(struct sc_store *store, const struct sc_store_part *parts,
                          uint32_t part_count, uint64_t stride, uint64_t log_bytes);
/* A write into the segment failed: the next places are looked for behind it first, so that a bad
 * spot does not meet every extent. No lock held. */
void sc_store_segment_avoid(struct sc_store *store, uint32_t index);

#endif
