/* How much of a caller's stack the calls of the ABI take: threads of an engine may have little.
 *
 *   stack   [guard][poison poison poison | used by the call ... | thread]   painted before
 *                                        ^ the lowest byte that changed
 *
 * Sanitizers make frames larger than they are in what is shipped, so under them nothing is
 * measured. Threads: the host's one, on the painted stack, beside the connector's. */
#include "tests/unit/plugin/plugin_fixture.h"
#include "tests/unit/threads.h"

#include <sys/mman.h>

#ifdef SC_SANITIZED
#define IS_SANITIZED true
#else
#define IS_SANITIZED false
#endif

#define STACK_BYTES (1u << 20)  /* of the thread that is measured */
#define STACK_MOST  (64u << 10) /* of it used, what libc needs of it included */
#define PAINT       0xa7
#define ROWS        320u

/* ---- A painted stack ------------------------------------------------------------------------ */

struct painted {
    void (*call)(void *user);
    void *user;
};

static void *run_painted(void *user)
{
    const struct painted *painted = user;
    painted->call(painted->user);
    return NULL;
}

/* Bytes of stack that a thread used which made the call. */
static uint64_t stack_of(void (*call)(void *user), void *user)
{
    struct painted painted = {call, user};
    uint64_t guard = (uint64_t)sysconf(_SC_PAGESIZE), untouched = 0;
    uint8_t *stack =
        mmap(NULL, guard + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    assert_int_equal(mprotect(stack, guard, PROT_NONE), 0);
    memset(stack + guard, PAINT, STACK_BYTES);
    pthread_attr_t attr;
    pthread_t thread;
    assert_int_equal(pthread_attr_init(&attr), 0);
    assert_int_equal(pthread_attr_setstack(&attr, stack + guard, STACK_BYTES), 0);
    assert_int_equal(pthread_create(&thread, &attr, run_painted, &painted), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_attr_destroy(&attr);
    while (untouched < STACK_BYTES && stack[guard + untouched] == PAINT)
        untouched++;
    assert_int_equal(munmap(stack, guard + STACK_BYTES), 0);
    return STACK_BYTES - untouched;
}

/* ---- Calls ---------------------------------------------------------------------------------- */

struct host {
    struct rig *rig;
    const struct prompt *prompt;
    struct spec_lookup_params lookup;
    struct spec_lookup_result found;
    struct spec_queries queries;
    float numbers[2 * 32];
    struct area area;
    struct spec_select select;
    struct spec_important items[SC_LIMIT_BATCH];
    uint64_t count;
    struct spec_store_params store;
    spec_ticket ticket;
    spec_status status;
};

static void do_lookup(void *user)
{
    struct host *host = user;
    host->found = (struct spec_lookup_result){.struct_size = sizeof(host->found)};
    host->status = sc_plugin_lookup(host->rig->conn, &host->lookup, &host->found, NULL);
}

static void do_begin_layer(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_begin_layer(host->rig->conn, &host->found.request, 1, 0, NULL);
}

static void do_prefetch_next(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_prefetch_next(host->rig->conn, host->found.request, 0,
                                           host->count > 0 ? &host->queries : NULL, NULL);
}

static void do_get_important(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_get_important(host->rig->conn, host->items, host->count, NULL);
}

static void do_submit(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_submit(host->rig->conn, host->items, host->count, &host->ticket, NULL);
}

static void do_submit_wait(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_submit_wait(host->rig->conn, host->ticket, UINT64_MAX, NULL);
}

static void do_store(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_store(host->rig->conn, &host->store, 1, &host->ticket, NULL);
}

static void do_wait(void *user)
{
    struct host *host = user;
    spec_status status;
    host->status = sc_plugin_wait(host->rig->conn, &host->ticket, 1, UINT64_MAX, &status, NULL);
}

static void do_release(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_release(host->rig->conn, host->found.request, NULL);
}

static void do_reset(void *user)
{
    struct host *host = user;
    host->status = sc_plugin_reset(host->rig->conn, NULL);
}

static void do_pass_time(void *user)
{
    const struct host *host = user;
    rig_pass_ns(host->rig, 1000000000);
}

static void measure(struct host *host, const char *name, void (*call)(void *user))
{
    uint64_t bytes = stack_of(call, host);
    print_message("%-28s %6lu bytes of stack\n", name, (unsigned long)bytes);
    if (host->status != SPEC_OK)
        fail_msg("%s: %s", name, sc_status_name(host->status));
    if (bytes > STACK_MOST)
        fail_msg("%s takes %lu bytes of stack, at most %u expected", name, (unsigned long)bytes,
                 STACK_MOST);
}

static void host_init(struct host *host, struct rig *rig, const struct prompt *prompt)
{
    *host = (struct host){.rig = rig, .prompt = prompt, .area = rig_area(rig, ROWS)};
    host->lookup = (struct spec_lookup_params){.struct_size = sizeof(host->lookup),
                                               .tokens = prompt->tokens,
                                               .token_count = prompt->count,
                                               .max_tokens = ROWS};
    for (uint32_t i = 0; i < 2 * 32; i++)
        host->numbers[i] = (float)(i % 7);
    host->queries = (struct spec_queries){.struct_size = sizeof(host->queries),
                                          .dtype = SPEC_DTYPE_F32,
                                          .data = host->numbers,
                                          .byte_count = sizeof(host->numbers),
                                          .row_count = 1,
                                          .row_stride_bytes = sizeof(host->numbers),
                                          .head_stride_bytes = sizeof(host->numbers) / 2,
                                          .first_position = ROWS};
}

/* Items of the request, all into one destination. */
static void host_aim(struct host *host, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        host->items[i] = (struct spec_important){.struct_size = sizeof(host->items[i]),
                                                 .request = host->found.request,
                                                 .layer = (uint32_t)i % host->rig->layers,
                                                 .queries = &host->queries,
                                                 .destination = &host->area.memory};
    host->count = count;
}

static void measure_loads(struct host *host)
{
    static const uint64_t COUNTS[] = {1, 8, 9, SC_LIMIT_BATCH};
    for (uint32_t i = 0; i < 4; i++) {
        char name[64];
        host_aim(host, COUNTS[i]);
        (void)snprintf(name, sizeof(name), "get_important, %lu items", (unsigned long)COUNTS[i]);
        measure(host, name, do_get_important);
        (void)snprintf(name, sizeof(name), "submit, %lu items", (unsigned long)COUNTS[i]);
        measure(host, name, do_submit);
        measure(host, "wait", do_submit_wait);
    }
}

static void calls_take_little_of_a_small_stack(void **state)
{
    (void)state;
    static const char *const EXTRA[] = {
        "\"preset\": \"layered-uniform\"",
        "\"preset\": \"layered-uniform\", \"submit\": {\"threads\": 0}",
        "\"preset\": \"impress-itf\"", "\"preset\": \"as-like\""};
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers make frames of the stack larger\n");
        skip();
    }
    for (uint32_t e = 0; e < 4; e++) {
        struct rig rig;
        static struct host host;
        rig_begin_shape(&rig, false, EXTRA[e], 2, 2, 32, SPEC_DTYPE_F16);
        struct prompt prompt = rig_prompt(1, 0, 0, ROWS + 64), front = prompt;
        front.count = ROWS;
        assert_int_equal(rig_fill(&rig, &front), SPEC_OK);
        struct sc_store_stats stats;
        do {
            rig_pass_ns(&rig, 1000000);
            sc_store_stats(rig.conn->store, &stats);
        } while (stats.is_building);
        print_message("%s\n", EXTRA[e]);
        host_init(&host, &rig, &prompt);
        measure(&host, "lookup", do_lookup);
        assert_int_equal(host.found.matched_tokens, ROWS);
        measure(&host, "begin_layer", do_begin_layer);
        measure(&host, "prefetch_next", do_prefetch_next);
        measure_loads(&host);
        measure(&host, "prefetch_next, a hint", do_prefetch_next);
        for (uint32_t layer = 0; layer < rig.layers; layer++) {
            host.store = (struct spec_store_params){.struct_size = sizeof(host.store),
                                                    .request = host.found.request,
                                                    .layer = layer,
                                                    .first_token = ROWS,
                                                    .token_count = 64,
                                                    .memory = &host.area.memory};
            measure(&host, "store", do_store);
        }
        measure(&host, "wait for a ticket", do_wait);
        measure(&host, "release", do_release);
        measure(&host, "reset", do_reset);
        rig_area_free(&host.area);
        rig_end(&rig, &prompt);
    }
}

/* More calls of many items at one time than there are batches: each has its own, in turn. */
struct caller {
    struct rig *rig;
    const struct prompt *prompt;
    uint64_t wrong;
};

static void *call_many(void *user)
{
    struct caller *caller = user;
    struct rig *rig = caller->rig;
    struct area area = rig_area(rig, ROWS);
    struct spec_lookup_result found;
    if (rig_try_lookup(rig, caller->prompt, 0, RIG_MAX, &found) != SPEC_OK ||
        found.matched_tokens != ROWS)
        caller->wrong++;
    for (uint32_t round = 0; round < 4; round++) {
        struct spec_important items[9];
        for (uint32_t i = 0; i < 9; i++)
            items[i] = (struct spec_important){.struct_size = sizeof(items[i]),
                                               .request = found.request,
                                               .layer = i % rig->layers,
                                               .destination = &area.memory};
        caller->wrong += sc_plugin_get_important(rig->conn, items, 9, NULL) != SPEC_OK;
        caller->wrong += !rig_area_is_right(rig, &area, caller->prompt, 0, ROWS, 8 % rig->layers);
    }
    caller->wrong += sc_plugin_release(rig->conn, found.request, NULL) != SPEC_OK;
    rig_area_free(&area);
    return NULL;
}

static void more_calls_than_batches_end_all(void **state)
{
    (void)state;
    struct rig rig;
    struct caller callers[40];
    rig_begin(&rig, false, "\"chunk_tokens\": 16, \"max_requests\": 64");
    struct prompt prompt = rig_prompt(1, 0, 0, ROWS);
    assert_int_equal(rig_fill(&rig, &prompt), SPEC_OK);
    sc_alloc_seal(&rig.conn->alloc);
    for (uint32_t i = 0; i < 40; i++)
        callers[i] = (struct caller){.rig = &rig, .prompt = &prompt};
    threads_run(call_many, callers, sizeof(callers[0]), 40);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(callers[i].wrong, 0);
    assert_int_equal(atomic_load(&rig.conn->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&rig.conn->alloc);
    rig_end(&rig, &prompt);
}

/* The stack that is used while the windows of so many passes fail, whose file cannot be made. */
static uint64_t stack_of_failing(uint32_t passes)
{
    enum { PASSES_MOST = 12, TOKENS = 4096 };
    struct rig rig;
    struct prompt prompts[PASSES_MOST];
    struct host host = {.rig = &rig};
    rig_init(&rig, true, "\"max_requests\": 64, \"segment_bytes\": \"1GiB\"");
    rig_shape(&rig, 16, 4, 64, SPEC_DTYPE_F16);
    rig.stage = "64MiB";
    rig.op = "64KiB";
    rig_open(&rig);
    sc_io_sim_fault_ppm(rig.disk, SC_SIM_NO_SPACE, 1000000);
    for (uint32_t i = 0; i < passes; i++) {
        spec_ticket ticket = 0;
        prompts[i] = rig_prompt(1 + i, 0, 0, TOKENS);
        spec_request request = rig_lookup(&rig, &prompts[i]).request;
        assert_int_equal(rig_store_layer(&rig, request, &prompts[i], 0, TOKENS, 0, &ticket),
                         SPEC_OK);
    }
    uint64_t bytes = stack_of(do_pass_time, &host);
    assert_true(rig_store_stats(&rig).no_space > passes);
    rig_prompts_free_all(prompts, passes);
    rig_done(&rig);
    return bytes;
}

/* Each window that fails is the turn of the next one, which fails too: they do not pile up. */
static void what_waits_for_a_file_fails_one_by_one(void **state)
{
    (void)state;
    if (IS_SANITIZED) {
        print_message("skipped: sanitizers make frames of the stack larger\n");
        skip();
    }
    uint64_t one = stack_of_failing(1), many = stack_of_failing(12);
    print_message("writes that fail: %lu bytes of stack, %lu of more of them\n", (unsigned long)one,
                  (unsigned long)many);
    assert_true(many <= one + 2048);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_take_little_of_a_small_stack),
        cmocka_unit_test(more_calls_than_batches_end_all),
        cmocka_unit_test(what_waits_for_a_file_fails_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
