/* entry: the function table. `call_enter` checks NULL, fork and poison; `call_leave` passes waiting
 * log lines to the host on its own thread. Nothing here has state. Tests: conformance */
#include "base/fork_guard.h"
#include "plugin/args/args.h"
#include "plugin/connector.h"
#include "plugin/load/bidirectional.h"
#include "plugin/request/requests.h"

static bool is_forked(const spec_connector *conn)
{
    return sc_fork_guard_is_child(conn->fork_guard);
}

/* Closes what a child inherited, at its first call: open descriptors hold the parent's locks and
 * the space of its removed files. */
static spec_status fail_forked(spec_connector *conn, struct spec_error *reterr)
{
    if (atomic_exchange(&conn->fork_closed, 1) == 0) {
        sc_store_fork_close(conn->store);
        sc_plugin_peers_fork_close(conn);
    }
    return sc_fail(reterr, SPEC_E_FORKED, "the connector was opened before fork");
}

static spec_status call_enter(spec_connector *conn, struct spec_error *reterr)
{
    if (conn == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "connector is NULL");
    if (is_forked(conn))
        return fail_forked(conn, reterr);
    if (atomic_load_explicit(&conn->poison.broken, memory_order_relaxed) != 0)
        return sc_fail(reterr, SPEC_E_POISONED, "an invariant broke: %s at %s:%" PRIu32,
                       atomic_load(&conn->poison.expression), atomic_load(&conn->poison.file),
                       atomic_load(&conn->poison.line));
    return SPEC_OK;
}

static spec_status call_leave(spec_connector *conn, spec_status status)
{
    sc_log_drain(&conn->log);
    return status;
}

#define ENTER(conn, reterr)                                                                        \
    do {                                                                                           \
        spec_status entered = call_enter((conn), (reterr));                                        \
        if (entered != SPEC_OK)                                                                    \
            return entered;                                                                        \
    } while (0)

static void entry_close(spec_connector *conn)
{
    if (conn == NULL)
        return;
    if (!is_forked(conn))
        sc_plugin_close(conn);
    else /* its threads do not exist here; the memory ends with the process */
        (void)fail_forked(conn, NULL);
}

static spec_status entry_lookup(spec_connector *conn, const struct spec_lookup_params *params,
                                struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_lookup(conn, params, ret_result, reterr));
}

static spec_status entry_prefetch_to_host(spec_connector *conn,
                                          const struct spec_prefetch_to_host_params *params,
                                          spec_ticket *ret_ticket, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_host_prefetch(conn, params, ret_ticket, reterr));
}

static spec_status entry_begin_layer(spec_connector *conn, const spec_request *requests,
                                     uint64_t count, uint32_t layer, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return sc_plugin_begin_layer(conn, requests, count, layer, reterr);
}

static spec_status entry_get_important(spec_connector *conn, struct spec_important *items,
                                       uint64_t count, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_get_important(conn, items, count, reterr));
}

static spec_status entry_submit(spec_connector *conn, struct spec_important *items, uint64_t count,
                                spec_ticket *ret_ticket, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_submit(conn, items, count, ret_ticket, reterr));
}

static spec_status entry_submit_wait(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                     struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_submit_wait(conn, ticket, timeout_ns, reterr));
}

static spec_status entry_prefetch_next(spec_connector *conn, spec_request request, uint32_t layer,
                                       const struct spec_queries *hint, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return sc_plugin_prefetch_next(conn, request, layer, hint, reterr);
}

static spec_status entry_store(spec_connector *conn, const struct spec_store_params *params,
                               uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_store(conn, params, count, ret_tickets, reterr));
}

static spec_status entry_store_abort(spec_connector *conn, spec_request request,
                                     uint64_t from_token, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return sc_plugin_store_abort(conn, request, from_token, reterr);
}

static spec_status entry_poll(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                              spec_status *ret_statuses, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_poll(conn, tickets, count, ret_statuses, reterr));
}

static spec_status entry_wait(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                              uint64_t timeout_ns, spec_status *ret_statuses,
                              struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_wait(conn, tickets, count, timeout_ns, ret_statuses, reterr));
}

static spec_status entry_wait_kept(spec_connector *conn, const spec_ticket *tickets, uint64_t count,
                                   uint64_t timeout_ns, spec_status *ret_statuses,
                                   uint64_t *ret_kept, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    if (ret_kept == NULL && count > 0)
        return call_leave(conn, sc_fail(reterr, SPEC_E_INVALID, "wait_kept: ret_kept is NULL"));
    return call_leave(conn, sc_plugin_wait_kept(conn, tickets, count, timeout_ns, ret_statuses,
                                                ret_kept, reterr));
}

static spec_status entry_release(spec_connector *conn, spec_request request,
                                 struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_release(conn, request, reterr));
}

static spec_status entry_attach(spec_connector *conn, const struct spec_attach_params *params,
                                struct spec_lookup_result *ret_result, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_attach(conn, params, ret_result, reterr));
}

static spec_status entry_reset(spec_connector *conn, struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_reset(conn, reterr));
}

static spec_status entry_maintain(spec_connector *conn, const struct spec_maintain_params *params,
                                  struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_maintain(conn, params, reterr));
}

/* Members that the connector counts, or that the store has under the same name. */
#define OWN(name)   .name = sc_counted(&conn->stats.name)
#define STORE(name) .name = in->name

static void stats_writes(const struct sc_store_stats *store, struct spec_stats *stats)
{
    stats->budget_left = store->budget_left;
    stats->quantised_write_bytes = store->quantised_write_bytes;
    stats->compaction_write_bytes = store->compaction_write_bytes;
    stats->log_write_bytes = store->log_write_bytes;
    stats->checkpoint_write_bytes = store->checkpoint_write_bytes;
    stats->stored_row_bytes = store->stored_row_bytes;
}

static void stats_tiers(const spec_connector *conn, const struct sc_store_stats *store,
                        struct spec_stats *stats)
{
    stats->host_bytes_used = store->host_bytes_used;
    stats->host_bytes_max = store->host_bytes_max;
    stats->host_hits = store->host_hits;
    stats->host_misses = store->host_misses;
    stats->host_evictions = store->host_evictions;
    stats->upper_bytes_used = store->upper_bytes_used;
    stats->upper_bytes_max = store->upper_bytes_max;
    stats->upper_hits = store->upper_hits;
    stats->upper_promoted = store->upper_promoted;
    stats->upper_demoted = store->upper_demoted;
    stats->upper_bus_bytes = sc_counted(&conn->stats.upper_bus_bytes);
    stats->upper_bus_ns = sc_counted(&conn->stats.upper_bus_ns);
    stats->host_prefetched_bytes = sc_counted(&conn->stats.host_prefetched_bytes);
    stats->host_prefetches_open = atomic_load(&conn->stages.open);
    stats->reordered_chunks = store->permuted_pieces;
    stats->reordered_again_chunks = store->permuted_again;
    stats->reordered_write_bytes = store->permuted_write_bytes;
}

static void stats_erase(const spec_connector *conn, struct spec_stats *stats)
{
    struct sc_store_erase_counts counts = sc_store_erase_counts(conn->store);
    stats->erased = counts.erased;
    stats->erase_failures = counts.failures;
    stats->erased_bytes = counts.zeroed_bytes;
    stats->erasing = sc_store_erasures(conn->store);
    stats->erase_left_bytes = counts.left_bytes;
}

/* Returns the members of OWN and STORE. */
static struct spec_stats stats_counters(spec_connector *conn, const struct sc_store_stats *in)
{
    return (struct spec_stats){OWN(lookups),
                               OWN(lookup_hits),
                               OWN(lookup_tokens),
                               OWN(matched_tokens),
                               OWN(wanted_bytes),
                               OWN(stored_tokens),
                               OWN(stored_chunks),
                               OWN(dropped_chunks),
                               OWN(duplicate_chunks),
                               OWN(aborted_stores),
                               OWN(corrupt_ranges),
                               OWN(requests_open),
                               OWN(tickets_open),
                               OWN(exposed_ns),
                               OWN(prefetched_rows),
                               OWN(demanded_rows),
                               OWN(lock_waits),
                               OWN(leases_attached),
                               OWN(leases_refused),
                               OWN(selected_layers),
                               OWN(fallback_layers),
                               OWN(dense_layers),
                               OWN(selected_rows),
                               OWN(selected_from_rows),
                               OWN(identify_ns),
                               OWN(speculated_bytes),
                               OWN(unused_bytes),
                               OWN(selector_read_bytes),
                               OWN(quantised_layers),
                               OWN(quantised_rows),
                               OWN(layered_exact_rows),
                               OWN(layered_forced_rows),
                               OWN(partial_layers),
                               OWN(refined_layers),
                               OWN(refined_rows),
                               OWN(compacted_chunks),
                               OWN(bypassed_lookups),
                               STORE(read_bytes),
                               STORE(read_ops),
                               STORE(write_bytes),
                               STORE(write_ops),
                               STORE(io_errors),
                               STORE(no_space),
                               STORE(disk_bytes_used),
                               STORE(disk_bytes_max),
                               STORE(extent_bytes),
                               STORE(log_bytes),
                               STORE(staging_bytes_used),
                               STORE(verify_ns),
                               STORE(quarantine_bytes),
                               STORE(checkpoints),
                               STORE(selectors_refused),
                               STORE(bad_blocks),
                               STORE(quantised_bytes),
                               STORE(built_bytes),
                               OWN(given_tokens),
                               OWN(tail_tokens)};
}

static spec_status entry_stats(spec_connector *conn, struct spec_stats *ret_stats,
                               struct spec_error *reterr)
{
    if (conn == NULL || is_forked(conn))
        return call_enter(conn, reterr); /* a poisoned connector still reports its counters */
    spec_status status =
        sc_plugin_args_check_output(ret_stats, &sc_plugin_form_stats, "stats: ret_stats", reterr);
    if (status != SPEC_OK)
        return status;
    struct sc_store_stats store;
    sc_store_stats(conn->store, &store);
    struct sc_radix_stats radix;
    sc_radix_stats(conn->radix, &radix);
    struct spec_stats stats = stats_counters(conn, &store);
    stats.poisoned = atomic_load_explicit(&conn->poison.broken, memory_order_relaxed);
    stats.role = conn->ranks.role;
    stats.epoch = atomic_load(&conn->epoch);
    stats.follow_lag_ns = sc_plugin_follows(conn) ? sc_plugin_follow_lag_ns(conn) : 0;
    stats.log_lines_dropped = sc_counted(&conn->log.dropped);
    stats.chunks = radix.runs;
    stats.index_bytes = radix.bytes;
    stats.lookup_retries = radix.retries;
    stats.collisions = radix.collisions;
    stats.evicted_chunks = sc_counted(&conn->stats.evicted_chunks) + store.evicted_pieces;
    stats.selector_bytes_used = sc_store_selector_bytes_used(conn->store);
    stats.built_chunks = store.built_pieces;
    stats.unadmitted_chunks = sc_counted(&conn->stats.unadmitted_chunks);
    stats.over_budget_chunks = sc_counted(&conn->stats.over_budget_chunks);
    stats_writes(&store, &stats);
    stats_tiers(conn, &store, &stats);
    stats.bypassed_chunks = sc_counted(&conn->stats.bypassed_chunks);
    stats.bypassing = sc_plugin_is_bypassed(conn);
    stats_erase(conn, &stats);
    stats.building = store.is_building;
    sc_plugin_load_policy_stats(conn, &stats);
    sc_plugin_args_write(ret_stats, &stats, sizeof(stats));
    return SPEC_OK;
}

static spec_status entry_next_chunk(spec_connector *conn, struct spec_next_chunk *chunk,
                                    struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return sc_plugin_next_chunk(conn, chunk, reterr);
}

static spec_status entry_computed(spec_connector *conn, const struct spec_computed *step,
                                  struct spec_error *reterr)
{
    ENTER(conn, reterr);
    return call_leave(conn, sc_plugin_computed(conn, step, reterr));
}

static const struct spec_api API = {
    .struct_size = sizeof(struct spec_api),
    .major = SPEC_ABI_MAJOR,
    .minor = SPEC_ABI_MINOR,
    .open = sc_plugin_open,
    .close = entry_close,
    .lookup = entry_lookup,
    .prefetch_to_host = entry_prefetch_to_host,
    .attach = entry_attach,
    .next_chunk = entry_next_chunk,
    .begin_layer = entry_begin_layer,
    .get_important = entry_get_important,
    .get_important_submit = entry_submit,
    .get_important_wait = entry_submit_wait,
    .prefetch_next = entry_prefetch_next,
    .store = entry_store,
    .store_abort = entry_store_abort,
    .poll = entry_poll,
    .wait = entry_wait,
    .release = entry_release,
    .reset = entry_reset,
    .stats = entry_stats,
    .maintain = entry_maintain,
    .wait_kept = entry_wait_kept,
    .computed = entry_computed,
};

const struct spec_api *spec_connector_api(uint32_t major)
{
    return major == SPEC_ABI_MAJOR ? &API : NULL;
}
