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
#include "tests/fuzz/fuzz_store.h"
#include "tests/fuzz/mutate.h"

int fuzz_was_accepted;

struct twin {
    struct sc_store *store;
    uint64_t told[TOLD_MAX];
    uint32_t rows[TOLD_MAX];
    uint32_t count;
};

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

static struct fuzz_world world = {.params = {.space = {.family = {8}},
                                             .on_piece = on_piece,
                                             .on_drop = on_drop,
                                             .on_epoch = on_epoch,
                                             .on_average = on_average}};

const struct fuzz_form *fuzz_form(void)
{
    static struct fuzz_form form = {.space = &world.params.space, .head_bytes = 3};
    if (world.empty == NULL)
        fuzz_world_make(&world);
    return &form;
}

static struct {
    struct sc_io_sim_disk *disk;
    uint8_t bytes[LOG_BYTES];
    uint64_t count; /* of the honest frames */
    struct sc_store_log_end end;
} followed;

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
    world.params.custom = sc_io_sim_custom(followed.disk);
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
    FUZZ_CHECK(sc_store_readers_open(twin->store, 1, &reader, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < twin->count && i < 8; i++) {
        struct sc_store_range range = {twin->told[i], 0, twin->rows[i]};
        sc_store_reader_begin(reader, i % 2, &range, 1, SC_IO_CLASS_DEMAND);
        FUZZ_CHECK(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) ==
                   SPEC_E_CORRUPT);
    }
    sc_store_readers_close(reader, 1);
    struct sc_store_selector *selector;
    struct sc_store_slab slab;
    FUZZ_CHECK(sc_store_selector_open(twin->store, SC_STORE_ROWS_MAX, SC_STORE_ROWS_MAX, &selector,
                                      NULL) == SPEC_OK);
    for (uint32_t i = 0; i < twin->count && i < 8; i++) {
        struct sc_store_range range = {twin->told[i], 0, twin->rows[i]};
        if (sc_store_selector_begin(selector,
                                    &(struct sc_store_selector_want){.layer = i % 2,
                                                                     .io_class = SC_IO_CLASS_DEMAND,
                                                                     .ranges = &range,
                                                                     .range_count = 1,
                                                                     .is_quant = true,
                                                                     .k_alone = i % 3 == 0}) &&
            sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK)
            FUZZ_CHECK(!sc_store_slab_of(sc_store_selector_keys(selector), 0, &slab));
    }
    sc_store_selector_close(selector);
}

/* ---- The log --------------------------------------------------------------------------------- */

static void log_write(void)
{
    FUZZ_CHECK(sc_io_sim_disk_resize(followed.disk, LOG_PATH, followed.count));
    FUZZ_CHECK(followed.count == 0 ||
               sc_io_sim_disk_poke(followed.disk, LOG_PATH, 0, followed.bytes, followed.count));
}

static void log_renew(void)
{
    followed.count = 0;
    followed.end = world.start;
}

static void step(uint8_t what, const uint8_t *data, uint64_t count)
{
    if (what == 3) {
        struct sc_io *io = fuzz_io(&world, followed.disk);
        (void)sc_io_unlink(io, LOG_PATH, NULL);
        fuzz_file_make(io, LOG_PATH, 0);
        sc_io_close(io);
        log_renew();
    }
    if (what == 0 && count <= LOG_BYTES - followed.count) {
        memcpy(followed.bytes + followed.count, data, count);
        followed.count += count;
    }
    if (what == 1 || what == 3)
        (void)fuzz_frame_put(followed.bytes, &followed.count, data, count, &followed.end);
    if (what == 2)
        followed.count -= count < followed.count ? count : followed.count;
    if (what == 4 && count <= LOG_BYTES - followed.count) {
        memset(followed.bytes + followed.count, 0, count);
        followed.count += count;
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
            uint64_t events = sc_io_sim_disk_events(followed.disk);
            for (uint32_t i = 0; i < 2; i++)
                twin_poll(&twins[i]);
            FUZZ_CHECK(sc_io_sim_disk_events(followed.disk) == events);
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
        fuzz_world_make(&world);
    memset(twins, 0, sizeof(twins));
    fuzz_was_accepted = 0;
    FUZZ_CHECK(sc_io_sim_disk_copy(world.empty, &followed.disk, NULL) == SPEC_OK);
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
        fuzz_store_close(twins[i].store);
    sc_io_sim_disk_close(followed.disk);
    return 0;
}
