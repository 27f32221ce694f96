/* Runs go up: see mirror.h. */
#include "plugin/device/mirror.h"

#include "plugin/device/lane.h"

/* A run's word: serial << 8 | slot << 1 | is there. 0: none was here. */
#define SERIAL_SHIFT 8u
#define SLOT_SHIFT   1u
#define SLOT_MASK    0x7fu
#define IS_THERE     1u
_Static_assert(SC_PLUGIN_DEVICE_PAIRS <= SLOT_MASK, "a slot has a place in a word");

spec_status sc_plugin_mirror_open(struct sc_plugin_device *device, struct spec_error *reterr)
{
    struct sc_plugin_mirror *mirror = &device->mirror;
    uint64_t bytes = sc_plugin_device_mirror_bytes(device), unused;
    if (bytes == 0)
        return SPEC_OK;
    mirror->base = sc_store_sketches_at(device->params.store, &unused);
    mirror->runs =
        sc_alloc_array(device->params.alloc, bytes / SC_STORE_RUN_BYTES, sizeof(*mirror->runs));
    if (mirror->runs == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "what runs of sketches are on the device");
    for (uint64_t i = 0; i < bytes / SC_STORE_RUN_BYTES; i++)
        mirror->runs[i].device = device;
    if (!sc_gpu_stage_take(&device->gpu->stage, bytes, &mirror->range))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "no staging on the device");
    return sc_gpu_pin(device->gpu, mirror->base, bytes, &mirror->pin, reterr);
}

void sc_plugin_mirror_close(struct sc_plugin_device *device)
{
    struct sc_plugin_mirror *mirror = &device->mirror;
    sc_gpu_unpin(&mirror->pin);
    sc_alloc_free(device->params.alloc, mirror->runs);
    *mirror = (struct sc_plugin_mirror){.base = NULL};
}

/* Of a device that has failed nothing is up, and nobody asks. */
static void landed(void *held, void *user)
{
    struct sc_plugin_mirror_run *up = held;
    struct sc_plugin_device *device = up->device;
    const struct sc_store_run run = up->run; /* it may be another's from the leave on */
    uint64_t word = atomic_load_explicit(&up->word, memory_order_relaxed) | IS_THERE;
    (void)user;
    atomic_store_explicit(&up->word, sc_gpu_has_failed(device->gpu) ? 0 : word,
                          memory_order_release);
    sc_store_run_leave(device->params.store, &run);
}

/* Slot locked, device entered, the run is the caller's to bring up. false: it did not. */
static bool send(struct sc_plugin_mirror_run *up, const struct sc_store_run *run, uint32_t slot,
                 bool never_waits)
{
    struct sc_plugin_device *device = up->device;
    struct sc_gpu_lane *lane = &device->gpu->slots[slot].copies;
    const struct sc_gpu_hold hold = {.give = landed, .held = up};
    struct spec_error why = {.struct_size = sizeof(why)};
    up->run = *run;
    sc_store_run_hold(device->params.store, run);
    if (!never_waits) {
        sc_plugin_lane_board_wait(device, lane, &hold);
    } else if (!sc_plugin_lane_board(device, lane, &hold)) {
        atomic_store_explicit(&up->word, 0, memory_order_release);
        sc_store_run_leave(device->params.store, run);
        return false;
    }
    spec_status status = sc_gpu_copy_in(device->gpu, lane, sc_plugin_mirror_of(device, run->at),
                                        run->at, run->bytes, &why);
    return sc_plugin_lane_depart(device, lane, status, &why) == SPEC_OK;
}

/* Slot locked, device entered. */
static bool claim(struct sc_plugin_mirror_run *up, const struct sc_store_run *run, uint32_t slot,
                  bool never_waits)
{
    struct sc_gpu_device *gpu = up->device->gpu;
    uint64_t own = run->serial << SERIAL_SHIFT | (uint64_t)slot << SLOT_SHIFT;
    uint64_t word = atomic_load_explicit(&up->word, memory_order_acquire);
    while (word >> SERIAL_SHIFT != run->serial)
        if (atomic_compare_exchange_weak_explicit(&up->word, &word, own, memory_order_acq_rel,
                                                  memory_order_acquire))
            return send(up, run, slot, never_waits);
    uint32_t other = word >> SLOT_SHIFT & SLOT_MASK;
    if ((word & IS_THERE) == 0 && other != slot) {
        (void)sc_gpu_flights_reap(gpu, &gpu->slots[other].copies);
        word = atomic_load_explicit(&up->word, memory_order_acquire);
    }
    return word == own || (word & IS_THERE) != 0;
}

bool sc_plugin_mirror_up(struct sc_plugin_device *device, uint32_t slot, const uint8_t *at,
                         bool never_waits, struct sc_store_run *ret_run)
{
    const struct sc_plugin_mirror *mirror = &device->mirror;
    struct spec_error why = {.struct_size = sizeof(why)};
    struct sc_gpu_entry entry;
    if (mirror->base == NULL || !sc_store_run_of(device->params.store, at, ret_run) ||
        sc_gpu_enter(device->gpu, &entry, &why) != SPEC_OK)
        return false;
    uint64_t place = (uint64_t)(ret_run->at - mirror->base) / SC_STORE_RUN_BYTES;
    pthread_mutex_lock(&device->slot_locks[slot]);
    bool is_up = claim(&mirror->runs[place], ret_run, slot, never_waits);
    pthread_mutex_unlock(&device->slot_locks[slot]);
    sc_gpu_leave(device->gpu, &entry);
    return is_up;
}
