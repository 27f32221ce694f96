/* Fuzzes the replay of the log: the input is payloads, [bytes u16][payload] ..., which are framed
 * with honest checksums, so that the decoder and every check behind it meet them. The disk has an
 * identity and one empty segment of 1 MiB.
 *
 * Holds: open succeeds, or refuses an unknown version; what it tells of is in range; a second open
 * tells of the same pieces, and so does one that hears of drops; averages are told of pieces that
 * were; loading what was told of gives no rows, no probe rows and no codes (none were ever
 * written), and there is nothing to build some from; a checkpoint of it tells of them too.
 * Accepted: a piece was told of.
 * Threads: one (the seeded loop). */
#include "tests/fuzz/fuzz_store.h"

int fuzz_was_accepted;

static struct sc_store_range told[TOLD_MAX];
static uint32_t told_count;

static bool on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)user;
    *ret_mark = piece->id;
    FUZZ_CHECK(piece->id > 0 && piece->extent > 0);
    FUZZ_CHECK(piece->row_count > 0 && piece->skip < piece->row_count);
    FUZZ_CHECK((uint64_t)piece->extent_row + piece->row_count <= SC_STORE_ROWS_MAX);
    FUZZ_CHECK(piece->chunk_first <= piece->first_position);
    uint32_t sum = 0;
    for (uint64_t i = 0; i < piece->first_position + piece->row_count - piece->chunk_first; i++)
        sum += piece->tokens[i];
    for (uint32_t i = 0; i < piece->mark_count; i++)
        FUZZ_CHECK(piece->marks[i].token >= piece->chunk_first);
    if (told_count < TOLD_MAX)
        told[told_count] = (struct sc_store_range){piece->id, 0, piece->row_count, 0};
    told_count++;
    return sum != 0x5EED; /* now and then a piece is refused */
}

static void on_drop(uint64_t piece, uint64_t mark, void *user)
{
    uint32_t i = 0;
    (void)user;
    FUZZ_CHECK(mark == piece);
    while (i < told_count && i < TOLD_MAX && told[i].piece != piece)
        i++;
    FUZZ_CHECK(i < told_count);
    memmove(&told[i], &told[i + 1], (told_count - i - 1) * sizeof(told[0]));
    told_count--;
}

static void on_epoch(uint64_t epoch, void *user)
{
    (void)epoch;
    (void)user;
    told_count = 0;
}

static void on_average(const struct sc_store_average *average, void *user)
{
    uint32_t i = 0, sum = 0;
    (void)user;
    while (i < told_count && i < TOLD_MAX && told[i].piece != average->piece)
        i++;
    FUZZ_CHECK(i < told_count && (i == TOLD_MAX || told[i].row_count == average->row_count));
    FUZZ_CHECK(average->requests > 0);
    for (uint64_t c = 0; c < 2ull * average->row_count; c++)
        sum += average->codes[c];
    FUZZ_CHECK(sum <= 2u * average->row_count * UINT16_MAX);
}

static struct fuzz_world world = {
    .params = {.on_piece = on_piece, .on_average = on_average, .probe_row_bytes = 48}};

/* Frames the payloads; returns the log's bytes. */
static uint64_t log_make(const uint8_t *data, size_t size, uint8_t *bytes)
{
    uint64_t chain = world.seed, sequence = 0, whole = 0;
    for (size_t at = 0; at + 2 <= size;) {
        uint64_t count = data[at] | (uint64_t)data[at + 1] << 8;
        at += 2;
        count = count < size - at ? count : size - at;
        if (!fuzz_frame_put(bytes, &whole, data + at, count, &sequence, &chain))
            break;
        at += count;
    }
    return whole;
}

static void codes_look(struct sc_store_sketch *sketch)
{
    struct sc_store_slab slab;
    for (uint32_t i = 0; i < told_count && i < 16; i++)
        if (sc_store_sketch_begin_codes(sketch, i % 2, &told[i], 1, i % 3 == 0, SC_LANE_DEMAND,
                                        NULL, NULL) &&
            sc_store_sketch_wait(sketch, SC_EXEC_FOREVER) == SPEC_OK)
            FUZZ_CHECK(!sc_store_slab_of(sc_store_sketch_keys(sketch), 0, &slab));
}

/* It ends, and finds nothing to build from. */
static void build(struct sc_store *store)
{
    struct sc_store_stats stats;
    _Atomic uint32_t never = 0;
    sc_store_build_start(store, 0);
    do {
        (void)sc_exec_wait(world.exec, &never, 0, sc_exec_now_ns(world.exec) + 100000000);
        sc_store_stats(store, &stats);
    } while (stats.is_building);
    FUZZ_CHECK(stats.built_pieces == 0);
}

/* Opens; false: refused. What is told of has no rows. */
static bool look(void)
{
    struct sc_store *store;
    struct sc_store_reader *reader;
    struct sc_store_rows rows;
    struct sc_store_stats stats;
    struct sc_store_sketch *sketch;
    told_count = 0;
    spec_status status = sc_store_open(&world.params, &store, NULL);
    FUZZ_CHECK(status == SPEC_OK || status == SPEC_E_VERSION);
    if (status != SPEC_OK)
        return false;
    sc_store_stats(store, &stats);
    FUZZ_CHECK(stats.extent_bytes <= 1u << 20);
    FUZZ_CHECK(sc_store_reader_open(store, &reader, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < told_count && i < 16; i++) {
        sc_store_reader_begin(reader, i % 2, &told[i], 1, SC_LANE_DEMAND);
        FUZZ_CHECK(sc_store_reader_next(reader, SC_EXEC_FOREVER, &rows, NULL) == SPEC_E_CORRUPT);
    }
    sc_store_reader_close(reader);
    FUZZ_CHECK(sc_store_sketch_open(store, SC_STORE_ROWS_MAX, &sketch, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < told_count && i < 16; i++) {
        uint64_t wanted = i % 3 * 2;
        if (sc_store_sketch_begin(sketch, i % 2, &told[i], 1, wanted, SC_LANE_DEMAND, NULL, NULL))
            FUZZ_CHECK(sc_store_sketch_wait(sketch, SC_EXEC_FOREVER) ==
                       (wanted > 0 ? SPEC_E_CORRUPT : SPEC_OK));
    }
    codes_look(sketch);
    sc_store_sketch_close(sketch);
    build(store);
    FUZZ_CHECK(sc_store_checkpoint(store, NULL) == SPEC_OK); /* what the next look is at */
    sc_store_close(store);
    return true;
}

/* The log, opened once and again; hears: in one pass. Its pieces are left in told. */
static bool open_twice(const uint8_t *bytes, uint64_t count, bool hears)
{
    bool opens;
    FUZZ_CHECK(sc_io_sim_disk_copy(world.empty, &world.params.sim_disk, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_resize(world.params.sim_disk, LOG_PATH, count));
    FUZZ_CHECK(count == 0 || sc_io_sim_disk_poke(world.params.sim_disk, LOG_PATH, 0, bytes, count));
    world.params.on_drop = hears ? on_drop : NULL;
    world.params.on_epoch = hears ? on_epoch : NULL;
    opens = look();
    if (opens) {
        uint32_t first_count = told_count;
        FUZZ_CHECK(look());
        FUZZ_CHECK(told_count <= first_count); /* less the refused ones, which were dropped */
    }
    sc_io_sim_disk_close(world.params.sim_disk);
    world.params.sim_disk = world.empty;
    return opens;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[LOG_BYTES];
    static struct sc_store_range first_told[TOLD_MAX];
    if (world.empty == NULL)
        fuzz_world_make(&world);
    uint64_t count = log_make(data, size, bytes);
    fuzz_was_accepted = 0;
    bool opens = open_twice(bytes, count, false);
    uint32_t first_count = told_count;
    memcpy(first_told, told, sizeof(told));
    FUZZ_CHECK(open_twice(bytes, count, true) == opens);
    if (!opens)
        return 0;
    FUZZ_CHECK(told_count == first_count);
    FUZZ_CHECK(told_count > TOLD_MAX ||
               memcmp(told, first_told, told_count * sizeof(told[0])) == 0);
    fuzz_was_accepted = told_count > 0;
    return 0;
}
