/* object: objects on disk: values of any length in whole pages, found again by the records of a
 * log.
 *
 *   DIR/objects-RRRR-of-NNNN/{lock, log, seg-SSSSSSSS}     as those of rows (store/store.h)
 *
 *   object     1 to 16 parts, each a run of pages of one segment; the last page is zero-padded
 *   log        [head][domain 1][objects .. of 1][removal ..][clear 1] ...
 *   tag        64 bits over the value, bound to domain, key, copy and size (object_tag.c)
 *
 * Invariants: a record is appended after all bytes of its objects were written. Two records of one
 * log never claim a page at the same time; a replay refuses the later claim of an overlap.
 * Errors: per call. NO_SPACE and IO change nothing but counters.
 * Threads: per call.
 * Tests: tests/unit/store/test_object_log.c, tests/fuzz/fuzz_objects.c, conformance/objects */
#ifndef SC_STORE_OBJECT_OBJECT_H
#define SC_STORE_OBJECT_OBJECT_H

#include "store/cache/staging_pool.h"
#include "store/log/log_room.h"
#include "store/log/turn.h"
#include "store/space/segment.h"
#include "store/space/tier.h"
#include "store/store.h"

#define SC_STORE_OBJECT_PARTS_MAX 16u
#define SC_STORE_OBJECT_KEY_BYTES 1024u
#define SC_STORE_OBJECT_BYTES_MAX (UINT64_C(256) << 20)
#define SC_STORE_DOMAIN_BYTES     4096u      /* of an identity */
#define SC_STORE_OBJECT_BATCH     64u        /* objects per record */
#define SC_STORE_REMOVAL_BATCH    1024u      /* copies per record */
#define SC_STORE_OBJECT_DOMAINS   (1u << 24) /* ids of domains are lower */

struct sc_store_object_part {
    uint32_t segment; /* index in the open store; in a record the file's number */
    uint32_t page, pages;
};

struct sc_store_object {
    uint64_t copy; /* unique in this directory */
    uint64_t bytes, tag;
    const uint8_t *key;
    uint32_t key_bytes;
    uint32_t domain; /* id of the domain's record */
    uint32_t part_count;
    uint32_t mark; /* of an object that is logged: the caller's number, as on_object gives */
    struct sc_store_object_part *parts;
};

/* Returns the bytes of one object in a record at most, with a frame of its own. */
static inline uint64_t sc_store_object_record_bytes(uint32_t key_bytes, uint32_t part_count)
{
    return SC_STORE_FRAME_BYTES + 160 + key_bytes + part_count * 15ull;
}
/* Returns the usual bytes of an object among others. */
static inline uint64_t sc_store_object_record_usual(uint32_t key_bytes, uint32_t part_count)
{
    return 28 + key_bytes + part_count * 9ull;
}

/* ---- Tags (object_tag.c) -------------------------------------------------------------------- */

#define SC_STORE_OBJECT_UNIT (1ull << 20)

struct sc_store_object_name {            /* what a tag is bound to */
    uint8_t domain[SC_STORE_HASH_BYTES]; /* digest of its identity */
    uint64_t copy, bytes;
    const uint8_t *key;
    uint32_t key_bytes;
};
/* The digest of a domain's identity. */
void sc_store_domain_digest(const uint8_t *identity, uint32_t bytes,
                            uint8_t ret_digest[SC_STORE_HASH_BYTES]);
/* Returns the tag of a value in consecutive pieces, name->bytes in total. */
uint64_t sc_store_object_tag(const struct sc_store_object_name *name, const uint8_t *const *pieces,
                             const uint64_t *piece_bytes, uint32_t piece_count);

/* ---- Open and close (object_log.c) ---------------------------------------------------------- */

struct sc_store_objects_params {
    struct sc_store_params store; /* alloc .. rank_count, shares; the rest is 0 */
    /* Called during open, in the order of the log. An error ends the open. Beside other processes
     * (shares) also when a turn begins and by sc_store_follow, with no lock of the store held: what
     * they changed. */
    spec_status (*on_domain)(uint32_t id, const uint8_t *identity, uint32_t bytes, void *user,
                             struct spec_error *reterr); /* bytes 0: it is forgotten */
    /* *ret_mark: the caller's number of the object, not 0. SPEC_E_BUSY refuses it: no room, or an
     * unknown domain. Its parts have indices of segments. */
    spec_status (*on_object)(const struct sc_store_object *object, uint32_t *ret_mark, void *user,
                             struct spec_error *reterr);
    void (*on_removed)(uint32_t mark, uint64_t copy, void *user);
    void (*on_cleared)(uint32_t domain, void *user); /* 0: all domains */
    /* Optional. The log is read from its start: objects and ids of domains that it told are
     * void. */
    void (*on_restart)(void *user);
    /* Optional. Returns true, and the mark, if the copy is a put of this process whose append
     * failed: some of its records may be whole. */
    bool (*on_own)(uint64_t copy, uint32_t *ret_mark, void *user);
    /* Optional. Returns true if the mark is that copy's still. */
    bool (*knows)(uint32_t mark, uint64_t copy, void *user);
    void *user;
};

struct sc_store_objects_found { /* at open */
    uint64_t refused;           /* objects that are invalid or have no room */
    uint64_t damaged;           /* restored records */
    bool wants_checkpoint;      /* the log should be rewritten */
    bool needs_checkpoint;      /* before others join */
};

/* Opens the directory of a rank's objects as its one writer; or, if params->store.shares, beside
 * others that share it. Then the first process opens it alone; whoever comes later waits for that,
 * 10 s at most. *ret_store is set before the first callback, and NULL after an error. Errors: as
 * sc_store_open; CONFIG if the directory has rows; LOCKED, another process has it alone, or 16
 * processes share it. Blocks. */
spec_status sc_store_objects_open(const struct sc_store_objects_params *params,
                                  struct sc_store **ret_store,
                                  struct sc_store_objects_found *ret_found,
                                  struct spec_error *reterr);
/* Ends the time alone, after a checkpoint if one was wanted: others may join from here on. No
 * effect without params->store.shares, or if others are here. Errors: IO. */
spec_status sc_store_objects_share(struct sc_store *store, struct spec_error *reterr);
/* Takes the store alone for a while, or gives it back. The log is to be read on then. BUSY: others
 * are here. No effect without shares. Never block. */
spec_status sc_store_objects_alone(struct sc_store *store, struct spec_error *reterr);
void sc_store_objects_alone_end(struct sc_store *store);
/* Syncs the log and closes. No write is in flight and no other call runs. Accepts NULL. */
void sc_store_objects_close(struct sc_store *store);

/* Return the store's staging, and the most bytes of an operation. Constant while open. */
struct sc_staging *sc_store_object_frames(const struct sc_store *store);
uint64_t sc_store_object_op_bytes(const struct sc_store *store);
struct sc_store_object_sizes {
    uint64_t disk_bytes_used, disk_bytes_max, log_bytes, checkpoints;
};
void sc_store_object_sizes(struct sc_store *store, struct sc_store_object_sizes *ret_sizes);
/* Submits at most SC_STORE_WRITES_AT_ONCE writes of values; each completes, with NO_SPACE if its
 * segment cannot be made, and then calls written. Never blocks. */
void sc_store_object_write(struct sc_store *store, struct sc_store_write **writes, uint64_t count);
void sc_store_object_written(struct sc_store *store);

/* ---- Pages (object_pages.c). Any thread; each takes the space lock -------------------------- */

/* Takes pages for a value, one run if possible, else the longest runs; and log_bytes of the log. */
enum sc_store_object_lack {
    SC_STORE_LACK_NOTHING,
    SC_STORE_LACK_PAGES,  /* too little free space, or more than 16 runs */
    SC_STORE_LACK_LOG,    /* the log's share is used up */
    SC_STORE_LACK_DEVICE, /* the device failed lately, or the write budget is used up */
    SC_STORE_LACK_EVER    /* a store of this size can never hold it */
};
enum sc_store_object_lack sc_store_object_room_take(struct sc_store *store, uint64_t pages,
                                                    uint64_t log_bytes,
                                                    struct sc_store_object_part *parts,
                                                    uint32_t *ret_part_count);
void sc_store_object_pages_free(struct sc_store *store, const struct sc_store_object_part *parts,
                                uint32_t part_count);
/* A put that took pages has its record, or has failed: their segments may be given to others. */
void sc_store_object_placed(struct sc_store *store, const struct sc_store_object_part *parts,
                            uint32_t part_count);
/* Returns true if all the segments are claimed by this process; they stay so until
 * sc_store_object_placed. */
bool sc_store_object_pages_keep(struct sc_store *store, const struct sc_store_object_part *parts,
                                uint32_t part_count);
/* Takes the parts of another process's object; their segments are open. False: a page is owned, and
 * nothing was taken. */
bool sc_store_object_pages_take(struct sc_store *store, struct sc_store_object_part *parts,
                                uint32_t part_count);
/* Returns false if other processes have all segments, so that this one can place nothing. */
bool sc_store_object_may_place(struct sc_store *store);
/* Returns how many of the pages are, or come, within this process's reach. */
uint64_t sc_store_object_pages_near(struct sc_store *store,
                                    const struct sc_store_object_part *parts, uint32_t part_count);
/* Pages are lacking: claims segments that nobody has, for those with the least room. Returns true
 * if that gave more free pages. No lock held; blocks. False without shares. */
bool sc_store_object_room_claim(struct sc_store *store);
/* During open: claims the parts of a record, and turns file numbers into indices. Returns false,
 * with nothing taken, if a segment is missing or a page is owned. */
bool sc_store_object_pages_claim(struct sc_store *store, struct sc_store_object_part *parts,
                                 uint32_t part_count);
/* Returns the pages that may be taken, and all pages that segments can ever have. */
void sc_store_object_room(struct sc_store *store, uint64_t *ret_free_pages, uint64_t *ret_pages);

/* ---- The log (object_log.c). Executor threads or hosts'; one buffered write each ------------ */

spec_status sc_store_object_domain_put(struct sc_store *store, uint32_t id, const uint8_t *identity,
                                       uint32_t bytes, struct spec_error *reterr);
/* Each of these appends once. With shares the turn is held, and PENDING says that another process
 * appended first: nothing was appended, the turn reads on (sc_store_turn_read), and the caller
 * decides anew. Objects and domains return it; removals and clears are appended again. */
/* Appends objects of any domains, count <= SC_STORE_OBJECT_BATCH. The caller releases the bytes
 * that were taken with the pages. Parts have indices of segments, and file numbers afterwards. */
spec_status sc_store_objects_put(struct sc_store *store, struct sc_store_object *objects,
                                 uint32_t count, struct spec_error *reterr);
/* Errors: NO_SPACE until a checkpoint. */
spec_status sc_store_objects_remove(struct sc_store *store, const uint64_t *copies, uint64_t count,
                                    struct spec_error *reterr);
spec_status sc_store_objects_clear(struct sc_store *store, uint32_t domain,
                                   struct spec_error *reterr);
/* Returns the log's bytes, and their limit. */
void sc_store_objects_log_bytes(struct sc_store *store, uint64_t *ret_bytes, uint64_t *ret_most);

/* ---- Checkpoints (object_checkpoint.c). One at a time, on an executor's thread or at open ---- */

struct sc_store_object_copy; /* a log being written */

/* Begins a new log; records appended from here on are copied at its end. */
spec_status sc_store_objects_copy_begin(struct sc_store *store,
                                        struct sc_store_object_copy **ret_copy,
                                        struct spec_error *reterr);
spec_status sc_store_objects_copy_domain(struct sc_store_object_copy *copy, uint32_t id,
                                         const uint8_t *identity, uint32_t bytes,
                                         struct spec_error *reterr);
/* Writes objects of one domain. Parts have indices of segments, which are changed to file
 * numbers. */
spec_status sc_store_objects_copy_objects(struct sc_store_object_copy *copy,
                                          struct sc_store_object *objects, uint32_t count,
                                          struct spec_error *reterr);
/* Replaces the log. erases: overwrites the old one with zeros. */
spec_status sc_store_objects_copy_end(struct sc_store_object_copy *copy, bool erases,
                                      struct spec_error *reterr);
/* Frees a copy in any state. Accepts NULL. */
void sc_store_objects_copy_free(struct sc_store_object_copy *copy);

#endif
