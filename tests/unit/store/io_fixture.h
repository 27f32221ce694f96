/* A back end under test: allocator, executor, log, faults and a directory (or a sim disk), and
 * operations whose completions are counted.
 *
 * Holds: teardown asserts that every allocation was freed.
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_IO_FIXTURE_H
#define SC_TESTS_UNIT_STORE_IO_FIXTURE_H

#include "base/config.h"
#include "store/io/io.h"
#include "tests/sim/io_sim.h"
#include "tests/unit/cases.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE SC_IO_PAGE_BYTES

struct setup { /* which back end, how driven */
    const char *name;
    uint32_t backend;
    uint32_t thread_count; /* 0: the seeded loop */
    uint32_t ring_count;   /* io_uring; 0: as many as usual */
    uint64_t in_flight_bytes;
    uint64_t ops_per_s; /* sim; 0: no limit */
};

struct fixture {
    const struct setup *setup;
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_exec *exec;
    struct sc_io_sim_disk *disk;
    struct sc_io *io;
    char dir[1024];
    _Atomic uint32_t done_count, order_next;
};

struct test_op {
    struct sc_io_op op;
    struct fixture *fx;
    _Atomic uint32_t done_count; /* also read while the operation may be in flight */
    uint32_t order;              /* of completion: 0, 1, ... */
    uint64_t done_ns;
};

void fixture_io_open(struct fixture *fx, struct sc_io **ret_io);
void fixture_init(struct fixture *fx, const struct setup *setup, uint64_t seed, uint32_t journal,
                  uint64_t capacity_bytes);
void remove_tree(const char *path);
void fixture_done(struct fixture *fx);
const char *path_of(const struct fixture *fx, const char *name);
struct sc_io_file *open_file(struct fixture *fx, const char *name, uint32_t flags);

#define NEW_FILE   (SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE)
#define NEW_DIRECT (NEW_FILE | SC_IO_OPEN_DIRECT)

void test_op_done(struct sc_io_op *op);
void op_set(struct fixture *fx, struct test_op *test, struct sc_io_file *file, uint32_t kind,
            void *buffer, uint64_t bytes, uint64_t offset);

/* Waits until `count` operations in all have completed. */
void wait_done(struct fixture *fx, uint32_t count);

void submit(struct fixture *fx, struct test_op *tests, uint32_t count);
void submit_at_once(struct fixture *fx, struct test_op *tests, uint32_t count);

/* Why io_uring cannot be tested here; NULL: it can. */
const char *uring_refusal(void);

/* One operation, to its end. */
spec_status transfer(struct fixture *fx, struct sc_io_file *file, uint32_t kind, void *buffer,
                     uint64_t bytes, uint64_t offset);

uint8_t *page_memory(uint64_t bytes);

/* Bytes that differ at every place and for every seed. */
void fill(uint8_t *buffer, uint64_t bytes, uint64_t seed);

uint64_t random_next(uint64_t *state);

static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return random_next(state) % bound;
}

#endif
