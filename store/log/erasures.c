/* erasures: intents to erase, stored as empty files.
 *
 *   PATH/erase/RRRR-of-NNNN-all              everything of this rank
 *             /RRRR-of-NNNN-SALT             everything under one salt: 32 hex digits
 *             /RRRR-of-NNNN-done             the last completed intent; no meaning
 *
 * A completed intent is renamed, because a rename is durable when it returns and an unlink is not.
 * A resurrected intent would erase later data.
 *
 * Invariants: an intent is durable before put returns. Names in another format are ignored.
 * Threads: store/erase.h. Calls block on the file system.
 * Tests: tests/unit/store/test_erase.c */
#include "store/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANK_PREFIX "rank-"
#define HEX_CHARS   (2u * SC_STORE_HASH_BYTES)
#define NAME_CHARS  96u

bool sc_store_erasures_pend(const struct sc_store *store)
{
    return atomic_load(&store->erasures.count) > 0 &&
           (!sc_store_is_member(store) || atomic_load(&store->erasures.is_alone));
}

uint32_t sc_store_erasures(const struct sc_store *store)
{
    return atomic_load(&store->erasures.count);
}

struct sc_store_erase_counts sc_store_erase_counts(const struct sc_store *store)
{
    return (struct sc_store_erase_counts){
        .erased = sc_store_counted(&store->erasures.erased),
        .failures = sc_store_counted(&store->erasures.failures),
        .zeroed_bytes = sc_store_counted(&store->erasures.zeroed_bytes),
        .left_bytes = sc_store_counted(&store->erasures.left_bytes)};
}

bool sc_store_erasure_covers(const struct sc_store_erasure *what, const struct sc_store_salt *salt)
{
    return what->is_all || salt->state == SC_STORE_SALT_UNKNOWN ||
           (salt->state == SC_STORE_SALT_KNOWN &&
            memcmp(what->salt, salt->digest, SC_STORE_HASH_BYTES) == 0);
}

bool sc_store_erases(struct sc_store *store, const struct sc_store_salt *salt)
{
    struct sc_store_erasures *erasures = &store->erasures;
    if (atomic_load(&erasures->count) == 0)
        return false;
    pthread_mutex_lock(&erasures->lock);
    bool covers = erasures->is_over;
    for (uint32_t i = 0; i < atomic_load(&erasures->count) && !covers; i++)
        covers = sc_store_erasure_covers(&erasures->list[i], salt);
    pthread_mutex_unlock(&erasures->lock);
    return covers;
}

struct sc_store_salt sc_store_piece_salt(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    if (entry == NULL || entry->extent == 0)
        return (struct sc_store_salt){.state = SC_STORE_SALT_UNKNOWN};
    return sc_store_table_extent(&store->table, entry->extent)->salt;
}

bool sc_store_piece_is_erased(const struct sc_store *store, uint64_t piece)
{
    const struct sc_store_piece_entry *entry = sc_store_table_piece(&store->table, piece);
    return entry != NULL && entry->extent != 0 &&
           atomic_load(&sc_store_table_extent(&store->table, entry->extent)->is_erased);
}

/* ---- Names ----------------------------------------------------------------------------------- */

/* what NULL: the name of the last completed intent. */
static void name_of(const char *rank, const struct sc_store_erasure *what, char name[NAME_CHARS])
{
    int at = snprintf(name, NAME_CHARS, "%s-", rank);
    if (what == NULL || what->is_all) {
        (void)snprintf(name + at, NAME_CHARS - (uint32_t)at, "%s", what == NULL ? "done" : "all");
        return;
    }
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++)
        at += snprintf(name + at, NAME_CHARS - (uint32_t)at, "%02x", what->salt[i]);
}

static void own_rank(const struct sc_store *store, char rank[NAME_CHARS])
{
    (void)snprintf(rank, NAME_CHARS, "%04" PRIu32 "-of-%04" PRIu32, store->params.rank,
                   store->params.rank_count);
}

static void path_of(const struct sc_store *store, const char *name,
                    char path[SC_LIMIT_PATH_BYTES + 128])
{
    (void)snprintf(path, SC_LIMIT_PATH_BYTES + 128, "%s/" SC_STORE_ERASE_DIR "/%s",
                   store->params.config->path, name);
}

/* Parses the rest of an intent's name; false: not an intent. */
static bool erasure_of(const char *text, struct sc_store_erasure *ret_what)
{
    *ret_what = (struct sc_store_erasure){.is_all = strcmp(text, "all") == 0};
    if (ret_what->is_all)
        return true;
    if (strlen(text) != HEX_CHARS || strspn(text, "0123456789abcdef") != HEX_CHARS)
        return false;
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++) {
        const char byte[3] = {text[2 * i], text[2 * i + 1], '\0'};
        ret_what->salt[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return true;
}

static bool erasure_is(const struct sc_store_erasure *a, const struct sc_store_erasure *b)
{
    return a->is_all == b->is_all &&
           (a->is_all || memcmp(a->salt, b->salt, SC_STORE_HASH_BYTES) == 0);
}

/* ---- Putting --------------------------------------------------------------------------------- */

struct putting {
    struct sc_store *store;
    const struct sc_store_erasure *what;
    spec_status status;
    struct spec_error error;
};

static void intent_put(struct putting *putting, const char *rank)
{
    struct sc_store *store = putting->store;
    char name[NAME_CHARS], path[SC_LIMIT_PATH_BYTES + 128];
    struct sc_io_file *file;
    name_of(rank, putting->what, name);
    path_of(store, name, path);
    putting->status = sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file,
                                      &putting->error);
    if (putting->status != SPEC_OK)
        return;
    putting->status = sc_io_file_sync(store->io, file, &putting->error);
    sc_io_file_close(store->io, file);
}

/* Matches "rank-0000-of-0001": at least four digits on both sides. */
static void on_entry(const char *name, void *user)
{
    struct putting *putting = user;
    const char *rank = name + sizeof(RANK_PREFIX) - 1;
    if (putting->status != SPEC_OK || strncmp(name, RANK_PREFIX, sizeof(RANK_PREFIX) - 1) != 0)
        return;
    size_t digits = strspn(rank, "0123456789");
    if (digits < 4 || digits > 10 || strncmp(rank + digits, "-of-", 4) != 0)
        return;
    size_t more = strspn(rank + digits + 4, "0123456789");
    if (more < 4 || more > 10 || rank[digits + 4 + more] != '\0')
        return;
    intent_put(putting, rank);
}

spec_status sc_store_erase_put(struct sc_store *store, const struct sc_store_erasure *what,
                               struct spec_error *reterr)
{
    struct putting putting = {
        .store = store, .what = what, .error = {.struct_size = sizeof(putting.error)}};
    char path[SC_LIMIT_PATH_BYTES + 128];
    if (sc_store_erasures(store) >= SC_STORE_ERASURES_MAX / 2)
        return sc_fail(reterr, SPEC_E_BUSY, "%" PRIu32 " erasures wait already",
                       sc_store_erasures(store));
    (void)snprintf(path, sizeof(path), "%s/" SC_STORE_ERASE_DIR, store->params.config->path);
    spec_status status = sc_io_mkdir(store->io, path, reterr);
    if (status == SPEC_OK)
        status = sc_io_list(store->io, store->params.config->path, on_entry, &putting, reterr);
    if (status != SPEC_OK || putting.status == SPEC_OK)
        return status;
    return sc_fail_errno(reterr, putting.status, putting.error.sys_errno, "%s", putting.error.text);
}

/* ---- Reading --------------------------------------------------------------------------------- */

struct hearing {
    char prefix[NAME_CHARS + 1]; /* prefix of this rank's names */
    struct sc_store_erasure list[SC_STORE_ERASURES_MAX];
    uint32_t count;
    bool is_over;
};

static void on_name(const char *name, void *user)
{
    struct hearing *hearing = user;
    struct sc_store_erasure what;
    size_t bytes = strlen(hearing->prefix);
    if (strncmp(name, hearing->prefix, bytes) != 0 || !erasure_of(name + bytes, &what))
        return;
    hearing->is_over = hearing->count == SC_STORE_ERASURES_MAX;
    if (!hearing->is_over)
        hearing->list[hearing->count++] = what;
}

static bool list_has(const struct sc_store_erasure *list, uint32_t count,
                     const struct sc_store_erasure *what)
{
    for (uint32_t i = 0; i < count; i++)
        if (erasure_is(&list[i], what))
            return true;
    return false;
}

static spec_status intents_list(struct sc_store *store, struct hearing *hearing,
                                struct spec_error *reterr)
{
    char path[SC_LIMIT_PATH_BYTES + 128], rank[NAME_CHARS];
    struct spec_error error = {.struct_size = sizeof(error)};
    own_rank(store, rank);
    (void)snprintf(hearing->prefix, sizeof(hearing->prefix), "%s-", rank);
    (void)snprintf(path, sizeof(path), "%s/" SC_STORE_ERASE_DIR, store->params.config->path);
    spec_status status = sc_io_list(store->io, path, on_name, hearing, &error);
    if (status == SPEC_OK || error.sys_errno == ENOENT)
        return SPEC_OK;
    return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
}

spec_status sc_store_erase_hear(struct sc_store *store,
                                void (*on_new)(const struct sc_store_erasure *what, void *user),
                                void *user, struct spec_error *reterr)
{
    struct sc_store_erasures *erasures = &store->erasures;
    struct hearing hearing = {.count = 0};
    uint32_t known = 0;
    bool is_new[SC_STORE_ERASURES_MAX] = {false};
    spec_status status = intents_list(store, &hearing, reterr);
    if (status != SPEC_OK || (hearing.count == 0 && sc_store_erasures(store) == 0))
        return status;
    pthread_mutex_lock(&erasures->lock);
    known = atomic_load(&erasures->count);
    for (uint32_t i = 0; i < hearing.count; i++)
        is_new[i] = !list_has(erasures->list, known, &hearing.list[i]);
    memcpy(erasures->list, hearing.list, sizeof(hearing.list));
    erasures->is_over = hearing.is_over;
    atomic_store(&erasures->count, hearing.count);
    pthread_mutex_unlock(&erasures->lock);
    for (uint32_t i = 0; i < hearing.count; i++)
        if (is_new[i] && on_new != NULL)
            on_new(&hearing.list[i], user);
    return SPEC_OK;
}

bool sc_store_erase_due(struct sc_store *store)
{
    uint64_t stamp =
        sc_store_watch_stamp(store->io, store->params.config->path, SC_STORE_ERASE_DIR);
    return sc_store_watch_due(&store->erasures.watch, stamp);
}

void sc_store_erase_know(struct sc_store *store, const struct sc_store_erasure *what,
                         void (*on_new)(const struct sc_store_erasure *what, void *user),
                         void *user)
{
    struct sc_store_erasures *erasures = &store->erasures;
    pthread_mutex_lock(&erasures->lock);
    uint32_t count = atomic_load(&erasures->count);
    bool is_new = !list_has(erasures->list, count, what);
    if (is_new && count < SC_STORE_ERASURES_MAX) {
        erasures->list[count] = *what;
        atomic_store(&erasures->count, count + 1);
    } else if (is_new) {
        erasures->is_over = true;
    }
    pthread_mutex_unlock(&erasures->lock);
    if (is_new)
        on_new(what, user);
}

spec_status sc_store_erasures_done(struct sc_store *store, const struct sc_store_erasure *what,
                                   uint64_t count, struct spec_error *reterr)
{
    char rank[NAME_CHARS], name[NAME_CHARS];
    char from[SC_LIMIT_PATH_BYTES + 128], to[SC_LIMIT_PATH_BYTES + 128];
    spec_status status = SPEC_OK;
    own_rank(store, rank);
    name_of(rank, NULL, name);
    path_of(store, name, to);
    for (uint64_t i = 0; i < count && status == SPEC_OK; i++) {
        struct spec_error error = {.struct_size = sizeof(error)};
        name_of(rank, &what[i], name);
        path_of(store, name, from);
        status = sc_io_rename(store->io, from, to, &error);
        if (status != SPEC_OK && error.sys_errno == ENOENT)
            status = SPEC_OK; /* removed by hand */
        if (status != SPEC_OK)
            return sc_fail_errno(reterr, status, error.sys_errno, "%s", error.text);
        sc_store_count(&store->erasures.erased, 1);
    }
    return SPEC_OK;
}
