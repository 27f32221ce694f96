/* Shared saves: requests that compute the same tokens at the same time write them once.
 *
 *   request A, layer 0   begins saves [0, 640) and [640, 700), which are listed
 *   request B, layer 0   finds [0, 640) with the same tokens, joins it; begins [640, 735) alone
 *   layer l              whoever brings it first packs it; for the other one it is packed already
 *   A is aborted         B packs the next layer; a save whose last producer leaves is given up
 *   the save ends        the tickets of all that joined learn how
 *
 *   table  [hash after a save's first piece] -> saves that are not resolved
 *
 * Holds: the tokens and the extra keys of a request that joins are compared with the save's, from
 * token 0 to the end of what it joins; its epoch is current. A save is worth the worst of what its
 * packers' layers were computed on; a request that would worsen it leaves it while another one goes
 * on. The save reads the tokens of a request that cannot take them back: one with an open pass, and
 * from the last layer on, the one that brought that layer.
 * Does not: share saves of models that keep states; join a save whose tokens the request has in
 * part, but if all its layers are packed: it could not end such a save alone; join a save that is
 * committed behind one which only other requests can end.
 * Threads: the request's host thread, but where a function says otherwise. Lock: saves.lock (20).
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

#define SC_PLUGIN_CUTS 8u /* of a pass, where the tokens of others in its call part from it */

/* A request's part of a save: guarded by saves.lock. */
struct sc_plugin_sharer {
    struct sc_plugin_sharer *next;     /* of the save, or of the free list */
    struct sc_plugin_request *request; /* that brings layers; NULL: it brings no more */
    spec_ticket ticket;                /* one part of it ends with the save */
    uint64_t pass_first, end;          /* tokens that its pass has of the save end here */
    uint32_t hint;                     /* sc_plugin_hint_of the request */
};

struct sc_plugin_sharers {
    /* Set by open, constant after: */
    struct sc_plugin_sharer *slots; /* [count] */
    struct sc_plugin_save **table;  /* [1 << bits] lists, guarded by saves.lock */
    uint32_t bits;

    struct sc_plugin_sharer *free; /* guarded by saves.lock */
    _Atomic uint64_t listed;       /* saves; any thread looks, saves.lock is held to write */
};

/* Errors: NO_MEMORY. Open, close. */
spec_status sc_plugin_shared_open(spec_connector *conn, struct spec_error *reterr);

/* Passes that begin with this call, and whose first tokens are equal, are cut where they part:
 * step.cuts. Their tokens are known. */
void sc_plugin_shared_part(const spec_connector *conn, struct sc_plugin_request *const *requests,
                           uint64_t count);
/* Joins saves of others that begin at token `first` of the open pass, and those behind them, with
 * no more than `most` in all. The chain stands at `first`, and goes on to the end of what was
 * joined, which is returned. Saves whose layers are to come are the first of request->pass;
 * ret_parts: of the ticket, for all that was joined. */
uint64_t sc_plugin_shared_join(spec_connector *conn, struct sc_plugin_request *request,
                               struct sc_chain *chain, uint64_t first, uint64_t most,
                               uint64_t *ret_parts);
/* A new save of the request, whose first piece ends with that hash; listed: others may join it. */
void sc_plugin_shared_found(spec_connector *conn, struct sc_plugin_request *request,
                            struct sc_plugin_save *save, struct sc_hash hash, bool is_listed);

/* Says who puts the layer of the request's pass, which is in that memory. HOST, QUEUE: the caller
 * puts it, at once or by the queue, and then calls sc_plugin_shared_packed. OTHER: the layer was
 * packed for another request, or is being packed, or the request has left the save. NONE: the save
 * has ended without the layer; ret_why is the reason, as a ticket says it. */
enum sc_plugin_putter sc_plugin_shared_tick(spec_connector *conn, struct sc_plugin_request *request,
                                            struct sc_plugin_save *save, uint32_t layer,
                                            const struct sc_plugin_memory *memory,
                                            spec_status *ret_why);
void sc_plugin_shared_packed(spec_connector *conn, struct sc_plugin_save *save);
/* Called instead of sc_plugin_shared_packed if the queue took nothing of the layer. True: the
 * request has left the save, and another one brings the layer. False: no other request could, and
 * nothing has changed. */
bool sc_plugin_shared_hand_back(spec_connector *conn, const struct sc_plugin_request *request,
                                struct sc_plugin_save *save);
/* The request brings no more layers of these saves. A save that lacks layers and that nobody else
 * brings is given up. If `why` is BUSY or IO, each of them tells it, because a ticket keeps the
 * first failure, which may be another save's. NO_SPACE is not told: each would ask for an eviction.
 */
void sc_plugin_shared_leave(spec_connector *conn, const struct sc_plugin_request *request,
                            struct sc_plugin_save *const *saves, uint64_t count, spec_status why);
/* The save is resolved, saves.lock is held: nobody joins it any more. Returns those who did, the
 * founder among them, linked by next. They are freed with the second call, without the lock. */
struct sc_plugin_sharer *sc_plugin_shared_end(spec_connector *conn, struct sc_plugin_save *save);
void sc_plugin_shared_free(spec_connector *conn, struct sc_plugin_save *save,
                           struct sc_plugin_sharer *sharers);

#endif
