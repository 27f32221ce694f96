/* device_tables.h: pinned buffers and tables. */
#include "plugin/device/device_tables.h"

#include "plugin/device/direct.h"

#include <string.h>


static struct sc_plugin_pinned *pinned_pop(struct sc_plugin_device *device)
{
    pthread_mutex_lock(&device->pinned_lock);
    struct sc_plugin_pinned *pinned = device->free;
    if (pinned != NULL)
        device->free = pinned->next;
    pthread_mutex_unlock(&device->pinned_lock);
    return pinned;
}

static void reap_all(struct sc_plugin_device *device)
{
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_PAIRS; i++) {
        if (i == SC_PLUGIN_DEVICE_SLOTS) /* stores and hints have other memory */
            i = sc_plugin_device_ask_slot(0);
        (void)sc_gpu_events_reap(device->gpu, &device->gpu->slots[i].copies);
        (void)sc_gpu_events_reap(device->gpu, &device->gpu->slots[i].kernels);
    }
}

void sc_plugin_device_reap(struct sc_plugin_device *device)
{
    if (atomic_load_explicit(&device->state, memory_order_acquire) == SC_PLUGIN_DEVICE_ATTACHED &&
        device->direct.device != NULL)
        reap_all(device);
}

struct sc_plugin_pinned *sc_plugin_pinned_try(struct sc_plugin_device *device)
{
    struct sc_plugin_pinned *pinned = pinned_pop(device);
    if (pinned != NULL)
        return pinned;
    reap_all(device); /* a caller that never waits may be the only one to check */
    return pinned_pop(device);
}

void sc_plugin_pinned_give(struct sc_plugin_pinned *pinned)
{
    struct sc_plugin_device *device = pinned->device;
    sc_plugin_direct_leave(pinned);
    pthread_mutex_lock(&device->pinned_lock);
    pinned->next = device->free;
    device->free = pinned;
    pthread_mutex_unlock(&device->pinned_lock);
    (void)atomic_fetch_add_explicit(&device->pinned_word, 1, memory_order_release);
    sc_exec_wake(device->params.exec, &device->pinned_word);
}

void sc_plugin_pinned_completed(void *held, void *user)
{
    struct sc_plugin_pinned *pinned = held;
    (void)user;
    if (atomic_fetch_sub_explicit(&pinned->left, 1, memory_order_acq_rel) == 1)
        sc_plugin_pinned_give(pinned);
}

/* Lock held. Returns the table's entry, made if absent; NULL: no room. */
static struct sc_plugin_device_table *table_find(struct sc_plugin_device *device,
                                                 const struct sc_kernels_bitplanes *planes,
                                                 const struct sc_kernels_rotary *rotary)
{
    for (uint32_t i = 0; i < SC_PLUGIN_DEVICE_TABLES; i++)
        if (device->tables[i].of == planes && device->tables[i].rotary == rotary)
            return &device->tables[i];
    uint64_t bytes = sc_cuda_bitplanes_table_bytes(planes, rotary);
    if (bytes == 0 || bytes > device->table_bytes)
        return NULL;
    struct sc_plugin_device_table *made =
        &device->tables[device->table_next++ % SC_PLUGIN_DEVICE_TABLES];
    made->of = planes;
    made->rotary = rotary;
    made->bytes = bytes;
    sc_cuda_bitplanes_table_make(planes, rotary,
                                 (struct sc_cuda_bitplanes_table *)(void *)made->table);
    return made;
}

uint64_t sc_plugin_device_table(struct sc_plugin_device *device,
                                const struct sc_kernels_bitplanes *planes,
                                const struct sc_kernels_rotary *rotary, uint8_t *to)
{
    pthread_mutex_lock(&device->table_lock);
    const struct sc_plugin_device_table *table = table_find(device, planes, rotary);
    uint64_t bytes = table != NULL ? table->bytes : 0;
    if (bytes > 0)
        memcpy(to, table->table, bytes);
    pthread_mutex_unlock(&device->table_lock);
    return bytes;
}
