/* spec-ctl: inspects a store from outside, also while it is in use.
 *
 * One command per run; a wrong command line prints what was expected, exit code 2. Only erase
 * changes a store (bench-device makes and removes one file of its own).
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] = "usage: spec-ctl COMMAND [OPTIONS] DIR\n"
                            "       spec-ctl COMMAND --help | --help | --version\n"
                            "\n";

static const char CODES[] =
    "exit code: 0 fine; 1 verify found damage, or why found a difference; 2 wrong usage;\n"
    "3 the store cannot be read\n";

static const struct command {
    const char *name;
    int (*run)(const struct ctl_options *options);
    const char *help, *options; /* options: of this command, beside those of all */
} COMMANDS[] = {
    {"ls", ctl_ls,
     "the models (namespaces) that the store holds, by rank. A store knows no model's\n"
     "                name: revision, weights (a digest) and shape say which one it is; all ranks\n"
     "                of one model have the same family\n",
     "--json --rank"},
    {"stat", ctl_stat, "sizes: what lives, what is dropped, log, segments, who writes\n",
     "--json --format --output --rank"},
    {"objects", ctl_objects,
     "the domains of a store of objects by key, and with --list the objects of each, the least\n"
     "                recently used first; with --verify every value is read and its tag checked\n",
     "--json --rank --list --verify"},
    {"verify", ctl_verify, "reads every stored row and checks its tag, and the log\n",
     "--json --rank --quiet"},
    {"dump", ctl_dump, "the log's records, one JSON object a line\n",
     "--json --rank --show-tokens"},
    {"why", ctl_why,
     "why KV is not reused: the first field in which two models differ, or, with\n"
     "                --tokens, the first token at which a prompt parts from what is stored\n",
     "--json --rank --namespace --tokens"},
    {"erase", ctl_erase,
     "overwrites everything, or what was stored under a salt, in every rank. A rank that a\n"
     "                process has open is overwritten by it, and waited for\n",
     "--json --all --salt --timeout --quiet"},
    {"bench-device", ctl_bench_device,
     "what the device under DIR can do through each I/O back end\n",
     "--json --bytes --only --quiet"},
};
#define COMMAND_COUNT (sizeof(COMMANDS) / sizeof(COMMANDS[0]))

static const struct {
    const char *name, *help;
} OPTIONS[] = {
    {"--json", "--json             machine-readable output (dump: always)\n"},
    {"--format", "--format FORMAT    stat: text (the default), json, or prometheus (metrics)\n"},
    {"--output", "--output FILE      stat: replaces FILE by the output, in one step\n"},
    {"--rank", "--rank N           that rank only\n"},
    {"--list", "--list             objects: each object, with its key\n"},
    {"--verify", "--verify           objects: read every value and check its tag\n"},
    {"--namespace", "--namespace HEX    why: the model that is looked for (a prefix of its digest; "
                    "default: the\n                     newest)\n"},
    {"--tokens",
     "--tokens FILE      why: token ids, separated by blanks or commas; - reads standard input\n"},
    {"--show-tokens", "--show-tokens      dump: token ids too (they are the prompt's text)\n"},
    {"--bytes", "--bytes N          bench-device: size of its file (default 1 GiB)\n"},
    {"--only", "--only BACKEND     bench-device: io_uring or pread\n"},
    {"--all", "--all              erase: everything in the store\n"},
    {"--salt", "--salt TEXT        erase: what was stored under this salt, of every model\n"},
    {"--timeout",
     "--timeout SECONDS  erase: how long a rank that is open is waited for (default 60)\n"},
    {"--quiet", "--quiet            no progress on standard error\n"},
};

/* Whether the blank-separated words have this one. */
static bool has_word(const char *words, const char *word)
{
    size_t bytes = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += bytes)
        if ((at == words || at[-1] == ' ') && (at[bytes] == ' ' || at[bytes] == '\0'))
            return true;
    return false;
}

/* of NULL: all commands. */
static void print_usage(FILE *out, const struct command *of)
{
    fputs(USAGE, out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (of == NULL || of == &COMMANDS[i])
            fprintf(out, "  %-12s  %s", COMMANDS[i].name, COMMANDS[i].help);
    fputs("\n", out);
    for (size_t i = 0; i < sizeof(OPTIONS) / sizeof(OPTIONS[0]); i++)
        if (of == NULL || has_word(of->options, OPTIONS[i].name))
            fprintf(out, "  %s", OPTIONS[i].help);
    fprintf(out, "\n%s", CODES);
}

static int wrong(const char *what, const char *found)
{
    fprintf(stderr, "spec-ctl: %s%s%s\nTry `spec-ctl --help`.\n", what, found != NULL ? ": " : "",
            found != NULL ? found : "");
    return CTL_USAGE;
}

static bool number(const char *text, uint64_t max, uint64_t *ret_value)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    *ret_value = value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && value <= max;
}

static const struct option KNOWN[] = {{"json", no_argument, NULL, 'j'},
                                      {"format", required_argument, NULL, 'f'},
                                      {"output", required_argument, NULL, 'w'},
                                      {"rank", required_argument, NULL, 'r'},
                                      {"namespace", required_argument, NULL, 'n'},
                                      {"tokens", required_argument, NULL, 't'},
                                      {"show-tokens", no_argument, NULL, 's'},
                                      {"bytes", required_argument, NULL, 'b'},
                                      {"only", required_argument, NULL, 'o'},
                                      {"all", no_argument, NULL, 'a'},
                                      {"list", no_argument, NULL, 'l'},
                                      {"verify", no_argument, NULL, 'v'},
                                      {"salt", required_argument, NULL, 'S'},
                                      {"timeout", required_argument, NULL, 'T'},
                                      {"quiet", no_argument, NULL, 'q'},
                                      {"help", no_argument, NULL, 'h'},
                                      {NULL, 0, NULL, 0}};

/* --format and --output, of stat. Returns an exit code. */
static int parse_output(const struct command *command, int key, const char *value,
                        struct ctl_options *options)
{
    const char *name = key == 'f' ? "--format" : "--output";
    if (!has_word(command->options, name))
        return wrong(name, "an option of stat alone");
    if (key == 'w') {
        options->output = value;
        return CTL_OK;
    }
    options->json = strcmp(value, "json") == 0;
    options->prometheus = strcmp(value, "prometheus") == 0;
    if (!options->json && !options->prometheus && strcmp(value, "text") != 0)
        return wrong("--format expects text, json or prometheus", value);
    return CTL_OK;
}

static int parse(int argc, char **argv, const struct command *command, struct ctl_options *options)
{
    uint64_t value;
    *options = (struct ctl_options){.rank = -1, .bytes = UINT64_C(1) << 30, .timeout_s = 60};
    for (int key; (key = getopt_long(argc, argv, "", KNOWN, NULL)) != -1;) {
        switch (key) {
        case 'j':
            options->json = true;
            break;
        case 'f':
        case 'w':
            if (parse_output(command, key, optarg, options) != CTL_OK)
                return CTL_USAGE;
            break;
        case 's':
            options->tokens = true;
            break;
        case 'q':
            options->quiet = true;
            break;
        case 'a':
            options->all = true;
            break;
        case 'l':
            options->lists = true;
            break;
        case 'v':
            options->verifies = true;
            break;
        case 'S':
            options->salt = optarg;
            break;
        case 'T':
            if (!number(optarg, UINT64_C(1) << 30, &options->timeout_s))
                return wrong("--timeout expects seconds", optarg);
            break;
        case 'n':
            options->space = optarg;
            break;
        case 't':
            options->token_file = optarg;
            break;
        case 'o':
            options->only = optarg;
            break;
        case 'r':
            if (!number(optarg, UINT32_MAX, &value))
                return wrong("--rank expects a number", optarg);
            options->rank = (int64_t)value;
            break;
        case 'b':
            if (!number(optarg, UINT64_C(1) << 40, &value) || value < UINT64_C(1) << 24)
                return wrong("--bytes expects 16777216 .. 1099511627776", optarg);
            options->bytes = value;
            break;
        case 'h':
            print_usage(stdout, command);
            exit(CTL_OK);
        default:
            return wrong("unknown option", NULL);
        }
    }
    if (optind + 1 != argc)
        return wrong(optind == argc ? "DIR is missing, expected the store's directory"
                                    : "one DIR expected, found another word",
                     optind == argc ? NULL : argv[optind + 1]);
    options->path = argv[optind];
    return CTL_OK;
}

/* Runs a command. With --output its standard output replaces the file in one step, unless it
 * printed nothing. Returns an exit code. */
static int run_command(const struct command *command, const struct ctl_options *options)
{
    char new_path[4096] = "";
    if (options->output != NULL) {
        int wanted = snprintf(new_path, sizeof(new_path), "%s.tmp", options->output);
        if (wanted < 0 || (size_t)wanted >= sizeof(new_path))
            return wrong("--output", strerror(ENAMETOOLONG));
        if (freopen(new_path, "w", stdout) == NULL)
            return wrong(new_path, strerror(errno));
    }
    int code = command->run(options);
    if (fflush(stdout) != 0 || ferror(stdout))
        return wrong("standard output", strerror(errno));
    if (options->output == NULL)
        return code;
    if (ftell(stdout) == 0)
        (void)remove(new_path);
    else if (rename(new_path, options->output) != 0)
        return wrong(options->output, strerror(errno));
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_usage(stderr, NULL), CTL_USAGE;
    if (strcmp(argv[1], "--help") == 0)
        return print_usage(stdout, NULL), CTL_OK;
    if (strcmp(argv[1], "--version") == 0)
        return puts("spec-ctl " SC_VERSION_TEXT), CTL_OK;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], COMMANDS[i].name) != 0)
            continue;
        struct ctl_options options;
        int code = parse(argc - 1, argv + 1, &COMMANDS[i], &options);
        if (code != CTL_OK)
            return code;
        return run_command(&COMMANDS[i], &options);
    }
    return wrong("unknown command", argv[1]);
}
