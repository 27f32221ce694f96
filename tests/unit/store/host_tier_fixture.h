/* A host tier under test, whose memory is all taken when it is opened.
 *
 * Holds: done asserts that nothing was allocated since, and that all of it was freed.
 * Threads: any, once it is open. */
#ifndef SC_TESTS_UNIT_STORE_HOST_TIER_FIXTURE_H
#define SC_TESTS_UNIT_STORE_HOST_TIER_FIXTURE_H

#include "store/cache/host_tier.h"
#include "tests/unit/cases.h"

#define PAGE 4096u

struct fixture {
    struct sc_alloc alloc;
    struct sc_poison poison;
    struct sc_host_tier *host;
    uint64_t seed;
};

/* A number below the end that follows from the seed. */
static inline uint64_t below(uint64_t *seed, uint64_t end)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*seed >> 33) % end;
}

/* Made from the parameters; the allocator and the poison are the fixture's. */
static inline void fixture_open(struct fixture *fx, const struct sc_host_tier_params *what,
                                uint64_t seed)
{
    struct sc_host_tier_params params = *what;
    memset(fx, 0, sizeof(*fx));
    fx->seed = seed;
    sc_alloc_init(&fx->alloc);
    params.alloc = &fx->alloc;
    params.poison = &fx->poison;
    assert_int_equal(sc_host_tier_open(&params, &fx->host, NULL), SPEC_OK);
    sc_alloc_seal(&fx->alloc); /* from here on nothing is allocated */
}

static inline void fixture_done(struct fixture *fx)
{
    assert_int_equal(atomic_load(&fx->alloc.sealed_refusals), 0);
    sc_alloc_unseal(&fx->alloc);
    sc_host_tier_close(fx->host);
    assert_int_equal(atomic_load(&fx->alloc.live_blocks), 0);
}

#endif
