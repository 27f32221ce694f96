/* spec-conformance: judges a shared object through the ABI, from outside.
 *
 *   spec-conformance SO [--config JSON] [--dir DIR] [--model DIR] [--only CLAUSE]
 *                       [--require-hits] [--one-set] [--patience SECONDS]
 *                       [--limit SECONDS] [--part K/N] [--list]
 *
 *   for every test:  fork -> dlopen, open, test, close -> exit status
 *   at the end:      a line a clause (holds, fails, skipped), then N passed, N failed, N skipped
 *
 * Holds: exits with 0 when no test failed; a crash or a hang of the judged object fails the test it
 * happened in and no other.
 * Does not: time anything; know a store's format.
 * Threads: one. Tests: conformance/broken/test_broken.py */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/suite.h"

#define CLAUSES 1000u
#define EXTRA_DEFAULT                                                                              \
    "\"disk_bytes\": \"256MiB\", \"segment_bytes\": \"8MiB\", \"stage_bytes\": \"32MiB\", "        \
    "\"max_requests\": 16, \"max_request_tokens\": 8192"

static const struct conf_test *const GROUPS[] = {
    CONF_RULES,   CONF_SIZES,   CONF_OPEN,   CONF_NAMESPACE,     CONF_LOOKUP,     CONF_LOAD,
    CONF_LAYOUT,  CONF_FAILURE, CONF_SAVE,   CONF_STORE_CALL,    CONF_TICKET,     CONF_HALVES,
    CONF_ENDS,    CONF_ENGINE,  CONF_BATCH,  CONF_FIELD_REPORTS, CONF_PROCESS,    CONF_LEASE,
    CONF_RESET,   CONF_EVICT,   CONF_WORKER, CONF_SELECT,        CONF_PROVENANCE, CONF_LAYERED,
    CONF_REFINE,  CONF_AHEAD,   CONF_VALUE,  CONF_COPIES,        CONF_SCALE,      CONF_BYTES,
    CONF_COLUMNS, CONF_RESCORE, CONF_STAGE,  CONF_WEAR,          CONF_CUT,        CONF_DEVICE,
    CONF_BYPASS,  CONF_GROUPS,  CONF_STATES};

struct tally {
    unsigned passed, failed, skipped;
};

struct run {
    struct tally total, clauses[CLAUSES];
    const char *only;
    unsigned limit_s;     /* of a test: then it hangs */
    unsigned part, parts; /* every parts-th test, from the part-th on; 1 of 1: all */
    bool list;
};

static int usage(void)
{
    fprintf(stderr,
            "usage: spec-conformance SO [--config JSON] [--dir DIR] [--model DIR] [--only CLAUSE]\n"
            "                        [--require-hits] [--one-set] [--patience SECONDS]\n"
            "                        [--limit SECONDS] [--part K/N] [--list]\n"
            "  --config        members beside \"path\", e.g. '{\"disk_bytes\": \"1GiB\"}'\n"
            "  --dir           stores are made below it (default: $TMPDIR or /tmp)\n"
            "  --model         a model's directory for the engine-driven tests\n"
            "  --only          a clause (51, 051, ABI-051) or a test's name; several: 51,52\n"
            "  --require-hits  a miss on what was stored fails\n"
            "  --one-set       but sets of single heads may come whole, as on a device\n"
            "  --patience      how long what other processes do is awaited (default: 10)\n"
            "  --limit         a test that takes longer hangs, and fails (default: 240)\n"
            "  --part          the K-th, the (K+N)-th, ... of the tests: N runs have them all\n");
    return 2;
}

/* ---- One test ---- */

static const struct conf_test *running;

/* Does not return where the test fails. */
static void run_marked(void **state)
{
    conf_options.in_test = true;
    running->run(state);
    conf_options.in_test = false;
}

/* The child: its output goes to `output`, its exit status says how it ended. */
static void run_child(const struct run *run, const struct conf_test *test, FILE *output)
{
    if (dup2(fileno(output), 1) < 0 || dup2(fileno(output), 2) < 0)
        _exit(3);
    alarm(run->limit_s);
    running = test;
    struct CMUnitTest one = {test->name, run_marked,
                             test->bare ? fixture_setup_bare : fixture_setup, fixture_teardown,
                             NULL};
    int failed = _cmocka_run_group_tests("spec-conformance", &one, 1, NULL, NULL);
    exit(failed == 0 ? 0 : 1);
}

/* What the test said, without cmocka's frame around it. */
static void print_output(FILE *output)
{
    static const char *const FRAME[] = {"[=====", "[ RUN ", "[  FAILED  ]", "[  PASSED  ]"};
    char line[1024];
    rewind(output);
    while (fgets(line, sizeof(line), output) != NULL) {
        bool is_frame = line[0] == '\n' || strstr(line, "FAILED TEST(S)") != NULL;
        for (size_t i = 0; i < sizeof(FRAME) / sizeof(FRAME[0]); i++)
            is_frame |= strncmp(line, FRAME[i], strlen(FRAME[i])) == 0;
        if (!is_frame)
            printf("    %s", line);
    }
}

static void print_report(const struct conf_test *test, int status, FILE *output)
{
    if (WIFSIGNALED(status))
        printf("    ended by signal %d (%s)%s\n", WTERMSIG(status), strsignal(WTERMSIG(status)),
               WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
    print_output(output);
    printf("[  FAILED  ] %s\n", test->name);
}

static void judge_test(struct run *run, const struct conf_test *test)
{
    struct conf_shared *shared = conf_options.shared;
    struct tally *clause = &run->clauses[strtoul(test->name + 4, NULL, 10) % CLAUSES];
    FILE *output = tmpfile();
    if (output == NULL) {
        fprintf(stderr, "spec-conformance: no temporary file: %s\n", strerror(errno));
        exit(2);
    }
    printf("[ RUN      ] %s\n", test->name);
    fflush(NULL);
    shared->skipped = 0;
    pid_t pid = fork();
    if (pid == 0)
        run_child(run, test, output);
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = -1;
    if (status != 0) {
        print_report(test, status, output);
        run->total.failed++, clause->failed++;
    } else if (shared->skipped) {
        printf("skipped: %s\n[  SKIPPED ] %s\n", shared->reason, test->name);
        run->total.skipped++, clause->skipped++;
    } else {
        printf("[       OK ] %s\n", test->name);
        run->total.passed++, clause->passed++;
    }
    fclose(output);
    char mine[4096];
    (void)snprintf(mine, sizeof(mine), "%s/%ld-0", conf_options.dir, (long)pid);
    conf_remove_tree(mine);
}

/* ---- All of them ---- */

/* word: a clause or a test's name, up to a comma or the end. */
static bool is_named(const char *word, const char *name)
{
    const char *number = strncmp(word, "ABI-", 4) == 0 ? word + 4 : word;
    size_t length = strcspn(word, ",");
    char *end;
    unsigned long clause = strtoul(number, &end, 10);
    if (end != number && end == word + length)
        return clause == strtoul(name + 4, NULL, 10);
    return strlen(name) == length && strncmp(word, name, length) == 0;
}

static bool is_wanted(const struct run *run, const char *name)
{
    if (run->only == NULL)
        return true;
    for (const char *word = run->only;; word += strcspn(word, ",") + 1) {
        if (is_named(word, name))
            return true;
        if (word[strcspn(word, ",")] == '\0')
            return false;
    }
}

static unsigned run_all(struct run *run)
{
    unsigned count = 0, at = 0;
    for (size_t group = 0; group < sizeof(GROUPS) / sizeof(GROUPS[0]); group++)
        for (const struct conf_test *test = GROUPS[group]; test->name != NULL; test++) {
            if (!is_wanted(run, test->name) || at++ % run->parts != run->part - 1)
                continue;
            count++;
            if (run->list)
                printf("%s\n", test->name);
            else
                judge_test(run, test);
        }
    return count;
}

static void report(const struct run *run)
{
    printf("\nclause   outcome  tests\n");
    for (unsigned i = 0; i < CLAUSES; i++) {
        const struct tally *clause = &run->clauses[i];
        unsigned tests = clause->passed + clause->failed + clause->skipped;
        if (tests > 0)
            printf("ABI-%03u  %-7s  %u\n", i,
                   clause->failed > 0   ? "fails"
                   : clause->passed > 0 ? "holds"
                                        : "skipped",
                   tests);
    }
    printf("hits seen: %" PRIu64 ", misses: %" PRIu64 "\n", conf_options.shared->hits,
           conf_options.shared->misses);
    printf("%u passed, %u failed, %u skipped\n", run->total.passed, run->total.failed,
           run->total.skipped);
}

/* The members of a JSON object's text, without its braces; NULL: not an object. */
static const char *members_of(const char *config)
{
    const char *first = strchr(config, '{');
    const char *last = strrchr(config, '}');
    if (first == NULL || last == NULL || last < first ||
        strspn(config, " \n\t") != (size_t)(first - config))
        return NULL;
    char *members = strndup(first + 1, (size_t)(last - first - 1));
    if (members != NULL && members[strspn(members, " \n\t")] == '\0')
        members[0] = '\0';
    return members;
}

static bool read_part(const char *text, struct run *run)
{
    return sscanf(text, "%u/%u", &run->part, &run->parts) == 2 && run->part >= 1 &&
           run->part <= run->parts;
}

static bool parse(int argc, char **argv, struct run *run)
{
    conf_options.extra = EXTRA_DEFAULT;
    conf_options.patience_s = 10;
    run->limit_s = 240;
    run->part = run->parts = 1;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--list") == 0)
            run->list = true;
        else if (strcmp(argv[i], "--require-hits") == 0)
            conf_options.require_hits = true;
        else if (strcmp(argv[i], "--one-set") == 0)
            conf_options.one_set = true;
        else if (strcmp(argv[i], "--config") == 0 && has_value)
            conf_options.extra = members_of(argv[++i]);
        else if (strcmp(argv[i], "--dir") == 0 && has_value)
            conf_options.dir = argv[++i];
        else if (strcmp(argv[i], "--model") == 0 && has_value)
            conf_options.model_dir = argv[++i];
        else if (strcmp(argv[i], "--patience") == 0 && has_value)
            conf_options.patience_s = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--limit") == 0 && has_value)
            run->limit_s = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--part") == 0 && has_value && read_part(argv[i + 1], run))
            i++;
        else if (strcmp(argv[i], "--only") == 0 && has_value)
            run->only = argv[++i];
        else if (argv[i][0] != '-' && conf_options.so == NULL)
            conf_options.so = argv[i];
        else
            return false;
    }
    return (conf_options.so != NULL || run->list) && conf_options.extra != NULL;
}

static bool make_dir(char *dir, size_t dir_bytes)
{
    const char *under = conf_options.dir != NULL   ? conf_options.dir
                        : getenv("TMPDIR") != NULL ? getenv("TMPDIR")
                                                   : "/tmp";
    (void)mkdir(under, 0700);
    int length = snprintf(dir, dir_bytes, "%s/spec-conformance-XXXXXX", under);
    return length > 0 && (size_t)length < dir_bytes && mkdtemp(dir) != NULL;
}

int main(int argc, char **argv)
{
    static struct run run;
    static char dir[2048], so[4096];
    if (!parse(argc, argv, &run))
        return usage();
    if (run.list)
        return run_all(&run) > 0 ? 0 : 2;
    if (realpath(conf_options.so, so) == NULL || !make_dir(dir, sizeof(dir))) {
        fprintf(stderr, "spec-conformance: %s: %s\n", dir[0] != '\0' ? dir : conf_options.so,
                strerror(errno));
        return 2;
    }
    conf_options.so = so;
    conf_options.dir = dir;
    conf_options.shared = mmap(NULL, sizeof(*conf_options.shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (conf_options.shared == MAP_FAILED)
        return 2;
    unsigned count = run_all(&run);
    if (count == 0)
        fprintf(stderr, "spec-conformance: no test is of clause \"%s\"\n", run.only);
    else
        report(&run);
    conf_remove_tree(dir);
    return count == 0 ? 2 : run.total.failed > 0 ? 1 : 0;
}
