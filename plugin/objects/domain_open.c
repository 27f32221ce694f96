/* domain_open: opens and closes domains.
 *
 *   open    a slot, made if there is none -> one more opener; the first one gets a new handle
 *   close   the last opener: invalidates the handle -> its jobs end -> it may be opened again
 *
 * A handle is of one life of a domain. Threads: any; `lock`. Tests: conformance/objects */
#include "plugin/objects/objects.h"

/* Returns false while the domain is being closed. */
static bool domain_enter(spec_objects *objects, struct sc_object_domain *domain,
                         const struct spec_domain_params *params, spec_domain *ret_domain)
{
    pthread_mutex_lock(&objects->lock);
    bool enters = !domain->is_closing;
    if (enters) {
        if (domain->openers++ == 0) {
            domain->generation++;
            atomic_store(&domain->handle, domain->generation << SC_OBJECT_DOMAIN_BITS |
                                              (uint64_t)(domain - objects->domains));
        }
        domain->pages_min = sc_object_pages(params->bytes_min);
        domain->pages_max =
            params->bytes_max > 0 ? params->bytes_max / SC_IO_PAGE_BYTES : UINT64_MAX;
        *ret_domain = atomic_load(&domain->handle);
        sc_objects_upkeep_wake(objects); /* it may have been logged */
    }
    pthread_mutex_unlock(&objects->lock);
    return enters;
}

/* Errors: BUSY (too many domains). */
static spec_status domain_open(spec_objects *objects, const struct spec_domain_params *params,
                               spec_domain *ret_domain, struct spec_error *reterr)
{
    struct sc_object_domain *domain = NULL;
    for (;;) {
        uint32_t word = atomic_load(&objects->job_word);
        pthread_mutex_lock(&objects->checkpoint_lock);
        sc_store_turn_begin(objects->store); /* a slot that is not open may be forgotten */
        spec_status status = sc_objects_domain_make(objects, params, &domain, reterr);
        bool enters = status == SPEC_OK && domain_enter(objects, domain, params, ret_domain);
        sc_store_turn_end(objects->store);
        pthread_mutex_unlock(&objects->checkpoint_lock);
        if (status != SPEC_OK || enters)
            return status;
        (void)sc_exec_wait(objects->exec, &objects->job_word, word, SC_EXEC_FOREVER);
    }
}

spec_status sc_objects_domain_open(spec_objects *objects, const struct spec_domain_params *params,
                                   spec_domain *ret_domain, struct spec_error *reterr)
{
    spec_status status = domain_open(objects, params, ret_domain, reterr);
    if (status == SPEC_E_NO_SPACE && /* of the log, which may be mostly void */
        sc_objects_checkpoint(objects, false, NULL) == SPEC_OK)
        status = domain_open(objects, params, ret_domain, reterr);
    return status == SPEC_E_BUSY ? SPEC_E_NO_SPACE : status;
}

spec_status sc_objects_domain_close(spec_objects *objects, struct sc_object_domain *domain)
{
    pthread_mutex_lock(&objects->lock);
    bool is_last = --domain->openers == 0;
    if (is_last) {
        atomic_store(&domain->handle, 0);
        domain->is_closing = true;
    }
    pthread_mutex_unlock(&objects->lock);
    if (!is_last)
        return SPEC_OK;
    sc_objects_jobs_end(objects, domain);
    pthread_mutex_lock(&objects->lock);
    domain->event_fd = -1;
    domain->pages_min = 0;
    domain->pages_max = UINT64_MAX;
    domain->is_closing = false;
    atomic_fetch_add(&objects->job_word, 1); /* openers wait for it */
    sc_exec_wake(objects->exec, &objects->job_word);
    pthread_mutex_unlock(&objects->lock);
    sc_store_turn_begin(objects->store);
    (void)sc_objects_domain_forget_logged(objects, domain, NULL); /* else later */
    sc_store_turn_end(objects->store);
    return SPEC_OK;
}
