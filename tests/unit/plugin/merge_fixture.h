/* A rig whose requests are stored token by token, for what becomes of such pieces. Test main. */
#ifndef SC_TESTS_UNIT_PLUGIN_MERGE_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_MERGE_FIXTURE_H

#include "tests/unit/plugin/plugin_fixture.h"

#define MS    UINT64_C(1000000)
#define CHUNK 16u
#define CHUNKS                                                                                     \
    "\"chunk_tokens\": 16, \"disk_bytes\": \"64MiB\", \"segment_bytes\": \"8MiB\", "               \
    "\"lease_ns_max\": 1000000000"

static inline uint64_t merged(const struct rig *rig)
{
    return atomic_load(&rig->conn->stats.merged_chunks);
}

static inline struct sc_store_stats store_stats(const struct rig *rig)
{
    struct sc_store_stats stats;
    sc_store_stats(rig->conn->store, &stats);
    return stats;
}

/* Stores [first, end) of the request's prompt a token a pass. */
static inline void decode(struct rig *rig, spec_request request, const struct prompt *prompt,
                          uint64_t first, uint64_t end)
{
    for (uint64_t p = first; p < end; p++)
        assert_int_equal(rig_wait(rig, rig_store(rig, request, prompt, p, 1)), SPEC_OK);
}

/* Until nothing is being merged. */
static inline void settle(struct rig *rig)
{
    rig_pass_ns(rig, 100 * MS);
    rig_background(rig);
}

#endif
