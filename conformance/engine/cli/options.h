/* options: parses the command line of spec-engine.
 *
 * Accepted options fit together (no --rho without --connector, no --all with one, ...). Others are
 * one line of text and exit status 2.
 * Threads: one. Tests: tests/unit/engine/test_cli.c */
#ifndef CONFORMANCE_ENGINE_CLI_OPTIONS_H
#define CONFORMANCE_ENGINE_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/error.h"
#include "conformance/engine/halffloat.h"

enum eng_bos { ENG_BOS_AUTO, ENG_BOS_ON, ENG_BOS_OFF };

enum eng_form { ENG_FORM_EITHER, ENG_FORM_FILE, ENG_FORM_TEXT };

/* A prompt's part as it was given: text or ids, themselves or in a file. */
struct eng_source_text {
    const char *argument; /* borrowed from argv */
    bool ids;
    enum eng_form form; /* whether the argument is the file's name */
};

struct eng_options {
    const char *model;
    enum eng_dtype kv_dtype;
    uint32_t threads; /* 0: as many as there are processors */
    const char *connector, *config;
    bool has_rho;
    double rho;
    const char *select; /* JSON, as select_text.h reads it */
    enum eng_hint hint;
    bool ahead; /* destinations are told before queries */
    enum eng_fill fill;
    uint64_t fill_tokens;      /* 0: the driver's default */
    uint64_t fill_deadline_us; /* 0: none */
    uint64_t probe_heads;
    bool probe_queries;
    bool has_prefix;
    struct eng_source_text prefix;
    struct eng_source_text *queries; /* [query_count] */
    uint64_t query_count;
    uint64_t max_new;
    uint64_t pass_tokens; /* 0: the whole prompt in one pass */
    uint64_t repeat;
    enum eng_bos bos;
    bool settle;                /* wait for the connector before the end */
    bool no_store, store_query; /* what the connector keeps; default: the prefix */
    bool all, resident, tokenize, help, version;
    const char *json, *logits, *trace;
};

/* ret_options is ended by eng_options_done, also after an error. */
eng_status eng_options_parse(int argc, char **argv, struct eng_options *ret_options,
                             struct eng_error *reterr);
void eng_options_done(struct eng_options *options);

/* What --help prints. */
const char *eng_options_usage(void);

#endif
