/* Somebody who stages, loads and stores at random, by a seed: what tests of such walks have in
 * common, whether one walks beside faults or several run beside each other.
 *
 * Holds: what an actor draws follows from its seed and number alone; whatever is wrong says seed,
 * number and step.
 * Threads: an actor is one thread's; of another than the test's, where is_thread says so. */
#ifndef SC_TESTS_UNIT_PLUGIN_STAGE_ACTOR_H
#define SC_TESTS_UNIT_PLUGIN_STAGE_ACTOR_H

#include "store/internal.h"
#include "tests/unit/plugin/plugin_fixture.h"

#define ACTOR_DEADLINES 6u
#define ACTOR_TICKETS   16u

struct stage_actor {
    struct rig *rig;
    uint64_t seed, number, step, random;
    bool is_thread; /* a failure ends the program: cmocka knows its own thread alone */
};

struct stage_actor actor_of(struct rig *rig, uint64_t seed, uint64_t number, bool is_thread);
uint64_t actor_draw(struct stage_actor *actor, uint64_t below);
void actor_wrong(const struct stage_actor *actor, const char *what, spec_status status);
#define ACTOR_CHECK(actor, cond)                                                                   \
    do {                                                                                           \
        if (!(cond))                                                                               \
            actor_wrong((actor), #cond, SPEC_OK);                                                  \
    } while (0)

/* The store's counts; none is above its cap. */
struct sc_store_stats actor_caps(const struct stage_actor *actor);

/* Stages, with one of the deadlines. Errors that a caller has to expect count as none.
 * ret_ticket: NULL, or the ticket; 0: none. true: it is staged. */
bool actor_stage(struct stage_actor *actor, spec_request request,
                 const uint64_t deadlines[ACTOR_DEADLINES], spec_ticket *ret_ticket);
/* How the ticket ends: it does, within a minute. */
spec_status actor_ticket_end(const struct stage_actor *actor, spec_ticket ticket);

/* Tickets that are out. */
struct stage_tickets {
    spec_ticket of[ACTOR_TICKETS];
    uint32_t count;
};
/* actor_stage, with a ticket as long as there is room for it. */
bool actor_stage_among(struct stage_actor *actor, spec_request request,
                       const uint64_t deadlines[ACTOR_DEADLINES], struct stage_tickets *tickets);
/* Those that have ended are forgotten. all_end: none is left. */
void actor_tickets_poll(const struct stage_actor *actor, struct stage_tickets *tickets,
                        bool all_end);

/* Neither disk nor memory fails any more. */
void actor_faults_off(const struct stage_actor *actor);

/* run of seeds 1 to `usual`, or to SC_SEEDS, or of SC_SEED alone. true: of all. */
bool actor_seeds_run(uint64_t usual, void (*run)(uint64_t seed, void *user), void *user);

#endif
