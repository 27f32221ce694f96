/* Damage to the log: a record with one wrong byte is restored, and nothing is lost; one with more
 * is lost alone.
 *
 * Threads: the seeded loop. */
#include "store/internal.h"
#include "tests/sample.h"
#include "tests/unit/store/store_fixture.h"

#define RANK_DIR "/sim/store/rank-0000-of-0001"
#define LOG_PATH RANK_DIR "/log"
#define NEW_PATH RANK_DIR "/log.new"
#define LOG_MAX  (256u << 10)

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 48, 0),
                                         WORLD_DISK(4, 1, 64),
                                         .staging_bytes = 2u << 20}; /* it opens often */

/* The log as it was written, and where its frames begin. */
struct image {
    uint8_t bytes[LOG_MAX];
    uint64_t count, frame_count;
    uint64_t begins[512]; /* and the end of the last */
};

/* The last warning of the log. */
static char warning[SC_LIMIT_LOG_LINE_BYTES];
static bool says_lost; /* one said that records are lost */

static void warning_keep(int32_t level, const char *line, void *user)
{
    (void)user;
    if (level <= SPEC_LOG_WARN)
        (void)snprintf(warning, sizeof(warning), "%s", line);
    says_lost = says_lost || strstr(line, "damaged ranges are lost") != NULL;
}

static const char *warning_of(struct world *world)
{
    sc_log_drain(&world->log);
    return warning;
}

static void find_log(const char *path, uint64_t bytes, void *user)
{
    if (strcmp(path, LOG_PATH) == 0)
        *(uint64_t *)user = bytes;
}

static void image_read(const struct world *world, struct image *image)
{
    memset(image, 0, sizeof(*image));
    sc_io_sim_disk_files(world->disk, find_log, &image->count);
    assert_true(image->count < LOG_MAX);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, image->bytes, image->count));
    for (uint64_t at = 0; at < image->count; at += sc_store_frame_bytes(image->bytes + at))
        image->begins[image->frame_count++] = at;
    image->begins[image->frame_count] = image->count;
}

/* Version, type and id of frame i's record. */
static struct sc_store_record record_at(const struct image *image, uint64_t i)
{
    struct sc_store_record record = {0};
    assert_true(sc_store_record_peek(image->bytes + image->begins[i] + SC_STORE_FRAME_BYTES,
                                     image->begins[i + 1] - image->begins[i] - SC_STORE_FRAME_BYTES,
                                     &record));
    return record;
}

static uint32_t pieces_from(const struct image *image, uint64_t first, uint64_t end)
{
    uint32_t count = 0;
    for (uint64_t i = first; i < end; i++)
        count += record_at(image, i).type == SC_STORE_RECORD_PIECE;
    return count;
}

/* A closed world whose log has records of all small kinds: keys 1 to 3 are void by a reset, key 4
 * was dropped, keys 5 to 8 live. It was left as kill -9 leaves it. */
static struct world *world_filled(struct image *ret_image)
{
    struct world *world = world_new(&small, 5);
    world->log.callback = warning_keep;
    warning[0] = '\0';
    for (uint64_t key = 1; key <= 3; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    assert_int_equal(sc_store_epoch_set(world->store, 1, &world->error), SPEC_OK);
    world->piece_count = 0;
    for (uint64_t key = 4; key <= 7; key++)
        assert_int_equal(world_store(world, key, 10 * key, 130), SPEC_OK);
    uint16_t codes[2 * 64] = {7, 8, 9};
    const struct world_piece *piece = &world->pieces[world->piece_count - 2];
    const struct sc_store_average average = {
        .piece = piece->id, .requests = 3, .row_count = piece->row_count, .codes = codes};
    assert_int_equal(sc_store_average_put(world->store, &average, 1, &world->error), SPEC_OK);
    uint32_t dropped = 0;
    while (world->pieces[dropped].key == 4)
        dropped++;
    world_drop(world, 0, dropped);
    assert_int_equal(world_store(world, 8, 0, 64), SPEC_OK);
    struct sc_io_sim_disk *after = NULL;
    assert_int_equal(sc_io_sim_disk_copy(world->disk, &after, NULL), SPEC_OK);
    world_close(world);
    sc_io_sim_disk_close(world->disk);
    world_disk(world, after);
    image_read(world, ret_image);
    return world;
}

/* The world's disk becomes a copy of this one, with bytes of the log changed. */
static void disk_damage(struct world *world, struct sc_io_sim_disk *whole, uint64_t at,
                        const uint8_t *bytes, uint64_t count)
{
    struct sc_io_sim_disk *disk = NULL;
    assert_int_equal(sc_io_sim_disk_copy(whole, &disk, NULL), SPEC_OK);
    world_disk(world, disk);
    if (count > 0)
        assert_true(sc_io_sim_disk_poke(disk, LOG_PATH, at, bytes, count));
}

static void disk_drop(struct world *world, struct sc_io_sim_disk *whole)
{
    world_close(world);
    sc_io_sim_disk_close(world->disk);
    world_disk(world, whole);
}

/* Every piece that open told of reads back whole. */
static void check_seen(struct world *world)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t i = 0; i < world->piece_count; i++)
        for (uint32_t layer = 0; world->pieces[i].seen && layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(world, reader, layer, &world->pieces[i]);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, world->pieces[i].row_count);
        }
    sc_store_readers_close(reader, 1);
}

/* Opens; all pieces are there, so many records were damaged, and after that none. */
static void expect_whole(struct world *world, uint64_t damaged)
{
    for (uint32_t round = 0; round < 2; round++) {
        world_open_ok(world);
        assert_int_equal(world->open_count, world->piece_count);
        assert_int_equal(sc_store_epoch(world->store), 1);
        assert_int_equal(stats_of(world).corrupt_records, round == 0 ? damaged : 0);
        assert_int_equal(stats_of(world).checkpoints, round == 0 && damaged > 0);
        if (round == 1)
            check_seen(world);
        world_close(world);
    }
}

/* ---- A reader -------------------------------------------------------------------------------- */

struct heard {
    uint32_t pieces, epochs;
};

static bool heard_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    struct heard *heard = user;
    *ret_mark = piece->id;
    heard->pieces++;
    return true;
}

static void heard_drop(uint64_t piece, uint64_t mark, void *user)
{
    struct heard *heard = user;
    assert_int_equal(piece, mark);
    heard->pieces--;
}

static void heard_epoch(uint64_t epoch, void *user)
{
    struct heard *heard = user;
    (void)epoch;
    heard->pieces = 0;
    heard->epochs++;
}

static struct sc_store *reader_open(const struct world *world, struct heard *heard)
{
    struct sc_store *store = NULL;
    struct sc_store_params params = world->params;
    params.role = SC_STORE_READER;
    params.on_piece = heard_piece;
    params.on_drop = heard_drop;
    params.on_epoch = heard_epoch;
    params.on_written = NULL;
    params.user = heard;
    assert_int_equal(sc_store_open(&params, &store, NULL), SPEC_OK);
    return store;
}

/* Until it has nothing more to do; `looks` polls of a log that does not change. */
static void reader_follow(struct sc_store *store, uint32_t looks)
{
    for (uint32_t i = 0; i < looks; i++)
        for (bool more = true; more;)
            assert_int_equal(sc_store_follow(store, &more, NULL), SPEC_OK);
}

static void reader_close(struct sc_store *store)
{
    sc_store_close(store);
    sc_sim_memory_rest();
}

static uint64_t reader_damaged(struct sc_store *store)
{
    struct sc_store_stats stats;
    sc_store_stats(store, &stats);
    return stats.corrupt_records;
}

/* ---- One wrong byte -------------------------------------------------------------------------- */

static void log_with_any_byte_wrong_loses_nothing(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_filled(&image);
    struct sc_io_sim_disk *whole = world->disk;
    uint64_t seed = 77;
    disk_damage(world, whole, 0, NULL, 0);
    expect_whole(world, 0);
    disk_drop(world, whole);
    for (uint64_t at = 0; at < image.count; at += 1 + random_below(&seed, SAMPLE_OF(1, 60))) {
        const uint8_t wrong = (uint8_t)(image.bytes[at] ^ (1 + random_below(&seed, 255)));
        struct heard heard = {0};
        disk_damage(world, whole, at, &wrong, 1);
        struct sc_store *reader = reader_open(world, &heard);
        reader_follow(reader, 2);
        assert_int_equal(heard.pieces, world->piece_count);
        assert_int_equal(heard.epochs, 1);
        assert_int_equal(reader_damaged(reader), 1);
        reader_close(reader);
        expect_whole(world, 1);
        disk_drop(world, whole);
    }
    world_free(world);
}

/* Headers that are zeros, but for that of the last record, which a torn append leaves so. */
static void log_with_a_header_of_zeros_loses_nothing(void **state)
{
    (void)state;
    static struct image image;
    static const uint8_t zeros[SC_STORE_FRAME_BYTES];
    struct world *world = world_filled(&image);
    struct sc_io_sim_disk *whole = world->disk;
    for (uint64_t i = 0; i < image.frame_count; i++) {
        disk_damage(world, whole, image.begins[i], zeros, sizeof(zeros));
        if (i + 1 < image.frame_count) {
            expect_whole(world, 1);
        } else {
            world_open_ok(world);
            assert_int_equal(world->open_count, world->piece_count - 1);
            assert_int_equal(stats_of(world).corrupt_records, 1);
            assert_non_null(strstr(warning_of(world), "what follows is forgotten"));
        }
        disk_drop(world, whole);
    }
    world_free(world);
}

static void log_with_a_byte_wrong_in_each_record_loses_nothing(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_filled(&image);
    struct sc_io_sim_disk *whole = world->disk;
    struct heard heard = {0};
    disk_damage(world, whole, 0, NULL, 0);
    assert_true(image.frame_count < SC_STORE_SEARCHES_MAX);
    for (uint64_t i = 0; i < image.frame_count; i++) {
        const uint64_t begin = image.begins[i] + SC_STORE_FRAME_BYTES;
        disk_flip(world, LOG_PATH, begin + i * 7 % (image.begins[i + 1] - begin), 0x41);
    }
    struct sc_store *reader = reader_open(world, &heard);
    reader_follow(reader, 2);
    assert_int_equal(heard.pieces, world->piece_count);
    reader_close(reader);
    expect_whole(world, image.frame_count);
    disk_drop(world, whole);
    world_free(world);
}

/* Searches are counted: behind the last one the log ends, and nothing waits for hours. */
static void log_with_too_many_wrong_payloads_ends_there(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_new(&small, 6);
    for (uint64_t key = 1; key <= SC_STORE_SEARCHES_MAX; key++)
        assert_int_equal(world_store(world, key, 0, 16), SPEC_OK);
    world_close(world);
    image_read(world, &image);
    assert_int_equal(image.frame_count, 2 + 2 * SC_STORE_SEARCHES_MAX);
    for (uint64_t i = 0; i < image.frame_count; i++)
        disk_flip(world, LOG_PATH, image.begins[i] + SC_STORE_FRAME_BYTES + 30, 1);
    world_open_ok(world);
    assert_int_equal(world->open_count, pieces_from(&image, 0, SC_STORE_SEARCHES_MAX));
    assert_int_equal(stats_of(world).corrupt_records, SC_STORE_SEARCHES_MAX + 1);
    world_free(world);
}

/* ---- More than that -------------------------------------------------------------------------- */

static uint32_t seen_count(const struct world *world)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        count += world->pieces[i].seen;
    return count;
}

/* Pieces that live without frame i: those of an extent are lost, one, or all. */
static uint32_t pieces_without(const struct world *world, const struct image *image, uint64_t i)
{
    uint64_t type = record_at(image, i).type, end = i + 1;
    if (type == SC_STORE_RECORD_NAMESPACE)
        return 0;
    while (type == SC_STORE_RECORD_EXTENT && end < image->frame_count &&
           record_at(image, end).type == SC_STORE_RECORD_PIECE)
        end++;
    uint32_t lost = 0;
    for (uint64_t f = type == SC_STORE_RECORD_PIECE ? i : i + 1; f < end; f++)
        for (uint32_t p = 0; p < world->piece_count; p++)
            lost += record_at(image, f).id == world->pieces[p].id;
    return world->piece_count - lost;
}

/* It is lost with what hangs on it, for the writer and for a reader, and nothing else is. A reset
 * that is lost voids what was before it all the same. */
static void log_with_two_wrong_bytes_in_a_record_loses_that_record(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_filled(&image);
    struct sc_io_sim_disk *whole = world->disk;
    for (uint64_t i = 0; i < image.frame_count; i++) {
        const uint64_t at = image.begins[i] + SC_STORE_FRAME_BYTES + 3;
        const uint8_t wrong[2] = {image.bytes[at] ^ 1, image.bytes[at + 1] ^ 1};
        const bool is_last = i + 1 == image.frame_count;
        struct heard heard = {0};
        disk_damage(world, whole, at, wrong, sizeof(wrong));
        struct sc_store *reader = reader_open(world, &heard);
        reader_follow(reader, 3);
        reader_close(reader);
        says_lost = false;
        const uint32_t count = world->piece_count;
        world_open_ok(world);
        world->piece_count = count; /* without one of key 4 */
        /* The piece of a lost drop is there again, unless its pages are others' by now, which a
         * reader does not know. */
        const bool is_drop = record_at(&image, i).type == SC_STORE_RECORD_DROP;
        assert_in_range(heard.pieces, stats_of(world).piece_count,
                        stats_of(world).piece_count + is_drop);
        assert_int_equal(seen_count(world), pieces_without(world, &image, i));
        assert_true(stats_of(world).corrupt_records >= 1);
        assert_int_equal(stats_of(world).checkpoints, is_last ? 0 : 1);
        assert_int_equal(strstr(warning_of(world), "what follows is forgotten") != NULL, is_last);
        assert_int_equal(says_lost, !is_last);
        check_seen(world);
        assert_int_equal(world_store(world, 1000 + i, 0, 64), SPEC_OK); /* and it goes on */
        rows_ok(world, 1000 + i);
        world->piece_count = count;
        disk_drop(world, whole);
    }
    world_free(world);
}

/* Good frames of another life of the file: they fit each other, and nothing in front of them. */
static void log_frames_of_an_earlier_life_are_not_believed(void **state)
{
    (void)state;
    static struct image old, new;
    struct world *world = world_new(&small, 5);
    for (uint64_t key = 1; key <= 5; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    world_close(world);
    image_read(world, &old);
    /* Head, namespace, then extent and piece of each key. The log is cut behind key 1, and keys of
     * the same sizes follow: their frames have the numbers and lengths of the old ones. */
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, old.begins[4]));
    world_open_ok(world);
    for (uint64_t key = 77; key <= 78; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    world_close(world);
    image_read(world, &new);
    assert_int_equal(new.count, old.begins[8]);
    struct sc_io_sim_disk *whole = world->disk;
    assert_true(sc_io_sim_disk_resize(whole, LOG_PATH, old.count));
    assert_true(sc_io_sim_disk_poke(whole, LOG_PATH, new.count, old.bytes + new.count,
                                    old.count - new.count));
    for (uint64_t i = 4; i <= 8; i++) { /* each of the new frames is damaged, and none is (8) */
        for (uint32_t where = 0; where < 3; where++) {
            static const uint64_t places[] = {5, 17, SC_STORE_FRAME_BYTES + 40}; /* length, .. */
            const uint64_t at = new.begins[i] + places[where];
            const uint8_t wrong = old.bytes[at] ^ (i < 8 ? new.bytes[at] ^ old.bytes[at] ^ 2 : 0);
            disk_damage(world, whole, at, &wrong, 1);
            world_open_ok(world);
            assert_int_equal(world->open_count, 3);
            for (uint32_t p = 0; p < world->piece_count; p++)
                assert_int_equal(world->pieces[p].seen,
                                 world->pieces[p].key == 1 || world->pieces[p].key >= 77);
            check_seen(world);
            disk_drop(world, whole);
        }
    }
    world_free(world);
}

/* ---- The writer afterwards ------------------------------------------------------------------- */

/* The checkpoint that makes it whole may fail: then the log goes on as it is. */
static void log_that_cannot_be_written_anew_is_kept(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_filled(&image);
    disk_flip(world, LOG_PATH, image.begins[3] + SC_STORE_FRAME_BYTES + 9, 4);
    disk_flip(world, LOG_PATH, image.begins[6] + 4, 4); /* a length */
    sc_io_sim_fault_scope(world->disk, NEW_PATH);
    sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 1000000);
    world_open_ok(world);
    assert_non_null(strstr(warning_of(world), "keeps what is damaged"));
    assert_int_equal(world->open_count, world->piece_count);
    assert_int_equal(stats_of(world).checkpoints, 0);
    assert_int_equal(world_store(world, 50, 0, 64), SPEC_OK);
    world_close(world);
    sc_io_sim_fault_ppm(world->disk, SC_SIM_WRITE_EIO, 0);
    expect_whole(world, 2);
    world_free(world);
}

/* It is not there yet, or never; the reader goes on when the record is what it was. */
static void reader_waits_at_a_last_record_that_cannot_be_restored(void **state)
{
    (void)state;
    static struct image image;
    struct world *world = world_filled(&image);
    struct heard heard = {0};
    const uint64_t at = image.begins[image.frame_count - 1] + SC_STORE_FRAME_BYTES + 9;
    disk_flip(world, LOG_PATH, at, 1); /* key 8's piece */
    disk_flip(world, LOG_PATH, at + 1, 1);
    struct sc_store *reader = reader_open(world, &heard);
    reader_follow(reader, 3);
    assert_int_equal(heard.pieces, world->piece_count - 1);
    assert_int_equal(reader_damaged(reader), 0);
    disk_flip(world, LOG_PATH, at, 1);
    disk_flip(world, LOG_PATH, at + 1, 1);
    reader_follow(reader, 1);
    assert_int_equal(heard.pieces, world->piece_count);
    assert_true(sc_store_follow_ns(reader) > 0);
    reader_close(reader);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_with_any_byte_wrong_loses_nothing),
        cmocka_unit_test(log_with_a_header_of_zeros_loses_nothing),
        cmocka_unit_test(log_with_a_byte_wrong_in_each_record_loses_nothing),
        cmocka_unit_test(log_with_too_many_wrong_payloads_ends_there),
        cmocka_unit_test(log_with_two_wrong_bytes_in_a_record_loses_that_record),
        cmocka_unit_test(log_frames_of_an_earlier_life_are_not_believed),
        cmocka_unit_test(log_that_cannot_be_written_anew_is_kept),
        cmocka_unit_test(reader_waits_at_a_last_record_that_cannot_be_restored),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
