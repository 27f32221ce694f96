/* options: parses the command line of spec-engine. See options.h. */
#include "conformance/engine/cli/options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/pool.h"

#define COUNT_MAX (1u << 24)

enum option_id {
    OPT_MODEL = 256,
    OPT_KV_DTYPE,
    OPT_THREADS,
    OPT_CONNECTOR,
    OPT_CONFIG,
    OPT_RHO,
    OPT_SELECT,
    OPT_HINT,
    OPT_PROBE_HEADS,
    OPT_QUERIES,
    OPT_AHEAD,
    OPT_FILL,
    OPT_FILL_TOKENS,
    OPT_FILL_DEADLINE,
    OPT_NO_STORE,
    OPT_STORE_QUERY,
    OPT_PREFIX,
    OPT_PREFIX_TEXT,
    OPT_PREFIX_IDS,
    OPT_QUERY,
    OPT_QUERY_TEXT,
    OPT_QUERY_IDS,
    OPT_MAX_NEW,
    OPT_PASS_TOKENS,
    OPT_REPEAT,
    OPT_BOS,
    OPT_ALL,
    OPT_RESIDENT,
    OPT_TOKENIZE,
    OPT_SETTLE,
    OPT_JSON,
    OPT_LOGITS,
    OPT_TRACE,
    OPT_HELP,
    OPT_VERSION
};

static const struct option long_options[] = {
    {"model", required_argument, NULL, OPT_MODEL},
    {"kv-dtype", required_argument, NULL, OPT_KV_DTYPE},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"connector", required_argument, NULL, OPT_CONNECTOR},
    {"config", required_argument, NULL, OPT_CONFIG},
    {"rho", required_argument, NULL, OPT_RHO},
    {"select", required_argument, NULL, OPT_SELECT},
    {"hint", required_argument, NULL, OPT_HINT},
    {"probe-heads", required_argument, NULL, OPT_PROBE_HEADS},
    {"queries", required_argument, NULL, OPT_QUERIES},
    {"ahead", no_argument, NULL, OPT_AHEAD},
    {"load-policy", required_argument, NULL, OPT_FILL},
    {"bidirectional-tokens", required_argument, NULL, OPT_FILL_TOKENS},
    {"bidirectional-deadline-us", required_argument, NULL, OPT_FILL_DEADLINE},
    {"no-store", no_argument, NULL, OPT_NO_STORE},
    {"store-query", no_argument, NULL, OPT_STORE_QUERY},
    {"settle", no_argument, NULL, OPT_SETTLE},
    {"prefix", required_argument, NULL, OPT_PREFIX},
    {"prefix-text", required_argument, NULL, OPT_PREFIX_TEXT},
    {"prefix-ids", required_argument, NULL, OPT_PREFIX_IDS},
    {"query", required_argument, NULL, OPT_QUERY},
    {"query-text", required_argument, NULL, OPT_QUERY_TEXT},
    {"query-ids", required_argument, NULL, OPT_QUERY_IDS},
    {"max-new", required_argument, NULL, OPT_MAX_NEW},
    {"pass-tokens", required_argument, NULL, OPT_PASS_TOKENS},
    {"repeat", required_argument, NULL, OPT_REPEAT},
    {"bos", required_argument, NULL, OPT_BOS},
    {"all", no_argument, NULL, OPT_ALL},
    {"resident", no_argument, NULL, OPT_RESIDENT},
    {"tokenize", no_argument, NULL, OPT_TOKENIZE},
    {"json", required_argument, NULL, OPT_JSON},
    {"logits", required_argument, NULL, OPT_LOGITS},
    {"trace", required_argument, NULL, OPT_TRACE},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "spec-engine --model DIR [options] --prefix FILE --query FILE|TEXT ...\n"
    "spec-engine --model DIR --tokenize        JSON lines {\"text\"} in, {\"ids\"} out\n"
    "\n"
    "  --model DIR          Hugging Face directory: config.json, model.safetensors (or shards)\n"
    "  --prefix FILE        what all requests begin with\n"
    "  --prefix-text TEXT   the same, given here\n"
    "  --query FILE|TEXT .. one request each, behind the prefix; an existing file is read, and\n"
    "                       one word that looks like a file's name has to be one\n"
    "  --query-text TEXT .. the same, never a file's name\n"
    "  --prefix-ids LIST    the same as token ids: 2,5,7, or a file of them\n"
    "  --query-ids LIST ..\n"
    "  --bos auto|on|off    put the model's first token in front of a prefix given as text;\n"
    "                       auto: as tokenizer_config.json says, else for OPT and llama2.c\n"
    "  --kv-dtype T         f32 (default), f16 or bf16: what K and V are rounded to\n"
    "  --threads N          default: all processors\n"
    "  --max-new N          tokens to generate, the first included; default 16\n"
    "  --pass-tokens N      cut the prompt into passes of N tokens; default 0: one pass\n"
    "  --repeat N           run every request N times; default 1\n"
    "  --resident           compute the prefix once, keep its KV, time each query over it\n"
    "  --connector SO       plugin to take the prefix from, and its --config FILE|JSON\n"
    "  --rho R              share of the prefix's rows to read, above 0 up to 1\n"
    "  --select JSON        the same in full: {\"budget\": \"ratio|count|mass\", \"retain_ppm\",\n"
    "                       \"mass_ppm\", \"count\", \"metric\": \"h2o|last|random\", "
    "\"keep_first\",\n"
    "                       \"keep_last\"}; what is not given is as --config says\n"
    "  --hint WHEN          none (default), before, after or both: the connector is given queries\n"
    "                       of layer l + 1 made from the hidden state before or after layer l's\n"
    "                       attention\n"
    "  --probe-heads N      KV heads whose queries are hinted: as --config's select.probe_heads,\n"
    "                       all (1024) where codes are read; default 3\n"
    "  --queries all|probe  which heads' queries the connector is given; default all\n"
    "  --ahead              layered: the connector is told a layer's place while the one below is\n"
    "                       computed, and gives what the queries choose afterwards\n"
    "  --load-policy load|bidirectional\n"
    "                       bidirectional: a match's first tokens are computed while its rows are\n"
    "                       loaded from the last one on, until both have met; default load\n"
    "  --bidirectional-tokens N\n"
    "                       tokens that are computed at a time; default 512\n"
    "  --bidirectional-deadline-us N\n"
    "                       what is not loaded by then is computed; default 0: none\n"
    "  --no-store           take what the connector has, add nothing\n"
    "  --store-query        store the query's KV too; default: the prefix's alone\n"
    "  --settle             before the end, wait until the connector has made what it makes\n"
    "                       in the background (codes of what was stored)\n"
    "  --json FILE          results: {\"connector\", \"requests\": [...]}\n"
    "  --logits FILE        float32 [queries, vocab]: those that give the first new token\n"
    "  --all                --logits [queries, prefix + query, vocab]: every position\n"
    "  --trace FILE         a JSON line per request, pass and layer (with --connector)\n"
    "  --version            which version this is, of which ABI\n";

const char *eng_options_usage(void)
{
    return usage;
}

static eng_status parse_count(const char *name, const char *text, uint64_t low, uint64_t high,
                              uint64_t *ret_value, struct eng_error *reterr)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < low || value > high)
        return eng_fail(reterr, ENG_E_INVALID,
                        "--%s is %.60s, expected a whole number from %" PRIu64 " to %" PRIu64, name,
                        text, low, high);
    *ret_value = value;
    return ENG_OK;
}

/* One of `names`, ended by NULL; gives its index. */
static eng_status parse_word(const char *name, const char *text, const char *const *names,
                             const char *allowed, int *ret_index, struct eng_error *reterr)
{
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], text) == 0) {
            *ret_index = i;
            return ENG_OK;
        }
    }
    return eng_fail(reterr, ENG_E_INVALID, "--%s is %.60s, expected %s", name, text, allowed);
}

static eng_status parse_rho(struct eng_options *options, const char *text, struct eng_error *reterr)
{
    char *end = NULL;
    options->rho = strtod(text, &end);
    options->has_rho = true;
    if (end == text || *end != '\0' || !(options->rho > 0 && options->rho <= 1))
        return eng_fail(reterr, ENG_E_INVALID, "--rho is %.60s, expected above 0 up to 1", text);
    return ENG_OK;
}

static eng_status parse_prefix(struct eng_options *options, int id, const char *argument,
                               struct eng_error *reterr)
{
    if (options->has_prefix)
        return eng_fail(reterr, ENG_E_INVALID, "more than one prefix was given");
    options->has_prefix = true;
    options->prefix = (struct eng_source_text){argument, id == OPT_PREFIX_IDS,
                                               id == OPT_PREFIX        ? ENG_FORM_FILE
                                               : id == OPT_PREFIX_TEXT ? ENG_FORM_TEXT
                                                                       : ENG_FORM_EITHER};
    return ENG_OK;
}

static eng_status parse_query(struct eng_options *options, int id, const char *argument,
                              struct eng_error *reterr)
{
    struct eng_source_text *grown =
        reallocarray(options->queries, options->query_count + 1, sizeof(*grown));
    if (grown == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for the queries");
    options->queries = grown;
    options->queries[options->query_count++] = (struct eng_source_text){
        argument, id == OPT_QUERY_IDS, id == OPT_QUERY_TEXT ? ENG_FORM_TEXT : ENG_FORM_EITHER};
    return ENG_OK;
}

/* Options that hold a number or a word. */
static eng_status parse_value(struct eng_options *options, int id, const char *value,
                              struct eng_error *reterr)
{
    static const char *const dtypes[] = {"f32", "f16", "bf16", NULL};
    static const char *const bos[] = {"auto", "on", "off", NULL};
    static const char *const hints[] = {"none", "before", "after", "both", NULL};
    static const char *const fills[] = {"load", "bidirectional", NULL};
    static const char *const queries[] = {"all", "probe", NULL};
    int index = 0;
    uint64_t count = 0;
    eng_status status = ENG_OK;
    switch (id) {
    case OPT_KV_DTYPE:
        status = parse_word("kv-dtype", value, dtypes, "f32, f16 or bf16", &index, reterr);
        options->kv_dtype = (enum eng_dtype)index;
        return status;
    case OPT_BOS:
        status = parse_word("bos", value, bos, "auto, on or off", &index, reterr);
        options->bos = (enum eng_bos)index;
        return status;
    case OPT_HINT:
        status = parse_word("hint", value, hints, "none, before, after or both", &index, reterr);
        options->hint = (enum eng_hint)index;
        return status;
    case OPT_QUERIES:
        status = parse_word("queries", value, queries, "all or probe", &index, reterr);
        options->probe_queries = index == 1;
        return status;
    case OPT_FILL:
        status = parse_word("load-policy", value, fills, "load or bidirectional", &index, reterr);
        options->fill = (enum eng_fill)index;
        return status;
    case OPT_FILL_TOKENS:
        return parse_count("bidirectional-tokens", value, 1, COUNT_MAX, &options->fill_tokens,
                           reterr);
    case OPT_FILL_DEADLINE:
        return parse_count("bidirectional-deadline-us", value, 0, UINT32_MAX,
                           &options->fill_deadline_us, reterr);
    case OPT_PROBE_HEADS:
        return parse_count("probe-heads", value, 1, COUNT_MAX, &options->probe_heads, reterr);
    case OPT_THREADS:
        status = parse_count("threads", value, 1, ENG_POOL_THREADS_MAX, &count, reterr);
        options->threads = (uint32_t)count;
        return status;
    case OPT_MAX_NEW:
        return parse_count("max-new", value, 1, COUNT_MAX, &options->max_new, reterr);
    case OPT_PASS_TOKENS:
        return parse_count("pass-tokens", value, 0, COUNT_MAX, &options->pass_tokens, reterr);
    case OPT_REPEAT:
        return parse_count("repeat", value, 1, COUNT_MAX, &options->repeat, reterr);
    default:
        return parse_rho(options, value, reterr);
    }
}

static eng_status parse_one(struct eng_options *options, int id, const char *value,
                            struct eng_error *reterr)
{
    switch (id) {
    case OPT_MODEL:
        options->model = value;
        break;
    case OPT_CONNECTOR:
        options->connector = value;
        break;
    case OPT_CONFIG:
        options->config = value;
        break;
    case OPT_SELECT:
        options->select = value;
        break;
    case OPT_PREFIX:
    case OPT_PREFIX_TEXT:
    case OPT_PREFIX_IDS:
        return parse_prefix(options, id, value, reterr);
    case OPT_QUERY:
    case OPT_QUERY_TEXT:
    case OPT_QUERY_IDS:
        return parse_query(options, id, value, reterr);
    case OPT_AHEAD:
        options->ahead = true;
        break;
    case OPT_NO_STORE:
        options->no_store = true;
        break;
    case OPT_STORE_QUERY:
        options->store_query = true;
        break;
    case OPT_SETTLE:
        options->settle = true;
        break;
    case OPT_ALL:
        options->all = true;
        break;
    case OPT_RESIDENT:
        options->resident = true;
        break;
    case OPT_TOKENIZE:
        options->tokenize = true;
        break;
    case OPT_JSON:
        options->json = value;
        break;
    case OPT_LOGITS:
        options->logits = value;
        break;
    case OPT_TRACE:
        options->trace = value;
        break;
    case OPT_HELP:
        options->help = true;
        break;
    case OPT_VERSION:
        options->version = true;
        break;
    default:
        return parse_value(options, id, value, reterr);
    }
    return ENG_OK;
}

static bool selection_given(const struct eng_options *options)
{
    return options->select != NULL || options->hint != ENG_HINT_NONE || options->probe_heads != 0 ||
           options->probe_queries;
}

static eng_status options_check(const struct eng_options *options, struct eng_error *reterr)
{
    const char *wrong = NULL;
    if (options->model == NULL)
        wrong = "--model DIR is missing";
    else if (options->tokenize)
        return ENG_OK;
    else if (!options->has_prefix && options->query_count == 0)
        wrong = "give --prefix or --query (or --prefix-ids, --query-ids)";
    else if (options->config != NULL && options->connector == NULL)
        wrong = "--config belongs to --connector, which is missing";
    else if (options->connector != NULL && options->config == NULL)
        wrong = "--connector needs --config FILE|JSON";
    else if (options->has_rho && options->connector == NULL)
        wrong = "--rho belongs to --connector, which is missing";
    else if (options->has_rho && options->select != NULL)
        wrong = "--rho and --select say the same thing: give one";
    else if (options->connector == NULL && selection_given(options))
        wrong = "--select, --hint, --probe-heads and --queries belong to --connector, which is "
                "missing";
    else if ((options->no_store || options->store_query) && options->connector == NULL)
        wrong = "--no-store and --store-query belong to --connector, which is missing";
    else if (options->ahead && options->connector == NULL)
        wrong = "--ahead belongs to --connector, which is missing";
    else if (options->ahead && options->hint != ENG_HINT_NONE)
        wrong = "--ahead and --hint both say what comes before a layer's queries: give one";
    else if (options->fill == ENG_LOAD_POLICY_ENDS && options->connector == NULL)
        wrong = "--load-policy bidirectional belongs to --connector, which is missing";
    else if (options->fill == ENG_LOAD_POLICY_ENDS &&
             (options->has_rho || options->ahead || selection_given(options)))
        wrong = "--load-policy bidirectional loads whole rows of all layers: not with --rho, "
                "--select, --hint, "
                "--ahead, --probe-heads or --queries";
    else if (options->fill != ENG_LOAD_POLICY_ENDS &&
             (options->fill_tokens != 0 || options->fill_deadline_us != 0))
        wrong = "--bidirectional-tokens and --bidirectional-deadline-us belong to --load-policy "
                "bidirectional, which "
                "is missing";
    else if (options->settle && options->connector == NULL)
        wrong = "--settle belongs to --connector, which is missing";
    else if (options->no_store && options->store_query)
        wrong = "--no-store and --store-query contradict each other";
    else if (options->trace != NULL && options->connector == NULL)
        wrong = "--trace belongs to --connector, which is missing";
    else if (options->all && options->connector != NULL)
        wrong = "--all computes every position: not with --connector";
    else if (options->all && options->logits == NULL)
        wrong = "--all says what --logits FILE holds, which is missing";
    else if (options->all && options->resident)
        wrong = "--all computes every position: not with --resident";
    else if (options->resident && options->connector != NULL)
        wrong = "--resident keeps the prefix itself: not with --connector";
    else if (options->resident && (!options->has_prefix || options->query_count == 0))
        wrong = "--resident needs a prefix and a query";
    if (wrong != NULL)
        return eng_fail(reterr, ENG_E_INVALID, "%s", wrong);
    return ENG_OK;
}

eng_status eng_options_parse(int argc, char **argv, struct eng_options *ret_options,
                             struct eng_error *reterr)
{
    struct eng_options *options = ret_options;
    *options = (struct eng_options){.max_new = 16, .repeat = 1};
    opterr = 0;
    optind = 0; /* start anew: tests parse several lines */
    int last = 0;
    for (;;) {
        int at = optind == 0 ? 1 : optind;
        int id = getopt_long(argc, argv, "-", long_options, NULL); /* "-": plain words in order */
        if (id == -1)
            break;
        if (id == '?')
            return eng_fail(reterr, ENG_E_INVALID,
                            "%.80s: not an option, or its value is missing (--help lists them)",
                            at < argc ? argv[at] : "");
        if (id == 1 && last != OPT_QUERY && last != OPT_QUERY_TEXT && last != OPT_QUERY_IDS)
            return eng_fail(reterr, ENG_E_INVALID, "%.80s: expected an option in front of it",
                            optarg);
        if (id != 1)
            last = id;
        eng_status status = parse_one(options, last, optarg, reterr);
        if (status != ENG_OK)
            return status;
    }
    if (optind < argc)
        return eng_fail(reterr, ENG_E_INVALID, "%.80s: expected an option in front of it",
                        argv[optind]);
    return options->help || options->version ? ENG_OK : options_check(options, reterr);
}

void eng_options_done(struct eng_options *options)
{
    free(options->queries);
    *options = (struct eng_options){0};
}
