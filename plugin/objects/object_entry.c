/* object_entry: the function table of objects; checks the host's values first. It has no state.
 * Threads: per call. Tests: conformance/objects */
#include "base/fork_guard.h"
#include "plugin/args/args.h"
#include "plugin/objects/objects.h"

/* ---- Structures of the host ------------------------------------------------------------------ */

#define FORM(object)                                                                               \
    static const uint16_t object##_ends[] = {sizeof(struct object)};                               \
    static const struct sc_plugin_args_form object##_form = {.bytes = sizeof(struct object),       \
                                                             .end_count = 1,                       \
                                                             .ends = object##_ends,                \
                                                             .even_from = sizeof(struct object)}

FORM(spec_objects_params);
FORM(spec_keys);
FORM(spec_pieces);
FORM(spec_domain_params);
FORM(spec_exists_params);
FORM(spec_transfer_params);
FORM(spec_read_events);
FORM(spec_list);
FORM(spec_object_stats);

static spec_status keys_read(struct spec_keys *keys, const struct spec_keys *host,
                             struct spec_error *reterr)
{
    spec_status status = sc_plugin_args_read(keys, &spec_keys_form, host, "keys", reterr);
    if (status != SPEC_OK)
        return status;
    if (keys->reserved != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "keys: reserved must be 0");
    if (keys->count == 0 || keys->count > SPEC_KEYS_MAX)
        return sc_fail(reterr, SPEC_E_INVALID, "keys: count is %" PRIu32 ", expected 1 .. %u",
                       keys->count, SPEC_KEYS_MAX);
    if (keys->data == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "keys: data is NULL");
    if (keys->lengths != NULL && keys->key_bytes != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "keys: key_bytes must be 0 beside lengths");
    uint32_t bytes = keys->key_bytes, i = 0;
    do { /* once if all have one length */
        bytes = keys->lengths != NULL ? keys->lengths[i] : bytes;
        if (bytes == 0 || bytes > SPEC_KEY_BYTES_MAX)
            return sc_fail(reterr, SPEC_E_INVALID,
                           "keys: key %" PRIu32 " has %" PRIu32 " bytes, expected 1 .. %u", i,
                           bytes, SPEC_KEY_BYTES_MAX);
    } while (keys->lengths != NULL && ++i < keys->count);
    return SPEC_OK;
}

static spec_status pieces_read(struct spec_pieces *pieces, const struct spec_pieces *host,
                               uint32_t count, struct spec_error *reterr)
{
    spec_status status = sc_plugin_args_read(pieces, &spec_pieces_form, host, "pieces", reterr);
    if (status != SPEC_OK)
        return status;
    if (pieces->pieces == 0 || pieces->pieces > SPEC_PIECES_MAX)
        return sc_fail(reterr, SPEC_E_INVALID, "pieces: pieces is %" PRIu32 ", expected 1 .. %u",
                       pieces->pieces, SPEC_PIECES_MAX);
    if (pieces->addresses == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "pieces: addresses is NULL");
    if (pieces->sizes != NULL ? pieces->piece_bytes != 0 : pieces->piece_bytes == 0)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "pieces: piece_bytes must be 0 beside sizes, and not without");
    for (uint64_t i = 0, all = (uint64_t)count * pieces->pieces; i < all; i++) {
        uint64_t bytes = pieces->sizes != NULL ? pieces->sizes[i] : pieces->piece_bytes;
        if (pieces->addresses[i] == 0 || bytes == 0 || bytes > UINT64_MAX - pieces->addresses[i] ||
            bytes > UINT64_MAX / SPEC_PIECES_MAX)
            return sc_fail(reterr, SPEC_E_INVALID,
                           "pieces: piece %" PRIu64 " has %" PRIu64 " bytes at %#" PRIx64, i, bytes,
                           pieces->addresses[i]);
    }
    return SPEC_OK;
}

/* ---- Entering and leaving -------------------------------------------------------------------- */

static spec_status fail_forked(spec_objects *objects, struct spec_error *reterr)
{
    if (atomic_exchange(&objects->fork_closed, 1) == 0)
        sc_store_fork_close(objects->store);
    return sc_fail(reterr, SPEC_E_FORKED, "the objects were opened before fork");
}

static spec_status call_enter(spec_objects *objects, struct spec_error *reterr)
{
    if (objects == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "objects is NULL");
    if (sc_fork_guard_is_child(objects->fork_guard))
        return fail_forked(objects, reterr);
    if (atomic_load_explicit(&objects->poison.broken, memory_order_relaxed) != 0)
        return sc_fail(reterr, SPEC_E_POISONED, "an invariant broke: %s at %s:%" PRIu32,
                       atomic_load(&objects->poison.expression), atomic_load(&objects->poison.file),
                       atomic_load(&objects->poison.line));
    return SPEC_OK;
}

static spec_status domain_enter(spec_objects *objects, spec_domain handle,
                                struct sc_object_domain **ret_domain, struct spec_error *reterr)
{
    spec_status status = call_enter(objects, reterr);
    if (status != SPEC_OK)
        return status;
    *ret_domain = sc_objects_domain(objects, handle);
    if (*ret_domain == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "domain %" PRIu64 " is not open", handle);
    return SPEC_OK;
}

static spec_status call_leave(spec_objects *objects, spec_status status)
{
    sc_log_drain(&objects->log);
    return status;
}

/* ---- Open, close, domains -------------------------------------------------------------------- */

static spec_status entry_open(const struct spec_objects_params *host, spec_objects **ret_objects,
                              struct spec_error *reterr)
{
    struct spec_objects_params params;
    spec_status status =
        sc_plugin_args_read(&params, &spec_objects_params_form, host, "open: params", reterr);
    if (status == SPEC_OK && ret_objects == NULL)
        status = sc_fail(reterr, SPEC_E_INVALID, "open: ret_objects is NULL");
    return status == SPEC_OK ? sc_objects_open_on(&params, NULL, ret_objects, reterr) : status;
}

static void entry_close(spec_objects *objects)
{
    if (objects == NULL)
        return;
    if (!sc_fork_guard_is_child(objects->fork_guard))
        sc_objects_close(objects);
    else /* its threads do not exist here; the memory ends with the process */
        (void)fail_forked(objects, NULL);
}

static spec_status entry_domain_open(spec_objects *objects, const struct spec_domain_params *host,
                                     spec_domain *ret_domain, struct spec_error *reterr)
{
    struct spec_domain_params params;
    spec_status status = call_enter(objects, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_read(&params, &spec_domain_params_form, host, "domain_open: params",
                                     reterr);
    if (status != SPEC_OK)
        return status;
    if (params.reserved != 0 || ret_domain == NULL)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "domain_open: reserved must be 0, and ret_domain not NULL");
    if (params.identity.data == NULL || params.identity.byte_count == 0 ||
        params.identity.byte_count > SPEC_DOMAIN_BYTES_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "domain_open: identity has %" PRIu64 " bytes, expected 1 .. %u",
                       params.identity.byte_count, SPEC_DOMAIN_BYTES_MAX);
    if (params.bytes_max > 0 && params.bytes_max < params.bytes_min)
        return sc_fail(reterr, SPEC_E_INVALID, "domain_open: bytes_max is below bytes_min");
    return call_leave(objects, sc_objects_domain_open(objects, &params, ret_domain, reterr));
}

static spec_status entry_domain_close(spec_objects *objects, spec_domain handle,
                                      struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    return status == SPEC_OK ? call_leave(objects, sc_objects_domain_close(objects, domain))
                             : status;
}

/* ---- exists, get, put ------------------------------------------------------------------------ */

static spec_status entry_exists(spec_objects *objects, spec_domain handle,
                                const struct spec_keys *host_keys,
                                const struct spec_exists_params *host, uint64_t *ret_leading,
                                struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    struct spec_keys keys;
    struct spec_exists_params params;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status == SPEC_OK)
        status = keys_read(&keys, host_keys, reterr);
    if (status == SPEC_OK)
        status =
            sc_plugin_args_read(&params, &spec_exists_params_form, host, "exists: params", reterr);
    if (status != SPEC_OK)
        return status;
    if ((params.flags & ~(SPEC_EXISTS_HOLD | SPEC_EXISTS_PREFIX)) != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "exists: flags %#" PRIx32 " are not known",
                       params.flags);
    if (params.hold_ns > SPEC_HOLD_NS_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "exists: hold_ns is %" PRIu64 ", expected at most %" PRIu64, params.hold_ns,
                       SPEC_HOLD_NS_MAX);
    sc_objects_exists(objects, domain, &keys, &params, ret_leading);
    return SPEC_OK;
}

struct transfer_args {
    struct spec_keys keys;
    struct spec_pieces pieces;
    struct spec_transfer_params params;
    struct sc_object_call call;
};

static spec_status transfer_read(spec_objects *objects, spec_domain handle,
                                 const struct spec_keys *keys, const struct spec_pieces *pieces,
                                 const struct spec_transfer_params *params,
                                 struct transfer_args *args, struct spec_error *reterr)
{
    spec_status status = domain_enter(objects, handle, &args->call.domain, reterr);
    if (status == SPEC_OK)
        status = keys_read(&args->keys, keys, reterr);
    if (status == SPEC_OK)
        status = pieces_read(&args->pieces, pieces, args->keys.count, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_read(&args->params, &spec_transfer_params_form, params, "params",
                                     reterr);
    if (status == SPEC_OK && (args->params.reserved != 0 || args->params.ret_status == NULL))
        status =
            sc_fail(reterr, SPEC_E_INVALID, "params: reserved must be 0, and ret_status not NULL");
    args->call.keys = &args->keys;
    args->call.pieces = &args->pieces;
    args->call.params = &args->params;
    return status;
}

static spec_status transfer_wait(spec_objects *objects, spec_domain handle, bool is_put,
                                 const struct spec_keys *keys, const struct spec_pieces *pieces,
                                 const struct spec_transfer_params *params,
                                 struct spec_error *reterr)
{
    struct transfer_args args;
    struct sc_object_job *job;
    spec_status status = transfer_read(objects, handle, keys, pieces, params, &args, reterr);
    args.call.is_put = is_put;
    if (status == SPEC_OK)
        status = sc_objects_job_make(objects, &args.call, false, &job, reterr);
    if (status != SPEC_OK)
        return status;
    sc_objects_job_wait(objects, job);
    return call_leave(objects, SPEC_OK);
}

static spec_status transfer_submit(spec_objects *objects, spec_domain handle, bool is_put,
                                   const struct spec_keys *keys, const struct spec_pieces *pieces,
                                   const struct spec_transfer_params *params,
                                   spec_operation *ret_operation, struct spec_error *reterr)
{
    struct transfer_args args;
    spec_status status = transfer_read(objects, handle, keys, pieces, params, &args, reterr);
    if (status == SPEC_OK && ret_operation == NULL)
        status = sc_fail(reterr, SPEC_E_INVALID, "ret_operation is NULL");
    args.call.is_put = is_put;
    args.call.ret_operation = ret_operation;
    return status == SPEC_OK ? sc_objects_job_make(objects, &args.call, true, NULL, reterr)
                             : status;
}

static spec_status entry_get(spec_objects *objects, spec_domain domain,
                             const struct spec_keys *keys, const struct spec_pieces *destinations,
                             const struct spec_transfer_params *params, struct spec_error *reterr)
{
    return transfer_wait(objects, domain, false, keys, destinations, params, reterr);
}

static spec_status entry_put(spec_objects *objects, spec_domain domain,
                             const struct spec_keys *keys, const struct spec_pieces *sources,
                             const struct spec_transfer_params *params, struct spec_error *reterr)
{
    return transfer_wait(objects, domain, true, keys, sources, params, reterr);
}

static spec_status entry_get_submit(spec_objects *objects, spec_domain domain,
                                    const struct spec_keys *keys,
                                    const struct spec_pieces *destinations,
                                    const struct spec_transfer_params *params,
                                    spec_operation *ret_operation, struct spec_error *reterr)
{
    return transfer_submit(objects, domain, false, keys, destinations, params, ret_operation,
                           reterr);
}

static spec_status entry_put_submit(spec_objects *objects, spec_domain domain,
                                    const struct spec_keys *keys, const struct spec_pieces *sources,
                                    const struct spec_transfer_params *params,
                                    spec_operation *ret_operation, struct spec_error *reterr)
{
    return transfer_submit(objects, domain, true, keys, sources, params, ret_operation, reterr);
}

static spec_status entry_poll(spec_objects *objects, spec_domain handle,
                              struct spec_completion *ret_completions, uint64_t capacity,
                              uint64_t timeout_ns, uint64_t *ret_count, struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status != SPEC_OK)
        return status;
    if (ret_completions == NULL || capacity == 0 || ret_count == NULL)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "poll: ret_completions and ret_count must not be NULL, nor capacity 0");
    return call_leave(objects, sc_objects_poll(objects, domain, ret_completions, capacity,
                                               timeout_ns, ret_count));
}

static spec_status entry_event_fd_set(spec_objects *objects, spec_domain handle, int32_t fd,
                                      struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status != SPEC_OK)
        return status;
    if (fd < -1)
        return sc_fail(reterr, SPEC_E_INVALID, "event_fd_set: fd is %" PRId32, fd);
    sc_objects_event_fd_set(objects, domain, fd);
    return SPEC_OK;
}

static spec_status entry_cancel(spec_objects *objects, spec_operation operation,
                                struct spec_error *reterr)
{
    spec_status status = call_enter(objects, reterr);
    return status == SPEC_OK ? sc_objects_cancel(objects, operation, reterr) : status;
}

/* ---- Removal, use, lists --------------------------------------------------------------------- */

static spec_status flags_check(uint32_t flags, const char *call, struct spec_error *reterr)
{
    if ((flags & ~SPEC_REMOVE_ERASE) != 0)
        return sc_fail(reterr, SPEC_E_INVALID, "%s: flags %#" PRIx32 " are not known", call, flags);
    return SPEC_OK;
}

static spec_status entry_remove(spec_objects *objects, spec_domain handle,
                                const struct spec_keys *host_keys, uint32_t flags,
                                int8_t *ret_status, struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    struct spec_keys keys;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status == SPEC_OK)
        status = keys_read(&keys, host_keys, reterr);
    if (status == SPEC_OK)
        status = flags_check(flags, "remove", reterr);
    if (status != SPEC_OK)
        return status;
    return call_leave(objects,
                      sc_objects_remove(objects, domain, &keys, flags, ret_status, reterr));
}

static spec_status entry_clear(spec_objects *objects, spec_domain handle, uint32_t flags,
                               struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status == SPEC_OK)
        status = flags_check(flags, "clear", reterr);
    return status == SPEC_OK ? call_leave(objects, sc_objects_clear(objects, domain, flags, reterr))
                             : status;
}

static spec_status entry_touch(spec_objects *objects, spec_domain handle,
                               const struct spec_keys *host_keys, struct spec_error *reterr)
{
    struct sc_object_domain *domain;
    struct spec_keys keys;
    spec_status status = domain_enter(objects, handle, &domain, reterr);
    if (status == SPEC_OK)
        status = keys_read(&keys, host_keys, reterr);
    if (status == SPEC_OK)
        sc_objects_touch(objects, domain, &keys);
    return status;
}

/* Checks the output buffers of lists and events. */
static spec_status room_check(spec_objects *objects, spec_domain domain, const void *events,
                              uint64_t capacity, const void *keys, uint64_t key_bytes,
                              uint64_t key_bytes_min, struct spec_error *reterr)
{
    if (domain != 0 && sc_objects_domain(objects, domain) == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "domain %" PRIu64 " is not open", domain);
    if (events == NULL || capacity == 0 || keys == NULL)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "ret_events and key_room must not be NULL, nor capacity 0");
    if (key_bytes < key_bytes_min || key_bytes > UINT32_MAX)
        return sc_fail(reterr, SPEC_E_INVALID,
                       "key_room_bytes is %" PRIu64 ", expected %" PRIu64 " .. %u", key_bytes,
                       key_bytes_min, UINT32_MAX);
    return SPEC_OK;
}

static spec_status entry_list(spec_objects *objects, struct spec_list *host,
                              struct spec_error *reterr)
{
    struct spec_list list;
    spec_status status = call_enter(objects, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_read(&list, &spec_list_form, host, "list", reterr);
    if (status == SPEC_OK && list.reserved != 0)
        status = sc_fail(reterr, SPEC_E_INVALID, "list: reserved must be 0");
    if (status == SPEC_OK)
        status = room_check(objects, list.domain, list.ret_events, list.capacity, list.key_room,
                            list.key_room_bytes,
                            list.domain != 0 ? SPEC_KEY_BYTES_MAX : SPEC_DOMAIN_BYTES_MAX, reterr);
    if (status != SPEC_OK)
        return status;
    sc_objects_list(objects, sc_objects_domain(objects, list.domain), &list);
    sc_plugin_args_write(host, &list, sizeof(list));
    return SPEC_OK;
}

static spec_status entry_events(spec_objects *objects, struct spec_read_events *host,
                                struct spec_error *reterr)
{
    struct spec_read_events events;
    spec_status status = call_enter(objects, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_read(&events, &spec_read_events_form, host, "events", reterr);
    if (status == SPEC_OK && events.reserved != 0)
        status = sc_fail(reterr, SPEC_E_INVALID, "events: reserved must be 0");
    if (status == SPEC_OK)
        status = room_check(objects, events.domain, events.ret_events, events.capacity,
                            events.key_room, events.key_room_bytes, SPEC_KEY_BYTES_MAX, reterr);
    if (status != SPEC_OK)
        return status;
    sc_objects_events_read(objects, &events);
    sc_plugin_args_write(host, &events, sizeof(events));
    return SPEC_OK;
}

static spec_status entry_stats(spec_objects *objects, spec_domain handle,
                               struct spec_object_stats *host, struct spec_error *reterr)
{
    struct spec_object_stats stats;
    struct sc_object_domain *domain = NULL;
    spec_status status =
        handle != 0 ? domain_enter(objects, handle, &domain, reterr) : call_enter(objects, reterr);
    if (status == SPEC_OK)
        status = sc_plugin_args_check_output(host, &spec_object_stats_form, "stats", reterr);
    if (status != SPEC_OK)
        return status;
    sc_objects_stats(objects, domain, &stats);
    sc_plugin_args_write(host, &stats, sizeof(stats));
    return SPEC_OK;
}

/* ---- The table ------------------------------------------------------------------------------- */

static const struct spec_objects_api api = {.struct_size = sizeof(struct spec_objects_api),
                                            .major = SPEC_OBJECTS_MAJOR,
                                            .minor = SPEC_OBJECTS_MINOR,
                                            .open = entry_open,
                                            .close = entry_close,
                                            .domain_open = entry_domain_open,
                                            .domain_close = entry_domain_close,
                                            .exists = entry_exists,
                                            .get = entry_get,
                                            .put = entry_put,
                                            .get_submit = entry_get_submit,
                                            .put_submit = entry_put_submit,
                                            .poll = entry_poll,
                                            .event_fd_set = entry_event_fd_set,
                                            .cancel = entry_cancel,
                                            .remove = entry_remove,
                                            .clear = entry_clear,
                                            .touch = entry_touch,
                                            .list = entry_list,
                                            .events = entry_events,
                                            .stats = entry_stats};

const struct spec_objects_api *spec_connector_objects_api(uint32_t major)
{
    return major == SPEC_OBJECTS_MAJOR ? &api : NULL;
}
