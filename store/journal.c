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

/* ---- Scan -----------------------------------------------------------------------------------
 *
 *   window A  [frame][frame][frame][fra]     applied by the caller
 *   window B  [frame][frame] ...             read and checked meanwhile, by a task of the executor
 *
 * The frame that a window cuts is read again by the next. */

struct window {
    struct sc_task task;
    struct scan *scan;
    uint8_t *buffer;
    uint64_t bytes; /* of whole frames that are believed */
    bool is_last;
    spec_status status;
    struct spec_error error;
    _Atomic uint32_t is_done;
};

struct scan {
    struct sc_store *store;
    struct window windows[2];
    uint64_t file_bytes;
    uint64_t offset, sequence, chain; /* of the last frame that was checked; one task at a time */
};

/* Reads from the last frame that was checked on, and checks what stands there. */
static spec_status window_fill(struct window *window, struct spec_error *reterr)
{
    struct scan *scan = window->scan;
    const struct sc_store_journal *journal = &scan->store->journal;
    uint64_t left = scan->file_bytes - scan->offset, frame_bytes;
    uint64_t count = left < SC_STORE_WINDOW_BYTES ? left : SC_STORE_WINDOW_BYTES;
    enum sc_store_frame_state state = SC_STORE_FRAME_SHORT;
    spec_status status = SPEC_OK;
    window->bytes = 0;
    if (count > 0)
        status = sc_io_file_pread(scan->store->io, journal->file, window->buffer, count,
                                  scan->offset, reterr);
    if (status != SPEC_OK)
        return status;
    for (;;) {
        state = sc_store_frame_check(window->buffer + window->bytes, count - window->bytes,
                                     scan->sequence + 1, &scan->chain, &frame_bytes);
        if (state != SC_STORE_FRAME_OK)
            break;
        window->bytes += frame_bytes;
        scan->sequence++;
    }
    scan->offset += window->bytes;
    window->is_last = state == SC_STORE_FRAME_BAD || count == left;
    return SPEC_OK;
}

static void window_step(struct sc_task *task)
{
    struct window *window = (struct window *)((char *)task - offsetof(struct window, task));
    struct sc_exec *exec = window->scan->store->params.exec;
    window->status = window_fill(window, &window->error);
    atomic_store(&window->is_done, 1); /* the scan may be over and gone from here on */
    sc_exec_wake(exec, &window->is_done);
}

static void window_post(struct window *window)
{
    atomic_store(&window->is_done, 0);
    sc_exec_post(window->scan->store->params.exec, &window->task, SC_LANE_DEMAND);
}

static spec_status window_wait(struct window *window, struct spec_error *reterr)
{
    struct sc_exec *exec = window->scan->store->params.exec;
    while (atomic_load(&window->is_done) == 0)
        if (!sc_exec_wait(exec, &window->is_done, 0, SC_EXEC_FOREVER))
            return sc_fail(reterr, SPEC_E_IO, "nothing reads the log");
    if (window->status != SPEC_OK)
        return sc_fail_errno(reterr, window->status, window->error.sys_errno, "%s",
                             window->error.text);
    return SPEC_OK;
}

/* Frames that were checked: their header says how long they are. */
static spec_status window_apply(const struct window *window, sc_store_on_payload *on_payload,
                                void *user, struct spec_error *reterr)
{
    struct sc_store *store = window->scan->store;
    struct sc_store_journal *journal = &store->journal;
    for (uint64_t at = 0; at < window->bytes;) {
        const uint8_t *frame = window->buffer + at;
        uint64_t bytes = sc_store_frame_bytes(frame);
        spec_status status = on_payload(store, frame + SC_STORE_FRAME_BYTES,
                                        bytes - SC_STORE_FRAME_BYTES, user, reterr);
        if (status != SPEC_OK)
            return status;
        journal->chain = sc_store_frame_chain(frame);
        journal->end += bytes;
        journal->sequence++;
        at += bytes;
    }
    return SPEC_OK;
}

static spec_status scan_run(struct scan *scan, sc_store_on_payload *on_payload, void *user,
                            struct spec_error *reterr)
{
    struct window *window = &scan->windows[0], *next = &scan->windows[1];
    window_post(window);
    spec_status status = window_wait(window, reterr);
    while (status == SPEC_OK) {
        bool is_last = window->is_last;
        if (!is_last)
            window_post(next);
        status = window_apply(window, on_payload, user, reterr);
        if (is_last)
            break;
        spec_status waited = window_wait(next, status == SPEC_OK ? reterr : NULL);
        status = status == SPEC_OK ? waited : status;
        struct window *spent = window;
        window = next;
        next = spent;
    }
    return status;
}

spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->journal;
    struct scan scan = {.store = store};
    uint8_t *buffer = sc_alloc(store->params.alloc, SC_STORE_WINDOW_BYTES);
    if (buffer == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "log buffer");
    spec_status status = sc_io_file_size(store->io, journal->file, &scan.file_bytes, reterr);
    for (uint32_t i = 0; i < 2; i++)
        scan.windows[i] = (struct window){.task = {.step = window_step},
                                          .scan = &scan,
                                          .buffer = i == 0 ? journal->buffer : buffer,
                                          .error = {.struct_size = sizeof(struct spec_error)}};
    journal->end = journal->sequence = 0;
    journal->chain = scan.chain =
        sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
    if (status == SPEC_OK)
        status = scan_run(&scan, on_payload, user, reterr);
    sc_alloc_free(store->params.alloc, buffer);
    *ret_bytes = scan.file_bytes;
    return status;
}

/* ---- Append --------------------------------------------------------------------------------- */

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
