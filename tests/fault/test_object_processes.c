/* Many processes over the objects of a rank: killed, stopped, and on a disk that is ever full.
 * Nobody is delivered bytes that were not put under that key, whatever became of whom.
 *
 * The program runs itself (processes.h). Its workers have these commands of their own:
 *
 *   begin DIR MEMBERS       opens the objects; MEMBERS: more members of the configuration; status
 *   run GENERATION OWN      until the next line: puts its OWN keys in order, "a NUMBER" each; and
 *                           puts, gets and removes keys that all processes have; then a sum
 *   find GENERATION COUNT   waits until the first COUNT keys of a generation are delivered; COUNT
 *   drop GENERATION COUNT   removes them; status
 *   gone GENERATION COUNT   waits until none of them is found; COUNT
 *   end                     closes
 *
 * A key is a number. It decides the size of its value. The value begins with the key, and with who
 * put it; both decide the other bytes. Further lines of a run:
 *
 *   w KEY                   bytes that were not put under the key
 *   e CALL STATUS KEY       a status that the call may not have there
 *
 * SC_ROUNDS=N kills so many times (SC_ALL_SEEDS=1: 300), SC_PROCESSES=N so many at a time,
 * SC_SEED=N chooses the moments.
 *
 * Threads: one in each process, beside the library's. */
#include "tests/fault/processes.h"

#include "abi/spec_objects.h"
#include "tests/sample.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARED_KEYS 64u
#define OWN_BITS    20u
#define OWN_MAX     150u
#define VALUE_MAX   (96u << 10)
#define MEMBERS_MAX 8u
#define LARGE       "\"disk_bytes\": \"2GiB\", \"segment_bytes\": \"4MiB\""
#define SMALL       "\"disk_bytes\": \"24MiB\", \"segment_bytes\": \"1MiB\""
#define SMALL_COUNT 1000u /* keys of all on a small disk: many times its size */

/* ---- A worker -------------------------------------------------------------------------------- */

static struct {
    const struct spec_objects_api *api;
    spec_objects *store;
    spec_domain domain;
    uint8_t value[VALUE_MAX];
    uint64_t put_number;
    uint64_t shared_keys;
} own;

struct one {
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    uint64_t key, address, size;
    int32_t status;
};

static uint64_t value_bytes(uint64_t key)
{
    return 32 + mix(key) % (key % 7 == 0 ? VALUE_MAX - 32 : 9000);
}

static void one_make(struct one *one, uint64_t key)
{
    *one = (struct one){.key = key, .size = value_bytes(key), .status = 99};
    one->address = (uint64_t)(uintptr_t)own.value;
    one->keys = (struct spec_keys){
        .struct_size = sizeof(one->keys), .count = 1, .data = &one->key, .key_bytes = 8};
    one->pieces = (struct spec_pieces){.struct_size = sizeof(one->pieces),
                                       .pieces = 1,
                                       .addresses = &one->address,
                                       .sizes = &one->size};
    one->params = (struct spec_transfer_params){.struct_size = sizeof(one->params),
                                                .ret_status = &one->status};
}

/* The bytes behind the first 24: the key, the process, the number of the put. */
static void value_fill(uint64_t bytes, uint8_t *dst)
{
    uint64_t seed, head[3];
    memcpy(head, dst, sizeof(head));
    seed = mix(head[0] ^ mix(head[1] ^ mix(head[2])));
    for (uint64_t at = sizeof(head); at < bytes; at += 8) {
        uint64_t word = mix(seed + at);
        memcpy(dst + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

static int32_t put_key(uint64_t key)
{
    struct one one;
    const uint64_t head[3] = {key, (uint64_t)getpid(), own.put_number++};
    one_make(&one, key);
    memcpy(own.value, head, sizeof(head));
    value_fill(one.size, own.value);
    spec_status status =
        own.api->put(own.store, own.domain, &one.keys, &one.pieces, &one.params, &error);
    return status == SPEC_OK ? one.status : status;
}

/* ROWS_WRONG: other bytes than were put. */
static int32_t get_key(uint64_t key)
{
    static uint8_t expected[VALUE_MAX];
    struct one one;
    uint64_t head[3];
    one_make(&one, key);
    memset(own.value, 0xa5, one.size);
    spec_status status =
        own.api->get(own.store, own.domain, &one.keys, &one.pieces, &one.params, &error);
    if (status != SPEC_OK || one.status != SPEC_KEY_DONE)
        return status == SPEC_OK ? one.status : status;
    memcpy(head, own.value, sizeof(head));
    memcpy(expected, head, sizeof(head));
    value_fill(one.size, expected);
    return head[0] == key && memcmp(expected, own.value, one.size) == 0 ? SPEC_KEY_DONE
                                                                        : ROWS_WRONG;
}

static spec_status remove_one(uint64_t key)
{
    struct one one;
    one_make(&one, key);
    return own.api->remove(own.store, own.domain, &one.keys, 0, NULL, &error);
}

static bool is_found(uint64_t key)
{
    struct one one;
    uint64_t leading = 0;
    const struct spec_exists_params params = {.struct_size = sizeof(params)};
    one_make(&one, key);
    if (own.api->exists(own.store, own.domain, &one.keys, &params, &leading, &error) != SPEC_OK)
        exit(3);
    return leading == 1;
}

static void do_begin(struct worker *w, const char *args)
{
    char dir[256], config[LINE_MAX];
    int used = 0;
    if (sscanf(args, "%255s %n", dir, &used) != 1)
        exit(3);
    void *library = dlopen(library_path, RTLD_NOW);
    const struct spec_objects_api *(*api_of)(uint32_t major) = NULL;
    if (library != NULL)
        *(void **)&api_of = dlsym(library, "spec_connector_objects_api");
    own.api = api_of != NULL ? api_of(SPEC_OBJECTS_MAJOR) : NULL;
    if (own.api == NULL)
        exit(3);
    (void)snprintf(config, sizeof(config), "{\"path\": \"%s\", \"staging_bytes\": \"16MiB\", %s}",
                   dir, args + used);
    const struct spec_objects_params params = {
        .struct_size = sizeof(params), .config = config, .rank_count = 1};
    const struct spec_domain_params domain = {.struct_size = sizeof(domain),
                                              .identity = {"processes", 9}};
    error = (struct spec_error){.struct_size = sizeof(error)};
    spec_status status = own.api->open(&params, &own.store, &error);
    if (status == SPEC_OK)
        status = own.api->domain_open(own.store, &domain, &own.domain, &error);
    (void)snprintf(w->answer, sizeof(w->answer), "%d %s", status, error.text);
}

struct sums {
    uint64_t stored, present, refused, delivered, absent;
};

static void run_put(uint64_t key, bool is_own, struct sums *sums)
{
    int32_t status = put_key(key);
    if (status == SPEC_KEY_DONE)
        sums->stored++;
    else if (status == SPEC_KEY_STORED)
        sums->present++;
    else if (status == SPEC_E_NO_SPACE || status == SPEC_E_TIMEOUT)
        sums->refused++;
    if (is_own && status == SPEC_KEY_DONE)
        dprintf(1, "a %" PRIu64 "\n", key & ((1u << OWN_BITS) - 1));
    else if (status < 0 && (is_own || (status != SPEC_E_NO_SPACE && status != SPEC_E_TIMEOUT)))
        dprintf(1, "e put %d %" PRIx64 "\n", status, key);
}

static void run_get(uint64_t key, struct sums *sums)
{
    int32_t status = get_key(key);
    sums->delivered += status == SPEC_KEY_DONE;
    sums->absent += status == SPEC_KEY_ABSENT;
    if (status == ROWS_WRONG)
        dprintf(1, "w %" PRIx64 "\n", key);
    else if (status != SPEC_KEY_DONE && status != SPEC_KEY_ABSENT)
        dprintf(1, "e get %d %" PRIx64 "\n", status, key);
}

static void do_run(struct worker *w, const char *args)
{
    uint64_t generation, most, number = 0, random = (uint64_t)getpid();
    struct sums sums = {0};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (sscanf(args, "%" SCNu64 " %" SCNu64 " %" SCNu64, &generation, &most, &own.shared_keys) != 3)
        exit(3);
    while (poll(&input, 1, 0) == 0) {
        random = mix(random);
        uint64_t key = (random >> 20) % own.shared_keys, what = random % 100;
        if (number < most && what < 40)
            run_put(generation << OWN_BITS | number++, true, &sums);
        else if (what < 60)
            run_put(key, false, &sums);
        else if (what < 90)
            run_get(key, &sums);
        else if (remove_one(key) != SPEC_OK)
            dprintf(1, "e remove %" PRIx64 " %s\n", key, error.text);
    }
    (void)snprintf(w->answer, sizeof(w->answer),
                   "stopped %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, sums.stored,
                   sums.present, sums.refused, sums.delivered, sums.absent);
}

/* find, drop, gone: what has to come of each key. */
static void do_each(struct worker *w, const char *args, char what)
{
    uint64_t generation, count, done = 0;
    double end_s = now_s() + PATIENCE_S;
    if (sscanf(args, "%" SCNu64 " %" SCNu64, &generation, &count) != 2)
        exit(3);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t key = generation << OWN_BITS | i;
        int32_t status = SPEC_KEY_ABSENT;
        while (what == 'f' && (status = get_key(key)) == SPEC_KEY_ABSENT && now_s() < end_s)
            (void)usleep(1000);
        while (what == 'g' && is_found(key) && now_s() < end_s)
            (void)usleep(1000);
        bool is_right = what == 'f'   ? status == SPEC_KEY_DONE
                        : what == 'd' ? remove_one(key) == SPEC_OK
                                      : !is_found(key);
        if (!is_right) {
            (void)snprintf(w->answer, sizeof(w->answer), "key %" PRIx64 ": %d", key, status);
            return;
        }
        done++;
    }
    (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64, done);
}

static bool obey_more(struct worker *w, const char *line)
{
    if (strncmp(line, "begin ", 6) == 0) {
        do_begin(w, line + 6);
    } else if (strncmp(line, "run ", 4) == 0) {
        do_run(w, line + 4);
    } else if (strncmp(line, "find ", 5) == 0 || strncmp(line, "drop ", 5) == 0 ||
               strncmp(line, "gone ", 5) == 0) {
        do_each(w, line + 5, line[0]);
    } else if (strncmp(line, "stop", 4) == 0) {
        w->answer[0] = '\0'; /* it ended the run, which has answered */
    } else if (strncmp(line, "end", 3) == 0) {
        own.api->close(own.store);
        (void)snprintf(w->answer, sizeof(w->answer), "0");
    } else {
        return false;
    }
    return true;
}

/* ---- The parent ------------------------------------------------------------------------------ */

struct member {
    struct process process;
    uint64_t generation, acknowledged; /* keys of this generation */
    bool is_running;
    char buffer[2 * LINE_MAX];
    size_t used;
    struct sums sums; /* of the last run */
};

static struct stage {
    struct scene scene;
    const char *config;
    struct member members[MEMBERS_MAX];
    uint32_t count;
    uint64_t random, generations, own, shared_keys;
} stage;

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? strtoull(value, NULL, 10) : otherwise;
}

static uint64_t draw(uint64_t below)
{
    stage.random = mix(stage.random);
    return stage.random % below;
}

static void line_hear(struct member *member, const char *line)
{
    if (sscanf(line, "stopped %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &member->sums.stored, &member->sums.present, &member->sums.refused,
               &member->sums.delivered, &member->sums.absent) == 5)
        member->is_running = false;
    else if (line[0] == 'a')
        member->acknowledged++;
    else
        fail_msg("process %d: %s", member->process.pid, line);
}

/* Hears the lines that a run has written so far; a killed process's last one may be cut. */
static void lines_hear(struct member *member, int timeout_ms)
{
    int fd = fileno(member->process.from);
    struct pollfd input = {.fd = fd, .events = POLLIN};
    while (poll(&input, 1, timeout_ms) > 0 && (input.revents & POLLIN) != 0) {
        ssize_t count =
            read(fd, member->buffer + member->used, sizeof(member->buffer) - member->used - 1);
        if (count <= 0)
            return;
        member->used += (size_t)count;
        char *line = member->buffer, *end;
        while ((end = memchr(line, '\n', member->used - (size_t)(line - member->buffer))) != NULL) {
            *end = '\0';
            line_hear(member, line);
            line = end + 1;
        }
        member->used -= (size_t)(line - member->buffer);
        memmove(member->buffer, line, member->used);
        timeout_ms = 0;
    }
}

static void member_start(uint32_t at)
{
    struct member *member = &stage.members[at];
    *member = (struct member){.process = start()};
    const char *answer = ask(&member->process, "begin %s %s", stage.scene.dir, stage.config);
    if (strcmp(answer, "0 ") != 0)
        fail_msg("open: %s", answer);
}

static void member_run(uint32_t at)
{
    struct member *member = &stage.members[at];
    member->generation = ++stage.generations;
    member->acknowledged = 0;
    member->is_running = true;
    tell(&member->process, "run %" PRIu64 " %" PRIu64 " %" PRIu64, member->generation, stage.own,
         stage.shared_keys);
}

static void member_stop(uint32_t at)
{
    struct member *member = &stage.members[at];
    double end_s = now_s() + PATIENCE_S;
    tell(&member->process, "stop");
    while (member->is_running && now_s() < end_s)
        lines_hear(member, 100);
    if (member->is_running)
        fail_msg("process %d does not stop", member->process.pid);
}

static void all_hear(uint32_t ms)
{
    double end_s = now_s() + ms / 1000.0;
    do {
        for (uint32_t i = 0; i < stage.count; i++)
            if (stage.members[i].is_running)
                lines_hear(&stage.members[i], 1);
    } while (now_s() < end_s);
}

static void stage_begin(const char *config, uint32_t count, uint64_t own_keys, uint64_t shared)
{
    stage =
        (struct stage){.config = config, .count = count, .own = own_keys, .shared_keys = shared};
    stage.random = mix(from_environment("SC_SEED", 1));
    scene_open(&stage.scene);
    for (uint32_t i = 0; i < count; i++)
        member_start(i);
}

static void stage_end(void)
{
    for (uint32_t i = 0; i < stage.count; i++) {
        assert_string_equal(ask(&stage.members[i].process, "end"), "0");
        finish(&stage.members[i].process);
    }
    scene_close(&stage.scene);
}

static void expect(uint32_t at, const char *what, uint64_t generation, uint64_t count)
{
    char line[64];
    (void)snprintf(line, sizeof(line), "%s %" PRIu64 " %" PRIu64, what, generation, count);
    const char *answer = ask(&stage.members[at].process, "%s", line);
    char *end;
    if (strtoull(answer, &end, 10) != count || *end != '\0')
        fail_msg("%s: %s", line, answer);
}

/* Another finds all that a run of a process has stored, and removes it; a third misses it then. */
static void generation_check(uint32_t at, uint64_t generation, uint64_t count)
{
    uint32_t other = (at + 1) % stage.count, third = (at + 2) % stage.count;
    bool runs = stage.members[other].is_running, third_runs = stage.members[third].is_running;
    if (runs)
        member_stop(other);
    if (third_runs && third != other)
        member_stop(third);
    expect(other, "find", generation, count);
    expect(other, "drop", generation, OWN_MAX); /* also what it was not told */
    expect(third, "gone", generation, OWN_MAX);
    const uint32_t both[2] = {other, third};
    for (uint32_t i = 0; i < (third == at ? 1u : 2u); i++) { /* their own runs ended, too */
        const struct member *member = &stage.members[both[i]];
        expect(third, "find", member->generation, member->acknowledged);
        expect(third, "drop", member->generation, OWN_MAX);
    }
}

static void killed_processes_leave_what_they_have_stored(void **state)
{
    (void)state;
    uint64_t rounds = from_environment("SC_ROUNDS", SAMPLE_OF(300, 12)), stored = 0;
    uint32_t count = (uint32_t)from_environment("SC_PROCESSES", 4);
    stage_begin(LARGE,
                count < 2             ? 2
                : count > MEMBERS_MAX ? MEMBERS_MAX
                                      : count,
                OWN_MAX, SHARED_KEYS);
    for (uint32_t i = 0; i < stage.count; i++)
        member_run(i);
    for (uint64_t round = 0; round < rounds; round++) {
        uint32_t at = (uint32_t)draw(stage.count);
        struct member *member = &stage.members[at];
        all_hear(5 + (uint32_t)draw(100));
        (void)kill(member->process.pid, SIGKILL);
        lines_hear(member, 20);
        uint64_t generation = member->generation, acknowledged = member->acknowledged;
        kill_hard(&member->process);
        member->is_running = false;
        if (draw(8) == 0) { /* all die: the next open is alone */
            for (uint32_t i = 0; i < stage.count; i++)
                if (i != at) {
                    (void)kill(stage.members[i].process.pid, SIGKILL);
                    lines_hear(&stage.members[i], 20);
                    kill_hard(&stage.members[i].process);
                    struct member was = stage.members[i];
                    member_start(i);
                    stage.members[i].generation = was.generation;
                    stage.members[i].acknowledged = was.acknowledged;
                }
        }
        member_start(at);
        generation_check(at, generation, acknowledged);
        member_run(at);
        for (uint32_t i = 0; i < stage.count; i++)
            if (!stage.members[i].is_running)
                member_run(i);
        stored += acknowledged;
    }
    for (uint32_t i = 0; i < stage.count; i++)
        member_stop(i);
    print_message("%" PRIu64 " kills, %" PRIu64 " keys of killed processes found\n", rounds,
                  stored);
    stage_end();
}

static void sums_print(const char *what)
{
    for (uint32_t i = 0; i < stage.count; i++) {
        const struct sums *sums = &stage.members[i].sums;
        print_message("%s %u: %" PRIu64 " stored, %" PRIu64 " present, %" PRIu64
                      " refused, %" PRIu64 " delivered, %" PRIu64 " absent\n",
                      what, i, sums->stored, sums->present, sums->refused, sums->delivered,
                      sums->absent);
    }
}

/* Others evict, remove and use the pages of what a stopped process knows; it goes on and delivers
 * nothing wrong. */
static void a_stopped_process_delivers_nothing_wrong(void **state)
{
    (void)state;
    uint64_t rounds = from_environment("SC_ROUNDS", SAMPLE_OF(40, 4));
    rounds = rounds < 40 ? rounds : 40;
    stage_begin(SMALL, 3, 0, SMALL_COUNT);
    for (uint32_t i = 0; i < stage.count; i++)
        member_run(i);
    for (uint64_t round = 0; round < rounds; round++) {
        struct member *member = &stage.members[draw(stage.count)];
        all_hear(100 + (uint32_t)draw(200));
        assert_int_equal(kill(member->process.pid, SIGSTOP), 0);
        all_hear(200 + (uint32_t)draw(900));
        assert_int_equal(kill(member->process.pid, SIGCONT), 0);
    }
    all_hear(300);
    for (uint32_t i = 0; i < stage.count; i++)
        member_stop(i);
    sums_print("stopped at times");
    for (uint32_t i = 0; i < stage.count; i++) { /* and it still stores */
        member_run(i);
        all_hear(200);
        member_stop(i);
        assert_true(stage.members[i].sums.stored > 0);
    }
    stage_end();
}

static void a_full_disk_is_shared_by_two(void **state)
{
    (void)state;
    stage_begin(SMALL, 2, 0, SMALL_COUNT);
    for (uint32_t i = 0; i < stage.count; i++)
        member_run(i);
    all_hear(SAMPLE_OF(20000, 2000));
    for (uint32_t i = 0; i < stage.count; i++)
        member_stop(i);
    sums_print("full");
    for (uint32_t i = 0; i < stage.count; i++)
        assert_true(stage.members[i].sums.stored > 0 && stage.members[i].sums.delivered > 0);
    stage_end();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(killed_processes_leave_what_they_have_stored, kill_leftovers),
        cmocka_unit_test_teardown(a_stopped_process_delivers_nothing_wrong, kill_leftovers),
        cmocka_unit_test_teardown(a_full_disk_is_shared_by_two, kill_leftovers),
    };
    if (argc == 3 && strcmp(argv[1], "worker") == 0) {
        library_path = argv[2];
        return worker_main(argv[2], obey_more);
    }
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: %s LIBRARY [TEST]\n", argv[0]);
        return 2;
    }
    library_path = argv[1];
    if (argc == 3)
        cmocka_set_test_filter(argv[2]);
    (void)signal(SIGPIPE, SIG_IGN); /* of a worker that died */
    return cmocka_run_group_tests_name("object processes", tests, NULL, NULL);
}
