/* spec_objects: the C contract for values by key on a local disk, for hosts that move KV blocks as
 * opaque bytes.
 *
 * It is the second function table of libspec_connector.so:
 * spec_connector_objects_api(SPEC_OBJECTS_MAJOR). It needs no model and no call of spec_api. Status
 * codes, spec_error, spec_alloc, spec_log_fn, and the rules for struct_size, reserved members, log
 * lines and forked children are those of spec_connector.h. [OBJ-001] History:
 * docs/reference/versions.md.
 *
 *   open -> domain_open -> { exists | get | put | remove ... } -> domain_close -> close
 *
 * - An object is one value under one key of one domain. It exists whole or not at all. [OBJ-002]
 * - Keys and domains are compared by value: no hash decides that two are equal. [OBJ-003]
 * - A get delivers the bytes that were put under that key of that domain, or fails. [OBJ-004]
 * - A stored object is found by later opens of the directory, also after kill -9. After a loss of
 *   power the last objects may be missing. [OBJ-005]
 * - Files never take more than disk_bytes of the configuration. [OBJ-006]
 * - Up to 16 processes have the objects of a rank open at once, or one, as the configuration says;
 *   the next open is SPEC_E_LOCKED. A directory holds either objects or the rows of spec_api: an
 *   open of the other kind is SPEC_E_CONFIG. [OBJ-007]
 * - What one of them has stored or removed, the others find, or miss, within 200 ms, also when it
 *   was killed since. disk_bytes holds for all of them together; domains' limits, holds, counters
 *   and events are each one's own. An object that another process removes while it is read is
 *   ABSENT, or delivered. [OBJ-009] */
#ifndef SPEC_OBJECTS_H
#define SPEC_OBJECTS_H

#include "spec_connector.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SPEC_OBJECTS_MAJOR 0u /* while 0, a host needs the same minor version */
#define SPEC_OBJECTS_MINOR 2u

#define SPEC_OBJECT_BYTES_MAX   (UINT64_C(256) << 20) /* of a value; at least 1 */
#define SPEC_KEY_BYTES_MAX      1024u                 /* of a key; at least 1 */
#define SPEC_KEYS_MAX           65536u                /* of a call; at least 1 */
#define SPEC_PIECES_MAX         16u                   /* of a value; at least 1 */
#define SPEC_DOMAIN_BYTES_MAX   4096u                 /* of a domain's identity; at least 1 */
#define SPEC_DOMAINS_MAX        1024u                 /* open ones, and those that hold objects */
#define SPEC_HOLD_NS_MAX        UINT64_C(60000000000) /* 60 s */
#define SPEC_TIMEOUT_CONFIGURED UINT64_C(0) /* objects.timeout_ms of the configuration (30 s) */
#define SPEC_TIMEOUT_NONE       UINT64_MAX  /* no timeout */

struct spec_objects; /* an open store; created by open, ended by close */
typedef struct spec_objects spec_objects;
typedef uint64_t spec_domain;    /* returned by domain_open; never 0 */
typedef uint64_t spec_operation; /* returned by get_submit and put_submit; never 0 */

/* ---- Status of a key: results are not negative, failures are SPEC_E_* ------------------------ */
#define SPEC_KEY_ABSENT  0 /* exists, get, remove: not stored */
#define SPEC_KEY_DONE    1 /* exists: stored; get: delivered; put: stored; remove: removed */
#define SPEC_KEY_PENDING 2 /* exists: a put is under way; in ret_status: not finished */
#define SPEC_KEY_STORED  3 /* put: stored before, or another put of the key finished first */
/* SPEC_E_CORRUPT   get: the value failed verification and was deleted
 * SPEC_E_IO        the device failed; after a get the value was deleted
 * SPEC_E_NO_SPACE  put: larger than the store or its domain's limit, or the device is full
 * SPEC_E_TIMEOUT   the deadline passed before the key was handed to the device
 * SPEC_E_DROPPED   cancelled; put: removed or cleared before it ended
 * SPEC_E_INVALID   get: the pieces do not have the value's size; nothing was written */

/* Keys of a call, packed so that a host builds them with one join. Borrowed for the call. INVALID:
 * a count or key length out of range. [OBJ-010] */
struct spec_keys {
    uint32_t struct_size;
    uint32_t count;          /* 1 .. SPEC_KEYS_MAX */
    const void *data;        /* the keys, one after another */
    const uint32_t *lengths; /* [count] bytes; NULL: each key has key_bytes */
    uint32_t key_bytes;      /* 1 .. SPEC_KEY_BYTES_MAX; 0 if lengths is set */
    uint32_t reserved;
};

/* Memory of values: key i has the pieces [i * pieces, (i + 1) * pieces), one after another. It is
 * host memory of any alignment. The process may read (put) or write (get) it until the call
 * returns, or for submitted calls until the completion. Page-aligned pieces of whole pages may be
 * transferred by the device without a copy (objects.staging). [OBJ-011] */
struct spec_pieces {
    uint32_t struct_size;
    uint32_t pieces;           /* per key: 1 .. SPEC_PIECES_MAX */
    const uint64_t *addresses; /* [count * pieces] */
    const uint64_t *sizes;     /* [count * pieces] bytes, at least 1; NULL: piece_bytes each */
    uint64_t piece_bytes;      /* 0 if sizes is set */
};

struct spec_objects_params {
    uint32_t struct_size;
    uint32_t rank, rank_count;      /* as in spec_open_params; each rank has its own files */
    int32_t log_level_max;          /* SPEC_LOG_* */
    const char *config;             /* path of a JSON file, or JSON text */
    const struct spec_alloc *alloc; /* NULL: libc */
    spec_log_fn log;                /* NULL: no log */
    void *log_user;
};

/* Separates the values of one host from another's. Compared by value. [OBJ-003] */
struct spec_domain_params {
    uint32_t struct_size;
    uint32_t reserved;
    struct spec_bytes identity; /* model, weights, layout, TP and PP rank and size, pool, ...: 1 ..
                                 * SPEC_DOMAIN_BYTES_MAX bytes */
    uint64_t bytes_min;         /* not evicted for other domains below this; 0: no floor */
    uint64_t bytes_max;         /* hard limit; 0: only disk_bytes */
};

/* ---- Flags ---------------------------------------------------------------------------------- */
#define SPEC_EXISTS_HOLD 1u /* keys that are found are not evicted before hold_ns has passed */
/* stops at the first absent or pending key; it and those behind it are ABSENT */
#define SPEC_EXISTS_PREFIX 2u
/* remove, clear: the keys and values that the call removed cannot be read from the files when it
 * returns. Copies that were evicted earlier are overwritten by later puts only */
#define SPEC_REMOVE_ERASE 1u

struct spec_exists_params {
    uint32_t struct_size;
    uint32_t flags;      /* SPEC_EXISTS_* */
    uint64_t hold_ns;    /* at most SPEC_HOLD_NS_MAX; 0: objects.hold_ms (10 s) */
    int8_t *ret_status;  /* [count] SPEC_KEY_ABSENT, _DONE or _PENDING; NULL: not wanted */
    uint64_t *ret_bytes; /* [count] size of the value, 0 unless DONE; NULL: not wanted */
};

struct spec_transfer_params {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t timeout_ns; /* ns for the whole call, from its start; SPEC_TIMEOUT_* */
    int32_t *ret_status; /* [count] SPEC_KEY_* or SPEC_E_* */
    uint64_t user;       /* returned with the completion */
};

struct spec_completion {
    spec_operation operation;
    uint64_t user;
    uint32_t done_count; /* keys with SPEC_KEY_DONE or SPEC_KEY_STORED */
    spec_status status;  /* SPEC_OK: all keys succeeded. Else the first failed key's; SPEC_PENDING:
                          * none failed, some were absent */
};

/* ---- Events and lists ----------------------------------------------------------------------- */
#define SPEC_EVENT_STORED      1u
#define SPEC_EVENT_REMOVED     2u
#define SPEC_EVENT_CLEARED     3u /* all objects of a domain; no key */
#define SPEC_REMOVED_EVICTED   1u /* reasons of REMOVED */
#define SPEC_REMOVED_DELETED   2u
#define SPEC_REMOVED_DAMAGED   3u
#define SPEC_REMOVED_ELSEWHERE 4u /* another process evicted or deleted it */

struct spec_object_event {
    uint64_t sequence;  /* of the store, over all domains, without gaps while it is open. An open
                         * begins at the wall clock in ns, above all earlier ones */
    spec_domain domain; /* 0: a domain that is not open */
    uint64_t bytes;     /* size of the value */
    uint32_t kind;      /* SPEC_EVENT_* */
    uint32_t reason;    /* SPEC_REMOVED_*; 0 for other kinds */
    uint32_t key_offset, key_bytes; /* position and size of the key in key_room */
};

struct spec_read_events {
    uint32_t struct_size;
    uint32_t reserved;
    spec_domain domain; /* 0: all domains */
    uint64_t sequence;  /* in: the first event wanted; out: the first of the next call */
    struct spec_object_event *ret_events; /* [capacity] */
    uint64_t capacity;                    /* at least 1 */
    void *key_room;                       /* memory that keys are copied to */
    uint64_t key_room_bytes;              /* at least SPEC_KEY_BYTES_MAX */
    uint64_t ret_count;
    uint64_t ret_missed; /* not 0: events from `sequence` on were overwritten or are of an earlier
                          * open: list again */
};

struct spec_list {
    uint32_t struct_size;
    uint32_t reserved;
    spec_domain domain; /* 0: lists domains, with identities as keys, and their bytes */
    uint64_t cursor;    /* in: 0 at first; out: 0 if the list is complete */
    uint64_t sequence;  /* out, first call: sequence from which events keep the list current */
    struct spec_object_event *ret_events; /* [capacity] kind STORED, sequence 0 */
    uint64_t capacity;                    /* at least 1 */
    void *key_room;
    uint64_t key_room_bytes; /* at least SPEC_KEY_BYTES_MAX; for domains SPEC_DOMAIN_BYTES_MAX */
    uint64_t ret_count;
};

struct spec_object_stats {
    uint32_t struct_size;
    uint32_t reserved;
    /* Levels. disk_bytes_*, index_bytes, waiting_puts and inflight_bytes are those of the store,
     * also if a domain is asked for. */
    uint64_t objects, bytes;  /* stored objects, bytes of their values */
    uint64_t disk_bytes_used; /* bytes of all files */
    uint64_t disk_bytes_max;
    uint64_t index_bytes;    /* memory of the index */
    uint64_t waiting_puts;   /* keys that wait for space or for the device */
    uint64_t inflight_bytes; /* submitted to the device, not complete */
    /* Counts since open. */
    uint64_t exists_keys, exists_hits;
    uint64_t get_keys, get_hits, get_bytes;
    uint64_t put_keys, put_stored, put_bytes; /* put_stored: keys that these calls wrote */
    uint64_t put_present;                     /* keys that were stored before or under way */
    uint64_t put_no_space, put_timeouts;
    uint64_t put_waits, put_wait_ns; /* keys that waited for space, ns in all */
    uint64_t evicted_objects, evicted_bytes;
    uint64_t deleted_objects; /* by remove and clear */
    uint64_t damaged_objects; /* failed verification or could not be read */
    uint64_t io_errors;       /* device operations that failed */
    uint64_t bounce_bytes;    /* bytes copied since memory was not page-aligned */
    uint64_t events_lost;     /* events overwritten before any reader had read them */
    uint64_t checkpoints;     /* logs that were rewritten */
};

/* ---- The function table ---------------------------------------------------------------------
 *
 * Threads: any, at any time, but no call may run beside close, and none of a domain beside its last
 * domain_close. "Blocks: never" means no I/O, and no lock that a thread holds during I/O. A domain
 * that is not open is SPEC_E_INVALID. reterr may be NULL. Since: 0.1, all calls. */
struct spec_objects_api {
    uint32_t struct_size;
    uint16_t major, minor;

    /* Opens the store that the configuration names, for objects. [OBJ-020] Errors: as
     * spec_api.open; CONFIG (the directory holds rows).  Blocks: yes. */
    spec_status (*open)(const struct spec_objects_params *params, spec_objects **ret_objects,
                        struct spec_error *reterr);
    /* Cancels submitted operations, waits for the device, and joins every thread. Takes NULL.
     * [OBJ-021] Threads: one, no other call running or to come.  Blocks: yes. */
    void (*close)(spec_objects *objects);

    /* Opens a domain, or creates it. Equal identities give the same domain. Openers are counted;
     * floor and limit are those of the last opener. [OBJ-022]
     * Errors: INVALID, NO_MEMORY, NO_SPACE (SPEC_DOMAINS_MAX, or the log is full), IO. Blocks: for
     * one buffered write. */
    spec_status (*domain_open)(spec_objects *objects, const struct spec_domain_params *params,
                               spec_domain *ret_domain, struct spec_error *reterr);
    /* Closes a domain once; its objects stay. The last close cancels its submitted operations,
     * waits for them, and drops completions that were not polled. [OBJ-023] Errors: INVALID.
     * Blocks: until the device has released memory. */
    spec_status (*domain_close)(spec_objects *objects, spec_domain domain,
                                struct spec_error *reterr);

    /* Reports which keys are stored. [OBJ-030] *ret_leading (may be NULL) is the number of leading
     * keys that are stored. With HOLD, a get that begins before hold_ns has passed finds the keys
     * that were found, unless they are removed or damaged, or the device fails. [OBJ-031] Errors:
     * INVALID.  Blocks: never; it takes no lock, with any number of callers. */
    spec_status (*exists)(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                          const struct spec_exists_params *params, uint64_t *ret_leading,
                          struct spec_error *reterr);

    /* Delivers values. The pieces of a key hold exactly the value's size, else the key is INVALID;
     * other memory is not written. [OBJ-040] If a key fails, its pieces are undefined and other
     * keys are not affected. [OBJ-041] A value that is being read is not evicted, and is delivered
     * even if it is removed meanwhile. A value that fails verification or cannot be read is
     * deleted: exists reports ABSENT from then on. [OBJ-042] A key whose put has not ended is
     * ABSENT. [OBJ-043]
     * Returns SPEC_OK when ret_status has the statuses of all keys. Errors (nothing was begun):
     * INVALID, NO_MEMORY, FORKED, POISONED.  Blocks: until all keys are done, or timeout_ns. */
    spec_status (*get)(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                       const struct spec_pieces *destinations,
                       const struct spec_transfer_params *params, struct spec_error *reterr);
    /* Stores values. The source must not change until the call returns (submitted: until its
     * completion); if it does, a later get of the value fails. [OBJ-050] A key that is already
     * stored is not written again: its status is STORED. A key whose put is under way follows that
     * put, and is written if that one fails. [OBJ-051] The call waits for space and for the device
     * until timeout_ns, in the order of calls; the least recently used objects are evicted for it.
     * A put that waits for its own domain's limit lets puts of other domains pass. [OBJ-052] exists
     * finds the object once its status is DONE. [OBJ-053]
     * Returns, errors and blocks: as get. */
    spec_status (*put)(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                       const struct spec_pieces *sources,
                       const struct spec_transfer_params *params, struct spec_error *reterr);

    /* get and put without waiting. [OBJ-060] Keys, arrays of addresses and sizes, and params are
     * copied. Value memory and ret_status belong to the store until poll returns the completion.
     * ret_status is PENDING for keys that are not finished. Errors: as above, and BUSY
     * (objects.submitted_max operations).  Blocks: never. */
    spec_status (*get_submit)(spec_objects *objects, spec_domain domain,
                              const struct spec_keys *keys, const struct spec_pieces *destinations,
                              const struct spec_transfer_params *params,
                              spec_operation *ret_operation, struct spec_error *reterr);
    spec_status (*put_submit)(spec_objects *objects, spec_domain domain,
                              const struct spec_keys *keys, const struct spec_pieces *sources,
                              const struct spec_transfer_params *params,
                              spec_operation *ret_operation, struct spec_error *reterr);
    /* Returns completions of a domain, each once: SPEC_OK with *ret_count 0 .. capacity. [OBJ-061]
     * Errors: INVALID.  Blocks: until one is available, or timeout_ns (0: never). */
    spec_status (*poll)(spec_objects *objects, spec_domain domain,
                        struct spec_completion *ret_completions, uint64_t capacity,
                        uint64_t timeout_ns, uint64_t *ret_count, struct spec_error *reterr);
    /* Sets the host's eventfd, to which the store adds 1 for each completion of the domain. Waiting
     * completions are added at once. [OBJ-062] The store never reads or closes it. -1: none. An
     * earlier eventfd is not written after the call returns. */
    spec_status (*event_fd_set)(spec_objects *objects, spec_domain domain, int32_t fd,
                                struct spec_error *reterr);
    /* Sets keys that were not handed to the device to DROPPED; the others end as usual. The
     * completion is still returned. [OBJ-063] Errors: STALE (the completion was returned already,
     * or never existed).  Blocks: never. */
    spec_status (*cancel)(spec_objects *objects, spec_operation operation,
                          struct spec_error *reterr);
    /* Removes keys: absent for every call that begins after the return, and after kill -9. A put of
     * the key that is under way ends DROPPED. [OBJ-070]
     *   ret_status  [count] SPEC_KEY_DONE or SPEC_KEY_ABSENT; NULL: not wanted
     * Errors: INVALID; NO_MEMORY, IO, NO_SPACE (absent now, but possibly stored again at the next
     * open). Blocks: for one buffered write; with ERASE until the files are written. [OBJ-071] */
    spec_status (*remove)(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                          uint32_t flags, int8_t *ret_status, struct spec_error *reterr);
    /* Removes all objects of a domain that were stored before the call. [OBJ-072] Errors, blocks:
     * as remove. */
    spec_status (*clear)(spec_objects *objects, spec_domain domain, uint32_t flags,
                         struct spec_error *reterr);
    /* Marks keys as used now. Absent keys are ignored. [OBJ-073] Errors: INVALID. Blocks: never. */
    spec_status (*touch)(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                         struct spec_error *reterr);

    /* Lists the objects of a domain, or the domains. [OBJ-080] An object that is stored during the
     * whole list is in it; one that is stored or removed meanwhile may be. Errors: INVALID.
     * Blocks: never. */
    spec_status (*list)(spec_objects *objects, struct spec_list *list, struct spec_error *reterr);
    /* Reads events from a sequence number on. [OBJ-081] An event is written when the change is
     * visible to exists. Errors: INVALID.  Blocks: never. */
    spec_status (*events)(spec_objects *objects, struct spec_read_events *events,
                          struct spec_error *reterr);
    /* Fills the counters of a domain since it was opened here, or with domain 0 those of the store.
     * [OBJ-082] Errors: INVALID.  Blocks: never. */
    spec_status (*stats)(spec_objects *objects, spec_domain domain,
                         struct spec_object_stats *ret_stats, struct spec_error *reterr);
};

/* The table of this library, or NULL if this major version is not supported. [OBJ-008] */
SPEC_EXPORT const struct spec_objects_api *spec_connector_objects_api(uint32_t major);

#ifdef __cplusplus
}
#endif
#endif /* SPEC_OBJECTS_H */
