/* library.h: the CUDA driver's library. */
#include "gpu/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY_NAME "libcuda.so.1"

/* cuGetProcAddress_v2: flags 0 select the legacy default stream; ret_found is its query result. */
typedef sc_cu_result (*get_address)(const char *name, void **ret_call, int version, uint64_t flags,
                                    int *ret_found);

/* One per process. The owner never changes: a forked child must not touch the driver, nor the lock,
 * which another thread may have held. */
static struct {
    pthread_mutex_t lock; /* held while loading */
    _Atomic pid_t owner;  /* the process that asked first; 0: none */
    /* Guarded by lock; constant once set. */
    void *handle;
    struct sc_cu cu;
} loaded = {.lock = PTHREAD_MUTEX_INITIALIZER};

static spec_status version_check(int version, struct spec_error *reterr)
{
    if (version >= SC_CU_VERSION_MIN)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_UNSUPPORTED,
                   "the driver speaks CUDA %d.%d, needed is %d.%d (driver %s or later)",
                   version / 1000, version % 1000 / 10, SC_CU_VERSION_MIN / 1000,
                   SC_CU_VERSION_MIN % 1000 / 10, SC_CU_VERSION_DRIVER);
}

/* A library without cuGetProcAddress_v2 is older than 12.0 or not a driver. */
static spec_status old_driver(void *handle, const char *path, struct spec_error *reterr)
{
    void *found = dlsym(handle, "cuDriverGetVersion");
    sc_cu_result (*get_version)(int *version) = NULL;
    memcpy(&get_version, &found, sizeof(found)); /* ISO C forbids a cast to a function pointer */
    int version = 0;
    if (get_version != NULL && get_version(&version) == SC_CU_OK) {
        spec_status status = version_check(version, reterr);
        if (status != SPEC_OK)
            return status;
    }
    return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s has no cuGetProcAddress_v2", path);
}

static spec_status calls_find(get_address get, const char *path, struct sc_cu *cu,
                              struct spec_error *reterr)
{
    static const struct {
        const char *name;
        int version;
        size_t at;
    } calls[] = {
#define X(name, version, arguments) {#name, version, offsetof(struct sc_cu, name)},
        SC_CU_CALLS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *call = NULL;
        if (get(calls[i].name, &call, calls[i].version, 0, NULL) != SC_CU_OK || call == NULL)
            return sc_fail(reterr, SPEC_E_UNSUPPORTED, "%s lacks %s of CUDA %d.%d", path,
                           calls[i].name, calls[i].version / 1000, calls[i].version % 1000 / 10);
        memcpy((uint8_t *)cu + calls[i].at, &call, sizeof(call));
    }
    return SPEC_OK;
}

const char *sc_gpu_result_text(const struct sc_cu *cu, sc_cu_result code, char *text,
                               uint64_t text_bytes)
{
    const char *name = NULL, *what = NULL;
    bool is_known = cu->cuGetErrorName(code, &name) == SC_CU_OK && name != NULL;
    bool is_told = cu->cuGetErrorString(code, &what) == SC_CU_OK && what != NULL;
    snprintf(text, text_bytes, "CUDA %d %s: %s", (int)code, is_known ? name : "unknown",
             is_told ? what : "no text");
    return text;
}

static spec_status driver_begin(const struct sc_cu *cu, struct spec_error *reterr)
{
    char text[160];
    int version = 0, count = 0;
    sc_cu_result code = cu->cuDriverGetVersion(&version);
    if (code == SC_CU_OK) {
        spec_status status = version_check(version, reterr);
        if (status != SPEC_OK)
            return status;
        code = cu->cuInit(0);
    }
    if (code == SC_CU_OK)
        code = cu->cuDeviceGetCount(&count);
    if (code == SC_CU_NO_DEVICE || (code == SC_CU_OK && count == 0))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no CUDA device");
    if (code != SC_CU_OK)
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "the CUDA driver cannot be used: %s",
                       sc_gpu_result_text(cu, code, text, sizeof(text)));
    return SPEC_OK;
}

static spec_status library_open(const char *path, struct spec_error *reterr)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *why = dlerror();
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no CUDA driver: %s", why ? why : path);
    }
    void *found = dlsym(handle, "cuGetProcAddress_v2");
    get_address get = NULL;
    memcpy(&get, &found, sizeof(found));
    struct sc_cu cu;
    spec_status status =
        get == NULL ? old_driver(handle, path, reterr) : calls_find(get, path, &cu, reterr);
    if (status == SPEC_OK)
        status = driver_begin(&cu, reterr);
    if (status != SPEC_OK) {
        dlclose(handle); /* RTLD_NODELETE keeps the code; only the reference count drops */
        return status;
    }
    loaded.handle = handle;
    loaded.cu = cu;
    return SPEC_OK;
}

/* Accepts another path if it names the loaded library. */
static spec_status library_again(const char *path, struct spec_error *reterr)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (handle != NULL)
        dlclose(handle);
    if (handle == loaded.handle)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_INVALID, "%s: this process has another CUDA driver loaded", path);
}

spec_status sc_gpu_library_load(const char *path, const struct sc_cu **ret_cu,
                                struct spec_error *reterr)
{
    pid_t owner = 0;
    if (!atomic_compare_exchange_strong(&loaded.owner, &owner, getpid()) && owner != getpid())
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "the CUDA driver was asked for before fork");
    if (path == NULL)
        path = LIBRARY_NAME;
    pthread_mutex_lock(&loaded.lock);
    spec_status status =
        loaded.handle != NULL ? library_again(path, reterr) : library_open(path, reterr);
    pthread_mutex_unlock(&loaded.lock);
    if (status == SPEC_OK)
        *ret_cu = &loaded.cu;
    return status;
}
