/* The connector as one that knows nothing of both ends: its table has no next_chunk, or one that
 * answers SPEC_E_UNSUPPORTED (ENDS_UNSUPPORTED). Everything else is the real one.
 *
 * Holds: the real one stays loaded.
 * Threads: as the real one. Tests: tests/unit/engine/test_driver.c */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "abi/spec_connector.h"

#ifdef ENDS_UNSUPPORTED
static spec_status next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                              struct spec_error *reterr)
{
    (void)conn;
    (void)chunk;
    (void)snprintf(reterr->text, sizeof(reterr->text), "not in this version");
    return SPEC_E_UNSUPPORTED;
}
#endif

const struct spec_api *spec_connector_api(uint32_t major)
{
    static struct spec_api table;
    const struct spec_api *(*real)(uint32_t) = NULL;
    void *library = dlopen(SC_BINARY_DIR "/lib/libspec_connector.so", RTLD_NOW | RTLD_LOCAL);
    void *symbol = library == NULL ? NULL : dlsym(library, "spec_connector_api");
    if (symbol == NULL)
        return NULL;
    memcpy(&real, &symbol, sizeof(real)); /* ISO C has no cast from object to function */
    const struct spec_api *api = real(major);
    if (api == NULL)
        return NULL;
    table = *api;
#ifdef ENDS_UNSUPPORTED
    table.next_chunk = next_chunk;
#else
    table.next_chunk = NULL;
#endif
    return &table;
}
