/* Cases of the radix index in chunks of 64 tokens: an index of its own for each case, and prompts
 * of at most LENGTH tokens, below two roots.
 *
 * Threads: one. */
#ifndef SC_TESTS_UNIT_HASHING_RADIX_CASE_H
#define SC_TESTS_UNIT_HASHING_RADIX_CASE_H

#include "tests/unit/hashing/radix_fixture.h"

#define CHUNK  64u
#define MIB    (UINT64_C(1) << 20)
#define LENGTH 200u

extern const struct sc_sha256 root_a, root_b;

/* Prompt tokens that differ everywhere from those of another seed. */
void make_tokens(uint32_t *tokens, uint64_t count, uint32_t seed);

/* A case whose state is an open index, a struct fixture. */
int open_index(void **state);
int close_index(void **state);
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_index, close_index)

struct sc_radix_stats stats_of(const struct fixture *fx);

/* Makes `count` tokens of seed 1; they are a prompt below root_a without marks. */
struct prompt prompt_make(uint32_t *tokens, uint64_t count);

/* The same, stored in pieces from `piece` on. */
struct prompt prompt_store(struct fixture *fx, uint32_t *tokens, uint64_t count, uint64_t piece);

/* Copies the prompt's tokens; the one at `at` differs. */
struct prompt prompt_part(const struct prompt *prompt, uint32_t *tokens, uint64_t at);

#endif
