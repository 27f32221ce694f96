/* input: token ids of prompts, from text through the model's tokenizer or from lists of ids.
 *
 * The forward pass checks ids against the vocabulary.
 * Threads: one. Tests: tests/unit/engine/test_cli.c */
#ifndef CONFORMANCE_ENGINE_CLI_INPUT_H
#define CONFORMANCE_ENGINE_CLI_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "conformance/engine/cli/options.h"
#include "conformance/engine/config.h"
#include "conformance/engine/error.h"
#include "conformance/engine/tokenizer.h"

struct eng_ids {
    uint32_t *ids;
    uint64_t count;
};

/* The ids of one part of a prompt. tokenizer may be NULL when the source holds ids. */
eng_status eng_ids_read(const struct eng_source_text *source, const struct eng_tokenizer *tokenizer,
                        struct eng_ids *ret_ids, struct eng_error *reterr);
void eng_ids_done(struct eng_ids *ids);

/* Puts id in front. */
eng_status eng_ids_put_first(struct eng_ids *ids, uint32_t id, struct eng_error *reterr);

/* Does a prompt of this model begin with its first token? As tokenizer_config.json's
 * add_bos_token says; without it OPT's and llama2.c's do, others do not. */
eng_status eng_bos_wanted(const char *model, const struct eng_config *config, bool *ret_wanted,
                          struct eng_error *reterr);

/* JSON lines {"text": ...} from `in` to {"ids": [...]} on `out`, line by line. */
eng_status eng_tokenize_lines(const struct eng_tokenizer *tokenizer, FILE *in, FILE *out,
                              struct eng_error *reterr);

#endif
