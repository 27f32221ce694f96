/* exists: exists and touch, searches of the index without a lock.
 * Threads: any. Tests: conformance/objects */
#include "plugin/objects/objects.h"

void sc_objects_exists(spec_objects *objects, struct sc_object_domain *domain,
                       const struct spec_keys *keys, const struct spec_exists_params *params,
                       uint64_t *ret_leading)
{
    struct sc_key_batch batch = {.data = keys->data,
                                 .lengths = keys->lengths,
                                 .key_bytes = keys->key_bytes,
                                 .count = keys->count,
                                 .space = (uint32_t)(domain - objects->domains),
                                 .stops = (params->flags & SPEC_EXISTS_PREFIX) != 0};
    struct sc_key_found found = {.states = params->ret_status, .bytes = params->ret_bytes};
    _Static_assert((int)SC_KEY_LIVE == SPEC_KEY_DONE && (int)SC_KEY_PENDING == SPEC_KEY_PENDING &&
                       (int)SC_KEY_FREE == SPEC_KEY_ABSENT,
                   "states of the index are statuses of keys");
    if ((params->flags & SPEC_EXISTS_HOLD) != 0) {
        uint64_t hold_ns = params->hold_ns;
        if (hold_ns == 0)
            hold_ns = objects->config.objects_hold_ms * 1000000;
        batch.hold_ns = sc_exec_now_ns(objects->exec) + hold_ns;
    }
    sc_key_table_look(&objects->table, &batch, &found);
    SC_OBJECT_COUNT(objects, domain, exists_keys, keys->count);
    SC_OBJECT_COUNT(objects, domain, exists_hits, found.live);
    if (ret_leading != NULL)
        *ret_leading = found.leading;
}

void sc_objects_touch(spec_objects *objects, const struct sc_object_domain *domain,
                      const struct spec_keys *keys)
{
    uint32_t space = (uint32_t)(domain - objects->domains), tick = sc_object_tick(objects);
    const uint8_t *key = keys->data;
    for (uint32_t i = 0; i < keys->count; i++) {
        uint32_t key_bytes = keys->lengths != NULL ? keys->lengths[i] : keys->key_bytes;
        sc_key_table_use(&objects->table, space, key, key_bytes, tick);
        key += key_bytes;
    }
}
