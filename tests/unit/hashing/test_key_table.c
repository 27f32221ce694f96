/* The table of keys beside a dumb twin: random operations, searches of batches, limits, and what
 * stands in the lines afterwards.
 *
 *   pool   2,000 keys of 1 to 1,024 bytes; every fifth is the key before it with a zero behind it,
 *          so that zero padding tells nothing apart
 *   twin   one entry for each key and space: its number, state, size, tick and hold
 *
 * A table begins with 64 lines of seven slots, so of 300 entries many are not in their own line.
 *
 * Threads: one; tests of threads are in test_key_table_threads.c. */
#include "base/fault.h"
#include "hashing/key_table.h"
#include "tests/unit/cases.h"

#include <inttypes.h>

#define OWNER_BYTES 100u /* as an owner may keep of an entry */
#define POOL        2000u
#define SPACES      3u
#define OPERATIONS  60000u
#define CHECK_EVERY 1500u

static const uint8_t SECRET[SC_KEY_SECRET_BYTES] = {3, 1, 4, 1, 5};

struct twin {
    uint32_t id; /* 0: it has no linked entry */
    bool is_live;
    uint64_t bytes, hold_ns;
};

struct fixture {
    struct sc_fault fault;
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_key_table table;
    uint64_t random, now_ns;
    uint8_t *keys; /* [POOL] of SC_KEY_BYTES_MAX */
    uint32_t lengths[POOL];
    struct twin twins[SPACES][POOL];
    uint32_t unlinked[POOL], unlinked_count; /* numbers that were not freed yet */
    uint32_t linked_count;
};

static uint64_t draw(struct fixture *fx, uint64_t bound)
{
    fx->random ^= fx->random << 13;
    fx->random ^= fx->random >> 7;
    fx->random ^= fx->random << 17;
    return (fx->random * UINT64_C(0x2545f4914f6cdd1d) >> 16) % bound;
}

static const uint8_t *key_of(const struct fixture *fx, uint32_t number)
{
    return fx->keys + (uint64_t)number * SC_KEY_BYTES_MAX;
}

/* Key i: two bytes of its number, then others; the first have the shortest lengths, and some the
 * longest. */
static void keys_make(struct fixture *fx)
{
    fx->keys = calloc(POOL, SC_KEY_BYTES_MAX);
    assert_non_null(fx->keys);
    for (uint32_t i = 0; i < POOL; i++) {
        uint8_t *key = fx->keys + (uint64_t)i * SC_KEY_BYTES_MAX;
        if (i % 5 == 4 && fx->lengths[i - 1] < SC_KEY_BYTES_MAX) {
            memcpy(key, key_of(fx, i - 1), SC_KEY_BYTES_MAX);
            fx->lengths[i] = fx->lengths[i - 1] + 1;
            continue;
        }
        fx->lengths[i] = i < 200 ? 1 : 2 + (uint32_t)draw(fx, i % 10 == 0 ? 1023 : 40);
        if (i % 40 == 3)
            fx->lengths[i] = SC_KEY_BYTES_MAX;
        key[0] = (uint8_t)i;
        key[1] = fx->lengths[i] > 1 ? (uint8_t)(1 + i / 256) : 0;
        for (uint32_t at = 2; at < fx->lengths[i]; at++)
            key[at] = (uint8_t)draw(fx, 3);
    }
}

static struct fixture *fixture_new(uint64_t seed, uint64_t bytes_max)
{
    struct fixture *fx = calloc(1, sizeof(*fx));
    assert_non_null(fx);
    sc_fault_init(&fx->fault);
    sc_alloc_init(&fx->alloc);
    fx->alloc.fault = &fx->fault;
    fx->random = seed * 2 + 1;
    fx->now_ns = 1000;
    keys_make(fx);
    assert_true(
        sc_key_table_init(&fx->table, &fx->alloc, &fx->poison, SECRET, bytes_max, OWNER_BYTES));
    return fx;
}

static void fixture_free(struct fixture *fx)
{
    assert_int_equal(atomic_load(&fx->poison.broken), 0);
    sc_key_table_done(&fx->table);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
    sc_alloc_done(&fx->alloc);
    free(fx->keys);
    free(fx);
}

/* ---- Single keys ----------------------------------------------------------------------------- */

static enum sc_key_state look_one(const struct fixture *fx, uint32_t space, uint32_t number,
                                  uint64_t hold_ns, uint64_t *ret_bytes)
{
    int8_t state = -1;
    const struct sc_key_batch batch = {.data = key_of(fx, number),
                                       .key_bytes = fx->lengths[number],
                                       .count = 1,
                                       .space = space,
                                       .hold_ns = hold_ns};
    struct sc_key_found found = {.states = &state, .bytes = ret_bytes};
    sc_key_table_look(&fx->table, &batch, &found);
    assert_int_equal(found.live, state == SC_KEY_LIVE);
    assert_int_equal(found.leading, found.live);
    return (enum sc_key_state)state;
}

static void twin_check(const struct fixture *fx, uint32_t space, uint32_t number)
{
    const struct twin *twin = &fx->twins[space][number];
    uint8_t key[SC_KEY_BYTES_MAX];
    uint64_t bytes = 77;
    assert_int_equal(sc_key_table_find(&fx->table, space, key_of(fx, number), fx->lengths[number]),
                     twin->id);
    enum sc_key_state state = look_one(fx, space, number, 0, &bytes);
    assert_int_equal(bytes, twin->id != 0 && twin->is_live ? twin->bytes : 0);
    if (twin->id == 0) {
        assert_int_equal(state, SC_KEY_FREE);
        return;
    }
    assert_int_equal(state, twin->is_live ? SC_KEY_LIVE : SC_KEY_PENDING);
    const struct sc_key_entry *entry = sc_key_table_entry(&fx->table, twin->id);
    assert_int_equal(sc_key_entry_state(entry), state);
    assert_int_equal(atomic_load(&entry->space), space);
    assert_int_equal(sc_key_table_key(&fx->table, twin->id, key), fx->lengths[number]);
    assert_memory_equal(key, key_of(fx, number), fx->lengths[number]);
}

/* Each slot has an entry in use, and each header the entries whose place was searched for there in
 * vain: of their own line, and of those that they passed over. */
static void lines_check(const struct fixture *fx)
{
    const struct sc_key_lines *lines = atomic_load(&fx->table.lines);
    uint64_t *passed = calloc(lines->mask + 1, sizeof(*passed)), count = 0;
    assert_non_null(passed);
    for (uint64_t at = 0; at <= lines->mask; at++)
        for (uint32_t s = 1; s < 8; s++) {
            uint64_t slot = atomic_load(&lines->lines[at][s]);
            if (slot == 0)
                continue;
            const struct sc_key_entry *entry = sc_key_table_entry(&fx->table, (uint32_t)slot);
            assert_int_equal(entry->is_linked, 1);
            assert_int_equal(slot >> 32, entry->hash >> 32);
            for (uint64_t own = entry->hash & lines->mask; own != at; own = (own + 1) & lines->mask)
                passed[own]++;
            count++;
        }
    for (uint64_t at = 0; at <= lines->mask; at++)
        assert_int_equal(atomic_load(&lines->lines[at][0]), passed[at]);
    assert_int_equal(count, fx->linked_count);
    assert_int_equal(fx->table.linked_count, fx->linked_count);
    free(passed);
}

static void check_all(const struct fixture *fx)
{
    for (uint32_t space = 0; space < SPACES; space++)
        for (uint32_t i = 0; i < POOL; i++)
            twin_check(fx, space, i);
    lines_check(fx);
}

/* ---- Random operations ----------------------------------------------------------------------- */

static void op_add(struct fixture *fx, uint32_t space, uint32_t number)
{
    struct twin *twin = &fx->twins[space][number];
    uint32_t id = sc_key_table_add(&fx->table, space, key_of(fx, number), fx->lengths[number]);
    assert_int_not_equal(id, 0);
    *twin = (struct twin){.id = id};
    fx->linked_count++;
}

static void op_publish(struct fixture *fx, struct twin *twin)
{
    twin->bytes = 1 + draw(fx, 1 << 20);
    twin->is_live = true;
    uint32_t tick = (uint32_t)draw(fx, 1000);
    sc_key_table_publish(&fx->table, twin->id, twin->bytes, tick);
    assert_int_equal(atomic_load(&sc_key_table_entry(&fx->table, twin->id)->used), tick);
}

/* It is LEAVING; its number is free now, or stays for a while, as that of an object that is read.
 */
static void op_unlink(struct fixture *fx, uint32_t space, uint32_t number)
{
    struct twin *twin = &fx->twins[space][number];
    uint32_t id = twin->id;
    sc_key_table_unlink(&fx->table, id);
    *twin = (struct twin){0};
    fx->linked_count--;
    if (fx->unlinked_count < POOL && draw(fx, 3) == 0)
        fx->unlinked[fx->unlinked_count++] = id;
    else
        sc_key_table_free(&fx->table, id);
}

static void op_free_one(struct fixture *fx)
{
    if (fx->unlinked_count == 0)
        return;
    uint64_t at = draw(fx, fx->unlinked_count);
    sc_key_table_free(&fx->table, fx->unlinked[at]);
    fx->unlinked[at] = fx->unlinked[--fx->unlinked_count];
}

static void op_hold(struct fixture *fx, uint32_t space, uint32_t number)
{
    struct twin *twin = &fx->twins[space][number];
    uint64_t until_ns = fx->now_ns + 1 + draw(fx, 2000), bytes;
    if (look_one(fx, space, number, until_ns, &bytes) == SC_KEY_LIVE && until_ns > twin->hold_ns)
        twin->hold_ns = until_ns;
}

static void op_linked(struct fixture *fx, uint32_t space, uint32_t number)
{
    struct twin *twin = &fx->twins[space][number];
    switch (draw(fx, 8)) {
    case 0:
        sc_key_table_expel(&fx->table, twin->id);
        op_unlink(fx, space, number);
        break;
    case 1:
    case 2:
        if (!twin->is_live)
            break;
        bool leaves = sc_key_table_leave(&fx->table, twin->id, fx->now_ns);
        assert_int_equal(leaves, twin->hold_ns <= fx->now_ns);
        if (leaves)
            op_unlink(fx, space, number);
        break;
    case 3:
        sc_key_table_use(&fx->table, space, key_of(fx, number), fx->lengths[number], 5000);
        assert_true((atomic_load(&sc_key_table_entry(&fx->table, twin->id)->used) == 5000) ==
                    twin->is_live);
        break;
    case 4:
        op_hold(fx, space, number);
        break;
    default:
        if (!twin->is_live)
            op_publish(fx, twin);
    }
}

/* most: so many linked entries at most, so that the table stays small, or grows. */
static void operations_run(struct fixture *fx, uint32_t most)
{
    for (uint32_t n = 1; n <= OPERATIONS; n++) {
        uint32_t space = (uint32_t)draw(fx, SPACES), number = (uint32_t)draw(fx, POOL);
        fx->now_ns += draw(fx, 3);
        if (fx->twins[space][number].id != 0)
            op_linked(fx, space, number);
        else if (fx->linked_count < most)
            op_add(fx, space, number);
        else
            op_free_one(fx);
        twin_check(fx, space, number);
        if (n % CHECK_EVERY == 0)
            check_all(fx);
    }
}

static void a_small_table_is_as_the_twin(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct fixture *fx = fixture_new(seed, UINT64_MAX);
        operations_run(fx, 300);
        assert_int_equal(atomic_load(&fx->table.lines)->mask, 63); /* 300 of 448 slots */
        fixture_free(fx);
    }
}

static void a_table_that_grows_is_as_the_twin(void **state)
{
    (void)state;
    struct fixture *fx = fixture_new(9, UINT64_MAX);
    operations_run(fx, UINT32_MAX);
    const struct sc_key_lines *lines = atomic_load(&fx->table.lines);
    uint32_t doublings = 0;
    for (const struct sc_key_lines *older = lines->older; older != NULL; older = older->older)
        doublings++;
    assert_true(doublings >= 3);
    fixture_free(fx);
}

/* A line that overflows: of entries that are all in a few lines, any may leave first. */
static void what_passed_over_a_line_is_found_when_others_left_it(void **state)
{
    (void)state;
    struct fixture *fx = fixture_new(4, UINT64_MAX);
    const uint32_t count = 312; /* as many as 64 lines take */
    for (uint32_t i = 0; i < count; i++)
        op_add(fx, 0, i);
    assert_int_equal(atomic_load(&fx->table.lines)->mask, 63);
    lines_check(fx);
    uint64_t over = 0;
    for (uint64_t at = 0; at < 64; at++)
        over += atomic_load(&atomic_load(&fx->table.lines)->lines[at][0]);
    assert_true(over > 5);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = n * 7 % count; /* 7 and 312 share no factor */
        sc_key_table_expel(&fx->table, fx->twins[0][i].id);
        op_unlink(fx, 0, i);
        for (uint32_t other = 0; other < count; other++)
            twin_check(fx, 0, other);
    }
    lines_check(fx);
    while (fx->unlinked_count > 0)
        op_free_one(fx);
    fixture_free(fx);
}

static void a_number_is_given_again_with_another_generation(void **state)
{
    (void)state;
    struct fixture *fx = fixture_new(5, UINT64_MAX);
    op_add(fx, 0, 1);
    op_publish(fx, &fx->twins[0][1]);
    uint32_t id = fx->twins[0][1].id;
    const struct sc_key_entry *entry = sc_key_table_entry(&fx->table, id);
    uint64_t word = atomic_load(&entry->word);
    op_hold(fx, 0, 1);
    sc_key_table_expel(&fx->table, id);
    sc_key_table_unlink(&fx->table, id);
    fx->twins[0][1] = (struct twin){0};
    twin_check(fx, 0, 1);
    uint32_t other = sc_key_table_add(&fx->table, 0, key_of(fx, 2), fx->lengths[2]);
    assert_int_not_equal(other, id); /* it is not free yet */
    sc_key_table_free(&fx->table, id);
    assert_int_equal(sc_key_table_add(&fx->table, 1, key_of(fx, 2), fx->lengths[2]), id);
    assert_true(atomic_load(&entry->word) >> 2 > word >> 2);
    assert_int_equal(atomic_load(&entry->hold_ns), 0); /* the hold was the other key's */
    assert_int_equal(look_one(fx, 0, 1, 0, NULL), SC_KEY_FREE);
    assert_int_equal(look_one(fx, 1, 2, 0, NULL), SC_KEY_PENDING);
    fixture_free(fx);
}

/* ---- Limits ---------------------------------------------------------------------------------- */

/* Beyond bytes_max nothing is added, and what is there stays; what was freed makes room. */
static void bytes_max_refuses_and_changes_nothing(void **state)
{
    (void)state;
    struct fixture *fx = fixture_new(6, 600u << 10);
    uint32_t added = 0;
    for (; added < SPACES * POOL; added++) {
        uint32_t space = added / POOL, number = added % POOL;
        uint64_t bytes = fx->table.used_bytes;
        uint32_t id = sc_key_table_add(&fx->table, space, key_of(fx, number), fx->lengths[number]);
        assert_true(fx->table.used_bytes <= fx->table.bytes_max);
        if (id == 0) {
            assert_int_equal(fx->table.used_bytes, bytes);
            break;
        }
        fx->twins[space][number] = (struct twin){.id = id};
        fx->linked_count++;
    }
    assert_true(added > 0 && added < SPACES * POOL);
    check_all(fx);
    uint32_t number = added % POOL;
    assert_int_equal(
        sc_key_table_add(&fx->table, added / POOL, key_of(fx, number), fx->lengths[number]), 0);
    sc_key_table_expel(&fx->table, fx->twins[0][number].id);
    sc_key_table_unlink(&fx->table, fx->twins[0][number].id);
    sc_key_table_free(&fx->table, fx->twins[0][number].id);
    fx->twins[0][number] = (struct twin){0};
    fx->linked_count--;
    op_add(fx, added / POOL, number); /* of the same length, so it fits */
    check_all(fx);
    fixture_free(fx);
}

/* Lines cannot be doubled: they are filled to nine tenths, and then refuse. */
static void lines_without_room_are_filled_further(void **state)
{
    (void)state;
    struct fixture *fx = fixture_new(7, UINT64_MAX);
    uint32_t added = 0;
    op_add(fx, 0, 0);
    sc_alloc_seal(&fx->alloc); /* the first arena takes short keys, and lots of them */
    for (uint32_t i = 1; i < SPACES * POOL && added == 0; i++) {
        uint32_t space = i / POOL, number = i % POOL;
        if (fx->lengths[number] > 64)
            continue;
        uint32_t id = sc_key_table_add(&fx->table, space, key_of(fx, number), fx->lengths[number]);
        fx->twins[space][number].id = id;
        fx->linked_count += id != 0;
        added = id == 0 ? fx->linked_count : 0;
    }
    sc_alloc_unseal(&fx->alloc);
    assert_int_equal(added, 64 * 7 * 90 / 100);
    check_all(fx);
    fixture_free(fx);
}

static void every_allocation_that_fails_is_a_refusal(void **state)
{
    (void)state;
    bool met = true;
    uint64_t n = 0;
    for (; met && n < 100; n++) {
        struct fixture *fx = fixture_new(8, UINT64_MAX);
        sc_fault_arm(&fx->fault, SC_FAULT_ALLOC, n);
        for (uint32_t added = 0; added < SPACES * POOL; added++) {
            uint32_t space = added / POOL, number = added % POOL;
            uint32_t id =
                sc_key_table_add(&fx->table, space, key_of(fx, number), fx->lengths[number]);
            fx->twins[space][number] = (struct twin){.id = id};
            fx->linked_count += id != 0;
        }
        met = atomic_load(&fx->fault.fired[SC_FAULT_ALLOC]) > 0;
        assert_true(fx->linked_count >= SPACES * POOL - 1);
        check_all(fx);
        fixture_free(fx);
    }
    assert_true(n > 10 && n < 100);
    for (uint64_t i = 0; i < 4; i++) { /* those of init */
        struct sc_fault fault;
        struct sc_alloc alloc;
        struct sc_key_table table;
        sc_fault_init(&fault);
        sc_alloc_init(&alloc);
        alloc.fault = &fault;
        sc_fault_arm(&fault, SC_FAULT_ALLOC, i);
        assert_false(sc_key_table_init(&table, &alloc, NULL, SECRET, UINT64_MAX, OWNER_BYTES));
        sc_key_table_done(&table);
        sc_alloc_done(&alloc);
    }
}

/* ---- Batches --------------------------------------------------------------------------------- */

#define BATCH 150u /* more than the keys that are fetched at once */

struct batch {
    uint8_t data[BATCH * SC_KEY_BYTES_MAX];
    uint32_t lengths[BATCH], numbers[BATCH];
    int8_t states[BATCH];
    uint64_t bytes[BATCH];
    struct sc_key_batch call;
    struct sc_key_found found;
};

static void batch_look(const struct fixture *fx, struct batch *batch)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < batch->call.count; i++) {
        batch->lengths[i] = fx->lengths[batch->numbers[i]];
        memcpy(batch->data + at, key_of(fx, batch->numbers[i]), batch->lengths[i]);
        at += batch->lengths[i];
    }
    batch->call.data = batch->data;
    batch->call.lengths = batch->lengths;
    memset(batch->states, 55, sizeof(batch->states));
    batch->found = (struct sc_key_found){.states = batch->states, .bytes = batch->bytes};
    sc_key_table_look(&fx->table, &batch->call, &batch->found);
}

static void batch_check(const struct fixture *fx, const struct batch *batch)
{
    uint64_t leading = 0, live = 0;
    bool leads = true;
    for (uint32_t i = 0; i < batch->call.count; i++) {
        const struct twin *twin = &fx->twins[batch->call.space][batch->numbers[i]];
        bool is_live = twin->id != 0 && twin->is_live;
        leads = leads && is_live;
        bool is_told = leads || !batch->call.stops;
        int8_t state = is_live ? SC_KEY_LIVE : twin->id != 0 ? SC_KEY_PENDING : SC_KEY_FREE;
        assert_int_equal(batch->states[i], is_told ? state : SC_KEY_FREE);
        assert_int_equal(batch->bytes[i], is_live && is_told ? twin->bytes : 0);
        leading += leads;
        live += is_live && is_told;
    }
    assert_int_equal(batch->found.leading, leading);
    assert_int_equal(batch->found.live, live);
}

/* A third of the keys is absent, a fifth of the others is pending. */
static struct fixture *fixture_filled(void)
{
    struct fixture *fx = fixture_new(11, UINT64_MAX);
    for (uint32_t space = 0; space < SPACES; space++)
        for (uint32_t i = 0; i < POOL; i++) {
            if (draw(fx, 3) == 0)
                continue;
            op_add(fx, space, i);
            if (draw(fx, 5) > 0)
                op_publish(fx, &fx->twins[space][i]);
        }
    return fx;
}

static void batches_are_as_their_keys_alone(void **state)
{
    (void)state;
    struct fixture *fx = fixture_filled();
    struct batch *batch = calloc(1, sizeof(*batch));
    assert_non_null(batch);
    for (uint32_t n = 0; n < 3000; n++) {
        uint32_t leading = n % 2 == 0 ? (uint32_t)draw(fx, BATCH + 1) : 0;
        batch->call = (struct sc_key_batch){.count = 1 + (uint32_t)draw(fx, BATCH),
                                            .space = (uint32_t)draw(fx, SPACES),
                                            .stops = n % 3 == 0};
        for (uint32_t i = 0; i < batch->call.count; i++) {
            do
                batch->numbers[i] = (uint32_t)draw(fx, POOL);
            while (i < leading && !fx->twins[batch->call.space][batch->numbers[i]].is_live);
        }
        batch_look(fx, batch);
        batch_check(fx, batch);
    }
    free(batch);
    fixture_free(fx);
}

/* Keys of one length, and results that nobody wants. */
static void keys_of_one_length_need_no_lengths(void **state)
{
    (void)state;
    struct fixture *fx = fixture_filled();
    uint8_t data[200];
    int8_t states[200];
    for (uint32_t i = 0; i < 200; i++)
        data[i] = (uint8_t)i;
    const struct sc_key_batch batch = {.data = data, .key_bytes = 1, .count = 200};
    struct sc_key_found found = {.states = states}, counts = {0};
    sc_key_table_look(&fx->table, &batch, &found);
    sc_key_table_look(&fx->table, &batch, &counts);
    assert_int_equal(counts.live, found.live);
    assert_int_equal(counts.leading, found.leading);
    for (uint32_t i = 0; i < 200; i++)
        if (fx->lengths[i] == 1)
            assert_int_equal(states[i], look_one(fx, 0, i, 0, NULL));
    fixture_free(fx);
}

/* A hold is given to what is found, and to nothing behind the first key that is not; it is never
 * shortened. */
static void holds_are_for_what_is_told(void **state)
{
    (void)state;
    struct fixture *fx = fixture_filled();
    struct batch *batch = calloc(1, sizeof(*batch));
    assert_non_null(batch);
    for (uint32_t n = 0; n < 500; n++) {
        batch->call = (struct sc_key_batch){.count = 1 + (uint32_t)draw(fx, 50),
                                            .space = (uint32_t)draw(fx, SPACES),
                                            .stops = n % 2 == 0,
                                            .hold_ns = 1 + draw(fx, 1000000)};
        for (uint32_t i = 0; i < batch->call.count; i++)
            batch->numbers[i] = (uint32_t)draw(fx, POOL);
        batch_look(fx, batch);
        batch_check(fx, batch);
        for (uint32_t i = 0; i < batch->call.count; i++) {
            struct twin *twin = &fx->twins[batch->call.space][batch->numbers[i]];
            if (batch->states[i] == SC_KEY_LIVE && twin->hold_ns < batch->call.hold_ns)
                twin->hold_ns = batch->call.hold_ns;
        }
    }
    free(batch);
    for (uint32_t space = 0; space < SPACES; space++)
        for (uint32_t i = 0; i < POOL; i++) {
            const struct twin *twin = &fx->twins[space][i];
            if (twin->id == 0 || !twin->is_live)
                continue;
            assert_int_equal(atomic_load(&sc_key_table_entry(&fx->table, twin->id)->hold_ns),
                             twin->hold_ns);
            if (twin->hold_ns > 0)
                assert_false(sc_key_table_leave(&fx->table, twin->id, twin->hold_ns - 1));
            twin_check(fx, space, i);
            assert_true(sc_key_table_leave(&fx->table, twin->id, twin->hold_ns));
            assert_int_equal(look_one(fx, space, i, 0, NULL), SC_KEY_FREE);
        }
    fixture_free(fx);
}

static void secrets_differ_in_all_their_bytes(void **state)
{
    (void)state;
    uint8_t one[SC_KEY_SECRET_BYTES], other[SC_KEY_SECRET_BYTES], short_one[32] = {1};
    sc_key_secret_make(short_one, sizeof(short_one), one);
    short_one[31] ^= 1;
    sc_key_secret_make(short_one, sizeof(short_one), other);
    for (uint32_t i = 0; i < SC_KEY_SECRET_BYTES; i += 8) {
        assert_memory_not_equal(one + i, other + i, 8);
        for (uint32_t earlier = 0; earlier < i; earlier += 8)
            assert_memory_not_equal(one + i, one + earlier, 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_table_is_as_the_twin),
        cmocka_unit_test(a_table_that_grows_is_as_the_twin),
        cmocka_unit_test(what_passed_over_a_line_is_found_when_others_left_it),
        cmocka_unit_test(a_number_is_given_again_with_another_generation),
        cmocka_unit_test(bytes_max_refuses_and_changes_nothing),
        cmocka_unit_test(lines_without_room_are_filled_further),
        cmocka_unit_test(every_allocation_that_fails_is_a_refusal),
        cmocka_unit_test(batches_are_as_their_keys_alone),
        cmocka_unit_test(keys_of_one_length_need_no_lengths),
        cmocka_unit_test(holds_are_for_what_is_told),
        cmocka_unit_test(secrets_differ_in_all_their_bytes),
    };
    return cmocka_run_group_tests_name("hashing key table", tests, NULL, NULL);
}
