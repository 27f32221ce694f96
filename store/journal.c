/* The log's file: scanned at open through a window, then appended to.
 *
 *   file    [frame 1][frame 2] ... [frame n] | bytes that are not believed
 *                                            ^ end: the next append, one write, goes here
 *
 * Holds: end, sequence and chain belong to the last frame that is believed; an append that failed
 * leaves them as they were, and its bytes are cut off or, if that fails too, never continued.
 * Does not: sync (order, not barriers: a lost tail is a miss), know what records mean.
 * Threads: the log lock, or open.
 * Tests: tests/unit/store/test_log.c */
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

_Static_assert(SC_STORE_WINDOW_BYTES >= 2 * (SC_STORE_FRAME_BYTES + SC_STORE_PAYLOAD_BYTES_MAX),
               "a whole frame stands in the window, wherever it begins");

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->journal;
    char path[SC_LIMIT_PATH_BYTES + 64];
    journal->buffer = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    journal->buffer_bytes = SC_STORE_WINDOW_BYTES;
    if (journal->buffer == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "log buffer");
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    return sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &journal->file,
                           reterr);
}

void sc_store_journal_close(struct sc_store *store)
{
    if (store->journal.file != NULL)
        sc_io_file_close(store->io, store->journal.file);
    sc_alloc_free(store->params.alloc, store->journal.buffer);
    store->journal = (struct sc_store_journal){0};
}

/* The part of the file that stands in the buffer. */
struct window {
    uint64_t offset; /* in the file, of the buffer's first byte */
    uint64_t at;     /* next frame, in the buffer */
    uint64_t count;  /* bytes in the buffer */
};

static spec_status window_fill(struct sc_store *store, struct window *window, uint64_t file_bytes,
                               struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->journal;
    memmove(journal->buffer, journal->buffer + window->at, window->count - window->at);
    window->offset += window->at;
    window->count -= window->at;
    window->at = 0;
    uint64_t left = file_bytes - window->offset - window->count;
    uint64_t room = journal->buffer_bytes - window->count;
    uint64_t bytes = left < room ? left : room;
    if (bytes == 0)
        return SPEC_OK;
    spec_status status = sc_io_file_pread(store->io, journal->file, journal->buffer + window->count,
                                          bytes, window->offset + window->count, reterr);
    if (status == SPEC_OK)
        window->count += bytes;
    return status;
}

spec_status sc_store_journal_scan(struct sc_store *store,
                                  spec_status (*on_payload)(struct sc_store *store,
                                                            const uint8_t *payload, uint64_t bytes,
                                                            void *user, struct spec_error *reterr),
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->journal;
    struct window window = {0};
    uint64_t file_bytes, frame_bytes;
    spec_status status = sc_io_file_size(store->io, journal->file, &file_bytes, reterr);
    journal->end = journal->sequence = 0;
    journal->chain =
        sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
    while (status == SPEC_OK) {
        const uint8_t *frame = journal->buffer + window.at;
        enum sc_store_frame_state state = sc_store_frame_check(
            frame, window.count - window.at, journal->sequence + 1, &journal->chain, &frame_bytes);
        if (state == SC_STORE_FRAME_SHORT &&
            window.offset + window.at + frame_bytes <= file_bytes) {
            status = window_fill(store, &window, file_bytes, reterr);
            continue;
        }
        if (state != SC_STORE_FRAME_OK)
            break;
        status = on_payload(store, frame + SC_STORE_FRAME_BYTES, frame_bytes - SC_STORE_FRAME_BYTES,
                            user, reterr);
        window.at += frame_bytes;
        journal->end += frame_bytes;
        journal->sequence++;
    }
    *ret_bytes = file_bytes;
    return status;
}

void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append)
{
    struct sc_store_journal *journal = &store->journal;
    *append = (struct sc_store_append){
        .writer = {.bytes = journal->buffer, .capacity = journal->buffer_bytes},
        .sequence = journal->sequence,
        .chain = journal->chain};
}

void sc_store_append_frame(struct sc_store_append *append)
{
    append->frame = sc_store_frame_begin(&append->writer);
}

void sc_store_append_frame_end(struct sc_store_append *append)
{
    sc_store_frame_end(&append->writer, append->frame, ++append->sequence, &append->chain);
}

spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->journal;
    if (append->writer.overflow)
        return sc_fail(reterr, SPEC_E_BUSY, "records of one commit exceed %" PRIu64 " bytes",
                       journal->buffer_bytes);
    if (store->journal_broken)
        return sc_fail(reterr, SPEC_E_IO, "%s/log failed before; nothing is stored until reopen",
                       store->dir);
    spec_status status = sc_io_file_pwrite(store->io, journal->file, append->writer.bytes,
                                           append->writer.used, journal->end, reterr);
    if (status != SPEC_OK) {
        sc_store_count(&store->io_errors, 1);
        if (sc_io_file_truncate(store->io, journal->file, journal->end, NULL) != SPEC_OK) {
            store->journal_broken = true;
            SC_LOG(store->params.log, 0, "%s/log cannot be written, storing stops", store->dir);
        }
        return status;
    }
    journal->end += append->writer.used;
    journal->sequence = append->sequence;
    journal->chain = append->chain;
    sc_store_count(&store->log_bytes, append->writer.used);
    return SPEC_OK;
}
