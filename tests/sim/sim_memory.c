/* Big blocks kept from one connector to a later one; see sim_memory.h.
 *
 * Holds, Does not, Threads, Tests: as sim_memory.h. */
#include "tests/sim/sim_memory.h"

#include <stdlib.h>

#ifdef SC_SANITIZED
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <string.h>

#define BIG_BYTES   (64u << 10) /* smaller ones are libc's, which has them at hand */
#define KEPT_BYTES  (1u << 30)  /* of addresses: four of the largest connectors */
#define KEPT_MAX    1024u
#define AFTER_BYTES (256u << 20) /* as much as ASan's quarantine has */
#define RESTS       2u           /* of its own connector, and of one after it */
#define STEP_BYTES  (256u << 10) /* ASan clears the shadow of less by writing, of more by a map */
#define SEEN_BYTES  1024u        /* of a freed block TSan looks at so many */

static struct {
    pthread_mutex_t lock;

    /* Guarded by lock. Oldest first. */
    struct kept {
        void *block;
        uint64_t bytes, put_at; /* put_at: rests by then */
        uint64_t put_bytes;     /* of all that was put by then */
    } kept[KEPT_MAX];
    uint64_t count, bytes, rests, put_bytes;
} memory = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void *kept_take(uint64_t i)
{
    void *block = memory.kept[i].block;
    memory.bytes -= memory.kept[i].bytes;
    memory.count--;
    memmove(&memory.kept[i], &memory.kept[i + 1], (memory.count - i) * sizeof(memory.kept[0]));
    return block;
}

static bool is_ready(const struct kept *kept)
{
    return memory.rests - kept->put_at >= RESTS ||
           memory.put_bytes - kept->put_bytes >= AFTER_BYTES;
}

void *sc_sim_memory_get(uint64_t bytes, uint64_t align_bytes)
{
    char *block = NULL;
    if (bytes < BIG_BYTES)
        return aligned_alloc(align_bytes, bytes);
    pthread_mutex_lock(&memory.lock);
    for (uint64_t i = 0; i < memory.count && block == NULL; i++)
        if (memory.kept[i].bytes == bytes && (uintptr_t)memory.kept[i].block % align_bytes == 0 &&
            is_ready(&memory.kept[i]))
            block = kept_take(i);
    pthread_mutex_unlock(&memory.lock);
    if (block == NULL)
        return aligned_alloc(align_bytes, bytes);
    for (uint64_t at = 0; at < bytes; at += STEP_BYTES)
        ASAN_UNPOISON_MEMORY_REGION(block + at, bytes - at < STEP_BYTES ? bytes - at : STEP_BYTES);
    return block;
}

void sc_sim_memory_put(void *block, uint64_t bytes)
{
    if (bytes < BIG_BYTES) {
        free(block);
        return;
    }
    memset(block, 0xdd, SEEN_BYTES);
    ASAN_POISON_MEMORY_REGION(block, bytes);
    pthread_mutex_lock(&memory.lock);
    while (memory.count > 0 && (memory.count == KEPT_MAX || memory.bytes + bytes > KEPT_BYTES))
        free(kept_take(0));
    memory.bytes += bytes;
    memory.put_bytes += bytes;
    memory.kept[memory.count++] = (struct kept){block, bytes, memory.rests, memory.put_bytes};
    pthread_mutex_unlock(&memory.lock);
}

void sc_sim_memory_rest(void)
{
    pthread_mutex_lock(&memory.lock);
    memory.rests++;
    pthread_mutex_unlock(&memory.lock);
}

static void *host_get(uint64_t bytes, uint64_t align_bytes, void *user)
{
    (void)user;
    return sc_sim_memory_get(bytes, align_bytes);
}

static void host_put(void *block, uint64_t bytes, void *user)
{
    (void)user;
    sc_sim_memory_put(block, bytes);
}

void sc_sim_memory_alloc_init(struct sc_alloc *alloc)
{
    sc_alloc_init(alloc);
    alloc->host_alloc = host_get;
    alloc->host_free = host_put;
}

#else

void *sc_sim_memory_get(uint64_t bytes, uint64_t align_bytes)
{
    return aligned_alloc(align_bytes, bytes);
}

void sc_sim_memory_put(void *block, uint64_t bytes)
{
    (void)bytes;
    free(block);
}

void sc_sim_memory_rest(void)
{
}

void sc_sim_memory_alloc_init(struct sc_alloc *alloc)
{
    sc_alloc_init(alloc);
}

#endif
