/* log_gap: what follows bytes of the log that are not believed. Contract: log_gap.h.
 *
 *   [believed][torn or lost][frame that continues]       NEXT: nothing is missing
 *   [believed][damaged     ][...                 ]       RESTORED, if its checksum proves it
 *   [believed][damaged     ][frame of a later state]     GAP: its writer had read what is damaged
 *   [believed][torn                                 END  NONE
 *   [believed][damaged                              END  NONE, doubtful: a reset may have been last
 *
 * A frame is believed for its place: whoever wrote it had read everything before it, and no other
 * frame can have been meant for that place and stand there. So a frame that lost its race is never
 * believed, whatever is damaged around it (docs/decisions/0065). */
#include "store/log/log_gap.h"
#include "store/internal.h"

/* Searches the file from the end of the log on. */
static spec_status next_find(struct sc_store *store, struct sc_io_file *file, uint64_t file_bytes,
                             const struct sc_store_log_end *end,
                             struct sc_store_frame_search *search, bool *ret_found,
                             struct spec_error *reterr)
{
    uint8_t *bytes = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    spec_status status = SPEC_OK;
    if (bytes == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "a search in the log");
    *search = (struct sc_store_frame_search){.offset = end->offset};
    *ret_found = false;
    for (bool is_rest = false; !is_rest && !*ret_found && status == SPEC_OK;) {
        uint64_t count = file_bytes - search->offset;
        is_rest = count <= SC_STORE_WINDOW_BYTES;
        count = is_rest ? count : SC_STORE_WINDOW_BYTES;
        if (count > 0)
            status = sc_io_file_pread(store->io, file, bytes, count, search->offset, reterr);
        if (status == SPEC_OK)
            *ret_found = sc_store_frame_search(bytes, count, is_rest, end, search);
    }
    sc_alloc_free(store->params.alloc, bytes);
    return status;
}

static spec_status damaged_restore(struct sc_store *store, struct sc_io_file *file, uint64_t at,
                                   uint64_t file_bytes, const struct sc_store_frame_search *next,
                                   struct sc_store_log_end *end, struct sc_store_log_beyond *beyond,
                                   bool *ret_restored, struct spec_error *reterr)
{
    struct sc_alloc *alloc = store->params.alloc;
    uint64_t count = file_bytes - at;
    count = count < SC_STORE_RECOVER_BYTES ? count : SC_STORE_RECOVER_BYTES;
    uint8_t *bytes = sc_alloc(alloc, count);
    if (beyond->scratch == NULL)
        beyond->scratch = sc_alloc(alloc, SC_STORE_FRAME_BYTES_MAX);
    spec_status status = SPEC_OK;
    if (bytes == NULL || beyond->scratch == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "a damaged frame of the log");
    if (status == SPEC_OK)
        status = sc_io_file_pread(store->io, file, bytes, count, at, reterr);
    *ret_restored =
        status == SPEC_OK && sc_store_frame_recover(bytes, count, at, next, end, beyond->scratch,
                                                    &beyond->searches_left, &beyond->frame);
    sc_alloc_free(alloc, bytes);
    return status;
}

/* Nothing is believed, and no frame begins at `at`: decides whether an append was torn there. */
static spec_status tail_look(struct sc_store *store, struct sc_io_file *file, uint64_t at,
                             uint64_t file_bytes, const struct sc_store_log_end *end,
                             bool *ret_doubtful, struct spec_error *reterr)
{
    uint64_t count = file_bytes - at;
    count = count < SC_STORE_TAIL_BYTES ? count : SC_STORE_TAIL_BYTES;
    uint8_t *bytes = sc_alloc(store->params.alloc, count);
    if (bytes == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "the end of the log");
    spec_status status = sc_io_file_pread(store->io, file, bytes, count, at, reterr);
    *ret_doubtful = status == SPEC_OK && !sc_store_tail_is_torn(bytes, count, at, end);
    sc_alloc_free(store->params.alloc, bytes);
    return status;
}

spec_status sc_store_log_beyond(struct sc_store *store, struct sc_io_file *file, uint64_t at,
                                uint64_t file_bytes, struct sc_store_log_end *end,
                                struct sc_store_log_beyond *beyond,
                                enum sc_store_beyond *ret_beyond, struct spec_error *reterr)
{
    struct sc_store_frame_search search;
    bool is_found = false, is_restored = false;
    *ret_beyond = SC_STORE_BEYOND_NONE;
    spec_status status = next_find(store, file, file_bytes, end, &search, &is_found, reterr);
    if (status != SPEC_OK)
        return status;
    beyond->has_junk = search.has_junk;
    beyond->is_found = is_found;
    beyond->is_doubtful = false;
    if (is_found && !search.misses) {
        sc_store_log_jump(end, &search);
        *ret_beyond = SC_STORE_BEYOND_NEXT;
        return SPEC_OK;
    }
    if (!beyond->restores || at == file_bytes || (beyond->appends && !is_found))
        return SPEC_OK;
    if (!beyond->is_spent)
        status = damaged_restore(store, file, at, file_bytes, is_found ? &search : NULL, end,
                                 beyond, &is_restored, reterr);
    if (status != SPEC_OK)
        return status;
    if (is_restored) {
        *ret_beyond = SC_STORE_BEYOND_RESTORED;
    } else if (is_found) {
        beyond->gap =
            sc_store_jump_loses_resets(end, &search) ? SC_STORE_GAP_RESETS : SC_STORE_GAP_RECORDS;
        sc_store_log_jump(end, &search);
        *ret_beyond = SC_STORE_BEYOND_GAP;
    } else if (search.has_junk) {
        status = tail_look(store, file, search.junk, file_bytes, end, &beyond->is_doubtful, reterr);
    }
    return status;
}

void sc_store_log_beyond_done(struct sc_store *store, struct sc_store_log_beyond *beyond)
{
    sc_alloc_free(store->params.alloc, beyond->scratch);
    beyond->scratch = NULL;
}
