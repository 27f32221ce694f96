/* Sources of stores that are turned into memory of a device: see stores.c. */
#ifndef CONFORMANCE_DEVICE_STORES_H
#define CONFORMANCE_DEVICE_STORES_H

#include "conformance/device/span.h"

/* As the ABI's store, for the real one whose table that is. Threads: any. */
spec_status stores_store(const struct spec_api *api, struct spec_connector *conn,
                         const struct spec_store_params *params, uint64_t count,
                         spec_ticket *ret_tickets, struct spec_error *reterr);
/* Lock held, entered, the stream has been waited for: what was sent was only read, and goes. */
void stores_reap(struct spec_connector *conn);

#endif
