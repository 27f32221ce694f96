/* notify_file: messages from readers and other ranks to a rank's writer.
 *
 *   rank-RRRR-of-NNNN/mail       [record 128][record 128] ...          at most 16 KiB
 *                    /mail.lock  held while a record is appended or the file is cut
 *
 *   record   magic "SCM1" | kind u32 | epoch u64 | piece u64 | hash 16 | family 16 | 0 ...
 *            ... | checksum u64 at byte 120: XXH3-64 of the bytes before, seeded with store id and
 *            rank, so that records of other stores or ranks are invalid
 *
 *   post     lock, pad to a 128-byte border (an append may have been torn), append, unlock
 *   take     read on from the last take; if everything is taken and the file is long: lock, keep
 *            each family's last epoch, truncate the rest, unlock
 *
 * The size bound counts under disk_bytes (SC_STORE_FIXED_BYTES). A full file makes the sender
 * retry. Bytes beyond the bound are not read, and are cut off.
 *
 * Invariants: a whole record is taken at least once. A torn or foreign one is skipped to the next
 * border and counted. Epochs of other families stay for their writers (the last
 * SC_STORE_NOTIFY_FAMILIES of them). Nothing waits for a lock (SPEC_PENDING) or syncs.
 * Threads: post any executor thread; take and close one at a time.
 * Tests: tests/unit/store/test_notify.c */
#include "store/log/notify_file.h"
#include "store/internal.h"
#include "store/rows/tag.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NOTIFY_MAGIC        0x314d4353u /* "SCM1" */
#define NOTIFY_RECORD_BYTES 128u
#define NOTIFY_CHECKSUM_AT  120u
#define NOTIFY_BATCH        32u /* records read at once */
#define NOTIFY_NAME         "mail"
#define NOTIFY_LOCK_NAME    "mail.lock"
_Static_assert(SC_STORE_NOTIFY_BYTES_MAX % NOTIFY_RECORD_BYTES == 0, "whole records");
_Static_assert(SC_STORE_NOTIFY_CUT_BYTES > SC_STORE_NOTIFY_FAMILIES * NOTIFY_RECORD_BYTES,
               "a cut makes the file shorter");

/* ---- Records -------------------------------------------------------------------------------- */

static uint64_t notify_seed(const struct sc_store *store, uint32_t rank)
{
    struct sc_store_log_end log;
    sc_store_log_begin(&log, store->store_id, rank, store->params.rank_count);
    return sc_store_checksum(NOTIFY_NAME, sizeof(NOTIFY_NAME) - 1, log.seed);
}

static void notify_encode(const struct sc_store_notify *notify, uint64_t seed,
                          uint8_t bytes[NOTIFY_RECORD_BYTES])
{
    const uint32_t magic = NOTIFY_MAGIC;
    memset(bytes, 0, NOTIFY_RECORD_BYTES);
    memcpy(bytes, &magic, 4);
    memcpy(bytes + 4, &notify->kind, 4);
    memcpy(bytes + 8, &notify->epoch, 8);
    memcpy(bytes + 16, &notify->piece, 8);
    memcpy(bytes + 24, notify->hash, SC_STORE_HASH_BYTES);
    memcpy(bytes + 40, notify->family, SC_STORE_HASH_BYTES);
    uint64_t checksum = sc_store_checksum(bytes, NOTIFY_CHECKSUM_AT, seed);
    memcpy(bytes + NOTIFY_CHECKSUM_AT, &checksum, 8);
}

/* false: torn, foreign, or of an unknown kind. */
static bool notify_decode(const uint8_t bytes[NOTIFY_RECORD_BYTES], uint64_t seed,
                          struct sc_store_notify *ret_notify)
{
    uint32_t magic;
    uint64_t checksum;
    memcpy(&magic, bytes, 4);
    memcpy(&checksum, bytes + NOTIFY_CHECKSUM_AT, 8);
    if (magic != NOTIFY_MAGIC || checksum != sc_store_checksum(bytes, NOTIFY_CHECKSUM_AT, seed))
        return false;
    *ret_notify = (struct sc_store_notify){0};
    memcpy(&ret_notify->kind, bytes + 4, 4);
    memcpy(&ret_notify->epoch, bytes + 8, 8);
    memcpy(&ret_notify->piece, bytes + 16, 8);
    memcpy(ret_notify->hash, bytes + 24, SC_STORE_HASH_BYTES);
    memcpy(ret_notify->family, bytes + 40, SC_STORE_HASH_BYTES);
    return ret_notify->kind == SC_STORE_NOTIFY_EPOCH || ret_notify->kind == SC_STORE_NOTIFY_FAILED;
}

/* ---- Files ---------------------------------------------------------------------------------- */

/* Opens a file of a rank's directory; with CREATE checks the directory's owner first. SPEC_PENDING:
 * the file, or with CREATE the directory, is absent. */
static spec_status rank_file_open(struct sc_store *store, uint32_t rank, const char *name,
                                  uint32_t flags, struct sc_io_file **ret_file,
                                  struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct spec_error error = {.struct_size = sizeof(error)};
    spec_status status = SPEC_OK;
    int dir = snprintf(path, sizeof(path), "%s/rank-%04" PRIu32 "-of-%04" PRIu32,
                       store->params.config->path, rank, store->params.rank_count);
    if ((flags & SC_IO_OPEN_CREATE) != 0)
        status = sc_io_dir_check(store->io, path, &error);
    (void)snprintf(path + dir, sizeof(path) - (uint64_t)dir, "/%s", name);
    if (status == SPEC_OK)
        status = sc_io_file_open(store->io, path, flags | SC_IO_OPEN_WRITE, ret_file, &error);
    if (status == SPEC_E_IO && error.sys_errno == ENOENT)
        return SPEC_PENDING;
    return status == SPEC_OK
               ? SPEC_OK
               : sc_fail_errno(reterr, status, error.sys_errno,
                               "notifications of rank %" PRIu32 ": %s", rank, error.text);
}

/* Excludes appends and cuts until the file is closed. SPEC_PENDING: another process holds it. */
static spec_status rank_lock(struct sc_store *store, uint32_t rank, struct sc_io_file **ret_lock,
                             struct spec_error *reterr)
{
    spec_status status =
        rank_file_open(store, rank, NOTIFY_LOCK_NAME, SC_IO_OPEN_CREATE, ret_lock, reterr);
    if (status != SPEC_OK)
        return status;
    struct spec_error error = {.struct_size = sizeof(error)};
    status = sc_io_file_lock(store->io, *ret_lock, &error);
    if (status == SPEC_OK)
        return SPEC_OK;
    sc_io_file_close(store->io, *ret_lock);
    return status == SPEC_E_LOCKED ? SPEC_PENDING : sc_fail(reterr, status, "%s", error.text);
}

spec_status sc_store_notify_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_io_file *lock;
    uint32_t rank = store->params.rank;
    spec_status status = rank_file_open(store, rank, NOTIFY_LOCK_NAME, 0, &lock, reterr);
    if (status == SPEC_OK)
        sc_io_file_close(store->io, lock);
    if (status == SPEC_OK || status == SPEC_PENDING)
        status = rank_file_open(store, rank, NOTIFY_NAME, 0, &store->notify.file, reterr);
    return status == SPEC_PENDING ? SPEC_OK : status;
}

/* ---- Posting -------------------------------------------------------------------------------- */

static spec_status post_locked(struct sc_store *store, struct sc_io_file *file,
                               const uint8_t record[NOTIFY_RECORD_BYTES], uint32_t rank,
                               struct spec_error *reterr)
{
    uint8_t bytes[2 * NOTIFY_RECORD_BYTES] = {0};
    uint64_t size;
    spec_status status = sc_io_file_size(store->io, file, &size, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t lead = sc_store_up(size, NOTIFY_RECORD_BYTES) - size;
    if (size + lead > SC_STORE_NOTIFY_BYTES_MAX - NOTIFY_RECORD_BYTES)
        return sc_fail(reterr, SPEC_E_NO_SPACE,
                       "notifications of rank %" PRIu32 " is full: %" PRIu64 " bytes, at most %u",
                       rank, size, (unsigned)SC_STORE_NOTIFY_BYTES_MAX);
    memcpy(bytes + lead, record, NOTIFY_RECORD_BYTES);
    return sc_io_file_append(store->io, file, bytes, lead + NOTIFY_RECORD_BYTES, NULL, reterr);
}

spec_status sc_store_notify_post(struct sc_store *store, uint32_t rank,
                                 const struct sc_store_notify *notify, struct spec_error *reterr)
{
    uint8_t record[NOTIFY_RECORD_BYTES], store_id[sizeof(store->store_id)];
    struct sc_io_file *lock, *file;
    if (!sc_store_id(store, store_id))
        return SPEC_PENDING; /* a follower without a store so far */
    notify_encode(notify, notify_seed(store, rank), record);
    spec_status status = rank_lock(store, rank, &lock, reterr);
    if (status != SPEC_OK)
        return status;
    status = rank_file_open(store, rank, NOTIFY_NAME, SC_IO_OPEN_CREATE | SC_IO_OPEN_APPEND, &file,
                            reterr);
    if (status == SPEC_OK) {
        status = post_locked(store, file, record, rank, reterr);
        sc_io_file_close(store->io, file);
    }
    sc_io_file_close(store->io, lock);
    return status;
}

/* ---- Taking --------------------------------------------------------------------------------- */

struct epochs { /* what a cut keeps */
    struct sc_store_notify of[SC_STORE_NOTIFY_FAMILIES];
    uint32_t count;
};

/* Keeps the highest epoch of each recently heard family. */
static void epochs_note(struct epochs *epochs, const struct sc_store_notify *notify)
{
    struct sc_store_notify now = *notify;
    uint32_t i = 0;
    while (i < epochs->count &&
           memcmp(epochs->of[i].family, notify->family, SC_STORE_HASH_BYTES) != 0)
        i++;
    if (i < epochs->count && epochs->of[i].epoch > now.epoch)
        now = epochs->of[i];
    if (i == epochs->count && epochs->count == SC_STORE_NOTIFY_FAMILIES)
        i = 0; /* least recently heard */
    else if (i == epochs->count)
        epochs->count++;
    memmove(&epochs->of[i], &epochs->of[i + 1], (epochs->count - i - 1) * sizeof(now));
    epochs->of[epochs->count - 1] = now;
}

struct taker {
    void (*on_notify)(const struct sc_store_notify *notify, void *user);
    void *user;
    bool is_still; /* the lock is held: no writers */
};

/* Reports the records of [*at, end); counts invalid ones in ret_bad. An invalid last record may be
 * in the middle of its append and is left, unless is_still. */
static spec_status read_records(struct sc_store *store, uint64_t *at, uint64_t end,
                                const struct taker *taker, uint64_t *ret_bad,
                                struct spec_error *reterr)
{
    uint8_t bytes[NOTIFY_BATCH * NOTIFY_RECORD_BYTES];
    uint64_t seed = notify_seed(store, store->params.rank);
    *ret_bad = 0;
    while (*at < end) {
        uint64_t count = end - *at < sizeof(bytes) ? end - *at : sizeof(bytes);
        spec_status status =
            sc_io_file_pread(store->io, store->notify.file, bytes, count, *at, reterr);
        if (status != SPEC_OK)
            return status;
        for (uint64_t i = 0; i < count; i += NOTIFY_RECORD_BYTES) {
            struct sc_store_notify notify;
            bool is_record = notify_decode(bytes + i, seed, &notify);
            if (!is_record && !taker->is_still && *at + NOTIFY_RECORD_BYTES == end)
                return SPEC_OK;
            *at += NOTIFY_RECORD_BYTES;
            *ret_bad += is_record ? 0 : 1;
            if (is_record)
                taker->on_notify(&notify, taker->user);
        }
    }
    return SPEC_OK;
}

/* Takes new records, up to the size bound. */
static spec_status take_new(struct sc_store *store, uint64_t size, const struct taker *taker,
                            struct spec_error *reterr)
{
    uint64_t bad, end = size < SC_STORE_NOTIFY_BYTES_MAX ? size : SC_STORE_NOTIFY_BYTES_MAX;
    spec_status status = read_records(store, &store->notify.taken,
                                      sc_store_down(end, NOTIFY_RECORD_BYTES), taker, &bad, reterr);
    sc_store_count(&store->counts.corrupt_records, bad);
    return status;
}

static void keep_epoch(const struct sc_store_notify *notify, void *user)
{
    if (notify->kind == SC_STORE_NOTIFY_EPOCH)
        epochs_note(user, notify);
}

/* Lock held, all records taken. Writes what is kept before it truncates: a crash loses nothing. */
static spec_status cut_locked(struct sc_store *store, struct spec_error *reterr)
{
    uint8_t bytes[SC_STORE_NOTIFY_FAMILIES * NOTIFY_RECORD_BYTES];
    struct epochs epochs = {.count = 0};
    const struct taker keeper = {.on_notify = keep_epoch, .user = &epochs, .is_still = true};
    uint64_t at = 0, bad;
    spec_status status = read_records(store, &at, store->notify.taken, &keeper, &bad, reterr);
    if (status != SPEC_OK)
        return status;
    for (uint32_t i = 0; i < epochs.count; i++)
        notify_encode(&epochs.of[i], notify_seed(store, store->params.rank),
                      bytes + (uint64_t)i * NOTIFY_RECORD_BYTES);
    uint64_t kept = (uint64_t)epochs.count * NOTIFY_RECORD_BYTES;
    if (kept > 0)
        status = sc_io_file_pwrite(store->io, store->notify.file, bytes, kept, 0, reterr);
    if (status == SPEC_OK)
        status = sc_io_file_truncate(store->io, store->notify.file, kept, reterr);
    if (status == SPEC_OK)
        store->notify.taken = kept;
    return status;
}

/* Takes the rest under the lock, so that nothing is appended before the cut. */
static spec_status take_and_cut(struct sc_store *store, struct taker taker,
                                struct spec_error *reterr)
{
    struct sc_io_file *lock;
    uint64_t size;
    spec_status status = rank_lock(store, store->params.rank, &lock, reterr);
    if (status != SPEC_OK)
        return status == SPEC_PENDING ? SPEC_OK : status; /* the next take tries again */
    status = sc_io_file_size(store->io, store->notify.file, &size, reterr);
    taker.is_still = true;
    if (status == SPEC_OK)
        status = take_new(store, size, &taker, reterr);
    if (status == SPEC_OK)
        status = cut_locked(store, reterr);
    sc_io_file_close(store->io, lock);
    return status;
}

spec_status sc_store_notify_take(struct sc_store *store,
                                 void (*on_notify)(const struct sc_store_notify *notify,
                                                   void *user),
                                 void *user, struct spec_error *reterr)
{
    const struct taker taker = {.on_notify = on_notify, .user = user};
    uint64_t size;
    if (!sc_store_can_store(store)) /* a member that ended since the caller asked */
        return SPEC_OK;
    if (store->notify.file == NULL) {
        if (sc_store_watch_stamp(store->io, store->dir, NOTIFY_NAME) == SC_IO_STAMP_ABSENT)
            return SPEC_OK; /* no message so far */
        spec_status status =
            rank_file_open(store, store->params.rank, NOTIFY_NAME, 0, &store->notify.file, reterr);
        if (status != SPEC_OK)
            return status == SPEC_PENDING ? SPEC_OK : status; /* removed since */
    }
    spec_status status = sc_io_file_size(store->io, store->notify.file, &size, reterr);
    if (status != SPEC_OK)
        return status;
    if (size < store->notify.taken)
        store->notify.taken = 0; /* cut by somebody else */
    status = take_new(store, size, &taker, reterr);
    if (status == SPEC_OK && size >= SC_STORE_NOTIFY_CUT_BYTES)
        status = take_and_cut(store, taker, reterr);
    return status;
}

void sc_store_notify_close(struct sc_store *store)
{
    if (store->notify.file != NULL)
        sc_io_file_close(store->io, store->notify.file);
    store->notify.file = NULL;
}
