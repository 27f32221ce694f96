/* The real connector, but for one thing: get_important says OK and leaves the destination as it
 * was. Every clause that promises data must catch it.
 *
 *   destination -> kept aside -> the real get_important -> put back
 *
 * Holds: everything else is the real connector; results, positions and errors are its own.
 * Does not: know how the real one is made; the build gives its table another name.
 * Threads: as the real one. Tests: conformance/broken/test_broken.py */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "abi/spec_connector.h"

#define ITEMS_MAX 64u

/* The real connector's function, renamed by the build. */
const struct spec_api *sc_broken_real_api(uint32_t major);

struct kept {
    void *k, *v;
};

static void *keep(const void *memory, uint64_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    if (copy != NULL && memory != NULL)
        memcpy(copy, memory, bytes);
    return copy;
}

static void put_back(void *memory, void *copy, uint64_t bytes)
{
    if (copy != NULL && memory != NULL)
        memcpy(memory, copy, bytes);
    free(copy);
}

/* Memory that the real one would refuse is not looked at: its sizes may be lies. */
static const struct spec_memory *destination_of(const struct spec_important *item)
{
    const struct spec_memory *memory =
        item->struct_size >= sizeof(*item) ? item->destination : NULL;
    if (memory == NULL || memory->struct_size < sizeof(*memory) || memory->k_base == NULL)
        return NULL;
    return memory;
}

static spec_status get_important_nothing(spec_connector *conn, struct spec_important *items,
                                         uint64_t count, struct spec_error *reterr)
{
    const struct spec_api *real = sc_broken_real_api(SPEC_ABI_MAJOR);
    struct kept kept[ITEMS_MAX] = {{0}};
    if (items == NULL || count > ITEMS_MAX)
        return real->get_important(conn, items, count, reterr);
    for (uint64_t i = 0; i < count; i++) {
        const struct spec_memory *memory = destination_of(&items[i]);
        if (memory != NULL)
            kept[i] = (struct kept){keep(memory->k_base, memory->k_bytes),
                                    keep(memory->v_base, memory->v_bytes)};
    }
    spec_status status = real->get_important(conn, items, count, reterr);
    for (uint64_t i = 0; i < count; i++) {
        const struct spec_memory *memory = destination_of(&items[i]);
        if (memory == NULL)
            continue;
        put_back(memory->k_base, kept[i].k, memory->k_bytes);
        put_back(memory->v_base, kept[i].v, memory->v_bytes);
    }
    return status;
}

/* The halves: submit is the whole call, its status waits for wait. */
static _Atomic uint64_t submissions;
static spec_status submitted[ITEMS_MAX];

static spec_status submit_nothing(spec_connector *conn, struct spec_important *items,
                                  uint64_t count, spec_ticket *ret_ticket,
                                  struct spec_error *reterr)
{
    uint64_t ticket = atomic_fetch_add(&submissions, 1) + 1;
    submitted[ticket % ITEMS_MAX] = get_important_nothing(conn, items, count, reterr);
    *ret_ticket = ticket;
    return SPEC_OK;
}

static spec_status wait_nothing(spec_connector *conn, spec_ticket ticket, uint64_t timeout_ns,
                                struct spec_error *reterr)
{
    (void)conn, (void)timeout_ns, (void)reterr;
    return submitted[ticket % ITEMS_MAX];
}

const struct spec_api *spec_connector_api(uint32_t major)
{
    static struct spec_api table;
    const struct spec_api *real = sc_broken_real_api(major);
    if (real == NULL)
        return NULL;
    table = *real;
    table.get_important = get_important_nothing;
    table.get_important_submit = submit_nothing;
    table.get_important_wait = wait_nothing;
    return &table;
}
