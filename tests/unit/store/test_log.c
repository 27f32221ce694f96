/* The log: cut anywhere, forged, stale or newer, open answers with what can be believed, or with
 * one clear text. Records are also read with msgpack-c, which shares no code with our decoder.
 *
 * Threads: the seeded loop. */
#include "store/internal.h"
#include "tests/unit/store/build_check.h"
#include "tests/unit/store/quant_check.h"
#include "tests/unit/store/space_check.h"

#include <msgpack.h>

#define LOG_PATH "/sim/store/rank-0000-of-0001/log"
#define LOG_MAX  (1u << 20)

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(4, 1, 64),
                                         .staging_bytes = 2u << 20}; /* it opens 2,700 times */

/* The log as bytes, and where its frames end. */
struct log_image {
    uint8_t bytes[LOG_MAX];
    uint64_t count, frame_count;
    struct sc_store_log_end start, end;
    uint64_t ends[512];
};

static void find_log(const char *path, uint64_t bytes, void *user)
{
    if (strcmp(path, LOG_PATH) == 0)
        *(uint64_t *)user = bytes;
}

static void image_read(struct world *world, struct log_image *image)
{
    uint8_t identity_bytes[4096];
    struct sc_store_identity identity;
    uint64_t chain = 0, identity_count = 0;
    struct sc_store_frame frame;
    memset(image, 0, sizeof(*image));
    sc_io_sim_disk_files(world->disk, find_log, &image->count);
    assert_true(image->count < LOG_MAX);
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, image->bytes, image->count));
    while (identity_count < 4096 &&
           sc_io_sim_disk_peek(world->disk, "/sim/store/store.msgpack", identity_count,
                               identity_bytes + identity_count, 1))
        identity_count++;
    assert_int_equal(sc_store_old_frame_check(identity_bytes, identity_count, 0, &chain, &frame),
                     SC_STORE_FRAME_OK);
    assert_true(sc_store_record_get_identity(frame.payload, frame.payload_bytes, &identity));
    sc_store_log_begin(&image->start, identity.store_id, 0, 1);
    image->end = image->start;
    for (uint64_t at = 0; at < image->count; at += frame.bytes) {
        assert_int_equal(
            sc_store_frame_check(image->bytes + at, image->count - at, at, &image->end, &frame),
            SC_STORE_FRAME_OK);
        image->ends[image->frame_count++] = at + frame.bytes;
    }
}

static void image_write(struct world *world, const struct log_image *image)
{
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, image->count));
    assert_true(sc_io_sim_disk_poke(world->disk, LOG_PATH, 0, image->bytes, image->count));
}

/* Which type the record of frame i has. */
static uint64_t frame_type(const struct log_image *image, uint64_t i)
{
    uint64_t begin = i == 0 ? 0 : image->ends[i - 1];
    struct sc_store_record record = {0};
    assert_true(sc_store_record_peek(image->bytes + begin + SC_STORE_FRAME_BYTES,
                                     image->ends[i] - begin - SC_STORE_FRAME_BYTES, &record));
    return record.type;
}

/* Every piece that open told of reads back whole. */
static void check_seen(struct world *world)
{
    struct sc_store_reader *reader = world_reader(world);
    for (uint32_t i = 0; i < world->piece_count; i++) {
        if (!world->pieces[i].seen)
            continue;
        for (uint32_t layer = 0; layer < world->setup->layers; layer++) {
            struct loaded loaded = world_load_piece(world, reader, layer, &world->pieces[i]);
            assert_int_equal(loaded.status, SPEC_OK);
            assert_int_equal(loaded.rows, world->pieces[i].row_count);
        }
    }
    sc_store_readers_close(reader, 1);
}

static void log_cut_at_every_byte_keeps_the_whole_records_before(void **state)
{
    (void)state;
    static struct log_image image;
    struct world *world = world_new(&small, 5);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    assert_int_equal(world_store(world, 2, 20, 60), SPEC_OK);
    assert_int_equal(world_store(world, 1, 130, 10), SPEC_OK);
    world_close(world);
    image_read(world, &image);
    struct sc_io_sim_disk *whole = world->disk;
    for (uint64_t cut = 0; cut <= image.count; cut++) {
        struct sc_io_sim_disk *disk = NULL;
        assert_int_equal(sc_io_sim_disk_copy(whole, &disk, NULL), SPEC_OK);
        world_disk(world, disk);
        assert_true(sc_io_sim_disk_resize(disk, LOG_PATH, cut));
        uint32_t expected = 0;
        bool is_border = cut == 0;
        for (uint64_t i = 0; i < image.frame_count && image.ends[i] <= cut; i++) {
            expected += frame_type(&image, i) == SC_STORE_RECORD_PIECE;
            is_border = image.ends[i] == cut;
        }
        world_open_ok(world);
        assert_int_equal(world->open_count, expected);
        assert_int_equal(stats_of(world).corrupt_records, is_border ? 0 : 1);
        check_seen(world);
        if (cut % 31 == 0) { /* and it goes on from there */
            uint32_t kept = world->piece_count;
            assert_int_equal(world_store(world, 1000 + cut, 0, 70), SPEC_OK);
            world_reopen(world);
            assert_int_equal(world->open_count, expected + 2);
            check_seen(world);
            world->piece_count = kept;
        }
        world_close(world);
        sc_io_sim_disk_close(disk);
    }
    world_disk(world, whole);
    world_free(world);
}

/* ---- A log of several windows ----------------------------------------------------------------
 *
 * It is read ahead and around the page cache, checked and decoded by a task. */

#define LONG_BYTES (5u << 19) /* of log: two and a half windows */
#define LONG_PASS  4000u      /* rows */

static const struct world_setup long_logs[] = {
    {"sim", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 1, 8, 0), WORLD_DISK(64, 8, 64)},
    {"pread", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 1, 8, 0), WORLD_DISK(64, 8, 64)}};

static void log_long_fill(struct world *world)
{
    world_open_ok(world);
    for (uint64_t key = 1; stats_of(world).log_bytes < LONG_BYTES; key++)
        assert_int_equal(world_store(world, key, key % 64, LONG_PASS), SPEC_OK);
    world_close(world);
}

static void log_of_several_windows_is_read_whole(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct world *world = world_make(&long_logs[i], 7);
        log_long_fill(world);
        world_open_ok(world);
        assert_int_equal(world->open_count, world->piece_count);
        assert_int_equal(stats_of(world).corrupt_records, 0);
        for (uint32_t piece = 0; piece < world->piece_count; piece++)
            assert_true(world->pieces[piece].seen);
        assert_int_equal(world_store(world, 5000, 0, 70), SPEC_OK); /* and goes on behind its end */
        world_reopen(world);
        assert_int_equal(world->open_count, world->piece_count);
        world_free(world);
    }
}

/* Piece records in the first `count` bytes; what is behind a bad frame does not count. */
static uint32_t pieces_before(const uint8_t *log, uint64_t count, struct sc_store_log_end end,
                              bool *ret_border)
{
    struct sc_store_frame frame;
    uint32_t pieces = 0;
    struct sc_store_record record = {0};
    while (sc_store_frame_check(log + end.offset, count - end.offset, end.offset, &end, &frame) ==
           SC_STORE_FRAME_OK) {
        assert_true(sc_store_record_peek(frame.payload, frame.payload_bytes, &record));
        pieces += record.type == SC_STORE_RECORD_PIECE;
    }
    *ret_border = end.offset == count;
    return pieces;
}

static void log_of_several_windows_may_end_or_go_bad_anywhere(void **state)
{
    (void)state;
    static uint8_t log[2 * LONG_BYTES];
    static struct log_image identity;
    struct world *world = world_new(&long_logs[0], 8);
    world_close(world);
    image_read(world, &identity);
    log_long_fill(world);
    uint64_t count = 0;
    sc_io_sim_disk_files(world->disk, find_log, &count);
    assert_true(count >= LONG_BYTES && count <= sizeof(log));
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, log, count));
    const uint64_t window = SC_STORE_WINDOW_BYTES;
    const uint64_t places[] = {window - 1,     window,        window + 1,         window + 4096,
                               2 * window - 9, 2 * window,    2 * window + 4095,  count - 4097,
                               count - 1,      count / 2 + 3, count / 4096 * 4096};
    struct sc_io_sim_disk *whole = world->disk;
    for (uint32_t i = 0; i < 2 * sizeof(places) / sizeof(places[0]); i++) {
        bool is_border, cuts = i % 2 == 0;
        uint64_t at = places[i / 2], end = cuts ? at : count;
        uint8_t flipped = log[at] ^ 0x10;
        struct sc_io_sim_disk *disk = NULL;
        assert_int_equal(sc_io_sim_disk_copy(whole, &disk, NULL), SPEC_OK);
        world_disk(world, disk);
        if (cuts)
            assert_true(sc_io_sim_disk_resize(disk, LOG_PATH, at));
        else
            assert_true(sc_io_sim_disk_poke(disk, LOG_PATH, at, &flipped, 1));
        log[at] ^= cuts ? 0 : 0x10;
        uint32_t expected = pieces_before(log, end, identity.start, &is_border);
        log[at] ^= cuts ? 0 : 0x10;
        bool unused;
        if (!cuts) /* the record is restored, and those behind it are there */
            expected = pieces_before(log, count, identity.start, &unused);
        world_open_ok(world);
        assert_int_equal(world->open_count, expected);
        assert_int_equal(stats_of(world).corrupt_records, is_border ? 0 : 1);
        world_close(world);
        sc_io_sim_disk_close(disk);
    }
    world_disk(world, whole);
    world_free(world);
}

/* A part that cannot be read is not an end: the log is refused, as it is, and opens another time.
 */
static void log_that_cannot_be_read_refuses_to_open_and_stays(void **state)
{
    (void)state;
    static uint8_t before[2 * LONG_BYTES], after[2 * LONG_BYTES];
    struct world *world = world_make(&long_logs[0], 9);
    log_long_fill(world);
    uint64_t count = 0, count_after = 0, n = 0;
    sc_io_sim_disk_files(world->disk, find_log, &count);
    assert_true(count <= sizeof(before));
    assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, before, count));
    sc_io_sim_fault_scope(world->disk, LOG_PATH);
    for (;; n++) {
        uint64_t fired = sc_io_sim_fault_fired(world->disk, SC_SIM_READ_EIO);
        sc_io_sim_fault_nth(world->disk, SC_SIM_READ_EIO, n);
        spec_status status = world_open(world);
        if (sc_io_sim_fault_fired(world->disk, SC_SIM_READ_EIO) == fired)
            break; /* it has no such read */
        assert_int_equal(status, SPEC_E_IO);
        sc_io_sim_disk_files(world->disk, find_log, &count_after);
        assert_int_equal(count_after, count);
        assert_true(sc_io_sim_disk_peek(world->disk, LOG_PATH, 0, after, count));
        assert_memory_equal(after, before, count);
    }
    assert_non_null(world->store);
    assert_true(n >= 2 * LONG_BYTES / SC_STORE_WINDOW_BYTES);
    assert_int_equal(world->open_count, world->piece_count);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    world_free(world);
}

/* Frames of an earlier life of the file, which an earlier version or a repair cut. */
static void log_of_a_cut_tail_that_comes_back_is_not_believed(void **state)
{
    (void)state;
    static struct log_image old, new;
    struct world *world = world_new(&small, 5);
    for (uint64_t key = 1; key <= 4; key++)
        assert_int_equal(world_store(world, key, 0, 64), SPEC_OK);
    world_close(world);
    image_read(world, &old);
    /* Frames: head, namespace, then extent and piece of each key. The log is cut behind key 1; the
     * next store writes records of the very same sizes and places. */
    assert_true(sc_io_sim_disk_resize(world->disk, LOG_PATH, old.ends[3]));
    world_open_ok(world);
    assert_int_equal(world->open_count, 1);
    assert_int_equal(world_store(world, 77, 0, 64), SPEC_OK);
    world_close(world);
    image_read(world, &new);
    assert_int_equal(new.count, old.ends[5]);
    memcpy(new.bytes + new.count, old.bytes + new.count, old.count - new.count);
    new.count = old.count; /* as if the truncation had been lost */
    image_write(world, &new);
    world_open_ok(world);
    assert_int_equal(world->open_count, 2);
    assert_int_equal(stats_of(world).corrupt_records, 0); /* whole frames that are not believed */
    assert_int_equal(world->store->log.journal.end.offset, old.ends[5]);
    check_seen(world);
    world_free(world);
}

/* ---- Forged records ---------------------------------------------------------------------------
 */

struct forge {
    struct world *world;
    struct log_image image;
    struct sc_store_writer writer;
    struct sc_store_part parts[4];
    struct sc_store_record_extent extent;
    struct sc_store_piece piece;
    uint32_t tokens[1024];
};

/* A store with key 1 (piece 1 in extent 1, at the start of segment 0), and records like its own
 * that a test bends before it appends them. */
static struct forge *forge_make(void)
{
    struct forge *forge = calloc(1, sizeof(*forge));
    assert_non_null(forge);
    forge->world = world_make(&small, 5);
    world_open_ok(forge->world);
    assert_int_equal(world_store(forge->world, 1, 0, 64), SPEC_OK);
    world_close(forge->world);
    image_read(forge->world, &forge->image);
    forge->writer =
        (struct sc_store_writer){forge->image.bytes, forge->image.count, LOG_MAX, false};
    forge->parts[0] = (struct sc_store_part){.offset = 64 * 4096, .layer_count = 3};
    forge->extent = (struct sc_store_record_extent){.space = 1,
                                                    .row_count = 64,
                                                    .row_offset = 512,
                                                    .stride = 512 + 64 * 96,
                                                    .part_count = 1,
                                                    .parts = forge->parts};
    forge->piece =
        (struct sc_store_piece){.id = 2, .extent = 2, .row_count = 64, .tokens = forge->tokens};
    hash_of(9, 0, forge->piece.chunk_hash);
    hash_of(9, 64, forge->piece.hash);
    for (uint32_t i = 0; i < 256; i++)
        forge->tokens[i] = token_of(9, i);
    return forge;
}

static void forge_end(struct forge *forge, uint64_t begin)
{
    sc_store_frame_end(&forge->writer, begin, false, &forge->image.end);
    forge->image.frame_count++;
    assert_false(forge->writer.overflow);
    forge->image.count = forge->writer.used;
}

static void forge_extent(struct forge *forge, uint64_t id)
{
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_extent(&forge->writer, id, &forge->extent);
    forge_end(forge, begin);
}

static void forge_piece(struct forge *forge)
{
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_piece(&forge->writer, &forge->piece);
    forge_end(forge, begin);
}

/* Opens; told: pieces that are believed; lies: records that are not. Key 1 is there in any case,
 * and a new store fits beside whatever was believed. */
static void forge_check(struct forge *forge, uint32_t told, uint64_t lies)
{
    struct world *world = forge->world;
    image_write(world, &forge->image);
    world_open_ok(world);
    assert_int_equal(world->open_count, told);
    assert_int_equal(stats_of(world).corrupt_records, lies);
    assert_true(world->pieces[0].seen);
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load_key(world, reader, 2, 1).rows, 64);
    sc_store_readers_close(reader, 1);
    assert_int_equal(world_store(world, 500, 0, 64), SPEC_OK);
    world_reopen(world);
    assert_int_equal(world->open_count, told + 1);
    world_free(world);
    free(forge);
}

static void log_an_honest_forgery_is_believed(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    forge_extent(forge, 2);
    forge_piece(forge);
    forge_check(forge, 2, 0);
}

/* A checkpoint leaves gaps. The memory that stands for them does not grow with their length. */
static void log_ids_may_skip(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct world *world = forge->world;
    forge->piece.id = 60000000u;
    forge->piece.extent = 50000000u;
    forge_extent(forge, 50000000u);
    forge_piece(forge);
    image_write(world, &forge->image);
    world_open_ok(world);
    assert_int_equal(world->open_count, 2);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    assert_true(atomic_load(&world->alloc.live_bytes) < 64u << 20);
    uint64_t mark = sc_store_piece_mark(world->store, 60000000u);
    assert_int_equal(mark, 60001000u);
    assert_int_equal(sc_store_piece_mark(world->store, 30000000u), 0);
    assert_int_equal(world_store(world, 500, 0, 64), SPEC_OK);
    assert_int_equal(world->pieces[world->piece_count - 1].id, 60000001u);
    struct sc_store_reader *reader = world_reader(world);
    assert_int_equal(world_load_key(world, reader, 2, 500).rows, 64);
    sc_store_readers_close(reader, 1);
    world_free(world);
    free(forge);
}

/* Ids of a log's head are not given again: what once had them is gone, and may be remembered. */
static void log_goes_on_behind_the_ids_of_its_head(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct world *world = forge->world;
    struct log_image *image = &forge->image;
    uint8_t first_log[LOG_MAX / 16];
    uint64_t begin = image->ends[0], count = image->count - begin;
    memcpy(first_log, image->bytes + begin, count);
    struct sc_store_record_head head = {
        .number = 3, .numbering = 9, .piece_next = 200, .extent_next = 100};
    forge->writer.used = 0;
    image->frame_count = 0;
    image->end = image->start;
    uint64_t frame = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_head(&forge->writer, &head);
    forge_end(forge, frame);
    for (uint64_t at = 0, next; at < count; at = next) { /* the old records behind it */
        uint64_t bytes = first_log[at + 4] | (uint64_t)first_log[at + 5] << 8;
        next = at + SC_STORE_FRAME_BYTES + bytes;
        frame = sc_store_frame_begin(&forge->writer);
        memcpy(forge->writer.bytes + forge->writer.used, first_log + at + SC_STORE_FRAME_BYTES,
               bytes);
        forge->writer.used += bytes;
        forge_end(forge, frame);
    }
    image_write(world, image);
    world_open_ok(world);
    assert_int_equal(world->open_count, 1);
    assert_int_equal(stats_of(world).corrupt_records, 0);
    assert_int_equal(world_store(world, 500, 0, 64), SPEC_OK);
    assert_int_equal(world->pieces[world->piece_count - 1].id, 200);
    check_seen(world);
    world_free(world);
    free(forge);
}

static void log_extents_that_do_not_fit_are_not_believed(void **state)
{
    (void)state;
    for (uint32_t bend = 0; bend < 15; bend++) {
        struct forge *forge = forge_make();
        struct sc_store_part *part = &forge->parts[0];
        struct sc_store_record_extent *extent = &forge->extent;
        switch (bend) {
        case 0: /* over extent 1, wholly */
            part->offset = 0;
            break;
        case 1: /* over its last page */
            part->offset = 4 * 4096;
            break;
        case 2: /* behind the segment's end */
            part->offset = (1u << 20) - 4096;
            break;
        case 3:
            part->offset = UINT64_MAX - 4095;
            break;
        case 4: /* no page border */
            part->offset += 512;
            break;
        case 5: /* no such segment */
            part->segment = 1;
            break;
        case 14: /* a number that no segment may have */
            part->segment = UINT32_MAX;
            break;
        case 6: /* a layer is missing */
            part->layer_count = 2;
            break;
        case 7: /* a layer too many */
            part->layer_count = 4;
            break;
        case 8: /* parts that overlap each other */
            part->layer_count = 2;
            extent->part_count = 2;
            forge->parts[1] =
                (struct sc_store_part){.offset = 65 * 4096, .layer_first = 2, .layer_count = 1};
            break;
        case 9: /* a hole in the layers */
            part->layer_count = 1;
            extent->part_count = 2;
            forge->parts[1] =
                (struct sc_store_part){.offset = 128 * 4096, .layer_first = 2, .layer_count = 1};
            break;
        case 10: /* rows would overlap the next layer */
            extent->stride = 512 + 63 * 96;
            break;
        case 11: /* rows over the tags */
            extent->row_offset = 504;
            break;
        case 12: /* a stride that overflows */
            extent->stride = UINT64_MAX - 7;
            break;
        default: /* a namespace that is not there */
            extent->space = 2;
            break;
        }
        forge_extent(forge, 2);
        forge_piece(forge);
        forge_check(forge, 1, 2); /* the extent, and its piece that now has none */
    }
}

/* Rows of 96 bytes, probe rows of 48: [48 x 64 probe rows][tags of them][512 of tags][rows]. */
static void log_sections_that_do_not_fit_are_not_believed(void **state)
{
    (void)state;
    for (uint32_t bend = 0; bend < 12; bend++) {
        struct forge *forge = forge_make();
        struct sc_store_record_extent *extent = &forge->extent;
        extent->probe_row_bytes = 48;
        extent->probe_tag_offset = 3072;
        extent->tag_offset = 3584;
        extent->row_offset = 4096;
        extent->stride = 4096 + 64 * 96;
        switch (bend) {
        case 0: /* as it may be */
            break;
        case 1: /* so too, with room for what later builds put in front */
            extent->probe_offset = 800;
            extent->probe_tag_offset += 800;
            extent->tag_offset += 800;
            extent->row_offset += 800;
            extent->stride += 800;
            break;
        case 2: /* longer than a row's keys */
            extent->probe_row_bytes = 50;
            extent->probe_tag_offset = 3200;
            extent->tag_offset = 3712;
            extent->row_offset = 4224;
            extent->stride = 4224 + 64 * 96;
            break;
        case 3: /* probe rows over their tags */
            extent->probe_offset = 8;
            break;
        case 4: /* their tags over the rows' tags */
            extent->probe_tag_offset += 8;
            break;
        case 5: /* tags over rows */
            extent->tag_offset += 8;
            break;
        case 6: /* tags behind rows */
            extent->tag_offset = 4096 + 64 * 96;
            break;
        case 7:
            extent->probe_offset = UINT64_MAX - 7;
            break;
        case 8:
            extent->probe_tag_offset = UINT64_MAX - 7;
            break;
        case 9:
            extent->tag_offset = UINT64_MAX - 7;
            break;
        case 10: /* no border of 8 */
            extent->tag_offset -= 4;
            break;
        default:
            extent->probe_row_bytes = UINT64_MAX;
            break;
        }
        forge_extent(forge, 2);
        forge_piece(forge);
        forge_check(forge, bend < 2 ? 2 : 1, bend < 2 ? 0 : 2);
    }
}

/* Nothing is known of what such rows are worth. */
/* ---- Annexes that lie ------------------------------------------------------------------------
 *
 * Of extent 1, at page 128: codes of 64 rows in 3 layers, or probe rows of 18 bytes. */

static void derived_honest(struct forge *forge, bool is_quant)
{
    forge->parts[0] = (struct sc_store_part){.offset = 128 * 4096, .layer_count = 3};
    forge->extent = (struct sc_store_record_extent){
        .stride = is_quant ? 4224 : 1664, .part_count = 1, .parts = forge->parts};
    if (is_quant)
        forge->extent.codec_shape = (struct sc_store_codec_shape){
            .bits_k = 4, .bits_v = 2, .scale_bytes = 24, .k_row_bytes = 48, .v_row_bytes = 16};
    forge->extent.probe_row_bytes = is_quant ? 0 : 18;
    forge->extent.probe_tag_offset = is_quant ? 0 : 1152;
}

/* A field of versions before 0.3 behind the others of a payload. */
static void older_put(struct sc_store_writer *writer, uint64_t payload, const char *key,
                      uint64_t value)
{
    uint8_t bytes[15] = {0xa5};
    memcpy(bytes + 1, key, 5);
    bytes[6] = 0xcf;
    for (uint32_t i = 0; i < 8; i++)
        bytes[7 + i] = (uint8_t)(value >> (56 - 8 * i));
    assert_true(writer->used + sizeof(bytes) <= writer->capacity);
    memcpy(writer->bytes + writer->used, bytes, sizeof(bytes));
    writer->used += sizeof(bytes);
    assert_in_range(writer->bytes[payload], 0x80, 0x8e); /* a map, and one entry more of it */
    writer->bytes[payload]++;
}

/* from: bytes of the payload that become `to`; NULL: none. older: of kfine and vfine; 0: not there.
 */
static void forge_section_older(struct forge *forge, uint64_t id, const char *from, const char *to,
                                const uint64_t older[2])
{
    uint64_t begin = sc_store_frame_begin(&forge->writer), payload = forge->writer.used;
    sc_store_record_encode_section(&forge->writer, id, &forge->extent);
    if (older[0] > 0)
        older_put(&forge->writer, payload, "kfine", older[0]);
    if (older[1] > 0)
        older_put(&forge->writer, payload, "vfine", older[1]);
    if (from != NULL) {
        uint8_t *at =
            memmem(forge->writer.bytes + begin, forge->writer.used - begin, from, strlen(from));
        assert_non_null(at);
        memcpy(at, to, strlen(to));
    }
    forge_end(forge, begin);
}

static void forge_section(struct forge *forge, uint64_t id, const char *from, const char *to)
{
    forge_section_older(forge, id, from, to, (const uint64_t[2]){0, 0});
}

/* Neither codes nor probe rows of key 1 can be had: none were ever written. */
static void derived_gives_nothing(struct world *world)
{
    struct sc_store_selector *selector = NULL;
    struct sc_store_slab slab;
    const struct match match = {.ranges = {{world->pieces[0].id, 0, 64}}, .count = 1};
    assert_int_equal(sc_store_selector_open(world->store, 64, 64, &selector, NULL), SPEC_OK);
    for (uint32_t layer = 0; layer < 3; layer++) {
        assert_true(quantised_begin(selector, &match, layer, SC_IO_CLASS_DEMAND));
        assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_OK);
        assert_false(sc_store_slab_of(sc_store_selector_keys(selector), 0, &slab));
        if (keys_begin(selector, &match, layer, SC_IO_CLASS_DEMAND, 18))
            assert_int_equal(sc_store_selector_wait(selector, SC_EXEC_FOREVER), SPEC_E_CORRUPT);
    }
    sc_store_selector_close(selector);
}

static void derived_check(struct forge *forge, uint64_t lies)
{
    struct world *world = forge->world;
    image_write(world, &forge->image);
    world_open_ok(world);
    assert_int_equal(stats_of(world).corrupt_records, lies);
    derived_gives_nothing(world);
    world_close(world);
    forge_check(forge, 1, lies);
}

struct bend { /* of an honest derived section */
    bool is_quant, is_believed;
    uint64_t offset, stride, scale, probe_row, probe_tags; /* 0: as it should be */
    uint32_t bits_k, layers, segment, form;
    uint64_t older[2]; /* kfine, vfine */
    const char *from, *to;
};

static void derived_bend(struct forge *forge, const struct bend *bend)
{
    struct sc_store_record_extent *derived = &forge->extent;
    derived_honest(forge, bend->is_quant);
    forge->parts[0].segment = bend->segment;
    if (bend->offset > 0)
        forge->parts[0].offset = bend->offset;
    if (bend->layers > 0)
        forge->parts[0].layer_count = bend->layers;
    if (bend->stride > 0)
        derived->stride = bend->stride;
    if (bend->scale > 0)
        derived->codec_shape.scale_bytes = bend->scale;
    if (bend->bits_k > 0)
        derived->codec_shape.bits_k = bend->bits_k;
    derived->codec_shape.form = bend->form;
    if (bend->probe_row > 0)
        derived->probe_row_bytes = bend->probe_row;
    if (bend->probe_tags > 0)
        derived->probe_tag_offset = bend->probe_tags;
}

static const struct bend LIES[] = {
    {.is_quant = true, .is_believed = true},
    {.is_believed = true},
    {.is_quant = true, .offset = 4096}, /* over the extent's own rows */
    {.offset = 4096},
    {.is_quant = true, .offset = (1u << 20) - 4096}, /* behind the segment's end */
    {.is_quant = true, .offset = 128 * 4096 + 512},
    {.is_quant = true, .segment = 3},
    {.is_quant = true, .layers = 2},
    {.is_quant = true, .layers = 4},
    {.is_quant = true, .stride = 64 * 64 + 2 * 40 - 8}, /* less than the blocks are */
    {.is_quant = true, .stride = 4228},
    {.is_quant = true, .stride = UINT64_MAX - 7},
    {.is_quant = true, .scale = UINT64_C(1) << 32},
    {.is_quant = true, .scale = UINT64_MAX},
    {.is_quant = true, .bits_k = 9},
    {.is_quant = true, .bits_k = 10},
    {.is_quant = true, .from = "bitsk", .to = "bitsx"}, /* a key is missing */
    {.is_quant = true, .from = "vcode", .to = "xcode"},
    {.is_quant = true, .from = "kcode0", .to = "kcode\xff"},
    {.is_quant = true, .from = "kind\x03", .to = "kind\x02"}, /* of no kind, another one's */
    {.is_quant = true, .from = "kind\x03", .to = "kind\x01"},
    {.is_quant = true, .from = "kind\x03", .to = "kind\x7f"},
    /* Tables of K, of K turned back, of V; each is an eighth of the scales. */
    {.is_quant = true, .is_believed = true, .form = 1, .scale = 64, .stride = 4288},
    {.is_quant = true, .is_believed = true, .form = 3, .scale = 64, .stride = 4288},
    {.is_quant = true, .is_believed = true, .form = 4, .scale = 64, .stride = 4288},
    {.is_quant = true, .is_believed = true, .form = 7, .scale = 64, .stride = 4288},
    {.is_quant = true, .form = 2, .scale = 64, .stride = 4288}, /* turned without a table */
    {.is_quant = true, .form = 6, .scale = 64, .stride = 4288},
    {.is_quant = true, .form = 8, .scale = 64, .stride = 4288}, /* of no meaning */
    {.is_quant = true, .form = 9, .scale = 64, .stride = 4288},
    {.is_quant = true, .form = UINT32_MAX, .scale = 64, .stride = 4288},
    {.is_quant = true, .form = 1}, /* a table of no whole words */
    {.is_quant = true, .form = 4, .scale = 96, .stride = 8192},
    {.is_quant = true, .form = 7, .scale = 64, .stride = 64 * 64 + 2 * 88 - 8}, /* no room */
    {.is_quant = true, .form = 1, .scale = 64, .stride = 4288, .from = "group", .to = "groux"},
    /* Rows behind the blocks, of an older version: told of K and V or of neither; not looked at. */
    {.is_quant = true, .is_believed = true, .older = {8, 8}, .stride = 5760},
    {.is_quant = true, .is_believed = true, .older = {9, 7}, .stride = 5760},
    {.is_quant = true, .is_believed = true, .older = {8, 8}},
    {.is_quant = true, .older = {8, 8}, .stride = 64 * 64 + 2 * 40 - 8}, /* nor the blocks fit */
    {.is_quant = true, .older = {8, 0}, .stride = 5760},
    {.is_quant = true, .older = {0, 8}, .stride = 5760},
    {.older = {8, 8}, .stride = 5760}, /* of probe rows */
    {.is_quant = true, .older = {UINT64_MAX, 1}, .stride = 5760},
    {.is_quant = true, .older = {UINT32_MAX, UINT32_MAX}, .stride = 5760},
    {.is_quant = true, .older = {8, 8}, .stride = 5760, .from = "kfine", .to = "xfine"},
    {.is_quant = true, .older = {8, 8}, .stride = 5760, .from = "vfine", .to = "xfine"},
    {.from = "kind\x01", .to = "kind\x03"},
    {.from = "ptags", .to = "ptagx"},
    {.probe_row = 50},
    {.probe_tags = 1144},
    {.stride = 1656},
};

static void log_sections_that_lie_harm_nothing(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < sizeof(LIES) / sizeof(LIES[0]); i++) {
        struct forge *forge = forge_make();
        derived_bend(forge, &LIES[i]);
        forge_section_older(forge, 1, LIES[i].from, LIES[i].to, LIES[i].older);
        derived_check(forge, LIES[i].is_believed ? 0 : 1);
    }
}

/* ---- Editions that lie ----------------------------------------------------------------------- */

static void forge_slots(struct forge *forge, uint64_t copy, uint64_t layer, uint64_t layers,
                        const uint16_t *slots, uint64_t rows)
{
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_permutation(&forge->writer, 1, copy, (uint32_t)layer, slots, rows,
                                       (uint32_t)layers);
    forge_end(forge, begin);
}

/* Of extent 1, at page 128, by rows backwards: each is as it should be but for one thing. Rows are
 * read where they were stored, as if there were none. */
static void log_permuted_copies_that_lie_harm_nothing(void **state)
{
    (void)state;
    static const uint64_t lies[] = {1, 1, 2, 1, 2, 2, 1, 1, 2, 1, 1, 1, 2};
    for (uint32_t bend = 0; bend < sizeof(lies) / sizeof(lies[0]); bend++) {
        struct forge *forge = forge_make();
        uint16_t slots[4 * 64];
        for (uint32_t i = 0; i < 4 * 64; i++)
            slots[i] = (uint16_t)(63 - i % 64);
        forge->parts[0] = (struct sc_store_part){.offset = 128 * 4096, .layer_count = 3};
        forge->extent = (struct sc_store_record_extent){.is_order = true,
                                                        .copy = 77,
                                                        .row_offset = 512,
                                                        .stride = 512 + 64 * 96,
                                                        .part_count = 1,
                                                        .parts = forge->parts};
        const char *from = NULL, *to = NULL;
        uint64_t rows = 64, copy = 77, first = 0, layers = 3;
        switch (bend) {
        case 0: /* no slots */
            layers = 0;
            break;
        case 1: /* not of all layers */
            layers = 2;
            break;
        case 2: /* a slot twice */
            slots[64 + 5] = 9;
            break;
        case 3: /* of another edition */
            copy = 78;
            break;
        case 4: /* not from the first layer on */
            first = 1;
            layers = 2;
            break;
        case 5: /* not of all rows */
            rows = 62;
            break;
        case 6: /* rows over tags */
            forge->extent.row_offset = 504;
            break;
        case 7: /* probe rows that the extent has not */
            forge->extent.probe_row_bytes = 18;
            forge->extent.probe_tag_offset = 1152;
            forge->extent.tag_offset = 1664;
            forge->extent.row_offset = 2176;
            forge->extent.stride = 2176 + 64 * 96;
            break;
        case 8: /* a slot that is none */
            slots[2 * 64] = 64;
            break;
        case 9: /* over the extent's own rows */
            forge->parts[0].offset = 4096;
            break;
        case 10: /* a key is missing */
            from = "off", to = "ofx";
            break;
        case 11: /* another kind's members */
            from = "kind\x06", to = "kind\x05";
            break;
        default: /* more layers than there are */
            layers = 4;
            break;
        }
        if (layers > 0)
            forge_slots(forge, copy, first, layers, slots, rows);
        forge_section(forge, 1, from, to);
        forge_check(forge, 1, lies[bend]);
    }
}

static uint32_t form_of(struct world *world)
{
    const struct sc_store_extent_entry *extent = sc_store_table_extent(&world->store->table, 1);
    const struct sc_store_section *codes = atomic_load(&extent->codes);
    assert_non_null(codes);
    assert_int_equal(codes->codec_shape.scale_bytes, 64);
    return codes->codec_shape.form;
}

/* As they were written, and in the log that is written anew. */
static void log_forms_of_codes_are_kept(void **state)
{
    (void)state;
    static const uint32_t FORMS[] = {0, 1, 3, 4, 5, 7};
    for (uint32_t i = 0; i < sizeof(FORMS) / sizeof(FORMS[0]); i++) {
        struct forge *forge = forge_make();
        struct world *world = forge->world;
        derived_honest(forge, true);
        forge->extent.stride = 4288;
        forge->extent.codec_shape.scale_bytes = 64;
        forge->extent.codec_shape.form = FORMS[i];
        forge_section(forge, 1, NULL, NULL);
        image_write(world, &forge->image);
        for (uint32_t opened = 0; opened < 3; opened++) {
            world_open_ok(world);
            assert_int_equal(stats_of(world).corrupt_records, 0);
            assert_int_equal(form_of(world), FORMS[i]);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_close(world);
        }
        world_free(world);
        free(forge);
    }
}

/* A derived section of kind 5 of extent 1, as earlier versions wrote it, from a page of segment 0
 * on. */
static void forge_retired(struct forge *forge, uint8_t page)
{
    static const char RECORD[] = "\x89\xA1v\x01\xA1t\x08\xA2id\x01\xA4kind\x05\xA4"
                                 "copy\x07\xA5hrows\x01\xA3hot\xC4\x18\x01\0\0\0\0\0\0\0"
                                 "\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0"
                                 "\xA6stride\xCD\x10\x00\xA5parts\x91\x94\x00\xCE\x00";
    const uint8_t offset[] = {page >> 4, (uint8_t)(page << 4), 0, 0, 3}; /* of 3 layers */
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    memcpy(forge->writer.bytes + forge->writer.used, RECORD, sizeof(RECORD) - 1);
    forge->writer.used += sizeof(RECORD) - 1;
    memcpy(forge->writer.bytes + forge->writer.used, offset, sizeof(offset));
    forge->writer.used += sizeof(offset);
    forge_end(forge, begin);
}

/* It is no lie, wherever it stands, and what is stored behind it may have its pages. */
static void log_a_retired_section_counts_for_nothing(void **state)
{
    (void)state;
    static const uint8_t PAGES[] = {1, 64, 128}; /* the extent's own, free ones, the codes' */
    for (uint32_t i = 0; i < sizeof(PAGES); i++) {
        struct forge *forge = forge_make();
        struct world *world = forge->world;
        image_write(world, &forge->image);
        world_open_ok(world);
        uint64_t bytes = stats_of(world).extent_bytes;
        world_close(world);
        forge_retired(forge, PAGES[i]);
        image_write(world, &forge->image);
        world_open_ok(world);
        assert_int_equal(stats_of(world).extent_bytes, bytes);
        space_check(world->store);
        world_close(world);
        derived_honest(forge, true);
        forge_section(forge, 1, NULL, NULL);
        image_write(world, &forge->image);
        for (uint32_t opened = 0; opened < 3; opened++) {
            world_open_ok(world);
            assert_int_equal(stats_of(world).corrupt_records, 0);
            assert_true(stats_of(world).extent_bytes > bytes);
            space_check(world->store);
            if (opened == 1)
                assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_close(world);
        }
        forge_check(forge, 1, 0);
    }
}

/* The first of each kind counts; what stands in its pages does not. One of no extent is ignored. */
static void log_sections_beside_others_are_one_of_a_kind(void **state)
{
    (void)state;
    for (uint32_t bend = 0; bend < 4; bend++) {
        struct forge *forge = forge_make();
        derived_honest(forge, true);
        forge_section(forge, bend == 3 ? 7 : 1, NULL, NULL);
        derived_honest(forge, bend == 0);
        if (bend != 1)
            forge->parts[0].offset = 192 * 4096;
        forge_section(forge, 1, NULL,
                      NULL); /* a second one; in its place; of the other kind; alone */
        derived_check(forge, bend < 2 ? 1 : 0);
    }
}

static void log_provenances_that_do_not_exist_are_not_believed(void **state)
{
    (void)state;
    static const struct sc_store_provenance BENT[] = {
        {.computed_on = 3}, {.retain_ppm = 1000001}, {.exact_ppm = 1000001}};
    for (uint32_t bend = 0; bend < 3; bend++) {
        struct forge *forge = forge_make();
        forge->extent.provenance = BENT[bend];
        forge_extent(forge, 2);
        forge_piece(forge);
        forge_check(forge, 1, 2); /* the extent, and its piece that now has none */
    }
}

static void log_pieces_that_do_not_fit_are_not_believed(void **state)
{
    (void)state;
    for (uint32_t bend = 0; bend < 9; bend++) {
        struct forge *forge = forge_make();
        struct sc_store_piece *piece = &forge->piece;
        uint32_t told = 1;
        uint64_t lies = 1;
        switch (bend) {
        case 0: /* rows behind the extent's end */
            piece->extent_row = 1;
            break;
        case 1: /* another's extent */
            piece->extent = 1;
            break;
        case 2: /* none */
            piece->extent = 3;
            break;
        case 3: /* an id that was used */
            piece->id = 1;
            break;
        case 4: /* the first id that no table has */
            piece->id = SC_STORE_IDS;
            break;
        case 5:
            piece->id = UINT64_MAX;
            break;
        case 6: /* all rows are elsewhere */
            piece->skip = 64;
            break;
        case 7: /* before its chunk */
            piece->chunk_first = 1;
            piece->first_position = 0;
            piece->row_count = 2;
            break;
        default: /* believed, and a second one over the same rows is not */
            forge_extent(forge, 2);
            forge_piece(forge);
            piece->id = 3;
            forge_piece(forge);
            forge_check(forge, 2, 1);
            continue;
        }
        forge_extent(forge, 2);
        forge_piece(forge);
        forge_check(forge, told, lies);
    }
}

/* ---- Pieces that no pass leaves -------------------------------------------------------------- */

/* Of extent 2: rows [row, row + rows), the first of which is at `position`. */
static void forge_rows(struct forge *forge, uint64_t id, uint32_t row, uint32_t rows,
                       uint64_t position)
{
    struct sc_store_piece *piece = &forge->piece;
    *piece = (struct sc_store_piece){.id = id,
                                     .extent = 2,
                                     .extent_row = row,
                                     .row_count = rows,
                                     .first_position = position,
                                     .chunk_first = position / 64 * 64,
                                     .tokens = forge->tokens};
    for (uint64_t i = piece->chunk_first; i < position + rows; i++)
        forge->tokens[i - piece->chunk_first] = token_of(9, i);
    hash_of(9, piece->chunk_first, piece->chunk_hash);
    hash_of(9, position + rows, piece->hash);
    forge_piece(forge);
}

/* Where a piece's codes stand follows from its position and its row: pieces of an extent are rows
 * that follow each other, each within a chunk. Whoever builds codes reads a piece at once. */
static void log_pieces_that_no_pass_leaves_are_not_believed(void **state)
{
    (void)state;
    static const struct {
        bool is_alone, is_believed;
        uint32_t row, rows;
        uint64_t position;
    } SECOND[] = {
        {.is_believed = true, .row = 64, .rows = 64, .position = 64}, /* as a pass leaves them */
        {.is_believed = true, .row = 64, .rows = 1, .position = 64},  /* shorter */
        {.is_believed = true, .row = 80, .rows = 10, .position = 80}, /* others are gone */
        {.row = 64, .rows = 64, .position = 128},                     /* other rows than follow */
        {.row = 64, .rows = 64, .position = 0},    /* fewer stand before it than in the extent */
        {.row = 64, .rows = 65, .position = 64},   /* two chunks */
        {.row = 100, .rows = 64, .position = 100}, /* across a border */
        {.is_alone = true, .row = 0, .rows = 1000, .position = 0}, /* more than one read takes */
    };
    for (uint32_t i = 0; i < sizeof(SECOND) / sizeof(SECOND[0]); i++) {
        struct forge *forge = forge_make();
        uint32_t told = 1 + !SECOND[i].is_alone + SECOND[i].is_believed;
        keep_quant(forge->world, true);
        forge->extent.row_count = 1000;
        forge->extent.row_offset = 8192;
        forge->extent.stride = 8192 + 1000 * 96;
        forge_extent(forge, 2);
        if (!SECOND[i].is_alone)
            forge_rows(forge, 2, 0, 64, 0);
        forge_rows(forge, 3, SECOND[i].row, SECOND[i].rows, SECOND[i].position);
        image_write(forge->world, &forge->image);
        world_open_ok(forge->world);
        build_all(forge->world, 0);
        world_close(forge->world);
        keep_quant(forge->world, false);
        forge_check(forge, told, !SECOND[i].is_believed);
    }
}

/* ---- Ids that are left free -------------------------------------------------------------------
 */

/* One extent and the first `rows` of its 64 as a piece; each at a place of its own. */
static void late_put(struct forge *forge, uint64_t extent, uint64_t piece, uint64_t page, bool gap,
                     uint32_t rows)
{
    forge->parts[0].offset = page * 4096;
    forge->extent.copy = page;
    forge->extent.leaves_ids = gap;
    forge_extent(forge, extent);
    forge->piece.id = piece;
    forge->piece.extent = extent;
    forge->piece.row_count = rows;
    hash_of(9, rows, forge->piece.hash);
    forge_piece(forge);
}

static void late_drop(struct forge *forge, uint64_t piece)
{
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_drop(&forge->writer, piece, 1000);
    forge_end(forge, begin);
}

/* What is believed is the same in every log that says it; lies are in the first alone. */
static void late_check(struct forge *forge, uint32_t told, uint64_t lies)
{
    struct world *world = forge->world;
    image_write(world, &forge->image);
    for (uint32_t round = 0; round < 4; round++) {
        world_open_ok(world);
        assert_int_equal(world->open_count, told);
        if (round == 0)
            assert_int_equal(stats_of(world).corrupt_records, lies);
        if (round > 1)
            assert_int_equal(stats_of(world).corrupt_records, 0);
        if (round > 0)
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
        struct sc_store_reader *reader = world_reader(world);
        assert_int_equal(world_load_key(world, reader, 2, 1).rows, 64);
        sc_store_readers_close(reader, 1);
        world_close(world);
    }
    world_open_ok(world);
    assert_int_equal(world_store(world, 500, 0, 64), SPEC_OK);
    world_free(world);
    free(forge);
}

enum late_what {
    LATE_HONEST,
    LATE_NO_GAP,      /* nobody left the ids free */
    LATE_TWICE,       /* the second one, elsewhere */
    LATE_TAKEN,       /* the extent's id was left free, the piece's is another's */
    LATE_ELSEWHERE,   /* the piece's was, in an extent that took none */
    LATE_MANY,        /* two pieces in an extent that took one */
    LATE_NEXT,        /* a piece that comes next in an extent that took one */
    LATE_DROPPED,     /* nobody's any more */
    LATE_THEN_GONE,   /* dropped as any piece is */
    LATE_OVERLAPS,    /* in others' place: refused, and dropped */
    LATE_LEAVES,      /* what took an id leaves none: refused, and dropped */
    LATE_NO_LAST,     /* the last piece of what left them is not there: the next id */
    LATE_NO_LAST_LIES /* and no other */
};

static void late_forge(struct forge *forge, enum late_what what)
{
    bool no_last = what == LATE_NO_LAST || what == LATE_NO_LAST_LIES;
    late_put(forge, 2, 2, 64, what != LATE_NO_GAP, no_last ? 32 : 64);
    late_put(forge, 4, 4, 80, false, 64);
    if (what == LATE_DROPPED)
        late_drop(forge, 3);
    if (what == LATE_ELSEWHERE)
        late_put(forge, 5, 3, 96, false, 64);
    else if (what == LATE_OVERLAPS)
        late_put(forge, 3, 3, 81, false, 64);
    else if (what == LATE_TAKEN)
        late_put(forge, 3, 2, 96, false, 64);
    else if (what == LATE_NEXT || what == LATE_NO_LAST)
        late_put(forge, 3, 5, 96, false, 64);
    else
        late_put(forge, 3, 3, 96, what == LATE_LEAVES, what == LATE_MANY ? 32 : 64);
    if (what == LATE_TWICE)
        late_put(forge, 3, 3, 112, false, 64);
    if (what == LATE_LEAVES) /* so this one comes next */
        late_put(forge, 5, 5, 112, false, 64);
    if (what == LATE_MANY) {
        forge->piece.id = 5;
        forge->piece.extent_row = 32;
        forge_piece(forge);
    }
    if (what == LATE_THEN_GONE)
        late_drop(forge, 3);
}

static void log_ids_that_are_left_free_are_taken_once(void **state)
{
    (void)state;
    static const struct {
        enum late_what what;
        uint32_t told;
        uint64_t lies;
    } CASES[] = {
        {LATE_HONEST, 4, 0},       {LATE_NO_GAP, 3, 2},   {LATE_TWICE, 4, 2},  {LATE_TAKEN, 3, 1},
        {LATE_ELSEWHERE, 3, 1},    {LATE_MANY, 4, 1},     {LATE_NEXT, 3, 1},   {LATE_DROPPED, 3, 2},
        {LATE_THEN_GONE, 3, 0},    {LATE_OVERLAPS, 3, 2}, {LATE_LEAVES, 4, 2}, {LATE_NO_LAST, 4, 0},
        {LATE_NO_LAST_LIES, 3, 1},
    };
    for (uint32_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct forge *forge = forge_make();
        late_forge(forge, CASES[i].what);
        late_check(forge, CASES[i].told, CASES[i].lies);
    }
}

/* ---- Two readers of one log -------------------------------------------------------------------
 */

static void alike_on_drop(uint64_t piece, uint64_t mark, void *user)
{
    struct world *world = user;
    (void)piece;
    (void)mark;
    world->open_count--;
}

static void alike_on_epoch(uint64_t epoch, void *user)
{
    struct world *world = user;
    (void)epoch;
    world->open_count = 0;
}

/* Who hears of drops as they come and who must know of them first end with as many pieces, in that
 * log, in what a checkpoint makes of it, and with one stored behind it. */
static void alike_check(struct forge *forge, uint32_t told, uint64_t lies)
{
    struct world *world = forge->world;
    for (uint32_t hears = 0; hears < 2; hears++) {
        image_write(world, &forge->image);
        world->params.on_drop = hears == 1 ? alike_on_drop : NULL;
        world->params.on_epoch = hears == 1 ? alike_on_epoch : NULL;
        for (uint32_t round = 0; round < 3; round++) {
            world_open_ok(world);
            assert_int_equal(world->open_count, told);
            assert_int_equal(stats_of(world).corrupt_records, round == 0 ? lies : 0);
            assert_int_equal(sc_store_checkpoint(world->store, NULL), SPEC_OK);
            world_close(world);
        }
        world_open_ok(world);
        assert_int_equal(world_store(world, 500 + hears, 0, 64), SPEC_OK);
        world_reopen(world);
        assert_int_equal(world->open_count, told + 1);
        world_close(world);
    }
    world_free(world);
    free(forge);
}

/* It is void from the epoch on, and its pages are another's before the drop record comes. */
static void log_epochs_end_pieces_that_a_later_record_drops(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    late_put(forge, 2, 2, 64, false, 64);
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    sc_store_record_encode_epoch(&forge->writer, 1, 1, 1000);
    forge_end(forge, begin);
    late_put(forge, 3, 3, 64, false, 64);
    late_drop(forge, 2);
    alike_check(forge, 1, 0);
}

/* A piece behind the one of an extent that took an id uses up its own, however large: what both
 * scans of a writer's open take for the next id is the same. */
static void log_pieces_that_stray_use_up_their_ids(void **state)
{
    (void)state;
    static const uint64_t STRAYS[] = {9, 3 * SC_STORE_TABLE_SLAB};
    for (uint32_t i = 0; i < sizeof(STRAYS) / sizeof(STRAYS[0]); i++) {
        struct forge *forge = forge_make();
        late_put(forge, 2, 2, 64, true, 64);
        late_put(forge, 4, 4, 80, false, 64);
        late_put(forge, 3, 3, 96, false, 64);
        forge->piece.id = STRAYS[i];
        forge_piece(forge);
        late_drop(forge, 6); /* of none that is there */
        late_put(forge, 5, 6, 112, false, 64);
        late_put(forge, 6, 7, 128, false, 64);
        late_drop(forge, 7);
        alike_check(forge, 4, 3);
    }
}

/* One that took an id and leaves some would leave them once what left it its own is gone; then the
 * next extent would be taken for one of a single piece. */
static void log_extents_that_took_an_id_and_leave_some_stay_lies(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    late_put(forge, 2, 2, 64, true, 64);
    late_put(forge, 3, 3, 96, true, 64);
    late_put(forge, 4, 4, 80, false, 32);
    forge->piece.id = 5;
    forge->piece.extent_row = forge->piece.first_position = 32;
    hash_of(9, 64, forge->piece.hash);
    forge_piece(forge);
    late_drop(forge, 2);
    alike_check(forge, 3, 2);
}

/* Two extents under one id, of which the first has it, and stays where it is: its piece comes next,
 * or does not stand directly behind it. The second one is what a checkpoint moves. */
static void twice_put(struct forge *forge, bool is_next)
{
    late_put(forge, 2, 2, 64, true, is_next ? 32 : 64);
    if (is_next)
        forge_extent(forge, 5); /* a lie: its place is taken; so that 3 comes late */
    else
        late_put(forge, 5, 5, 80, false, 64);
    late_put(forge, 3, is_next ? 3 : 2, 96, false, 64);
    if (!is_next) {
        forge->piece.id = 3;
        forge_piece(forge);
    }
    late_put(forge, 3, 3, 112, false, 32);
    late_put(forge, 6, 6, 128, false, 64);
}

static void log_checkpoints_move_no_extent_that_was_not_believed(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct forge *forge = forge_make();
        twice_put(forge, round % 2 == 0);
        if (round >= 2) {
            alike_check(forge, round == 2 ? 4 : 5, 3);
            continue;
        }
        image_write(forge->world, &forge->image);
        world_open_ok(forge->world);
        assert_int_equal(sc_store_piece_rows(forge->world->store, 3), 64);
        assert_int_equal(sc_store_checkpoint(forge->world->store, NULL), SPEC_OK);
        world_reopen(forge->world);
        assert_int_equal(sc_store_piece_rows(forge->world->store, 3), 64);
        world_free(forge->world);
        free(forge);
    }
}

/* The extents that left ids free are dropped, and the next checkpoint leaves them out. Extents that
 * took these ids have to precede the extent with the next id then: ids of a log ascend. */
static void log_checkpoints_put_late_extents_in_order(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    late_put(forge, 2, 2, 64, true, 64);
    late_put(forge, 4, 4, 80, true, 64);
    late_put(forge, 6, 6, 96, false, 64);
    late_put(forge, 5, 5, 112, false, 64); /* behind larger ids, and not in their own order */
    late_put(forge, 3, 3, 128, false, 64);
    late_drop(forge, 2);
    late_drop(forge, 4);
    late_put(forge, 7, 7, 144, false, 64);
    alike_check(forge, 5, 0); /* 1, 3, 5, 6, 7 */
}

/* A damaged record of such a log is restored, and the checkpoint that follows keeps what the log
 * says, whichever record it is. */
static void log_checkpoints_of_late_extents_restore_any_record(void **state)
{
    (void)state;
    static struct log_image image;
    struct forge *forge = forge_make();
    struct world *world = forge->world;
    late_put(forge, 2, 2, 64, true, 64);
    late_put(forge, 4, 4, 80, true, 64);
    late_put(forge, 6, 6, 96, false, 64);
    late_put(forge, 5, 5, 112, false, 64);
    late_put(forge, 3, 3, 128, false, 64);
    late_put(forge, 7, 7, 144, false, 64);
    image_write(world, &forge->image);
    image_read(world, &image);
    for (uint64_t i = 0; i < image.frame_count; i++)
        for (uint64_t where = 0; where < 2; where++) {
            const uint64_t begin = i == 0 ? 0 : image.ends[i - 1];
            image_write(world, &image);
            disk_flip(world, LOG_PATH, begin + (where == 0 ? 4 : SC_STORE_FRAME_BYTES + 20), 2);
            for (uint32_t round = 0; round < 2; round++) {
                world_open_ok(world);
                assert_int_equal(world->open_count, 7);
                assert_int_equal(stats_of(world).corrupt_records, round == 0);
                assert_int_equal(stats_of(world).checkpoints, round == 0);
                world_close(world);
            }
        }
    world_free(world);
    free(forge);
}

/* The log has the records of an extent and of its second piece twice, byte for byte. A checkpoint
 * that copies the second record of the extent in place of the first one loses the first piece. */
static void log_checkpoints_copy_the_first_of_two_records_of_an_extent(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct sc_store_piece *piece = &forge->piece;
    late_put(forge, 2, 2, 64, true, 64);
    late_put(forge, 4, 4, 80, false, 32);
    piece->id = 5;
    piece->extent_row = 32;
    piece->first_position = 32;
    hash_of(9, 64, piece->hash);
    forge_piece(forge);
    forge_extent(forge, 4);
    forge_piece(forge);
    piece->extent_row = 0;
    piece->first_position = 0;
    late_put(forge, 3, 3, 96, false, 64); /* a checkpoint looks for what comes late */
    alike_check(forge, 5, 2);             /* 1, 2, 4, 5, 3 */
}

/* ---- Ids that do not come ---------------------------------------------------------------------
 */

/* Behind the last ids that there are, none is left free. */
static void log_the_last_ids_leave_none_free(void **state)
{
    (void)state;
    for (uint64_t back = 1; back <= 3; back++) {
        struct forge *forge = forge_make();
        late_put(forge, SC_STORE_IDS - back, SC_STORE_IDS - back, 64, true, 64);
        late_put(forge, SC_STORE_IDS - back + 1, SC_STORE_IDS - back + 1, 96, false, 64);
        image_write(forge->world, &forge->image);
        world_open_ok(forge->world);
        assert_int_equal(forge->world->open_count, back > 1 ? 3 : 2);
        assert_int_equal(stats_of(forge->world).corrupt_records, back > 1 ? 0 : 2);
        world_free(forge->world);
        free(forge);
    }
}

static void log_drops_of_nothing_are_harmless(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    forge_extent(forge, 2);
    forge_piece(forge);
    const uint64_t ids[] = {0, 2, 2, 3, UINT64_MAX, 1u << 30};
    for (uint32_t i = 0; i < 6; i++) {
        uint64_t begin = sc_store_frame_begin(&forge->writer);
        sc_store_record_encode_drop(&forge->writer, ids[i], 1000 + i);
        forge_end(forge, begin);
    }
    forge_check(forge, 1, 0); /* piece 2 is gone, piece 1 is not */
}

/* Rows that begin behind the extent's end: what is left of it there is less than none. */
static void log_pieces_behind_their_extents_end_are_not_believed(void **state)
{
    (void)state;
    static const uint32_t ROWS[] = {64, 65, 100, 8192, SC_STORE_ROWS_MAX - 1};
    for (uint32_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        struct forge *forge = forge_make();
        forge_extent(forge, 2);
        forge_rows(forge, 2, ROWS[i], 1, ROWS[i]);
        forge_check(forge, 1, 1);
    }
}

/* Of an id that was left out, whose neighbour is there; and of the first namespace that is not. */
static void log_records_of_ids_that_were_left_out_are_harmless(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct sc_store_stats stats;
    forge->piece.id = 4000;
    forge_extent(forge, 2);
    forge_piece(forge);
    for (uint64_t id = 2; id < 40; id++) {
        uint64_t begin = sc_store_frame_begin(&forge->writer);
        sc_store_record_encode_drop(&forge->writer, id, 1000);
        forge_end(forge, begin);
    }
    static const uint64_t SPACES[] = {0, 2, SC_STORE_SPACES_MAX + 1, UINT64_MAX};
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t begin = sc_store_frame_begin(&forge->writer);
        sc_store_record_encode_epoch(&forge->writer, SPACES[i], 7, 1000);
        forge_end(forge, begin);
    }
    image_write(forge->world, &forge->image);
    world_open_ok(forge->world);
    sc_store_stats(forge->world->store, &stats);
    assert_int_equal(stats.piece_count, 2);
    assert_int_equal(stats.extent_count, 2);
    assert_int_equal(sc_store_epoch(forge->world->store), 0);
    world_close(forge->world);
    forge_check(forge, 2, 4);
}

/* Gaps of nearly all ids that there are: nothing counts them one by one. */
static void log_gaps_of_any_length_are_passed_over(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct world *world = forge->world;
    const uint64_t last = SC_STORE_IDS - 4095; /* the table's last slab begins */
    forge_extent(forge, 2);
    forge_rows(forge, 2, 64, 1, 64); /* refused, as its twin at the other end */
    forge_rows(forge, last, 64, 1, 64);
    forge_extent(forge, last);
    image_write(world, &forge->image);
    world_open_ok(world);
    assert_int_equal(sc_store_piece_next(world->store), last + 1);
    assert_int_equal(sc_store_piece_from(world->store, 1), 1);
    assert_int_equal(sc_store_piece_from(world->store, 4096), last);
    assert_int_equal(sc_store_piece_from(world->store, SC_STORE_IDS - 1), SC_STORE_IDS - 1);
    assert_int_equal(sc_store_piece_from(world->store, SC_STORE_IDS), UINT64_MAX);
    assert_int_equal(sc_store_epoch_set(world->store, 1, &world->error), SPEC_OK);
    keep_quant(world, true);
    world_reopen(world);
    build_all(world, 0); /* looks at every extent that there may be */
    world_close(world);
    keep_quant(world, false);
    world_free(world);
    free(forge);
}

/* A record of raw msgpack: our decoder refuses what msgpack allows but the format does not. */
static void log_maps_with_wrong_keys_are_not_believed(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        uint64_t count;
    } payloads[] = {
        {"\x80", 1},                                        /* no keys */
        {"\xC1", 1},                                        /* no msgpack */
        {"\x83\xA1v\x01\xA1t\x02\xA2id\x02", 11},           /* an extent without places */
        {"\x84\xA1v\x01\xA1t\x04\xA2id\x01\xA2id\x01", 15}, /* a key twice */
        {"\x83\xA1v\x01\xA1t\x04\xA2id\xFF", 11},           /* a negative id */
        {"\x84\xA1v\x01\xA1t\x04\xA2id\x01\xA1x\xDD\xFF\xFF\xFF\xFF", 18}, /* a length that lies */
        {"\x83\xA1v\x01\xA1t\x04\xA2id\x01", 11},                          /* a drop of no time */
        {"\x83\xA1v\x01\xA1t\x05\xA2id\x01", 11},                          /* an epoch of none */
        {"\x85\xA1v\x01\xA1t\x05\xA2id\x01\xA5"
         "epoch\x00\xA2"
         "at\x01",
         22},                                     /* is never 0 */
        {"\x83\xA1v\x01\xA1t\x06\xA2id\x00", 11}, /* a head without keys */
        {"\x87\xA1v\x01\xA1t\x06\xA2id\x00\xA1n\x00\xA9numbering\x00\xA5piece\x01\xA6"
         "extent\x01",
         40},                                         /* a head that is not the first */
        {"\x83\xA1v\x01\xA1t\x04\xA2id\x01\x00", 12}, /* a byte too many */
        {"\xDF\xFF\xFF\xFF\xFF", 5}};
    for (uint32_t i = 0; i < sizeof(payloads) / sizeof(payloads[0]); i++) {
        struct forge *forge = forge_make();
        uint64_t begin = sc_store_frame_begin(&forge->writer);
        memcpy(forge->writer.bytes + forge->writer.used, payloads[i].bytes, payloads[i].count);
        forge->writer.used += payloads[i].count;
        forge_end(forge, begin);
        forge_check(forge, 1, 1);
    }
}

static void log_unknown_keys_are_skipped(void **state)
{
    (void)state;
    struct forge *forge = forge_make();
    struct log_image *image = &forge->image;
    uint64_t begin = sc_store_frame_begin(&forge->writer);
    const char drop[] = "\x86\xA2"
                        "at\x05\xA1v\x01\xA1n\x92\xC0\x81\xA1k\xCB\x00\x00\x00\x00\x00\x00\x00\x00"
                        "\xA1t\x04\xA1z\xC7\x02\x05\x01\x02\xA2id\x01";
    memcpy(image->bytes + forge->writer.used, drop, sizeof(drop) - 1);
    forge->writer.used += sizeof(drop) - 1;
    forge_end(forge, begin);
    image_write(forge->world, image);
    world_open_ok(forge->world);
    assert_int_equal(forge->world->open_count, 0); /* the drop of piece 1 was understood */
    assert_int_equal(stats_of(forge->world).corrupt_records, 0);
    world_free(forge->world);
    free(forge);
}

static void log_of_a_newer_version_or_type_refuses_to_open(void **state)
{
    (void)state;
    static const char *const payloads[] = {"\x83\xA1v\x02\xA1t\x04\xA2id\x01",
                                           "\x83\xA1v\x01\xA1t\x0B\xA2id\x01"};
    for (uint32_t i = 0; i < 2; i++) {
        struct forge *forge = forge_make();
        uint64_t begin = sc_store_frame_begin(&forge->writer);
        memcpy(forge->writer.bytes + forge->writer.used, payloads[i], 11);
        forge->writer.used += 11;
        forge_end(forge, begin);
        image_write(forge->world, &forge->image);
        static struct log_image after;
        assert_int_equal(world_open(forge->world), SPEC_E_VERSION);
        assert_non_null(strstr(forge->world->error.text, "record 5"));
        image_read(forge->world, &after);
        assert_int_equal(after.count, forge->image.count); /* nothing was cut */
        world_free(forge->world);
        free(forge);
    }
}

/* ---- Another reader ----------------------------------------------------------------------------
 */

static const msgpack_object *map_get(const msgpack_object *map, const char *key)
{
    for (uint32_t i = 0; i < map->via.map.size; i++) {
        const msgpack_object_str *str = &map->via.map.ptr[i].key.via.str;
        if (str->size == strlen(key) && memcmp(str->ptr, key, str->size) == 0)
            return &map->via.map.ptr[i].val;
    }
    fail_msg("no key %s", key);
    return NULL;
}

static void log_records_are_msgpack_to_another_reader_too(void **state)
{
    (void)state;
    static struct log_image image;
    struct world *world = world_new(&small, 5);
    assert_int_equal(world_store(world, 1, 70, 30), SPEC_OK);
    sc_store_piece_drop(world->store, 1);
    image_read(world, &image); /* before close, which would write a shorter one */
    assert_int_equal(image.frame_count, 5);
    static const uint64_t types[5] = {SC_STORE_RECORD_HEAD, SC_STORE_RECORD_NAMESPACE,
                                      SC_STORE_RECORD_EXTENT, SC_STORE_RECORD_PIECE,
                                      SC_STORE_RECORD_DROP};
    for (uint64_t i = 0; i < 5; i++) {
        uint64_t begin = (i == 0 ? 0 : image.ends[i - 1]) + SC_STORE_FRAME_BYTES;
        msgpack_unpacked unpacked;
        size_t offset = 0;
        msgpack_unpacked_init(&unpacked);
        assert_int_equal(msgpack_unpack_next(&unpacked, (const char *)image.bytes + begin,
                                             image.ends[i] - begin, &offset),
                         MSGPACK_UNPACK_SUCCESS);
        assert_int_equal(offset, image.ends[i] - begin);
        const msgpack_object *map = &unpacked.data;
        assert_int_equal(map->type, MSGPACK_OBJECT_MAP);
        assert_int_equal(map_get(map, "v")->via.u64, 1);
        assert_int_equal(map_get(map, "t")->via.u64, types[i]);
        assert_int_equal(map_get(map, "id")->via.u64, i == 0 ? 0 : 1);
        if (types[i] == SC_STORE_RECORD_NAMESPACE) {
            assert_int_equal(map_get(map, "krow")->via.u64, 48);
            assert_memory_equal(map_get(map, "text")->via.str.ptr, "{\"model\":\"test\"}", 16);
            assert_memory_equal(map_get(map, "family")->via.bin.ptr, world->params.space.family,
                                16);
        } else if (types[i] == SC_STORE_RECORD_EXTENT) {
            assert_int_equal(map_get(map, "rows")->via.u64, 30);
            assert_int_equal(map_get(map, "parts")->via.array.size, 1);
        } else if (types[i] == SC_STORE_RECORD_HEAD) {
            assert_int_equal(map_get(map, "n")->via.u64, 0);
            assert_int_equal(map_get(map, "piece")->via.u64, 1);
            assert_int_equal(map_get(map, "extent")->via.u64, 1);
            assert_int_equal(map_get(map, "numbering")->type, MSGPACK_OBJECT_POSITIVE_INTEGER);
        } else if (types[i] == SC_STORE_RECORD_DROP) {
            assert_int_equal(map_get(map, "at")->type, MSGPACK_OBJECT_POSITIVE_INTEGER);
        } else if (types[i] == SC_STORE_RECORD_PIECE) {
            assert_int_equal(map_get(map, "pos")->via.u64, 70);
            assert_int_equal(map_get(map, "chunk")->via.u64, 64);
            assert_int_equal(map_get(map, "tokens")->via.bin.size, 36 * 4);
            uint32_t token;
            memcpy(&token, map_get(map, "tokens")->via.bin.ptr + 4 * 10, 4);
            assert_int_equal(token, token_of(1, 74));
        }
        msgpack_unpacked_destroy(&unpacked);
    }
    world_free(world);
}

/* Records grow with their counts; what is reserved for them must be enough. */
static void log_records_of_extents_and_sections_fit_their_bounds(void **state)
{
    (void)state;
    static uint8_t bytes[SC_STORE_PAYLOAD_BYTES_MAX];
    static struct sc_store_part parts[SC_LIMIT_LAYERS];
    struct sc_store_writer writer = {bytes, 0, sizeof(bytes), false};
    const uint32_t big = UINT32_MAX;
    for (uint32_t i = 0; i < SC_LIMIT_LAYERS; i++)
        parts[i] = (struct sc_store_part){UINT64_MAX, big, big, big};
    struct sc_store_record_extent extent = {.space = UINT64_MAX,
                                            .copy = UINT64_MAX,
                                            .row_count = UINT64_MAX,
                                            .probe_offset = UINT64_MAX,
                                            .probe_tag_offset = UINT64_MAX,
                                            .tag_offset = UINT64_MAX,
                                            .row_offset = UINT64_MAX,
                                            .probe_row_bytes = UINT64_MAX,
                                            .stride = UINT64_MAX,
                                            .provenance = {big, big, big, big, big, big, big},
                                            .leaves_ids = true,
                                            .part_count = SC_LIMIT_LAYERS,
                                            .parts = parts};
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_extent(&writer, UINT64_MAX, &extent);
    assert_true(writer.used <= sc_store_record_bytes_parts(SC_LIMIT_LAYERS));
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_section(&writer, UINT64_MAX, &extent);
    assert_true(writer.used <= sc_store_record_bytes_parts(SC_LIMIT_LAYERS));
    extent.codec_shape = (struct sc_store_codec_shape){.bits_k = big,
                                                       .bits_v = big,
                                                       .scale_bytes = UINT64_MAX,
                                                       .k_row_bytes = UINT64_MAX,
                                                       .v_row_bytes = UINT64_MAX};
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_section(&writer, UINT64_MAX, &extent);
    assert_true(writer.used <= sc_store_record_bytes_parts(SC_LIMIT_LAYERS));
    assert_false(writer.overflow);
}

static void log_records_fit_their_bounds(void **state)
{
    (void)state;
    static uint8_t bytes[SC_STORE_PAYLOAD_BYTES_MAX + 4096];
    static uint32_t tokens[SC_STORE_ROWS_MAX];
    static struct sc_store_mark marks[SC_STORE_MARKS_MAX];
    struct sc_store_writer writer = {bytes, 0, sizeof(bytes), false};
    const uint32_t big = UINT32_MAX;
    struct sc_store_piece piece = {.id = UINT64_MAX,
                                   .extent = UINT64_MAX,
                                   .first_position = UINT64_MAX - SC_STORE_ROWS_MAX,
                                   .chunk_first = UINT64_MAX - SC_STORE_ROWS_MAX,
                                   .extent_row = big,
                                   .row_count = SC_STORE_ROWS_MAX,
                                   .skip = big,
                                   .mark_count = SC_STORE_MARKS_MAX,
                                   .tokens = tokens,
                                   .marks = marks};
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_piece(&writer, &piece);
    assert_true(writer.used <= sc_store_record_bytes_piece(SC_STORE_ROWS_MAX, SC_STORE_MARKS_MAX));
    assert_true(writer.used <= SC_STORE_FRAME_BYTES + SC_STORE_PAYLOAD_BYTES_MAX);
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_drop(&writer, UINT64_MAX, UINT64_MAX);
    assert_true(writer.used <= SC_STORE_DROP_BYTES);
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_epoch(&writer, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_true(writer.used <= SC_STORE_EPOCH_BYTES);
    struct sc_store_record_head head = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_head(&writer, &head);
    assert_true(writer.used <= SC_STORE_HEAD_BYTES);
    struct sc_store_namespace space = {
        .layer_count = big, .layout = big, .k_row_bytes = UINT64_MAX, .descriptor = "12345678"};
    writer.used = 0;
    (void)sc_store_frame_begin(&writer);
    sc_store_record_encode_space(&writer, UINT64_MAX, &space);
    assert_true(writer.used <= sc_store_record_bytes_space(8));
    assert_false(writer.overflow);
    writer.capacity = 40;
    writer.used = 0;
    sc_store_record_encode_space(&writer, 1, &space);
    assert_true(writer.overflow);
    assert_true(writer.used <= 40);
}

/* The log names a segment whose file is gone: no other file gets its number, in which the rows of
 * those records would stand. */
static void log_a_lost_segments_number_is_not_given_again(void **state)
{
    (void)state;
    struct world *world = world_opened(world_make(&small, 5));
    uint64_t key = 1;
    for (; key <= 100 && world->store->disk.segment_count < 2; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    assert_int_equal(world->store->disk.segments[1].number, 1);
    uint32_t before = world->piece_count;
    assert_int_equal(
        sc_io_unlink(world->store->io, "/sim/store/rank-0000-of-0001/seg-00000001", NULL), SPEC_OK);
    world_reopen(world);
    assert_true(world->open_count > 0 && world->open_count < before);
    assert_int_equal(world->store->disk.segment_count, 1);
    for (; key <= 200 && world->store->disk.segment_count < 2; key++)
        assert_int_equal(world_store(world, key, 0, 640), SPEC_OK);
    assert_int_equal(world->store->disk.segments[1].number, 2);
    world_free(world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_cut_at_every_byte_keeps_the_whole_records_before),
        cmocka_unit_test(log_of_several_windows_is_read_whole),
        cmocka_unit_test(log_of_several_windows_may_end_or_go_bad_anywhere),
        cmocka_unit_test(log_that_cannot_be_read_refuses_to_open_and_stays),
        cmocka_unit_test(log_of_a_cut_tail_that_comes_back_is_not_believed),
        cmocka_unit_test(log_an_honest_forgery_is_believed),
        cmocka_unit_test(log_ids_may_skip),
        cmocka_unit_test(log_goes_on_behind_the_ids_of_its_head),
        cmocka_unit_test(log_extents_that_do_not_fit_are_not_believed),
        cmocka_unit_test(log_sections_that_do_not_fit_are_not_believed),
        cmocka_unit_test(log_sections_that_lie_harm_nothing),
        cmocka_unit_test(log_permuted_copies_that_lie_harm_nothing),
        cmocka_unit_test(log_forms_of_codes_are_kept),
        cmocka_unit_test(log_a_retired_section_counts_for_nothing),
        cmocka_unit_test(log_sections_beside_others_are_one_of_a_kind),
        cmocka_unit_test(log_provenances_that_do_not_exist_are_not_believed),
        cmocka_unit_test(log_pieces_that_do_not_fit_are_not_believed),
        cmocka_unit_test(log_pieces_that_no_pass_leaves_are_not_believed),
        cmocka_unit_test(log_ids_that_are_left_free_are_taken_once),
        cmocka_unit_test(log_epochs_end_pieces_that_a_later_record_drops),
        cmocka_unit_test(log_pieces_that_stray_use_up_their_ids),
        cmocka_unit_test(log_extents_that_took_an_id_and_leave_some_stay_lies),
        cmocka_unit_test(log_checkpoints_move_no_extent_that_was_not_believed),
        cmocka_unit_test(log_checkpoints_put_late_extents_in_order),
        cmocka_unit_test(log_checkpoints_of_late_extents_restore_any_record),
        cmocka_unit_test(log_checkpoints_copy_the_first_of_two_records_of_an_extent),
        cmocka_unit_test(log_the_last_ids_leave_none_free),
        cmocka_unit_test(log_drops_of_nothing_are_harmless),
        cmocka_unit_test(log_pieces_behind_their_extents_end_are_not_believed),
        cmocka_unit_test(log_records_of_ids_that_were_left_out_are_harmless),
        cmocka_unit_test(log_gaps_of_any_length_are_passed_over),
        cmocka_unit_test(log_maps_with_wrong_keys_are_not_believed),
        cmocka_unit_test(log_unknown_keys_are_skipped),
        cmocka_unit_test(log_of_a_newer_version_or_type_refuses_to_open),
        cmocka_unit_test(log_records_are_msgpack_to_another_reader_too),
        cmocka_unit_test(log_records_of_extents_and_sections_fit_their_bounds),
        cmocka_unit_test(log_records_fit_their_bounds),
        cmocka_unit_test(log_a_lost_segments_number_is_not_given_again),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
