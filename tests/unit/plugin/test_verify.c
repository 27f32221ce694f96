/* spec-ctl verify of stores whose pages are others' by now, or change under it: nothing is wrong
 * there, and it says so.
 *
 * Threads: one, and the connector's. */
#include "store/internal.h"
#include "tests/unit/plugin/select_fixture.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAYERS 3u
#define MATCH  200u
#define OTHERS 3u

static pid_t verify_begin(const struct rig *rig, const char *hold)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    if (hold != NULL) {
        setenv("HOLD_SEGMENTS", hold, 1);
        setenv("LD_PRELOAD", HOLD_SEGMENTS, 1);
    }
    execl(SPEC_CTL, "spec-ctl", "verify", "--quiet", rig->path, NULL);
    _exit(99);
}

static int verify_end(pid_t pid)
{
    int how;
    assert_int_equal(waitpid(pid, &how, 0), pid);
    return WIFEXITED(how) ? WEXITSTATUS(how) : 98;
}

/* Two requests store the same tokens, one of them more: the rows that are there twice are one's,
 * and the pages of the others are given to other prompts. */
static void rows_that_are_another_piece_s_are_not_accused(void **state)
{
    (void)state;
    static struct rig rig;
    rig_begin_shape(&rig, false,
                    "\"chunk_tokens\": 16, \"disk_bytes\": \"64MiB\", \"segment_bytes\": \"4MiB\", "
                    "\"lease_ns_max\": 1000000",
                    LAYERS, 2, 256, SPEC_DTYPE_F16);
    struct prompt whole = rig_prompt(1, 0, 0, MATCH), start = whole;
    start.count = 40;
    struct spec_lookup_result first = rig_lookup(&rig, &start), second = rig_lookup(&rig, &whole);
    spec_ticket ticket = rig_store(&rig, first.request, &start, 0, start.count);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    ticket = rig_store(&rig, second.request, &whole, 0, whole.count);
    assert_int_equal(rig_wait(&rig, ticket), SPEC_OK);
    rig_release(&rig, first.request);
    rig_release(&rig, second.request);
    for (uint64_t i = 2; i < 60; i++) {
        struct prompt other = rig_prompt(i, 0, 0, 1 + i % 7);
        rig_pass_ns(&rig, 20000000); /* leases end, and pages are free */
        assert_int_equal(rig_fill(&rig, &other), SPEC_OK);
        rig_prompt_free(&other);
    }
    spec_status status;
    assert_int_equal(rig_read(&rig, &whole, &status), whole.count);
    rig_close(&rig);
    assert_int_equal(verify_end(verify_begin(&rig, NULL)), 0);
    rig_end(&rig, &whole);
}

/* Rows of a view, chosen or given: a pass of all layers. */
static void view_store(struct rig *rig, struct world *view)
{
    uint64_t end = view->prompt.count - FRESH_ROWS;
    struct prompt prompt = view->prompt;
    struct spec_lookup_result found;
    spec_ticket ticket = 0;
    prompt.count = end;
    assert_int_equal(rig_try_lookup(rig, &prompt, 0, RIG_MAX, &found), SPEC_OK);
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct area area = world_area(view, 0, end, l);
        struct spec_store_params params = rig_store_params(found.request, l, 0, end, &area.memory);
        assert_int_equal(sc_plugin_store(rig->conn, &params, 1, &ticket, NULL), SPEC_OK);
        rig_area_free(&area);
    }
    assert_int_equal(rig_wait(rig, ticket), SPEC_OK);
    rig_release(rig, found.request);
}

static void view_load(struct rig *rig, struct world *view)
{
    uint32_t positions[2 * MATCH]; /* heads choose alone */
    struct prompt prompt = view->prompt;
    struct spec_lookup_result found;
    prompt.count -= FRESH_ROWS;
    assert_int_equal(rig_try_lookup(rig, &prompt, 0, RIG_MAX, &found), SPEC_OK);
    assert_int_equal(found.matched_tokens, MATCH);
    view->matched = MATCH;
    for (uint32_t l = 0; l < LAYERS; l++) {
        struct area area = rig_area(rig, MATCH);
        struct pass pass = world_pass(view, l, rig->dtype);
        struct spec_important item = {.struct_size = sizeof(item),
                                      .request = found.request,
                                      .layer = l,
                                      .queries = &pass.q,
                                      .new_keys = &pass.fresh.memory,
                                      .destination = &area.memory,
                                      .positions = positions,
                                      .position_capacity = 2 * MATCH};
        assert_int_equal(sc_plugin_get_important(rig->conn, &item, 1, &rig->error), SPEC_OK);
        rig_area_free(&area);
        pass_free(&pass);
    }
    rig_release(rig, found.request);
}

/* It has read the log when rows are put in another order, and their old pages become others'. */
static void rows_that_are_reordered_meanwhile_are_not_accused(void **state)
{
    (void)state;
    static struct rig rig;
    static struct world views[1 + OTHERS];
    char hold[128], name[160];
    rig_init(&rig, false,
             "\"preset\": \"impress\", \"select\": {\"retain_ppm\": 250000, \"min_tokens\": 0, "
             "\"min_share_ppm\": 0}, \"chunk_tokens\": 16, \"disk_bytes\": \"16MiB\", "
             "\"segment_bytes\": \"4MiB\", \"host_bytes\": 0, \"upper_bytes\": 0, "
             "\"lease_ns_max\": 100000000, \"maintain\": {\"bytes_per_s\": 0}");
    rig_shape(&rig, LAYERS, 2, 256, SPEC_DTYPE_F16);
    rig.query_group = 2;
    rig_open(&rig);
    for (uint64_t i = 0; i <= OTHERS; i++)
        views[i] = (struct world){.rig = rig,
                                  .prompt = rig_prompt(i + 1, 0, 0, MATCH + FRESH_ROWS),
                                  .group = 2,
                                  .agree = 4};
    view_store(&rig, &views[0]);
    for (uint32_t i = 0; i < 3; i++)
        view_load(&rig, &views[0]); /* which tells what is important of it */
    rig_pass_ns(&rig, 300000000);
    (void)snprintf(hold, sizeof(hold), "%s.hold", rig.path);
    (void)snprintf(name, sizeof(name), "%s.held", hold);
    pid_t pid = verify_begin(&rig, hold);
    while (access(name, F_OK) != 0) {
        assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it has ended: nothing held it */
        usleep(1000);
    }
    assert_int_equal(rig_maintain(&rig, SPEC_MAINTAIN_REORDER), SPEC_OK);
    struct sc_store_stats stats = {0};
    for (uint32_t looks = 0; stats.permuted_pieces == 0; looks++) {
        if (looks == 6000)
            fail_msg("no piece was put in order in two minutes");
        rig_pass_ns(&rig, 20000000);
        sc_store_stats(rig.conn->store, &stats);
    }
    rig_pass_ns(&rig, 500000000);
    for (uint32_t i = 1; i <= OTHERS; i++)
        view_store(&rig, &views[i]);
    view_load(&rig, &views[0]);
    (void)unlink(name);
    (void)snprintf(name, sizeof(name), "%s.go", hold);
    close(creat(name, 0600));
    assert_int_equal(verify_end(pid), 0);
    (void)unlink(name);
    assert_int_equal(verify_end(verify_begin(&rig, NULL)), 0);
    for (uint64_t i = 0; i <= OTHERS; i++)
        rig_prompt_free(&views[i].prompt);
    rig_done(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_are_another_piece_s_are_not_accused),
        cmocka_unit_test(rows_that_are_reordered_meanwhile_are_not_accused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
