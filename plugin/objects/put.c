/* put: reserves keys in the index, waits for space in the order of calls, and writes values while
 * their tags are computed.
 *
 *   begin    LIVE: STORED; PENDING: follows that put; else a PENDING entry, queued
 *   feeder   takes pages and log space for the head of the queue. If there is none, it evicts least
 *            recently used objects or rewrites the log; else the put waits for the end of a hold or
 *            get, or its deadline. Puts that wait for their domain's limit let other domains pass
 *   ended    written and tagged: to the committer (object_commit.c); failed once: retried elsewhere
 *
 * Puts of a domain keep their order, and none passes one that waits for space of the store, so
 * large values are served. A put with pages waits for no other. A failed put hands over to its
 * first follower.
 * Threads: per function. Tests: conformance/objects, tests/unit/plugin/test_objects.c */
#include "plugin/objects/objects.h"
#include "store/log/identity.h"

#include <string.h>

#define EVICT_PART  256u          /* of all pages: minimum evicted at once, */
#define EVICT_MOST  16384u        /* at most 64 MiB for a smaller value */
#define PAUSE_NS    100000000ull  /* between retries while the device is not written */
#define WAIT_NS     1000000000ull /* maximum between retries */
#define CLAIMS_MOST 4u            /* claims of segments for one value before something is evicted */
#define LOG_LEFT(x) ((x) / 16 * 13) /* of the log: maximum live bytes for new records */

/* ---- Followers ------------------------------------------------------------------------------ */

static void follow(struct sc_object_transfer *leader, struct sc_object_transfer *transfer)
{
    transfer->state = SC_OBJECT_FOLLOWING;
    transfer->entry = leader->entry;
    transfer->next = NULL;
    transfer->prev = leader->followers_last;
    if (transfer->prev != NULL)
        transfer->prev->next = transfer;
    else
        leader->followers = transfer;
    leader->followers_last = transfer;
}

static void unfollow(struct sc_object_transfer *leader, struct sc_object_transfer *transfer)
{
    if (transfer->next != NULL)
        transfer->next->prev = transfer->prev;
    else
        leader->followers_last = transfer->prev;
    if (transfer->prev != NULL)
        transfer->prev->next = transfer->next;
    else
        leader->followers = transfer->next;
    transfer->next = transfer->prev = NULL;
}

/* ---- Begin ---------------------------------------------------------------------------------- */

/* Assigns the key's entry, or answers. Returns false if the index has no space for the key. */
static bool entry_take(spec_objects *objects, struct sc_object_transfer *transfer)
{
    uint32_t space = (uint32_t)(transfer->job->domain - objects->domains);
    uint32_t id = sc_key_table_find(&objects->table, space, transfer->key, transfer->key_bytes);
    if (id != 0) {
        struct sc_key_entry *entry = sc_key_table_entry(&objects->table, id);
        SC_OBJECT_COUNT(objects, transfer->job->domain, put_present, 1);
        if (sc_key_entry_state(entry) == SC_KEY_LIVE) {
            atomic_store_explicit(&entry->used, sc_object_tick(objects), memory_order_relaxed);
            sc_objects_finish(objects, transfer, SPEC_KEY_STORED);
        } else {
            follow(sc_object_of(objects, id)->put, transfer);
        }
        return true;
    }
    id = sc_key_table_add(&objects->table, space, transfer->key, transfer->key_bytes);
    if (id == 0)
        return false;
    if (!sc_catalog_reserve(objects, id)) {
        sc_key_table_expel(&objects->table, id);
        sc_key_table_unlink(&objects->table, id);
        sc_key_table_free(&objects->table, id);
        return false;
    }
    struct sc_object *object = sc_object_of(objects, id);
    object->domain = space;
    object->bytes = transfer->bytes;
    object->order = transfer->index;
    object->put = transfer;
    transfer->entry = id;
    return true;
}

void sc_objects_put_begin(spec_objects *objects, struct sc_object_job *job)
{
    SC_OBJECT_COUNT(objects, job->domain, put_keys, job->count);
    for (uint32_t i = 0, count = job->count; i < count; i++) {
        struct sc_object_transfer *transfer = &job->transfers[i];
        transfer->bytes = sc_objects_pieces_bytes(transfer);
        if (transfer->bytes > SPEC_OBJECT_BYTES_MAX) {
            sc_objects_finish(objects, transfer, SPEC_E_NO_SPACE);
            continue;
        }
        if (entry_take(objects, transfer) && transfer->state != SC_OBJECT_QUEUED)
            continue;
        sc_objects_queue_add(&objects->puts, transfer, false);
        objects->waiting_puts++;
        objects->unindexed_puts += transfer->entry == 0;
    }
    if (objects->puts.head != NULL)
        sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* `lock` held. Ends a put's entry without an object: its first follower takes over, or none. */
static void entry_pass_on(spec_objects *objects, struct sc_object_transfer *transfer)
{
    uint32_t id = transfer->entry;
    if (id == 0)
        return;
    struct sc_object *object = sc_object_of(objects, id);
    struct sc_object_transfer *next = transfer->followers;
    transfer->entry = 0;
    object->put = next;
    if (next == NULL) { /* its pages are freed, or kept for an erasure */
        if (!object->is_leaving) {
            sc_key_table_expel(&objects->table, id);
            sc_catalog_leave(objects, id, 0, false);
        }
        object->is_recorded = true;
        sc_catalog_settle(objects, id);
        return;
    }
    sc_catalog_parts_free(objects, object);
    unfollow(transfer, next);
    next->followers = transfer->followers;
    next->followers_last = transfer->followers_last;
    transfer->followers = transfer->followers_last = NULL;
    object->bytes = next->bytes;
    object->order = next->index;
    next->entry = id;
    sc_objects_queue_add(&objects->puts, next, true);
    objects->waiting_puts++;
    sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
}

void sc_objects_put_failed(spec_objects *objects, struct sc_object_transfer *transfer,
                           int32_t status)
{
    entry_pass_on(objects, transfer);
    sc_objects_finish(objects, transfer, status);
}

/* `lock` held. Counts the end of a wait in the queue. */
static void waited(spec_objects *objects, struct sc_object_transfer *transfer)
{
    objects->waiting_puts--;
    if (transfer->queued_ns == 0)
        return;
    SC_OBJECT_COUNT(objects, transfer->job->domain, put_wait_ns,
                    sc_exec_now_ns(objects->exec) - transfer->queued_ns);
    transfer->queued_ns = 0;
}

void sc_objects_put_give_up(spec_objects *objects, struct sc_object_transfer *transfer,
                            int32_t status)
{
    if (transfer->state == SC_OBJECT_FOLLOWING) {
        unfollow(sc_object_of(objects, transfer->entry)->put, transfer);
        transfer->entry = 0;
        sc_objects_finish(objects, transfer, status);
        return;
    }
    sc_objects_queue_remove(&objects->puts, transfer);
    waited(objects, transfer);
    objects->unindexed_puts -= transfer->entry == 0;
    sc_objects_put_failed(objects, transfer, status);
    objects->puts.runs_again = true; /* the head changed, also for a running feeder */
    sc_objects_room_came(objects);
}

void sc_objects_put_unindexed_removed(spec_objects *objects, uint32_t space, const uint8_t *key,
                                      uint32_t key_bytes)
{
    struct sc_object_transfer *next;
    if (objects->unindexed_puts == 0)
        return;
    for (struct sc_object_transfer *put = objects->puts.head; put != NULL; put = next) {
        next = put->next;
        bool is_it =
            put->entry == 0 && put->job->domain == &objects->domains[space] &&
            (key == NULL || (put->key_bytes == key_bytes && memcmp(put->key, key, key_bytes) == 0));
        if (is_it)
            sc_objects_put_give_up(objects, put, SPEC_E_DROPPED);
    }
}

void sc_objects_put_end(spec_objects *objects, uint32_t id, int32_t status)
{
    struct sc_object_transfer *put = sc_object_of(objects, id)->put, *next;
    sc_key_table_expel(&objects->table, id);
    sc_catalog_leave(objects, id, 0, false);
    for (struct sc_object_transfer *other = put->followers; other != NULL; other = next) {
        next = other->next;
        other->next = other->prev = NULL;
        other->entry = 0;
        sc_objects_finish(objects, other, status);
    }
    put->followers = put->followers_last = NULL;
    put->ends_as = status; /* if it runs, the committer ends it */
    if (put->state == SC_OBJECT_QUEUED)
        sc_objects_put_give_up(objects, put, status);
}

/* ---- The feeder ----------------------------------------------------------------------------- */

enum feed { FEED_RUNS, FEED_NEXT, FEED_EVICT, FEED_LOG, FEED_WAIT, FEED_STUCK, FEED_IDLE };

static void tag_step(struct sc_task *task)
{
    struct sc_object_transfer *transfer = SC_TASK_OWNER(task, struct sc_object_transfer, task);
    spec_objects *objects = transfer->job->objects;
    transfer->tag = sc_objects_tag(transfer, transfer->copy);
    sc_objects_unref(objects, transfer);
    sc_objects_task_end(objects);
}

/* `lock` held. Retries at another place or through frames. */
static void put_again(spec_objects *objects, struct sc_object_transfer *transfer)
{
    transfer->bounces = transfer->bounces || atomic_load(&transfer->wants_bounce);
    transfer->is_retried = transfer->is_retried || atomic_load(&transfer->status) != SPEC_OK;
    sc_catalog_parts_free(objects, sc_object_of(objects, transfer->entry));
    sc_objects_queue_add(&objects->puts, transfer, true);
    objects->waiting_puts++;
    sc_objects_queue_wake(objects, &objects->puts, SC_IO_CLASS_WRITER);
}

static void put_ended(spec_objects *objects, struct sc_object_transfer *transfer)
{
    int32_t status = atomic_load(&transfer->status);
    bool bounces = status == SPEC_OK && atomic_load(&transfer->wants_bounce);
    bool again = bounces || (status != SPEC_OK && !transfer->is_retried);
    if (status != SPEC_OK || bounces)
        sc_store_log_unreserve(objects->store, transfer->log_bytes);
    if (status != SPEC_OK && !again && status == SPEC_E_IO)
        sc_store_pause(objects->store, status, "a put failed twice");
    pthread_mutex_lock(&objects->lock);
    sc_objects_run_end(objects, transfer);
    if (status == SPEC_OK && !bounces) {
        transfer->next = NULL;
        if (objects->commits_last != NULL)
            objects->commits_last->next = transfer;
        else
            objects->commits = transfer;
        objects->commits_last = transfer;
        if (!objects->commits_posted) {
            objects->commits_posted = true;
            sc_objects_post(objects, &objects->committer, SC_IO_CLASS_WRITER);
        }
    } else if (transfer->ends_as != 0) {
        sc_objects_put_failed(objects, transfer, transfer->ends_as);
    } else if (again && transfer->job->given_up == 0) {
        put_again(objects, transfer);
    } else { /* its job no longer waits for space */
        sc_objects_put_failed(objects, transfer,
                              status != SPEC_OK ? status : transfer->job->given_up);
    }
    pthread_mutex_unlock(&objects->lock);
}

static void run_begin(spec_objects *objects, struct sc_object_transfer *transfer)
{
    transfer->state = SC_OBJECT_RUNNING;
    transfer->ended = put_ended;
    transfer->copy = sc_store_copy_next(objects->store);
    sc_objects_run_begin(objects, transfer, 2); /* for the issuer, and the tag */
}

/* `lock` held. Takes pages and log space for the head of the queue. */
static enum feed room_take(spec_objects *objects, struct sc_object_transfer *transfer,
                           bool *ret_is_limited)
{
    struct sc_store_object_part parts[SC_STORE_OBJECT_PARTS_MAX];
    struct sc_object *object = sc_object_of(objects, transfer->entry);
    struct sc_object_domain *domain = transfer->job->domain;
    uint64_t pages = sc_object_pages(transfer->bytes);
    uint32_t part_count;
    if (pages > domain->pages_max) {
        sc_objects_put_give_up(objects, transfer, SPEC_E_NO_SPACE);
        return FEED_NEXT;
    }
    if (domain->pages + pages > domain->pages_max) {
        *ret_is_limited = true;
        return FEED_EVICT;
    }
    transfer->log_bytes =
        sc_store_object_record_bytes(transfer->key_bytes, SC_STORE_OBJECT_PARTS_MAX);
    switch (
        sc_store_object_room_take(objects->store, pages, transfer->log_bytes, parts, &part_count)) {
    case SC_STORE_LACK_NOTHING:
        break;
    case SC_STORE_LACK_PAGES:
        return FEED_EVICT;
    case SC_STORE_LACK_LOG:
        return FEED_LOG;
    case SC_STORE_LACK_EVER:
        sc_objects_put_give_up(objects, transfer, SPEC_E_NO_SPACE);
        return FEED_NEXT;
    default:
        return FEED_WAIT;
    }
    if (!sc_catalog_parts_set(objects, object, parts, part_count)) {
        sc_store_object_placed(objects->store, parts, part_count);
        sc_store_object_pages_free(objects->store, parts, part_count);
        sc_store_log_unreserve(objects->store, transfer->log_bytes);
        sc_objects_put_give_up(objects, transfer, SPEC_E_NO_MEMORY);
        return FEED_NEXT;
    }
    object->is_placed = true;
    return FEED_RUNS;
}

/* Needs of the queue's head. FEED_RUNS: issue `transfer`; else it may have ended meanwhile. */
struct need {
    struct sc_object_transfer *transfer;
    const struct sc_object_domain *domain; /* its own */
    bool is_limited;                       /* by its domain: only that one's objects are evicted */
    uint64_t pages;
    uint32_t claims; /* how often segments were claimed for it instead */
};

/* `lock` held. Returns the first put that may proceed; NULL: all wait for their domains' limits. */
static struct sc_object_transfer *head_of(spec_objects *objects)
{
    struct sc_object_transfer *transfer = objects->puts.head;
    if (objects->stuck_ns != 0 && sc_exec_now_ns(objects->exec) >= objects->stuck_ns) {
        objects->stuck_ns = 0; /* they are retried */
        for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++)
            objects->domains[i].is_stuck = false;
    }
    while (transfer != NULL && transfer->job->domain->is_stuck)
        transfer = transfer->next;
    return transfer;
}

/* Lets other domains' puts pass. */
static void domain_sticks(spec_objects *objects, const struct need *need)
{
    pthread_mutex_lock(&objects->lock);
    objects->domains[need->domain - objects->domains].is_stuck = true;
    if (objects->stuck_ns == 0)
        objects->stuck_ns = sc_exec_now_ns(objects->exec) + PAUSE_NS;
    pthread_mutex_unlock(&objects->lock);
}

static enum feed feeder_next(spec_objects *objects, struct need *need)
{
    struct sc_object_queue *queue = &objects->puts;
    struct sc_object_transfer *transfer = queue->current;
    *need = (struct need){.transfer = transfer, .claims = need->claims};
    queue->runs_again = objects->put_waits = false;
    if (transfer != NULL)
        return FEED_RUNS;
    if (queue->head == NULL)
        return FEED_IDLE;
    transfer = need->transfer = head_of(objects);
    if (transfer == NULL) {
        need->transfer = queue->head;
        return FEED_STUCK;
    }
    need->domain = transfer->job->domain;
    need->pages = sc_object_pages(transfer->bytes);
    if (!sc_store_stores(objects->store)) {
        sc_objects_put_give_up(objects, transfer, SPEC_E_NO_SPACE);
        return FEED_NEXT;
    }
    if (transfer->entry == 0) { /* the index had no space */
        sc_objects_queue_remove(queue, transfer);
        bool has_room = entry_take(objects, transfer);
        objects->unindexed_puts -= has_room;
        if (transfer->state != SC_OBJECT_QUEUED) { /* answered, or follows */
            waited(objects, transfer);
            return FEED_NEXT;
        }
        sc_objects_queue_add(queue, transfer, true);
        if (!has_room)
            return FEED_EVICT;
    }
    enum feed feed = room_take(objects, transfer, &need->is_limited);
    if (feed != FEED_RUNS)
        return feed;
    sc_objects_queue_remove(queue, transfer);
    waited(objects, transfer);
    run_begin(objects, transfer);
    queue->current = transfer;
    transfer->task.step = tag_step;
    sc_objects_post(objects, &transfer->task, SC_IO_CLASS_WRITER);
    return FEED_RUNS;
}

/* Makes the head wait: nothing is evictable, or the device is not written. Returns false if
 * something changed meanwhile. */
static bool feeder_waits(spec_objects *objects, struct sc_object_transfer *transfer, bool is_device)
{
    pthread_mutex_lock(&objects->lock);
    struct sc_object_queue *queue = &objects->puts;
    if (queue->runs_again) { /* else it is still queued */
        pthread_mutex_unlock(&objects->lock);
        return false;
    }
    uint64_t now_ns = sc_exec_now_ns(objects->exec), wake_ns = sc_catalog_evict_ns(objects);
    if (transfer->queued_ns == 0) {
        transfer->queued_ns = now_ns;
        SC_OBJECT_COUNT(objects, transfer->job->domain, put_waits, 1);
    }
    if (is_device || wake_ns <= now_ns || objects->unrecorded != 0)
        wake_ns = now_ns + PAUSE_NS;
    wake_ns = wake_ns < now_ns + WAIT_NS ? wake_ns : now_ns + WAIT_NS;
    objects->put_waits = true;
    objects->put_wake_ns = wake_ns;
    objects->stuck_ns = objects->stuck_ns != 0 ? now_ns : 0;
    sc_objects_clock_set(objects, wake_ns);
    queue->is_posted = false;
    pthread_mutex_unlock(&objects->lock);
    return true;
}

/* Evicts for the head, or rewrites the log. Returns false if neither freed anything. */
static bool feeder_makes_room(spec_objects *objects, enum feed feed, struct need *need)
{
    uint64_t free_pages, all_pages, log_bytes, log_most;
    sc_store_object_room(objects->store, &free_pages, &all_pages);
    uint64_t pages = need->pages;
    if (feed == FEED_EVICT && !need->is_limited && need->claims++ < CLAIMS_MOST &&
        sc_store_object_room_claim(objects->store))
        return true;
    need->claims = 0;
    if (feed == FEED_LOG) {
        sc_store_objects_log_bytes(objects->store, &log_bytes, &log_most);
        pthread_mutex_lock(&objects->lock);
        uint64_t live = sc_objects_log_live(objects), kept = objects->kept_log_bytes;
        bool may_try = sc_exec_now_ns(objects->exec) >= objects->checkpoint_ns;
        pthread_mutex_unlock(&objects->lock);
        if (log_bytes > (live < kept ? live : kept) + log_most / 8)
            return may_try && sc_objects_checkpoint(objects, false, NULL) == SPEC_OK;
        uint64_t over = live > LOG_LEFT(log_most) ? live - LOG_LEFT(log_most) : 1;
        pages = live > 0 ? all_pages * over / live : 0;
    }
    uint64_t some = all_pages / EVICT_PART < EVICT_MOST ? all_pages / EVICT_PART : EVICT_MOST;
    if (!need->is_limited && pages < some)
        pages = some;
    return sc_objects_evict(objects, need->domain, need->is_limited, pages > 0 ? pages : 1) > 0;
}

/* Stops for lack of operations or frames. Returns false if some arrived meanwhile. */
static bool feeder_rests(spec_objects *objects)
{
    pthread_mutex_lock(&objects->lock);
    objects->puts.is_posted = objects->puts.runs_again;
    bool rests = !objects->puts.is_posted;
    pthread_mutex_unlock(&objects->lock);
    return rests;
}

static void issue_ended(spec_objects *objects, struct sc_object_transfer *transfer)
{
    pthread_mutex_lock(&objects->lock);
    objects->puts.current = NULL;
    pthread_mutex_unlock(&objects->lock);
    sc_objects_unref(objects, transfer);
}

static void feeder_step(struct sc_task *task)
{
    spec_objects *objects = SC_TASK_OWNER(task, spec_objects, puts.task);
    struct need need = {0};
    for (;;) {
        pthread_mutex_lock(&objects->lock);
        enum feed feed = feeder_next(objects, &need);
        objects->puts.is_posted = feed != FEED_IDLE;
        pthread_mutex_unlock(&objects->lock);
        if (feed == FEED_IDLE)
            break;
        if (feed == FEED_EVICT || feed == FEED_LOG) {
            if (feeder_makes_room(objects, feed, &need))
                continue;
            if (need.is_limited) {
                domain_sticks(objects, &need);
                continue;
            }
            if (feed == FEED_EVICT)
                sc_store_claims_stuck(objects->store);
            if (feeder_waits(objects, need.transfer, feed == FEED_LOG))
                break;
        } else if (feed == FEED_WAIT || feed == FEED_STUCK) {
            if (feeder_waits(objects, need.transfer, feed == FEED_WAIT))
                break;
        } else if (feed == FEED_RUNS) {
            if (sc_objects_issue(objects, need.transfer, &objects->writes))
                issue_ended(objects, need.transfer);
            else if (feeder_rests(objects))
                break;
        }
    }
    sc_objects_task_end(objects);
}

void sc_objects_puts_open(spec_objects *objects)
{
    objects->puts.task.step = feeder_step;
}
