/* report: writes spec-engine's table to standard output, and files for programs.
 *
 * A file is opened before anything is computed, and its close is checked: a full disk is an error.
 * Threads: one. Tests: tests/unit/engine/test_cli.c */
#ifndef CONFORMANCE_ENGINE_CLI_REPORT_H
#define CONFORMANCE_ENGINE_CLI_REPORT_H

#include <stdint.h>
#include <stdio.h>

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/options.h"
#include "conformance/engine/tokenizer.h"

struct eng_report;

/* Opens the files that the options name. tokenizer may be NULL: then texts are null. */
eng_status eng_report_open(const struct eng_options *options, const struct eng_tokenizer *tokenizer,
                           struct eng_report **ret_report, struct eng_error *reterr);

/* One request that ran: a line of the table, an entry of the JSON file. */
eng_status eng_report_add(struct eng_report *report, const struct eng_request *request,
                          const struct eng_result *result, struct eng_error *reterr);

/* Appends float32 values, little-endian, to the --logits file, if there is one. */
eng_status eng_report_logits(struct eng_report *report, const float *logits, uint64_t count,
                             struct eng_error *reterr);

/* Where a driver writes its --trace lines; NULL: nowhere. */
FILE *eng_report_trace(struct eng_report *report);

/* One layer of one pass, as a driver saw it. */
struct eng_trace_row {
    uint64_t request, pass, layer, k;
    double similarity, threshold;
    bool fallback, dense;
    const uint64_t *positions; /* [position_count]: k, or with fallback k for each KV head */
    uint64_t position_count, union_rows;
    uint64_t prefetched, missing; /* rows */
};
void eng_trace_write(FILE *trace, const struct eng_trace_row *row);

/* Writes the JSON file and closes all; also the way out after an error (complete false: the JSON
 * file is left empty). NULL is allowed. */
eng_status eng_report_close(struct eng_report *report, bool complete, struct eng_error *reterr);

#endif
