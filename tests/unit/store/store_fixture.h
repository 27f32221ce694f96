/* A store under test: allocator, executor, disk, and a twin in memory that knows what every piece
 * must hold. Rows are a function of (key, layer, position), so any row can be made again.
 *
 * Holds: a piece that the store told of (on_piece, or commit) must read back as its key says, or
 * fail with a status; done asserts that every allocation was freed.
 * Threads: one test thread beside the executor's. */
#ifndef SC_TESTS_UNIT_STORE_STORE_FIXTURE_H
#define SC_TESTS_UNIT_STORE_STORE_FIXTURE_H

#include "base/config.h"
#include "store/load.h"
#include "tests/sim/io_sim.h"
#include "tests/sim/sim_memory.h"
#include "tests/unit/cases.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORLD_PIECES 8192u
#define WORLD_ROWS   8192u
#define WORLD_LAYERS 64u

struct world_setup {
    const char *name;
    uint32_t backend, thread_count;
    uint32_t layers, layout;
    uint64_t k_row_bytes;
    uint64_t probe_row_bytes; /* 0: none */
    uint64_t disk_bytes, segment_bytes, op_bytes;
    uint32_t journal;
    uint64_t staging_bytes; /* 0: 16 MiB */
};

/* Members of a world_setup, for tables whose rows are
 *   {"name", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 512, 96), WORLD_DISK(64, 4, 64)}
 * in this order: back end, threads; layout, layers, bytes of a K row and of a probe row; MiB of the
 * disk and of a segment, KiB of an operation. */
#define WORLD_ON(backend_, threads) .backend = SC_BACKEND_##backend_, .thread_count = (threads)
#define WORLD_SHAPE(layout_, layer_count, k_bytes, probe_bytes)                                    \
    .layers = (layer_count), .layout = SC_STORE_##layout_, .k_row_bytes = (k_bytes),               \
    .probe_row_bytes = (probe_bytes)
#define WORLD_DISK(disk_mib, segment_mib, op_kib)                                                  \
    .disk_bytes = UINT64_C(1048576) * (disk_mib),                                                  \
    .segment_bytes = UINT64_C(1048576) * (segment_mib), .op_bytes = UINT64_C(1024) * (op_kib)

struct world_piece { /* the twin's */
    uint64_t id, key, first_position;
    uint32_t row_count;
    uint32_t computed_on;
    bool seen; /* told of by the last open */
};

struct world {
    const struct world_setup *setup;
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_fault fault;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_io_sim_disk *disk;
    struct sc_config config;
    struct sc_store_params params;
    struct sc_store *store;
    struct spec_error error;
    char root[64];
    _Atomic uint32_t written; /* extents whose on_written ran */
    struct world_piece pieces[WORLD_PIECES];
    uint32_t piece_count, open_count; /* pieces that the last open told of */
    uint64_t refuse_id;               /* on_piece says false to it */
    char last_line[SC_LIMIT_LOG_LINE_BYTES];
};

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
    *state = mix(*state);
    return *state % bound;
}

void row_fill(uint8_t *dst, uint64_t bytes, uint64_t key, uint64_t layer, uint64_t position);

/* cmocka looks at every byte with code of its own, and only then says what differs. */
static inline void bytes_equal(const void *found, const void *wanted, uint64_t bytes)
{
    if (memcmp(found, wanted, bytes) != 0)
        assert_memory_equal(found, wanted, bytes);
}

uint32_t token_of(uint64_t key, uint64_t position);
void hash_of(uint64_t key, uint64_t position, uint8_t hash[16]);

/* ---- Making and ending ---------------------------------------------------------------------- */

struct pass { /* one extent on its way */
    struct world *world;
    uint64_t key, first_position, layer_bytes;
    uint32_t row_count, layer, piece_count;
    struct sc_store_piece_plan plans[WORLD_ROWS / 16 + 2];
    struct sc_store_extent *extent;
    struct sc_store_salt salt;
    struct sc_store_commit commit;
    uint32_t *tokens;
    bool discards;
    spec_status status;
    uint64_t first_id;
    struct spec_error error;
    _Atomic uint32_t done;
};

spec_status world_open(struct world *world);

/* False: the machine has no such back end. */
bool world_opens(struct world *world);

void world_open_ok(struct world *world);
void world_close(struct world *world);
void world_exec(struct world *world, uint64_t seed);
struct world *world_make(const struct world_setup *setup, uint64_t seed);
struct world *world_new(const struct world_setup *setup, uint64_t seed); /* made, and open */

/* From the next open on. */
void world_disk(struct world *world, struct sc_io_sim_disk *disk);

/* A closed world whose disk is the origin's as a power cut after so many events may leave it; what
 * was stored is known. */
struct world *world_cut(const struct world *origin, uint64_t events, uint64_t world_seed,
                        uint64_t disk_seed);

void remove_tree(const char *path);
void world_free(struct world *world);

/* The world, open; NULL: the machine has no such back end, and the world is gone. */
struct world *world_opened(struct world *world);

void world_reopen(struct world *world);

struct sc_store_stats stats_of(const struct world *world);

/* Waits; the seeded loop's clock moves by as much. */
void world_wait_ns(const struct world *world, uint64_t ns);

/* Faults that are armed meet the allocations, and from the next open on the store. */
void world_faults(struct world *world);

/* Changes bits of one byte of a file, or of a segment's file, on the simulated disk. */
void disk_flip(const struct world *world, const char *path, uint64_t at, uint8_t bits);
void segment_flip(const struct world *world, uint32_t number, uint64_t at, uint8_t bits);

/* Drops pieces [first, first + count) of the twin, at most 64, which forgets them. */
void world_drop(struct world *world, uint32_t first, uint32_t count);

/* ---- Writing -------------------------------------------------------------------------------- */

void pass_pack(void *user, uint32_t part, uint64_t row_first, uint64_t row_count, uint8_t *dst);

/* Cuts [first_position, + rows) on the chunk grid. */
struct pass *pass_make(struct world *world, uint64_t key, uint64_t first_position, uint32_t rows);

spec_status pass_begin(struct pass *pass);
spec_status pass_put(struct pass *pass);
void pass_wait(struct pass *pass);
void pass_run(struct pass *pass); /* begins it, puts all layers, waits; all of it succeeds */

/* The twin learns what was committed. */
void pass_note(struct pass *pass);

void pass_free(struct pass *pass);

/* The worlds' params.on_written; user: the world. Commits the pass, or discards it. */
void world_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                      void *user);

/* Stores a whole pass; the status of begin, the worst layer, or commit. */
spec_status world_store(struct world *world, uint64_t key, uint64_t first_position, uint32_t rows);

/* Keys 1 and 2, of so many rows each, from their first on. */
void world_store_two(struct world *world, uint32_t rows_1, uint32_t rows_2);

/* ---- Reading -------------------------------------------------------------------------------- */

struct loaded {
    uint64_t rows;         /* delivered, all right */
    uint64_t failed_range; /* when status is an error */
    spec_status status;
};

/* Loads the ranges of pieces[] (index i of ranges belongs to twin piece twins[i]); every row that
 * comes must be right. */
struct loaded world_load(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                         const struct sc_store_range *ranges,
                         const struct world_piece *const *twins, uint64_t count);

/* Loads one whole piece. */
struct loaded world_load_piece(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                               const struct world_piece *piece);

/* All pieces of a key, whole, in order, as one load. */
struct loaded world_load_key(struct world *world, struct sc_store_reader *reader, uint32_t layer,
                             uint64_t key);

struct sc_store_reader *world_reader(struct world *world);

/* All rows of the key come, in all layers, and are right. */
void rows_ok(struct world *world, uint64_t key);

#endif
