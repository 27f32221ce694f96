/* log_epoch: resets: the record that increments a namespace's epoch.
 *
 *   log   ... [piece 7][piece 8][epoch 3 of namespace 1][piece 9] ...
 *             void from here on ^                        ^ of epoch 3
 *
 * Invariants: the record is in the log and the epoch published before any piece is void, also in a
 * follower. So a thread that finds a void piece can distinguish a reset from damage. The epoch
 * never decreases.
 * Threads: sc_store_epoch: any; sc_store_epoch_set: an executor's.
 * Tests: tests/unit/store/test_follow.c, test_checkpoint.c */
#include "store/internal.h"

#include <string.h>

uint64_t sc_store_epoch(struct sc_store *store)
{
    return atomic_load(&store->log.epoch);
}

/* Appends the epoch's record, and the namespace's if it is new. Log lock held. */
static spec_status epoch_append(struct sc_store *store, uint64_t epoch, struct spec_error *reterr)
{
    struct sc_store_append append;
    uint64_t space = atomic_load(&store->log.space_id);
    bool is_new = space == 0;
    spec_status status = SPEC_OK;
    if (is_new)
        status = sc_store_spaces_take(&store->log.spaces, SPEC_E_NO_SPACE, store->dir, reterr);
    if (status != SPEC_OK)
        return status;
    space = is_new ? store->log.spaces.next : space;
    sc_store_append_begin(store, &append);
    if (is_new) {
        sc_store_append_frame(&append);
        sc_store_record_encode_space(&append.writer, space, &store->params.space);
    }
    sc_store_append_reset(&append);
    sc_store_record_encode_epoch(&append.writer, space, epoch, sc_exec_wall_ns(store->params.exec));
    status = sc_store_append_commit(store, &append, reterr);
    if (status != SPEC_OK)
        return status;
    if (is_new) {
        (void)sc_store_spaces_add(&store->log.spaces, space, &store->shape,
                                  sc_store_record_bytes_space(strlen(store->descriptor)));
        atomic_store(&store->log.space_id, (uint32_t)space);
        if (store->turn_calls != NULL)
            store->turn_calls->space_appended(store, space);
    }
    sc_store_space_find(&store->log.spaces, space)->epoch = epoch;
    atomic_store(&store->log.epoch, epoch);
    return SPEC_OK;
}

spec_status sc_store_epoch_set(struct sc_store *store, uint64_t epoch, struct spec_error *reterr)
{
    if (!sc_store_can_store(store))
        return sc_fail(reterr, SPEC_E_UNSUPPORTED, "a reset is the writer's");
    uint64_t bytes =
        SC_STORE_EPOCH_BYTES + sc_store_record_bytes_space(strlen(store->params.space.descriptor));
    if (epoch <= sc_store_epoch(store))
        return SPEC_OK;
    if (!sc_store_log_reserve_epoch(store, bytes))
        return sc_fail(reterr, SPEC_E_NO_SPACE, "%s: no room for the log in disk_bytes",
                       store->dir);
    spec_status status = SPEC_OK;
    bool moves = false;
    uint64_t piece_end;
    sc_store_log_enter(store);
    do {
        piece_end = store->table.piece_next;
        moves = epoch > sc_store_epoch(store); /* no other thread or process was faster */
        if (moves)
            status = epoch_append(store, epoch, reterr);
    } while (sc_store_log_again(store, &status, reterr));
    moves = moves && status == SPEC_OK;
    sc_store_log_leave(store);
    sc_store_log_unreserve(store, bytes);
    /* Void from now on, not from the record's time: a follower may have read in between. */
    if (moves)
        (void)sc_store_pieces_void(store, atomic_load(&store->log.space_id), piece_end, UINT64_MAX);
    return status;
}
