/* Measuring the device: what the store's other files know of store/device.c.
 *
 * Threads: open, stop and close: the store's owner; want: executor threads. */
#ifndef SC_STORE_DEVICE_H
#define SC_STORE_DEVICE_H

#include "store/internal.h"

#define SC_STORE_PROBE_SPANS     64u
#define SC_STORE_PROBE_FRAMES    8u
#define SC_STORE_PROBE_DEPTH     128u
#define SC_STORE_PROBE_BYTES     (16ull << 20)
#define SC_STORE_PROBE_OPS_COUNT 2048u

enum sc_store_probe_state {
    SC_STORE_PROBE_OFF,
    SC_STORE_PROBE_WAITING, /* its task is posted for later */
    SC_STORE_PROBE_READ,    /* large reads fly */
    SC_STORE_PROBE_OPS      /* single pages fly */
};

struct sc_store_probe {
    struct sc_store *store;
    struct sc_task task;

    /* Space lock. */
    enum sc_store_probe_state state; /* while it flies: its own task's */
    bool is_closing;
    uint32_t tries;

    /* The task's, and of what flies. */
    struct {
        uint32_t segment;
        uint64_t offset, pages;
    } spans[SC_STORE_PROBE_SPANS];
    uint64_t span_count, seed, traffic, op_count, start_ns, end_ns, bytes_per_s;
    uint8_t *frames[SC_STORE_PROBE_FRAMES];
    uint32_t frame_count;
    struct sc_io_op ops[SC_STORE_PROBE_DEPTH];
    _Atomic uint64_t issued;
    _Atomic uint32_t flying;
    _Atomic bool failed;
};

/* Believes the file, when there is one that is whole. An error: it is not ours (base/owner.h). */
spec_status sc_store_device_read(struct sc_store *store, struct spec_error *reterr);
/* Writer: reads the file and makes what measures. */
spec_status sc_store_device_open(struct sc_store *store, struct spec_error *reterr);
/* No measurement begins any more; what flies ends by itself, and close waits for it. */
void sc_store_device_stop(struct sc_store *store);
void sc_store_device_close(struct sc_store *store);

#endif
