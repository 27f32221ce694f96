/* Domains: compared by value; a handle is an index and a generation.
 *
 * Holds: a slot keeps its identity while it is open or has objects or pages; an identity has one
 * slot. Threads: any; `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

#include <string.h>

#define INDEX_BITS 16u

struct sc_object_domain *sc_objects_domain(spec_objects *objects, spec_domain handle)
{
    uint64_t index = handle & ((1u << INDEX_BITS) - 1);
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

/* The domain of an identity, or a free slot, or NULL. */
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
        } else if (domain->openers == 0 && domain->objects == 0 && domain->pages == 0 &&
                   domain->job_count == 0) {
            empty_one = domain;
        }
    }
    return free_one != NULL ? free_one : empty_one;
}

/* A free or empty slot gets an identity. */
static spec_status domain_set(spec_objects *objects, struct sc_object_domain *domain,
                              uint32_t log_id, const uint8_t *identity, uint32_t bytes,
                              struct spec_error *reterr)
{
    uint8_t *copy = sc_alloc(&objects->alloc, bytes);
    if (copy == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "identity of a domain");
    memcpy(copy, identity, bytes);
    sc_alloc_free(&objects->alloc, domain->identity);
    domain->identity = copy;
    domain->identity_bytes = bytes;
    domain->log_id = log_id;
    domain->event_fd = -1;
    sc_store_domain_digest(identity, bytes, domain->digest);
    memset(&domain->counts, 0, sizeof(domain->counts));
    return SPEC_OK;
}

spec_status sc_objects_domain_found(spec_objects *objects, uint32_t log_id, const uint8_t *identity,
                                    uint32_t bytes, struct spec_error *reterr)
{
    bool is_known;
    if (objects->domain_id_next <= log_id)
        objects->domain_id_next = log_id + 1;
    if (sc_objects_domain_by_id(objects, log_id) != NULL) /* the record lies */
        return SPEC_OK;
    struct sc_object_domain *domain = domain_find(objects, identity, bytes, &is_known);
    if (domain == NULL) /* too many: its objects have no domain */
        return SPEC_OK;
    if (is_known) { /* it was empty when it got this id, or nobody got the earlier one */
        domain->log_id = log_id;
        return SPEC_OK;
    }
    return domain_set(objects, domain, log_id, identity, bytes, reterr);
}

/* The domain's slot, made if there is none, with its record. checkpoint_lock held: identities that
 * a checkpoint copies stay. */
static spec_status domain_make(spec_objects *objects, const struct spec_domain_params *params,
                               struct sc_object_domain **ret_domain, struct spec_error *reterr)
{
    const uint8_t *identity = params->identity.data;
    uint32_t bytes = (uint32_t)params->identity.byte_count;
    bool is_known;
    pthread_mutex_lock(&objects->lock);
    struct sc_object_domain *domain = domain_find(objects, identity, bytes, &is_known);
    uint32_t log_id = objects->domain_id_next;
    spec_status status = SPEC_OK;
    if (domain == NULL || (!is_known && log_id >= SC_STORE_OBJECT_DOMAINS))
        status = sc_fail(reterr, SPEC_E_NO_SPACE,
                         "domain_open: %u domains are open or hold objects", SPEC_DOMAINS_MAX);
    else if (!is_known)
        objects->domain_id_next++;
    pthread_mutex_unlock(&objects->lock);
    if (status == SPEC_OK && !is_known)
        status = sc_store_object_domain_put(objects->store, log_id, identity, bytes, reterr);
    if (status != SPEC_OK)
        return status;
    pthread_mutex_lock(&objects->lock);
    if (!is_known)
        status = domain_set(objects, domain, log_id, identity, bytes, reterr);
    pthread_mutex_unlock(&objects->lock);
    *ret_domain = domain;
    return status;
}

spec_status sc_objects_domain_open(spec_objects *objects, const struct spec_domain_params *params,
                                   spec_domain *ret_domain, struct spec_error *reterr)
{
    struct sc_object_domain *domain = NULL;
    pthread_mutex_lock(&objects->checkpoint_lock);
    spec_status status = domain_make(objects, params, &domain, reterr);
    if (status == SPEC_OK) {
        pthread_mutex_lock(&objects->lock);
        if (domain->openers++ == 0) {
            domain->generation++;
            atomic_store(&domain->handle,
                         domain->generation << INDEX_BITS | (uint64_t)(domain - objects->domains));
        }
        domain->pages_min = sc_object_pages(params->bytes_min);
        domain->pages_max = params->bytes_max / SC_IO_PAGE_BYTES;
        *ret_domain = atomic_load(&domain->handle);
        pthread_mutex_unlock(&objects->lock);
    }
    pthread_mutex_unlock(&objects->checkpoint_lock);
    return status;
}

spec_status sc_objects_domain_close(spec_objects *objects, struct sc_object_domain *domain)
{
    pthread_mutex_lock(&objects->lock);
    bool is_last = --domain->openers == 0;
    if (is_last)
        atomic_store(&domain->handle, 0);
    pthread_mutex_unlock(&objects->lock);
    if (!is_last)
        return SPEC_OK;
    sc_objects_jobs_end(objects, domain);
    pthread_mutex_lock(&objects->lock);
    domain->event_fd = -1;
    domain->pages_min = domain->pages_max = 0;
    pthread_mutex_unlock(&objects->lock);
    return SPEC_OK;
}
