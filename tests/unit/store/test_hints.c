/* Shared memory of members: which second a key was used last by any of them. Noise, collisions and
 * clocks make no answer that is later than now.
 *
 * Threads: the world's. */
#include "store/log/hints.h"
#include "tests/unit/store/follower_fixture.h"

#include <sys/stat.h>

#define INTENTS_BYTES (UINT64_C(16) << 10)
#define BEFORE_BYTES  (UINT64_C(20) << 10) /* intents and models */
#define KEYS          300u

static const struct world_setup files = {"files", WORLD_ON(PREAD, 2), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                         WORLD_DISK(8, 1, 64)};

static bool on_piece(const struct sc_store_piece *piece, uint64_t *ret_mark, void *user)
{
    (void)user;
    *ret_mark = piece->id;
    return true;
}

static struct follower *member_open(struct world *world)
{
    struct follower *member = follower_make(world, SC_STORE_HEIR);
    member->params.shares = true;
    member->params.on_piece = on_piece;
    follower_open(member);
    assert_true(sc_store_can_store(member->store));
    return member;
}

static const char *hints_path(const struct world *world)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%.64s/store/rank-0000-of-0001/hints", world->root);
    return path;
}

static uint64_t hints_size(const struct world *world)
{
    struct stat file;
    return stat(hints_path(world), &file) == 0 ? (uint64_t)file.st_size : 0;
}

/* Sets all words of the table of uses. */
static void words_write(const struct world *world, uint32_t word)
{
    uint64_t count = (hints_size(world) - BEFORE_BYTES) / sizeof(word);
    FILE *hints = fopen(hints_path(world), "r+b");
    assert_non_null(hints);
    assert_int_equal(fseek(hints, BEFORE_BYTES, SEEK_SET), 0);
    for (uint64_t i = 0; i < count; i++)
        assert_int_equal(fwrite(&word, sizeof(word), 1, hints), 1);
    assert_int_equal(fclose(hints), 0);
}

static uint32_t now_s(const struct world *world)
{
    return (uint32_t)(sc_exec_wall_ns(world->exec) / 1000000000u);
}

static void a_use_is_seen_by_all(void **state)
{
    (void)state;
    struct world *world = world_make(&files, 1);
    struct follower *first = member_open(world), *second = member_open(world);
    uint32_t before = now_s(world);
    assert_int_equal(sc_store_used_s(second->store, 7), 0);
    sc_store_use(first->store, 7);
    uint32_t then = sc_store_used_s(second->store, 7);
    assert_true(then >= before && then <= now_s(world));
    assert_int_equal(sc_store_used_s(first->store, 7), then);
    assert_int_equal(sc_store_used_s(second->store, 8), 0);
    follower_free(first);
    follower_free(second);
    struct follower *later = member_open(world); /* uses outlive the members */
    assert_int_equal(sc_store_used_s(later->store, 7), then);
    follower_free(later);
    world_free(world);
}

/* A key that shares a word with others is kept by their uses, and never loses its own. */
static void a_collision_only_makes_younger(void **state)
{
    (void)state;
    struct world *world = world_make(&files, 2);
    struct follower *first = member_open(world), *second = member_open(world);
    uint32_t before = now_s(world), others = 0;
    for (uint64_t key = 1; key <= KEYS; key++)
        sc_store_use(first->store, key);
    for (uint64_t key = 1; key <= KEYS; key++)
        assert_true(sc_store_used_s(second->store, key) >= before);
    for (uint64_t key = KEYS + 1; key <= 2 * KEYS; key++)
        others += sc_store_used_s(second->store, key) != 0;
    assert_true(others < KEYS / 2); /* most of 1,024 words are free */
    words_write(world, 0);
    for (uint64_t bit = 0; bit < 64; bit++) /* numbers of any size */
        sc_store_use(first->store, UINT64_MAX - (UINT64_C(1) << bit));
    for (uint64_t bit = 0; bit < 64; bit++)
        assert_true(sc_store_used_s(second->store, UINT64_MAX - (UINT64_C(1) << bit)) >= before);
    follower_free(first);
    follower_free(second);
    world_free(world);
}

/* Words later than now are noise, or of a clock that was set back; a use repairs its word. */
static void the_future_is_no_use(void **state)
{
    (void)state;
    struct world *world = world_make(&files, 3);
    struct follower *first = member_open(world), *second = member_open(world);
    const uint32_t noise[] = {UINT32_MAX, 0xDEADBEEF, now_s(world) + 3600};
    for (uint32_t i = 0; i < sizeof(noise) / sizeof(noise[0]); i++) {
        words_write(world, noise[i]);
        assert_int_equal(sc_store_used_s(second->store, 7), 0);
        sc_store_use(first->store, 7);
        assert_true(sc_store_used_s(second->store, 7) != 0);
        assert_true(sc_store_used_s(second->store, 7) <= now_s(world));
    }
    words_write(world, now_s(world) - 100);
    assert_true(sc_store_used_s(second->store, 9) + 100 <= now_s(world));
    follower_free(first);
    follower_free(second);
    world_free(world);
}

/* Who stores alone has no shared memory. */
static void one_writer_notes_nothing(void **state)
{
    (void)state;
    struct world *world = world_new(&files, 4);
    sc_store_use(world->store, 7);
    assert_int_equal(sc_store_used_s(world->store, 7), 0);
    assert_int_equal(hints_size(world), 0);
    world_free(world);
}

static void the_table_is_a_small_part_of_the_disk(void **state)
{
    (void)state;
    assert_int_equal(sc_store_hints_bytes(0), BEFORE_BYTES + (4u << 10));
    assert_int_equal(sc_store_hints_bytes(UINT64_C(32) << 20), BEFORE_BYTES + (8u << 10));
    assert_int_equal(sc_store_hints_bytes(UINT64_C(33) << 20), BEFORE_BYTES + (8u << 10));
    assert_int_equal(sc_store_hints_bytes(UINT64_C(4) << 30), BEFORE_BYTES + (1u << 20));
    assert_int_equal(sc_store_hints_bytes(UINT64_MAX), BEFORE_BYTES + (1u << 20));
}

/* The member with the lowest place is heard, so that two that ask do not wait for each other. */
static void one_that_asks_for_segments_is_heard(void **state)
{
    static const struct world_setup sim = {"sim", WORLD_ON(SIM, 0), WORLD_SHAPE(PAIRED, 3, 48, 0),
                                           WORLD_DISK(8, 1, 64)}; /* whose time stands */
    (void)state;
    struct world *world = world_make(&sim, 6);
    struct follower *first = member_open(world), *second = member_open(world);
    assert_false(sc_store_claims_asked(first->store, false));
    sc_store_claims_ask(second->store);
    assert_true(sc_store_claims_asked(first->store, false));
    assert_false(sc_store_claims_asked(first->store, true));
    assert_false(sc_store_claims_asked(second->store, false)); /* its own */
    sc_store_claims_ask(first->store);
    sc_store_claims_ask(second->store);
    assert_true(sc_store_claims_asked(second->store, true));
    assert_false(sc_store_claims_asked(first->store, false));
    follower_free(first);
    follower_free(second);
    world_free(world);
}

/* A file of earlier versions (intents alone) grows, and one too long for disk_bytes is made anew.
 */
static void the_file_has_the_size_that_is_counted(void **state)
{
    (void)state;
    struct world *world = world_make(&files, 5);
    struct follower *member = member_open(world);
    uint64_t counted = sc_store_hints_bytes(member->store->disk.bytes_max);
    assert_int_equal(hints_size(world), counted);
    assert_true(sc_store_intend(member->store, 5));
    follower_free(member);
    assert_int_equal(truncate(hints_path(world), (off_t)INTENTS_BYTES), 0);
    member = member_open(world);
    assert_int_equal(hints_size(world), counted);
    sc_store_use(member->store, 7);
    assert_true(sc_store_used_s(member->store, 7) != 0);
    follower_free(member);
    assert_int_equal(truncate(hints_path(world), (off_t)(counted * 2)), 0);
    world_open_ok(world); /* one writer alone: the file is not counted */
    assert_int_equal(hints_size(world), 0);
    world_free(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_use_is_seen_by_all),
        cmocka_unit_test(a_collision_only_makes_younger),
        cmocka_unit_test(the_future_is_no_use),
        cmocka_unit_test(one_writer_notes_nothing),
        cmocka_unit_test(the_table_is_a_small_part_of_the_disk),
        cmocka_unit_test(one_that_asks_for_segments_is_heard),
        cmocka_unit_test(the_file_has_the_size_that_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
