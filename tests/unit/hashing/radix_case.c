/* Cases of the radix index in chunks of 64 tokens; see radix_case.h. */
#include "tests/unit/hashing/radix_case.h"

const struct sc_sha256 root_a = {{1, 2}};
const struct sc_sha256 root_b = {{3, 4}};

void make_tokens(uint32_t *tokens, uint64_t count, uint32_t seed)
{
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)(i * 2654435761u + seed * 40503u + 1);
}

int open_index(void **state)
{
    static struct fixture fx;
    fixture_open(&fx, CHUNK, 64 * MIB);
    *state = &fx;
    return 0;
}

int close_index(void **state)
{
    fixture_close(*state);
    return 0;
}

struct sc_radix_stats stats_of(const struct fixture *fx)
{
    struct sc_radix_stats stats;
    sc_radix_stats(fx->index, &stats);
    return stats;
}

struct prompt prompt_make(uint32_t *tokens, uint64_t count)
{
    make_tokens(tokens, count, 1);
    return (struct prompt){root_a, tokens, count, NULL, 0};
}

struct prompt prompt_store(struct fixture *fx, uint32_t *tokens, uint64_t count, uint64_t piece)
{
    struct prompt prompt = prompt_make(tokens, count);
    store_all(fx, &prompt, CHUNK, piece);
    return prompt;
}

struct prompt prompt_part(const struct prompt *prompt, uint32_t *tokens, uint64_t at)
{
    struct prompt parted = *prompt;
    memcpy(tokens, prompt->tokens, prompt->count * sizeof(*tokens));
    tokens[at] ^= 1;
    parted.tokens = tokens;
    return parted;
}
