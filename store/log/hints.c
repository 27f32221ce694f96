/* Contract: hints.h.
 *
 * An intent says for five seconds that a member stores a chunk that no log has so far, so that the
 * others need not write its rows too. The words of a slot are written one after the other: a reader
 * may see those of two intents, and then stores what another does, or leaves to another what nobody
 * does until the next pass with those tokens. Times that nobody can have written are ignored. */
#include "store/log/hints.h"
#include "store/internal.h"

#include <stdio.h>

#define HINTS_NAME "hints"
#define SLOTS      (SC_STORE_HINTS_BYTES / 16u)
#define INTENT_MS  5000u
#define OWNER_BITS 8u

struct sc_store_hints {
    struct {
        _Atomic uint64_t hash;
        _Atomic uint64_t until_owner; /* wall clock in ms, and a member's place + 1 */
    } intents[SLOTS];
};

_Static_assert(sizeof(struct sc_store_hints) == SC_STORE_HINTS_BYTES, "as counted in disk_bytes");

void sc_store_hints_open(struct sc_store *store)
{
    char path[SC_LIMIT_PATH_BYTES + 64];
    struct sc_io_file *file = NULL;
    if (!sc_store_is_member(store) || store->hints != NULL)
        return;
    (void)snprintf(path, sizeof(path), "%s/" HINTS_NAME, store->dir);
    if (sc_io_file_open(store->io, path, SC_IO_OPEN_CREATE | SC_IO_OPEN_WRITE, &file, NULL) !=
        SPEC_OK)
        return;
    store->hints = sc_io_file_map(store->io, file, sizeof(*store->hints));
    sc_io_file_close(store->io, file); /* the memory stays */
}

void sc_store_hints_close(struct sc_store *store)
{
    if (store->hints != NULL)
        sc_io_unmap(store->io, store->hints, sizeof(*store->hints));
    store->hints = NULL;
}

bool sc_store_intend(struct sc_store *store, uint64_t hash)
{
    struct sc_store_hints *hints = store->hints;
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
