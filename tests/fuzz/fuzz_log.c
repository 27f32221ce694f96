/* Fuzzes the replay of the log: the input is payloads, [bytes u16][payload] ..., which are framed
 * with honest checksums, so that the decoder and every check behind it meet them. The disk has an
 * identity and one empty segment of 1 MiB.
 *
 * Holds: open succeeds, or refuses an unknown version; what it tells of is in range; a second open
 * tells of the same pieces, and so does one that hears of drops; averages are told of pieces that
 * were; loading what was told of gives no rows, no probe rows, no codes and nothing that codes
 * lack (none were ever written), and there is nothing to build some from; a checkpoint of it tells
 * of them too. Beside what was believed a store goes on: it stores rows and loads them right, codes
 * them, gives rows up and keeps codes, drops, resets; and once all pieces are dropped and no lease
 * is left, every page is free. With any one byte of the log wrong it tells of the same pieces.
 * Accepted: a piece was told of.
 * Threads: one (the seeded loop). */
#include "tests/fuzz/fuzz_store.h"
#include "tests/fuzz/mutate.h"

#define FLIPPED_BYTES_MAX 600u /* of a frame of which one byte is made wrong */

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
        told[told_count] = (struct sc_store_range){piece->id, 0, piece->row_count};
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

const struct fuzz_form *fuzz_form(void)
{
    static struct fuzz_form form = {.space = &world.params.space, .head_bytes = 2};
    if (world.empty == NULL)
        fuzz_world_make(&world);
    return &form;
}

/* Frames the payloads; returns the log's bytes. */
static uint64_t log_make(const uint8_t *data, size_t size, uint8_t *bytes)
{
    struct sc_store_log_end end = world.start;
    uint64_t whole = 0;
    for (size_t at = 0; at + 2 <= size;) {
        uint64_t count = data[at] | (uint64_t)data[at + 1] << 8;
        at += 2;
        count = count < size - at ? count : size - at;
        if (!fuzz_frame_put(bytes, &whole, data + at, count, &end))
            break;
        at += count;
    }
    return whole;
}

static void codes_look(struct sc_store_selector *selector)
{
    struct sc_store_slab slab;
    for (uint32_t i = 0; i < told_count && i < 16; i++)
        if (sc_store_selector_begin(selector,
                                    &(struct sc_store_selector_want){.layer = i % 2,
                                                                     .io_class = SC_IO_CLASS_DEMAND,
                                                                     .ranges = &told[i],
                                                                     .range_count = 1,
                                                                     .is_quant = true,
                                                                     .k_alone = i % 3 == 0}) &&
            sc_store_selector_wait(selector, SC_EXEC_FOREVER) == SPEC_OK)
            FUZZ_CHECK(!sc_store_slab_of(sc_store_selector_keys(selector), 0, &slab));
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
    struct sc_store_selector *selector;
    told_count = 0;
    spec_status status = sc_store_open(&world.params, &store, NULL);
    FUZZ_CHECK(status == SPEC_OK || status == SPEC_E_VERSION);
    if (status != SPEC_OK)
        return false;
    sc_store_stats(store, &stats);
    FUZZ_CHECK(stats.extent_bytes <= 1u << 20);
    FUZZ_CHECK(sc_store_readers_open(store, 1, &reader, NULL) == SPEC_OK);
    for (uint32_t i = 0; i < told_count && i < 16; i++) {
        sc_store_reader_begin(reader, i % 2, &told[i], 1, SC_IO_CLASS_DEMAND);
        FUZZ_CHECK(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) ==
                   SPEC_E_CORRUPT);
    }
    FUZZ_CHECK(sc_store_selector_open(store, SC_STORE_ROWS_MAX, SC_STORE_ROWS_MAX, &selector,
                                      NULL) == SPEC_OK);
    for (uint32_t i = 0; i < told_count && i < 16; i++) {
        uint64_t wanted = i % 3 * 2;
        if (sc_store_selector_begin(selector,
                                    &(struct sc_store_selector_want){.layer = i % 2,
                                                                     .io_class = SC_IO_CLASS_DEMAND,
                                                                     .ranges = &told[i],
                                                                     .range_count = 1,
                                                                     .probe_row_bytes = wanted}))
            FUZZ_CHECK(sc_store_selector_wait(selector, SC_EXEC_FOREVER) ==
                       (wanted > 0 ? SPEC_E_CORRUPT : SPEC_OK));
    }
    codes_look(selector);
    sc_store_readers_close(reader, 1);
    sc_store_selector_close(selector);
    build(store);
    FUZZ_CHECK(sc_store_checkpoint(store, NULL) == SPEC_OK); /* what the next look is at */
    fuzz_store_close(store);
    return true;
}

/* The world's disk from now on: the empty one's copy, with this log. */
static struct sc_io_sim_disk *disk_with(const uint8_t *bytes, uint64_t count)
{
    struct sc_io_sim_disk *disk;
    FUZZ_CHECK(sc_io_sim_disk_copy(world.empty, &disk, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_resize(disk, LOG_PATH, count));
    FUZZ_CHECK(count == 0 || sc_io_sim_disk_poke(disk, LOG_PATH, 0, bytes, count));
    world.params.custom = sc_io_sim_custom(disk);
    return disk;
}

/* The log, opened once and again; hears: in one pass. Its pieces are left in told. */
static bool open_twice(const uint8_t *bytes, uint64_t count, bool hears)
{
    bool opens;
    struct sc_io_sim_disk *disk = disk_with(bytes, count);
    world.params.on_drop = hears ? on_drop : NULL;
    world.params.on_epoch = hears ? on_epoch : NULL;
    opens = look();
    if (opens) {
        uint32_t first_count = told_count;
        FUZZ_CHECK(look());
        FUZZ_CHECK(told_count <= first_count); /* less the refused ones, which were dropped */
    }
    sc_io_sim_disk_close(disk);
    world.params.custom = sc_io_sim_custom(world.empty);
    return opens;
}

/* ---- The store goes on ----------------------------------------------------------------------- */

#define CHURN_ROWS 100u

static struct {
    uint64_t first_id; /* 0: it was not stored */
    uint8_t salt;      /* of its rows */
    bool is_done;
} churn;

static uint8_t churn_byte(uint32_t layer, uint64_t row, uint64_t i)
{
    return (uint8_t)(churn.salt + layer * 100 + row * 7 + i);
}

static void churn_pack(void *user, uint32_t part, uint64_t first, uint64_t count, uint8_t *dst)
{
    const uint32_t *layer = user;
    uint64_t bytes = part == SC_STORE_PART_PROBE ? 48 : 96;
    for (uint64_t row = 0; row < count; row++)
        for (uint64_t i = 0; i < bytes; i++)
            *dst++ = churn_byte(*layer, first + row, i);
}

static void churn_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                             void *user)
{
    static const uint32_t tokens[CHURN_ROWS];
    const struct sc_store_commit commit = {.tokens = tokens};
    (void)extent_user;
    (void)user;
    churn.is_done = true;
    if (status != SPEC_OK)
        sc_store_extent_discard(extent);
    else if (sc_store_extent_commit(extent, &commit, &churn.first_id, NULL) != SPEC_OK)
        churn.first_id = 0;
}

static void churn_wait(struct sc_store *store)
{
    struct sc_store_stats stats;
    _Atomic uint32_t never = 0;
    do {
        (void)sc_exec_wait(world.exec, &never, 0, sc_exec_now_ns(world.exec) + 100000000);
        sc_store_stats(store, &stats);
    } while (stats.is_building);
}

static void churn_store(struct sc_store *store)
{
    const struct sc_store_piece_plan plans[2] = {
        {.row_count = 64, .hash = {0xC5}},
        {.first_position = 64, .chunk_first = 64, .row_count = CHURN_ROWS - 64, .hash = {0xC6}}};
    const struct sc_store_pass pass = {
        .pieces = plans, .piece_count = 2, .provenance = {.computed_on = 1}};
    struct sc_store_extent *extent;
    churn.first_id = 0;
    churn.is_done = false;
    churn.salt++;
    if (sc_store_extent_begin(store, &pass, &extent, NULL) != SPEC_OK)
        return;
    for (uint32_t layer = 0; layer < 2; layer++) {
        const struct sc_store_source source = {.pack = churn_pack, .user = &layer};
        if (sc_store_extent_put_layer(extent, layer, &source, NULL) != SPEC_OK)
            break;
    }
    churn_wait(store);
    FUZZ_CHECK(churn.is_done);
}

/* What was stored is right. */
static void churn_load(struct sc_store *store)
{
    struct sc_store_reader *reader;
    FUZZ_CHECK(sc_store_readers_open(store, 1, &reader, NULL) == SPEC_OK);
    for (uint32_t layer = 0; layer < 2 && churn.first_id > 0; layer++) {
        const struct sc_store_range ranges[2] = {{churn.first_id, 0, 64},
                                                 {churn.first_id + 1, 0, CHURN_ROWS - 64}};
        struct sc_store_rows rows;
        uint64_t got = 0;
        sc_store_reader_begin(reader, layer, ranges, 2, SC_IO_CLASS_DEMAND);
        do {
            FUZZ_CHECK(sc_store_reader_next(reader, SC_EXEC_FOREVER, NULL, &rows, NULL) == SPEC_OK);
            for (uint64_t i = 0; i < rows.row_count * 96; i++)
                FUZZ_CHECK(rows.rows[i] == churn_byte(layer, got + i / 96, i % 96));
            got += rows.row_count;
        } while (rows.row_count > 0);
        FUZZ_CHECK(got == CHURN_ROWS);
    }
    sc_store_readers_close(reader, 1);
}

/* All pieces go, and with them all pages. */
static void churn_empty(struct sc_store *store)
{
    struct sc_store_stats stats;
    uint8_t hash[SC_STORE_HASH_BYTES];
    uint64_t end = sc_store_piece_next(store);
    for (uint64_t id = 1; (id = sc_store_piece_from(store, id)) < end; id++)
        if (sc_store_piece_hash(store, id, hash))
            sc_store_piece_drop(store, id);
    (void)sc_store_quarantine_release(store, UINT64_MAX);
    sc_store_stats(store, &stats);
    FUZZ_CHECK(stats.piece_count == 0 && stats.extent_count == 0);
    FUZZ_CHECK(stats.extent_bytes == 0 && stats.quarantine_bytes == 0 &&
               stats.quantised_bytes == 0);
    for (uint64_t i = 0; i < store->disk.segment_count; i++)
        FUZZ_CHECK(store->disk.space.segments[i].free_pages ==
                   store->disk.space.segments[i].page_count);
}

static void churn_run(const uint8_t *bytes, uint64_t count)
{
    struct sc_store *store;
    struct sc_io_sim_disk *disk = disk_with(bytes, count);
    world.params.on_written = churn_on_written;
    world.config.lease_ns_max = count % 2 * 1000000000;
    for (uint32_t life = 0; life < 2; life++) {
        told_count = 0;
        FUZZ_CHECK(sc_store_open(&world.params, &store, NULL) == SPEC_OK);
        churn_store(store);
        churn_load(store);
        for (uint32_t i = 0; i < told_count && i < TOLD_MAX; i += 3)
            sc_store_piece_drop(store, told[i].piece);
        churn_store(store);
        churn_load(store);
        FUZZ_CHECK(sc_store_checkpoint(store, NULL) == SPEC_OK);
        if (count % 3 == 0 && sc_store_epoch(store) < UINT64_MAX)
            (void)sc_store_epoch_set(store, sc_store_epoch(store) + 1, NULL);
        (void)sc_store_evict_unreachable(store, life * UINT64_MAX);
        if (life == 1)
            churn_empty(store);
        fuzz_store_close(store);
    }
    world.config.lease_ns_max = 0;
    world.params.on_written = fuzz_on_written;
    sc_io_sim_disk_close(disk);
    world.params.custom = sc_io_sim_custom(world.empty);
}

/* Makes one byte of the log wrong. false: of so long a payload that looking for it takes a while.
 */
static bool byte_flip(uint8_t *bytes, uint64_t count, uint64_t seed)
{
    uint64_t at = seed * 0x9E3779B97F4A7C15ull % count, frame = 0;
    while (frame + sc_store_frame_bytes(bytes + frame) <= at)
        frame += sc_store_frame_bytes(bytes + frame);
    if (sc_store_frame_bytes(bytes + frame) > FLIPPED_BYTES_MAX)
        return false;
    bytes[at] ^= (uint8_t)(1 + seed % 255);
    return true;
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
    churn_run(bytes, count);
    if (count > 0 && byte_flip(bytes, count, size + data[size / 2] * 7919u)) {
        FUZZ_CHECK(open_twice(bytes, count, size % 2 == 0));
        FUZZ_CHECK(told_count == first_count);
        FUZZ_CHECK(told_count > TOLD_MAX ||
                   memcmp(told, first_told, told_count * sizeof(told[0])) == 0);
    }
    return 0;
}
