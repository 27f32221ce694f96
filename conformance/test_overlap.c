/* test_overlap: overlapping calls for one request: ABI-220.
 *
 *   door     pages that no thread may touch yet: a call that copies to or from them blocks in its
 *            copy until the door is opened
 *   thread   the call at the door; meanwhile the test calls for the same request, and releases it
 *
 * Invariants: no outcome depends on time. The door is opened and the thread joined before anything
 * is asserted. Connectors that never find anything pass.
 * Threads: the test's, and one at the door. Tests: see fixture.h. */
#include "conformance/suite.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define REQUESTS_MOST 1024u /* that a connector is asked to open */
#define PROMPT        200u

/* ---- The door: one a process, for the handler of the signal ---------------------------------- */

static struct {
    uint8_t *at;
    uint64_t bytes;
    struct sigaction before;
    _Atomic uint32_t knocked, opened;
} door;

/* Restores the signal's usual end for any other address. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t at = (uintptr_t)info->si_addr, first = (uintptr_t)door.at;
    if (at < first || at - first >= door.bytes) {
        (void)signal(signal_number, SIG_DFL);
        return;
    }
    atomic_store(&door.knocked, 1);
    const struct timespec moment = {.tv_nsec = 1000000};
    while (atomic_load(&door.opened) == 0)
        (void)nanosleep(&moment, NULL);
}

/* The area's description over pages that are closed; their bytes are those of `area`. */
static struct area door_close(const struct area *area)
{
    struct area behind = *area;
    struct sigaction action;
    memset(&door, 0, sizeof(door));
    door.bytes = area->byte_count;
    door.at = mmap(NULL, door.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(door.at != MAP_FAILED);
    memcpy(door.at, area->bytes, door.bytes);
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    assert_int_equal(sigaction(SIGSEGV, &action, &door.before), 0);
    assert_int_equal(mprotect(door.at, door.bytes, PROT_NONE), 0);
    behind.bytes = door.at;
    behind.memory.k_base = door.at + ((uint8_t *)area->memory.k_base - area->bytes);
    behind.memory.v_base = door.at + ((uint8_t *)area->memory.v_base - area->bytes);
    return behind;
}

static void door_open(void)
{
    (void)mprotect(door.at, door.bytes, PROT_READ | PROT_WRITE);
    atomic_store(&door.opened, 1);
}

static void door_remove(void)
{
    assert_int_equal(sigaction(SIGSEGV, &door.before, NULL), 0);
    assert_int_equal(munmap(door.at, door.bytes), 0);
}

/* ---- A call at the door ---------------------------------------------------------------------- */

struct call {
    struct fixture *fx;
    const struct spec_store_params *params; /* NULL: get_important of the items */
    struct spec_important items[2];
    pthread_t thread;
    spec_status status;
    _Atomic uint32_t has_returned;
};

static void *call_run(void *user)
{
    struct call *call = user;
    const struct fixture *fx = call->fx;
    call->status = call->params != NULL ? fx->api->store(fx->conn, call->params, 1, NULL, NULL)
                                        : fx->api->get_important(fx->conn, call->items, 2, NULL);
    atomic_store(&call->has_returned, 1);
    return NULL;
}

/* Begins it, and waits until it is at the door. */
static void call_begin(struct call *call)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    assert_int_equal(pthread_create(&call->thread, NULL, call_run, call), 0);
    while (atomic_load(&door.knocked) == 0 && atomic_load(&call->has_returned) == 0)
        (void)nanosleep(&moment, NULL);
}

static void call_end(struct call *call)
{
    door_open();
    assert_int_equal(pthread_join(call->thread, NULL), 0);
    assert_int_equal(atomic_load(&door.knocked), 1);
}

/* ---- What others are told ---------------------------------------------------------------------
 */

/* The first answer that is another than expected; no further call is made after it. */
struct answers {
    const char *call; /* NULL: all were as expected */
    spec_status status, expected;
};

static bool answer(struct answers *answers, const char *call, spec_status status,
                   spec_status expected)
{
    if (status != expected)
        *answers = (struct answers){call, status, expected};
    return status == expected;
}

static void answers_check(const struct answers *answers)
{
    if (answers->call != NULL)
        fail_msg("%s: status %d, expected %d", answers->call, (int)answers->status,
                 (int)answers->expected);
}

/* Every call for the request but release has this answer. */
static void ask_all(struct fixture *fx, spec_request request, const struct prompt *prompt,
                    const struct area *area, spec_status expected, struct answers *answers)
{
    const struct spec_api *api = fx->api;
    struct spec_important item = important(request, 1, &area->memory);
    spec_ticket ticket;
    (void)(answer(answers, "begin_layer", api->begin_layer(fx->conn, &request, 1, 1, NULL),
                  expected) &&
           answer(answers, "prefetch_next", api->prefetch_next(fx->conn, request, 0, NULL, NULL),
                  expected) &&
           answer(answers, "get_important", api->get_important(fx->conn, &item, 1, NULL),
                  expected) &&
           answer(answers, "get_important_submit",
                  api->get_important_submit(fx->conn, &item, 1, &ticket, NULL), expected) &&
           answer(answers, "store", fixture_put(fx, request, prompt, 0, prompt->count, 0, &ticket),
                  expected) &&
           answer(answers, "store_abort", api->store_abort(fx->conn, request, 0, NULL), expected));
}

/* BUSY for all; then the request is released, once, and STALE for all. */
static void overlap(struct fixture *fx, spec_request request, const struct prompt *prompt,
                    const struct area *area, struct answers *answers)
{
    ask_all(fx, request, prompt, area, SPEC_E_BUSY, answers);
    if (answers->call == NULL &&
        answer(answers, "release", fx->api->release(fx->conn, request, NULL), SPEC_OK) &&
        answer(answers, "release again", fx->api->release(fx->conn, request, NULL), SPEC_E_STALE))
        ask_all(fx, request, prompt, area, SPEC_E_STALE, answers);
}

/* Requests until no more can be opened. */
static uint64_t open_all(struct fixture *fx, const struct prompt *prompt, spec_request *ret_opened)
{
    struct spec_lookup_params in = lookup_params(prompt);
    struct spec_lookup_result found = {.struct_size = sizeof(found)};
    uint64_t count = 0;
    while (count < REQUESTS_MOST && fx->api->lookup(fx->conn, &in, &found, &fx->error) == SPEC_OK)
        ret_opened[count++] = found.request;
    return count;
}

static void release_all(struct fixture *fx, const spec_request *opened, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        fixture_release(fx, opened[i]);
}

/* As many requests as before can be open again: none is lost. */
static void expect_room(struct fixture *fx, const struct prompt *prompt, uint64_t most)
{
    spec_request opened[REQUESTS_MOST];
    uint64_t count;
    uint32_t tries = 0;
    do {
        count = open_all(fx, prompt, opened);
        release_all(fx, opened, count);
    } while (count < most && conf_wait(&tries));
    assert_int_equal(count, most);
    assert_int_equal(fixture_stats(fx).requests_open, 0);
}

static void skip_on_a_device(void)
{
    if (conf_options.one_set)
        conf_skip("a call stays at host memory that it copies; a device's is another's");
}

/* ---- The tests --------------------------------------------------------------------------------
 */

static void abi_220_calls_beside_a_store_are_busy_and_a_release_ends_it(void **state)
{
    struct fixture *fx = *state;
    skip_on_a_device();
    struct prompt prompt = prompt_make(2200, PROMPT), other = prompt_make(2201, 100);
    spec_request opened[REQUESTS_MOST];
    uint64_t most = open_all(fx, &other, opened);
    release_all(fx, opened, most);
    struct spec_lookup_result found = fixture_find(fx, &prompt);
    struct area area = area_make(&fx->shape, LAYOUT_PACKED, PROMPT);
    area_fill(&area, &fx->shape, &prompt, 0, 0);
    struct area behind = door_close(&area);
    const struct spec_store_params params = {.struct_size = sizeof(params),
                                             .request = found.request,
                                             .token_count = PROMPT,
                                             .memory = &behind.memory};
    struct call call = {.fx = fx, .params = &params};
    struct answers answers = {NULL, SPEC_OK, SPEC_OK};
    call_begin(&call);
    overlap(fx, found.request, &prompt, &area, &answers);
    /* The request's place is its call's: nobody else has it. */
    uint64_t beside = answers.call == NULL ? open_all(fx, &other, opened) : 0;
    call_end(&call);
    answers_check(&answers);
    assert_true(call.status == SPEC_OK || call.status == SPEC_E_STALE);
    assert_true(beside < most);
    for (uint64_t i = 0; i < beside; i++)
        assert_true(opened[i] != found.request);
    release_all(fx, opened, beside);
    expect_room(fx, &other, most);
    fixture_check(fx, &prompt, 0); /* one layer of a pass is none */
    bool stored = fixture_store(fx, &prompt);
    fixture_check(fx, &prompt, stored ? PROMPT - 1 : 0);
    door_remove();
    area_free(&area);
    prompt_free(&prompt);
    prompt_free(&other);
}

static void abi_220_a_release_beside_a_load_leaves_its_end_to_the_load(void **state)
{
    struct fixture *fx = *state;
    skip_on_a_device();
    struct prompt other = prompt_make(2203, 100);
    spec_request opened[REQUESTS_MOST];
    uint64_t most = open_all(fx, &other, opened);
    release_all(fx, opened, most);
    struct held held = hold(fx, 2202, PROMPT);
    uint64_t rows = held.found.matched_tokens;
    if (rows == 0) { /* no load has anything to copy */
        let_go(fx, &held);
        prompt_free(&other);
        return;
    }
    struct area first = area_make(&fx->shape, LAYOUT_PACKED, rows);
    struct area second = area_make(&fx->shape, LAYOUT_PACKED, rows);
    struct area behind = door_close(&first);
    struct call call = {.fx = fx,
                        .items = {important(held.found.request, 0, &behind.memory),
                                  important(held.found.request, 1, &second.memory)}};
    struct answers answers = {NULL, SPEC_OK, SPEC_OK};
    call_begin(&call);
    overlap(fx, held.found.request, &held.prompt, &first, &answers);
    call_end(&call);
    answers_check(&answers);
    assert_status(call.status, SPEC_E_STALE);
    assert_true(call.items[0].status == SPEC_OK || call.items[0].status == SPEC_E_STALE);
    if (call.items[0].status == SPEC_OK)
        area_expect(&behind, &fx->shape, &held.prompt, 0, rows, 0);
    assert_status(call.items[1].status, SPEC_E_STALE);
    expect_room(fx, &other, most);
    fixture_check(fx, &held.prompt, rows); /* nothing is wrong with what is stored */
    door_remove();
    area_free(&second);
    area_free(&first);
    prompt_free(&held.prompt);
    prompt_free(&other);
}

const struct conf_test CONF_OVERLAP[] = {
    OPENED(abi_220_calls_beside_a_store_are_busy_and_a_release_ends_it),
    OPENED(abi_220_a_release_beside_a_load_leaves_its_end_to_the_load),
    END,
};
