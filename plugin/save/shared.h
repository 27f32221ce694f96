/* shared: requests that compute the same tokens at the same time write them once.
 *
 *   request A, layer 0   begins saves [0, 640) and [640, 700), which are listed
 *   request B, layer 0   finds [0, 640) with the same tokens, joins it; begins [640, 735) alone
 *   layer l              the first to bring it packs it; the other finds it packed
 *   A is aborted         B packs the next layer; without producers a save is abandoned
 *   the save ends        the tickets of all sharers get its status
 *
 *   table  [hash after a save's first piece] -> unresolved saves
 *
 * Invariants: tokens and extra keys of a joining request equal the save's from token 0 to the end
 * of the join; its epoch is current. A save's provenance is the worst of its packed layers; a
 * request that would worsen it leaves if another continues. The save reads tokens of a request that
 * cannot retract them: one with an open pass, or the bringer of the last layer.
 * Not shared: saves of models with recurrent state; partly common saves that lack layers, which the
 * request could not end alone; saves behind one that only other requests can end.
 * Threads: the request's host thread, except where noted. Lock: saves.lock (20).
 * Tests: tests/unit/plugin/test_shared_saves.c, conformance (abi_223_*) */
#ifndef SC_PLUGIN_SAVE_SHARED_H
#define SC_PLUGIN_SAVE_SHARED_H

#include "base/status.h"
#include "hashing/chain.h"

#include <stdatomic.h>

struct sc_plugin_memory;
struct sc_plugin_request;
struct sc_plugin_save;

enum sc_plugin_putter { SC_PUTTER_NONE, SC_PUTTER_OTHER, SC_PUTTER_HOST, SC_PUTTER_QUEUE };

#define SC_PLUGIN_CUTS 8u /* maximum; where other passes of the call diverge */

/* A request's part of a save; guarded by saves.lock. */
struct sc_plugin_sharer {
    struct sc_plugin_sharer *next;     /* in the save, or in the free list */
    struct sc_plugin_request *request; /* brings layers; NULL: not any more */
    spec_ticket ticket;                /* one part of it ends with the save */
    uint64_t pass_first, end;          /* tokens; end of its pass in the save */
    uint32_t hint;                     /* sc_plugin_hint_of the request */
};

struct sc_plugin_sharers {
    /* Set by open, constant after. */
    struct sc_plugin_sharer *slots; /* [count] */
    struct sc_plugin_save **table;  /* [1 << bits] lists; guarded by saves.lock */
    uint32_t bits;

    struct sc_plugin_sharer *free; /* guarded by saves.lock */
    _Atomic uint64_t listed;       /* saves; read by any thread, written under saves.lock */
};

/* Errors: NO_MEMORY. Open, close. */
spec_status sc_plugin_shared_open(spec_connector *conn, struct spec_error *reterr);

/* Cuts passes that begin in this call with equal tokens where they diverge: step.cuts. */
void sc_plugin_shared_part(const spec_connector *conn, struct sc_plugin_request *const *requests,
                           uint64_t count);
/* Joins up to `most` consecutive saves of others from token `first` of the open pass. Returns their
 * end, to which the chain is moved. Saves that lack layers become the first of request->pass.
 * ret_parts: ticket parts of all joins. */
uint64_t sc_plugin_shared_join(spec_connector *conn, struct sc_plugin_request *request,
                               struct sc_chain *chain, uint64_t first, uint64_t most,
                               uint64_t *ret_parts);
/* Enters a new save, whose first piece ends with that hash. is_listed: others may join it. */
void sc_plugin_shared_found(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_save *save, struct sc_hash hash, bool is_listed);

/* Decides who puts this layer of the request's pass. HOST, QUEUE: the caller, directly or by the
 * queue; it then calls sc_plugin_shared_packed. OTHER: another request packs it, or this one has
 * left the save. NONE: the save has ended without it; ret_why: status for tickets. */
enum sc_plugin_putter sc_plugin_shared_tick(spec_connector *conn, struct sc_plugin_request *request,
                                            struct sc_plugin_save *save, uint32_t layer,
                                            const struct sc_plugin_memory *memory,
                                            spec_status *ret_why);
void sc_plugin_shared_packed(spec_connector *conn, struct sc_plugin_save *save);
/* Replaces sc_plugin_shared_packed if the queue took nothing. Returns true if the request left the
 * save and another brings the layer; false: there is no other, and nothing changed. */
bool sc_plugin_shared_hand_back(spec_connector *conn, const struct sc_plugin_request *request,
                                struct sc_plugin_save *save);
/* Ends the request's production for these saves. A save without producers that lacks layers is
 * abandoned. `why` BUSY or IO becomes each save's status, because a ticket keeps its first failure.
 * NO_SPACE does not: each save would ask for an eviction. */
void sc_plugin_shared_leave(spec_connector *conn, const struct sc_plugin_request *request,
                            struct sc_plugin_save *const *saves, uint64_t count, spec_status why);
/* Ends joining of a resolved save; saves.lock held. Returns its sharers with the founder, linked by
 * next. The second call frees them, unlocked. */
struct sc_plugin_sharer *sc_plugin_shared_end(spec_connector *conn, struct sc_plugin_save *save);
void sc_plugin_shared_free(spec_connector *conn, struct sc_plugin_save *save,
                           struct sc_plugin_sharer *sharers);

#endif
