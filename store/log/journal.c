/* journal: the log's file: scanned at open through windows, then appended to.
 *
 *   file    [frame 1][frame 2] ... [frame n] | bytes that are not believed
 *                                            ^ end: the next append, one write
 *
 * A scan restores a damaged frame if possible (store/log/frame_recover.c) and continues after it.
 *
 * Invariants: end, sequence and chain belong to the last valid frame. A failed append leaves them;
 * its bytes are truncated, or else nothing is ever appended again. Appends are not synced: a lost
 * tail is a miss.
 * Threads: the log lock, or open.
 * Tests: tests/unit/store/test_log.c */
#include "store/log/journal.h"
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

#define DIRECT_BYTES_MIN (1u << 20) /* below, a copy through the page cache costs nothing */

spec_status sc_store_journal_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
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
    if (store->log.journal.file != NULL)
        sc_io_file_close(store->io, store->log.journal.file);
    sc_alloc_free(store->params.alloc, store->log.journal.buffer);
    store->log.journal = (struct sc_store_journal){0};
}

/* ---- Scan -----------------------------------------------------------------------------------
 *
 *   window n        [frame][frame][fra]            applied by the caller
 *   window n + 1 .. [me][frame][frame][frame][f]   meanwhile checked by tasks, one after the other.
 *                                                  The previous window's cut frame is put in front.
 *                                                  Decoded and hashed beside the next check
 *   later windows   [................]             read meanwhile
 *
 * A window is checked when its read and the previous check are done; the later of both posts the
 * check. A long log is read directly, in whole pages, by the back end's operations. */

#define WINDOWS           16u
#define WINDOW_BYTES_MAX  (512u << 10)
#define WINDOW_BYTES_MIN  (64u << 10) /* whole pages */
#define WINDOWS_WANTED    32u /* short logs: small windows let decoding and applying start early */
#define FRONT_BYTES       (SC_STORE_PAYLOAD_BYTES_MAX + SC_IO_PAGE_BYTES)
#define SOON              8u /* pieces: longer than a memory access */
#define SOON_MORE         8u /* for the pointer to it, earlier still */
#define LINE_BYTES        64u
#define TOKENS_SOON_BYTES (4u * 64u) /* of a piece's tokens; hardware prefetch does the rest */
#define DECODED_MAX       2048u      /* pieces per window; the caller decodes the rest */

_Static_assert(SC_STORE_FRAME_BYTES <= SC_IO_PAGE_BYTES, "a cut frame fits in front of a window");

/* A piece of our version without marks. */
struct decoded {
    uint64_t at, bytes; /* offset and size of its frame */
    bool holds;
    struct sc_store_piece piece;
};

struct room {
    _Alignas(SC_IO_PAGE_BYTES) uint8_t memory[FRONT_BYTES + WINDOW_BYTES_MAX]; /* front, window */
    struct decoded decoded[DECODED_MAX];
};

struct window {
    struct sc_task reads, checks;
    struct sc_io_op op; /* replaces the task `reads` for direct reads */
    struct scan *scan;
    struct room *room;
    uint64_t offset, count; /* in the file */
    uint8_t *frames;
    uint64_t bytes; /* bytes of valid whole frames */
    uint64_t decoded_count;
    bool is_last;
    spec_status status;
    struct spec_error error;
    _Atomic uint32_t gates;      /* done: its read, the previous check; at 2 it is checked */
    _Atomic uint32_t is_checked; /* 1: checked, or failed (status) */
};

struct scan {
    struct sc_store *store;
    struct window windows[WINDOWS];
    struct room *rooms; /* [room_count] windows in use at once */
    uint32_t room_count;
    uint64_t file_bytes, window_bytes;
    uint64_t base, skip;       /* start of the first window; its bytes scanned before */
    struct sc_io_file *direct; /* NULL: read through the page cache */
    _Atomic uint32_t running;  /* posted reads and checks */
    _Atomic bool is_over;      /* the rest is not needed */

    /* Owned by the running check. */
    uint64_t sequence, chain; /* of the last checked frame */
    const uint8_t *cut;       /* rest of its window */
    uint64_t cut_bytes;
};

/* The last step of a read or check: the scan may be freed afterwards. */
static void task_end(struct scan *scan)
{
    struct sc_exec *exec = scan->store->params.exec;
    if (atomic_fetch_sub(&scan->running, 1) == 1)
        sc_exec_wake(exec, &scan->running);
}

static void window_gate(struct window *window)
{
    struct scan *scan = window->scan;
    if (atomic_fetch_add(&window->gates, 1) == 0)
        return;
    atomic_store(&window->gates, 0); /* for the window that reuses it */
    atomic_fetch_add(&scan->running, 1);
    sc_exec_post(scan->store->params.exec, &window->checks, SC_IO_CLASS_DEMAND);
}

/* Reads the window from byte `from` on through the page cache. */
static void window_read(struct window *window, uint64_t from)
{
    struct sc_store *store = window->scan->store;
    uint8_t *bytes = window->room->memory + FRONT_BYTES;
    if (window->status == SPEC_OK && window->count > from)
        window->status =
            sc_io_file_pread(store->io, store->log.journal.file, bytes + from, window->count - from,
                             window->offset + from, &window->error);
    window_gate(window);
    task_end(window->scan);
}

static void window_read_step(struct sc_task *task)
{
    struct window *window = (struct window *)((char *)task - offsetof(struct window, reads));
    window_read(window, window->op.bytes);
}

/* Runs on the back end's thread; a task reads the part behind the last whole page. */
static void window_read_done(struct sc_io_op *op)
{
    struct window *window = op->user;
    struct scan *scan = window->scan;
    if (op->status != SPEC_OK)
        window->status =
            sc_fail_errno(&window->error, op->status, op->sys_errno,
                          "%s/log cannot be read at byte %" PRIu64, scan->store->dir, op->offset);
    if (window->status == SPEC_OK && window->count > op->bytes) {
        sc_exec_post(scan->store->params.exec, &window->reads, SC_IO_CLASS_DEMAND);
        return;
    }
    window_gate(window);
    task_end(scan);
}

/* Decodes checked frames. */
static void window_decode(struct window *window)
{
    struct decoded *decoded = window->room->decoded;
    uint64_t frame_bytes, count = 0;
    for (uint64_t at = 0; at < window->bytes && count < DECODED_MAX; at += frame_bytes) {
        uint8_t *frame = window->frames + at;
        frame_bytes = sc_store_frame_bytes(frame);
        if (!sc_store_record_decode_plain(frame + SC_STORE_FRAME_BYTES,
                                          frame_bytes - SC_STORE_FRAME_BYTES, &decoded->piece))
            continue;
        decoded->at = at;
        decoded->bytes = frame_bytes;
        decoded->holds = sc_store_piece_holds(window->scan->store, &decoded->piece);
        decoded++;
        count++;
    }
    window->decoded_count = count;
}

static void window_check(struct window *window)
{
    struct scan *scan = window->scan;
    uint64_t count = scan->cut_bytes + window->count, frame_bytes;
    enum sc_store_frame_state state;
    uint8_t *frames = window->room->memory + FRONT_BYTES - scan->cut_bytes + scan->skip;
    count -= scan->skip;
    scan->skip = 0;
    window->frames = frames;
    if (scan->cut_bytes > 0)
        memcpy(frames, scan->cut, scan->cut_bytes);
    for (window->bytes = 0;; window->bytes += frame_bytes, scan->sequence++) {
        state = sc_store_frame_check(window->frames + window->bytes, count - window->bytes,
                                     scan->sequence + 1, &scan->chain, &frame_bytes);
        if (state != SC_STORE_FRAME_OK)
            break;
    }
    scan->cut = window->frames + window->bytes;
    scan->cut_bytes = count - window->bytes;
    window->is_last = state == SC_STORE_FRAME_BAD || scan->cut_bytes > FRONT_BYTES ||
                      window->offset + window->count == scan->file_bytes;
}

static void window_check_step(struct sc_task *task)
{
    struct window *window = (struct window *)((char *)task - offsetof(struct window, checks));
    struct scan *scan = window->scan;
    struct sc_exec *exec = scan->store->params.exec;
    bool is_wanted = window->status == SPEC_OK && !atomic_load(&scan->is_over);
    if (is_wanted)
        window_check(window);
    else
        window->is_last = true;
    if (!window->is_last) /* checked while this one is decoded */
        window_gate(&scan->windows[(window - scan->windows + 1) % WINDOWS]);
    if (is_wanted)
        window_decode(window);
    atomic_store(&window->is_checked, 1);
    sc_exec_wake(exec, &window->is_checked);
    task_end(scan);
}

static spec_status word_wait(const struct scan *scan, _Atomic uint32_t *word, uint32_t wanted,
                             struct spec_error *reterr)
{
    for (;;) {
        uint32_t seen = atomic_load(word);
        if (seen == wanted)
            return SPEC_OK;
        if (!sc_exec_wait(scan->store->params.exec, word, seen, SC_EXEC_FOREVER))
            return sc_fail(reterr, SPEC_E_IO, "nothing reads the log");
    }
}

/* Starts window n in the slot of n - WINDOWS, if the log is that long. */
static void read_post(struct scan *scan, uint64_t n)
{
    struct window *window = &scan->windows[n % WINDOWS];
    if (n > 0 && scan->base + n * scan->window_bytes >= scan->file_bytes)
        return;
    window->offset = scan->base + n * scan->window_bytes;
    window->count = scan->file_bytes - window->offset;
    if (window->count > scan->window_bytes)
        window->count = scan->window_bytes;
    uint64_t pages = 0;
    if (scan->direct != NULL)
        pages = sc_store_down(window->count, SC_IO_PAGE_BYTES);
    window->op = (struct sc_io_op){.file = scan->direct,
                                   .buffer = window->room->memory + FRONT_BYTES,
                                   .offset = window->offset,
                                   .bytes = pages,
                                   .kind = SC_IO_READ,
                                   .io_class = SC_IO_CLASS_DEMAND,
                                   .done = window_read_done,
                                   .user = window};
    atomic_store(&window->is_checked, 0);
    atomic_fetch_add(&scan->running, 1);
    struct sc_io_op *op = &window->op;
    if (pages > 0)
        sc_io_submit(scan->store->io, &op, 1);
    else
        sc_exec_post(scan->store->params.exec, &window->reads, SC_IO_CLASS_DEMAND);
}

/* Prefetches what the caller reads soon, which another CPU wrote. */
static void window_soon(const struct sc_store *store, const struct decoded *decoded,
                        const struct decoded *end)
{
    if (end - decoded > (ptrdiff_t)(SOON + SOON_MORE))
        for (uint64_t at = 0; at < sizeof(*decoded); at += LINE_BYTES)
            __builtin_prefetch((const uint8_t *)(decoded + SOON + SOON_MORE) + at);
    if (end - decoded <= (ptrdiff_t)SOON)
        return;
    const struct sc_store_piece *piece = &decoded[SOON].piece;
    for (uint64_t at = 0; at < TOKENS_SOON_BYTES; at += LINE_BYTES)
        __builtin_prefetch((const uint8_t *)piece->tokens + at);
    if (store->params.on_piece_soon != NULL)
        store->params.on_piece_soon(piece->hash, store->params.user);
}

/* Applies checked frames. Decoded entries carry their frame's size, so the frame itself, in another
 * CPU's cache, is not read. */
static spec_status window_apply(const struct window *window, sc_store_on_payload *on_payload,
                                void *user, struct spec_error *reterr)
{
    struct sc_store *store = window->scan->store;
    struct sc_store_journal *journal = &store->log.journal;
    const struct decoded *decoded = window->room->decoded;
    const struct decoded *decoded_end = decoded + window->decoded_count;
    const uint8_t *frame = window->frames;
    for (uint64_t at = 0; at < window->bytes;) {
        struct sc_store_payload payload = {0};
        frame = window->frames + at;
        if (decoded < decoded_end && decoded->at == at) {
            payload = (struct sc_store_payload){.piece = &decoded->piece, .holds = decoded->holds};
            payload.bytes = decoded->bytes - SC_STORE_FRAME_BYTES;
            window_soon(store, decoded, decoded_end);
            decoded++;
        } else {
            payload.bytes = sc_store_frame_bytes(frame) - SC_STORE_FRAME_BYTES;
        }
        payload.at = frame + SC_STORE_FRAME_BYTES;
        spec_status status = on_payload(store, &payload, user, reterr);
        if (status != SPEC_OK)
            return status;
        journal->end += SC_STORE_FRAME_BYTES + payload.bytes;
        journal->sequence++;
        at += SC_STORE_FRAME_BYTES + payload.bytes;
    }
    if (window->bytes > 0)
        journal->chain = sc_store_frame_chain(frame);
    SC_ASSERT(store->params.poison, decoded == decoded_end);
    return SPEC_OK;
}

static uint64_t window_bytes_of(uint64_t file_bytes)
{
    uint64_t bytes = WINDOW_BYTES_MIN;
    while (bytes < WINDOW_BYTES_MAX && bytes * WINDOWS_WANTED < file_bytes)
        bytes *= 2;
    return bytes;
}

/* As read_post starts them: the first exists even if the log is empty. */
static uint32_t room_count_of(const struct scan *scan)
{
    uint64_t bytes = scan->file_bytes - scan->base, count = bytes / scan->window_bytes;
    count += count * scan->window_bytes < bytes || count == 0;
    return count < WINDOWS ? (uint32_t)count : WINDOWS;
}

/* Estimates the number of pieces from the first window. */
static void pieces_soon(const struct scan *scan, const struct window *first)
{
    const struct sc_store_params *params = &scan->store->params;
    if (params->on_pieces_soon != NULL && first->decoded_count > 0)
        params->on_pieces_soon(scan->file_bytes / (first->bytes / first->decoded_count),
                               params->user);
}

static spec_status scan_windows(struct scan *scan, sc_store_on_payload *on_payload, void *user,
                                struct spec_error *reterr)
{
    for (uint64_t n = 0; n < WINDOWS; n++)
        read_post(scan, n);
    for (uint64_t n = 0;; n++) {
        struct window *window = &scan->windows[n % WINDOWS];
        spec_status status = word_wait(scan, &window->is_checked, 1, reterr);
        if (status != SPEC_OK)
            return status;
        if (n > 0) /* its cut frame was copied before this one */
            read_post(scan, n - 1 + WINDOWS);
        if (window->status != SPEC_OK)
            return sc_fail_errno(reterr, window->status, window->error.sys_errno, "%s",
                                 window->error.text);
        bool is_last = window->is_last;
        if (n == 0 && scan->base == 0)
            pieces_soon(scan, window);
        status = window_apply(window, on_payload, user, reterr);
        if (is_last || status != SPEC_OK)
            return status;
    }
}

static spec_status scan_run(struct scan *scan, sc_store_on_payload *on_payload, void *user,
                            struct spec_error *reterr)
{
    for (uint32_t i = 0; i < WINDOWS; i++)
        scan->windows[i] = (struct window){.reads = {.step = window_read_step},
                                           .checks = {.step = window_check_step},
                                           .scan = scan,
                                           .room = i < scan->room_count ? &scan->rooms[i] : NULL,
                                           .error = {.struct_size = sizeof(struct spec_error)},
                                           .gates = i == 0 ? 1 : 0};
    spec_status status = scan_windows(scan, on_payload, user, reterr);
    atomic_store(&scan->is_over, true);
    (void)word_wait(scan, &scan->running, 0, NULL); /* reads beyond the end */
    return status;
}

/* NULL: the log is read through the page cache. */
static struct sc_io_file *direct_open(struct sc_store *store, uint64_t file_bytes)
{
    struct sc_io_file *file = NULL;
    char path[SC_LIMIT_PATH_BYTES + 64];
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    if (file_bytes < DIRECT_BYTES_MIN ||
        sc_io_file_open(store->io, path, SC_IO_OPEN_DIRECT, &file, NULL) != SPEC_OK)
        return NULL;
    return file;
}

/* Scans from the journal's end on, as far as frames are valid. */
static spec_status scan_from(struct sc_store *store, uint64_t file_bytes,
                             sc_store_on_payload *on_payload, void *user, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct scan scan = {.store = store,
                        .file_bytes = file_bytes,
                        .base = sc_store_down(journal->end, SC_IO_PAGE_BYTES),
                        .sequence = journal->sequence,
                        .chain = journal->chain};
    scan.skip = journal->end - scan.base;
    scan.window_bytes = window_bytes_of(file_bytes - scan.base);
    scan.room_count = room_count_of(&scan);
    scan.rooms = sc_alloc_aligned(store->params.alloc, scan.room_count * sizeof(*scan.rooms),
                                  SC_IO_PAGE_BYTES);
    if (scan.rooms == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "log windows");
    scan.direct = direct_open(store, file_bytes);
    spec_status status = scan_run(&scan, on_payload, user, reterr);
    if (scan.direct != NULL)
        sc_io_file_close(store->io, scan.direct);
    sc_alloc_free(store->params.alloc, scan.rooms);
    return status;
}

/* Applies a restored frame and moves the journal's end behind it. */
static spec_status restored_apply(struct sc_store *store, const struct sc_store_recovered *found,
                                  sc_store_on_payload *on_payload, void *user,
                                  struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    const struct sc_store_payload payload = {.at = found->payload,
                                             .bytes = found->frame_bytes - SC_STORE_FRAME_BYTES};
    spec_status status = on_payload(store, &payload, user, reterr);
    if (status != SPEC_OK)
        return status;
    if (journal->damaged_count++ == 0)
        journal->damaged_offset = journal->end;
    journal->end += found->frame_bytes;
    journal->sequence++;
    journal->chain = found->chain;
    return SPEC_OK;
}

/* Handles an invalid frame at the journal's end: restores it, or classifies the end. */
static spec_status scan_restore(struct sc_store *store, uint64_t file_bytes,
                                sc_store_on_payload *on_payload, void *user,
                                uint32_t *searches_left, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_alloc *alloc = store->params.alloc;
    struct sc_store_recovered found;
    uint64_t count = file_bytes - journal->end;
    count = count < SC_STORE_RECOVER_BYTES ? count : SC_STORE_RECOVER_BYTES;
    uint8_t *bytes = sc_alloc(alloc, count);
    uint8_t *scratch =
        sc_alloc(alloc, count < SC_STORE_FRAME_BYTES_MAX ? count : SC_STORE_FRAME_BYTES_MAX);
    spec_status status = SPEC_OK;
    if (bytes == NULL || scratch == NULL)
        status = sc_fail(reterr, SPEC_E_NO_MEMORY, "a damaged frame of the log");
    if (status == SPEC_OK)
        status = sc_io_file_pread(store->io, journal->file, bytes, count, journal->end, reterr);
    if (status == SPEC_OK && journal->damaged_count < SC_STORE_DAMAGED_MAX &&
        sc_store_frame_recover(bytes, count, journal->sequence + 1, journal->chain, scratch,
                               searches_left, &found))
        status = restored_apply(store, &found, on_payload, user, reterr);
    else if (status == SPEC_OK)
        journal->is_cut_short = sc_store_frame_is_ahead(bytes, count, journal->sequence + 1);
    sc_alloc_free(alloc, scratch);
    sc_alloc_free(alloc, bytes);
    return status;
}

spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, uint64_t *ret_bytes, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint32_t searches_left = SC_STORE_SEARCHES_MAX;
    uint64_t file_bytes, from = UINT64_MAX;
    spec_status status = sc_io_file_size(store->io, journal->file, &file_bytes, reterr);
    if (status != SPEC_OK)
        return status;
    journal->end = journal->sequence = journal->damaged_count = 0;
    journal->is_cut_short = false;
    journal->chain =
        sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
    while (status == SPEC_OK && journal->end != from) {
        status = scan_from(store, file_bytes, on_payload, user, reterr);
        from = journal->end;
        if (status == SPEC_OK && from < file_bytes)
            status = scan_restore(store, file_bytes, on_payload, user, &searches_left, reterr);
    }
    *ret_bytes = file_bytes;
    return status;
}

/* ---- Append --------------------------------------------------------------------------------- */

void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append)
{
    struct sc_store_journal *journal = &store->log.journal;
    *append = (struct sc_store_append){
        .writer = {.bytes = journal->buffer, .capacity = journal->buffer_bytes},
        .sequence = journal->sequence,
        .chain = journal->chain};
}

static void frame_end(struct sc_store_append *append)
{
    if (append->is_open)
        sc_store_frame_end(&append->writer, append->frame, ++append->sequence, &append->chain);
}

void sc_store_append_frame(struct sc_store_append *append)
{
    frame_end(append);
    append->frame = sc_store_frame_begin(&append->writer);
    append->is_open = true;
}

spec_status sc_store_append_commit(struct sc_store *store, struct sc_store_append *append,
                                   struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    frame_end(append);
    if (append->writer.overflow)
        return sc_fail(reterr, SPEC_E_BUSY, "records of one commit exceed %" PRIu64 " bytes",
                       journal->buffer_bytes);
    if (store->log.is_broken)
        return sc_fail(reterr, SPEC_E_IO, "%s/log failed before; nothing is stored until reopen",
                       store->dir);
    spec_status status = sc_io_file_pwrite(store->io, journal->file, append->writer.bytes,
                                           append->writer.used, journal->end, reterr);
    if (status != SPEC_OK) {
        sc_store_count(&store->counts.io_errors, 1);
        journal->is_short = journal->is_short || status == SPEC_E_NO_SPACE;
        if (sc_io_file_truncate(store->io, journal->file, journal->end, NULL) != SPEC_OK) {
            store->log.is_broken = true;
            SC_LOG(store->params.log, 0, "%s/log cannot be written, storing stops", store->dir);
        }
        return status;
    }
    journal->is_short = false;
    journal->end += append->writer.used;
    journal->sequence = append->sequence;
    journal->chain = append->chain;
    sc_store_count(&store->counts.log_bytes, append->writer.used);
    sc_store_write_budget_charge(store, SC_STORE_WRITTEN_LOG, append->writer.used);
    return SPEC_OK;
}
