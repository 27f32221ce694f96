/* The log of objects and the pages that it speaks of: what an open is told is what was appended,
 * after removals, clears, checkpoints, damage and a smaller disk.
 *
 *   twin    objects by number: copy, pages, whether they live. Key and tag are functions of the
 *           number
 *   told    what the open said, by mark: the number + 1
 *
 * Holds: nothing is written into the pages; values are no matter of the log.
 * Threads: the seeded loop. */
#include "store/object/object_record.h"
#include "tests/unit/store/store_fixture.h"

#include "store/internal.h"
#include "store/log/record_format.h"

#define LOG_PATH    "/sim/store/objects-0000-of-0001/log"
#define OBJECTS_MAX 512u
#define DOMAIN      3u
#define PAGE        ((uint64_t)SC_IO_PAGE_BYTES)

static const struct world_setup small = {
    "small",      WORLD_ON(SIM, 0),         WORLD_SHAPE(PAIRED, 2, 48, 0), WORLD_DISK(4, 1, 64),
    .journal = 1, .staging_bytes = 2u << 20};

struct twin {
    struct sc_store_object object; /* parts with indices of segments */
    struct sc_store_object_part parts[SC_STORE_OBJECT_PARTS_MAX];
    uint8_t key[12];
    bool lives;
};

struct rig {
    struct world *world;
    struct sc_store *store;
    struct sc_store_objects_found found;
    struct twin twins[OBJECTS_MAX];
    uint32_t count;
    bool told[OBJECTS_MAX]; /* by the last open */
    uint32_t domains, cleared;
    uint32_t refuses; /* on_object says BUSY to this number + 1 */
};

/* ---- Opening --------------------------------------------------------------------------------- */

static spec_status on_domain(uint32_t id, const uint8_t *identity, uint32_t bytes, void *user,
                             struct spec_error *reterr)
{
    struct rig *rig = user;
    (void)reterr;
    assert_true(id >= DOMAIN && bytes > 0 && identity[0] == 'd');
    rig->domains++;
    return SPEC_OK;
}

static spec_status on_object(const struct sc_store_object *object, uint32_t *ret_mark, void *user,
                             struct spec_error *reterr)
{
    struct rig *rig = user;
    uint32_t number;
    (void)reterr;
    assert_int_equal(object->key_bytes, 12);
    memcpy(&number, object->key, sizeof(number));
    assert_true(number < rig->count);
    struct twin *twin = &rig->twins[number];
    assert_int_equal(object->copy, twin->object.copy);
    assert_int_equal(object->tag, twin->object.tag);
    assert_int_equal(object->bytes, twin->object.bytes);
    assert_int_equal(object->domain, DOMAIN);
    assert_int_equal(object->part_count, twin->object.part_count);
    if (rig->refuses == number + 1)
        return SPEC_E_BUSY;
    assert_false(rig->told[number]);
    rig->told[number] = true;
    memcpy(twin->parts, object->parts, object->part_count * sizeof(*object->parts));
    *ret_mark = number + 1;
    return SPEC_OK;
}

static void pages_give(struct rig *rig, uint32_t number)
{
    sc_store_object_pages_free(rig->store, rig->twins[number].parts,
                               rig->twins[number].object.part_count);
}

static void on_removed(uint32_t mark, uint64_t copy, void *user)
{
    struct rig *rig = user;
    assert_true(mark > 0 && rig->told[mark - 1]);
    assert_int_equal(rig->twins[mark - 1].object.copy, copy);
    rig->told[mark - 1] = false;
    pages_give(rig, mark - 1);
}

static void on_cleared(uint32_t domain, void *user)
{
    struct rig *rig = user;
    assert_true(domain == DOMAIN || domain == 0);
    rig->cleared++;
    for (uint32_t i = 0; i < rig->count; i++)
        if (rig->told[i]) {
            rig->told[i] = false;
            pages_give(rig, i);
        }
}

static spec_status rig_try_open(struct rig *rig)
{
    struct world *world = rig->world;
    const struct sc_store_objects_params params = {
        .store = {.alloc = &world->alloc,
                  .exec = world->exec,
                  .log = &world->log,
                  .fault = &world->fault,
                  .poison = &world->poison,
                  .config = &world->config,
                  .custom = sc_io_sim_custom(world->disk),
                  .rank_count = 1},
        .on_domain = on_domain,
        .on_object = on_object,
        .on_removed = on_removed,
        .on_cleared = on_cleared,
        .user = rig};
    memset(rig->told, 0, sizeof(rig->told));
    rig->domains = rig->cleared = 0;
    return sc_store_objects_open(&params, &rig->store, &rig->found, &world->error);
}

static void rig_open(struct rig *rig)
{
    if (rig_try_open(rig) != SPEC_OK)
        fail_msg("open: %s", rig->world->error.text);
}

static struct rig *rig_new(uint64_t seed)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig->world = world_make(&small, seed);
    rig->world->config.objects_log_ppm = 15625;
    rig_open(rig);
    assert_int_equal(sc_store_object_domain_put(rig->store, DOMAIN, (const uint8_t *)"domain", 6,
                                                &rig->world->error),
                     SPEC_OK);
    return rig;
}

static void rig_close(struct rig *rig)
{
    sc_store_objects_close(rig->store);
    rig->store = NULL;
}

static void rig_free(struct rig *rig)
{
    if (rig->store != NULL)
        rig_close(rig);
    world_free(rig->world);
    free(rig);
}

/* The same, with what programs see of the disk now; as after kill -9. */
static struct rig *rig_copy(const struct rig *rig)
{
    struct rig *copy = malloc(sizeof(*copy));
    struct sc_io_sim_disk *disk = NULL;
    assert_non_null(copy);
    memcpy(copy, rig, sizeof(*copy));
    copy->store = NULL;
    copy->world = world_make(&small, 77);
    copy->world->config = rig->world->config;
    assert_int_equal(sc_io_sim_disk_copy(rig->world->disk, &disk, NULL), SPEC_OK);
    sc_io_sim_disk_close(copy->world->disk);
    world_disk(copy->world, disk);
    return copy;
}

static uint64_t taken_pages(const struct rig *rig)
{
    uint64_t free_pages, pages;
    sc_store_object_room(rig->store, &free_pages, &pages);
    return rig->store->disk.extent_bytes / PAGE;
}

/* What was told, and the pages that it has, are those of the twins that live. */
static void told_check(const struct rig *rig)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < rig->count; i++) {
        if (rig->told[i] != rig->twins[i].lives)
            fail_msg("object %u: told %d", i, rig->told[i]);
        pages += rig->told[i] ? (rig->twins[i].object.bytes + PAGE - 1) / PAGE : 0;
    }
    assert_int_equal(taken_pages(rig), pages);
}

/* A copy of the disk as it is now opens, twice, and says what lives. */
static void killed_check(const struct rig *rig)
{
    struct rig *copy = rig_copy(rig);
    for (uint32_t round = 0; round < 2; round++) {
        rig_open(copy);
        assert_int_equal(copy->domains, 1);
        assert_int_equal(copy->found.refused + copy->found.damaged, 0);
        told_check(copy);
        rig_close(copy);
    }
    rig_free(copy);
}

/* ---- Appending ------------------------------------------------------------------------------- */

/* An object of so many pages; its number. Not in the log. */
static uint32_t object_make(struct rig *rig, uint64_t pages, uint64_t *ret_log_bytes)
{
    uint32_t number = rig->count++;
    assert_true(number < OBJECTS_MAX);
    struct twin *twin = &rig->twins[number];
    *twin = (struct twin){.object = {.copy = 1000 + number,
                                     .tag = mix(number),
                                     .bytes = pages * PAGE - number % PAGE,
                                     .key_bytes = sizeof(twin->key),
                                     .domain = DOMAIN}};
    memcpy(twin->key, &number, sizeof(number));
    *ret_log_bytes = sc_store_object_record_bytes(sizeof(twin->key), SC_STORE_OBJECT_PARTS_MAX);
    assert_int_equal(sc_store_object_room_take(rig->store, pages, *ret_log_bytes, twin->parts,
                                               &twin->object.part_count),
                     SC_STORE_LACK_NOTHING);
    return number;
}

/* Writes something, so that the segments' files are made. */
static void segments_make(struct rig *rig)
{
    world_wait_ns(rig->world, 1000000000);
    for (uint64_t i = 0; i < rig->store->disk.segment_count; i++)
        assert_int_not_equal(rig->store->disk.segments[i].state, SC_STORE_SEGMENT_WANTED);
}

static spec_status record_put(struct rig *rig, uint32_t number, uint64_t log_bytes)
{
    struct twin *twin = &rig->twins[number];
    struct sc_store_object_part parts[SC_STORE_OBJECT_PARTS_MAX];
    struct sc_store_object object = twin->object;
    memcpy(parts, twin->parts, sizeof(parts));
    object.parts = parts;
    object.key = twin->key;
    spec_status status = sc_store_objects_put(rig->store, &object, 1, &rig->world->error);
    sc_store_log_unreserve(rig->store, log_bytes);
    return status;
}

static uint32_t object_put(struct rig *rig, uint64_t pages)
{
    uint64_t log_bytes;
    uint32_t number = object_make(rig, pages, &log_bytes);
    segments_make(rig);
    assert_int_equal(record_put(rig, number, log_bytes), SPEC_OK);
    rig->twins[number].lives = true;
    return number;
}

static void object_remove(struct rig *rig, uint32_t number)
{
    assert_int_equal(
        sc_store_objects_remove(rig->store, &rig->twins[number].object.copy, 1, &rig->world->error),
        SPEC_OK);
    rig->twins[number].lives = false;
    pages_give(rig, number);
}

static uint64_t log_bytes_of(const struct rig *rig)
{
    struct sc_store_object_sizes sizes;
    sc_store_object_sizes(rig->store, &sizes);
    return sizes.log_bytes;
}

/* ---- What an open is told -------------------------------------------------------------------- */

static void an_open_is_told_what_lives(void **state)
{
    (void)state;
    struct rig *rig = rig_new(1);
    uint64_t random = 5;
    killed_check(rig);
    for (uint32_t n = 0; n < 120; n++) {
        uint32_t number = rig->count > 0 ? (uint32_t)random_below(&random, rig->count) : 0;
        if (rig->count > 0 && rig->twins[number].lives && n % 2 == 0)
            object_remove(rig, number);
        else
            (void)object_put(rig, 1 + random_below(&random, 12));
        if (n % 10 == 9)
            killed_check(rig);
    }
    rig_close(rig);
    rig_open(rig);
    told_check(rig);
    rig_free(rig);
}

static void a_clear_ends_what_was_before_it(void **state)
{
    (void)state;
    struct rig *rig = rig_new(2);
    for (uint32_t i = 0; i < 5; i++)
        (void)object_put(rig, 2);
    assert_int_equal(sc_store_objects_clear(rig->store, DOMAIN, &rig->world->error), SPEC_OK);
    for (uint32_t i = 0; i < 5; i++) {
        rig->twins[i].lives = false;
        pages_give(rig, i);
    }
    uint32_t later = object_put(rig, 3);
    assert_true(rig->twins[later].lives);
    killed_check(rig);
    rig_close(rig);
    rig_open(rig);
    assert_int_equal(rig->cleared, 1);
    told_check(rig);
    rig_free(rig);
}

/* A record of a copy that is known is skipped; of one that was removed it counts; a removal of a
 * copy that is not known is nothing. */
static void a_copy_that_is_recorded_twice_is_one_object(void **state)
{
    (void)state;
    struct rig *rig = rig_new(3);
    uint32_t one = object_put(rig, 2), other = object_put(rig, 2);
    const uint64_t unknown[3] = {5, 6, rig->twins[other].object.copy};
    assert_int_equal(record_put(rig, one, 0), SPEC_OK);
    assert_int_equal(sc_store_objects_remove(rig->store, unknown, 3, NULL), SPEC_OK);
    rig->twins[other].lives = false;
    pages_give(rig, other);
    killed_check(rig);
    assert_int_equal(sc_store_objects_remove(rig->store, unknown, 3, NULL), SPEC_OK); /* again */
    killed_check(rig);
    assert_int_equal(record_put(rig, other, 0), SPEC_OK);
    rig->twins[other].lives = true;
    struct rig *copy = rig_copy(rig);
    rig_open(copy);
    told_check(copy);
    rig_free(copy);
    rig_free(rig);
}

/* Two records claim pages: the later one is refused, and with it all of its parts. */
static void an_overlap_is_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_new(4);
    uint64_t log_bytes;
    uint32_t first = object_put(rig, 10), last;
    pages_give(rig, first); /* and no removal is in the log */
    for (uint64_t pages = 1; pages <= 30; pages += 29) {
        last = object_make(rig, pages, &log_bytes);
        assert_int_equal(rig->twins[last].parts[0].page, rig->twins[first].parts[0].page);
        assert_int_equal(record_put(rig, last, log_bytes), SPEC_OK);
        struct rig *copy = rig_copy(rig);
        rig_open(copy);
        assert_int_equal(copy->found.refused, rig->count - 1);
        assert_true(copy->found.wants_checkpoint);
        told_check(copy);
        rig_free(copy);
        pages_give(rig, last);
    }
    rig_free(rig);
}

/* What the caller has no room for has no pages. */
static void what_the_caller_refuses_has_no_pages(void **state)
{
    (void)state;
    struct rig *rig = rig_new(5);
    (void)object_put(rig, 3);
    uint32_t refused = object_put(rig, 4);
    (void)object_put(rig, 5);
    rig_close(rig);
    rig->refuses = refused + 1;
    rig->twins[refused].lives = false;
    rig_open(rig);
    assert_int_equal(rig->found.refused, 1);
    told_check(rig);
    rig_free(rig);
}

/* With fewer bytes of disk some segments go, and the objects in them. */
static void a_smaller_disk_drops_what_has_no_segment(void **state)
{
    (void)state;
    struct rig *rig = rig_new(6);
    for (uint32_t i = 0; i < 7; i++) /* 100 pages each: two in a segment */
        (void)object_put(rig, 100);
    rig_close(rig);
    rig->world->config.disk_bytes = 2u << 20;
    rig_open(rig);
    struct sc_store_object_sizes sizes;
    uint32_t told = 0;
    for (uint32_t i = 0; i < rig->count; i++) {
        rig->twins[i].lives = rig->told[i];
        told += rig->told[i];
    }
    assert_true(told > 0 && told < rig->count);
    assert_int_equal(rig->found.refused, rig->count - told);
    assert_true(rig->found.wants_checkpoint);
    told_check(rig);
    sc_store_object_sizes(rig->store, &sizes);
    assert_true(sizes.disk_bytes_used <= sizes.disk_bytes_max);
    rig_free(rig);
}

/* ---- Damage ---------------------------------------------------------------------------------- */

static void any_wrong_byte_of_the_log_is_restored(void **state)
{
    (void)state;
    struct rig *rig = rig_new(7);
    for (uint32_t i = 0; i < 4; i++)
        (void)object_put(rig, 1 + i);
    object_remove(rig, 1);
    uint64_t bytes = log_bytes_of(rig);
    rig_close(rig);
    for (uint64_t at = 0; at < bytes; at += 3) {
        struct rig *copy = rig_copy(rig);
        disk_flip(copy->world, LOG_PATH, at, (uint8_t)(1u << at % 8));
        rig_open(copy);
        assert_int_equal(copy->found.damaged, 1);
        assert_true(copy->found.wants_checkpoint);
        assert_int_equal(copy->found.refused, 0);
        told_check(copy);
        rig_free(copy);
    }
    rig_free(rig);
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

static void copy_ok(struct rig *rig, spec_status status)
{
    if (status != SPEC_OK)
        fail_msg("checkpoint: %s", rig->world->error.text);
}

/* Writes what lives, and was put before number `end`. */
static void copy_living(struct rig *rig, struct sc_store_object_copy *copy, uint32_t end)
{
    copy_ok(rig, sc_store_objects_copy_domain(copy, DOMAIN, (const uint8_t *)"domain", 6,
                                              &rig->world->error));
    for (uint32_t i = 0; i < end; i++) {
        struct twin *twin = &rig->twins[i];
        struct sc_store_object_part parts[SC_STORE_OBJECT_PARTS_MAX];
        struct sc_store_object object = twin->object;
        if (!twin->lives)
            continue;
        memcpy(parts, twin->parts, sizeof(parts));
        object.parts = parts;
        object.key = twin->key;
        copy_ok(rig, sc_store_objects_copy_objects(copy, &object, 1, &rig->world->error));
    }
}

/* Whether an object of one part has the first page that another one had. */
static bool is_in_place_of(const struct rig *rig, uint32_t number, uint32_t earlier)
{
    const struct sc_store_object_part *part = rig->twins[number].parts;
    const struct sc_store_object_part *was = rig->twins[earlier].parts;
    return part->segment == was->segment && part->page <= was->page &&
           was->page < part->page + part->pages;
}

/* Objects come and go meanwhile; one takes the pages of one that was removed after it had been
 * written. */
static void a_checkpoint_has_what_came_meanwhile(void **state)
{
    (void)state;
    struct rig *rig = rig_new(9);
    for (uint32_t round = 0; round < 4; round++) {
        struct sc_store_object_copy *copy = NULL;
        for (uint32_t i = 0; i < 20; i++)
            (void)object_put(rig, 1 + i % 5);
        for (uint32_t i = rig->count - 20; i < rig->count; i += 2)
            object_remove(rig, i);
        uint32_t end = rig->count;
        copy_ok(rig, sc_store_objects_copy_begin(rig->store, &copy, &rig->world->error));
        object_remove(rig, rig->count - 1); /* it is not written */
        (void)object_put(rig, 2);
        copy_living(rig, copy, end);
        object_remove(rig, end - 3); /* it was written */
        uint32_t other;
        do /* until one has its place */
            other = object_put(rig, (rig->twins[end - 3].object.bytes + PAGE - 1) / PAGE);
        while (!is_in_place_of(rig, other, end - 3));
        killed_check(rig);
        uint64_t before = log_bytes_of(rig);
        copy_ok(rig, sc_store_objects_copy_end(copy, round % 2 == 1, &rig->world->error));
        sc_store_objects_copy_free(copy);
        assert_true(log_bytes_of(rig) < before);
        killed_check(rig);
        (void)object_put(rig, 1);
        killed_check(rig);
    }
    rig_free(rig);
}

/* One that is given up, at any point, leaves the log as it was. */
static void a_checkpoint_that_is_given_up_changes_nothing(void **state)
{
    (void)state;
    struct rig *rig = rig_new(10);
    for (uint32_t i = 0; i < 6; i++)
        (void)object_put(rig, 2);
    for (uint32_t point = 0; point < 3; point++) {
        struct sc_store_object_copy *copy = NULL;
        copy_ok(rig, sc_store_objects_copy_begin(rig->store, &copy, &rig->world->error));
        if (point > 0)
            copy_living(rig, copy, rig->count);
        if (point > 1) {
            sc_io_sim_fault_nth(rig->world->disk, SC_SIM_SYNC_EIO, 0);
            assert_int_equal(sc_store_objects_copy_end(copy, false, &rig->world->error), SPEC_E_IO);
        }
        killed_check(rig);
        sc_store_objects_copy_free(copy);
        (void)object_put(rig, 1);
        killed_check(rig);
    }
    rig_free(rig);
}

/* ---- More damage ----------------------------------------------------------------------------- */

static void two_bytes_flip(struct rig *rig, uint64_t at)
{
    disk_flip(rig->world, LOG_PATH, at + SC_STORE_FRAME_BYTES + 6, 1);
    disk_flip(rig->world, LOG_PATH, at + SC_STORE_FRAME_BYTES + 7, 1);
}

/* Opens, and writes the log anew, as the face does. */
static void damaged_open(struct rig *rig)
{
    struct sc_store_object_copy *copy = NULL;
    rig_open(rig);
    assert_true(rig->found.wants_checkpoint);
    assert_true(rig->found.damaged > 0);
    told_check(rig);
    copy_ok(rig, sc_store_objects_copy_begin(rig->store, &copy, &rig->world->error));
    copy_living(rig, copy, rig->count);
    copy_ok(rig, sc_store_objects_copy_end(copy, false, &rig->world->error));
    sc_store_objects_copy_free(copy);
    (void)object_put(rig, 4);
    killed_check(rig);
}

/* The object of the record is lost, and no other. */
static void two_wrong_bytes_lose_a_record(void **state)
{
    (void)state;
    struct rig *rig = rig_new(8);
    (void)object_put(rig, 1);
    uint64_t begin = log_bytes_of(rig);
    (void)object_put(rig, 2);
    (void)object_put(rig, 3);
    rig_close(rig);
    two_bytes_flip(rig, begin);
    rig->twins[1].lives = false;
    damaged_open(rig);
    rig_free(rig);
}

/* Which object a lost removal named is not known: none of those before it comes back. */
static void two_wrong_bytes_of_a_removal_lose_what_was_before(void **state)
{
    (void)state;
    struct rig *rig = rig_new(9);
    const uint32_t first = object_put(rig, 1);
    (void)object_put(rig, 2);
    uint64_t begin = log_bytes_of(rig);
    object_remove(rig, first);
    (void)object_put(rig, 3);
    rig_close(rig);
    two_bytes_flip(rig, begin);
    rig->twins[1].lives = false;
    damaged_open(rig);
    rig_free(rig);
}

/* A full log refuses, and changes nothing; after a checkpoint there is room. */
static void a_full_log_refuses_until_a_checkpoint(void **state)
{
    (void)state;
    struct rig *rig = rig_new(11);
    static uint8_t identity[SC_STORE_DOMAIN_BYTES] = "d";
    struct sc_store_object_copy *copy = NULL;
    spec_status status = SPEC_OK;
    uint64_t kept = 0, log_most, log_bytes;
    (void)object_put(rig, 1);
    uint32_t id = DOMAIN + 1;
    for (; status == SPEC_OK && id < 5000; id++)
        status = sc_store_object_domain_put(rig->store, id, identity, sizeof(identity),
                                            &rig->world->error);
    assert_int_equal(status, SPEC_E_NO_SPACE);
    assert_int_equal(sc_store_object_domain_put(rig->store, id, identity, sizeof(identity), NULL),
                     SPEC_E_NO_SPACE);
    sc_store_objects_log_bytes(rig->store, &log_bytes, &log_most);
    assert_true(log_bytes <= log_most && log_bytes > (64u << 10));
    kept = log_bytes;
    copy_ok(rig, sc_store_objects_copy_begin(rig->store, &copy, &rig->world->error));
    copy_living(rig, copy, rig->count);
    copy_ok(rig, sc_store_objects_copy_end(copy, false, &rig->world->error));
    sc_store_objects_copy_free(copy);
    assert_true(log_bytes_of(rig) < kept / 8);
    (void)object_put(rig, 1);
    object_remove(rig, 0);
    killed_check(rig);
    rig_free(rig);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

/* Each page has one owner, values of any size are in at most 16 parts, and disk_bytes holds. */
static void pages_have_one_owner(void **state)
{
    (void)state;
    struct rig *rig = rig_new(12);
    static uint8_t owned[8][256];
    struct sc_store_object_part parts[64][SC_STORE_OBJECT_PARTS_MAX];
    uint32_t counts[64] = {0}, split = 0, lacked = 0;
    uint64_t random = 3, free_pages, all_pages;
    for (uint32_t n = 0; n < 4000; n++) {
        uint32_t i = (uint32_t)random_below(&random, 64);
        if (counts[i] > 0) {
            for (uint32_t p = 0; p < counts[i]; p++)
                memset(&owned[parts[i][p].segment][parts[i][p].page], 0, parts[i][p].pages);
            sc_store_object_pages_free(rig->store, parts[i], counts[i]);
            counts[i] = 0;
            continue;
        }
        uint64_t pages = 1 + random_below(&random, n % 7 == 0 ? 200 : 25), sum = 0;
        enum sc_store_object_lack lack =
            sc_store_object_room_take(rig->store, pages, 100, parts[i], &counts[i]);
        sc_store_object_room(rig->store, &free_pages, &all_pages);
        if (lack != SC_STORE_LACK_NOTHING) {
            assert_int_equal(lack, SC_STORE_LACK_PAGES);
            assert_int_equal(counts[i], 0);
            lacked++;
            continue;
        }
        sc_store_log_unreserve(rig->store, 100);
        for (uint32_t p = 0; p < counts[i]; p++)
            for (uint32_t page = 0; page < parts[i][p].pages; page++, sum++) {
                uint8_t *owner = &owned[parts[i][p].segment][parts[i][p].page + page];
                assert_int_equal(*owner, 0);
                *owner = 1;
            }
        assert_int_equal(sum, pages);
        split += counts[i] > 1;
        assert_true(sc_store_disk_used(rig->store) <= rig->store->disk.bytes_max);
    }
    assert_true(split > 10 && lacked > 10);
    for (uint32_t i = 0; i < 64; i++)
        if (counts[i] > 0)
            sc_store_object_pages_free(rig->store, parts[i], counts[i]);
    assert_int_equal(taken_pages(rig), 0);
    assert_int_equal(
        sc_store_object_room_take(rig->store, all_pages + 1, 100, parts[0], &counts[0]),
        SC_STORE_LACK_EVER);
    assert_int_equal(
        sc_store_object_room_take(rig->store, 1, UINT64_C(1) << 30, parts[0], &counts[0]),
        SC_STORE_LACK_LOG);
    assert_int_equal(sc_store_object_room_take(rig->store, all_pages, 100, parts[0], &counts[0]),
                     SC_STORE_LACK_NOTHING);
    sc_store_log_unreserve(rig->store, 100);
    sc_store_object_pages_free(rig->store, parts[0], counts[0]);
    segments_make(rig);
    rig_free(rig);
}

/* A directory of the one kind is none of the other. */
static void rows_and_objects_do_not_share_a_directory(void **state)
{
    (void)state;
    struct rig *rig = rig_new(13);
    (void)object_put(rig, 1);
    rig_close(rig);
    assert_int_equal(world_open(rig->world), SPEC_E_CONFIG);
    assert_non_null(strstr(rig->world->error.text, "objects"));
    killed_check(rig);
    struct rig *rows = calloc(1, sizeof(*rows));
    assert_non_null(rows);
    rows->world = world_new(&small, 14);
    sc_store_close(rows->world->store);
    rows->world->store = NULL;
    rows->world->config.objects_log_ppm = 15625;
    assert_int_equal(rig_try_open(rows), SPEC_E_CONFIG);
    assert_null(rows->store);
    assert_non_null(strstr(rows->world->error.text, "rows"));
    rig_free(rows);
    rig_free(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_open_is_told_what_lives),
        cmocka_unit_test(a_clear_ends_what_was_before_it),
        cmocka_unit_test(a_copy_that_is_recorded_twice_is_one_object),
        cmocka_unit_test(an_overlap_is_refused),
        cmocka_unit_test(what_the_caller_refuses_has_no_pages),
        cmocka_unit_test(a_smaller_disk_drops_what_has_no_segment),
        cmocka_unit_test(any_wrong_byte_of_the_log_is_restored),
        cmocka_unit_test(two_wrong_bytes_lose_a_record),
        cmocka_unit_test(two_wrong_bytes_of_a_removal_lose_what_was_before),
        cmocka_unit_test(a_checkpoint_has_what_came_meanwhile),
        cmocka_unit_test(a_checkpoint_that_is_given_up_changes_nothing),
        cmocka_unit_test(a_full_log_refuses_until_a_checkpoint),
        cmocka_unit_test(pages_have_one_owner),
        cmocka_unit_test(rows_and_objects_do_not_share_a_directory),
    };
    return cmocka_run_group_tests_name("store object log", tests, NULL, NULL);
}
