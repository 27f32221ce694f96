/* Contract: object_replay.h. */
#include "store/object/object_replay.h"
#include "store/log/record_format.h"
#include "store/replay/replay.h"

#include <string.h>

#define COPIES_LEAST 1024u

/* ---- Marks of copies ------------------------------------------------------------------------ */

struct copies { /* open addressing; mark 0: a free slot */
    struct sc_alloc *alloc;
    struct {
        uint64_t copy;
        uint32_t mark; /* GONE: removed */
        uint32_t reserved;
    } * slots;
    uint64_t mask, count; /* count: slots that are not free */
};
#define GONE UINT32_MAX

static bool copies_make(struct copies *copies, uint64_t slots)
{
    copies->slots = sc_alloc_array(copies->alloc, slots, sizeof(*copies->slots));
    copies->mask = slots - 1;
    copies->count = 0;
    return copies->slots != NULL;
}

/* Returns the slot of a copy, or its free slot. Copies ascend from a random base. */
static uint64_t copies_find(const struct copies *copies, uint64_t copy)
{
    uint64_t at = (copy * 0x9E3779B97F4A7C15ull >> 20) & copies->mask;
    while (copies->slots[at].mark != 0 && copies->slots[at].copy != copy)
        at = (at + 1) & copies->mask;
    return at;
}

/* Returns true if the slot's copy may be removed later. Cleared ones are only known to the
 * caller. */
static bool is_live(const struct sc_store_objects_params *params, const struct copies *copies,
                    uint64_t at)
{
    uint32_t mark = copies->slots[at].mark;
    if (mark == 0 || mark == GONE)
        return false;
    return params->knows == NULL || params->knows(mark, copies->slots[at].copy, params->user);
}

/* Makes room for one more; forgets what is gone. */
static bool copies_grow(const struct sc_store_objects_params *params, struct copies *copies)
{
    struct copies old = *copies;
    uint64_t slots = old.mask + 1, live = 0;
    for (uint64_t i = 0; i <= old.mask; i++)
        live += is_live(params, &old, i);
    if (!copies_make(copies, (live + 1) * 4 > slots ? slots * 2 : slots)) {
        *copies = old;
        return false;
    }
    for (uint64_t i = 0; i <= old.mask; i++)
        if (is_live(params, &old, i)) {
            copies->slots[copies_find(copies, old.slots[i].copy)] = old.slots[i];
            copies->count++;
        }
    sc_alloc_free(copies->alloc, old.slots);
    return true;
}

static bool copies_add(const struct sc_store_objects_params *params, struct copies *copies,
                       uint64_t copy, uint32_t mark)
{
    if ((copies->count + 1) * 2 > copies->mask && !copies_grow(params, copies))
        return false;
    uint64_t at = copies_find(copies, copy);
    copies->count += copies->slots[at].mark == 0;
    copies->slots[at].copy = copy;
    copies->slots[at].mark = mark;
    return true;
}

/* Returns the mark it had; 0: it is not known. */
static uint32_t copies_remove(struct copies *copies, uint64_t copy)
{
    uint64_t at = copies_find(copies, copy);
    uint32_t mark = copies->slots[at].mark;
    if (mark == 0 || mark == GONE)
        return 0;
    copies->slots[at].mark = GONE;
    return mark;
}

static void copies_clear(struct copies *copies)
{
    memset(copies->slots, 0, (copies->mask + 1) * sizeof(*copies->slots));
    copies->count = 0;
}

/* ---- Records --------------------------------------------------------------------------------- */

struct sc_store_object_replay {
    struct sc_store_objects_params params; /* its callbacks */
    struct copies copies;
    struct sc_store_object_batch batch;
    uint64_t refused, lies;
};

/* Whether something of the log cannot be kept, beside others. */
static void refuse(struct sc_store *store, const char *why)
{
    store->objects->refused++;
    if (!sc_store_replay_at_open(store) && !store->follow.rereads)
        sc_store_heir_end(store, why);
}

/* Turns file numbers into indices; opens segments of other processes. */
static bool parts_find(struct sc_store *store, struct sc_store_object *object)
{
    for (uint32_t i = 0; i < object->part_count; i++) {
        struct sc_store_object_part *part = &object->parts[i];
        struct sc_store_part place = {.offset = part->page * (uint64_t)SC_IO_PAGE_BYTES,
                                      .segment = part->segment,
                                      .layer_count = 1};
        if (!sc_store_follow_places(store, &place, 1, part->pages * (uint64_t)SC_IO_PAGE_BYTES))
            return false;
        part->segment = place.segment;
    }
    return true;
}

static bool pages_claim(struct sc_store *store, struct sc_store_object *object)
{
    if (sc_store_replay_at_open(store))
        return sc_store_object_pages_claim(store, object->parts, object->part_count);
    return parts_find(store, object) &&
           (!sc_store_keeps_space(store) ||
            sc_store_object_pages_take(store, object->parts, object->part_count));
}

static spec_status replay_object(struct sc_store *store, struct sc_store_object *object,
                                 struct spec_error *reterr)
{
    struct sc_store_object_replay *replay = store->objects;
    const struct sc_store_objects_params *params = &replay->params;
    uint32_t mark = replay->copies.slots[copies_find(&replay->copies, object->copy)].mark;
    spec_status status = SPEC_OK;
    if (mark != 0 && mark != GONE)
        return SPEC_OK;
    mark = 0;
    if (params->on_own == NULL || !params->on_own(object->copy, &mark, params->user)) {
        if (!pages_claim(store, object)) {
            refuse(store, "an object of another process has pages that are taken here");
            return SPEC_OK;
        }
        status = params->on_object(object, &mark, params->user, reterr);
        if (status != SPEC_OK && sc_store_keeps_space(store))
            sc_store_object_pages_free(store, object->parts, object->part_count);
    }
    if (status == SPEC_OK && !copies_add(params, &replay->copies, object->copy, mark))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "%" PRIu64 " objects of the log",
                       replay->copies.count);
    if (status != SPEC_E_BUSY)
        return status;
    refuse(store, "its index has no room for objects of the others");
    return SPEC_OK;
}

static spec_status replay_objects(struct sc_store *store, struct spec_error *reterr)
{
    spec_status status = SPEC_OK;
    for (uint32_t i = 0; i < store->objects->batch.count && status == SPEC_OK; i++)
        status = replay_object(store, &store->objects->batch.objects[i], reterr);
    return status;
}

static void replay_removal(struct sc_store_object_replay *replay, const uint8_t *copies,
                           uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t copy = sc_store_le_get(copies + 8ull * i, 8);
        uint32_t mark = copies_remove(&replay->copies, copy);
        if (mark != 0)
            replay->params.on_removed(mark, copy, replay->params.user);
    }
}

static spec_status version_check(struct sc_store *store, const struct sc_store_record *record,
                                 struct spec_error *reterr)
{
    bool is_known =
        record->type == SC_STORE_RECORD_HEAD ||
        (record->type >= SC_STORE_RECORD_DOMAIN && record->type <= SC_STORE_RECORD_SEAL);
    if (is_known && record->version == SC_STORE_RECORD_VERSION)
        return SPEC_OK;
    return sc_fail(reterr, SPEC_E_VERSION,
                   "%s/log record %" PRIu64 " has type %" PRIu64 " version %" PRIu64
                   ", this build reads types 6 and 11 to 17 version %u",
                   store->dir, store->log.journal.end.sequence + 1, record->type, record->version,
                   SC_STORE_RECORD_VERSION);
}

/* A removal may be among the records that are missing: its object must not come back, and later
 * ones may have its pages. Which one is not known. */
static void replay_gap(struct sc_store *store, enum sc_store_gap gap)
{
    if (!sc_store_replay_at_open(store))
        sc_store_heir_end(store, "records of the log are lost");
    if (gap == SC_STORE_GAP_RESETS)
        store->objects->params.on_cleared(0, store->objects->params.user);
}

/* Those of stores with members, and the head. */
static bool replay_shared(struct sc_store *store, const struct sc_store_payload *payload,
                          struct sc_store_record *record)
{
    if (!sc_store_record_decode(payload->at, payload->bytes, record))
        return false;
    if (record->type == SC_STORE_RECORD_SEGMENT)
        sc_store_segment_told(store, (uint32_t)record->id, record->segment_bytes);
    else if (record->type == SC_STORE_RECORD_LIMITS)
        sc_store_limits_told(store, record->disk_bytes);
    else if (record->type == SC_STORE_RECORD_SEAL)
        store->log.seal.record = record->seal;
    else if (store->log.journal.end.sequence == 0)
        store->log.journal.head = record->head;
    else
        return false;
    store->log.seal.is_set = record->type == SC_STORE_RECORD_SEAL;
    return true;
}

spec_status sc_store_object_replay_record(struct sc_store *store,
                                          const struct sc_store_payload *payload, void *user,
                                          struct spec_error *reterr)
{
    struct sc_store_object_replay *replay = store->objects;
    const struct sc_store_objects_params *params = &replay->params;
    struct sc_store_record record = {0};
    const uint8_t *bytes;
    uint32_t count;
    (void)user;
    if (payload->gap != SC_STORE_GAP_NONE)
        replay_gap(store, payload->gap);
    if (payload->at == NULL)
        return SPEC_OK;
    bool is_true = sc_store_record_peek(payload->at, payload->bytes, &record);
    spec_status status = is_true ? version_check(store, &record, reterr) : SPEC_OK;
    if (status != SPEC_OK)
        return status;
    store->log.seal.is_set = false;
    if (is_true && record.type == SC_STORE_RECORD_DOMAIN) {
        is_true = sc_store_record_get_domain(payload->at, payload->bytes, &bytes, &count) &&
                  record.id > 0 && record.id < SC_STORE_OBJECT_DOMAINS;
        if (is_true)
            status = params->on_domain((uint32_t)record.id, bytes, count, params->user, reterr);
    } else if (is_true && record.type == SC_STORE_RECORD_OBJECTS) {
        is_true = sc_store_record_get_objects(payload->at, payload->bytes, &replay->batch);
        if (is_true)
            status = replay_objects(store, reterr);
    } else if (is_true && record.type == SC_STORE_RECORD_REMOVAL) {
        is_true = sc_store_record_get_removal(payload->at, payload->bytes, &bytes, &count);
        if (is_true)
            replay_removal(replay, bytes, count);
    } else if (is_true && record.type == SC_STORE_RECORD_CLEAR) {
        if (record.id > 0 && record.id < SC_STORE_OBJECT_DOMAINS)
            params->on_cleared((uint32_t)record.id, params->user);
    } else if (is_true) {
        is_true = replay_shared(store, payload, &record);
    }
    replay->lies += !is_true;
    return status;
}

void sc_store_object_replay_tell(const struct sc_store *store,
                                 struct sc_store_objects_found *ret_found)
{
    ret_found->refused = store->objects->refused;
    ret_found->damaged = store->log.journal.damaged_count + store->objects->lies;
}

/* ---- Own records ----------------------------------------------------------------------------- */

spec_status sc_store_object_log_room(struct sc_store *store, uint32_t count,
                                     struct spec_error *reterr)
{
    struct copies *copies = &store->objects->copies;
    while (sc_store_is_member(store) && (copies->count + count) * 2 > copies->mask)
        if (!copies_grow(&store->objects->params, copies))
            return sc_fail(reterr, SPEC_E_NO_MEMORY, "marks of objects");
    return SPEC_OK;
}

void sc_store_object_logged(struct sc_store *store, const struct sc_store_object *objects,
                            uint32_t count)
{
    for (uint32_t i = 0; sc_store_is_member(store) && i < count; i++)
        (void)copies_add(&store->objects->params, &store->objects->copies, objects[i].copy,
                         objects[i].mark); /* log_room has made room */
}

void sc_store_object_unlogged(struct sc_store *store, const uint64_t *copies, uint64_t count)
{
    for (uint64_t i = 0; sc_store_is_member(store) && i < count; i++)
        (void)copies_remove(&store->objects->copies, copies[i]);
}

/* ---- Following ------------------------------------------------------------------------------- */

static spec_status on_open(struct sc_store *store, struct spec_error *reterr)
{
    (void)store;
    (void)reterr;
    return SPEC_OK;
}

/* All that this process knows goes, and comes back with the records: what is not found again is
 * gone. Meanwhile it is missed. */
static void on_restart(struct sc_store *store)
{
    struct sc_store_object_replay *replay = store->objects;
    store->follow.rereads = replay->copies.count > 0;
    if (replay->params.on_restart != NULL)
        replay->params.on_restart(replay->params.user);
    copies_clear(&replay->copies);
}

static void on_caught_up(struct sc_store *store)
{
    store->follow.rereads = false;
}

static void on_nothing(struct sc_store *store)
{
    (void)store;
}

static void on_forget(struct sc_store *store)
{
    sc_store_heir_end(store, "another store has its place");
    store->objects->params.on_cleared(0, store->objects->params.user);
    copies_clear(&store->objects->copies);
}

const struct sc_store_follow_calls sc_store_object_follow_calls = {
    .open = on_open,
    .restart = on_restart,
    .apply = sc_store_object_replay_record,
    .caught_up = on_caught_up,
    .sealed = on_nothing,
    .forget = on_forget,
    .appended = on_nothing};

/* ---- Open and close -------------------------------------------------------------------------- */

spec_status sc_store_object_replay_open(struct sc_store *store,
                                        const struct sc_store_objects_params *params,
                                        struct spec_error *reterr)
{
    store->objects = sc_alloc_zero(store->params.alloc, sizeof(*store->objects));
    if (store->objects == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
    store->objects->params = *params;
    store->objects->copies.alloc = store->params.alloc;
    if (!copies_make(&store->objects->copies, COPIES_LEAST))
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "replay buffers");
    return SPEC_OK;
}

void sc_store_object_replay_close(struct sc_store *store)
{
    if (store->objects != NULL)
        sc_alloc_free(store->params.alloc, store->objects->copies.slots);
    sc_alloc_free(store->params.alloc, store->objects);
    store->objects = NULL;
}
