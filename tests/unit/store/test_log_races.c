/* Logs that several processes append to: a frame that lost its race, or was torn, is never
 * believed, whatever is damaged around it; damage costs the frames it touches and no others. And
 * logs of store format 4, which go on in the present one.
 *
 * Threads: the seeded loop. */
#include "store/internal.h"
#include "tests/sample.h"
#include "tests/unit/store/store_fixture.h"

#define RANK_DIR      "/sim/store/rank-0000-of-0001"
#define LOG_PATH      RANK_DIR "/log"
#define IDENTITY_PATH "/sim/store/store.msgpack"
#define LOG_MAX       (256u << 10)

/* ---- A model: writers that append to bytes --------------------------------------------------- */

#define WRITERS     4u
#define FRAMES_MAX  512u
#define PAYLOAD_MAX 200u

struct made { /* a frame that a writer wrote, whole */
    uint64_t offset, bytes;
    uint32_t id;
    bool is_true; /* it won its race: every reader believes it */
    bool is_reset;
    bool is_touched; /* by damage */
};

struct model {
    uint8_t bytes[LOG_MAX];
    uint64_t count, random;
    struct sc_store_log_end end; /* behind what won */
    struct made frames[FRAMES_MAX];
    uint32_t frame_count;
    struct {
        struct sc_store_log_end end;
        uint64_t read; /* bytes of the file that it has read */
    } writers[WRITERS];
};

static void model_make(struct model *model, uint64_t seed)
{
    static const uint8_t store_id[16] = {1, 2, 3};
    memset(model, 0, sizeof(*model));
    model->random = seed;
    sc_store_log_begin(&model->end, store_id, 0, 1);
    for (uint32_t i = 0; i < WRITERS; i++)
        model->writers[i].end = model->end;
}

/* Appends frames as a writer with this view makes them. is_torn: a prefix of the bytes. */
static void model_append(struct model *model, uint32_t writer, bool is_torn)
{
    static uint8_t batch[4 * (SC_STORE_FRAME_BYTES + PAYLOAD_MAX)];
    struct sc_store_writer to = {batch, 0, sizeof(batch), false};
    struct sc_store_log_end end = model->writers[writer].end;
    struct made made[4];
    uint32_t count = 1 + (uint32_t)random_below(&model->random, 3);
    bool wins = model->writers[writer].read == model->count;
    end.offset = model->writers[writer].read;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t id = model->frame_count + i + 1;
        uint64_t begin = sc_store_frame_begin(&to);
        uint64_t bytes = sizeof(id) + random_below(&model->random, PAYLOAD_MAX - sizeof(id));
        bool is_reset = random_below(&model->random, 6) == 0;
        for (uint64_t k = 0; k < bytes; k++)
            batch[to.used + k] = (uint8_t)random_below(&model->random, 256);
        memcpy(batch + to.used, &id, sizeof(id));
        to.used += bytes;
        sc_store_frame_end(&to, begin, is_reset, &end);
        made[i] = (struct made){model->count + begin, to.used - begin, id, wins, is_reset, false};
    }
    uint64_t written = is_torn ? random_below(&model->random, to.used) : to.used, whole = 0;
    memcpy(model->bytes + model->count, batch, written);
    for (uint32_t i = 0; i < count && whole + made[i].bytes <= written; i++) {
        struct sc_store_frame frame;
        if (wins)
            assert_int_equal(sc_store_frame_check(batch + whole, to.used - whole,
                                                  model->count + whole, &model->end, &frame),
                             SC_STORE_FRAME_OK);
        whole += made[i].bytes;
        model->frames[model->frame_count++] = made[i];
    }
    model->count += written;
}

static void model_run(struct model *model, uint32_t steps)
{
    for (uint32_t i = 0; i < steps && model->frame_count + 4 < FRAMES_MAX; i++) {
        uint32_t writer = (uint32_t)random_below(&model->random, WRITERS);
        if (random_below(&model->random, 3) > 0) { /* else it appends to what it last saw */
            model->writers[writer].end = model->end;
            model->writers[writer].read = model->count;
        }
        model_append(model, writer, random_below(&model->random, 5) == 0);
    }
}

/* A reader believes these: the numbers of frames, in order; 0 before one: records are lost, or
 * UINT32_MAX: resets, too. */
struct believed {
    uint32_t ids[3 * FRAMES_MAX];
    uint32_t count;
    struct sc_store_log_end end;
};

static void believe(struct believed *believed, const struct sc_store_frame *frame)
{
    assert_true(frame->payload_bytes >= 4);
    memcpy(&believed->ids[believed->count++], frame->payload, 4);
}

/* Reads as the store does (store/log/log_gap.c), from memory. */
static void model_read(const struct model *model, struct believed *believed)
{
    static uint8_t scratch[SC_STORE_FRAME_BYTES_MAX];
    struct sc_store_log_end *end = &believed->end;
    uint32_t searches_left = 4;
    believed->count = 0;
    *end = (struct sc_store_log_end){
        .seed = model->end.seed, .chain = model->end.seed, .is_old = true};
    for (uint64_t at = 0;;) {
        struct sc_store_frame frame;
        struct sc_store_frame_search next = {.offset = end->offset};
        enum sc_store_frame_state state =
            sc_store_frame_check(model->bytes + at, model->count - at, at, end, &frame);
        if (state == SC_STORE_FRAME_OK)
            believe(believed, &frame);
        if (state == SC_STORE_FRAME_LOST || state == SC_STORE_FRAME_OK) {
            at += frame.bytes;
            continue;
        }
        bool is_found = sc_store_frame_search(model->bytes + end->offset,
                                              model->count - end->offset, true, end, &next);
        if (is_found && !next.misses) {
            sc_store_log_jump(end, &next);
        } else if (sc_store_frame_recover(model->bytes + at, model->count - at, at,
                                          is_found ? &next : NULL, end, scratch, &searches_left,
                                          &frame)) {
            believe(believed, &frame);
        } else if (is_found) {
            believed->ids[believed->count++] =
                sc_store_jump_loses_resets(end, &next) ? UINT32_MAX : 0;
            sc_store_log_jump(end, &next);
        } else {
            return;
        }
        at = end->offset;
    }
}

/* Made by tools/make_store_vectors.py after docs/reference/store-format.md, apart from store/. */
static void frames_are_the_formats_to_the_byte(void **state)
{
    (void)state;
    static struct model model;
    static struct believed believed;
    static const uint8_t store_id[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const uint32_t numbers[] = {1, 2, 3, 4, 7, 8};
    memset(&model, 0, sizeof(model));
    sc_store_log_begin(&model.end, store_id, 2, 8);
    FILE *file = fopen(SC_SOURCE_DIR "/tests/data/store/log.bin", "rb");
    assert_non_null(file);
    model.count = fread(model.bytes, 1, sizeof(model.bytes), file);
    assert_int_equal(fclose(file), 0);
    model_read(&model, &believed);
    assert_int_equal(believed.count, sizeof(numbers) / sizeof(numbers[0]));
    assert_memory_equal(believed.ids, numbers, sizeof(numbers));
    assert_int_equal(believed.end.offset, model.count);
    assert_int_equal(believed.end.resets, 1);
    /* The last one, made by this code. */
    const uint64_t bytes = SC_STORE_FRAME_BYTES + 11;
    uint8_t last[SC_STORE_FRAME_BYTES + 11];
    struct sc_store_writer to = {last, 0, sizeof(last), false};
    struct sc_store_log_end end = believed.end;
    end.offset = model.count - bytes;
    end.chain = sc_store_frame_chain(model.bytes + model.count - 2 * bytes);
    uint64_t begin = sc_store_frame_begin(&to);
    memcpy(last + to.used, "\x08\0\0\0 record", 11);
    to.used += 11;
    sc_store_frame_end(&to, begin, false, &end);
    assert_memory_equal(last, model.bytes + model.count - bytes, bytes);
    assert_int_equal(end.chain, believed.end.chain);
}

static void races_are_won_by_one_for_every_reader(void **state)
{
    (void)state;
    static struct model model;
    static struct believed believed;
    uint32_t lost = 0, torn = 0;
    for (uint64_t seed = 1; seed <= SAMPLE_OF(2000, 300); seed++) {
        model_make(&model, seed);
        model_run(&model, 40);
        model_read(&model, &believed);
        uint32_t at = 0;
        uint64_t whole = 0;
        for (uint32_t i = 0; i < model.frame_count; i++) {
            whole += model.frames[i].bytes;
            lost += !model.frames[i].is_true;
            if (model.frames[i].is_true)
                assert_int_equal(believed.ids[at++], model.frames[i].id);
        }
        torn += whole < model.count;
        assert_int_equal(at, believed.count);
        assert_int_equal(believed.end.chain, model.end.chain);
        assert_int_equal(believed.end.offset, model.end.offset);
        assert_int_equal(believed.end.resets, model.end.resets);
    }
    assert_true(lost > 100 && torn > 100);
}

/* Changes some bytes of the file, and notes the frames they belong to. */
static void model_damage(struct model *model)
{
    for (uint64_t n = 1 + random_below(&model->random, 3); n > 0; n--) {
        uint64_t at = random_below(&model->random, model->count);
        uint64_t bytes = 1 + random_below(&model->random, n == 1 ? 500 : 3);
        for (uint64_t i = at; i < at + bytes && i < model->count; i++)
            model->bytes[i] ^= (uint8_t)(1 + random_below(&model->random, 255));
        for (uint32_t i = 0; i < model->frame_count; i++)
            model->frames[i].is_touched = model->frames[i].is_touched ||
                                          (at < model->frames[i].offset + model->frames[i].bytes &&
                                           model->frames[i].offset < at + bytes);
    }
}

/* Every true frame that no damage touched is believed, in order; no frame that lost is. Where a
 * reset is not, the reader is told. */
static void damaged_check(const struct model *model, const struct believed *believed)
{
    uint32_t at = 0;
    bool loses = false, loses_reset = false;
    for (uint32_t i = 0; i < model->frame_count; i++) {
        const struct made *frame = &model->frames[i];
        if (!frame->is_true)
            continue;
        uint32_t gap = at < believed->count ? believed->ids[at] : 0;
        bool has_gap = gap == 0 || gap == UINT32_MAX;
        uint32_t next = at + has_gap < believed->count ? believed->ids[at + has_gap] : 0;
        if (next != frame->id) {
            assert_true(frame->is_touched);
            loses = true;
            loses_reset = loses_reset || frame->is_reset;
            continue;
        }
        if (has_gap) {
            assert_true(loses);
            assert_true(gap == UINT32_MAX || !loses_reset);
        } else {
            assert_false(loses);
        }
        loses = loses_reset = false;
        at += 1 + has_gap;
    }
    assert_int_equal(at, believed->count); /* there is nothing else in it */
}

static void damage_costs_what_it_touches_and_believes_no_loser(void **state)
{
    (void)state;
    static struct model model;
    static struct believed believed;
    for (uint64_t seed = 1; seed <= SAMPLE_OF(4000, 400); seed++) {
        model_make(&model, seed);
        model_run(&model, 30);
        model_damage(&model);
        model_read(&model, &believed);
        damaged_check(&model, &believed);
    }
}

/* ---- The same in a store --------------------------------------------------------------------- */

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 2, 48, 0),
                                         WORLD_DISK(4, 1, 64), .staging_bytes = 2u << 20};

struct sized {
    const char *path;
    uint64_t bytes;
};

static void find_file(const char *path, uint64_t bytes, void *user)
{
    struct sized *sized = user;
    if (strcmp(path, sized->path) == 0)
        sized->bytes = bytes;
}

static uint64_t file_read(const struct world *world, const char *path, uint8_t *bytes)
{
    struct sized sized = {path, 0};
    sc_io_sim_disk_files(world->disk, find_file, &sized);
    assert_true(sized.bytes > 0 && sized.bytes <= LOG_MAX);
    assert_true(sc_io_sim_disk_peek(world->disk, path, 0, bytes, sized.bytes));
    return sized.bytes;
}

static void file_write(const struct world *world, const char *path, const uint8_t *bytes,
                       uint64_t count)
{
    assert_true(sc_io_sim_disk_resize(world->disk, path, count));
    assert_true(sc_io_sim_disk_poke(world->disk, path, 0, bytes, count));
}

/* Where the next append is meant to stand. */
static struct sc_store_log_end place_of(const struct world *world)
{
    struct sc_store_log_end end = world->store->log.journal.end;
    end.offset = world->store->log.journal.file_end;
    return end;
}

/* Another process, which saw the log when it ended at `end`, appends a drop of the piece now. */
static void other_drops(const struct world *world, struct sc_store_log_end end, uint64_t piece)
{
    static uint8_t bytes[LOG_MAX + 256];
    struct sc_store_writer to = {bytes, file_read(world, LOG_PATH, bytes), sizeof(bytes), false};
    uint64_t begin = sc_store_frame_begin(&to);
    sc_store_record_encode_drop(&to, piece, 1);
    sc_store_frame_end(&to, begin, false, &end);
    file_write(world, LOG_PATH, bytes, to.used);
}

static uint32_t seen_of(const struct world *world, uint64_t key)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < world->piece_count; i++)
        count += world->pieces[i].key == key && world->pieces[i].seen;
    return count;
}

static void a_record_that_lost_its_race_is_not_applied(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 5);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    const struct sc_store_log_end end = place_of(world);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    const uint64_t winner_end = world->store->log.journal.file_end;
    world_close(world);
    other_drops(world, end, 1);
    for (uint64_t key = 3; key <= 4; key++) { /* with nothing behind it, and with more */
        world_open_ok(world);
        assert_int_equal(stats_of(world).corrupt_records, 0);
        assert_int_equal(seen_of(world, 1) + seen_of(world, 2), 2);
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
        world_close(world);
    }
    /* The winner is damaged beyond repair: the loser is a loser still. */
    for (uint64_t at = end.offset; at < winner_end; at += SC_STORE_FRAME_BYTES)
        disk_flip(world, LOG_PATH, at, 0x5a);
    world_open_ok(world);
    assert_int_equal(seen_of(world, 2), 0);
    assert_int_equal(seen_of(world, 1) + seen_of(world, 3) + seen_of(world, 4), 3);
    world_reopen(world); /* the log was written anew */
    assert_int_equal(stats_of(world).corrupt_records, 0);
    assert_int_equal(seen_of(world, 1) + seen_of(world, 3) + seen_of(world, 4), 3);
    world_free(world);
}

/* The winner is the last frame but for the loser, and is damaged: its loser is the first whole
 * frame that names what is there. It lost all the same. */
static void a_loser_behind_a_damaged_winner_is_not_applied(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 6);
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    const struct sc_store_log_end end = place_of(world);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_OK);
    const uint64_t winner_end = world->store->log.journal.file_end;
    world_close(world);
    other_drops(world, end, 1);
    static uint8_t bytes[LOG_MAX];
    (void)file_read(world, LOG_PATH, bytes);
    for (uint64_t at = end.offset; at < winner_end; at += sc_store_frame_bytes(bytes + at)) {
        disk_flip(world, LOG_PATH, at + SC_STORE_FRAME_BYTES + 5, 0x5a);
        disk_flip(world, LOG_PATH, at + SC_STORE_FRAME_BYTES + 7, 0x5a);
    }
    world_open_ok(world);
    assert_int_equal(seen_of(world, 1), 1);
    assert_int_equal(seen_of(world, 2), 0);
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_OK);
    world_reopen(world);
    assert_int_equal(seen_of(world, 1) + seen_of(world, 3), 2);
    world_free(world);
}

static bool says_other;

static void line_keep(int32_t level, const char *line, void *user)
{
    (void)user;
    says_other =
        says_other || (level == SPEC_LOG_ERROR && strstr(line, "another process appended"));
}

/* A writer that finds others' bytes in front of its own has no right view any more. */
static void an_append_that_stands_elsewhere_ends_storing(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 7);
    world->log.callback = line_keep;
    assert_int_equal(world_store(world, 1, 0, 64), SPEC_OK);
    other_drops(world, place_of(world), 1);
    assert_int_equal(world_store(world, 2, 0, 64), SPEC_E_IO);
    sc_log_drain(&world->log);
    assert_true(says_other);
    assert_int_equal(world_store(world, 3, 0, 64), SPEC_E_NO_SPACE); /* a pause */
    world_close(world);
    world_open_ok(world); /* what it appended did not win; the other's did */
    assert_int_equal(seen_of(world, 1) + seen_of(world, 2) + seen_of(world, 3), 0);
    assert_int_equal(world_store(world, 4, 0, 64), SPEC_OK);
    world_reopen(world);
    assert_int_equal(seen_of(world, 4), 1);
    world_free(world);
}

/* ---- Store format 4 -------------------------------------------------------------------------- */

static struct sc_store_identity identity_of(const struct world *world)
{
    static uint8_t bytes[LOG_MAX];
    struct sc_store_identity identity;
    struct sc_store_frame frame;
    uint64_t chain = 0, count = file_read(world, IDENTITY_PATH, bytes);
    assert_int_equal(sc_store_old_frame_check(bytes, count, 0, &chain, &frame), SC_STORE_FRAME_OK);
    assert_true(sc_store_record_get_identity(frame.payload, frame.payload_bytes, &identity));
    return identity;
}

/* The store becomes what a version with format 4 would have written. Offsets of frames: begins. */
static uint64_t make_old(struct world *world, uint64_t *begins)
{
    static uint8_t log[LOG_MAX], old[LOG_MAX];
    struct sc_store_identity identity = identity_of(world);
    struct sc_store_writer to = {old, 0, sizeof(old), false};
    struct sc_store_log_end end;
    struct sc_store_frame frame;
    uint64_t count = file_read(world, LOG_PATH, log), chain, sequence = 0;
    sc_store_log_begin(&end, identity.store_id, 0, 1);
    chain = end.seed;
    while (end.offset < count) {
        assert_int_equal(
            sc_store_frame_check(log + end.offset, count - end.offset, end.offset, &end, &frame),
            SC_STORE_FRAME_OK);
        begins[sequence] = sc_store_old_frame_begin(&to);
        memcpy(old + to.used, frame.payload, frame.payload_bytes);
        to.used += frame.payload_bytes;
        sc_store_old_frame_end(&to, begins[sequence], sequence + 1, &chain);
        sequence++;
    }
    begins[sequence] = to.used;
    file_write(world, LOG_PATH, old, to.used);
    to.used = 0;
    identity.version = 4;
    uint64_t begin = sc_store_old_frame_begin(&to);
    sc_store_record_encode_identity(&to, &identity);
    chain = 0;
    sc_store_old_frame_end(&to, begin, 0, &chain);
    file_write(world, IDENTITY_PATH, old, to.used);
    return sequence;
}

static void keys_check(struct world *world, uint64_t first, uint64_t end)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        bool lives = world->pieces[i].key >= first && world->pieces[i].key < end;
        assert_int_equal(world->pieces[i].seen, lives);
        for (uint32_t layer = 0; lives && layer < world->setup->layers; layer++)
            assert_int_equal(world_load_piece(world, reader, layer, &world->pieces[i]).status,
                             SPEC_OK);
    }
    sc_store_readers_close(reader, 1);
}

static void a_store_of_format_4_opens_and_goes_on(void **state)
{
    (void)state;
    uint64_t begins[128];
    struct world *world = world_new(&small, 8);
    for (uint64_t key = 1; key <= 5; key++)
        assert_int_equal(world_store(world, key, 0, 130), SPEC_OK);
    world_close(world);
    (void)make_old(world, begins);
    struct sc_store_params beside = world->params;
    struct sc_store *reader = NULL;
    beside.role = SC_STORE_READER;
    assert_int_equal(sc_store_open(&beside, &reader, &world->error), SPEC_OK);
    assert_int_equal(sc_store_piece_next(reader), 16);
    assert_int_equal(identity_of(world).version, 4); /* a reader changes nothing */
    sc_store_close(reader);
    world_open_ok(world);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    assert_int_equal(identity_of(world).version, SC_STORE_FORMAT_VERSION);
    keys_check(world, 1, 6);
    assert_int_equal(world_store(world, 6, 0, 130), SPEC_OK); /* behind the old frames */
    world_reopen(world);
    keys_check(world, 1, 7);
    assert_int_equal(sc_store_checkpoint(world->store, &world->error), SPEC_OK);
    assert_int_equal(world_store(world, 7, 0, 130), SPEC_OK);
    world_reopen(world);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    keys_check(world, 1, 8);
    world_free(world);
}

/* One wrong byte of an old frame is restored, also of the last one. If more are wrong, a reset may
 * be lost: what was before is void, and what the present format has behind it is there. */
static void damage_of_old_frames_is_restored_or_voids_what_was_before(void **state)
{
    (void)state;
    uint64_t begins[128];
    struct world *world = world_new(&small, 9);
    for (uint64_t key = 1; key <= 5; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    world_close(world);
    const uint64_t frames = make_old(world, begins);
    struct sc_io_sim_disk *whole = world->disk;
    for (uint64_t i = 0; i < 2 * frames; i++) {
        struct sc_io_sim_disk *disk = NULL;
        const uint64_t frame = i / 2, at = begins[frame] + SC_STORE_OLD_FRAME_BYTES + 9;
        assert_int_equal(sc_io_sim_disk_copy(whole, &disk, NULL), SPEC_OK);
        world_disk(world, disk);
        if (i % 2 == 0) {
            disk_flip(world, LOG_PATH, at, 4);
            world_open_ok(world);
            assert_int_equal(stats_of(world).corrupt_records, 1);
            keys_check(world, 1, 6);
        } else {
            world_open_ok(world);
            const uint32_t count = world->piece_count;
            assert_int_equal(world_store(world, 6, 0, 64), SPEC_OK);
            world->store->log.journal.synced_end = world->store->log.journal.end.offset;
            world_close(world);
            disk_flip(world, LOG_PATH, at, 4);
            disk_flip(world, LOG_PATH, at + 1, 4);
            world_open_ok(world);
            assert_true(stats_of(world).corrupt_records > 0);
            if (frame > 1) /* not the log's head, nor the namespace of all */
                keys_check(world, 6, 7);
            world->piece_count = count;
        }
        world_close(world);
        sc_io_sim_disk_close(disk);
    }
    world_disk(world, whole);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_are_the_formats_to_the_byte),
        cmocka_unit_test(races_are_won_by_one_for_every_reader),
        cmocka_unit_test(damage_costs_what_it_touches_and_believes_no_loser),
        cmocka_unit_test(a_record_that_lost_its_race_is_not_applied),
        cmocka_unit_test(a_loser_behind_a_damaged_winner_is_not_applied),
        cmocka_unit_test(an_append_that_stands_elsewhere_ends_storing),
        cmocka_unit_test(a_store_of_format_4_opens_and_goes_on),
        cmocka_unit_test(damage_of_old_frames_is_restored_or_voids_what_was_before),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
