/* Requests that are stored token by token; see compaction_fixture.h. */
#include "tests/unit/plugin/compaction_fixture.h"

uint64_t merged(const struct rig *rig)
{
    return atomic_load(&rig->conn->stats.compacted_chunks);
}

struct sc_store_stats store_stats(const struct rig *rig)
{
    struct sc_store_stats stats = rig_store_stats(rig);
    return stats;
}

void decode(struct rig *rig, spec_request request, const struct prompt *prompt, uint64_t first,
            uint64_t end)
{
    for (uint64_t p = first; p < end; p++)
        assert_int_equal(rig_wait(rig, rig_store(rig, request, prompt, p, 1)), SPEC_OK);
}

void settle(struct rig *rig)
{
    rig_pass_ns(rig, 100 * MS);
    rig_background(rig);
}
