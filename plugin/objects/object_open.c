/* object_open: opens and closes the objects of a directory. A failed open undoes its work; close
 * leaves no thread, mapping or descriptor. Threads: open any; close one.
 * Tests: conformance/objects */
#include "base/fork_guard.h"
#include "plugin/args/args.h"
#include "plugin/objects/objects.h"

#include <string.h>

/* a longer log is rewritten only if much of it is void */
#define CLOSE_LOG_BYTES (64ull << 20)

/* ---- Tasks ---------------------------------------------------------------------------------- */

static void tasks_wait(spec_objects *objects)
{
    uint32_t count;
    while ((count = atomic_load(&objects->tasks)) != 0)
        if (!sc_exec_wait(objects->exec, &objects->tasks, count, SC_EXEC_FOREVER) &&
            sc_exec_is_loop(objects->exec))
            break;
}

/* ---- Open ----------------------------------------------------------------------------------- */

static spec_status check_params(const struct spec_objects_params *params, struct spec_error *reterr)
{
    uint32_t rank_count = params->rank_count > 0 ? params->rank_count : 1;
    if (params->config == NULL)
        return sc_fail(reterr, SPEC_E_INVALID, "open: config is NULL, expected a path or JSON");
    if (params->rank >= rank_count || rank_count > SC_LIMIT_RANKS)
        return sc_fail(reterr, SPEC_E_INVALID, "open: rank %" PRIu32 " of %" PRIu32, params->rank,
                       rank_count);
    return SPEC_OK;
}

static spec_status alloc_read(const struct spec_objects_params *params, struct sc_alloc *alloc,
                              struct spec_error *reterr)
{
    struct spec_alloc host;
    sc_alloc_init(alloc);
    if (params->alloc == NULL)
        return SPEC_OK;
    spec_status status =
        sc_plugin_args_read(&host, &sc_plugin_form_alloc, params->alloc, "open: alloc", reterr);
    if (status == SPEC_OK && host.reserved != 0)
        status = sc_fail(reterr, SPEC_E_INVALID, "open: alloc: reserved must be 0");
    if (status == SPEC_OK && (host.alloc == NULL || host.free == NULL))
        status = sc_fail(reterr, SPEC_E_INVALID, "open: alloc lacks a function");
    if (status != SPEC_OK)
        return status;
    alloc->host_alloc = host.alloc;
    alloc->host_free = host.free;
    alloc->user = host.user;
    return SPEC_OK;
}

static spec_status memory_open(spec_objects *objects, struct spec_error *reterr)
{
    struct sc_alloc *alloc = &objects->alloc;
    uint64_t submitted = objects->config.objects_submitted_max;
    objects->slabs = sc_alloc_array(alloc, SC_KEY_SLABS_MAX, sizeof(*objects->slabs));
    objects->domains = sc_alloc_array(alloc, SPEC_DOMAINS_MAX, sizeof(*objects->domains));
    objects->jobs = sc_alloc_array(alloc, submitted, sizeof(struct sc_object_job *));
    objects->job_generations = sc_alloc_array(alloc, submitted, sizeof(uint64_t));
    objects->fork_guard = sc_fork_guard_open();
    if (objects->slabs == NULL || objects->domains == NULL || objects->jobs == NULL ||
        objects->job_generations == NULL || objects->fork_guard == NULL ||
        !sc_objects_events_open(objects) || !sc_objects_commits_open(objects) ||
        !sc_objects_ops_open(objects, &objects->reads, SC_OBJECT_READS) ||
        !sc_objects_ops_open(objects, &objects->writes, SC_OBJECT_WRITES))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "objects");
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++)
        objects->domains[i].event_fd = -1;
    objects->domain_id_next = 1;
    sc_objects_gets_open(objects);
    sc_objects_puts_open(objects);
    sc_objects_jobs_open(objects);
    sc_objects_upkeep_open(objects);
    return SPEC_OK;
}

/* Keys the index by the store's secret, which is known only with access to its directory. */
static spec_status on_secret(const uint8_t secret[SC_STORE_SECRET_BYTES], void *user,
                             struct spec_error *reterr)
{
    spec_objects *objects = user;
    uint8_t longer[SC_KEY_SECRET_BYTES];
    if (objects->table.slabs != NULL) /* the log was opened again, or another's */
        return SPEC_OK;
    sc_key_secret_make(secret, SC_STORE_SECRET_BYTES, longer);
    if (!sc_key_table_init(&objects->table, &objects->alloc, &objects->poison, longer,
                           objects->config.index_bytes_max, sizeof(struct sc_object)))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "index of objects");
    return SPEC_OK;
}

static spec_status store_open(spec_objects *objects, const struct spec_objects_params *params,
                              const struct sc_io_custom *custom, struct spec_error *reterr)
{
    struct sc_store_objects_found found;
    struct sc_store_objects_params store = {
        .store = {.alloc = &objects->alloc,
                  .exec = objects->exec,
                  .log = &objects->log,
                  .fault = &objects->fault,
                  .poison = &objects->poison,
                  .config = &objects->config,
                  .custom = custom,
                  .rank = params->rank,
                  .rank_count = params->rank_count > 0 ? params->rank_count : 1,
                  .shares = objects->shares,
                  .on_secret = on_secret,
                  .user = objects}};
    sc_objects_follow_params(objects, &store);
    spec_status status = sc_store_objects_open(&store, &objects->store, &found, reterr);
    if (status != SPEC_OK)
        return status;
    objects->frames = sc_store_object_frames(objects->store);
    objects->op_bytes = sc_store_object_op_bytes(objects->store);
    memset(&objects->counts, 0, sizeof(objects->counts)); /* the replay counted removals */
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++)
        memset(&objects->domains[i].counts, 0, sizeof(objects->domains[i].counts));
    if (found.wants_checkpoint) /* a failure is logged, and leaves the log unchanged */
        status = sc_objects_checkpoint(objects, false, found.needs_checkpoint ? reterr : NULL);
    if (found.needs_checkpoint && status != SPEC_OK)
        return status;
    objects->is_open = true;
    return sc_store_objects_share(objects->store, reterr);
}

static spec_status open_parts(spec_objects *objects, const struct spec_objects_params *params,
                              const struct sc_io_custom *custom, struct spec_error *reterr)
{
    spec_status status = sc_config_parse(&objects->alloc, params->config, &objects->config, reterr);
    struct sc_exec_params exec = {.alloc = &objects->alloc,
                                  .thread_count = custom != NULL ? 0 : objects->config.io_threads,
                                  .keeps_one = true, /* for gets, while writes or syncs block */
                                  .seed = custom != NULL ? custom->seed : 0,
                                  .name = "spec-obj",
                                  .poison = &objects->poison};
    if (status == SPEC_OK)
        status = sc_exec_open(&exec, &objects->exec, reterr);
    objects->shares = objects->config.writers != SC_WRITERS_ONE;
    if (status == SPEC_OK) {
        objects->open_ns = sc_exec_now_ns(objects->exec);
        objects->open_wall_ns = sc_exec_wall_ns(objects->exec);
        status = memory_open(objects, reterr);
    }
    if (status == SPEC_OK)
        status = store_open(objects, params, custom, reterr);
    return status;
}

static void parts_free(spec_objects *objects)
{
    for (uint32_t id = 1; objects->slabs != NULL && id < objects->table.entry_end; id++) {
        if (objects->slabs[id / SC_KEY_SLAB] == NULL) /* the index had memory for the key only */
            continue;
        struct sc_object *object = sc_object_of(objects, id);
        if (object->parts != NULL && object->parts != object->first)
            sc_alloc_free(&objects->alloc, object->parts);
    }
    for (uint32_t i = 0; objects->slabs != NULL && i < SC_KEY_SLABS_MAX; i++)
        sc_alloc_free(&objects->alloc, objects->slabs[i]);
    for (uint32_t i = 0; objects->domains != NULL && i < SPEC_DOMAINS_MAX; i++)
        sc_alloc_free(&objects->alloc, objects->domains[i].identity);
}

static void objects_destroy(spec_objects *objects)
{
    sc_store_objects_close(objects->store);
    sc_exec_close(objects->exec);
    parts_free(objects);
    sc_key_table_done(&objects->table);
    sc_fork_guard_close(objects->fork_guard);
    sc_alloc_free(&objects->alloc, objects->slabs);
    sc_alloc_free(&objects->alloc, objects->domains);
    sc_alloc_free(&objects->alloc, objects->jobs);
    sc_alloc_free(&objects->alloc, objects->job_generations);
    sc_alloc_free(&objects->alloc, objects->batch);
    sc_alloc_free(&objects->alloc, objects->reads.all);
    sc_alloc_free(&objects->alloc, objects->writes.all);
    sc_alloc_free(&objects->alloc, objects->events.ring);
    sc_alloc_free(&objects->alloc, objects->events.keys);
    pthread_mutex_destroy(&objects->checkpoint_lock);
    pthread_mutex_destroy(&objects->commit_lock);
    pthread_mutex_destroy(&objects->lock);
    sc_log_drain(&objects->log);
    sc_log_done(&objects->log);
    struct sc_alloc alloc = objects->alloc;
    alloc.fault = NULL;
    sc_alloc_free(&alloc, objects);
    sc_alloc_done(&alloc);
}

spec_status sc_objects_open_on(const struct spec_objects_params *params,
                               const struct sc_io_custom *custom, spec_objects **ret_objects,
                               struct spec_error *reterr)
{
    struct sc_alloc alloc;
    spec_status status = check_params(params, reterr);
    if (status == SPEC_OK)
        status = alloc_read(params, &alloc, reterr);
    if (status != SPEC_OK)
        return status;
    spec_objects *objects = sc_alloc_zero(&alloc, sizeof(*objects));
    if (objects == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "objects");
    objects->alloc = alloc;
    sc_fault_init(&objects->fault);
    objects->alloc.fault = &objects->fault;
    sc_log_init(&objects->log, params->log, params->log_user, params->log_level_max);
    pthread_mutex_init(&objects->checkpoint_lock, NULL);
    pthread_mutex_init(&objects->commit_lock, NULL);
    pthread_mutex_init(&objects->lock, NULL);
    status = open_parts(objects, params, custom, reterr);
    if (status != SPEC_OK) {
        objects_destroy(objects);
        return status;
    }
    sc_objects_follow_begin(objects);
    sc_log_drain(&objects->log);
    *ret_objects = objects;
    return SPEC_OK;
}

/* Rewrites a log that is short or mostly void, which preserves the order of use. Beside other
 * processes the last one does. */
static void close_log(spec_objects *objects)
{
    struct sc_store_object_sizes sizes;
    if (sc_store_objects_alone(objects->store, NULL) != SPEC_OK)
        return;
    sc_store_object_sizes(objects->store, &sizes);
    uint64_t live = sc_objects_log_live(objects);
    bool is_void = sizes.log_bytes > live + live / 8;
    if (sizes.log_bytes <= CLOSE_LOG_BYTES || is_void)
        (void)sc_objects_checkpoint(objects, false, NULL);
}

void sc_objects_close(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    objects->is_closing = true;
    bool was_armed = objects->clock_armed && sc_exec_cancel(objects->exec, &objects->clock);
    objects->clock_armed = false;
    pthread_mutex_unlock(&objects->lock);
    if (was_armed)
        sc_objects_task_end(objects);
    sc_objects_follow_end(objects);
    sc_objects_jobs_end(objects, NULL);
    tasks_wait(objects);
    (void)sc_objects_record_removals(objects, NULL);
    close_log(objects);
    tasks_wait(objects);
    objects_destroy(objects);
}
