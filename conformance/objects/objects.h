/* What every test of objects by key uses: a loaded table over a directory of the test, keys, values
 * and the bytes that a value must have.
 *
 *   key i    36 bytes, a function of i; two numbers have different keys
 *   value    bytes that are a function of (seed, offset): nothing is remembered of what was put
 *   batch    [guard | value | guard | value | ... | guard]: the keys first .. first + count - 1, a
 *            slot of memory for each, and a status for each; guards are compared
 *
 * Holds: every value that is delivered is compared, with the memory around it. No test expects that
 * anything is fast: work that must end is waited for with CONF_WAIT_NS.
 * Does not: share code with the library, or know a format of its files.
 * Threads: one; tests with threads use the functions that say so.
 * Tests: conformance/broken/null_objects.c, which must fail; objects/double.c, which must pass. */
#ifndef CONFORMANCE_OBJECTS_OBJECTS_H
#define CONFORMANCE_OBJECTS_OBJECTS_H

#include "conformance/suite.h"

#include "abi/spec_objects.h"

#include "conformance/sample.h"

#define KIB       UINT64_C(1024)
#define MIB       (UINT64_C(1) << 20)
#define PAGE      UINT64_C(4096)
#define KEY_BYTES 36u
#define HOLD_NS   SPEC_HOLD_NS_MAX
#define MS_NS     UINT64_C(1000000)
#define IN_ONE_GO 4096u /* keys of a call, where a test needs many */
#define SMALL_MIB UINT64_C(64)
#define SMALL     "\"disk_bytes\": \"64MiB\""
#define LARGE_MIB UINT64_C(32) /* a value that a SMALL store cannot hold beside what FULL holds */

struct objects {
    struct fixture rows; /* its directories alone; a test of OBJ-007 loads its table, too */
    void *library;
    const struct spec_objects_api *api;
    spec_objects *store;
    spec_domain domain; /* of identity "domain", opened with the store */
    struct spec_error error;
    const char *extra; /* members of the configuration, or NULL: those of the command line */
    const struct spec_alloc *alloc;
    uint32_t rank, rank_count;
};

int objects_setup(void **state);      /* loaded and opened */
int objects_setup_bare(void **state); /* loaded */
int objects_teardown(void **state);
spec_status objects_load(struct objects *fx, struct spec_error *reterr);
spec_status objects_try_open(struct objects *fx);
void objects_open(struct objects *fx); /* and the domain */
/* Opens the rank as another process would, and the domain. False: one process has it alone. */
bool objects_open_beside(struct objects *fx);
void objects_close(struct objects *fx);
void objects_reopen(struct objects *fx);
/* Closes, and opens with these members of the configuration. */
void objects_configure(struct objects *fx, const char *extra);
spec_domain objects_domain(struct objects *fx, const char *identity);
spec_domain objects_domain_limits(struct objects *fx, const char *identity, uint64_t bytes_min,
                                  uint64_t bytes_max);

/* ---- Keys and values ---- */

void key_write(uint64_t number, uint8_t key[KEY_BYTES]);
void value_write(uint64_t seed, uint8_t *dst, uint64_t bytes);
bool value_is(uint64_t seed, const uint8_t *bytes, uint64_t count);

struct batch {
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    uint64_t first; /* number of key 0; its value's seed is the number + salt */
    uint64_t salt;
    uint64_t value_bytes, stride_bytes; /* of a slot: the value, then a guard */
    uint64_t shift;                     /* of a value from its slot's page, in bytes */
    uint8_t *key_data;
    uint8_t *memory; /* page-aligned */
    uint64_t memory_bytes;
    uint64_t *addresses, *sizes; /* sizes: NULL unless a test sets them */
    int32_t *status;             /* [count] */
};

/* One piece a value, page-aligned. Memory is poison. */
struct batch batch_make(uint64_t first, uint32_t count, uint64_t value_bytes);
/* The value is split into so many pieces of unequal sizes, and begins `shift` bytes into a page. */
struct batch batch_split(uint64_t first, uint32_t count, uint64_t value_bytes, uint32_t pieces,
                         uint64_t shift);
void batch_free(struct batch *batch);
uint8_t *batch_value(const struct batch *batch, uint32_t i);
void batch_fill(struct batch *batch);
void batch_poison(struct batch *batch);
/* Fails unless slot i is right: its value if status is DONE; the guards are poison always. */
void batch_check(const struct batch *batch, uint32_t i);
void batch_check_all(const struct batch *batch);
/* Whether value i has its bytes and its guards are poison. Any thread. */
bool batch_is_right(const struct batch *batch, uint32_t i);
/* How many statuses are this one. */
uint32_t batch_count(const struct batch *batch, int32_t status);
void batch_expect(const struct batch *batch, int32_t status); /* all of them */

/* ---- Calls ---- */

/* Fills, puts and waits. ret_status has the outcome of each key. */
void put(struct objects *fx, spec_domain domain, struct batch *batch);
/* The same, and every key must be DONE. */
void put_done(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
              uint64_t value_bytes);
/* Poisons, gets, and compares what was delivered. */
void get(struct objects *fx, spec_domain domain, struct batch *batch);
/* The same; every key must end with this status. */
void get_expect(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                uint64_t value_bytes, int32_t status);
/* Status of each key by exists, with flags; returns *ret_leading. statuses: [count], may be NULL */
uint64_t exists(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                uint32_t flags, int8_t *statuses);
int8_t exists_one(struct objects *fx, spec_domain domain, uint64_t number);
uint32_t exists_count(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count);
void remove_keys(struct objects *fx, spec_domain domain, uint64_t first, uint32_t count,
                 uint32_t flags);
struct spec_object_stats objects_stats(struct objects *fx, spec_domain domain);
/* Fills and submits. */
spec_operation put_begin(struct objects *fx, spec_domain domain, struct batch *batch,
                         uint64_t user);
/* Waits for one completion of the domain. */
struct spec_completion poll_one(struct objects *fx, spec_domain domain);
/* Completions that are available at once. */
uint64_t poll_none(struct objects *fx, spec_domain domain, uint64_t timeout_ns);
/* Waits until exists says this of the key. */
void await_exists(struct objects *fx, spec_domain domain, uint64_t number, int8_t status);
/* Puts objects of 1 MiB, from this number on, until the store has evicted one, then holds every
 * object that is stored. After that no value of LARGE_MIB fits before they are removed. The store
 * is SMALL. Returns how many were put. */
uint32_t fill_and_hold(struct objects *fx, spec_domain domain, uint64_t first);

/* ---- Lists and events ---- */

struct event_list {
    struct spec_object_event *events; /* [count]; key_offset counts in keys */
    uint8_t *keys;
    uint64_t count, key_bytes;
    uint64_t sequence; /* of list: from here on events tell changes; of events: the next */
    uint64_t missed;
};

struct event_list list_all(struct objects *fx, spec_domain domain, uint64_t capacity,
                           uint64_t key_room_bytes);
struct event_list events_from(struct objects *fx, spec_domain domain, uint64_t sequence,
                              uint64_t capacity);
void event_list_free(struct event_list *list);
bool event_is(const struct event_list *list, uint64_t i, uint64_t number); /* its key is that one */

/* ---- Files ---- */

/* How often these bytes are found in files below the store. */
uint64_t files_count(const struct objects *fx, const void *bytes, uint64_t byte_count);
/* Copies of all files, to be put back; `name` beside the store. */
void files_save(const struct objects *fx, const char *name);
void files_restore(const struct objects *fx, const char *name);
/* One byte of the pages that are not zero, over all files: the n-th such page. False: there are
 * fewer. ret_path: [4096] */
bool files_flip(const struct objects *fx, uint64_t page, uint64_t at, char *ret_path);
uint64_t files_pages(const struct objects *fx); /* that are not zero */
/* Flips a byte that many bytes behind the beginning of these, if they are found once. */
bool files_flip_in(const struct objects *fx, const void *bytes, uint64_t byte_count, uint64_t at);
/* Path of a file that has these bytes. ret_path: [4096] */
bool files_path_of(const struct objects *fx, const void *bytes, uint64_t byte_count,
                   char *ret_path);
/* Cuts the file that has these bytes last, `into` bytes behind their beginning. */
bool files_cut(const struct objects *fx, const void *bytes, uint64_t byte_count, uint64_t into);

/* Zero memory that children share; never freed. */
void *memory_shared(uint64_t bytes);

/* Numbers without an order: the same for the same seed. */
uint64_t dice(uint64_t *state, uint64_t sides);
uint64_t seed_of_run(void); /* SC_SEED of the environment, else 1 */

extern const struct conf_test CONF_OBJECT_RULES[], CONF_OBJECT_KEYS[], CONF_OBJECT_OPEN[],
    CONF_OBJECT_EXISTS[], CONF_OBJECT_TRANSFER[], CONF_OBJECT_SIZES[], CONF_OBJECT_SUBMIT[],
    CONF_OBJECT_REMOVE[], CONF_OBJECT_REPORTS[], CONF_OBJECT_EVICT[], CONF_OBJECT_DAMAGE[],
    CONF_OBJECT_CRASH[], CONF_OBJECT_THREADS[], CONF_OBJECT_RANDOM[], CONF_OBJECT_SHARED[];

#endif
