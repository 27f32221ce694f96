/* A null store of objects: every call succeeds, no key is ever stored. The suite must let it fail,
 * because an object whose put has room is found.
 *
 *   exists, get, remove -> ABSENT        put -> NO_SPACE for every key
 *
 * Holds: completions, lists and counts are as those of an empty store.
 * Does not: check what it is given; have a table of rows.
 * Threads: any. Tests: conformance/broken/test_broken_objects.py */
#include "abi/spec_objects.h"

#include <stdlib.h>
#include <string.h>

struct spec_objects {
    struct spec_completion waiting[16];
    uint64_t count, operations, domains;
};

static spec_status null_open(const struct spec_objects_params *params, spec_objects **ret_objects,
                             struct spec_error *reterr)
{
    (void)params, (void)reterr;
    *ret_objects = calloc(1, sizeof(**ret_objects));
    return *ret_objects != NULL ? SPEC_OK : SPEC_E_NO_MEMORY;
}

static void null_close(spec_objects *objects)
{
    free(objects);
}

static spec_status null_domain_open(spec_objects *objects, const struct spec_domain_params *params,
                                    spec_domain *ret_domain, struct spec_error *reterr)
{
    (void)params, (void)reterr;
    *ret_domain = ++objects->domains;
    return SPEC_OK;
}

static spec_status null_domain(spec_objects *objects, spec_domain domain, struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)reterr;
    return SPEC_OK;
}

static spec_status null_exists(spec_objects *objects, spec_domain domain,
                               const struct spec_keys *keys,
                               const struct spec_exists_params *params, uint64_t *ret_leading,
                               struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)reterr;
    for (uint32_t i = 0; i < keys->count; i++) {
        if (params->ret_status != NULL)
            params->ret_status[i] = SPEC_KEY_ABSENT;
        if (params->ret_bytes != NULL)
            params->ret_bytes[i] = 0;
    }
    if (ret_leading != NULL)
        *ret_leading = 0;
    return SPEC_OK;
}

static spec_status set_all(const struct spec_keys *keys, const struct spec_transfer_params *params,
                           int32_t status)
{
    for (uint32_t i = 0; i < keys->count; i++)
        params->ret_status[i] = status;
    return SPEC_OK;
}

static spec_status null_get(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                            const struct spec_pieces *pieces,
                            const struct spec_transfer_params *params, struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)pieces, (void)reterr;
    return set_all(keys, params, SPEC_KEY_ABSENT);
}

static spec_status null_put(spec_objects *objects, spec_domain domain, const struct spec_keys *keys,
                            const struct spec_pieces *pieces,
                            const struct spec_transfer_params *params, struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)pieces, (void)reterr;
    return set_all(keys, params, SPEC_E_NO_SPACE);
}

static spec_status submit(spec_objects *objects, uint64_t user, spec_status status,
                          spec_operation *ret_operation)
{
    if (objects->count == sizeof(objects->waiting) / sizeof(objects->waiting[0]))
        return SPEC_E_BUSY;
    *ret_operation = ++objects->operations;
    objects->waiting[objects->count++] =
        (struct spec_completion){.operation = *ret_operation, .user = user, .status = status};
    return SPEC_OK;
}

static spec_status null_get_submit(spec_objects *objects, spec_domain domain,
                                   const struct spec_keys *keys, const struct spec_pieces *pieces,
                                   const struct spec_transfer_params *params,
                                   spec_operation *ret_operation, struct spec_error *reterr)
{
    (void)null_get(objects, domain, keys, pieces, params, reterr);
    return submit(objects, params->user, SPEC_PENDING, ret_operation);
}

static spec_status null_put_submit(spec_objects *objects, spec_domain domain,
                                   const struct spec_keys *keys, const struct spec_pieces *pieces,
                                   const struct spec_transfer_params *params,
                                   spec_operation *ret_operation, struct spec_error *reterr)
{
    (void)null_put(objects, domain, keys, pieces, params, reterr);
    return submit(objects, params->user, SPEC_E_NO_SPACE, ret_operation);
}

static spec_status null_poll(spec_objects *objects, spec_domain domain,
                             struct spec_completion *ret_completions, uint64_t capacity,
                             uint64_t timeout_ns, uint64_t *ret_count, struct spec_error *reterr)
{
    (void)domain, (void)timeout_ns, (void)reterr;
    for (*ret_count = 0; *ret_count < capacity && objects->count > 0; ++*ret_count)
        ret_completions[*ret_count] = objects->waiting[--objects->count];
    return SPEC_OK;
}

static spec_status null_event_fd_set(spec_objects *objects, spec_domain domain, int32_t fd,
                                     struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)fd, (void)reterr;
    return SPEC_OK;
}

static spec_status null_remove(spec_objects *objects, spec_domain domain,
                               const struct spec_keys *keys, uint32_t flags, int8_t *ret_status,
                               struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)flags, (void)reterr;
    if (ret_status != NULL)
        memset(ret_status, SPEC_KEY_ABSENT, keys->count);
    return SPEC_OK;
}

static spec_status null_clear(spec_objects *objects, spec_domain domain, uint32_t flags,
                              struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)flags, (void)reterr;
    return SPEC_OK;
}

static spec_status null_touch(spec_objects *objects, spec_domain domain,
                              const struct spec_keys *keys, struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)keys, (void)reterr;
    return SPEC_OK;
}

static spec_status null_list(spec_objects *objects, struct spec_list *list,
                             struct spec_error *reterr)
{
    (void)objects, (void)reterr;
    list->ret_count = list->cursor = 0;
    return SPEC_OK;
}

static spec_status null_events(spec_objects *objects, struct spec_read_events *events,
                               struct spec_error *reterr)
{
    (void)objects, (void)reterr;
    events->ret_count = events->ret_missed = 0;
    return SPEC_OK;
}

static spec_status null_stats(spec_objects *objects, spec_domain domain,
                              struct spec_object_stats *ret_stats, struct spec_error *reterr)
{
    (void)objects, (void)domain, (void)reterr;
    memset(&ret_stats->objects, 0,
           sizeof(*ret_stats) - offsetof(struct spec_object_stats, objects));
    return SPEC_OK;
}

const struct spec_objects_api *spec_connector_objects_api(uint32_t major)
{
    static const struct spec_objects_api TABLE = {.struct_size = sizeof(TABLE),
                                                  .major = SPEC_OBJECTS_MAJOR,
                                                  .minor = SPEC_OBJECTS_MINOR,
                                                  .open = null_open,
                                                  .close = null_close,
                                                  .domain_open = null_domain_open,
                                                  .domain_close = null_domain,
                                                  .exists = null_exists,
                                                  .get = null_get,
                                                  .put = null_put,
                                                  .get_submit = null_get_submit,
                                                  .put_submit = null_put_submit,
                                                  .poll = null_poll,
                                                  .event_fd_set = null_event_fd_set,
                                                  .cancel = null_domain,
                                                  .remove = null_remove,
                                                  .clear = null_clear,
                                                  .touch = null_touch,
                                                  .list = null_list,
                                                  .events = null_events,
                                                  .stats = null_stats};
    return major == SPEC_OBJECTS_MAJOR ? &TABLE : NULL;
}
