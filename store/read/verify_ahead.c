/* verify_ahead: executor tasks that verify a load's slots in the host tier ahead of the consumer.
 *
 * One thread verifies tags more slowly than a device's bus transfers.
 *
 *   list     [front: the consumer's][.][.][claimed by a helper][.][good][.] ...
 *   helper   claims a slot, pins its slab, verifies it without the lock, sets the result, repeats
 *
 * Invariants: a slot is good after all of its rows agreed with their tags. Its slab stays pinned,
 * so the bytes that are returned are the same. The consumer verifies all others. A helper never
 * fails a load: the consumer finds bad rows again and reports them.
 * Threads: helpers: the executor's; claim and result under the lock of inflight (rank 30).
 * Tests: tests/unit/plugin/test_device_direct.c, tests/fault/test_device_races.c */
#include "store/read/reader.h"
#include "store/rows/tag.h"

#define STEP_SLOTS 16u   /* per step of a helper; other tasks of its class wait meanwhile */
#define SPINS      4096u /* polls before the consumer verifies a slot that a helper has claimed */

struct job {
    struct sc_reader_slot *slot;
    struct sc_host_tier_memory_slab *slab;
    uint64_t serial;
    uint32_t part_count;
    struct {
        struct sc_store_tag_rows tagged;
        const uint8_t *rows;
        const uint64_t *tags;
    } parts[2];
};

/* Lock held. Describes all rows of the slot, which are one range's. */
static void job_make(const struct sc_store_reader *reader, struct sc_reader_slot *slot,
                     struct job *job)
{
    struct sc_store *store = reader->inflight.store;
    const struct sc_store_shape *shape = &store->shape;
    const struct sc_store_plan_op *plan = &slot->plan;
    const struct sc_store_range *range = &reader->plan.ranges[plan->range];
    const struct sc_store_piece_entry *piece = sc_store_table_piece(&store->table, range->piece);
    uint64_t copy = sc_store_table_extent(&store->table, piece->extent)->copy;
    bool is_paired = shape->layout == SC_STORE_PAIRED;
    *job = (struct job){.slot = slot,
                        .slab = slot->inflight.host,
                        .serial = slot->serial,
                        .part_count = is_paired ? 1 : 2};
    for (uint32_t p = 0; p < job->part_count; p++) {
        job->parts[p].tagged = (struct sc_store_tag_rows){
            .base = sc_store_tag_base(shape->digest, piece->hash, copy, reader->plan.layer,
                                      is_paired ? SC_STORE_PART_ROW : SC_STORE_PART_K + p),
            .position_first = piece->first_position + range->row_first,
            .row_bytes = is_paired ? shape->row_bytes : shape->k_row_bytes,
            .count = plan->row_count,
            .tag_step = shape->tags_per_row};
        job->parts[p].rows = slot->inflight.frame + (p == 0 ? plan->row_at : plan->v_at);
        job->parts[p].tags =
            (const uint64_t *)(const void *)(slot->inflight.frame + plan->tag_at) + p;
    }
    sc_host_tier_pin(store->host, job->slab);
}

static bool job_is_good(const struct job *job)
{
    for (uint32_t p = 0; p < job->part_count; p++)
        if (sc_store_tag_verify(&job->parts[p].tagged, job->parts[p].rows, job->parts[p].tags) !=
            job->parts[p].tagged.count)
            return false;
    return true;
}

/* Lock held. Returns false if no unclaimed slot is left. */
static bool job_claim(struct sc_store_reader *reader, struct job *job)
{
    bool helps = reader->is_active && !reader->is_gather;
    for (struct sc_inflight_slot *at = helps ? reader->inflight.first : NULL; at != NULL;
         at = at->next) {
        struct sc_reader_slot *slot = sc_reader_slot_of(at);
        uint32_t check = SC_READER_UNCHECKED;
        if (!at->is_completed || at->host == NULL || slot->plan.slots != NULL ||
            slot->plan.row_count == 0 || at->status != SPEC_OK ||
            !atomic_compare_exchange_strong(&slot->check, &check, SC_READER_CLAIMED))
            continue;
        job_make(reader, slot, job);
        return true;
    }
    return false;
}

/* Lock held. The slot may be in another load by now. */
static void job_end(struct sc_store_reader *reader, const struct job *job, bool is_good)
{
    sc_host_tier_unpin(reader->inflight.store->host, job->slab);
    for (struct sc_inflight_slot *at = reader->inflight.first; at != NULL; at = at->next) {
        struct sc_reader_slot *slot = sc_reader_slot_of(at);
        if (slot == job->slot && slot->serial == job->serial)
            atomic_store_explicit(&slot->check, is_good ? SC_READER_GOOD : SC_READER_DOUBTED,
                                  memory_order_release);
    }
}

static void help_step(struct sc_task *task)
{
    struct sc_reader_helper *helper = SC_TASK_OWNER(task, struct sc_reader_helper, task);
    struct sc_store_reader *reader = helper->reader;
    struct sc_inflight *inflight = &reader->inflight;
    struct job job;
    uint32_t done = 0;
    pthread_mutex_lock(&inflight->lock);
    for (; done < STEP_SLOTS && job_claim(reader, &job); done++) {
        pthread_mutex_unlock(&inflight->lock);
        bool is_good = job_is_good(&job);
        pthread_mutex_lock(&inflight->lock);
        job_end(reader, &job, is_good);
    }
    if (done == STEP_SLOTS) {
        sc_exec_post(inflight->store->params.exec, task, SC_IO_CLASS_DEMAND);
    } else {
        helper->is_out = false;
        inflight->task_count--;
        sc_inflight_signal(inflight); /* close waits for the last helper */
    }
    pthread_mutex_unlock(&inflight->lock);
}

void sc_reader_helpers_init(struct sc_store_reader *reader)
{
    for (uint32_t i = 0; i < SC_READER_HELPERS; i++)
        reader->helpers[i] =
            (struct sc_reader_helper){.task.step = help_step, .reader = reader, .is_out = false};
}

void sc_reader_help(struct sc_store_reader *reader)
{
    struct sc_inflight *inflight = &reader->inflight;
    struct sc_exec *exec = inflight->store->params.exec;
    if (sc_exec_is_loop(exec) || reader->fronts++ % STEP_SLOTS != 0)
        return;
    pthread_mutex_lock(&inflight->lock);
    uint32_t count = inflight->slot_count / SC_READER_HELP_SLOTS;
    count = count < SC_READER_HELPERS ? count : SC_READER_HELPERS;
    for (uint32_t i = 0; i < count; i++) {
        if (reader->helpers[i].is_out)
            continue;
        reader->helpers[i].is_out = true;
        inflight->task_count++;
        sc_exec_post(exec, &reader->helpers[i].task, SC_IO_CLASS_DEMAND);
    }
    pthread_mutex_unlock(&inflight->lock);
}

bool sc_reader_is_good(struct sc_reader_slot *slot)
{
    uint32_t check = SC_READER_UNCHECKED;
    if (atomic_compare_exchange_strong(&slot->check, &check, SC_READER_CLAIMED))
        return false; /* the consumer has claimed it */
    for (uint32_t i = 0; i < SPINS && check == SC_READER_CLAIMED; i++) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
        check = atomic_load_explicit(&slot->check, memory_order_acquire);
    }
    return check == SC_READER_GOOD;
}
