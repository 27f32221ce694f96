/* prefetch: predicts rows of the next layer and reads them before they are selected. States:
 * prefetch.c.
 * Threads: the request's host thread; on_selector: any.
 * Tests: tests/unit/plugin/test_prefetch.c, test_device_hints.c, conformance (abi_072_*) */
#ifndef SC_PLUGIN_SELECT_PREFETCH_H
#define SC_PLUGIN_SELECT_PREFETCH_H

#include "base/status.h"

struct sc_plugin_item;
struct sc_plugin_request;
struct sc_plugin_scratch;
struct sc_store_selector;

/* Returns the bytes of the largest hint; 0: hints are not used. */
uint64_t sc_plugin_hint_bytes(const spec_connector *conn);
/* Returns the largest number of hints in use at one time. A layer that finds none free is not
 * predicted. */
uint64_t sc_plugin_hint_count(const spec_connector *conn);
spec_status sc_plugin_prefetches_open(spec_connector *conn, struct spec_error *reterr);
/* Waits for tasks that read a selector. */
void sc_plugin_prefetches_close(spec_connector *conn);

/* Resets the predictions of a slot for a new request. */
void sc_plugin_prefetch_forget(struct sc_plugin_request *request);
/* Ranks rows of `layer` and begins to read them: now, or when the hint is ranked. */
void sc_plugin_prefetch_ask(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            const struct spec_queries *hint);
/* Cancels the reads of a layer that is loaded in another way than kept_load; returns the bytes
 * wasted. */
uint64_t sc_plugin_prefetch_drop(spec_connector *conn, struct sc_plugin_request *request,
                                 uint32_t layer, uint32_t kept_load);
/* Gives the reader of the layer's parity to the host: no task begins reads with it. */
void sc_plugin_prefetch_yield(struct sc_plugin_request *request, uint32_t layer);
/* Ends the layer's prediction and its window, because the layer is needed now. */
void sc_plugin_prefetch_end(spec_connector *conn, struct sc_plugin_request *request, uint32_t layer,
                            uint64_t now_ns);
/* Ends all predictions of the request; rows read for them count as unused. */
void sc_plugin_prefetch_stop(struct sc_plugin_request *request);
/* Compares the prediction with the layer's set. sums: the importance that selected it, or NULL. */
void sc_plugin_prefetch_learn(spec_connector *conn, struct sc_plugin_scratch *scratch,
                              const struct sc_plugin_item *item, const uint64_t *bits,
                              const float *sums);
/* A selector's on_ready. user: the request. */
void sc_plugin_prefetch_on_selector(struct sc_store_selector *selector, void *user);
/* Returns true if no task reads the selector. waits: waits until then. */
bool sc_plugin_prefetch_leaves(spec_connector *conn, struct sc_plugin_request *request,
                               uint32_t selector, bool waits);

#endif
