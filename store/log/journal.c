/* journal: the log's file: scanned at open through windows, then appended to.
 *
 *   file    [frame 1][frame 2] ... [frame n] | bytes that are not believed |
 *                                            ^ end              file_end   ^ the next append, one
 *                                                                            write that names it
 *
 * Bytes that are not believed stay where they are: a scan goes on behind them (log_gap.h).
 *
 * Invariants: end belongs to the last believed frame. A failed append leaves it; what it wrote is
 * overwritten with zeros, or else nothing is ever appended again. So no place is written twice. If
 * an append lands elsewhere than at file_end, another process appends, and this one ends to.
 * Appends are not synced: a lost tail is a miss.
 * Threads: the log lock, or open.
 * Tests: tests/unit/store/test_log.c */
#include "store/log/journal.h"
#include "store/internal.h"
#include "store/log/log_gap.h"

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
    return sc_io_file_open(store->io, path,
                           SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE | SC_IO_OPEN_APPEND, &journal->file,
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
    uint64_t head_bytes;
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
    uint64_t from;               /* their offset in the file */
    uint64_t bytes;              /* bytes of whole frames: believed, or lost in a race */
    struct sc_store_log_end end; /* behind the last believed one */
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
    struct sc_store_log_end end;
    uint64_t at;        /* behind the last whole frame */
    const uint8_t *cut; /* rest of its window */
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
        const uint64_t head_bytes = (uint64_t)(sc_store_frame_payload(frame) - frame);
        if (!sc_store_frame_stands(frame, window->from + at) ||
            !sc_store_record_decode_plain(frame + head_bytes, frame_bytes - head_bytes,
                                          &decoded->piece))
            continue;
        decoded->at = at;
        decoded->bytes = frame_bytes;
        decoded->head_bytes = head_bytes;
        decoded->holds = sc_store_piece_holds(window->scan->store, &decoded->piece);
        decoded++;
        count++;
    }
    window->decoded_count = count;
}

static void window_check(struct window *window)
{
    struct scan *scan = window->scan;
    uint64_t count = scan->cut_bytes + window->count;
    enum sc_store_frame_state state;
    struct sc_store_frame frame;
    uint8_t *frames = window->room->memory + FRONT_BYTES - scan->cut_bytes + scan->skip;
    count -= scan->skip;
    scan->skip = 0;
    window->frames = frames;
    window->from = scan->at;
    if (scan->cut_bytes > 0)
        memcpy(frames, scan->cut, scan->cut_bytes);
    for (window->bytes = 0;; window->bytes += frame.bytes) {
        state = sc_store_frame_check(frames + window->bytes, count - window->bytes,
                                     window->from + window->bytes, &scan->end, &frame);
        if (state != SC_STORE_FRAME_OK && state != SC_STORE_FRAME_LOST)
            break;
    }
    window->end = scan->end;
    scan->at = window->from + window->bytes;
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
    for (uint64_t at = 0, frame_bytes; at < window->bytes; at += frame_bytes) {
        const uint8_t *frame = window->frames + at;
        struct sc_store_payload payload = {.gap = journal->gap};
        journal->end.offset = window->from + at;
        if (decoded < decoded_end && decoded->at == at) {
            payload.piece = &decoded->piece;
            payload.holds = decoded->holds;
            payload.at = frame + decoded->head_bytes;
            frame_bytes = decoded->bytes;
            window_soon(store, decoded, decoded_end);
            decoded++;
        } else {
            frame_bytes = sc_store_frame_bytes(frame);
            if (!sc_store_frame_stands(frame, window->from + at))
                continue;
            payload.at = sc_store_frame_payload(frame);
        }
        payload.bytes = frame_bytes - (uint64_t)(payload.at - frame);
        spec_status status = on_payload(store, &payload, user, reterr);
        if (status != SPEC_OK)
            return status;
        journal->gap = SC_STORE_GAP_NONE;
        journal->end.sequence++;
    }
    journal->end = window->end;
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

/* Scans from the journal's end on, as far as frames are whole. *ret_at: behind the last one. */
static spec_status scan_from(struct sc_store *store, sc_store_on_payload *on_payload, void *user,
                             uint64_t *ret_at, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct scan scan = {.store = store,
                        .file_bytes = journal->file_end,
                        .base = sc_store_down(journal->end.offset, SC_IO_PAGE_BYTES),
                        .end = journal->end,
                        .at = journal->end.offset};
    scan.skip = scan.at - scan.base;
    scan.window_bytes = window_bytes_of(scan.file_bytes - scan.base);
    scan.room_count = room_count_of(&scan);
    scan.rooms = sc_alloc_aligned(store->params.alloc, scan.room_count * sizeof(*scan.rooms),
                                  SC_IO_PAGE_BYTES);
    if (scan.rooms == NULL)
        return sc_fail(reterr, SPEC_E_NO_MEMORY, "log windows");
    scan.direct = direct_open(store, scan.file_bytes);
    spec_status status = scan_run(&scan, on_payload, user, reterr);
    if (scan.direct != NULL)
        sc_io_file_close(store->io, scan.direct);
    sc_alloc_free(store->params.alloc, scan.rooms);
    *ret_at = scan.at;
    return status;
}

void sc_store_journal_undamaged(struct sc_store_journal *journal)
{
    journal->damaged_count = journal->gap_count = journal->gap_digest = 0;
    journal->ends_in_doubt = false;
    journal->gap = SC_STORE_GAP_NONE;
}

void sc_store_journal_gap(struct sc_store_journal *journal, enum sc_store_gap gap, uint64_t to)
{
    journal->gap = gap > journal->gap ? gap : journal->gap;
    journal->gap_count++;
    journal->gap_digest = sc_store_gap_digest(journal->gap_digest, journal->end.offset, to);
}

static void damage_note(struct sc_store_journal *journal, uint64_t at)
{
    if (journal->damaged_count++ == 0)
        journal->damaged_offset = at;
}

/* The log ends in bytes that may have been a reset. Later appends count resets that nobody will
 * find, so that later readers see the gap, too. */
static spec_status end_doubt(struct sc_store *store, uint64_t at, sc_store_on_payload *on_payload,
                             void *user, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    const struct sc_store_payload payload = {.gap = SC_STORE_GAP_RESETS};
    journal->gap_count++;
    journal->ends_in_doubt = true;
    journal->end.resets = (uint16_t)(journal->end.resets + 2);
    damage_note(journal, at);
    return on_payload(store, &payload, user, reterr);
}

/* Decides how the scan goes on behind the frame at `at`, which is not believed. *ret_goes_on false:
 * the log ends. */
static spec_status scan_beyond(struct sc_store *store, uint64_t at, sc_store_on_payload *on_payload,
                               void *user, struct sc_store_log_beyond *beyond, bool *ret_goes_on,
                               struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_log_end end = journal->end;
    enum sc_store_beyond what;
    beyond->restores = true;
    beyond->is_spent = journal->damaged_count >= SC_STORE_DAMAGED_MAX;
    spec_status status = sc_store_log_beyond(store, journal->file, at, journal->file_end, &end,
                                             beyond, &what, reterr);
    *ret_goes_on = status == SPEC_OK && what != SC_STORE_BEYOND_NONE;
    if (status == SPEC_OK && beyond->is_doubtful)
        return end_doubt(store, at, on_payload, user, reterr);
    if (!*ret_goes_on)
        return status;
    if (what == SC_STORE_BEYOND_RESTORED) {
        const struct sc_store_payload payload = {
            .at = beyond->frame.payload, .bytes = beyond->frame.payload_bytes, .gap = journal->gap};
        journal->end.offset = at;
        status = on_payload(store, &payload, user, reterr);
        journal->gap = SC_STORE_GAP_NONE;
    } else if (what == SC_STORE_BEYOND_GAP) {
        sc_store_journal_gap(journal, beyond->gap, end.offset);
    }
    if (what != SC_STORE_BEYOND_NEXT)
        damage_note(journal, at);
    journal->end = end;
    return status;
}

spec_status sc_store_journal_scan(struct sc_store *store, sc_store_on_payload *on_payload,
                                  void *user, struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_store_log_beyond beyond = {.searches_left = SC_STORE_SEARCHES_MAX};
    spec_status status = sc_io_file_size(store->io, journal->file, &journal->file_end, reterr);
    if (status != SPEC_OK)
        return status;
    journal->end = sc_store_log_start(store);
    sc_store_journal_undamaged(journal);
    for (bool goes_on = true; goes_on && status == SPEC_OK;) {
        uint64_t at = 0;
        status = scan_from(store, on_payload, user, &at, reterr);
        beyond.has_junk = beyond.is_doubtful = false;
        goes_on = status == SPEC_OK && at < journal->file_end;
        if (goes_on)
            status = scan_beyond(store, at, on_payload, user, &beyond, &goes_on, reterr);
    }
    journal->is_torn = beyond.has_junk && !beyond.is_doubtful;
    sc_store_log_beyond_done(store, &beyond);
    return status;
}

/* ---- Append --------------------------------------------------------------------------------- */

void sc_store_append_begin(struct sc_store *store, struct sc_store_append *append)
{
    struct sc_store_journal *journal = &store->log.journal;
    *append = (struct sc_store_append){
        .writer = {.bytes = journal->buffer, .capacity = journal->buffer_bytes},
        .end = journal->end};
    append->end.offset = journal->file_end;
}

static void frame_end(struct sc_store_append *append)
{
    if (append->is_open)
        sc_store_frame_end(&append->writer, append->frame, append->resets, &append->end);
}

void sc_store_append_frame(struct sc_store_append *append)
{
    frame_end(append);
    append->frame = sc_store_frame_begin(&append->writer);
    append->is_open = true;
    append->resets = false;
}

void sc_store_append_reset(struct sc_store_append *append)
{
    sc_store_append_frame(append);
    append->resets = true;
}

/* Fails if what is behind the log's known end is not a part of our own append, or zeros. */
static spec_status part_check(struct sc_store *store, const struct sc_store_writer *writer,
                              uint64_t bytes)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint8_t *part = sc_alloc(store->params.alloc, bytes);
    if (part == NULL)
        return SPEC_E_NO_MEMORY;
    spec_status status =
        sc_io_file_pread(store->io, journal->file, part, bytes, journal->file_end, NULL);
    for (uint64_t i = 0; i < bytes && status == SPEC_OK && !store->log.is_beaten; i++)
        store->log.is_beaten = part[i] != 0 && (i >= writer->used || part[i] != writer->bytes[i]);
    sc_alloc_free(store->params.alloc, part);
    return store->log.is_beaten ? SPEC_E_IO : status;
}

/* An append failed. Overwrites what it left with zeros, and goes on behind it: no place in a log is
 * written twice. */
static spec_status part_void(struct sc_store *store, const struct sc_store_writer *writer)
{
    static const uint8_t zeros[SC_IO_PAGE_BYTES];
    struct sc_store_journal *journal = &store->log.journal;
    struct sc_io_file *file = NULL;
    char path[SC_LIMIT_PATH_BYTES + 64];
    bool is_same = false;
    uint64_t size, at = journal->file_end;
    (void)snprintf(path, sizeof(path), "%s/log", store->dir);
    spec_status status = sc_io_file_size(store->io, journal->file, &size, NULL);
    if (status != SPEC_OK || size <= at)
        return status;
    status = sc_io_file_open(store->io, path, SC_IO_OPEN_WRITE, &file, NULL);
    if (status == SPEC_OK)
        status = sc_io_file_same(store->io, journal->file, path, &is_same, NULL);
    if (status == SPEC_OK)
        status = is_same ? part_check(store, writer, size - at) : SPEC_E_IO;
    for (uint64_t bytes; status == SPEC_OK && at < size; at += bytes) {
        bytes = size - at < sizeof(zeros) ? size - at : sizeof(zeros);
        status = sc_io_file_pwrite(store->io, file, zeros, bytes, at, NULL);
    }
    if (file != NULL)
        sc_io_file_close(store->io, file);
    if (status != SPEC_OK)
        return status;
    sc_store_count(&store->counts.log_bytes, size - journal->file_end);
    journal->file_end = size;
    return SPEC_OK;
}

/* Appends where the journal says that its file ends. */
static spec_status bytes_append(struct sc_store *store, const struct sc_store_writer *writer,
                                struct spec_error *reterr)
{
    struct sc_store_journal *journal = &store->log.journal;
    uint64_t end;
    spec_status status =
        sc_io_file_append(store->io, journal->file, writer->bytes, writer->used, &end, reterr);
    if (status == SPEC_OK && end == journal->file_end + writer->used)
        return SPEC_OK;
    if (status == SPEC_OK && sc_store_is_member(store))
        return SPEC_PENDING; /* another process was faster */
    if (status == SPEC_OK) {
        store->log.is_broken = store->log.is_beaten = true;
        SC_LOG(store->params.log, 0, "%s/log: another process appended to it, storing stops",
               store->dir);
        return sc_fail(reterr, SPEC_E_IO,
                       "%s/log ends at byte %" PRIu64 ", not %" PRIu64 ":"
                       " another process appended to it",
                       store->dir, end - writer->used, journal->file_end);
    }
    sc_store_count(&store->counts.io_errors, 1);
    journal->is_short = journal->is_short || status == SPEC_E_NO_SPACE;
    store->log.turn.has_torn = true;
    if (sc_store_is_member(store))
        return status; /* whole frames of it are believed, and read like those of others */
    if (part_void(store, writer) != SPEC_OK) {
        store->log.is_broken = true;
        SC_LOG(store->params.log, 0, "%s/log cannot be written, storing stops", store->dir);
    }
    return status;
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
    spec_status status = bytes_append(store, &append->writer, reterr);
    if (status != SPEC_OK)
        return status;
    journal->is_short = false;
    if (journal->ends_in_doubt)
        journal->gap_digest =
            sc_store_gap_digest(journal->gap_digest, journal->end.offset, journal->file_end);
    journal->ends_in_doubt = false;
    journal->end = append->end;
    journal->file_end = append->end.offset;
    atomic_store(&store->counts.log_bytes, journal->file_end);
    if (store->turn_calls != NULL)
        store->turn_calls->appended(store);
    sc_store_write_budget_charge(store, SC_STORE_WRITTEN_LOG, append->writer.used);
    return SPEC_OK;
}
