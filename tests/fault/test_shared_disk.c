/* Processes on a disk that is too small for what they store: what any of them uses stays there.
 *
 * The program runs itself (processes.h). Its workers have these commands of their own:
 *
 *   model NAME        whose rows the next open is for; 0
 *   fill FIRST COUNT  stores prompts, each until it is stored; retries
 *   flood FIRST COUNT stores prompts, each three times at most; how many were stored
 *   use FIRST COUNT   loads prompts; how many were found whole, and right
 *
 * Threads: one in each process, beside the plugin's. */
#include "tests/fault/processes.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKENS    100u /* of a prompt: 100 KiB of rows */
#define USED      8u
#define PART      20u  /* prompts between two uses */
#define PARTS     40u  /* 800 prompts: four times what the disk holds */
#define MOST      120u /* prompts: more than half of what the disk holds */
#define OTHERS    1000000u
#define TRIES     3u
#define FILLS_MAX 100000u

/* ---- A worker ------------------------------------------------------------------------------- */

static bool may_retry(spec_status status)
{
    return status == SPEC_E_DROPPED || status == SPEC_E_NO_SPACE || status == SPEC_E_STALE ||
           status == SPEC_E_BUSY;
}

static spec_status put(struct worker *w, uint64_t seed)
{
    struct spec_lookup_result result;
    make_prompt(w, seed, TOKENS);
    spec_status status = lookup(w, TOKENS, &result);
    if (status != SPEC_OK)
        return status;
    uint64_t first = result.matched_tokens;
    if (first < TOKENS)
        status = store_layers(w, result.request, first, TOKENS - first, LAYERS);
    (void)w->api->release(w->conn, result.request, NULL);
    return status;
}

/* Returns the prompts stored. */
static uint64_t put_all(struct worker *w, uint64_t first, uint64_t count, uint64_t tries)
{
    uint64_t stored = 0;
    for (uint64_t i = 0; i < count; i++) {
        spec_status status = put(w, first + i);
        for (uint64_t j = 1; j < tries && may_retry(status); j++) {
            (void)usleep(5000);
            status = put(w, first + i);
        }
        if (status != SPEC_OK && !may_retry(status))
            exit(4);
        stored += status == SPEC_OK;
    }
    return stored;
}

static uint64_t use_all(struct worker *w, uint64_t first, uint64_t count)
{
    uint64_t whole = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct spec_lookup_result result;
        make_prompt(w, first + i, TOKENS);
        if (lookup(w, TOKENS, &result) != SPEC_OK)
            exit(4);
        int status = load_all(w, result.request, result.matched_tokens);
        (void)w->api->release(w->conn, result.request, NULL);
        if (status == ROWS_WRONG)
            exit(5);
        whole += status == SPEC_OK && result.matched_tokens == TOKENS;
    }
    return whole;
}

static bool obey_more(struct worker *w, const char *line)
{
    uint64_t first, count, answer;
    if (sscanf(line, "model %31s", w->weights) == 1)
        answer = 0;
    else if (sscanf(line, "fill %" SCNu64 " %" SCNu64, &first, &count) == 2)
        answer = put_all(w, first, count, FILLS_MAX);
    else if (sscanf(line, "flood %" SCNu64 " %" SCNu64, &first, &count) == 2)
        answer = put_all(w, first, count, TRIES);
    else if (sscanf(line, "use %" SCNu64 " %" SCNu64, &first, &count) == 2)
        answer = use_all(w, first, count);
    else
        return false;
    (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64, answer);
    return true;
}

/* ---- The parent ------------------------------------------------------------------------------ */

static uint64_t ask_for(struct process *process, const char *what, uint64_t first, uint64_t count)
{
    const char *answer = ask(process, "%s %" PRIu64 " %" PRIu64, what, first, count);
    char *end;
    uint64_t number = strtoull(answer, &end, 10);
    if (end == answer)
        fail_msg("%s: %s", what, answer);
    return number;
}

static struct process open_member(const struct scene *scene, const char *model)
{
    struct process process = start();
    assert_string_equal(ask(&process, "model %s", model), "0");
    const char *answer =
        ask(&process,
            "open %s %u 0 1 \"segment_bytes\": \"1MiB\", \"disk_bytes\": \"24MiB\", "
            "\"lease_ns_max\": 300000000, \"store\": {\"writers\": \"many\"}",
            scene->dir, SPEC_ROLE_AUTO);
    if (strcmp(answer, "0 ") != 0)
        fail_msg("open: %s", answer);
    await_number(&process, "role", SPEC_ROLE_WRITER);
    return process;
}

/* `by` stores four times what the disk holds, while `user` uses a few prompts and no others.
 * Returns how many it stored. */
static uint64_t flood_beside(struct process *by, struct process *user, uint64_t first,
                             uint64_t used_first)
{
    uint64_t stored = 0;
    for (uint64_t i = 0; i < PARTS; i++) {
        assert_int_equal(ask_for(user, "use", used_first, USED), USED);
        stored += ask_for(by, "flood", first + i * PART, PART);
    }
    assert_int_equal(ask_for(user, "use", used_first, USED), USED);
    return stored;
}

static void what_another_process_uses_stays(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    struct process a = open_member(&scene, "one"), b = open_member(&scene, "one");
    assert_int_equal(ask_for(&a, "fill", 1, 2 * USED), 2 * USED);
    uint64_t stored = flood_beside(&b, &a, OTHERS, 1);
    uint64_t unused = ask_for(&a, "use", 1 + USED, USED);
    print_message("%" PRIu64 " of %u stored; of the others' prompts %" PRIu64 " of %u are left\n",
                  stored, PARTS * PART, unused, USED);
    assert_true(stored > PARTS * PART / 2);
    assert_true(unused < USED);
    finish(&a);
    finish(&b);
    scene_close(&scene);
}

/* Both fill the disk in turn, each beside what the other uses. */
static void two_models_do_not_erase_each_other(void **state)
{
    struct scene scene;
    (void)state;
    scene_open(&scene);
    struct process a = open_member(&scene, "one"), b = open_member(&scene, "other");
    assert_int_equal(ask_for(&a, "fill", 1, 2 * USED), 2 * USED);
    assert_int_equal(ask_for(&b, "fill", 1, USED), USED);
    uint64_t by_b = flood_beside(&b, &a, OTHERS, 1);
    uint64_t unused = ask_for(&a, "use", 1 + USED, USED);
    assert_int_equal(ask_for(&b, "fill", 1, USED), USED);
    uint64_t by_a = flood_beside(&a, &b, 2 * OTHERS, 1);
    print_message("%" PRIu64 " and %" PRIu64 " of %u stored; %" PRIu64 " of %u unused ones left\n",
                  by_b, by_a, PARTS * PART, unused, USED);
    assert_true(by_a > PARTS * PART / 2 && by_b > PARTS * PART / 2);
    assert_true(unused < USED);
    finish(&a);
    finish(&b);
    scene_close(&scene);
}

/* One model has the whole disk, and its process is stopped or killed: the other has its place when
 * the first counts as dead. */
static void a_model_that_does_not_answer_gives_way(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct scene scene;
        scene_open(&scene);
        struct process a = open_member(&scene, "one"), b = open_member(&scene, "other");
        assert_int_equal(ask_for(&a, "fill", 1, 300), 300);
        if (i == 0)
            assert_int_equal(kill(a.pid, SIGSTOP), 0);
        else
            kill_hard(&a);
        double begin_s = now_s();
        do
            assert_int_equal(ask_for(&b, "fill", 1, MOST), MOST);
        while (ask_for(&b, "use", 1, MOST) < MOST && now_s() < begin_s + PATIENCE_S);
        assert_int_equal(ask_for(&b, "use", 1, MOST), MOST);
        print_message("%s: %u prompts have its place after %.1f s\n", i == 0 ? "stopped" : "killed",
                      MOST, now_s() - begin_s);
        if (i == 0) {
            assert_int_equal(kill(a.pid, SIGCONT), 0);
            (void)ask_for(&a, "use", 1, 300);
            assert_int_equal(ask_for(&a, "fill", 1, USED), USED);
            finish(&a);
        }
        finish(&b);
        scene_close(&scene);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return worker_main(argv[2], obey_more);
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: test_shared_disk PLUGIN [TESTS]\n");
        return 2;
    }
    library_path = argv[1];
    if (argc == 3)
        cmocka_set_test_filter(argv[2]);
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_another_process_uses_stays, kill_leftovers),
        cmocka_unit_test_teardown(two_models_do_not_erase_each_other, kill_leftovers),
        cmocka_unit_test_teardown(a_model_that_does_not_answer_gives_way, kill_leftovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
