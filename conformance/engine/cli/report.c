/* report: writes tables and files of spec-engine. See report.h. */
#include "conformance/engine/cli/report.h"

#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/engine/unicode.h"

#define TEXT_COLUMNS 48

struct output {
    const char *path; /* NULL: not asked for */
    FILE *file;
};

struct eng_report {
    const struct eng_options *options;
    const struct eng_tokenizer *tokenizer;
    struct output json, logits, trace;
    struct json_object *requests;
    uint64_t lines;
};

static const char *const tier_names[ENG_TIERS] = {"gpu", "host", "disk", "remote"};

static eng_status output_open(struct output *output, const char *path, struct eng_error *reterr)
{
    if (path == NULL)
        return ENG_OK;
    output->file = fopen(path, "wb");
    if (output->file == NULL)
        return eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot write: %s", path, strerror(errno));
    output->path = path;
    return ENG_OK;
}

static eng_status output_close(struct output *output, struct eng_error *reterr)
{
    if (output->file == NULL)
        return ENG_OK;
    bool bad = ferror(output->file) != 0;
    bad |= fclose(output->file) != 0;
    output->file = NULL;
    if (bad)
        return eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot write: %s", output->path,
                        strerror(errno));
    return ENG_OK;
}

eng_status eng_report_open(const struct eng_options *options, const struct eng_tokenizer *tokenizer,
                           struct eng_report **ret_report, struct eng_error *reterr)
{
    struct eng_report *report = calloc(1, sizeof(*report));
    if (report != NULL)
        report->requests = json_object_new_array();
    if (report == NULL || report->requests == NULL) {
        free(report);
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a report");
    }
    report->options = options;
    report->tokenizer = tokenizer;
    eng_status status = output_open(&report->json, options->json, reterr);
    if (status == ENG_OK)
        status = output_open(&report->logits, options->logits, reterr);
    if (status == ENG_OK)
        status = output_open(&report->trace, options->trace, reterr);
    if (status != ENG_OK) {
        (void)eng_report_close(report, false, NULL);
        return status;
    }
    *ret_report = report;
    return ENG_OK;
}

static void json_add_u64(struct json_object *object, const char *name, uint64_t value)
{
    json_object_object_add(object, name, json_object_new_uint64(value));
}

static struct json_object *json_request(const struct eng_request *request,
                                        const struct eng_result *result, const char *text)
{
    struct json_object *entry = json_object_new_object();
    struct json_object *tiers = json_object_new_object();
    struct json_object *tokens = json_object_new_array();
    json_add_u64(entry, "request", request->index);
    json_add_u64(entry, "prefix_tokens", request->prefix_count);
    json_add_u64(entry, "query_tokens", request->query_count);
    json_add_u64(entry, "matched_tokens", result->matched_tokens);
    json_add_u64(entry, "new_tokens", result->new_tokens);
    json_add_u64(entry, "match_computed", result->front_tokens);
    json_add_u64(entry, "match_loaded", result->tail_tokens);
    json_add_u64(entry, "match_given_back", result->returned_tokens);
    json_add_u64(entry, "ttft_ns", result->ttft_ns);
    json_add_u64(entry, "lookup_ns", result->lookup_ns);
    json_add_u64(entry, "probe_ns", result->probe_ns);
    json_add_u64(entry, "io_exposed_ns", result->io_exposed_ns);
    json_add_u64(entry, "compute_ns", result->compute_ns);
    json_add_u64(entry, "decode_ns", result->decode_ns);
    json_add_u64(entry, "bytes_wanted", result->bytes_wanted);
    json_add_u64(entry, "bytes_read", result->bytes_read);
    json_add_u64(entry, "io_ops", result->io_ops);
    json_add_u64(entry, "bytes_unused", result->bytes_unused);
    json_add_u64(entry, "layers_loaded", result->layers_loaded);
    json_add_u64(entry, "fallback_layers", result->fallback_layers);
    json_add_u64(entry, "dense_layers", result->dense_layers);
    json_add_u64(entry, "rows_matched", result->rows_matched);
    json_add_u64(entry, "rows_selected", result->rows_selected);
    json_add_u64(entry, "rows_union", result->rows_union);
    json_add_u64(entry, "rows_prefetched", result->rows_prefetched);
    json_add_u64(entry, "restarts", result->restarts);
    for (int i = 0; i < ENG_TIERS; i++)
        json_add_u64(tiers, tier_names[i], result->tier_hits[i]);
    json_object_object_add(entry, "tier_hits", tiers);
    json_add_u64(entry, "token", result->tokens[0]);
    for (uint64_t i = 0; i < result->token_count; i++)
        json_object_array_add(tokens, json_object_new_uint64(result->tokens[i]));
    json_object_object_add(entry, "tokens", tokens);
    json_object_object_add(entry, "text", text == NULL ? NULL : json_object_new_string(text));
    return entry;
}

/* Generated ids may end inside a character, and be any bytes: what is not UTF-8, and NUL, becomes
 * U+FFFD. */
static char *text_repair(const char *text, uint64_t bytes)
{
    static const char replacement[] = "\xef\xbf\xbd";
    char *repaired = calloc(bytes + 1, 3);
    uint64_t used = 0, good_end = 0;
    for (uint64_t i = 0; repaired != NULL && i < bytes; i++) {
        if (i >= good_end)
            good_end = i + eng_utf8_valid_bytes(text + i, bytes - i);
        bool good = i < good_end && text[i] != '\0';
        memcpy(repaired + used, good ? text + i : replacement, good ? 1 : 3);
        used += good ? 1 : 3;
    }
    return repaired;
}

/* The text of the generated tokens but an end-of-sequence one; NULL without a tokenizer. */
static eng_status report_text(const struct eng_report *report, const struct eng_result *result,
                              char **ret_text, struct eng_error *reterr)
{
    char *text = NULL;
    uint64_t bytes = 0;
    if (report->tokenizer == NULL)
        return ENG_OK;
    eng_status status =
        eng_tokenizer_decode(report->tokenizer, result->tokens,
                             result->token_count - (result->ended ? 1 : 0), &text, &bytes, reterr);
    if (status != ENG_OK)
        return status;
    *ret_text = text_repair(text, bytes);
    free(text);
    if (*ret_text == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for a text");
    return ENG_OK;
}

/* At most TEXT_COLUMNS characters, in one line. */
static void print_text(const char *text)
{
    int columns = 0;
    for (const char *c = text; *c != '\0' && columns < TEXT_COLUMNS; c++) {
        if (*c == '\n' || *c == '\r' || *c == '\t')
            (void)putchar(' ');
        else
            (void)putchar(*c);
        const unsigned char next = (unsigned char)c[1];
        columns += (next & 0xc0) != 0x80; /* counted at a character's last byte */
        if (columns == TEXT_COLUMNS && next != '\0')
            (void)fputs("...", stdout);
    }
}

static void print_line(struct eng_report *report, const struct eng_request *request,
                       const struct eng_result *result, const char *text)
{
    const double ms = 1e6;
    if (report->lines++ == 0)
        (void)printf("%7s %6s %5s %7s %6s %5s %10s %8s %8s %8s %10s %9s %7s  %s\n", "request",
                     "prefix", "query", "matched", "new", "rho", "ttft ms", "lookup", "probe", "io",
                     "compute", "read MiB", "io ops", "answer");
    double rho = result->rows_matched == 0
                     ? 1
                     : (double)result->rows_selected / (double)result->rows_matched;
    (void)printf("%7" PRIu64 " %6" PRIu64 " %5" PRIu64 " %7" PRIu64 " %6" PRIu64
                 " %5.3f %10.2f %8.2f %8.2f %8.2f %10.2f %9.2f %7" PRIu64 "  ",
                 request->index, request->prefix_count, request->query_count,
                 result->matched_tokens, result->new_tokens, rho, (double)result->ttft_ns / ms,
                 (double)result->lookup_ns / ms, (double)result->probe_ns / ms,
                 (double)result->io_exposed_ns / ms, (double)result->compute_ns / ms,
                 (double)result->bytes_read / (1 << 20), result->io_ops);
    if (text != NULL)
        print_text(text);
    else
        (void)printf("token %" PRIu32, result->tokens[0]);
    (void)putchar('\n');
    (void)fflush(stdout);
}

/* What choosing rows cost, for a request of which some layers fell back or came whole. */
static void print_selection(const struct eng_result *result)
{
    (void)printf("        of %" PRIu64 " layers %" PRIu64 " by sets per head, %" PRIu64
                 " whole; rows read / delivered %.2f; %" PRIu64 " of %" PRIu64
                 " rows were read ahead\n",
                 result->layers_loaded, result->fallback_layers, result->dense_layers,
                 (double)result->rows_union / (double)result->rows_selected,
                 result->rows_prefetched, result->rows_union);
}

/* How a match was filled from both ends. */
static void print_ends(const struct eng_result *result)
{
    (void)printf("        of %" PRIu64 " matched %" PRIu64 " computed (%" PRIu64
                 " of them given back), %" PRIu64 " loaded\n",
                 result->matched_tokens, result->front_tokens, result->returned_tokens,
                 result->tail_tokens);
}

eng_status eng_report_add(struct eng_report *report, const struct eng_request *request,
                          const struct eng_result *result, struct eng_error *reterr)
{
    char *text = NULL;
    eng_status status = report_text(report, result, &text, reterr);
    if (status != ENG_OK)
        return status;
    print_line(report, request, result, text);
    if (report->json.file != NULL)
        json_object_array_add(report->requests, json_request(request, result, text));
    free(text);
    if (result->fallback_layers + result->dense_layers > 0)
        print_selection(result);
    if (result->front_tokens + result->tail_tokens > 0)
        print_ends(result);
    if (ferror(stdout) != 0)
        return eng_fail(reterr, ENG_E_SYSTEM, "standard output: cannot write: %s", strerror(errno));
    return ENG_OK;
}

eng_status eng_report_logits(struct eng_report *report, const float *logits, uint64_t count,
                             struct eng_error *reterr)
{
    if (report->logits.file == NULL)
        return ENG_OK;
    if (fwrite(logits, sizeof(*logits), count, report->logits.file) != count)
        return eng_fail(reterr, ENG_E_SYSTEM, "%s: cannot write: %s", report->logits.path,
                        strerror(errno));
    return ENG_OK;
}

FILE *eng_report_trace(struct eng_report *report)
{
    return report->trace.file;
}

void eng_trace_write(FILE *trace, const struct eng_trace_row *row)
{
    (void)fprintf(trace,
                  "{\"request\":%" PRIu64 ",\"pass\":%" PRIu64 ",\"layer\":%" PRIu64
                  ",\"k\":%" PRIu64 ",\"similarity\":%.9g,\"threshold\":%.9g,\"fallback\":%s,"
                  "\"dense\":%s,\"union\":%" PRIu64 ",\"positions\":[",
                  row->request, row->pass, row->layer, row->k, row->similarity, row->threshold,
                  row->fallback ? "true" : "false", row->dense ? "true" : "false", row->union_rows);
    for (uint64_t i = 0; i < row->position_count; i++)
        (void)fprintf(trace, "%s%" PRIu64, i == 0 ? "" : ",", row->positions[i]);
    (void)fprintf(trace, "],\"prefetched\":%" PRIu64 ",\"missing\":%" PRIu64 "}\n", row->prefetched,
                  row->missing);
}

static void report_write_json(struct eng_report *report)
{
    struct json_object *whole = json_object_new_object();
    const char *connector = report->options->connector;
    json_object_object_add(whole, "connector",
                           connector == NULL ? NULL : json_object_new_string(connector));
    json_object_object_add(whole, "requests", json_object_get(report->requests));
    (void)fputs(json_object_to_json_string_ext(whole, JSON_C_TO_STRING_PRETTY |
                                                          JSON_C_TO_STRING_NOSLASHESCAPE),
                report->json.file);
    (void)fputc('\n', report->json.file);
    json_object_put(whole);
}

eng_status eng_report_close(struct eng_report *report, bool complete, struct eng_error *reterr)
{
    if (report == NULL)
        return ENG_OK;
    if (complete && report->json.file != NULL)
        report_write_json(report);
    eng_status status = output_close(&report->json, reterr);
    eng_status next = output_close(&report->logits, status == ENG_OK ? reterr : NULL);
    status = status == ENG_OK ? next : status;
    next = output_close(&report->trace, status == ENG_OK ? reterr : NULL);
    status = status == ENG_OK ? next : status;
    json_object_put(report->requests);
    free(report);
    return status;
}
