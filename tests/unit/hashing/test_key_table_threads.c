/* Readers without a lock beside one writer that adds, publishes, evicts, frees and grows the table.
 * Labelled tsan: under ThreadSanitizer it must be silent.
 *
 *   stays    keys that are LIVE before the readers begin, and held for ever: the writer tries to
 *            evict them, and each search finds them
 *   comes    keys that the writer adds and evicts; value_bytes is a function of key and life, so a
 *            reader sees whether the size was another key's
 *   clock    the writer's; a reader that was told LIVE with a hold writes its end into promised,
 *            and the writer compares before it frees the entry
 *
 * Holds: nothing depends on who is faster.
 * Threads: one writer, eight readers. */
#include "hashing/key_table.h"
#include "tests/unit/cases.h"

#include <pthread.h>
#include <sched.h>

#define READERS   8u
#define STAYS     64u
#define COMES     1200u
#define WRITES    60000u
#define LOOKS_MIN 2000u /* of each reader */
#define KEY_BYTES 40u
#define BATCH     48u

struct shared {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_key_table table;
    uint32_t ids[COMES]; /* the writer's; 0: not linked */
    bool is_live[COMES];
    uint64_t held, left; /* the writer's counts */
    _Atomic uint64_t clock;
    _Atomic uint64_t promised[COMES];
    _Atomic uint64_t found, holds;
    _Atomic uint32_t readers_ready, writer_done;
    _Atomic uint32_t wrong; /* cmocka's asserts belong to the main thread */
};

static uint64_t draw(uint64_t *state, uint64_t bound)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (*state * UINT64_C(0x2545f4914f6cdd1d) >> 16) % bound;
}

/* Lengths differ, so that memory of a key is given to others of its length. */
static uint32_t key_make(uint32_t number, uint8_t key[KEY_BYTES])
{
    memset(key, (int)(number % 7), KEY_BYTES);
    memcpy(key, &number, sizeof(number));
    return KEY_BYTES - number % 20;
}

static uint64_t value_bytes_of(uint32_t number, uint64_t life)
{
    return ((uint64_t)number << 32 | (life & 0xFFFFFFFF)) + 1;
}

/* ---- The writer ------------------------------------------------------------------------------ */

static void write_leave(struct shared *sh, uint32_t i)
{
    uint64_t now = atomic_fetch_add(&sh->clock, 1) + 1;
    if (!sc_key_table_leave(&sh->table, sh->ids[i], now)) {
        sh->held++;
        return;
    }
    if (atomic_load(&sh->promised[i]) > now)
        atomic_fetch_add(&sh->wrong, 1); /* it was held */
    sh->left++;
    sc_key_table_unlink(&sh->table, sh->ids[i]);
    sc_key_table_free(&sh->table, sh->ids[i]);
    sh->ids[i] = 0;
    sh->is_live[i] = false;
}

static void write_once(struct shared *sh, uint32_t n, uint64_t *random)
{
    uint8_t key[KEY_BYTES];
    uint32_t most = 20 + n / 50; /* so the table grows for a while */
    uint32_t i = (uint32_t)draw(random, most < COMES ? most : COMES);
    uint32_t number = STAYS + i, key_bytes = key_make(number, key);
    if (sh->ids[i] == 0) {
        sh->ids[i] = sc_key_table_add(&sh->table, 1, key, key_bytes);
        if (sh->ids[i] == 0)
            atomic_fetch_add(&sh->wrong, 1);
    } else if (!sh->is_live[i]) {
        sc_key_table_publish(&sh->table, sh->ids[i], value_bytes_of(number, n), n);
        sh->is_live[i] = true;
    } else {
        write_leave(sh, i);
    }
}

static void *writer(void *user)
{
    struct shared *sh = user;
    uint64_t random = 99;
    uint8_t key[KEY_BYTES];
    while (atomic_load(&sh->readers_ready) < READERS)
        sched_yield();
    for (uint32_t n = 0; n < WRITES; n++) {
        write_once(sh, n, &random);
        if (n % 4 == 0) { /* what is held for ever is never evicted */
            uint32_t key_bytes = key_make(n / 4 % STAYS, key);
            uint32_t id = sc_key_table_find(&sh->table, 1, key, key_bytes);
            if (id == 0 || sc_key_table_leave(&sh->table, id, atomic_load(&sh->clock)))
                atomic_fetch_add(&sh->wrong, 1);
        }
        if (n % 64 == 0)
            sched_yield();
    }
    atomic_store(&sh->writer_done, 1);
    return NULL;
}

/* ---- Readers --------------------------------------------------------------------------------- */

static void promise(struct shared *sh, uint32_t i, uint64_t until)
{
    uint64_t seen = atomic_load(&sh->promised[i]);
    while (seen < until && !atomic_compare_exchange_weak(&sh->promised[i], &seen, until))
        continue;
    atomic_fetch_add_explicit(&sh->holds, 1, memory_order_relaxed);
}

static void read_once(struct shared *sh, uint64_t *random)
{
    uint8_t data[BATCH * KEY_BYTES];
    uint32_t lengths[BATCH], numbers[BATCH], used = 0;
    int8_t states[BATCH];
    uint64_t bytes[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) {
        numbers[i] = i % 3 == 0 ? (uint32_t)draw(random, STAYS)
                                : STAYS + (uint32_t)draw(random, draw(random, COMES) + 1);
        lengths[i] = key_make(numbers[i], data + used);
        used += lengths[i];
    }
    struct sc_key_batch batch = {.data = data, .lengths = lengths, .count = BATCH, .space = 1};
    if (draw(random, 4) == 0)
        batch.hold_ns = atomic_load(&sh->clock) + 1 + draw(random, 30);
    struct sc_key_found found = {.states = states, .bytes = bytes};
    sc_key_table_look(&sh->table, &batch, &found);
    for (uint32_t i = 0; i < BATCH; i++) {
        bool stays = numbers[i] < STAYS, is_live = states[i] == SC_KEY_LIVE;
        bool is_right = is_live ? (bytes[i] - 1) >> 32 == numbers[i] : bytes[i] == 0;
        if (!is_right || (stays && !is_live))
            atomic_fetch_add(&sh->wrong, 1);
        if (is_live && !stays && batch.hold_ns > 0)
            promise(sh, numbers[i] - STAYS, batch.hold_ns);
    }
    batch.space = 0; /* nothing is there */
    sc_key_table_look(&sh->table, &batch, &found);
    if (found.live > 0 || found.leading > 0)
        atomic_fetch_add(&sh->wrong, 1);
    sc_key_table_use(&sh->table, 1, data, lengths[0], (uint32_t)draw(random, 1000));
    atomic_fetch_add_explicit(&sh->found, found.live, memory_order_relaxed);
}

static void *reader(void *user)
{
    struct shared *sh = user;
    uint64_t random = (atomic_fetch_add(&sh->readers_ready, 1) + 1) * UINT64_C(0x7654321);
    uint64_t count = 0;
    while (atomic_load(&sh->writer_done) == 0 || count < LOOKS_MIN) {
        read_once(sh, &random);
        count++;
    }
    return NULL;
}

static void readers_are_right_beside_a_writer(void **state)
{
    (void)state;
    static struct shared sh;
    static const uint8_t secret[SC_KEY_SECRET_BYTES] = {2, 7, 1, 8};
    pthread_t threads[READERS + 1];
    uint8_t key[KEY_BYTES];
    sc_alloc_init(&sh.alloc);
    assert_true(sc_key_table_init(&sh.table, &sh.alloc, &sh.poison, secret, UINT64_MAX, 0));
    for (uint32_t i = 0; i < STAYS; i++) {
        uint32_t key_bytes = key_make(i, key);
        uint32_t id = sc_key_table_add(&sh.table, 1, key, key_bytes);
        assert_int_not_equal(id, 0);
        sc_key_table_publish(&sh.table, id, value_bytes_of(i, 0), 0);
        const struct sc_key_batch batch = {
            .data = key, .key_bytes = key_bytes, .count = 1, .space = 1, .hold_ns = UINT64_MAX};
        struct sc_key_found found = {0};
        sc_key_table_look(&sh.table, &batch, &found);
        assert_int_equal(found.live, 1);
    }
    assert_int_equal(pthread_create(&threads[READERS], NULL, writer, &sh), 0);
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &sh), 0);
    for (uint32_t i = 0; i <= READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&sh.wrong), 0);
    assert_int_equal(atomic_load(&sh.poison.broken), 0);
    assert_true(atomic_load(&sh.table.lines)->mask > 63); /* it grew */
    print_message("holds %llu, evicted %llu, held %llu\n",
                  (unsigned long long)atomic_load(&sh.holds), (unsigned long long)sh.left,
                  (unsigned long long)sh.held);
    assert_true(sh.left > 1000 && atomic_load(&sh.holds) > 0);
    sc_key_table_done(&sh.table);
    sc_alloc_done(&sh.alloc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_are_right_beside_a_writer),
    };
    return cmocka_run_group_tests_name("hashing key table threads", tests, NULL, NULL);
}
