/* spec_load: loads a plugin (dlopen, the symbol, the version check) and names statuses. Header
 * only; link with -ldl where the C library needs it. A host may do the three calls itself.
 *
 * Errors: nothing stays loaded, and the text has the path and the cause.
 * Threads: as dlopen; spec_status_name: any. Tests: tests/unit/abi/test_load_helper.c */
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
    void *library; /* dlopen's handle; closed by spec_unload */
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

/* Loads the shared object at path (without a slash, the loader's search applies).
 * Errors: SPEC_E_IO (not loadable), SPEC_E_VERSION (no interface, or another version). */
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
        memcpy(&get_api, &symbol, sizeof(get_api)); /* ISO C cannot cast an object pointer to a
                                                     * function */
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

/* Returns a status's name, such as "SPEC_E_BUSY"; "SPEC_?" for an unknown number. Never NULL;
 * static memory. */
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

/* Unloads the library. Every connector must be closed. */
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
