/* What the tests of the radix index share: an index over a fault-injecting allocator, and prompts
 * stored chunk by chunk as an engine does. */
#ifndef SC_TESTS_UNIT_HASHING_RADIX_FIXTURE_H
#define SC_TESTS_UNIT_HASHING_RADIX_FIXTURE_H

#include "base/fault.h"
#include "hashing/radix_internal.h"
#include "tests/sim/radix_check.h"
#include "tests/unit/cases.h"

static const uint8_t FIXTURE_SECRET[SC_CHAIN_SECRET_BYTES] = {7, 1, 4};

struct fixture {
    struct sc_fault fault;
    struct sc_alloc alloc;
    struct sc_radix *index;
    uint64_t bytes_empty;
    uint64_t removed_runs;
    uint64_t removed_tokens;
    struct sc_radix_segment removed_last;
    struct sc_radix_removal removal;
};

uint64_t fixture_bytes(struct fixture *fx);
void fixture_open(struct fixture *fx, uint32_t chunk_tokens, uint64_t bytes_max);
void fixture_open_as(struct fixture *fx, uint32_t chunk_tokens, uint64_t bytes_max,
                     enum sc_policy policy); /* fixture_open: lru */
void fixture_close(struct fixture *fx);
void fixture_check(struct fixture *fx);

/* The run is passed over, as one is that is in use when its turn to go comes. */
void fixture_pass_over(struct fixture *fx, struct sc_radix_ref ref);

/* A prompt: what a query and an insertion need. */
struct prompt {
    struct sc_sha256 root;
    const uint32_t *tokens;
    uint64_t count;
    const struct sc_mark *marks;
    uint64_t mark_count;
};

/* None: no such root can be found. */
struct sc_radix_ref root_of(struct fixture *fx, const struct sc_sha256 *root);

struct sc_radix_query query_of(const struct prompt *prompt);
struct sc_radix_match match_of(struct fixture *fx, const struct prompt *prompt);
uint64_t matched(struct fixture *fx, const struct prompt *prompt);
struct sc_radix_match pin_of(struct fixture *fx, const struct prompt *prompt);

/* Inserts [run_first, end) of the prompt, which lies in one chunk, below the root. */
spec_status insert_run(struct fixture *fx, const struct prompt *prompt, uint64_t run_first,
                       uint64_t end, uint64_t piece, struct sc_radix_inserted *ret_inserted,
                       struct spec_error *reterr);

/* Stores tokens [first, count) as an engine does: one piece a chunk, each below the last. Piece
 * numbers count up from `piece`. Returns the first status that is not OK. */
spec_status store_from(struct fixture *fx, const struct prompt *prompt, uint64_t first,
                       uint64_t chunk_tokens, uint64_t piece);

void store_all(struct fixture *fx, const struct prompt *prompt, uint64_t chunk_tokens,
               uint64_t piece);

/* What a lease on the prompt's first tokens claims, of what is stored of it. */
struct sc_radix_claim claim_of(struct fixture *fx, const struct prompt *prompt, uint64_t length);

#endif
