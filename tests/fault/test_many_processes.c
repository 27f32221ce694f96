/* Many processes that store into one directory at once (store.writers: many).
 *
 * The program runs itself (processes.h). Its workers have these commands of their own:
 *
 *   put ID COUNT                  COUNT prompts, each until it is stored; retries
 *   find ID COUNT                 waits until each of COUNT prompts is found whole; COUNT
 *   run GENERATION SHARES PEERS   stores prompts until the next line, and loads some of its own
 *                                 and of PEERS generations; lines of its own, then a sum
 *   stats                         corrupt io_errors evicted poisoned disk_bytes_used disk_bytes_max
 *
 * An ID is GENERATION << 20 | number, and SEED_SHARES if the prompt has tokens in common with
 * others. It decides the prompt's length too, so any process can store and verify any prompt. A
 * generation is one `run` of one process, which stores its numbers in order from 0. Its lines:
 *
 *   a ID BEFORE AFTER             acknowledged; the epoch before the store and after its ticket
 *   m ID MATCHED                  acknowledged, and not found whole right after that
 *   w ID                          a wrong row
 *   e CALL STATUS ID TEXT         a status that no store and no load may have
 *
 * SC_ALL_SEEDS=1 runs more processes and rounds (tests/sample.h). SC_SEED=N chooses the moments of
 * kills, SC_ROUNDS=N how many. SC_MANY_WRITERS=one leaves out the key: one process of each test
 * stores, and the others read.
 *
 * Threads: one in each process, beside the plugin's. */
#include "tests/fault/processes.h"

#include "tests/sample.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUMBER_BITS      20u
#define MEMBERS_MAX      16u
#define GENERATIONS_MAX  4096u
#define ROUNDS_PER_DISK  50u /* of kills, before the store is verified and a new one is begun */
#define FILES_MAX        512u
#define SMALL_DISK_BYTES (24u << 20)

static uint64_t id_of(uint64_t generation, uint64_t number, bool shares)
{
    return generation << NUMBER_BITS | number | (shares ? SEED_SHARES : 0);
}

static uint64_t length_of(uint64_t id)
{
    return common_tokens(id) + 20 + mix(id + 1) % 160;
}

/* ---- A worker ------------------------------------------------------------------------------- */

static bool may_retry(spec_status status)
{
    return status == SPEC_E_DROPPED || status == SPEC_E_NO_SPACE || status == SPEC_E_STALE ||
           status == SPEC_E_BUSY;
}

/* If another process evicts the rows meanwhile, or resets. */
static bool may_fail_load(int status)
{
    return status == SPEC_E_STALE || status == SPEC_E_CORRUPT;
}

/* Stores behind what is stored already. */
static spec_status put_one(struct worker *w, uint64_t id)
{
    uint64_t length = length_of(id);
    struct spec_lookup_result result;
    make_prompt(w, id, length);
    spec_status status = lookup(w, length, &result);
    if (status != SPEC_OK)
        return status;
    uint64_t first = result.matched_tokens;
    if (first < length)
        status = store_layers(w, result.request, first, length - first, LAYERS);
    (void)w->api->release(w->conn, result.request, NULL);
    return status;
}

static int load_one(struct worker *w, uint64_t id, uint64_t *ret_matched)
{
    uint64_t length = length_of(id);
    struct spec_lookup_result result;
    make_prompt(w, id, length);
    int status = lookup(w, length, &result);
    if (status != SPEC_OK)
        return status;
    *ret_matched = result.matched_tokens;
    status = load_all(w, result.request, result.matched_tokens);
    (void)w->api->release(w->conn, result.request, NULL);
    return status;
}

static void answer_error(struct worker *w, int status, uint64_t id)
{
    (void)snprintf(w->answer, sizeof(w->answer), "%s %d, prompt %" PRIx64 ": %s",
                   status == ROWS_WRONG ? "wrong" : "error", status, id, error.text);
}

static void do_put(struct worker *w, const char *args)
{
    uint64_t id, count, retries = 0;
    double end_s = now_s() + PATIENCE_S;
    if (sscanf(args, "%" SCNu64 " %" SCNu64, &id, &count) != 2)
        exit(3);
    for (uint64_t i = 0; i < count; i++) {
        spec_status status;
        while (may_retry(status = put_one(w, id + i)) && now_s() < end_s) {
            retries++;
            (void)usleep(1000);
        }
        if (status != SPEC_OK) {
            answer_error(w, status, id + i);
            return;
        }
    }
    (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64, retries);
}

static void do_find(struct worker *w, const char *args)
{
    uint64_t id, count, matched = 0;
    double end_s = now_s() + PATIENCE_S;
    if (sscanf(args, "%" SCNu64 " %" SCNu64, &id, &count) != 2)
        exit(3);
    for (uint64_t i = 0; i < count; i++) {
        int status;
        while ((status = load_one(w, id + i, &matched)) == SPEC_OK && matched < length_of(id + i) &&
               now_s() < end_s)
            (void)usleep(1000);
        if (status != SPEC_OK) {
            answer_error(w, status, id + i);
            return;
        }
        if (matched < length_of(id + i)) {
            (void)snprintf(w->answer, sizeof(w->answer),
                           "missing %" PRIx64 ": %" PRIu64 " of %" PRIu64 " tokens", id + i,
                           matched, length_of(id + i));
            return;
        }
    }
    (void)snprintf(w->answer, sizeof(w->answer), "%" PRIu64, count);
}

static struct spec_stats stats_of(struct worker *w)
{
    struct spec_stats stats = {.struct_size = sizeof(stats)};
    if (w->api->stats(w->conn, &stats, &error) != SPEC_OK)
        exit(3);
    return stats;
}

static void do_stats(struct worker *w)
{
    struct spec_stats s = stats_of(w);
    (void)snprintf(w->answer, sizeof(w->answer),
                   "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu64 " %" PRIu64,
                   s.corrupt_ranges, s.io_errors, s.evicted_chunks, s.poisoned, s.disk_bytes_used,
                   s.disk_bytes_max);
}

/* Counters of one run: stores that were acknowledged, repeated, and refused to a reader; loads that
 * were whole, short, and failed because rows were evicted. */
struct sums {
    uint64_t stored, retried, refused, loaded, missed, failed;
};

#define SUMS_FORMAT "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64

static void run_load(struct worker *w, uint64_t id, bool is_acknowledged, struct sums *sums)
{
    uint64_t matched = 0;
    int status = load_one(w, id, &matched);
    if (status == ROWS_WRONG)
        dprintf(1, "w %" PRIx64 "\n", id);
    else if (may_fail_load(status))
        sums->failed++;
    else if (status != SPEC_OK)
        dprintf(1, "e load %d %" PRIx64 " %s\n", status, id, error.text);
    else if (matched == length_of(id))
        sums->loaded++;
    else
        sums->missed++;
    if (is_acknowledged && status == SPEC_OK && matched < length_of(id))
        dprintf(1, "m %" PRIx64 " %" PRIu64 "\n", id, matched);
}

/* Returns whether the prompt is stored. */
static bool run_store(struct worker *w, uint64_t id, struct sums *sums)
{
    uint64_t before = stats_of(w).epoch;
    spec_status status = put_one(w, id);
    if (status == SPEC_OK) {
        dprintf(1, "a %" PRIx64 " %" PRIu64 " %" PRIu64 "\n", id, before, stats_of(w).epoch);
        sums->stored++;
        return true;
    }
    if (status == SPEC_E_UNSUPPORTED)
        sums->refused++;
    else if (may_retry(status))
        sums->retried++;
    else
        dprintf(1, "e store %d %" PRIx64 " %s\n", status, id, error.text);
    (void)usleep(1000);
    return false;
}

static void do_run(struct worker *w, const char *args)
{
    uint64_t generation, peers, number = 0, random = (uint64_t)getpid();
    uint32_t shares;
    struct sums sums = {0};
    struct pollfd input = {.fd = 0, .events = POLLIN};
    if (sscanf(args, "%" SCNu64 " %" SCNu32 " %" SCNu64, &generation, &shares, &peers) != 3)
        exit(3);
    while (poll(&input, 1, 0) == 0) {
        uint64_t id = id_of(generation, number, shares != 0);
        bool is_stored = run_store(w, id, &sums);
        number += is_stored;
        random = mix(random);
        if (is_stored && random % 2 == 0)
            run_load(w, id, true, &sums);
        if (random / 2 % 2 == 0)
            run_load(w, id_of(random / 4 % peers, (random >> 32) % (number + 1), shares != 0),
                     false, &sums);
    }
    (void)snprintf(w->answer, sizeof(w->answer), "stopped " SUMS_FORMAT, sums.stored, sums.retried,
                   sums.refused, sums.loaded, sums.missed, sums.failed);
}

static bool obey_more(struct worker *w, const char *line)
{
    if (strncmp(line, "put ", 4) == 0)
        do_put(w, line + 4);
    else if (strncmp(line, "find ", 5) == 0)
        do_find(w, line + 5);
    else if (strncmp(line, "run ", 4) == 0)
        do_run(w, line + 4);
    else if (strncmp(line, "stop", 4) == 0)
        w->answer[0] = '\0'; /* it ended the run, which has answered */
    else if (strncmp(line, "stats", 5) == 0)
        do_stats(w);
    else
        return false;
    return true;
}

/* ---- The parent: members and their acknowledgements ------------------------------------------ */

struct member {
    struct process process;
    uint64_t generation; /* of the present or last run */
    bool is_running;
    uint64_t acknowledged; /* prompts of this generation */
    double last_s, gap_s;  /* time of the last acknowledgement; longest time between two */
    struct sums sums;      /* of the last run that was stopped */
    char buffer[2 * LINE_MAX];
    size_t used;
};

struct acknowledged {
    uint64_t id, epoch_before, epoch_after;
};

struct stress {
    struct scene scene;
    char config[256]; /* further members of every member's configuration */
    bool evicts;      /* then prompts may be missing, and loads of them may fail */
    bool resets;      /* then prompts may be missing */
    bool shares;
    struct member members[MEMBERS_MAX];
    uint32_t count;
    uint64_t generations, random, seed;
    struct acknowledged *list;
    uint64_t list_count, list_max;
    uint64_t stored, retried, failed; /* sums over all stopped runs */
    uint64_t evicted;                 /* chunks, by processes that ended well */
    uint64_t locked;                  /* opens that were repeated */
};

/* The count of processes is a test's state. */
static const uint32_t two = 2, four = 4, eight = 8;

static bool is_many(void)
{
    const char *writers = getenv("SC_MANY_WRITERS");
    return writers == NULL || strcmp(writers, "one") != 0;
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);
    return value != NULL ? strtoull(value, NULL, 10) : otherwise;
}

static uint64_t draw(struct stress *stress, uint64_t below)
{
    stress->random = mix(stress->random);
    return stress->random % below;
}

/* On a small disk prompts are evicted all the time. On a large one none is, and leases outlive the
 * test. */
static void stress_begin(struct stress *stress, uint32_t count, bool evicts)
{
    *stress = (struct stress){.count = count, .evicts = evicts};
    stress->seed = from_environment("SC_SEED", 1);
    stress->random = mix(stress->seed * 977 + count);
    scene_open(&stress->scene);
    (void)snprintf(stress->config, sizeof(stress->config),
                   "%s, \"segment_bytes\": \"1MiB\", \"store\": "
                   "{\"checkpoint_bytes\": \"1MiB\"%s}",
                   evicts ? "\"disk_bytes\": \"24MiB\", \"lease_ns_max\": 300000000"
                          : "\"disk_bytes\": \"16GiB\"",
                   is_many() ? ", \"writers\": \"many\"" : "");
}

static void stress_end(struct stress *stress)
{
    print_message("%" PRIu64 " stored by runs, %" PRIu64 " stores repeated, %" PRIu64
                  " loads of evicted rows, %" PRIu64 " opens repeated\n",
                  stress->stored, stress->retried, stress->failed, stress->locked);
    free(stress->list);
    scene_close(&stress->scene);
}

static void tell_open(struct stress *stress, struct process *process, uint32_t role)
{
    tell(process, "open %s %u 0 1 %s", stress->scene.dir, role, stress->config);
}

static void hear_ok(struct process *process, const char *what)
{
    const char *answer = hear(process);
    if (strcmp(answer, "0 ") != 0)
        fail_msg("%s: %s", what, answer);
}

/* Half of them ask for the role WRITER, the others for AUTO. */
static void tell_member_open(struct stress *stress, uint32_t i)
{
    tell_open(stress, &stress->members[i].process,
              is_many() && i % 2 != 0 ? SPEC_ROLE_WRITER : SPEC_ROLE_AUTO);
}

static void member_open(struct stress *stress, uint32_t i)
{
    stress->members[i] = (struct member){.process = start()};
    tell_member_open(stress, i);
}

/* A process that has the store alone for a moment, to repair it, locks others out. */
static void member_opened(struct stress *stress, uint32_t i)
{
    struct process *process = &stress->members[i].process;
    const char *answer;
    double end_s = now_s() + PATIENCE_S;
    while (strtol(answer = hear(process), NULL, 10) == SPEC_E_LOCKED && now_s() < end_s) {
        stress->locked++;
        (void)usleep(1000);
        tell_member_open(stress, i);
    }
    if (strcmp(answer, "0 ") != 0)
        fail_msg("open: %s", answer);
    if (is_many())
        await_number(process, "role", SPEC_ROLE_WRITER);
}

/* All at once, so that they make the store together. */
static void members_open(struct stress *stress)
{
    for (uint32_t i = 0; i < stress->count; i++)
        member_open(stress, i);
    for (uint32_t i = 0; i < stress->count; i++)
        member_opened(stress, i);
}

static void take_acknowledged(struct stress *stress, struct member *member, const char *args)
{
    struct acknowledged one;
    if (sscanf(args, "%" SCNx64 " %" SCNu64 " %" SCNu64, &one.id, &one.epoch_before,
               &one.epoch_after) != 3)
        fail_msg("not an acknowledgement: %s", args);
    if (stress->list_count == stress->list_max) {
        stress->list_max = 2 * stress->list_max + 256;
        stress->list = realloc(stress->list, stress->list_max * sizeof(stress->list[0]));
        assert_non_null(stress->list);
    }
    stress->list[stress->list_count++] = one;
    member->acknowledged++;
    double time_s = now_s();
    if (time_s - member->last_s > member->gap_s)
        member->gap_s = time_s - member->last_s;
    member->last_s = time_s;
}

static void take_line(struct stress *stress, struct member *member, const char *line)
{
    struct sums *sums = &member->sums;
    if (line[0] == 'a') {
        take_acknowledged(stress, member, line + 1);
    } else if (line[0] == 's') {
        if (sscanf(line, "stopped " SUMS_FORMAT, &sums->stored, &sums->retried, &sums->refused,
                   &sums->loaded, &sums->missed, &sums->failed) != 6)
            fail_msg("not a sum: %s", line);
        member->is_running = false;
        stress->stored += sums->stored;
        stress->retried += sums->retried;
        stress->failed += sums->failed;
        if (sums->failed != 0 && !stress->evicts && !stress->resets)
            fail_msg("%" PRIu64 " loads failed although nothing is evicted or reset", sums->failed);
    } else if (line[0] != 'm' || !(stress->evicts || stress->resets)) {
        fail_msg("SC_SEED=%" PRIu64 ", process %d: %s", stress->seed, member->process.pid, line);
    }
}

/* Takes the lines that are in the pipe. Returns false at its end. */
static bool member_read(struct stress *stress, struct member *member)
{
    ssize_t got = read(fileno(member->process.from), member->buffer + member->used,
                       sizeof(member->buffer) - 1 - member->used);
    if (got <= 0)
        return false;
    member->used += (size_t)got;
    member->buffer[member->used] = '\0';
    char *line = member->buffer;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        take_line(stress, member, line);
    }
    member->used -= (size_t)(line - member->buffer);
    memmove(member->buffer, line, member->used);
    return true;
}

/* Takes what running members write, for up to so long; returns after the first lines if not all of
 * the time is to be waited. */
static void take_for(struct stress *stress, double seconds, bool waits_all)
{
    double end_s = now_s() + seconds, left_s = seconds;
    do {
        struct pollfd polled[MEMBERS_MAX];
        for (uint32_t i = 0; i < stress->count; i++)
            polled[i] = (struct pollfd){
                .fd = stress->members[i].is_running ? fileno(stress->members[i].process.from) : -1,
                .events = POLLIN};
        struct timespec time = {.tv_sec = (time_t)left_s};
        time.tv_nsec = (long)((left_s - (double)time.tv_sec) * 1e9);
        if (ppoll(polled, stress->count, &time, NULL) > 0)
            for (uint32_t i = 0; i < stress->count; i++)
                if (polled[i].revents != 0 && !member_read(stress, &stress->members[i]))
                    fail_msg("process %d died", stress->members[i].process.pid);
        left_s = end_s - now_s();
    } while (waits_all && left_s > 0);
}

static void member_run(struct stress *stress, struct member *member)
{
    member->generation = stress->generations++;
    assert_true(stress->generations < GENERATIONS_MAX);
    member->acknowledged = 0;
    member->is_running = true;
    member->last_s = now_s();
    member->gap_s = 0;
    tell(&member->process, "run %" PRIu64 " %u %" PRIu64, member->generation, stress->shares,
         stress->generations);
}

/* Waits until each running member that is none of `except` has so many more acknowledgements. A
 * reader of the mode `one` has none. */
static void await_progress(struct stress *stress, const struct member *except, uint64_t more)
{
    uint64_t until[MEMBERS_MAX], behind = 1;
    double end_s = now_s() + PATIENCE_S;
    for (uint32_t i = 0; i < stress->count; i++)
        until[i] = stress->members[i].acknowledged + more;
    while (behind > 0) {
        behind = 0;
        uint64_t running = 0;
        for (uint32_t i = 0; i < stress->count; i++) {
            const struct member *member = &stress->members[i];
            bool counts = member->is_running && member != except;
            running += counts;
            behind += counts && member->acknowledged < until[i];
        }
        if (!is_many())
            behind = behind == running && except == NULL; /* one of them stores */
        if (now_s() > end_s)
            fail_msg("SC_SEED=%" PRIu64 ": %" PRIu64 " processes store nothing", stress->seed,
                     behind);
        if (behind > 0)
            take_for(stress, 0.1, false);
    }
}

static void member_stop(struct stress *stress, struct member *member)
{
    if (!member->is_running)
        return;
    tell(&member->process, "stop");
    while (member->is_running)
        if (!member_read(stress, member))
            fail_msg("process %d died", member->process.pid);
    if (is_many())
        assert_int_equal(member->sums.refused, 0);
}

static void members_stop(struct stress *stress)
{
    for (uint32_t i = 0; i < stress->count; i++)
        member_stop(stress, &stress->members[i]);
}

/* With what it wrote before it died. */
static void member_kill(struct stress *stress, struct member *member)
{
    (void)kill(member->process.pid, SIGKILL);
    while (member->is_running && member_read(stress, member))
        continue;
    assert_int_equal(member->used, 0);
    member->is_running = false;
    kill_hard(&member->process);
    member->process.pid = 0;
}

static uint64_t ask_find(struct process *process, uint64_t id, uint64_t count)
{
    const char *answer = ask(process, "find %" PRIu64 " %" PRIu64, id, count);
    uint64_t found = strtoull(answer, NULL, 10);
    if (found != count)
        fail_msg("process %d: %s", process->pid, answer);
    return found;
}

/* No row of this process was wrong, and, unless prompts are evicted to make room, none is lost. */
static void verify_stats(struct stress *stress, struct process *process)
{
    uint64_t corrupt, io_errors, evicted, used, most;
    uint32_t poisoned;
    const char *answer = ask(process, "stats");
    assert_int_equal(sscanf(answer,
                            "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64,
                            &corrupt, &io_errors, &evicted, &poisoned, &used, &most),
                     6);
    assert_int_equal(io_errors, 0);
    assert_int_equal(poisoned, 0);
    assert_true(used <= most || most == 0); /* a reader has no cap */
    stress->evicted += evicted;
    if (stress->evicts)
        return;
    assert_int_equal(corrupt, 0);
    assert_int_equal(evicted, 0);
    assert_true(used < most / 2 || most == 0); /* so nobody who was killed had to evict either */
}

static void members_finish(struct stress *stress)
{
    members_stop(stress);
    for (uint32_t i = 0; i < stress->count; i++) {
        verify_stats(stress, &stress->members[i].process);
        finish(&stress->members[i].process);
    }
}

/* ---- Tests: what one stores, all find -------------------------------------------------------- */

/* Tells each member to store and hears how. Returns how many did; the others are readers. */
static uint32_t put_by_all(struct stress *stress, const uint64_t *ids, uint64_t count, bool *stored)
{
    uint32_t storing = 0;
    for (uint32_t i = 0; i < stress->count; i++)
        tell(&stress->members[i].process, "put %" PRIu64 " %" PRIu64, ids[i], count);
    for (uint32_t i = 0; i < stress->count; i++) {
        const char *answer = hear(&stress->members[i].process);
        char *end, refused[32];
        stress->retried += strtoull(answer, &end, 10);
        stored[i] = end != answer;
        storing += stored[i];
        (void)snprintf(refused, sizeof(refused), "error %d,", SPEC_E_UNSUPPORTED);
        if (!stored[i] && (is_many() || strncmp(answer, refused, strlen(refused)) != 0))
            fail_msg("process %u: %s", i, answer);
    }
    assert_int_equal(storing, is_many() ? stress->count : 1);
    return storing;
}

/* All members look for prompts of all at the same time. */
static void find_by_all(struct stress *stress, const uint64_t *ids, uint64_t count,
                        const bool *stored)
{
    for (uint32_t owner = 0; owner < stress->count; owner++) {
        if (!stored[owner])
            continue;
        for (uint32_t i = 0; i < stress->count; i++)
            tell(&stress->members[i].process, "find %" PRIu64 " %" PRIu64, ids[owner], count);
        for (uint32_t i = 0; i < stress->count; i++) {
            const char *answer = hear(&stress->members[i].process);
            if (strtoull(answer, NULL, 10) != count)
                fail_msg("process %u, prompts of %u: %s", i, owner, answer);
        }
    }
}

/* A new store, then one that has prompts, opened by all at the same time. */
static void all_open_at_once(void **state)
{
    struct stress stress;
    stress_begin(&stress, *(const uint32_t *)*state, false);
    for (uint64_t round = 0; round < SAMPLE_OF(100, 10); round++) {
        members_open(&stress);
        if (stress.locked > 0)
            fail_msg("round %" PRIu64 ": %" PRIu64 " opens were refused", round, stress.locked);
        for (uint32_t i = 0; i < (is_many() ? stress.count : 0); i++)
            (void)ask_number(&stress.members[i].process, "put 0 5");
        members_finish(&stress);
    }
    stress_end(&stress);
}

static void all_store_and_load(void **state)
{
    struct stress stress;
    stress_begin(&stress, *(const uint32_t *)*state, false);
    members_open(&stress);
    for (uint64_t round = 0; round < SAMPLE_OF(40, 6); round++) {
        uint64_t ids[MEMBERS_MAX];
        bool stored[MEMBERS_MAX];
        for (uint32_t i = 0; i < stress.count; i++)
            ids[i] = id_of(stress.generations++, 0, round % 2 != 0);
        (void)put_by_all(&stress, ids, 20, stored);
        find_by_all(&stress, ids, 20, stored);
    }
    members_finish(&stress);
    stress_end(&stress);
}

static void all_store_the_same_prompts(void **state)
{
    struct stress stress;
    stress_begin(&stress, *(const uint32_t *)*state, false);
    members_open(&stress);
    for (uint64_t round = 0; round < SAMPLE_OF(40, 6); round++) {
        uint64_t ids[MEMBERS_MAX], id = id_of(stress.generations++, 0, round % 2 != 0);
        bool stored[MEMBERS_MAX], once[MEMBERS_MAX] = {true};
        for (uint32_t i = 0; i < stress.count; i++)
            ids[i] = id;
        (void)put_by_all(&stress, ids, 20, stored);
        find_by_all(&stress, ids, 20, once);
    }
    members_finish(&stress);
    stress_end(&stress);
}

/* ---- Tests: processes are killed --------------------------------------------------------------
 */

/* Each acknowledged prompt of the list from `first` on, every `step`-th, is found whole and right,
 * or may have been evicted. */
static void verify_acknowledged(const struct stress *stress, struct process *process,
                                uint64_t first, uint64_t step)
{
    for (uint64_t i = first; i < stress->list_count; i += step) {
        uint64_t id = stress->list[i].id, length = length_of(id);
        const char *answer = ask(process, "read %" PRIu64 " %" PRIu64, id, length);
        char *end;
        uint64_t matched = strtoull(answer, &end, 10);
        bool is_number = end != answer;
        if (!is_number && (!stress->evicts || strcmp(answer, "wrong") == 0))
            fail_msg("SC_SEED=%" PRIu64 " prompt %" PRIx64 ": %s", stress->seed, id, answer);
        if (is_number && matched != length && !stress->evicts)
            fail_msg("SC_SEED=%" PRIu64 " acknowledged prompt %" PRIx64 " is lost: %" PRIu64
                     " of %" PRIu64 " tokens",
                     stress->seed, id, matched, length);
    }
}

/* Prompts that were not acknowledged, the one in work at a kill among them: any part of them. */
static void verify_unacknowledged(const struct stress *stress, struct process *process)
{
    static uint64_t next[GENERATIONS_MAX];
    memset(next, 0, sizeof(next));
    for (uint64_t i = 0; i < stress->list_count; i++) {
        uint64_t id = stress->list[i].id & ~SEED_SHARES;
        next[id >> NUMBER_BITS] = (id & ((UINT64_C(1) << NUMBER_BITS) - 1)) + 1;
    }
    for (uint64_t generation = 0; generation < stress->generations; generation++) {
        uint64_t id = id_of(generation, next[generation], stress->shares);
        const char *answer = ask(process, "read %" PRIu64 " %" PRIu64, id, length_of(id));
        char *end;
        (void)strtoull(answer, &end, 10);
        if (end == answer && (!stress->evicts || strcmp(answer, "wrong") == 0))
            fail_msg("SC_SEED=%" PRIu64 " prompt %" PRIx64 ": %s", stress->seed, id, answer);
    }
}

/* A process that dies while it opens the store. */
static void kill_an_opener(struct stress *stress)
{
    struct process opener = start();
    tell_open(stress, &opener, SPEC_ROLE_AUTO);
    take_for(stress, (double)draw(stress, 20) / 1e3, true);
    kill_hard(&opener);
}

static void kill_round(struct stress *stress, uint64_t round)
{
    take_for(stress, (double)draw(stress, 40000) / 1e6, true);
    uint32_t victim = (uint32_t)draw(stress, stress->count);
    member_kill(stress, &stress->members[victim]);
    if (draw(stress, 4) == 0)
        kill_an_opener(stress);
    member_open(stress, victim);
    take_for(stress, (double)draw(stress, 5000) / 1e6, true);
    member_opened(stress, victim);
    member_run(stress, &stress->members[victim]);
    if (round % 8 == 7)
        await_progress(stress, NULL, 1);
}

/* Rounds over one disk. Some members end by a stop, and look for prompts of all; the others are
 * killed. Then one process opens the store alone. */
static void kill_rounds(uint32_t count, uint64_t seed, uint64_t rounds, bool evicts)
{
    struct stress stress;
    stress_begin(&stress, count, evicts);
    stress.seed = seed;
    stress.random = mix(seed * 977 + count);
    stress.shares = seed % 2 != 0;
    members_open(&stress);
    for (uint32_t i = 0; i < count; i++)
        member_run(&stress, &stress.members[i]);
    for (uint64_t round = 0; round < rounds; round++)
        kill_round(&stress, round);
    await_progress(&stress, NULL, 5);
    for (uint32_t i = 0; i < count; i++) {
        struct member *member = &stress.members[i];
        if (draw(&stress, 2) == 0) {
            member_kill(&stress, member);
            continue;
        }
        member_stop(&stress, member);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (stress.members[i].process.pid == 0)
            continue;
        uint64_t step = stress.list_count / 100 + 1;
        verify_acknowledged(&stress, &stress.members[i].process, draw(&stress, step), step);
        verify_stats(&stress, &stress.members[i].process);
        finish(&stress.members[i].process);
    }
    struct member alone = {.process = start()};
    tell_open(&stress, &alone.process, SPEC_ROLE_WRITER);
    hear_ok(&alone.process, "open alone");
    verify_acknowledged(&stress, &alone.process, 0, 1);
    verify_unacknowledged(&stress, &alone.process);
    verify_stats(&stress, &alone.process);
    finish(&alone.process);
    assert_true(stress.list_count > 0);
    print_message("%" PRIu64 " kills, %" PRIu64 " acknowledged\n", rounds, stress.list_count);
    stress_end(&stress);
}

/* 1,000 kills in all of them, of 2, 4 and 8 processes. */
static void acknowledged_prompts_outlive_kills(void **state)
{
    uint32_t count = *(const uint32_t *)*state;
    uint64_t seed = from_environment("SC_SEED", 1);
    uint64_t rounds = from_environment("SC_ROUNDS", SAMPLE_OF(count == 4 ? 400 : 300, 10));
    for (uint64_t done = 0; done < rounds; done += ROUNDS_PER_DISK, seed++)
        kill_rounds(count, seed, rounds - done < ROUNDS_PER_DISK ? rounds - done : ROUNDS_PER_DISK,
                    false);
}

static void nothing_wrong_is_loaded_after_kills_on_a_full_disk(void **state)
{
    uint32_t count = *(const uint32_t *)*state;
    uint64_t seed = from_environment("SC_SEED", 1);
    uint64_t rounds = from_environment("SC_ROUNDS", SAMPLE_OF(200, 10));
    for (uint64_t done = 0; done < rounds; done += ROUNDS_PER_DISK, seed++)
        kill_rounds(count, seed, rounds - done < ROUNDS_PER_DISK ? rounds - done : ROUNDS_PER_DISK,
                    true);
}

/* ---- Tests: one cap for all --------------------------------------------------------------------
 */

/* Files of the store with the bytes that they have on disk. nftw has no user pointer. */
static struct walk {
    struct file {
        ino_t inode;
        uint64_t bytes;
    } files[FILES_MAX];
    uint32_t count;
} walk;

static int walk_file(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type != FTW_F) /* one that was removed meanwhile among them */
        return 0;
    if (walk.count == FILES_MAX)
        return 1;
    walk.files[walk.count++] =
        (struct file){.inode = info->st_ino, .bytes = (uint64_t)info->st_blocks * 512};
    return 0;
}

/* Returns bytes that were on disk at one moment, the one between two walks: a file that both walks
 * saw was there, with the lesser of its sizes or more. Files of one moment that no walk sees
 * together cannot make a sum that never was. */
static uint64_t bytes_on_disk(const struct scene *scene)
{
    static struct walk first;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < 2; i++) {
        first = walk;
        walk.count = 0;
        int status = nftw(scene->dir, walk_file, 16, FTW_PHYS);
        assert_true(status == 0 || (status == -1 && errno == ENOENT));
    }
    for (uint32_t i = 0; i < first.count; i++)
        for (uint32_t j = 0; j < walk.count; j++)
            if (first.files[i].inode == walk.files[j].inode)
                bytes += first.files[i].bytes < walk.files[j].bytes ? first.files[i].bytes
                                                                    : walk.files[j].bytes;
    return bytes;
}

static void a_small_disk_is_never_exceeded(void **state)
{
    const uint64_t disk_bytes = SMALL_DISK_BYTES, each = SAMPLE_OF(3000, 200);
    struct stress stress;
    uint64_t most = 0, least_each = 0, samples = 0;
    stress_begin(&stress, *(const uint32_t *)*state, true);
    stress.shares = true;
    members_open(&stress);
    for (uint32_t i = 0; i < stress.count; i++)
        member_run(&stress, &stress.members[i]);
    for (double end_s = now_s() + PATIENCE_S; least_each < each; samples++) {
        if (now_s() > end_s)
            fail_msg("a process stored %" PRIu64 " prompts of %" PRIu64, least_each, each);
        take_for(&stress, 0.01, true);
        uint64_t bytes = bytes_on_disk(&stress.scene);
        most = bytes > most ? bytes : most;
        if (bytes > disk_bytes)
            fail_msg("%" PRIu64 " bytes on disk, the cap is %" PRIu64, bytes, disk_bytes);
        least_each = is_many() ? UINT64_MAX : 0;
        for (uint32_t i = 0; i < stress.count; i++) {
            uint64_t stored = stress.members[i].acknowledged;
            if (is_many() ? stored < least_each : stored > least_each)
                least_each = stored;
        }
    }
    members_stop(&stress);
    for (uint32_t i = 0; i < stress.count; i++)
        verify_acknowledged(&stress, &stress.members[i].process, i, 7);
    members_finish(&stress);
    assert_true(stress.evicted > 0);
    print_message("%" PRIu64 " samples, at most %" PRIu64 " of %" PRIu64 " bytes\n", samples, most,
                  disk_bytes);
    stress_end(&stress);
}

/* ---- Tests: one is stopped, one resets, others have other roles -------------------------------
 */

/* In any member's turn, for longer than a lease if the disk is small. */
static void stop_one(uint32_t count, bool evicts, uint64_t stops, double stop_s)
{
    struct stress stress;
    double gap_s = 0;
    stress_begin(&stress, count, evicts);
    stress.shares = true;
    members_open(&stress);
    for (uint32_t i = 0; i < count; i++)
        member_run(&stress, &stress.members[i]);
    for (uint64_t stop = 0; stop < stops; stop++) {
        await_progress(&stress, NULL, 10);
        take_for(&stress, (double)draw(&stress, 20000) / 1e6, true);
        struct member *stopped = &stress.members[draw(&stress, count)];
        assert_int_equal(kill(stopped->process.pid, SIGSTOP), 0);
        for (uint32_t i = 0; i < count; i++)
            stress.members[i].gap_s = 0;
        if (is_many())
            await_progress(&stress, stopped, 10);
        take_for(&stress, stop_s, true);
        if (is_many())
            await_progress(&stress, stopped, 10);
        for (uint32_t i = 0; i < count; i++)
            if (&stress.members[i] != stopped && stress.members[i].gap_s > gap_s)
                gap_s = stress.members[i].gap_s;
        assert_int_equal(kill(stopped->process.pid, SIGCONT), 0);
        await_progress(&stress, NULL, 10);
    }
    members_stop(&stress);
    for (uint32_t i = 0; i < count; i++)
        verify_acknowledged(&stress, &stress.members[i].process, i, 5);
    members_finish(&stress);
    print_message("at most %.3f s between two acknowledgements of a process beside a stopped one\n",
                  gap_s);
    stress_end(&stress);
}

static void a_stopped_process_stops_nobody(void **state)
{
    stop_one(*(const uint32_t *)*state, false, SAMPLE_OF(6, 3), SAMPLE_OF(60.0, 0.5));
}

static void a_stopped_process_stops_nobody_on_a_full_disk(void **state)
{
    stop_one(*(const uint32_t *)*state, true, SAMPLE_OF(6, 3), SAMPLE_OF(60.0, 1.0));
}

/* Returns whether the prompt is found whole; else hardly a token of it is. */
static bool is_found(struct process *process, uint64_t id)
{
    uint64_t length = length_of(id);
    const char *answer = ask(process, "read %" PRIu64 " %" PRIu64, id, length);
    char *end;
    uint64_t matched = strtoull(answer, &end, 10);
    if (end == answer || (matched != length && matched > length / 2))
        fail_msg("process %d, prompt %" PRIx64 ": %s of %" PRIu64 " tokens", process->pid, id,
                 answer, length);
    return matched == length;
}

/* What was acknowledged before the reset is gone, what was begun behind it is found; all members
 * say the same of the others. */
static void verify_reset(struct stress *stress)
{
    uint64_t counts[3] = {0, 0, 0};
    for (uint64_t i = 0; i < stress->list_count; i++) {
        const struct acknowledged *one = &stress->list[i];
        bool found = is_found(&stress->members[0].process, one->id);
        counts[one->epoch_before + one->epoch_after]++;
        if (found ? one->epoch_after == 0 : one->epoch_before == 1)
            fail_msg("prompt %" PRIx64 ", begun in epoch %" PRIu64 ", acknowledged in %" PRIu64
                     ": %s",
                     one->id, one->epoch_before, one->epoch_after, found ? "found" : "lost");
        for (uint32_t j = 1; j < stress->count; j++)
            if (is_found(&stress->members[j].process, one->id) != found)
                fail_msg("processes 0 and %u differ over prompt %" PRIx64, j, one->id);
    }
    print_message("%" PRIu64 " prompts before, %" PRIu64 " during and %" PRIu64
                  " after the reset\n",
                  counts[0], counts[1], counts[2]);
}

/* Member 0, or a reader, resets while the others store. */
static void reset_beside_stores(uint32_t count, bool by_reader)
{
    struct stress stress;
    uint64_t ids[MEMBERS_MAX] = {0};
    bool stored[MEMBERS_MAX];
    stress_begin(&stress, count, false);
    stress.resets = true;
    members_open(&stress);
    struct process reader = start();
    tell_open(&stress, &reader, SPEC_ROLE_READER);
    hear_ok(&reader, "open of a reader");
    for (uint32_t i = 0; i < count; i++)
        ids[i] = id_of(stress.generations++, 0, false);
    (void)put_by_all(&stress, ids, 10, stored);
    find_by_all(&stress, ids, 10, stored);
    for (uint32_t i = by_reader ? 0 : 1; i < count; i++)
        member_run(&stress, &stress.members[i]);
    if (is_many())
        await_progress(&stress, NULL, 5);
    assert_int_equal(ask_number(by_reader ? &reader : &stress.members[0].process, "reset"), 0);
    if (is_many())
        await_progress(&stress, NULL, 10);
    members_stop(&stress);
    for (uint32_t i = 0; i < count; i++)
        await_number(&stress.members[i].process, "epoch", 1);
    await_number(&reader, "epoch", 1);
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t j = 0; j < 10 * count; j++)
            assert_false(is_found(&stress.members[i].process, ids[j / 10] + j % 10));
    for (uint32_t i = 0; i < count; i++)
        ids[i] = id_of(stress.generations++, 0, false);
    (void)put_by_all(&stress, ids, 10, stored);
    find_by_all(&stress, ids, 10, stored); /* so each knows all that was before these in the log */
    if (is_many())
        verify_reset(&stress);
    finish(&reader);
    members_finish(&stress);
    stress_end(&stress);
}

static void a_reset_by_one_reaches_all(void **state)
{
    for (uint64_t i = 0; i < SAMPLE_OF(20, 2); i++)
        reset_beside_stores(*(const uint32_t *)*state, false);
}

static void a_reset_by_a_reader_reaches_all(void **state)
{
    for (uint64_t i = 0; i < SAMPLE_OF(20, 2); i++)
        reset_beside_stores(*(const uint32_t *)*state, true);
}

/* An explicit reader, and an AUTO process without the key, beside processes that store. */
static void readers_and_processes_without_the_key_follow(void **state)
{
    struct stress stress;
    struct process readers[2];
    stress_begin(&stress, *(const uint32_t *)*state, false);
    stress.shares = true;
    members_open(&stress);
    for (uint32_t i = 0; i < 2; i++) {
        readers[i] = start();
        tell(&readers[i], "open %s %u 0 1 \"segment_bytes\": \"1MiB\"%s", stress.scene.dir,
             i == 0 ? SPEC_ROLE_READER : SPEC_ROLE_AUTO,
             i == 0 && is_many() ? ", \"store\": {\"writers\": \"many\"}" : "");
        hear_ok(&readers[i], "open of a reader");
    }
    for (uint32_t i = 0; i < stress.count; i++)
        member_run(&stress, &stress.members[i]);
    for (uint64_t step = 0; step < 10; step++) {
        await_progress(&stress, NULL, 5);
        uint64_t id = stress.list[draw(&stress, stress.list_count)].id;
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(ask_number(&readers[i], "role"), SPEC_ROLE_READER);
            (void)ask_find(&readers[i], id, 1);
            const char *answer = ask(&readers[i], "store 1 0 100 4");
            assert_int_equal(strtol(answer, NULL, 10), SPEC_E_UNSUPPORTED);
        }
    }
    members_stop(&stress);
    for (uint32_t i = 0; i < 2; i++) {
        (void)ask_find(&readers[i], stress.list[stress.list_count - 1].id, 1);
        for (uint64_t at = 0; at < stress.list_count; at += 3)
            (void)ask_find(&readers[i], stress.list[at].id, 1);
        verify_stats(&stress, &readers[i]);
        finish(&readers[i]);
    }
    members_finish(&stress);
    stress_end(&stress);
}

#define TEST_OF(test, count)                                                                       \
    {                                                                                              \
        .name = #test "." #count, .test_func = test, .teardown_func = kill_leftovers,              \
        .initial_state = (void *)(uintptr_t) & (count)                                             \
    }

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "worker") == 0)
        return worker_main(argv[2], obey_more);
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: test_many_processes PLUGIN [TESTS]\n");
        return 2;
    }
    library_path = argv[1];
    if (argc == 3)
        cmocka_set_test_filter(argv[2]);
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        TEST_OF(all_open_at_once, two),
        TEST_OF(all_open_at_once, four),
        TEST_OF(all_store_and_load, two),
        TEST_OF(all_store_and_load, four),
        TEST_OF(all_store_the_same_prompts, two),
        TEST_OF(all_store_the_same_prompts, four),
        TEST_OF(acknowledged_prompts_outlive_kills, two),
        TEST_OF(acknowledged_prompts_outlive_kills, four),
        TEST_OF(nothing_wrong_is_loaded_after_kills_on_a_full_disk, four),
        TEST_OF(a_small_disk_is_never_exceeded, two),
        TEST_OF(a_small_disk_is_never_exceeded, four),
        TEST_OF(a_stopped_process_stops_nobody, two),
        TEST_OF(a_stopped_process_stops_nobody, four),
        TEST_OF(a_stopped_process_stops_nobody_on_a_full_disk, four),
        TEST_OF(a_reset_by_one_reaches_all, two),
        TEST_OF(a_reset_by_one_reaches_all, four),
        TEST_OF(a_reset_by_a_reader_reaches_all, two),
        TEST_OF(a_reset_by_a_reader_reaches_all, four),
        TEST_OF(readers_and_processes_without_the_key_follow, two),
        TEST_OF(readers_and_processes_without_the_key_follow, four),
        /* From here on with SC_ALL_SEEDS=1 only. */
        TEST_OF(all_open_at_once, eight),
        TEST_OF(all_store_and_load, eight),
        TEST_OF(all_store_the_same_prompts, eight),
        TEST_OF(acknowledged_prompts_outlive_kills, eight),
        TEST_OF(nothing_wrong_is_loaded_after_kills_on_a_full_disk, eight),
        TEST_OF(a_small_disk_is_never_exceeded, eight),
        TEST_OF(a_stopped_process_stops_nobody, eight),
        TEST_OF(a_stopped_process_stops_nobody_on_a_full_disk, eight),
        TEST_OF(a_reset_by_one_reaches_all, eight),
        TEST_OF(a_reset_by_a_reader_reaches_all, eight),
        TEST_OF(readers_and_processes_without_the_key_follow, eight),
    };
    size_t all = sizeof(tests) / sizeof(tests[0]);
    return _cmocka_run_group_tests("many writers", tests, SAMPLE_OF(all, all - 11), NULL, NULL);
}
