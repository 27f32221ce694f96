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
 * A model is a namespace. A member says once a second that it lives; one that was not heard of for
 * a lease, five seconds at least, counts as dead: nothing that a stopped process wrote stays for
 * good. A member asks one of another model to evict rows that were used before a second. An ask is
 * taken once; noise in it evicts an eighth of the disk's bytes at most, and only what is old.
 *
 * All members have the same disk_bytes, that of the log, so they have the same number of words. The
 * file only grows while it is mapped: who mapped a shorter one keeps its words, which another
 * number of words finds elsewhere. */
#include "store/log/hints.h"
#include "store/internal.h"

#include <stdio.h>
#include <string.h>

#define HINTS_NAME "hints"
#define SLOTS      1024u
#define INTENT_MS  5000u
#define ASK_MS     250u
#define OWNER_BITS 8u
#define USES_PART  4096u        /* of disk_bytes: the table's share */
#define USES_LEAST (4ull << 10) /* bytes of the table */
#define LIVES_S    5u           /* least time after which a member that was not heard of is dead */
#define ASKED_PART 8u           /* of disk_bytes: what another model may ask for at once */
#define USES_MOST  (1ull << 20)
#define HASH_FACTOR                                                                                \
    UINT64_C(0x9E3779B97F4A7C15) /* 2^64 / golden ratio: spreads consecutive ids                   \
                                  */

struct sc_store_hints {
    struct {
        _Atomic uint64_t hash;
        _Atomic uint64_t until_owner; /* wall clock in ms, and a member's place + 1 */
    } intents[SLOTS];
    struct {
        _Atomic uint64_t digest;    /* first 8 bytes; 0: nobody */
        _Atomic uint32_t heard_s;   /* wall clock */
        _Atomic uint32_t coldest_s; /* last use of what it would evict first; 0: it has nothing */
        _Atomic uint64_t asked;     /* rows used before this second 32..63 | pages 0..31; 0: none */
        uint64_t reserved[5];
    } models[SC_STORE_MEMBERS_MAX];
    _Atomic uint64_t asks; /* for segments: as until_owner, the time when it was said */
    uint8_t reserved[3064];
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

_Static_assert(sizeof(struct sc_store_hints) == 20u << 10, "whole pages before the uses");

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
    (void)sc_store_models_say(store, 0);
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

/* ---- Segments ------------------------------------------------------------------------------- */

/* Returns the place + 1 of the member that asks; 0: none. */
static uint64_t asker(const struct sc_store *store, struct sc_store_hints *hints)
{
    uint64_t asks = atomic_load_explicit(&hints->asks, memory_order_relaxed);
    uint64_t now_ms = sc_exec_wall_ns(store->params.exec) / 1000000u, then_ms = asks >> OWNER_BITS;
    return then_ms <= now_ms && now_ms - then_ms < ASK_MS ? asks & ((1u << OWNER_BITS) - 1) : 0;
}

void sc_store_claims_ask(struct sc_store *store)
{
    struct sc_store_hints *hints = hints_of(store);
    if (hints == NULL)
        return;
    uint64_t now_ms = sc_exec_wall_ns(store->params.exec) / 1000000u, own = store->member_place + 1;
    uint64_t other = asker(store, hints);
    if (other == 0 || other >= own)
        atomic_store_explicit(&hints->asks, now_ms << OWNER_BITS | own, memory_order_relaxed);
}

bool sc_store_claims_asked(const struct sc_store *store, bool asks)
{
    struct sc_store_hints *hints = hints_of(store);
    uint64_t own = store->member_place + 1, other = hints != NULL ? asker(store, hints) : 0;
    return other != 0 && other != own && (!asks || other < own);
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

/* ---- Models --------------------------------------------------------------------------------- */

static uint64_t digest_word(const uint8_t *digest)
{
    uint64_t word;
    memcpy(&word, digest, sizeof(word));
    return word != 0 ? word : 1;
}

/* Returns the namespace of the member that was heard of lately in this place; 0: none. */
static uint64_t model_at(const struct sc_store *store, struct sc_store_hints *hints, uint32_t place)
{
    uint64_t lease_s = store->params.config->lease_ns_max / 1000000000u;
    uint32_t now = now_s(store);
    uint32_t heard = atomic_load_explicit(&hints->models[place].heard_s, memory_order_relaxed);
    if (heard > now || now - heard > (lease_s > LIVES_S ? lease_s : LIVES_S))
        return 0;
    return atomic_load_explicit(&hints->models[place].digest, memory_order_relaxed);
}

void sc_store_models_living(const struct sc_store *store, struct sc_store_living *ret_living)
{
    struct sc_store_hints *hints = hints_of(store);
    uint64_t own = digest_word(store->shape.digest);
    *ret_living = (struct sc_store_living){0};
    for (uint32_t i = 0; hints != NULL && i < SC_STORE_MEMBERS_MAX; i++) {
        uint64_t digest = model_at(store, hints, i);
        if (digest == 0 || digest == own)
            continue;
        ret_living->digests[ret_living->count++] = digest;
        ret_living->sum += digest;
    }
}

bool sc_store_model_lives(const struct sc_store_living *living, const uint8_t *digest)
{
    uint64_t word = digest_word(digest);
    for (uint32_t i = 0; i < living->count; i++)
        if (living->digests[i] == word)
            return true;
    return false;
}

bool sc_store_models_say(struct sc_store *store, uint32_t coldest_s)
{
    struct sc_store_hints *hints = hints_of(store);
    struct sc_store_living living;
    if (hints == NULL || !sc_store_can_store(store))
        return false;
    uint32_t place = store->member_place;
    atomic_store_explicit(&hints->models[place].digest, digest_word(store->shape.digest),
                          memory_order_relaxed);
    atomic_store_explicit(&hints->models[place].coldest_s, coldest_s, memory_order_relaxed);
    atomic_store_explicit(&hints->models[place].heard_s, now_s(store), memory_order_relaxed);
    sc_store_models_living(store, &living);
    return living.count > 0;
}

bool sc_store_models_ask(struct sc_store *store, uint64_t bytes, uint32_t before_s)
{
    struct sc_store_hints *hints = hints_of(store);
    uint64_t own = digest_word(store->shape.digest), pages = bytes / SC_IO_PAGE_BYTES + 1;
    uint32_t coldest_place = SC_STORE_MEMBERS_MAX, coldest_s = before_s;
    for (uint32_t i = 0; hints != NULL && i < SC_STORE_MEMBERS_MAX; i++) {
        uint64_t digest = model_at(store, hints, i);
        uint32_t second = atomic_load_explicit(&hints->models[i].coldest_s, memory_order_relaxed);
        if (digest == 0 || digest == own || second == 0 || second >= coldest_s)
            continue;
        coldest_place = i;
        coldest_s = second;
    }
    if (coldest_place == SC_STORE_MEMBERS_MAX)
        return false;
    atomic_store_explicit(&hints->models[coldest_place].asked,
                          (uint64_t)before_s << 32 | (pages < UINT32_MAX ? pages : UINT32_MAX),
                          memory_order_relaxed);
    return true;
}

uint64_t sc_store_models_asked(struct sc_store *store, uint32_t *ret_before_s)
{
    struct sc_store_hints *hints = hints_of(store);
    if (hints == NULL || !sc_store_can_store(store))
        return 0;
    _Atomic uint64_t *asked_at = &hints->models[store->member_place].asked;
    if (atomic_load_explicit(asked_at, memory_order_relaxed) == 0)
        return 0;
    uint64_t asked = atomic_exchange_explicit(asked_at, 0, memory_order_relaxed);
    uint64_t bytes = (asked & UINT32_MAX) * SC_IO_PAGE_BYTES;
    uint64_t most = store->disk.bytes_max / ASKED_PART;
    *ret_before_s = (uint32_t)(asked >> 32);
    if (*ret_before_s > now_s(store))
        return 0;
    return bytes < most ? bytes : most;
}
