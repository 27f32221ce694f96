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
    bool is_others = objects->shares && objects->is_open; /* they would not know: a record tells */
    return !is_others && sc_objects_domain_is_empty(domain);
}

static uint64_t record_bytes(uint32_t identity_bytes)
{
    return SC_STORE_FRAME_BYTES + 48ull + identity_bytes; /* about */
}

void sc_objects_domain_forget(spec_objects *objects, struct sc_object_domain *domain)
{
    if (domain->log_id != 0)
        objects->live_log_bytes -= record_bytes(domain->identity_bytes);
    domain->log_id = 0;
}

static void id_set(spec_objects *objects, struct sc_object_domain *domain, uint32_t log_id)
{
    sc_objects_domain_forget(objects, domain);
    domain->log_id = log_id;
    objects->live_log_bytes += record_bytes(domain->identity_bytes);
}

/* Returns the identity's domain, or an unused slot, or NULL. */
static struct sc_object_domain *domain_find(spec_objects *objects, const uint8_t *identity,
                                            uint32_t bytes, bool *ret_is_known)
{
    struct sc_object_domain *free_one = NULL, *empty_one = NULL;
    *ret_is_known = false;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        struct sc_object_domain *domain = &objects->domains[i];
        if (domain->log_id == 0 && sc_objects_domain_is_empty(domain)) {
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
    sc_objects_domain_forget(objects, domain);
    sc_alloc_free(&objects->alloc, domain->identity);
    domain->identity = identity;
    domain->identity_bytes = bytes;
    domain->life++;
    domain->event_fd = -1;
    id_set(objects, domain, log_id);
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
            id_set(objects, domain, log_id);
        return SPEC_OK;
    }
    uint8_t *copy;
    spec_status status = identity_copy(objects, identity, bytes, &copy, reterr);
    if (status == SPEC_OK)
        domain_set(objects, domain, log_id, copy, bytes);
    return status;
}

/* `lock` held. */
static spec_status id_take(spec_objects *objects, uint32_t *ret_log_id, struct spec_error *reterr)
{
    if (objects->domain_id_next >= SC_STORE_OBJECT_DOMAINS)
        return sc_fail(reterr, SPEC_E_BUSY, "domain_open: %" PRIu32 " domains were made",
                       objects->domain_id_next);
    *ret_log_id = objects->domain_id_next++;
    return SPEC_OK;
}

spec_status sc_objects_domain_tell(spec_objects *objects, struct sc_object_domain *domain,
                                   uint32_t *ret_log_id, struct spec_error *reterr)
{
    pthread_mutex_lock(&objects->lock);
    *ret_log_id = domain->log_id;
    spec_status status = domain->log_id == 0 ? id_take(objects, ret_log_id, reterr) : SPEC_OK;
    bool is_told = domain->log_id != 0;
    pthread_mutex_unlock(&objects->lock);
    if (status != SPEC_OK || is_told)
        return status;
    status = sc_store_object_domain_put(objects->store, *ret_log_id, domain->identity,
                                        domain->identity_bytes, reterr);
    pthread_mutex_lock(&objects->lock);
    if (status == SPEC_OK)
        id_set(objects, domain, *ret_log_id);
    pthread_mutex_unlock(&objects->lock);
    return status;
}

spec_status sc_objects_domain_forget_logged(spec_objects *objects, struct sc_object_domain *domain,
                                            struct spec_error *reterr)
{
    if (!objects->shares || !objects->is_open)
        return SPEC_OK;
    pthread_mutex_lock(&objects->lock);
    uint32_t log_id = sc_objects_domain_is_empty(domain) ? domain->log_id : 0;
    pthread_mutex_unlock(&objects->lock);
    if (log_id == 0)
        return SPEC_OK;
    spec_status status = /* no bytes of it */
        sc_store_object_domain_put(objects->store, log_id, domain->identity, 0, reterr);
    pthread_mutex_lock(&objects->lock);
    if (status == SPEC_OK)
        sc_objects_domain_forget(objects, domain);
    pthread_mutex_unlock(&objects->lock);
    return status;
}

/* Turn held. */
static spec_status forget_all(spec_objects *objects, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX && status == SPEC_OK; i++)
        status = sc_objects_domain_forget_logged(objects, &objects->domains[i], reterr);
    return status;
}

void sc_objects_domains_forget(spec_objects *objects)
{
    spec_status status = SPEC_PENDING;
    for (uint32_t i = 0; status == SPEC_PENDING && i < SC_OBJECT_TRIES; i++) {
        status = i > 0 ? sc_store_turn_read(objects->store, NULL) : SPEC_OK;
        if (status == SPEC_OK)
            status = forget_all(objects, NULL); /* else they stay until the next time */
    }
}

/* Turn held. Returns the identity's slot, or a free one. PENDING: another process appended
 * first. */
static spec_status slot_take(spec_objects *objects, const struct spec_domain_params *params,
                             struct sc_object_domain **ret_domain, bool *ret_is_known,
                             uint32_t *ret_log_id, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; status == SPEC_OK && i < 2; i++) {
        pthread_mutex_lock(&objects->lock);
        *ret_domain = domain_find(objects, params->identity.data,
                                  (uint32_t)params->identity.byte_count, ret_is_known);
        if (*ret_domain != NULL && !*ret_is_known)
            status = id_take(objects, ret_log_id, reterr);
        pthread_mutex_unlock(&objects->lock);
        if (*ret_domain != NULL)
            return status;
        status = forget_all(objects, reterr);
    }
    if (status != SPEC_OK)
        return status;
    return sc_fail(reterr, SPEC_E_BUSY, "domain_open: %u domains are open or hold objects",
                   SPEC_DOMAINS_MAX);
}

/* Turn held. PENDING: another process appended first. */
static spec_status domain_make(spec_objects *objects, const struct spec_domain_params *params,
                               struct sc_object_domain **ret_domain, struct spec_error *reterr)
{
    uint32_t bytes = (uint32_t)params->identity.byte_count, log_id;
    uint8_t *copy;
    bool is_known;
    spec_status status = slot_take(objects, params, ret_domain, &is_known, &log_id, reterr);
    if (status != SPEC_OK || is_known)
        return status != SPEC_OK ? status
                                 : sc_objects_domain_tell(objects, *ret_domain, &log_id, reterr);
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
    for (uint32_t i = 0; status == SPEC_PENDING && i < SC_OBJECT_TRIES; i++) {
        status = i > 0 ? sc_store_turn_read(objects->store, reterr) : SPEC_OK;
        if (status == SPEC_OK)
            status = domain_make(objects, params, ret_domain, reterr);
    }
    return status == SPEC_PENDING
               ? sc_fail(reterr, SPEC_E_IO, "domain_open: other processes append all the time")
               : status;
}
