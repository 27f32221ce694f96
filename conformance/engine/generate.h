/* generate: greedy decoding: repeatedly appends the token of the largest logit.
 *
 * Ties go to the lower id. An end-of-sequence token is returned and ends the run.
 * Threads: see model.h. Tests: tests/unit/engine/test_model.c */
#ifndef CONFORMANCE_ENGINE_GENERATE_H
#define CONFORMANCE_ENGINE_GENERATE_H

#include "conformance/engine/model.h"

/* Decodes over kv, whose next token stands at `position`, starting from logits [vocab] of the
 * token before it.
 *   tokens     [max_new] written
 *   ret_count  0 .. max_new: fewer where an end-of-sequence token, the cache's capacity or the
 *              model's last position ends the run
 * Hooks run for each decoding pass; they may be NULL. */
eng_status eng_generate(struct eng_model *model, struct eng_kv *kv, uint64_t position,
                        const float *logits, uint64_t max_new, const struct eng_hooks *hooks,
                        uint32_t *tokens, uint64_t *ret_count, struct eng_error *reterr);

#endif
