/* A rig whose requests are stored token by token, for what becomes of such pieces. Test main. */
#ifndef SC_TESTS_UNIT_PLUGIN_COMPACTION_FIXTURE_H
#define SC_TESTS_UNIT_PLUGIN_COMPACTION_FIXTURE_H

#include "tests/unit/plugin/plugin_fixture.h"

#define MS    UINT64_C(1000000)
#define CHUNK 16u
#define CHUNKS                                                                                     \
    "\"chunk_tokens\": 16, \"disk_bytes\": \"64MiB\", \"segment_bytes\": \"8MiB\", "               \
    "\"lease_ns_max\": 1000000000"

uint64_t merged(const struct rig *rig);
struct sc_store_stats store_stats(const struct rig *rig);

/* Stores [first, end) of the request's prompt a token a pass. */
void decode(struct rig *rig, spec_request request, const struct prompt *prompt, uint64_t first,
            uint64_t end);

/* Until nothing is being merged. */
void settle(struct rig *rig);

#endif
