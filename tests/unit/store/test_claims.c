/* Claims of segments: rows are placed in no segment that another process may still write to; when
 * it has ended they are. Stored rows stay readable, and an erasure waits.
 *
 * The other process is a second back end over the same disk that holds a segment's claim.
 * Threads: the seeded loop. */
#include "store/erase.h"
#include "store/io/io.h"
#include "tests/unit/store/erase_check.h"
#include "tests/unit/store/space_check.h"

#define SEGMENT "/sim/store/rank-0000-of-0001/seg-00000000"

static const struct world_setup small = {"small", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(4, 1, 64), .journal = 1};

struct other { /* a process that was killed, and whose writes go on */
    struct sc_io *io;
    struct sc_io_file *file;
};

static struct other other_opens(const struct world *world)
{
    struct other other = {NULL, NULL};
    struct sc_io_params params = {.alloc = world->params.alloc,
                                  .exec = world->params.exec,
                                  .log = world->params.log,
                                  .fault = world->params.fault,
                                  .backend = SC_BACKEND_SIM,
                                  .ring_count = 1,
                                  .custom = world->params.custom};
    assert_int_equal(sc_io_open(&params, &other.io, NULL), SPEC_OK);
    assert_int_equal(
        sc_io_file_open(other.io, SEGMENT, SC_IO_OPEN_WRITE | SC_IO_OPEN_DIRECT, &other.file, NULL),
        SPEC_OK);
    return other;
}

static struct other other_claims(const struct world *world)
{
    struct other other = other_opens(world);
    assert_int_equal(sc_io_file_claim(other.io, other.file, NULL), SPEC_OK);
    assert_int_equal(sc_io_file_claim(other.io, other.file, NULL), SPEC_OK); /* it has it */
    return other;
}

static void other_ends(struct other *other)
{
    sc_io_file_close(other->io, other->file);
    sc_io_close(other->io);
}

/* Pages taken in the segment. */
static uint64_t taken(const struct sc_store *store, uint32_t number)
{
    uint64_t index = sc_store_segment_index(store, number);
    if (index == store->disk.segment_count)
        return 0;
    const struct sc_store_space_segment *map = &store->disk.space.segments[index];
    return map->page_count - map->free_pages;
}

static uint64_t fill(struct world *world, uint64_t key)
{
    while (world_store(world, ++key, 0, 300) == SPEC_OK)
        ;
    return key;
}

static void rows_go_where_nobody_else_writes(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 1);
    uint64_t key = fill(world, 0), first = taken(world->store, 0);
    assert_true(first > 100 && taken(world->store, 1) > 100);
    world_close(world);
    struct other other = other_claims(world);
    world_open_ok(world);
    for (uint64_t each = 1; each < key; each++)
        rows_ok(world, each); /* acknowledged rows are read, whoever has the claim */
    for (uint32_t i = 0; i < world->piece_count;)
        if (world->pieces[i].key % 2 == 1)
            world_drop(world, i, 1); /* another takes its place */
        else
            i++;
    release_all(world);
    uint64_t left = taken(world->store, 0), second = taken(world->store, 1);
    assert_true(left < first);
    key = fill(world, key);
    assert_int_equal(taken(world->store, 0), left); /* none there */
    assert_true(taken(world->store, 1) > second);
    space_check(world->store);
    other_ends(&other);
    world_wait_ns(world, 60000000);
    assert_int_equal(world_store(world, ++key, 0, 200), SPEC_OK);
    assert_true(taken(world->store, 0) > left);
    rows_ok(world, key);
    space_check(world->store);
    world_free(world);
}

/* All segments are others': a new one is made, or nothing is stored, and nothing is lost. */
static void a_store_whose_segments_are_others_makes_one(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 2);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    world_close(world);
    struct other other = other_claims(world);
    world_open_ok(world);
    struct sc_store_free_space space;
    sc_store_free_space(world->store, &space);
    assert_int_equal(world_store(world, 2, 0, 130), SPEC_OK);
    assert_true(taken(world->store, 1) > 0);
    rows_ok(world, 1);
    rows_ok(world, 2);
    other_ends(&other);
    world_free(world);
}

/* A second store cannot take what this one has claimed, until it is closed. */
static void claims_last_until_the_store_is_closed(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 3);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    struct other other = other_opens(world);
    struct spec_error error = {.struct_size = sizeof(error)};
    assert_int_equal(sc_io_file_claim(other.io, other.file, &error), SPEC_E_LOCKED);
    assert_non_null(strstr(error.text, "seg-00000000"));
    world_close(world);
    assert_int_equal(sc_io_file_claim(other.io, other.file, NULL), SPEC_OK);
    other_ends(&other);
    world_free(world);
}

static void on_new(const struct sc_store_erasure *erasure, void *user)
{
    (void)erasure;
    (void)user;
}

static void an_erasure_waits_for_late_writes(void **state)
{
    (void)state;
    struct world *world = world_new(&small, 4);
    assert_int_equal(world_store(world, 1, 0, 130), SPEC_OK);
    world_close(world);
    struct other other = other_claims(world);
    world_open_ok(world);
    const struct sc_store_erasure all = {.is_all = true};
    assert_int_equal(sc_store_erase_put(world->store, &all, &world->error), SPEC_OK);
    assert_int_equal(sc_store_erase_hear(world->store, on_new, NULL, &world->error), SPEC_OK);
    sc_store_erase_mark(world->store, NULL, NULL);
    bool more = true, waited = false;
    for (uint32_t steps = 0; steps < 100 && !waited; steps++) {
        waited = sc_store_erase_step(world->store, &more, &world->error) == SPEC_PENDING &&
                 strstr(world->error.text, "segment") != NULL;
    }
    assert_true(waited);
    assert_true(sc_store_erasures(world->store) > 0);
    other_ends(&other);
    world_wait_ns(world, 60000000);
    assert_int_equal(world_erase(world, 1), SPEC_OK);
    assert_int_equal(sc_store_erasures(world->store), 0);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_go_where_nobody_else_writes),
        cmocka_unit_test(a_store_whose_segments_are_others_makes_one),
        cmocka_unit_test(claims_last_until_the_store_is_closed),
        cmocka_unit_test(an_erasure_waits_for_late_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
