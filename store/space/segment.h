/* segment: segment files and the allocation of places in them (segment.c, alloc_extent.c).
 * Tests: tests/unit/store/test_store.c, test_space.c */
#ifndef SC_STORE_SPACE_SEGMENT_H
#define SC_STORE_SPACE_SEGMENT_H

#include "store/io/io.h"
#include "store/log/record.h"
#include "store/space/page_map.h"

enum sc_store_segment_state {
    SC_STORE_SEGMENT_ABSENT,
    SC_STORE_SEGMENT_WANTED, /* the maker task will create its file */
    SC_STORE_SEGMENT_READY,
    SC_STORE_SEGMENT_FAILED, /* no file; removed with its last extent */
    SC_STORE_SEGMENT_TOLD    /* a member's: a record tells of it; its file is not open here */
};

#define SC_STORE_FOLLOWED_SEGMENTS 65536u /* open ones of a reader: 4 TiB at 64 MiB each */

struct sc_store_extent;

struct sc_store_write { /* one frame being written */
    struct sc_io_op op;
    struct sc_store_extent *extent;
    struct sc_store_write *next; /* free list, write queue, or a segment's waiting list */
    uint32_t segment;
    bool is_queued; /* submitted through the write queue */
};

struct sc_store_segment {
    uint32_t number, state; /* state: enum sc_store_segment_state */
    uint64_t bytes;
    bool is_claimed;   /* nobody else writes to it (sc_io_file_claim) */
    bool is_stale;     /* a member's: the log was not read on since */
    bool is_told;      /* a record tells of it */
    bool is_yielding;  /* a member's: takes nothing more, and is given back */
    uint32_t users;    /* a member's: extents that are being written there */
    uint64_t claim_ns; /* executor's clock: tried again then; since when a member has it */
    uint64_t told_ns;  /* executor's clock: when its record was read */
    struct sc_io_file *file;
    struct sc_store_write *waiting;
};

#define SC_STORE_WRITES_AT_ONCE 8u /* writes per call */

/* Places on the disk. Guarded by lock (rank 40), the store's space lock. */
struct sc_store_disk {
    pthread_mutex_t lock;
    struct sc_store_space space;
    struct sc_store_segment *segments; /* [segment_max] */
    uint64_t segment_max;              /* constant after open */
    uint64_t bytes_max;                /* this rank's disk_bytes; a member's follows the log */
    uint64_t limit_told;               /* a writer's open: that of the log; 0: none */
    bool tells_wrong;       /* a writer's open: the log tells of segments that are not so */
    bool claims_wanted;     /* rows found no place */
    bool is_shared;         /* a member's: other members live */
    uint64_t claims_ns;     /* executor's clock: claims are looked at then */
    uint64_t stuck_ns;      /* until then a member claims all it can, and asks others for more */
    uint64_t segment_count; /* indices in use are below */
    uint64_t segment_begin; /* searches start here and wrap around */
    uint64_t segment_bytes; /* of all segments, WANTED included */
    uint64_t surplus_count; /* open: segments above disk_bytes */
    bool surplus_cuts;      /* open: the last segment's end is above disk_bytes */
    /* After a segment's ENOSPC: total space, valid until; no new segment before device_retry_ns. */
    uint64_t device_bytes, device_until_ns, device_retry_ns;
    uint64_t extent_bytes; /* taken pages */
    uint64_t quant_due;    /* per layer: room kept for pending quantised rows */
    uint64_t retry_ns;     /* executor's clock; no new extents before */
    uint32_t number_next;  /* the next segment's */
    bool maker_posted;
    struct sc_task maker;
};

struct sc_store;

/* Lists and opens segment files; sizes the page map. */
spec_status sc_store_segments_open(struct sc_store *store, struct spec_error *reterr);
/* An heir's: sizes the page map for the segments that are there. */
spec_status sc_store_segments_heir_open(struct sc_store *store, struct spec_error *reterr);
/* Opens another process's segment, when a record names it, with the next index. An heir adds it to
 * the page map (*ret_mapped false: it does not fit there). The thread that follows. */
spec_status sc_store_segment_follow(struct sc_store *store, uint32_t number, bool *ret_mapped,
                                    struct spec_error *reterr);
/* After an heir took the writer's lock, and freed what is due: opens the segments that no record
 * names. STALE: a segment was shortened or removed, or disk_bytes is exceeded. */
spec_status sc_store_segments_take_over(struct sc_store *store, struct spec_error *reterr);
void sc_store_segments_close(struct sc_store *store);
/* Sets the path of a segment's file. */
void sc_store_segment_path(const struct sc_store *store, uint32_t number,
                           char ret_path[SC_LIMIT_PATH_BYTES + 64]);
/* After replay: unlinks segments above disk_bytes, and empty ones while too much is used. */
void sc_store_segments_trim(struct sc_store *store);
/* Space lock held. Takes parts for all layers of that stride; false: no room, nothing taken. */
bool sc_store_parts_take(struct sc_store *store, uint64_t stride, struct sc_store_part *parts,
                         uint32_t *ret_part_count);
/* Space lock held. Returns true if `layers` blocks of `bytes` fit, none across two free runs. */
bool sc_store_layers_fit(struct sc_store *store, uint64_t bytes, uint64_t layers);
void sc_store_parts_free(struct sc_store *store, const struct sc_store_part *parts,
                         uint32_t part_count, uint64_t stride);
/* Space lock held. Adds a segment of up to segment_bytes; false: no room for `pages` or no
 * index. */
bool sc_store_segment_want(struct sc_store *store, uint64_t pages, uint64_t *ret_index);
/* Space lock held. Returns true if rows may be placed in the segment: its file is to be made, or
 * this process has claimed it, or can now. A process that was killed may still write into one. */
bool sc_store_segment_takes(struct sc_store *store, uint64_t index);
/* Records the WANTED segment before its file is made, under a number that is free. NO_SPACE: the
 * others have used what disk_bytes allows. No lock held. */
spec_status sc_store_segment_record(struct sc_store *store, uint64_t index,
                                    struct spec_error *reterr);
/* Space lock held. Removes a FAILED segment without taken pages. */
void sc_store_segment_leave(struct sc_store *store, uint64_t index);
/* Space lock held. true: the caller posts store->disk.maker after unlocking. WANTED segments are
 * created even if their extent was refused; the next extent uses them. */
bool sc_store_maker_wake(struct sc_store *store);
/* Returns the index of a file number during replay; segment_max: none. */
uint64_t sc_store_segment_find(const struct sc_store *store, uint32_t number);
/* Returns the index of an open segment, in whatever order they were opened; segment_count: none. */
uint64_t sc_store_segment_index(const struct sc_store *store, uint32_t number);
void sc_store_busy_end(struct sc_store *store);

/* After a device error: no new extents for SC_STORE_RETRY_NS; logged once. Any thread, no lock. */
void sc_store_pause(struct sc_store *store, spec_status status, const char *what);

/* ---- Allocation of extents (alloc_extent.c)
 * --------------------------------------------------- */

uint64_t sc_store_parts_bytes(const struct sc_store_part *parts, uint32_t part_count,
                              uint64_t stride);
/* Takes places for all layers, ret_part_count parts, or none. Takes the space lock.
 *   quant_stride  layer bytes of the rows' quantised rows, kept free until given back; 0: none */
spec_status sc_store_extent_alloc(struct sc_store *store, uint64_t stride, uint64_t log_bytes,
                                  uint64_t quant_stride, struct sc_store_part *parts,
                                  uint32_t *ret_part_count, struct spec_error *reterr);
void sc_store_quant_due_give(struct sc_store *store, uint64_t quant_stride);
void sc_store_extent_free(struct sc_store *store, const struct sc_store_part *parts,
                          uint32_t part_count, uint64_t stride, uint64_t log_bytes);
/* After a write error: searches start behind this segment, to avoid a bad spot. No lock held. */
void sc_store_segment_avoid(struct sc_store *store, uint32_t index);

#endif
