/* Holds, Threads: tests/unit/plugin/stage_actor.h. */
#include "tests/unit/plugin/stage_actor.h"

#include <inttypes.h>

#define WAIT_NS UINT64_C(60000000000)

struct stage_actor actor_of(struct rig *rig, uint64_t seed, uint64_t number, bool is_thread)
{
    uint64_t start = is_thread ? seed * 1000 + number : seed;
    return (struct stage_actor){.rig = rig,
                                .seed = seed,
                                .number = number,
                                .random = rig_mix(start),
                                .is_thread = is_thread};
}

uint64_t actor_draw(struct stage_actor *actor, uint64_t below)
{
    actor->random = rig_mix(actor->random);
    return actor->random % below;
}

void actor_wrong(const struct stage_actor *actor, const char *what, spec_status status)
{
    print_error("SC_SEED=%" PRIu64 " actor %" PRIu64 " step %" PRIu64 ": %s (%s)\n", actor->seed,
                actor->number, actor->step, what, sc_status_name(status));
    if (actor->is_thread)
        abort();
    fail();
}

struct sc_store_stats actor_caps(const struct stage_actor *actor)
{
    const spec_connector *conn = actor->rig->conn;
    struct sc_store_stats stats;
    sc_store_stats(conn->store, &stats);
    ACTOR_CHECK(actor, stats.disk_bytes_used <= stats.disk_bytes_max);
    ACTOR_CHECK(actor, stats.host_bytes_used <= stats.host_bytes_max);
    ACTOR_CHECK(actor, stats.host_bytes_max <= conn->config.host_bytes);
    ACTOR_CHECK(actor, stats.upper_bytes_used <= stats.upper_bytes_max);
    ACTOR_CHECK(actor, stats.host_bytes_kept <= stats.host_bytes_max / 4 * 3 + SC_IO_PAGE_BYTES);
    return stats;
}

bool actor_stage(struct stage_actor *actor, spec_request request,
                 const uint64_t deadlines[ACTOR_DEADLINES], spec_ticket *ret_ticket)
{
    const struct spec_prefetch_to_host_params params = {
        .struct_size = sizeof(params),
        .request = request,
        .deadline_ns = deadlines[actor_draw(actor, ACTOR_DEADLINES)]};
    if (ret_ticket != NULL)
        *ret_ticket = 0;
    spec_status status = sc_plugin_host_prefetch(actor->rig->conn, &params, ret_ticket, NULL);
    if (status != SPEC_OK && status != SPEC_E_BUSY && status != SPEC_E_STALE)
        actor_wrong(actor, "stage", status);
    return status == SPEC_OK;
}

spec_status actor_ticket_end(const struct stage_actor *actor, spec_ticket ticket)
{
    spec_status ended = SPEC_PENDING;
    spec_status status = sc_plugin_wait(actor->rig->conn, &ticket, 1, WAIT_NS, &ended, NULL);
    if (status != SPEC_OK)
        actor_wrong(actor, "a ticket that does not end", status);
    return ended;
}

bool actor_stage_among(struct stage_actor *actor, spec_request request,
                       const uint64_t deadlines[ACTOR_DEADLINES], struct stage_tickets *tickets)
{
    spec_ticket ticket = 0;
    bool is_staged =
        actor_stage(actor, request, deadlines, tickets->count < ACTOR_TICKETS ? &ticket : NULL);
    if (ticket != 0)
        tickets->of[tickets->count++] = ticket;
    return is_staged;
}

void actor_tickets_poll(const struct stage_actor *actor, struct stage_tickets *tickets,
                        bool all_end)
{
    for (uint32_t i = 0; i < tickets->count;) {
        spec_status status = SPEC_PENDING;
        ACTOR_CHECK(actor,
                    sc_plugin_poll(actor->rig->conn, &tickets->of[i], 1, &status, NULL) == SPEC_OK);
        ACTOR_CHECK(actor, !all_end || status != SPEC_PENDING);
        if (status == SPEC_PENDING)
            i++;
        else
            tickets->of[i] = tickets->of[--tickets->count];
    }
}

void actor_faults_off(const struct stage_actor *actor)
{
    static const enum sc_io_sim_fault ALL[] = {SC_SIM_READ_EIO, SC_SIM_WRITE_EIO, SC_SIM_NO_SPACE,
                                               SC_SIM_FLIP};
    for (uint32_t i = 0; i < sizeof(ALL) / sizeof(ALL[0]); i++)
        sc_io_sim_fault_nth(actor->rig->disk, ALL[i], UINT64_MAX);
    sc_io_sim_fault_ppm(actor->rig->disk, SC_SIM_LATE, 0);
    atomic_store(&actor->rig->memory.countdown, -1);
}

bool actor_seeds_run(uint64_t usual, void (*run)(uint64_t seed, void *user), void *user)
{
    const char *only = getenv("SC_SEED"), *many = getenv("SC_SEEDS");
    uint64_t first = only != NULL ? strtoull(only, NULL, 10) : 1;
    uint64_t count = only != NULL ? 1 : many != NULL ? strtoull(many, NULL, 10) : usual;
    for (uint64_t seed = first; seed < first + count; seed++)
        run(seed, user);
    return only == NULL;
}
