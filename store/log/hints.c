/* Contract: hints.h.
 *
 * An intent says for five seconds that a member stores a chunk that no log has so far, so that the
 * others need not write its rows too. The words of a slot are written one after the other: a reader
 * may see those of two intents, and then stores what another does, or leaves to another what nobody
 * does until the next pass with those tokens. Times that nobody can have written are ignored.
 *
 * A use is the second of the wall clock, in a word that the key's hash chooses. Keys that share a
 * word keep each other longer. A word later than now is ignored: it is noise, or the clock was set
 * back. The next use overwrites it.
 *
 * All members have the same disk_bytes, that of the log, so they have the same number of words. The
 * file only grows while it is mapped: who mapped a shorter one keeps its words, which another
 * number of words finds elsewhere. */
#include "store/log/hints.h"
#include "store/internal.h"

#include <stdio.h>

#define HINTS_NAME "hints"
#define SLOTS      1024u
#define INTENT_MS  5000u
#define OWNER_BITS 8u
#define USES_PART  4096u        /* of disk_bytes: the table's share */
#define USES_LEAST (4ull << 10) /* bytes of the table */
#define USES_MOST  (1ull << 20)
#define HASH_FACTOR                                                                                \
    UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio: spreads consecutive ids                   \
                                  */

struct sc_store_hints {
    struct {
        _Atomic uint64_t hash;
        _Atomic uint64_t until_owner; /* wall clock in ms, and a member's place + 1 */
    } intents[SLOTS];
    _Atomic uint32_t uses[];
};

/* A member that takes over maps them while other threads call. */
static struct sc_store_hints *hints_of(const struct sc_store *store)
{
    return atomic_load_explicit(&store->hints, memory_order_acquire);
}

static void hints_set(struct sc_store *store, struct sc_store_hints *hints)
{
    atomic_store_explicit(&store->hints, hints, memory_order_release);
}

/* Returns the bytes of the table of uses: a power of two. */
static uint64_t uses_bytes(uint64_t disk_bytes)
{
    uint64_t bytes = USES_LEAST;
    while (bytes < USES_MOST && bytes * 2 <= disk_bytes / USES_PART)
        bytes *= 2;
    return bytes;
}

uint64_t sc_store_hints_bytes(uint64_t disk_bytes)
{
    return sizeof(struct sc_store_hints) + uses_bytes(disk_bytes);
}

/* Opens the file if it is there, or with CREATE; NULL: not. */
static struct sc_io_file *file_open(struct sc_store *store, uint32_t flags, char *ret_path,
                                    size_t path_bytes)
{
    struct sc_io_file *file = NULL;
    (void)snprintf(ret_path, path_bytes, "%s/" HINTS_NAME, store->dir);
    return sc_io_file_open(store->io, ret_path, flags, &file, NULL) == SPEC_OK ? file : NULL;
}

void sc_store_hints_open(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    if (!sc_store_is_member(store) || hints_of(store) != NULL)
        return;
    struct sc_io_file *file =
        file_open(store, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, path, sizeof(path));
    if (file == NULL)
        return;
    store->hints_bytes = sc_store_hints_bytes(store->disk.bytes_max);
    hints_set(store, sc_io_file_map(store->io, file, store->hints_bytes));
    sc_io_file_close(store->io, file); /* the memory stays */
}

void sc_store_hints_close(struct sc_store *store)
{
    struct sc_store_hints *hints = hints_of(store);
    if (hints != NULL)
        sc_io_unmap(store->io, hints, store->hints_bytes);
    hints_set(store, NULL);
}

void sc_store_hints_trim(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    uint64_t bytes = 0;
    uint64_t most = store->params.shares ? sc_store_hints_bytes(store->disk.bytes_max) : 0;
    struct sc_io_file *file = file_open(store, 0, path, sizeof(path));
    if (file == NULL)
        return;
    bool is_longer = sc_io_file_size(store->io, file, &bytes, NULL) == SPEC_OK && bytes > most;
    sc_io_file_close(store->io, file);
    if (is_longer)
        (void)sc_io_unlink(store->io, path, NULL);
}

/* ---- Intents -------------------------------------------------------------------------------- */

bool sc_store_intend(struct sc_store *store, uint64_t hash)
{
    struct sc_store_hints *hints = hints_of(store);
    if (hints == NULL || !sc_store_can_store(store))
        return true;
    uint64_t now_ms = sc_exec_wall_ns(store->params.exec) / 1000000u, own = store->member_place + 1;
    _Atomic uint64_t *hash_at = &hints->intents[hash % SLOTS].hash;
    _Atomic uint64_t *until_at = &hints->intents[hash % SLOTS].until_owner;
    uint64_t until_owner = atomic_load(until_at), until_ms = until_owner >> OWNER_BITS;
    bool is_anothers = atomic_load(hash_at) == hash &&
                       (until_owner & ((1u << OWNER_BITS) - 1)) != own && until_ms > now_ms &&
                       until_ms <= now_ms + INTENT_MS;
    if (is_anothers)
        return false;
    uint64_t next = (now_ms + INTENT_MS) << OWNER_BITS | own;
    if (!atomic_compare_exchange_strong(until_at, &until_owner, next))
        return atomic_load(hash_at) != hash; /* another was faster, maybe with this chunk */
    atomic_store(hash_at, hash);
    return true;
}

/* ---- Uses ----------------------------------------------------------------------------------- */

/* NULL: no hints. */
static _Atomic uint32_t *use_of(const struct sc_store *store, uint64_t key)
{
    struct sc_store_hints *hints = hints_of(store);
    if (hints == NULL)
        return NULL;
    uint64_t words = (store->hints_bytes - sizeof(*hints)) / sizeof(uint32_t);
    return &hints->uses[(key * HASH_FACTOR >> 32) * words >> 32]; /* by the high bits */
}

static uint32_t now_s(const struct sc_store *store)
{
    return (uint32_t)(sc_exec_wall_ns(store->params.exec) / 1000000000u);
}

void sc_store_use(struct sc_store *store, uint64_t key)
{
    _Atomic uint32_t *word = use_of(store, key);
    uint32_t now = now_s(store);
    if (word != NULL && atomic_load_explicit(word, memory_order_relaxed) != now)
        atomic_store_explicit(word, now, memory_order_relaxed);
}

uint32_t sc_store_used_s(const struct sc_store *store, uint64_t key)
{
    const _Atomic uint32_t *word = use_of(store, key);
    if (word == NULL)
        return 0;
    uint32_t then = atomic_load_explicit(word, memory_order_relaxed);
    return then <= now_s(store) ? then : 0;
}
