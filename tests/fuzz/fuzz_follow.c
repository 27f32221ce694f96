/* Fuzzes a follower: the input is what becomes of a log between its polls. Each step is a byte of
 * what and a u16 of how many bytes:
 *
 *   0 append raw bytes      1 append a payload in an honest frame     2 cut the file so much
 * shorter 3 another file with the input's next bytes in honest frames       4 as many zeros behind
 *   others: poll
 *
 * Holds: following ends, gives OK or VERSION, and changes nothing on the disk; what is told is in
 * range and never told twice; what is dropped was told; loading it gives no rows and no codes (none
 * were ever written); one who says that he knows all of the log knows no piece that is not in it.
 * Accepted: a piece was told of.
 * Threads: one (the seeded loop). */
#include "tests/fuzz/fuzz.h"

#include "store/internal.h"
#include "store/io_sim.h"

#include <string.h>

#define RANK_DIR     "/sim/store/rank-0000-of-0001"
#define LOG_PATH     RANK_DIR "/log"
#define SEGMENT_PATH RANK_DIR "/seg-00000000"
#define LOG_BYTES    (1u << 20)
#define TOLD_MAX     4096u

int fuzz_was_accepted;

struct twin {
    struct sc_store *store;
    uint64_t told[TOLD_MAX];
    uint32_t rows[TOLD_MAX];
    uint32_t count;
};

static struct {
    struct sc_alloc alloc;
    struct sc_log log;
    struct sc_poison poison;
    struct sc_exec *exec;
    struct sc_config config;
    struct sc_store_params params;
    struct sc_io_sim_disk *empty, *disk; /* empty: identity and a segment */
    struct sc_io *io;
    uint64_t seed; /* of the log's chain */
    uint8_t bytes[LOG_BYTES];
    uint64_t count, chain, sequence; /* of the log's honest frames */
} world;

static bool on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct twin *twin = user;
    FUZZ_CHECK(piece->id > 0 && piece->extent > 0 && piece->row_count > 0);
    FUZZ_CHECK((uint64_t)piece->extent_row + piece->row_count <= SC_STORE_ROWS_MAX);
    for (uint32_t i = 0; i < twin->count; i++)
        FUZZ_CHECK(twin->told[i] != piece->id);
    FUZZ_CHECK(twin->count < TOLD_MAX);
    *ret_mark = ~piece->id;
    twin->rows[twin->count] = piece->row_count;
    twin->told[twin->count++] = piece->id;
    fuzz_was_accepted = 1;
    return true;
}

static void on_drop(uint64_t piece, uint64_t mark, void *user)
{
    struct twin *twin = user;
    uint32_t i = 0;
    FUZZ_CHECK(mark == ~piece);
    while (i < twin->count && twin->told[i] != piece)
        i++;
    FUZZ_CHECK(i < twin->count);
    twin->count--;
    twin->told[i] = twin->told[twin->count];
    twin->rows[i] = twin->rows[twin->count];
}

static void on_epoch(uint64_t epoch, void *user)
{
    struct twin *twin = user;
    (void)epoch;
    twin->count = 0;
}

static void on_average(const struct sc_store_average *average, void *user)
{
    const struct twin *twin = user;
    uint32_t i = 0;
    while (i < twin->count && twin->told[i] != average->piece)
        i++;
    FUZZ_CHECK(i < twin->count && twin->rows[i] == average->row_count);
}

static void on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                       void *user)
{
    (void)status;
    (void)extent_user;
    (void)user;
    sc_store_extent_discard(extent);
}

/* Codes of slabs are their first bytes. */
static bool encode(void *user, uint32_t part, const uint8_t *const *rows, uint64_t row_count,
                   uint8_t *scales, uint8_t *codes)
{
    (void)user;
    memset(scales, (int)part, 16);
    for (uint64_t i = 0; i < row_count; i++)
        memcpy(codes + i * 8, rows[i], 8);
    return true;
}

static void on_line(int32_t level, const char *line, void *user)
{
    (void)level;
    (void)line;
    (void)user;
}

static struct sc_io *disk_io(struct sc_io_sim_disk *disk)
{
    struct sc_io_params params = {.alloc = &world.alloc,
                                  .exec = world.exec,
                                  .log = &world.log,
                                  .backend = SC_BACKEND_SIM,
                                  .sim_disk = disk};
    struct sc_io *io = NULL;
    FUZZ_CHECK(sc_io_open(&params, &io, NULL) == SPEC_OK);
    return io;
}

static void file_make(struct sc_io *io, const char *path, uint64_t bytes)
{
    struct sc_io_file *file = NULL;
    FUZZ_CHECK(sc_io_file_open(io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL) ==
               SPEC_OK);
    FUZZ_CHECK(bytes == 0 || sc_io_file_reserve(io, file, bytes, NULL) == SPEC_OK);
    sc_io_file_close(io, file);
}

static void world_make(void)
{
    struct sc_io_sim_disk_params disk = {.alloc = &world.alloc};
    struct sc_exec_params exec = {.alloc = &world.alloc, .poison = &world.poison};
    struct sc_store *store;
    sc_alloc_init(&world.alloc);
    sc_log_init(&world.log, on_line, NULL, 0);
    FUZZ_CHECK(sc_exec_open(&exec, &world.exec, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_open(&disk, &world.empty, NULL) == SPEC_OK);
    world.config = (struct sc_config){.path = "/sim/store",
                                      .chunk_tokens = 64,
                                      .disk_bytes = 4u << 20,
                                      .segment_bytes = 1u << 20,
                                      .stage_bytes = 1u << 20,
                                      .io_backend = SC_BACKEND_SIM,
                                      .io_op_bytes = 64u << 10,
                                      .max_requests = 1};
    world.params = (struct sc_store_params){
        .alloc = &world.alloc,
        .exec = world.exec,
        .log = &world.log,
        .poison = &world.poison,
        .config = &world.config,
        .sim_disk = world.empty,
        .rank_count = 1,
        .space =
            {.digest = {7}, .family = {8}, .layer_count = 2, .k_row_bytes = 48, .descriptor = "{}"},
        .sketch_bytes_max = 1u << 20,
        .codes = {.shape = {4, 2, 16, 8, 8}, .with_rows = true, .encode = encode},
        .on_piece = on_piece,
        .on_written = on_written};
    FUZZ_CHECK(sc_store_open(&world.params, &store, NULL) == SPEC_OK);
    world.seed = sc_store_frame_seed(store->store_id, 0, 1);
    sc_store_close(store);
    struct sc_io *io = disk_io(world.empty);
    file_make(io, SEGMENT_PATH, 1u << 20);
    sc_io_close(io);
    world.params.on_drop = on_drop;
    world.params.on_epoch = on_epoch;
    world.params.on_average = on_average;
}

/* ---- Followers ------------------------------------------------------------------------------- */

static void twin_check(const struct twin *twin)
{
    uint8_t hash[SC_STORE_HASH_BYTES];
    struct sc_store_stats stats;
    sc_store_stats(twin->store, &stats);
    FUZZ_CHECK(stats.piece_count == twin->count);
    for (uint32_t i = 0; i < twin->count; i++) {
        FUZZ_CHECK(sc_store_piece_hash(twin->store, twin->told[i], hash));
        FUZZ_CHECK(sc_store_piece_mark(twin->store, twin->told[i]) == ~twin->told[i]);
    }
}

/* false: it is a newer version's. */
static bool twin_open(struct twin *twin, uint32_t role)
{
    world.params.role = role;
    world.params.user = twin;
    world.params.sim_disk = world.disk;
    spec_status status = sc_store_open(&world.params, &twin->store, NULL);
    FUZZ_CHECK(status == SPEC_OK || status == SPEC_E_VERSION);
    return status == SPEC_OK;
}

static void twin_poll(struct twin *twin)
{
    bool more = true;
    if (twin->store == NULL)
        return;
    for (uint32_t calls = 0; more; calls++) {
        FUZZ_CHECK(calls < 100);
        spec_status status = sc_store_follow(twin->store, &more, NULL);
        FUZZ_CHECK(status == SPEC_OK || status == SPEC_E_VERSION);
    }
    twin_check(twin);
}

static void twin_load(struct twin *twin)
{
    struct sc_store_reader *reader;
    struct sc_store_rows rows;
    FUZZ_CHECK(sc_store_reader_open(twin->store, &reader, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < twin->count && i < 8; i++) {
        struct sc_store_range range = {twin->told[i], 0, twin->rows[i], 0};
        sc_store_reader_begin(reader, i % 2, &range, 1, SC_LANE_DEMAND);
        FUZZ_CHECK(sc_store_reader_next(reader, SC_EXEC_FOREVER, &rows, NULL) == SPEC_E_CORRUPT);
    }
    sc_store_reader_close(reader);
    struct sc_store_sketch *sketch;
    struct sc_store_slab slab;
    FUZZ_CHECK(sc_store_sketch_open(twin->store, SC_STORE_ROWS_MAX, &sketch, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < twin->count && i < 8; i++) {
        struct sc_store_range range = {twin->told[i], 0, twin->rows[i], 0};
        if (sc_store_sketch_begin_codes(sketch, i % 2, &range, 1, i % 3 == 0, SC_LANE_DEMAND, NULL,
                                        NULL) &&
            sc_store_sketch_wait(sketch, SC_EXEC_FOREVER) == SPEC_OK)
            FUZZ_CHECK(!sc_store_slab_of(sc_store_sketch_keys(sketch), 0, &slab));
    }
    sc_store_sketch_close(sketch);
}

/* ---- The log --------------------------------------------------------------------------------- */

static void log_write(void)
{
    FUZZ_CHECK(sc_io_sim_disk_resize(world.disk, LOG_PATH, world.count));
    FUZZ_CHECK(world.count == 0 ||
               sc_io_sim_disk_poke(world.disk, LOG_PATH, 0, world.bytes, world.count));
}

static void log_frame(const uint8_t *payload, uint64_t bytes)
{
    struct sc_store_writer writer = {world.bytes, world.count, LOG_BYTES, false};
    if (bytes == 0 || world.count + SC_STORE_FRAME_BYTES + bytes > LOG_BYTES)
        return;
    uint64_t begin = sc_store_frame_begin(&writer);
    memcpy(writer.bytes + writer.used, payload, bytes);
    writer.used += bytes;
    sc_store_frame_end(&writer, begin, ++world.sequence, &world.chain);
    world.count = writer.used;
}

static void log_renew(void)
{
    world.count = world.sequence = 0;
    world.chain = world.seed;
}

static void step(uint8_t what, const uint8_t *data, uint64_t count)
{
    if (what == 3) {
        struct sc_io *io = disk_io(world.disk);
        (void)sc_io_unlink(io, LOG_PATH, NULL);
        file_make(io, LOG_PATH, 0);
        sc_io_close(io);
        log_renew();
    }
    if (what == 0 && count <= LOG_BYTES - world.count) {
        memcpy(world.bytes + world.count, data, count);
        world.count += count;
    }
    if (what == 1 || what == 3)
        log_frame(data, count);
    if (what == 2)
        world.count -= count < world.count ? count : world.count;
    if (what == 4 && count <= LOG_BYTES - world.count) {
        memset(world.bytes + world.count, 0, count);
        world.count += count;
    }
    log_write();
}

static void steps_run(const uint8_t *data, size_t size, struct twin *twins)
{
    for (size_t at = 0; at + 3 <= size;) {
        uint8_t what = data[at];
        uint64_t count = data[at + 1] | (uint64_t)data[at + 2] << 8;
        at += 3;
        bool takes = what == 0 || what == 1 || what == 3;
        count = takes && count > size - at ? size - at : count;
        if (what > 4) {
            uint64_t events = sc_io_sim_disk_events(world.disk);
            for (uint32_t i = 0; i < 2; i++)
                twin_poll(&twins[i]);
            FUZZ_CHECK(sc_io_sim_disk_events(world.disk) == events);
        } else {
            step(what, data + at, count);
        }
        at += takes ? count : 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct twin twins[3];
    if (world.empty == NULL)
        world_make();
    memset(twins, 0, sizeof(twins));
    fuzz_was_accepted = 0;
    FUZZ_CHECK(sc_io_sim_disk_copy(world.empty, &world.disk, NULL) == SPEC_OK);
    log_renew();
    log_write();
    FUZZ_CHECK(twin_open(&twins[0], SC_STORE_READER) && twin_open(&twins[1], SC_STORE_PEER));
    steps_run(data, size, twins);
    _Atomic uint32_t never = 0;
    (void)sc_exec_wait(world.exec, &never, 0, sc_exec_now_ns(world.exec) + 1000);
    for (uint32_t i = 0; i < 4; i++)
        twin_poll(&twins[i % 2]); /* twice: half a frame must be seen to stay half */
    twin_load(&twins[0]);
    if (twin_open(&twins[2], SC_STORE_READER)) {
        twin_check(&twins[2]);
        FUZZ_CHECK(sc_store_follow_ns(twins[0].store) != sc_exec_wall_ns(world.exec) ||
                   twins[0].count <= twins[2].count);
    }
    for (uint32_t i = 0; i < 3; i++)
        sc_store_close(twins[i].store);
    sc_io_sim_disk_close(world.disk);
    return 0;
}
