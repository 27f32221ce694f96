/* A connector that never finds anything: the real one, whose lookup is told that nothing may match.
 * The suite must let it pass, because a cache may always miss.
 *
 *   lookup(multiple_of = UINT64_MAX)  ->  no match, ever
 *
 * Holds: everything else is the real connector, argument checks included.
 * Does not: know how the real one is made; the build gives its table another name.
 * Threads: as the real one. Tests: conformance/broken/test_broken.py */
#include <string.h>

#include "abi/spec_connector.h"

/* The real connector's function, renamed by the build. */
const struct spec_api *sc_broken_real_api(uint32_t major);

static spec_status lookup_miss(spec_connector *conn, const struct spec_lookup_params *params,
                               struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    const struct spec_api *real = sc_broken_real_api(SPEC_ABI_MAJOR);
    union {
        struct spec_lookup_params known;
        uint8_t bytes[4096]; /* members behind those known travel along */
    } none = {.bytes = {0}};
    if (params == NULL || params->struct_size < sizeof(params->struct_size) ||
        params->struct_size > sizeof(none))
        return real->lookup(conn, params, ret_result, reterr);
    memcpy(&none, params, params->struct_size);
    if (params->struct_size >= offsetof(struct spec_lookup_params, from_token) &&
        params->struct_size < offsetof(struct spec_lookup_params, salt) &&
        params->struct_size % sizeof(uint64_t) == 0) /* else it is wrong, and stays so */
        none.known.struct_size = offsetof(struct spec_lookup_params, salt);
    none.known.multiple_of = UINT64_MAX; /* no match is that long */
    return real->lookup(conn, &none.known, ret_result, reterr);
}

const struct spec_api *spec_connector_api(uint32_t major)
{
    static struct spec_api table;
    const struct spec_api *real = sc_broken_real_api(major);
    if (real == NULL)
        return NULL;
    table = *real;
    table.lookup = lookup_miss;
    return &table;
}
