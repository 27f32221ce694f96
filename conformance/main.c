/* spec-conformance: tests a shared object through the ABI of spec_connector.h, or with --objects of
 * spec_objects.h.
 *
 *   spec-conformance SO [OPTIONS]          --help lists them
 *
 *   first:           fork -> dlopen, open with --config, close: an error ends the program
 *   for every test:  fork -> dlopen, open, test, close -> exit status
 *   at the end:      a line per clause (holds, fails, skipped), then N passed, N failed, N skipped
 *
 * Exit status: 0 no test failed, 1 one did, 2 none could be run (one line on standard error says
 * why). A crash or hang of the tested object fails its test only.
 * Threads: one. Tests: conformance/test_program.py, conformance/broken/test_broken.py */
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

#include "conformance/results.h"

#define SECONDS_MAX      86400ul
#define CONFIG_BYTES_MAX 4000u

struct run {
    struct conf_results results;
    const char *only, *junit_path;
    unsigned limit_s;     /* of a test: then it hangs */
    unsigned part, parts; /* every parts-th test, from the part-th on; 1 of 1: all */
    unsigned count, at;   /* of the tests that are wanted: how many, how many have begun */
    bool objects, list, json, help, version;
    FILE *text, *junit; /* text: standard error where standard output has the JSON */
};

static const char USAGE[] =
    "usage: spec-conformance SO [OPTIONS]\n"
    "       spec-conformance --list [--objects] [--only CLAUSE] [--part K/N] | --help | --version\n"
    "  --objects           judges the table of objects by key (spec_objects.h): clauses OBJ-nnn\n"
    "  --config JSON       members beside \"path\", e.g. '{\"disk_bytes\": \"1GiB\"}'\n"
    "  --dir DIR           stores are made below it; it exists (default: $TMPDIR or /tmp)\n"
    "  --model DIR         a model's directory for the engine-driven tests\n"
    "  --only CLAUSE       a clause (51, 051, ABI-051) or a test's name; several: 51,52\n"
    "  --require-hits      a miss on what was stored fails\n"
    "  --one-set           but sets of single heads may come whole, as on a device\n"
    "  --patience SECONDS  how long what other processes do is awaited (default: 10)\n"
    "  --limit SECONDS     a test that takes longer hangs, and fails (default: 240)\n"
    "  --part K/N          the K-th, the (K+N)-th, ... of the tests: N runs have them all\n"
    "  --json              one JSON object on standard output, the text on standard error\n"
    "  --junit FILE        the results as JUnit XML, too\n"
    "exit code: 0 no test failed; 1 one did; 2 none could be run\n";

/* One line on standard error. Returns false. */
static bool wrong(const char *option, const char *found, const char *expected)
{
    fprintf(stderr, "spec-conformance: %s%s%s, expected %s\n", option,
            option[0] != '\0' ? ": " : "", found, expected);
    return false;
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
                             test->bare ? conf_set->setup_bare : conf_set->setup,
                             conf_set->teardown, NULL};
    int failed = _cmocka_run_group_tests("spec-conformance", &one, 1, NULL, NULL);
    exit(failed == 0 ? 0 : 1);
}

/* The test's output without cmocka's frame around it, and the signal that ended it, if one did. */
static void read_output(FILE *output, int status, char *text, size_t text_bytes)
{
    static const char *const FRAME[] = {"[=====", "[ RUN ", "[  FAILED  ]", "[  PASSED  ]"};
    char line[1024];
    size_t used = 0;
    text[0] = '\0';
    if (WIFSIGNALED(status))
        used = (size_t)snprintf(text, text_bytes, "ended by signal %d (%s)%s\n", WTERMSIG(status),
                                strsignal(WTERMSIG(status)),
                                WTERMSIG(status) == SIGALRM ? ": it hangs" : "");
    rewind(output);
    while (fgets(line, sizeof(line), output) != NULL) {
        bool is_frame = line[0] == '\n' || strstr(line, "FAILED TEST(S)") != NULL;
        for (size_t i = 0; i < sizeof(FRAME) / sizeof(FRAME[0]); i++)
            is_frame |= strncmp(line, FRAME[i], strlen(FRAME[i])) == 0;
        if (!is_frame && used + strlen(line) < text_bytes)
            used += (size_t)snprintf(text + used, text_bytes - used, "%s", line);
    }
}

static void print_indented(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t bytes = strcspn(text, "\n");
        fprintf(out, "    %.*s\n", (int)bytes, text);
        text += bytes + (text[bytes] == '\n');
    }
}

/* How the child ended becomes a result, and a line. */
static void keep_result(struct run *run, const struct conf_test *test, int status, FILE *output)
{
    static char text[1 << 16];
    const struct conf_shared *shared = conf_options.shared;
    enum conf_outcome outcome = status != 0       ? CONF_FAILED
                                : shared->skipped ? CONF_SKIPPED
                                                  : CONF_PASSED;
    text[0] = '\0';
    if (outcome == CONF_FAILED)
        read_output(output, status, text, sizeof(text));
    else if (outcome == CONF_SKIPPED)
        (void)snprintf(text, sizeof(text), "%s", shared->reason);
    if (outcome == CONF_FAILED) {
        print_indented(run->text, text);
        fprintf(run->text, "[  FAILED  ] %s\n", test->name);
    } else if (outcome == CONF_SKIPPED) {
        fprintf(run->text, "skipped: %s\n[  SKIPPED ] %s\n", text, test->name);
    } else {
        fprintf(run->text, "[       OK ] %s\n", test->name);
    }
    if (!conf_results_add(&run->results, test, outcome, text)) {
        fprintf(stderr, "spec-conformance: no memory for results\n");
        exit(2);
    }
}

static void judge_test(struct run *run, const struct conf_test *test)
{
    FILE *output = tmpfile();
    if (output == NULL) {
        fprintf(stderr, "spec-conformance: no temporary file: %s\n", strerror(errno));
        exit(2);
    }
    uint32_t clause = conf_clause_of(test->name);
    fprintf(run->text, "[ %u of %u ] %s-%03" PRIu32 ": %s\n[ RUN      ] %s\n", run->at, run->count,
            conf_set->prefix, clause, conf_clause_title(clause), test->name);
    conf_options.shared->skipped = 0;
    pid_t pid = conf_fork();
    if (pid == 0)
        run_child(run, test, output);
    int status = -1;
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        status = -1;
    keep_result(run, test, status, output);
    fclose(output);
    char mine[4096];
    (void)snprintf(mine, sizeof(mine), "%s/%ld-0", conf_options.dir, (long)pid);
    conf_remove_tree(mine);
}

/* ---- All of them ---- */

/* word: a clause or a test's name, up to a comma or the end. */
static bool is_named(const char *word, const char *name)
{
    size_t prefix = strlen(conf_set->prefix);
    bool is_prefixed = strncmp(word, conf_set->prefix, prefix) == 0 && word[prefix] == '-';
    const char *number = is_prefixed ? word + prefix + 1 : word;
    size_t length = strcspn(word, ",");
    char *end;
    unsigned long clause = strtoul(number, &end, 10);
    if (end != number && end == word + length)
        return clause == conf_clause_of(name);
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

static void list_test(struct run *run, const struct conf_test *test)
{
    static uint32_t last = UINT32_MAX;
    uint32_t clause = conf_clause_of(test->name);
    if (clause != last)
        fprintf(run->text, "%s-%03" PRIu32 "  %s\n", conf_set->prefix, clause,
                conf_clause_title(clause));
    last = clause;
    fprintf(run->text, "  %s\n", test->name);
}

static void count_test(struct run *run, const struct conf_test *test)
{
    (void)test;
    run->count = run->at;
}

static void each_test(struct run *run, void (*act)(struct run *run, const struct conf_test *test))
{
    unsigned wanted = 0;
    run->at = 0;
    for (size_t group = 0; conf_set->groups[group] != NULL; group++)
        for (const struct conf_test *test = conf_set->groups[group]; test->name != NULL; test++) {
            if (!is_wanted(run, test->name) || wanted++ % run->parts != run->part - 1)
                continue;
            run->at++;
            act(run, test);
        }
}

/* Every word of --only names a test. */
static bool check_only(const struct run *run)
{
    for (const char *word = run->only; word != NULL; word = strchr(word, ',')) {
        word += word != run->only;
        bool found = false;
        for (size_t group = 0; conf_set->groups[group] != NULL; group++)
            for (const struct conf_test *test = conf_set->groups[group]; test->name != NULL; test++)
                found |= is_named(word, test->name);
        if (!found)
            return wrong("--only", word, "clauses and tests that --list has");
    }
    return true;
}

/* ---- The command line ---- */

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
    int end = 0;
    return text[0] >= '0' && text[0] <= '9' &&
           sscanf(text, "%u/%u%n", &run->part, &run->parts, &end) == 2 && text[end] == '\0' &&
           run->part >= 1 && run->part <= run->parts;
}

static bool read_seconds(const char *option, const char *text, unsigned *ret_seconds)
{
    char *end;
    errno = 0;
    unsigned long seconds = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || seconds < 1 ||
        seconds > SECONDS_MAX)
        return wrong(option, text, "a whole number of seconds from 1 to 86400");
    *ret_seconds = (unsigned)seconds;
    return true;
}

static bool read_config(const char *text)
{
    if (strlen(text) > CONFIG_BYTES_MAX)
        return wrong("--config", "a longer text", "at most 4000 bytes");
    conf_options.extra = members_of(text);
    if (conf_options.extra == NULL)
        return wrong("--config", text, "a JSON object, of members beside \"path\"");
    return true;
}

/* One that has a value. */
static bool parse_value(struct run *run, const char *option, const char *value)
{
    if (strcmp(option, "--config") == 0)
        return read_config(value);
    if (strcmp(option, "--patience") == 0)
        return read_seconds(option, value, &conf_options.patience_s);
    if (strcmp(option, "--limit") == 0)
        return read_seconds(option, value, &run->limit_s);
    if (strcmp(option, "--part") == 0)
        return read_part(value, run) ||
               wrong(option, value, "K/N, both whole numbers, K from 1 to N");
    if (strcmp(option, "--dir") == 0)
        conf_options.dir = value;
    else if (strcmp(option, "--model") == 0)
        conf_options.model_dir = value;
    else if (strcmp(option, "--only") == 0)
        run->only = value;
    else
        run->junit_path = value;
    return true;
}

static bool parse_flag(struct run *run, const char *option)
{
    bool *const flags[] = {&run->objects,        &run->list,    &run->json,
                           &run->help,           &run->version, &conf_options.require_hits,
                           &conf_options.one_set};
    static const char *const NAMES[] = {"--objects", "--list",         "--json",   "--help",
                                        "--version", "--require-hits", "--one-set"};
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strcmp(option, NAMES[i]) == 0)
            return *flags[i] = true;
    return false;
}

static bool parse(int argc, char **argv, struct run *run)
{
    static const char *const VALUED[] = {"--config", "--dir",  "--model", "--patience",
                                         "--limit",  "--part", "--only",  "--junit"};
    conf_options.patience_s = 10;
    run->limit_s = 240;
    run->part = run->parts = 1;
    for (int i = 1; i < argc; i++) {
        bool has_value = false;
        for (size_t k = 0; k < sizeof(VALUED) / sizeof(VALUED[0]); k++)
            has_value |= strcmp(argv[i], VALUED[k]) == 0;
        if (has_value && i + 1 == argc)
            return wrong(argv[i], "nothing", "a value behind it");
        if (has_value) {
            if (!parse_value(run, argv[i], argv[i + 1]))
                return false;
            i++;
        } else if (argv[i][0] == '-' ? !parse_flag(run, argv[i]) : conf_options.so != NULL) {
            return wrong("", argv[i],
                         argv[i][0] == '-' ? "an option that --help lists"
                                           : "one shared object, and options");
        } else if (argv[i][0] != '-') {
            conf_options.so = argv[i];
        }
    }
    conf_set = run->objects ? &CONF_OF_OBJECTS : &CONF_OF_ROWS;
    if (conf_options.extra == NULL)
        conf_options.extra = conf_set->extra;
    if (conf_options.so == NULL && !run->list && !run->help && !run->version)
        return wrong("", "no shared object", "one to judge (--help lists options)");
    return check_only(run);
}

/* ---- What a run needs ---- */

static bool make_dir(char *dir, size_t dir_bytes)
{
    const char *from_environment = getenv("TMPDIR");
    const char *under = conf_options.dir != NULL   ? conf_options.dir
                        : from_environment != NULL ? from_environment
                                                   : "/tmp";
    char found[4096];
    int length = snprintf(dir, dir_bytes, "%s/spec-conformance-XXXXXX", under);
    errno = ENAMETOOLONG;
    if (length > 0 && (size_t)length < dir_bytes && mkdtemp(dir) != NULL)
        return true;
    (void)snprintf(found, sizeof(found), "%s: %s", under, strerror(errno));
    return wrong(conf_options.dir != NULL ? "--dir" : "$TMPDIR", found,
                 "a directory that exists, to make stores in");
}

/* The child: opens once, and closes. Its exit status is 1 after an error, which it told. */
static void open_once(const struct run *run)
{
    struct spec_error error = {.struct_size = sizeof(error)};
    bool is_loaded = false;
    char expected[128];
    alarm(run->limit_s);
    spec_status status = conf_set->open_once(&is_loaded, &error);
    (void)snprintf(expected, sizeof(expected), "%s %" PRIu32 ".%" PRIu32, conf_set->judged,
                   conf_set->major, conf_set->minor);
    if (!is_loaded)
        (void)wrong("", error.text, expected);
    else if (status != SPEC_OK)
        fprintf(stderr, "spec-conformance: %s: a first open with --config {%s}: %s: %s\n",
                conf_options.so, conf_options.extra, spec_status_name(status), error.text);
    _exit(status == SPEC_OK ? 0 : 1);
}

/* The tests judge a connector that crashes or hangs. */
static bool opens(const struct run *run)
{
    char store[4096];
    int status = -1;
    pid_t pid = conf_fork();
    if (pid == 0)
        open_once(run);
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        fprintf(stderr, "spec-conformance: no process: %s\n", strerror(errno));
        return false;
    }
    (void)snprintf(store, sizeof(store), "%s/first", conf_options.dir);
    conf_remove_tree(store);
    return WIFSIGNALED(status) || WEXITSTATUS(status) == 0;
}

static bool prepare(struct run *run)
{
    static char so[4096];
    char found[4200];
    conf_options.shared = mmap(NULL, sizeof(*conf_options.shared), PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (conf_options.shared == MAP_FAILED) {
        fprintf(stderr, "spec-conformance: no memory: %s\n", strerror(errno));
        return false;
    }
    if (realpath(conf_options.so, so) == NULL) {
        (void)snprintf(found, sizeof(found), "%.4000s: %s", conf_options.so, strerror(errno));
        return wrong("", found, "a shared object");
    }
    conf_options.so = so;
    if (conf_options.model_dir != NULL && access(conf_options.model_dir, R_OK | X_OK) != 0) {
        (void)snprintf(found, sizeof(found), "%.4000s: %s", conf_options.model_dir,
                       strerror(errno));
        return wrong("--model", found, "a model's directory");
    }
    if (run->junit_path != NULL && (run->junit = fopen(run->junit_path, "we")) == NULL) {
        (void)snprintf(found, sizeof(found), "%.4000s: %s", run->junit_path, strerror(errno));
        return wrong("--junit", found, "a file that can be written");
    }
    return true;
}

/* The forms that were asked for. False: one could not be written. */
static bool report(struct run *run)
{
    conf_results_print(&run->results, run->text);
    if (run->json && !conf_results_json(&run->results, stdout))
        return wrong("--json", "an error", "that standard output can be written");
    bool good = run->junit == NULL || conf_results_junit(&run->results, run->junit);
    if (run->junit != NULL && fclose(run->junit) != 0)
        good = false;
    return good || wrong("--junit", "an error", "that the file can be written");
}

int main(int argc, char **argv)
{
    static struct run run;
    static char dir[2048];
    if (!parse(argc, argv, &run))
        return 2;
    if (run.help || run.version)
        return fputs(run.help ? USAGE : "spec-conformance " SC_VERSION_TEXT "\n", stdout), 0;
    run.text = run.json ? stderr : stdout;
    each_test(&run, run.list ? list_test : count_test);
    if (run.list)
        return run.at > 0 ? 0 : 2;
    if (run.count == 0)
        return wrong("--part", "no test", "fewer parts than tests"), 2;
    if (!prepare(&run) || !make_dir(dir, sizeof(dir)))
        return 2;
    conf_options.dir = dir;
    bool judged = opens(&run);
    if (judged) {
        each_test(&run, judge_test);
        judged = report(&run);
    }
    size_t failed = run.results.totals[CONF_FAILED];
    conf_results_done(&run.results);
    conf_remove_tree(dir);
    return !judged ? 2 : failed > 0 ? 1 : 0;
}
