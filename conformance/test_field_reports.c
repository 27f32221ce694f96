/* test_field_reports: one test per report of another cache's users; the clause is what holds here.
 *
 * Threads, Tests: see fixture.h. */
#include "conformance/disk.h"
#include "conformance/suite.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define SMALL_FILES (64u << 10) /* locks, identities: not counted in disk_bytes */

/* 8 MiB for prompts of 512 KiB each. */
static void open_small(struct fixture *fx)
{
    fixture_shape(fx, (struct shape){2, 4, 64, SPEC_DTYPE_F16});
    fixture_reconfigure(fx, FIXTURE_SMALL_STORE);
}

static void abi_088_disk_fills_without_bound(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    uint64_t most = (8u << 20) + SMALL_FILES;
    for (uint64_t i = 0; i < 60; i++) {
        struct prompt prompt = prompt_make(700 + i, 256);
        (void)fixture_try_store(fx, &prompt);
        assert_in_range(disk_bytes(fx), 0, most);
        struct spec_stats stats = fixture_stats(fx);
        assert_true(stats.disk_bytes_max <= 8u << 20);
        assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
        if (i % 20 == 19)
            fixture_reopen(fx);
        prompt_free(&prompt);
    }
    fixture_close(fx);
    assert_in_range(disk_bytes(fx), 0, most);
}

static void abi_111_logical_counting_below_physical_use(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    for (uint64_t i = 0; i < 24; i++) {
        struct prompt prompt = prompt_make(770 + i, 1 + i * 37 % 256);
        (void)fixture_try_store(fx, &prompt);
        struct spec_stats stats = fixture_stats(fx);
        assert_in_range(disk_bytes(fx), 0, stats.disk_bytes_used + SMALL_FILES);
        assert_true(stats.extent_bytes + stats.log_bytes <= stats.disk_bytes_used + SMALL_FILES);
        prompt_free(&prompt);
    }
}

/* ---- Right length, wrong bytes ---- */

/* Two rows change places on the disk: each is whole, and neither is where it belongs. */
static void check_exchanged(struct fixture *fx, struct disk_row one, struct disk_row other)
{
    const struct prompt *prompts[] = {one.prompt, other.prompt};
    bool stored = fixture_store(fx, one.prompt) && fixture_store(fx, other.prompt);
    fixture_close(fx);
    bool exchanged = disk_exchange(fx, one, other);
    if (stored && conf_options.require_hits)
        assert_true(exchanged);
    fixture_open(fx);
    for (int i = 0; i < 2; i++) { /* rows that are delivered are compared */
        struct spec_lookup_result found = fixture_find(fx, prompts[i]);
        uint64_t good = fixture_load_until_broken(fx, prompts[i], &found);
        uint64_t wrong = i == 0 ? one.position : other.position;
        assert_true(!exchanged || good <= wrong || good < found.matched_tokens ||
                    found.matched_tokens <= wrong);
        fixture_release(fx, found.request);
    }
}

static void abi_058_right_length_wrong_bytes(void **state)
{
    struct fixture *fx = *state;
    struct prompt prompt = prompt_make(800, 300), other = prompt_make(801, 300);
    struct prompt third = prompt_make(802, 300);
    check_exchanged(fx, (struct disk_row){&prompt, 70, 1}, (struct disk_row){&prompt, 71, 1});
    check_exchanged(fx, (struct disk_row){&other, 130, 0}, (struct disk_row){&other, 130, 2});
    check_exchanged(fx, (struct disk_row){&third, 5, 1}, (struct disk_row){&prompt, 5, 1});
    prompt_free(&prompt);
    prompt_free(&other);
    prompt_free(&third);
}

/* ---- Reuse after something changed ---- */

/* Stores, lets `change` make the model another one, and back. */
static void check_reuse_after(struct fixture *fx, void (*change)(struct fixture *fx))
{
    struct prompt prompt = prompt_make(810, 200);
    struct shape shape = fx->shape;
    struct spec_model model = fx->model;
    fixture_open(fx);
    bool stored = fixture_store(fx, &prompt);
    fixture_close(fx);
    change(fx);
    fixture_open(fx);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    assert_int_equal(found.matched_tokens, 0);
    prompt_salt(&prompt, 5); /* the other model's rows are others */
    bool stored_other = fixture_store_range(fx, found.request, &prompt, 0, prompt.count);
    fixture_release(fx, found.request);
    fixture_check(fx, &prompt, stored_other ? 199 : 0);
    fixture_close(fx);
    fx->shape = shape;
    fx->model = model;
    prompt_salt(&prompt, 0);
    fixture_open(fx);
    fixture_check(fx, &prompt, stored ? 199 : 0);
    prompt_free(&prompt);
}

static void change_layout(struct fixture *fx) /* as many bytes a row */
{
    fixture_shape(fx, (struct shape){3, 4, 8, SPEC_DTYPE_F16});
}

static void change_dtype(struct fixture *fx) /* as many bytes a row */
{
    fixture_shape(fx, (struct shape){3, 2, 16, SPEC_DTYPE_BF16});
}

static void change_tp(struct fixture *fx)
{
    fx->model.tp_size = 2;
    fx->model.tp_rank = 1;
}

static void change_weights(struct fixture *fx)
{
    fx->model.weights_id = (struct spec_bytes){"other weights", 13};
}

static void abi_010_reuse_after_a_layout_change(void **state)
{
    check_reuse_after(*state, change_layout);
}

static void abi_010_reuse_after_a_dtype_change(void **state)
{
    check_reuse_after(*state, change_dtype);
}

static void abi_010_reuse_after_a_tp_change(void **state)
{
    check_reuse_after(*state, change_tp);
}

static void abi_010_reuse_after_a_weights_change(void **state)
{
    check_reuse_after(*state, change_weights);
}

/* ---- A reader races the writer of the same key ---- */

#define RACERS 4u

struct race {
    struct fixture *fx;
    const struct prompt *prompt;
    pthread_barrier_t *start;
    const char *wrong; /* NULL: all right */
};

static void *race_run(void *user)
{
    struct race *race = user;
    (void)pthread_barrier_wait(race->start);
    for (int i = 0; i < 3 && race->wrong == NULL; i++)
        race->wrong =
            request_run(race->fx->api, race->fx->conn, &race->fx->shape, race->prompt, NULL);
    return NULL;
}

static void abi_082_reader_races_the_writer_of_the_same_key(void **state)
{
    struct fixture *fx = *state;
    for (uint64_t i = 0; i < 12; i++) {
        struct prompt prompt = prompt_make(820 + i, 100 + 60 * i);
        pthread_t threads[RACERS];
        struct race races[RACERS];
        pthread_barrier_t start;
        assert_int_equal(pthread_barrier_init(&start, NULL, RACERS), 0);
        for (uint64_t j = 0; j < RACERS; j++) {
            races[j] = (struct race){fx, &prompt, &start, NULL};
            assert_int_equal(pthread_create(&threads[j], NULL, race_run, &races[j]), 0);
        }
        for (uint64_t j = 0; j < RACERS; j++)
            assert_int_equal(pthread_join(threads[j], NULL), 0);
        for (uint64_t j = 0; j < RACERS; j++)
            if (races[j].wrong != NULL)
                fail_msg("prompt %u, thread %u: %s", (unsigned)i, (unsigned)j, races[j].wrong);
        assert_int_equal(pthread_barrier_destroy(&start), 0);
        fixture_check(fx, &prompt, prompt.count - 1);
        prompt_free(&prompt);
    }
}

/* ---- A failed store stays visible ---- */

/* Files may not grow beyond a size, another in each round: at some the rows do not fit, at some the
 * log does not. What was not said to be stored is not found, now or later. */
static void abi_085_failed_store_stays_visible(void **state)
{
    struct fixture *fx = *state;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    static const rlim_t BYTES[] = {1, 100, 700, 1500, 2500, 4096, 9000, 30000, 1u << 20};
    for (uint64_t i = 0; i < sizeof(BYTES) / sizeof(BYTES[0]); i++) {
        struct prompt prompt = prompt_make(840 + i, 300);
        struct rlimit small = {BYTES[i], limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        bool stored = fixture_try_store(fx, &prompt);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        for (int round = 0; round < 2; round++) {
            struct spec_lookup_result found = fixture_find(fx, &prompt);
            assert_true(stored || found.matched_tokens == 0);
            fixture_check_layers(fx, &found, &prompt, 0);
            fixture_release(fx, found.request);
            fixture_reopen(fx);
        }
        prompt_free(&prompt);
    }
}

/* ---- The index is lost on a restart ---- */

struct life {
    struct fixture *fx;
    struct prompt prompt;
    bool *stored; /* shared with the parent */
};

static void live_once(void *user)
{
    struct life *life = user;
    fixture_open(life->fx);
    *life->stored = fixture_store(life->fx, &life->prompt);
    raise(SIGKILL);
}

/* Ten processes, each killed after it stored one turn more. */
static void abi_087_index_lost_on_restart(void **state)
{
    struct fixture *fx = *state;
    struct prompt whole = prompt_make(860, 900);
    bool *stored =
        mmap(NULL, sizeof(*stored), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stored != MAP_FAILED);
    bool all = true;
    for (uint64_t turn = 1; turn <= 10; turn++) {
        struct life life = {fx, prompt_diverge(&whole, 90 * turn, 90 * turn, 1), stored};
        *stored = false;
        int status = fixture_in_child(live_once, &life);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        all = all && *stored;
        prompt_free(&life.prompt);
    }
    fixture_open(fx);
    if (all)
        fixture_check(fx, &whole, 899);
    fixture_reopen(fx);
    if (all)
        fixture_check(fx, &whole, 899);
    assert_int_equal(munmap(stored, sizeof(*stored)), 0);
    prompt_free(&whole);
}

/* ---- Pins leak ---- */

/* Stores of released requests may hold their places until they have ended; what is held for good is
 * a leak. */
static spec_request find_patiently(struct fixture *fx, const struct prompt *prompt,
                                   struct spec_lookup_result *ret_found)
{
    struct spec_lookup_params params = lookup_params(prompt);
    spec_status status;
    uint32_t tries = 0;
    do {
        *ret_found = (struct spec_lookup_result){.struct_size = sizeof(*ret_found)};
        status = fx->api->lookup(fx->conn, &params, ret_found, &fx->error);
    } while (status == SPEC_E_BUSY && conf_wait(&tries));
    assert_ok(fx, status);
    return ret_found->request;
}

/* One way in which a request ends early; the whole store may go afterwards. */
static void end_early(struct fixture *fx, const struct prompt *prompt, uint64_t way)
{
    struct spec_lookup_result found;
    (void)find_patiently(fx, prompt, &found);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, found.matched_tokens);
    struct spec_important item = important(found.request, 0, &area.memory);
    spec_ticket ticket = 0;
    if (way % 4 == 1)
        assert_ok(fx, fx->api->begin_layer(fx->conn, &found.request, 1, 0, &fx->error));
    if (way % 4 == 2) {
        item.deadline_ns = 1;
        spec_status status = fx->api->get_important(fx->conn, &item, 1, &fx->error);
        assert_true(status == SPEC_OK || status == SPEC_E_TIMEOUT);
    }
    if (way % 4 == 3 && found.matched_tokens < prompt->count)
        assert_ok(fx, fixture_put(fx, found.request, prompt, found.matched_tokens,
                                  prompt->count - found.matched_tokens, 0, &ticket));
    if (ticket != 0)
        (void)fixture_wait(fx, ticket);
    fixture_release(fx, found.request);
    area_free(&area);
}

static void abi_110_pins_that_leak(void **state)
{
    struct fixture *fx = *state;
    open_small(fx);
    struct prompt trunk = prompt_make(880, 200);
    (void)fixture_try_store(fx, &trunk);
    for (uint64_t i = 0; i < 400; i++) {
        struct prompt prompt = prompt_diverge(&trunk, 150, 256, 900 + i % 7);
        end_early(fx, &prompt, i);
        prompt_free(&prompt);
    }
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    for (uint32_t tries = 0; fixture_stats(fx).tickets_open != 0;)
        assert_true(conf_wait(&tries));
    spec_request open[16]; /* max_requests: none is held by what ended */
    struct spec_lookup_result found;
    for (int i = 0; i < 16; i++)
        open[i] = find_patiently(fx, &trunk, &found);
    for (int i = 0; i < 16; i++)
        fixture_release(fx, open[i]);
    assert_int_equal(fixture_stats(fx).requests_open, 0);
    prompt_free(&trunk);
}

const struct conf_test CONF_FIELD_REPORTS[] = {
    BARE(abi_010_reuse_after_a_layout_change),
    BARE(abi_010_reuse_after_a_dtype_change),
    BARE(abi_010_reuse_after_a_tp_change),
    BARE(abi_010_reuse_after_a_weights_change),
    OPENED(abi_058_right_length_wrong_bytes),
    OPENED(abi_082_reader_races_the_writer_of_the_same_key),
    OPENED(abi_085_failed_store_stays_visible),
    BARE(abi_087_index_lost_on_restart),
    BARE(abi_088_disk_fills_without_bound),
    BARE(abi_110_pins_that_leak),
    BARE(abi_111_logical_counting_below_physical_use),
    END,
};
