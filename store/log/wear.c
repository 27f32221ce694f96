/* What the device was written: counts, the bucket, and the file that keeps both.
 *
 * Holds, Does not, Threads, Tests: store/log/wear.h. */
#include "store/log/wear.h"
#include "store/internal.h"
#include "store/log/identity.h"
#include "store/rows/tag.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define WEAR_MAGIC     0x31574353u /* "SCW1" */
#define SUM_AT         16u
#define SUM_BYTES      sizeof(struct sc_store_wear_sum)
#define CHECKSUM_AT    (SUM_AT + SUM_BYTES)
#define SLOT_USED      (CHECKSUM_AT + 8)
#define BURST_PART     4u /* of a day's budget is a full bucket */
#define WAIT_PART      4u /* of a full bucket is kept for passes */
#define SAVE_PART      256u
#define SAVE_BYTES     (64ull << 20)
#define SAVE_BYTES_MIN (1ull << 20)
_Static_assert(SLOT_USED <= SC_STORE_WEAR_SLOT_BYTES, "a slot has room");

#define FORM       1u /* of the sum; form 0 lacks the last kind of what is written */
#define KIND_BYTES sizeof(uint64_t)
#define KIND_LAST                                                                                  \
    (offsetof(struct sc_store_wear_sum, written) + SC_STORE_WEAR_REORDERED * KIND_BYTES)

/* ---- The file ------------------------------------------------------------------------------- */

static void slot_encode(const struct sc_store_wear_sum *sum, uint64_t sequence, uint64_t seed,
                        uint8_t bytes[SC_STORE_WEAR_SLOT_BYTES])
{
    const uint32_t magic = WEAR_MAGIC, form = FORM;
    memset(bytes, 0, SC_STORE_WEAR_SLOT_BYTES);
    memcpy(bytes, &magic, sizeof(magic));
    memcpy(bytes + 4, &form, sizeof(form));
    memcpy(bytes + 8, &sequence, sizeof(sequence));
    memcpy(bytes + SUM_AT, sum, sizeof(*sum));
    uint64_t checksum = sc_store_checksum(bytes, CHECKSUM_AT, seed);
    memcpy(bytes + CHECKSUM_AT, &checksum, sizeof(checksum));
}

/* A sum of either form, into this version's. */
static void sum_decode(const uint8_t *bytes, uint32_t form, struct sc_store_wear_sum *ret_sum)
{
    if (form == FORM) {
        memcpy(ret_sum, bytes, SUM_BYTES);
        return;
    }
    uint8_t *sum = (uint8_t *)ret_sum;
    memcpy(sum, bytes, KIND_LAST);
    memset(sum + KIND_LAST, 0, KIND_BYTES);
    memcpy(sum + KIND_LAST + KIND_BYTES, bytes + KIND_LAST, SUM_BYTES - KIND_LAST - KIND_BYTES);
}

uint64_t sc_store_wear_decode(const uint8_t *bytes, uint64_t byte_count, uint64_t seed,
                              struct sc_store_wear_sum *ret_sum)
{
    uint64_t newest = 0;
    for (uint64_t at = 0; at + SLOT_USED <= byte_count; at += SC_STORE_WEAR_SLOT_BYTES) {
        const uint8_t *slot = bytes + at;
        uint32_t magic, form;
        uint64_t sequence, checksum;
        memcpy(&magic, slot, sizeof(magic));
        memcpy(&form, slot + 4, sizeof(form));
        memcpy(&sequence, slot + 8, sizeof(sequence));
        const uint64_t checksum_at = CHECKSUM_AT - (form == FORM ? 0 : KIND_BYTES);
        memcpy(&checksum, slot + checksum_at, sizeof(checksum));
        if (magic != WEAR_MAGIC || form > FORM || sequence <= newest ||
            checksum != sc_store_checksum(slot, checksum_at, seed))
            continue;
        newest = sequence;
        sum_decode(slot + SUM_AT, form, ret_sum);
    }
    return newest;
}

static uint64_t seed_of(const struct sc_store *store)
{
    return sc_store_frame_seed(store->store_id, store->params.rank, store->params.rank_count);
}

static void path_of(const struct sc_store *store, char path[SC_LIMIT_PATH_BYTES + 64])
{
    (void)snprintf(path, SC_LIMIT_PATH_BYTES + 64, "%s/wear", store->dir);
}

/* *ret_found false: there is none, or none that is whole. An error: it is not ours. */
static spec_status file_read(struct sc_store *store, bool *ret_found, struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint8_t bytes[SC_STORE_WEAR_SLOTS * SC_STORE_WEAR_SLOT_BYTES];
    uint64_t byte_count = 0;
    struct sc_io_file *file;
    struct spec_error error = {.struct_size = sizeof(error)};
    *ret_found = false;
    path_of(store, path);
    spec_status status = sc_io_file_open(store->io, path, 0, &file, &error);
    if (status != SPEC_OK && error.sys_errno == EACCES)
        return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
    if (status != SPEC_OK)
        return SPEC_OK;
    status = sc_io_file_size(store->io, file, &byte_count, NULL);
    byte_count = byte_count < sizeof(bytes) ? byte_count : sizeof(bytes);
    if (status == SPEC_OK && byte_count > 0)
        status = sc_io_file_pread(store->io, file, bytes, byte_count, 0, NULL);
    sc_io_file_close(store->io, file);
    if (status == SPEC_OK)
        store->wear.sequence =
            sc_store_wear_decode(bytes, byte_count, seed_of(store), &store->wear.sum);
    *ret_found = store->wear.sequence > 0;
    return SPEC_OK;
}

static void file_write(struct sc_store *store, const struct sc_store_wear_sum *sum,
                       uint64_t sequence)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint8_t bytes[SC_STORE_WEAR_SLOT_BYTES];
    struct sc_io_file *file;
    path_of(store, path);
    slot_encode(sum, sequence, seed_of(store), bytes);
    if (sc_store_is_ours(store, NULL) != SPEC_OK || /* a file of that name is another's */
        sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL) !=
            SPEC_OK)
        return;
    (void)sc_io_file_pwrite(store->io, file, bytes, sizeof(bytes),
                            sequence % SC_STORE_WEAR_SLOTS * SC_STORE_WEAR_SLOT_BYTES, NULL);
    sc_io_file_close(store->io, file);
}

/* ---- The bucket ----------------------------------------------------------------------------- */

static double full_of(const struct sc_store_wear *wear)
{
    return (double)(wear->budget / BURST_PART);
}

/* Lock held, or open. */
static void fill(struct sc_store_wear *wear, uint64_t passed_ns)
{
    double full = full_of(wear);
    wear->level += (double)wear->budget * ((double)passed_ns / (double)SC_STORE_DAY_NS);
    wear->level = wear->level < full ? wear->level : full;
}

static void lock_filled(struct sc_store *store)
{
    struct sc_store_wear *wear = &store->wear;
    uint64_t now_ns = sc_exec_now_ns(store->params.exec);
    pthread_mutex_lock(&wear->lock);
    if (now_ns > wear->filled_ns) {
        fill(wear, now_ns - wear->filled_ns);
        wear->filled_ns = now_ns;
    }
}

void sc_store_wear_move(struct sc_store *store, int64_t bytes)
{
    if (store->wear.budget == 0 || bytes == 0)
        return;
    lock_filled(store);
    store->wear.level -= (double)bytes;
    pthread_mutex_unlock(&store->wear.lock);
}

uint64_t sc_store_wear_take(struct sc_store *store, uint64_t least, uint64_t bytes)
{
    struct sc_store_wear *wear = &store->wear;
    if (wear->budget == 0)
        return bytes;
    lock_filled(store);
    uint64_t taken = wear->level > 0 ? (uint64_t)wear->level : 0;
    if (taken < least && wear->level >= full_of(wear))
        taken = least;
    taken = taken < bytes ? taken : bytes;
    wear->level -= (double)taken;
    pthread_mutex_unlock(&wear->lock);
    return taken;
}

uint64_t sc_store_wear_wait_ns(struct sc_store *store)
{
    struct sc_store_wear *wear = &store->wear;
    if (wear->budget == 0)
        return 0;
    lock_filled(store);
    double lacks = full_of(wear) / WAIT_PART - wear->level;
    pthread_mutex_unlock(&wear->lock);
    double days = lacks / (double)wear->budget; /* who waits for more than one asks again */
    return lacks > 0 ? (uint64_t)((days < 1 ? days : 1) * (double)SC_STORE_DAY_NS) + 1 : 0;
}

/* ---- Counts --------------------------------------------------------------------------------- */

/* Lock held. A clock that was set back adds to the last day that it has seen. */
static void day_add(struct sc_store_wear_sum *sum, uint64_t wall_ns, uint64_t bytes)
{
    uint64_t day = wall_ns / SC_STORE_DAY_NS;
    if (day > sum->day + SC_STORE_WEAR_DAYS)
        memset(sum->days, 0, sizeof(sum->days));
    else
        for (uint64_t d = sum->day + 1; d <= day; d++)
            sum->days[d % SC_STORE_WEAR_DAYS] = 0;
    sum->day = day > sum->day ? day : sum->day;
    sum->days[sum->day % SC_STORE_WEAR_DAYS] += bytes;
}

void sc_store_wear_count(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes)
{
    struct sc_store_wear *wear = &store->wear;
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    pthread_mutex_lock(&wear->lock);
    wear->sum.written[kind] += bytes;
    wear->unsaved += bytes;
    day_add(&wear->sum, wall_ns, bytes);
    pthread_mutex_unlock(&wear->lock);
}

void sc_store_wear_charge(struct sc_store *store, enum sc_store_wear_kind kind, uint64_t bytes)
{
    sc_store_wear_count(store, kind, bytes);
    sc_store_wear_move(store, (int64_t)bytes);
}

void sc_store_wear_stored(struct sc_store *store, uint64_t bytes)
{
    pthread_mutex_lock(&store->wear.lock);
    store->wear.sum.stored_bytes += bytes;
    pthread_mutex_unlock(&store->wear.lock);
}

void sc_store_wear_since(struct sc_store *store, uint64_t ret_written[SC_STORE_WEAR_KINDS],
                         uint64_t *ret_stored, uint64_t *ret_left)
{
    struct sc_store_wear *wear = &store->wear;
    lock_filled(store);
    for (uint32_t i = 0; i < SC_STORE_WEAR_KINDS; i++)
        ret_written[i] = wear->sum.written[i] - wear->begun[i];
    *ret_stored = wear->sum.stored_bytes - wear->begun_stored;
    *ret_left = wear->budget > 0 && wear->level > 0 ? (uint64_t)wear->level : 0;
    pthread_mutex_unlock(&wear->lock);
}

/* ---- Open and save -------------------------------------------------------------------------- */

spec_status sc_store_wear_open(struct sc_store *store, struct spec_error *reterr)
{
    struct sc_store_wear *wear = &store->wear;
    uint64_t log_bytes; /* none: nothing was ever stored here */
    bool is_found = false;
    spec_status status = sc_io_file_size(store->io, store->log.journal.file, &log_bytes, reterr);
    if (status == SPEC_OK)
        status = file_read(store, &is_found, reterr);
    if (status != SPEC_OK)
        return status;
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    uint64_t budget = store->params.config->write_budget, ranks = store->params.rank_count;
    wear->budget = budget / ranks + (budget > 0 && budget < ranks ? 1 : 0); /* 0: there is none */
    wear->filled_ns = sc_exec_now_ns(store->params.exec);
    if (!is_found) {
        wear->sum =
            (struct sc_store_wear_sum){.since_ns = wall_ns,
                                       .at_ns = wall_ns,
                                       .day = wall_ns / SC_STORE_DAY_NS,
                                       .level = log_bytes == 0 ? (int64_t)full_of(wear) : 0};
    }
    memcpy(wear->begun, wear->sum.written, sizeof(wear->begun));
    wear->begun_stored = wear->sum.stored_bytes;
    wear->level = (double)wear->sum.level;
    fill(wear, wall_ns > wear->sum.at_ns ? wall_ns - wear->sum.at_ns : 0);
    return SPEC_OK;
}

/* So much is lost by a process that dies. */
static uint64_t save_bytes(const struct sc_store_wear *wear)
{
    uint64_t part = wear->budget / SAVE_PART;
    part = part > SAVE_BYTES_MIN ? part : SAVE_BYTES_MIN;
    return wear->budget == 0 || part > SAVE_BYTES ? SAVE_BYTES : part;
}

void sc_store_wear_save(struct sc_store *store, bool ends)
{
    struct sc_store_wear *wear = &store->wear;
    if (store->params.role != SC_STORE_WRITER)
        return;
    uint64_t wall_ns = sc_exec_wall_ns(store->params.exec);
    lock_filled(store);
    bool saves =
        !wear->is_saving && wear->unsaved > 0 && (ends || wear->unsaved >= save_bytes(wear));
    struct sc_store_wear_sum sum = wear->sum;
    uint64_t sequence = wear->sequence + (saves ? 1 : 0);
    sum.at_ns = wall_ns;
    sum.level = wear->budget > 0 ? (int64_t)wear->level : 0;
    wear->sequence = sequence;
    wear->unsaved = saves ? 0 : wear->unsaved;
    wear->is_saving = wear->is_saving || saves;
    pthread_mutex_unlock(&wear->lock);
    if (!saves)
        return;
    file_write(store, &sum, sequence);
    pthread_mutex_lock(&wear->lock);
    wear->is_saving = false;
    pthread_mutex_unlock(&wear->lock);
}
