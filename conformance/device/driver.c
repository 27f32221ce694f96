/* Finding the driver: see driver.h. */
#include "conformance/device/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

typedef sc_cu_result (*get_address)(const char *name, void **ret_call, int version, uint64_t flags,
                                    int *ret_found);

/* One a process; all but the once is set inside it. */
static struct {
    pthread_once_t once;
    void *library;
    get_address get;
    pid_t owner;
    const char *why; /* it cannot be used; NULL: it can */
    struct sc_cu cu;
} driver = {.once = PTHREAD_ONCE_INIT};

void *conf_driver_call(const char *name, int version)
{
    void *call = NULL;
    if (driver.get == NULL || driver.get(name, &call, version, 0, NULL) != SC_CU_OK)
        return NULL;
    return call;
}

void *conf_driver_symbol(const char *name)
{
    return driver.library != NULL ? dlsym(driver.library, name) : NULL;
}

static const char *calls_find(void)
{
    static const struct {
        const char *name;
        int version;
        size_t at;
    } calls[] = {
#define CALL(name, version, arguments) {#name, version, offsetof(struct sc_cu, name)},
        SC_CU_CALLS(CALL)
#undef CALL
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *call = conf_driver_call(calls[i].name, calls[i].version);
        if (call == NULL)
            return "no CUDA device: the driver is too old";
        memcpy((uint8_t *)&driver.cu + calls[i].at, &call, sizeof(call));
    }
    return NULL;
}

static const char *driver_find(void)
{
    int count = 0;
    driver.library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *get = conf_driver_symbol("cuGetProcAddress_v2");
    if (get == NULL)
        return "no CUDA device: there is no driver, or one of before CUDA 12.0";
    memcpy(&driver.get, &get, sizeof(get)); /* ISO C has no cast from one to the other */
    const char *why = calls_find();
    if (why != NULL)
        return why;
    if (driver.cu.cuInit(0) != SC_CU_OK || driver.cu.cuDeviceGetCount(&count) != SC_CU_OK ||
        count == 0)
        return "no CUDA device";
    return NULL;
}

static void driver_open(void)
{
    driver.owner = getpid();
    driver.why = driver_find();
}

bool conf_driver_is_forked(void)
{
    (void)pthread_once(&driver.once, driver_open);
    return driver.owner != getpid();
}

const struct sc_cu *conf_driver(const char **ret_why)
{
    bool is_forked = conf_driver_is_forked();
    *ret_why = is_forked ? "no CUDA device: the driver was loaded before fork" : driver.why;
    return *ret_why == NULL ? &driver.cu : NULL;
}
