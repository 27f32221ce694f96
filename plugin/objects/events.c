/* events: events, lists and statistics.
 *
 *   ring   65,536 events; their keys in a ring of 8 MiB. An event is lost if it or its key is
 *          overwritten
 *
 * Threads: `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

bool sc_objects_events_open(spec_objects *objects)
{
    struct sc_object_events *events = &objects->events;
    events->ring = sc_alloc_array(&objects->alloc, SC_OBJECT_EVENTS, sizeof(*events->ring));
    events->keys = sc_alloc(&objects->alloc, SC_OBJECT_EVENT_KEYS);
    events->first = events->next = events->read_to = sc_exec_wall_ns(objects->exec);
    return events->ring != NULL && events->keys != NULL;
}

/* Copies key bytes [at, at + count), counted over all ever written. */
static void keys_move(struct sc_object_events *events, uint64_t at, uint8_t *bytes, uint64_t count,
                      bool to_ring)
{
    while (count > 0) {
        uint64_t from = at % SC_OBJECT_EVENT_KEYS;
        uint64_t some = SC_OBJECT_EVENT_KEYS - from < count ? SC_OBJECT_EVENT_KEYS - from : count;
        memcpy(to_ring ? events->keys + from : bytes, to_ring ? bytes : events->keys + from, some);
        at += some;
        bytes += some;
        count -= some;
    }
}

static struct sc_object_event *event_at(const struct sc_object_events *events, uint64_t sequence)
{
    return &events->ring[(sequence - events->first) % SC_OBJECT_EVENTS];
}

/* Returns the first event that still has its key. */
static uint64_t events_begin(const struct sc_object_events *events)
{
    uint64_t sequence = events->next - events->first > SC_OBJECT_EVENTS
                            ? events->next - SC_OBJECT_EVENTS
                            : events->first;
    while (sequence < events->next &&
           events->key_next - event_at(events, sequence)->key_at > SC_OBJECT_EVENT_KEYS)
        sequence++;
    return sequence;
}

void sc_objects_event_add(spec_objects *objects, uint32_t domain, uint32_t id, uint32_t kind,
                          uint32_t reason)
{
    struct sc_object_events *events = &objects->events;
    uint8_t key[SC_KEY_BYTES_MAX];
    uint32_t key_bytes = id != 0 ? sc_key_table_key(&objects->table, id, key) : 0;
    *event_at(events, events->next++) =
        (struct sc_object_event){.domain = domain,
                                 .life = objects->domains[domain].life,
                                 .kind = kind,
                                 .reason = reason,
                                 .bytes = id != 0 ? sc_object_of(objects, id)->bytes : 0,
                                 .key_at = events->key_next,
                                 .key_bytes = key_bytes};
    keys_move(events, events->key_next, key, key_bytes, true);
    events->key_next += key_bytes;
    if (events->next - events->read_to > SC_OBJECT_EVENTS) {
        events->lost++;
        events->read_to++;
    }
}

static spec_domain handle_of(const spec_objects *objects, uint32_t domain, uint32_t life)
{
    return objects->domains[domain].life == life
               ? atomic_load_explicit(&objects->domains[domain].handle, memory_order_relaxed)
               : 0;
}

void sc_objects_events_read(spec_objects *objects, struct spec_read_events *params)
{
    struct sc_object_events *events = &objects->events;
    uint64_t room = 0;
    params->ret_count = params->ret_missed = 0;
    pthread_mutex_lock(&objects->lock);
    uint64_t begin = events_begin(events), sequence = params->sequence;
    if (sequence < begin || sequence > events->next) {
        params->ret_missed = sequence < begin ? begin - sequence : 1;
        sequence = sequence < begin ? begin : events->next;
    }
    for (; sequence < events->next && params->ret_count < params->capacity; sequence++) {
        const struct sc_object_event *event = event_at(events, sequence);
        spec_domain handle = handle_of(objects, event->domain, event->life);
        if (params->domain != 0 && handle != params->domain)
            continue;
        if (event->key_bytes > params->key_room_bytes - room)
            break;
        keys_move(events, event->key_at, (uint8_t *)params->key_room + room, event->key_bytes,
                  false);
        params->ret_events[params->ret_count++] =
            (struct spec_object_event){.sequence = sequence,
                                       .domain = handle,
                                       .bytes = event->bytes,
                                       .kind = event->kind,
                                       .reason = event->reason,
                                       .key_offset = (uint32_t)room,
                                       .key_bytes = event->key_bytes};
        room += event->key_bytes;
    }
    params->sequence = sequence;
    events->read_to = sequence > events->read_to ? sequence : events->read_to;
    pthread_mutex_unlock(&objects->lock);
}

/* ---- Lists ---------------------------------------------------------------------------------- */

/* `lock` held. Returns false if the key does not fit. */
static bool list_put(struct spec_list *list, uint64_t *room, const uint8_t *key, uint32_t key_bytes,
                     spec_domain domain, uint64_t bytes)
{
    if (key_bytes > list->key_room_bytes - *room)
        return false;
    memcpy((uint8_t *)list->key_room + *room, key, key_bytes);
    list->ret_events[list->ret_count++] = (struct spec_object_event){.domain = domain,
                                                                     .bytes = bytes,
                                                                     .kind = SPEC_EVENT_STORED,
                                                                     .key_offset = (uint32_t)*room,
                                                                     .key_bytes = key_bytes};
    *room += key_bytes;
    return true;
}

/* `lock` held. Returns the next cursor. */
static uint64_t list_domains(spec_objects *objects, struct spec_list *list)
{
    uint64_t i = list->cursor, room = 0;
    for (; i < SPEC_DOMAINS_MAX && list->ret_count < list->capacity; i++) {
        const struct sc_object_domain *domain = &objects->domains[i];
        if ((domain->openers > 0 || domain->objects > 0) &&
            !list_put(list, &room, domain->identity, domain->identity_bytes,
                      atomic_load_explicit(&domain->handle, memory_order_relaxed), domain->bytes))
            break;
    }
    return i < SPEC_DOMAINS_MAX ? i : 0;
}

static uint64_t list_objects(spec_objects *objects, const struct sc_object_domain *domain,
                             struct spec_list *list)
{
    uint64_t id = list->cursor > 0 ? list->cursor : 1, room = 0;
    uint32_t space = (uint32_t)(domain - objects->domains);
    uint8_t key[SC_KEY_BYTES_MAX];
    for (; id < objects->table.entry_end && list->ret_count < list->capacity; id++) {
        const struct sc_key_entry *entry = sc_key_table_entry(&objects->table, (uint32_t)id);
        if (id % SC_KEY_SLAB == 0) { /* lets others take the lock */
            pthread_mutex_unlock(&objects->lock);
            pthread_mutex_lock(&objects->lock);
        }
        if (sc_key_entry_state(entry) != SC_KEY_LIVE ||
            atomic_load_explicit(&entry->space, memory_order_relaxed) != space)
            continue;
        uint32_t key_bytes = sc_key_table_key(&objects->table, (uint32_t)id, key);
        if (!list_put(list, &room, key, key_bytes, list->domain,
                      sc_object_of(objects, (uint32_t)id)->bytes))
            break;
    }
    return id < objects->table.entry_end ? id : 0;
}

void sc_objects_list(spec_objects *objects, const struct sc_object_domain *domain,
                     struct spec_list *list)
{
    list->ret_count = 0;
    pthread_mutex_lock(&objects->lock);
    if (list->cursor == 0)
        list->sequence = objects->events.next;
    list->cursor =
        domain == NULL ? list_domains(objects, list) : list_objects(objects, domain, list);
    pthread_mutex_unlock(&objects->lock);
}

/* ---- Statistics ----------------------------------------------------------------------------- */

#define COUNTED(name) .name = sc_counted(&counts->name)

void sc_objects_stats(spec_objects *objects, struct sc_object_domain *domain,
                      struct spec_object_stats *ret_stats)
{
    const struct sc_object_counts *counts = domain != NULL ? &domain->counts : &objects->counts;
    struct sc_store_object_sizes sizes;
    sc_store_object_sizes(objects->store, &sizes);
    *ret_stats = (struct spec_object_stats){COUNTED(exists_keys),
                                            COUNTED(exists_hits),
                                            COUNTED(get_keys),
                                            COUNTED(get_hits),
                                            COUNTED(get_bytes),
                                            COUNTED(put_keys),
                                            COUNTED(put_stored),
                                            COUNTED(put_bytes),
                                            COUNTED(put_present),
                                            COUNTED(put_no_space),
                                            COUNTED(put_timeouts),
                                            COUNTED(put_waits),
                                            COUNTED(put_wait_ns),
                                            COUNTED(evicted_objects),
                                            COUNTED(evicted_bytes),
                                            COUNTED(deleted_objects),
                                            COUNTED(damaged_objects),
                                            COUNTED(io_errors),
                                            COUNTED(bounce_bytes),
                                            .disk_bytes_used = sizes.disk_bytes_used,
                                            .disk_bytes_max = sizes.disk_bytes_max,
                                            .checkpoints = sizes.checkpoints};
    pthread_mutex_lock(&objects->lock);
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        if (domain != NULL && domain != &objects->domains[i])
            continue;
        ret_stats->objects += objects->domains[i].objects;
        ret_stats->bytes += objects->domains[i].bytes;
    }
    ret_stats->index_bytes = objects->table.bytes;
    ret_stats->waiting_puts = objects->waiting_puts;
    ret_stats->inflight_bytes = objects->inflight_bytes;
    ret_stats->events_lost = objects->events.lost;
    pthread_mutex_unlock(&objects->lock);
}
