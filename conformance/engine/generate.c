/* generate: greedy decoding. See generate.h. */
#include "conformance/engine/generate.h"

#include <stdlib.h>

#include "conformance/engine/vecmath.h"

static bool kv_has_room(const struct eng_kv *kv)
{
    for (uint64_t layer = 0; layer < kv->layers; layer++) {
        if (kv->rows[layer] >= kv->capacity)
            return false;
    }
    return true;
}

eng_status eng_generate(struct eng_model *model, struct eng_kv *kv, uint64_t position,
                        const float *logits, uint64_t max_new, const struct eng_hooks *hooks,
                        uint32_t *tokens, uint64_t *ret_count, struct eng_error *reterr)
{
    const struct eng_config *config = eng_model_config(model);
    float *next = calloc(config->vocab, sizeof(*next));
    if (next == NULL)
        return eng_fail(reterr, ENG_E_NO_MEMORY, "no memory for logits");
    eng_status status = ENG_OK;
    uint64_t count = 0;
    while (count < max_new) {
        tokens[count] = (uint32_t)eng_argmax(logits, config->vocab);
        count++;
        if (count == max_new || eng_config_is_eos(config, tokens[count - 1]) ||
            position >= config->positions || !kv_has_room(kv))
            break;
        const struct eng_pass pass = {.kv = kv,
                                      .tokens = &tokens[count - 1],
                                      .count = 1,
                                      .first_position = position,
                                      .want = ENG_LOGITS_LAST,
                                      .logits = next};
        status = eng_forward(model, &pass, 1, hooks, reterr);
        if (status != ENG_OK)
            break;
        logits = next;
        position++;
    }
    free(next);
    if (status == ENG_OK)
        *ret_count = count;
    return status;
}
