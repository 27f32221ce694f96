/* domain: slots of domains, each with an identity compared by value. A handle is a slot's index and
 * a generation. An identity has one slot, and keeps it while it is open or has objects or pages.
 * Threads: any; `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

struct sc_object_domain *sc_objects_domain(spec_objects *objects, spec_domain handle)
{
    uint64_t index = handle & ((1u << SC_OBJECT_DOMAIN_BITS) - 1);
    if (handle == 0 || index >= SPEC_DOMAINS_MAX ||
        atomic_load_explicit(&objects->domains[index].handle, memory_order_acquire) != handle)
        return NULL;
    return &objects->domains[index];
}

struct sc_object_domain *sc_objects_domain_by_id(spec_objects *objects, uint32_t log_id)
{
    for (uint32_t i = 0; log_id != 0 && i < SPEC_DOMAINS_MAX; i++)
        if (objects->domains[i].log_id == log_id)
            return &objects->domains[i];
    return NULL;
}

bool sc_objects_domain_is_empty(const struct sc_object_domain *domain)
{
    return domain->openers == 0 && !domain->is_closing && domain->objects == 0 &&
           domain->pages == 0;
}

bool sc_objects_domain_may_go(const spec_objects *objects, const struct sc_object_domain *domain)
{
    bool is_others = objects->shares && objects->is_open; /* they may have it open */
    return !is_others && sc_objects_domain_is_empty(domain);
}

static uint64_t record_bytes(uint32_t identity_bytes)
{
    return SC_STORE_FRAME_BYTES + 48ull + identity_bytes; /* about */
}

void sc_objects_domain_forget(spec_objects *objects, struct sc_object_domain *domain)
{
    objects->live_log_bytes -= record_bytes(domain->identity_bytes);
    domain->log_id = 0;
}

/* Returns the identity's domain, or an unused slot, or NULL. */
static struct sc_object_domain *domain_find(spec_objects *objects, const uint8_t *identity,
                                            uint32_t bytes, bool *ret_is_known)
{
    struct sc_object_domain *free_one = NULL, *empty_one = NULL;
    *ret_is_known = false;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        struct sc_object_domain *domain = &objects->domains[i];
        if (domain->log_id == 0) {
            free_one = free_one != NULL ? free_one : domain;
        } else if (domain->identity_bytes == bytes &&
                   memcmp(domain->identity, identity, bytes) == 0) {
            *ret_is_known = true;
            return domain;
        } else if (sc_objects_domain_may_go(objects, domain)) {
            empty_one = domain;
        }
    }
    return free_one != NULL ? free_one : empty_one;
}

static spec_status identity_copy(spec_objects *objects, const uint8_t *identity, uint32_t bytes,
                                 uint8_t **ret_copy, struct spec_error *reterr)
{
    *ret_copy = sc_alloc(&objects->alloc, bytes);
    if (*ret_copy == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "identity of a domain");
    memcpy(*ret_copy, identity, bytes);
    return SPEC_OK;
}

/* Sets the identity of an unused slot, which takes over its memory. */
static void domain_set(spec_objects *objects, struct sc_object_domain *domain, uint32_t log_id,
                       uint8_t *identity, uint32_t bytes)
{
    if (domain->log_id != 0)
        sc_objects_domain_forget(objects, domain);
    sc_alloc_free(&objects->alloc, domain->identity);
    domain->identity = identity;
    domain->identity_bytes = bytes;
    domain->log_id = log_id;
    domain->event_fd = -1;
    objects->live_log_bytes += record_bytes(bytes);
    sc_store_domain_digest(identity, bytes, domain->digest);
    memset(&domain->counts, 0, sizeof(domain->counts));
}

spec_status sc_objects_domain_found(spec_objects *objects, uint32_t log_id, const uint8_t *identity,
                                    uint32_t bytes, struct spec_error *reterr)
{
    bool is_known;
    if (objects->domain_id_next <= log_id)
        objects->domain_id_next = log_id + 1;
    if (sc_objects_domain_by_id(objects, log_id) != NULL) /* the record is wrong */
        return SPEC_OK;
    struct sc_object_domain *domain = domain_find(objects, identity, bytes, &is_known);
    if (domain == NULL) /* too many: its objects get no domain */
        return SPEC_OK;
    if (is_known) { /* it was empty, forgotten, and made again */
        if (domain->objects == 0)
            domain->log_id = log_id;
        return SPEC_OK;
    }
    uint8_t *copy;
    spec_status status = identity_copy(objects, identity, bytes, &copy, reterr);
    if (status == SPEC_OK)
        domain_set(objects, domain, log_id, copy, bytes);
    return status;
}

/* Locks briefly. Returns the domain, or a slot and the id for it. */
static spec_status domain_look(spec_objects *objects, const struct spec_domain_params *params,
                               struct sc_object_domain **ret_domain, bool *ret_is_known,
                               uint32_t *ret_log_id, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    pthread_mutex_lock(&objects->lock);
    struct sc_object_domain *domain = domain_find(
        objects, params->identity.data, (uint32_t)params->identity.byte_count, ret_is_known);
    *ret_domain = domain;
    *ret_log_id = objects->domain_id_next;
    if (domain == NULL || (!*ret_is_known && *ret_log_id >= SC_STORE_OBJECT_DOMAINS))
        status = sc_fail(reterr, SPEC_E_BUSY, "domain_open: %u domains are open or hold objects",
                         SPEC_DOMAINS_MAX);
    else if (!*ret_is_known)
        objects->domain_id_next++;
    pthread_mutex_unlock(&objects->lock);
    return status;
}

/* The turn is held. PENDING: another process appended first. */
static spec_status domain_make(spec_objects *objects, const struct spec_domain_params *params,
                               struct sc_object_domain **ret_domain, struct spec_error *reterr)
{
    uint32_t bytes = (uint32_t)params->identity.byte_count, log_id;
    uint8_t *copy;
    bool is_known;
    spec_status status = domain_look(objects, params, ret_domain, &is_known, &log_id, reterr);
    if (status != SPEC_OK || is_known)
        return status;
    status = identity_copy(objects, params->identity.data, bytes, &copy, reterr);
    if (status != SPEC_OK)
        return status;
    status = sc_store_object_domain_put(objects->store, log_id, copy, bytes, reterr);
    if (status != SPEC_OK) {
        sc_alloc_free(&objects->alloc, copy);
        return status;
    }
    pthread_mutex_lock(&objects->lock);
    domain_set(objects, *ret_domain, log_id, copy, bytes);
    pthread_mutex_unlock(&objects->lock);
    return SPEC_OK;
}

spec_status sc_objects_domain_make(spec_objects *objects, const struct spec_domain_params *params,
                                   struct sc_object_domain **ret_domain, struct spec_error *reterr)
{
    spec_status status = SPEC_PENDING;
    sc_store_turn_begin(objects->store);
    for (uint32_t i = 0; status == SPEC_PENDING && i < SC_OBJECT_TRIES; i++) {
        status = i > 0 ? sc_store_turn_read(objects->store, reterr) : SPEC_OK;
        if (status == SPEC_OK)
            status = domain_make(objects, params, ret_domain, reterr);
    }
    sc_store_turn_end(objects->store);
    if (status == SPEC_PENDING)
        status = sc_fail(reterr, SPEC_E_IO, "domain_open: other processes append all the time");
    return status;
}
