/* eval_file: questions over prefixes as token ids, for bench-accuracy and bench-similarity.
 *
 * File: JSON lines {"id", "group", "prefix" | "prefix_ids", "queries": [{"query" | "query_ids",
 * "choices" | "choices_ids", "label", "new_tokens"}]}. Text is tokenised by the model's tokenizer,
 * with a first token before a prefix if the model wants one. new_tokens (optional): tokens to
 * decode as an answer in words. "forced_tokens" (optional): tokens that full KV decodes, and that
 * others read as if they had decoded them. "lessons" (optional), a list like queries: earlier
 * questions about the prefix. "taught" | "taught_ids" (optional): text from which a connector
 * calibrates, instead of half of the first prefix.
 *
 * A bad file ends the program with one line.
 * Threads: one. Tests: none of its own; the programs run it */
#ifndef BENCH_EVAL_FILE_H
#define BENCH_EVAL_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "conformance/engine/cli/engine_run.h"
#include "conformance/engine/cli/input.h"
#include "conformance/engine/tokenizer.h"

struct eval_question {
    struct eng_ids query;
    struct eng_ids *choices; /* [choice_count] */
    uint64_t choice_count;
    int64_t label;
    uint64_t new_tokens;    /* 1: nothing is decoded */
    uint64_t forced_tokens; /* 0: none */
    float *full;            /* a caller's, freed with the file; NULL at first */
    struct eng_ids said;    /* likewise: what full KV decoded */
};

struct eval_entry {
    char id[64], group[64];
    struct eng_ids prefix, taught;
    struct eval_question *questions; /* [question_count] >= 1 */
    uint64_t question_count;
    struct eval_question *lessons; /* [lesson_count]: asked first, never judged */
    uint64_t lesson_count;
};

struct eval_file {
    struct eng_model *model;
    const struct eng_config *config;
    struct eng_tokenizer *tokenizer; /* NULL: the model has none, the file holds ids */
    struct eval_entry *entries;
    uint64_t entry_count;
    uint64_t asked_tokens; /* of a query, all its choices and what is decoded, at most */
    uint64_t longest;      /* with the prefix */
};

/* Opens --model (with --threads) and reads --eval; at most --questions of each prefix. */
void eval_open(struct eval_file *file, int argc, char **argv);
void eval_close(struct eval_file *file);

/* Ends the program with the error's text. */
void eval_must(eng_status status, const struct eng_error *error);
/* The same when memory is NULL. */
void *eval_must_have(void *memory);

#endif
