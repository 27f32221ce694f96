/* Passes that are being stored: from the host's call (store_call.c), to extents (save.c), to
 * records and runs of the index (commit.c).
 *
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_save.c */
#ifndef SC_PLUGIN_SAVES_H
#define SC_PLUGIN_SAVES_H

#include "base/log.h"
#include "store/store.h"

#define SC_PLUGIN_SAVE_TOKENS 4096u /* rows of one extent at most: bounds the pieces of a plan */
#define SC_PLUGIN_PASS_SAVES  256u  /* extents of one pass at most */

struct sc_plugin_request;

enum sc_plugin_save_state { SC_SAVE_WRITING, SC_SAVE_WRITTEN };

/* One extent of a pass, from the first layer until its tickets' part ended. */
struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_plugin_request *request;
    struct sc_store_extent *extent;
    uint64_t first, count; /* tokens */
    spec_ticket ticket;
    struct spec_provenance provenance; /* what it is computed on; set before its last layer */

    /* Guarded by saves.lock. */
    struct sc_plugin_save *next; /* free list, the request's queue, or the queue of commits */
    uint32_t state;              /* enum sc_plugin_save_state */
    spec_status status;
};

struct sc_plugin_saves {
    struct sc_plugin_save *slots; /* [count] set by open, constant */
    uint64_t count;
    _Atomic uint32_t word; /* moves when a save ends */
    _Atomic uint64_t live;
    struct sc_log_limit lost; /* lines of those that were */

    pthread_mutex_t lock; /* rank 20: saves, and who commits; a few instructions each */
    struct sc_plugin_save *free;
    struct sc_plugin_save *commit_head, *commit_tail;
    bool is_committing;
};

/* store_call.c */
spec_status sc_plugin_store(spec_connector *conn, const struct spec_store_params *params,
                            uint64_t count, spec_ticket *ret_tickets, struct spec_error *reterr);
spec_status sc_plugin_store_abort(spec_connector *conn, spec_request handle, uint64_t from_token,
                                  struct spec_error *reterr);

/* save.c: of the request's step, which was checked */
/* With layer 0: what the pass shall become, and its ticket. BUSY: there is none. */
spec_status sc_plugin_pass_plan(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr);
void sc_plugin_pass_unplan(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_begin(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_put(spec_connector *conn, struct sc_plugin_request *request);
/* What stood in front of the pass's rows, and in their places, may go. */
void sc_plugin_pass_unpin(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request);
/* What the open pass is computed on is void: it goes on, and stores nothing. */
void sc_plugin_pass_void(struct sc_plugin_request *request);

/* commit.c */
spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr);
struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn); /* NULL: all are in flight */
void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save);
void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user);
/* Chunks that tokens [first, end) touch. */
uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end);
/* What a ticket says (the ABI lists the statuses) for what went wrong inside. */
spec_status sc_plugin_ticket_status(spec_status status);

#endif
