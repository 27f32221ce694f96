/* What a rank's device was written: the file `wear`, for stat.
 *
 * Holds: bytes a day are of today and the seven days before, as far as the store is so old; of a
 * younger one what it wrote so far, not what it would in a day. The file lags behind an open store.
 * Threads: one.
 * Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

void ctl_wear_read(const struct ctl_store *store, struct ctl_rank *rank)
{
    char *path;
    uint8_t bytes[SC_STORE_WEAR_SLOTS * SC_STORE_WEAR_SLOT_BYTES];
    if (asprintf(&path, "%s/wear", rank->path) < 0)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? pread(fd, bytes, sizeof(bytes), 0) : 0;
    uint64_t seed = sc_store_frame_seed(store->identity.store_id, rank->rank, rank->rank_count);
    rank->has_wear =
        count > 0 && sc_store_wear_decode(bytes, (uint64_t)count, seed, &rank->wear) > 0;
    if (fd >= 0)
        close(fd);
    free(path);
}

static uint64_t written_of(const struct sc_store_wear_sum *wear)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < SC_STORE_WEAR_KINDS; i++)
        bytes += wear->written[i];
    return bytes;
}

static uint64_t day_bytes(const struct sc_store_wear_sum *wear, uint64_t day)
{
    bool is_kept = day <= wear->day && wear->day - day < SC_STORE_WEAR_DAYS;
    return is_kept ? wear->days[day % SC_STORE_WEAR_DAYS] : 0;
}

static uint64_t bytes_a_day(const struct sc_store_wear_sum *wear)
{
    uint64_t now_ns = (uint64_t)time(NULL) * 1000000000u, bytes = 0;
    now_ns = now_ns > wear->at_ns ? now_ns : wear->at_ns;
    uint64_t today = now_ns / SC_STORE_DAY_NS;
    for (uint64_t day = today - (SC_STORE_WEAR_DAYS - 1); day <= today; day++)
        bytes += day_bytes(wear, day);
    uint64_t from_ns = (today - (SC_STORE_WEAR_DAYS - 1)) * SC_STORE_DAY_NS;
    from_ns = from_ns > wear->since_ns ? from_ns : wear->since_ns;
    double days = now_ns > from_ns ? (double)(now_ns - from_ns) / (double)SC_STORE_DAY_NS : 0;
    return days > 1 ? (uint64_t)((double)bytes / days) : bytes;
}

/* Bytes written for each byte of rows that was stored; 0: none was. */
static double amplification(const struct sc_store_wear_sum *wear)
{
    if (wear->stored_bytes == 0)
        return 0;
    return (double)written_of(wear) / (double)wear->stored_bytes;
}

const char *const ctl_wear_kinds[SC_STORE_WEAR_KINDS] = {"rows", "codes",       "merges",
                                                         "log",  "checkpoints", "reordered"};

struct json_object *ctl_wear_json(const struct ctl_rank *rank)
{
    const struct sc_store_wear_sum *wear = &rank->wear;
    if (!rank->has_wear)
        return NULL;
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "since_ns", json_object_new_uint64(wear->since_ns));
    json_object_object_add(object, "at_ns", json_object_new_uint64(wear->at_ns));
    json_object_object_add(object, "bytes", json_object_new_uint64(written_of(wear)));
    for (uint32_t i = 0; i < SC_STORE_WEAR_KINDS; i++)
        json_object_object_add(object, ctl_wear_kinds[i], json_object_new_uint64(wear->written[i]));
    json_object_object_add(object, "stored_row_bytes", json_object_new_uint64(wear->stored_bytes));
    json_object_object_add(object, "bytes_a_day", json_object_new_uint64(bytes_a_day(wear)));
    json_object_object_add(object, "amplification", json_object_new_double(amplification(wear)));
    return object;
}

void ctl_wear_line(const struct ctl_rank *rank)
{
    const struct sc_store_wear_sum *wear = &rank->wear;
    char text[32];
    if (!rank->has_wear)
        return;
    printf("  written   %s a day", ctl_bytes_text(bytes_a_day(wear), text));
    printf("; %s in all:", ctl_bytes_text(written_of(wear), text));
    for (uint32_t i = 0; i < SC_STORE_WEAR_KINDS; i++)
        if (wear->written[i] > 0)
            printf(" %s %s", ctl_wear_kinds[i], ctl_bytes_text(wear->written[i], text));
    if (wear->stored_bytes > 0)
        printf("; %.3f bytes for each that was stored", amplification(wear));
    printf("\n");
}
