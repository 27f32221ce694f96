/* spec-ctl: looks at a store from outside, also while it is in use.
 *
 * Holds: one command a run; a wrong command line is said with what was expected, exit code 2.
 * Does not: change a store (bench-device makes one file of its own and removes it).
 * Threads: one.
 * Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char USAGE[] =
    "usage: spec-ctl COMMAND [OPTIONS] DIR\n"
    "\n"
    "  ls            the models (namespaces) that the store holds, by rank\n"
    "  stat          sizes: what lives, what is dropped, log, segments, who writes\n"
    "  verify        reads every stored row and checks its tag, and the log\n"
    "  dump          the log's records, one JSON object a line\n"
    "  why           why KV is not reused: the first field in which two models differ, or, with\n"
    "                --tokens, the first token at which a prompt parts from what is stored\n"
    "  bench-device  what the device under DIR can do through each I/O back end\n"
    "\n"
    "  --json             machine-readable output (dump: always)\n"
    "  --rank N           that rank only\n"
    "  --namespace HEX    why: the model that is looked for (a prefix of its digest; default: the\n"
    "                     newest)\n"
    "  --tokens FILE      why: token ids, separated by blanks or commas; - reads standard input\n"
    "  --show-tokens      dump: token ids too (they are the prompt's text)\n"
    "  --bytes N          bench-device: size of its file (default 1 GiB)\n"
    "  --only BACKEND     bench-device: io_uring or pread\n"
    "  --quiet            no progress on standard error\n"
    "\n"
    "exit code: 0 fine; 1 verify found damage, or why found a difference; 2 wrong usage;\n"
    "3 the store cannot be read\n";

static const struct {
    const char *name;
    int (*run)(const struct ctl_options *options);
} COMMANDS[] = {
    {"ls", ctl_ls},     {"stat", ctl_stat}, {"verify", ctl_verify},
    {"dump", ctl_dump}, {"why", ctl_why},   {"bench-device", ctl_bench_device},
};

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

static int parse(int argc, char **argv, struct ctl_options *options)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'},
                                          {"rank", required_argument, NULL, 'r'},
                                          {"namespace", required_argument, NULL, 'n'},
                                          {"tokens", required_argument, NULL, 't'},
                                          {"show-tokens", no_argument, NULL, 's'},
                                          {"bytes", required_argument, NULL, 'b'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"quiet", no_argument, NULL, 'q'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    uint64_t value;
    *options = (struct ctl_options){.rank = -1, .bytes = UINT64_C(1) << 30};
    for (int key; (key = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (key) {
        case 'j':
            options->json = true;
            break;
        case 's':
            options->tokens = true;
            break;
        case 'q':
            options->quiet = true;
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
            fputs(USAGE, stdout);
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

int main(int argc, char **argv)
{
    if (argc < 2)
        return fputs(USAGE, stderr), CTL_USAGE;
    if (strcmp(argv[1], "--help") == 0)
        return fputs(USAGE, stdout), CTL_OK;
    for (size_t i = 0; i < sizeof(COMMANDS) / sizeof(COMMANDS[0]); i++) {
        if (strcmp(argv[1], COMMANDS[i].name) != 0)
            continue;
        struct ctl_options options;
        int code = parse(argc - 1, argv + 1, &options);
        if (code != CTL_OK)
            return code;
        code = COMMANDS[i].run(&options);
        return fflush(stdout) == 0 ? code : wrong("standard output", strerror(errno));
    }
    return wrong("unknown command", argv[1]);
}
