/* Loading a plugin: dlopen, the one symbol, the version check; the names of statuses. Header only;
 * link with -ldl where the C library needs it. Not part of the contract: a host may do these three
 * calls itself.
 *
 * Holds: on an error nothing stays loaded and the text says what, where, and what was expected.
 * Threads: as dlopen's; spec_status_name: any. Tests: tests/unit/abi/test_load_helper.c */
#ifndef SPEC_LOAD_H
#define SPEC_LOAD_H

#include "spec_connector.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

struct spec_plugin {
    void *library; /* of dlopen; ended by spec_unload */
    const struct spec_api *api;
};

static inline spec_status spec_load_fail(struct spec_error *reterr, spec_status code,
                                         const char *path, const char *why)
{
    if (reterr != NULL) {
        reterr->code = code;
        reterr->sys_errno = 0;
        (void)snprintf(reterr->text, sizeof(reterr->text), "%.100s: %.130s", path, why);
    }
    return code;
}

/* Loads the shared object at path (a path with a slash is taken as it is; otherwise the loader's
 * search applies). Errors: SPEC_E_IO (not loadable), SPEC_E_VERSION (no or another interface). */
static inline spec_status spec_load(const char *path, struct spec_plugin *ret_plugin,
                                    struct spec_error *reterr)
{
    typedef const struct spec_api *(*api_fn)(uint32_t);
    api_fn get_api = NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return spec_load_fail(reterr, SPEC_E_IO, path, dlerror());
    void *symbol = dlsym(library, "spec_connector_api");
    if (symbol != NULL)
        memcpy(&get_api, &symbol, sizeof(get_api)); /* ISO C has no cast from object to function */
    const struct spec_api *api = get_api != NULL ? get_api(SPEC_ABI_MAJOR) : NULL;
    /* Before 1.0 another minor version may have other structures and calls. */
    if (api == NULL || !SPEC_HAS(api, maintain) ||
        (SPEC_ABI_MAJOR == 0 && api->minor != SPEC_ABI_MINOR)) {
        (void)dlclose(library);
        return spec_load_fail(reterr, SPEC_E_VERSION, path,
                              symbol == NULL ? "exports no spec_connector_api"
                                             : "does not speak this version of the ABI");
    }
    ret_plugin->library = library;
    ret_plugin->api = api;
    return SPEC_OK;
}

/* The status's name in spec_connector.h, "SPEC_E_BUSY", for logs and messages; "SPEC_?" for a
 * number that this version does not know. Never NULL; static memory. */
static inline const char *spec_status_name(spec_status status)
{
    static const struct {
        spec_status status;
        const char *name;
    } names[] = {{SPEC_OK, "SPEC_OK"},
                 {SPEC_PENDING, "SPEC_PENDING"},
                 {SPEC_E_INVALID, "SPEC_E_INVALID"},
                 {SPEC_E_UNSUPPORTED, "SPEC_E_UNSUPPORTED"},
                 {SPEC_E_NO_MEMORY, "SPEC_E_NO_MEMORY"},
                 {SPEC_E_NO_SPACE, "SPEC_E_NO_SPACE"},
                 {SPEC_E_IO, "SPEC_E_IO"},
                 {SPEC_E_CORRUPT, "SPEC_E_CORRUPT"},
                 {SPEC_E_BUSY, "SPEC_E_BUSY"},
                 {SPEC_E_TIMEOUT, "SPEC_E_TIMEOUT"},
                 {SPEC_E_DROPPED, "SPEC_E_DROPPED"},
                 {SPEC_E_FORKED, "SPEC_E_FORKED"},
                 {SPEC_E_LOCKED, "SPEC_E_LOCKED"},
                 {SPEC_E_VERSION, "SPEC_E_VERSION"},
                 {SPEC_E_STALE, "SPEC_E_STALE"},
                 {SPEC_E_POISONED, "SPEC_E_POISONED"},
                 {SPEC_E_CONFIG, "SPEC_E_CONFIG"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].status == status)
            return names[i].name;
    return "SPEC_?";
}

/* Unloads; every connector was closed before. */
static inline void spec_unload(struct spec_plugin *plugin)
{
    if (plugin->library != NULL)
        (void)dlclose(plugin->library);
    plugin->library = NULL;
    plugin->api = NULL;
}

#ifdef __cplusplus
}
#endif
#endif /* SPEC_LOAD_H */
