/* Branches of states that are stored (plugin/args/recurrent.h): of a pass that ends, behind its
 * rows.
 *
 * Threads: the request's host thread, but unref.
 * Tests: conformance (abi_212_*), tests/unit/plugin/test_recurrent.c,
 * test_recurrent_space.c */
#ifndef SC_PLUGIN_SAVE_SAVE_RECURRENT_H
#define SC_PLUGIN_SAVE_SAVE_RECURRENT_H

#include "plugin/save/saves.h"

#define SC_PLUGIN_RECURRENT_SAVES   64u  /* extents of a branch at most */
#define SC_PLUGIN_RECURRENT_EXTENTS 128u /* of all that are being written: beside those of rows */

struct sc_plugin_request;

/* The states of an open pass, and the tokens of their branch until its saves have ended. */
struct sc_plugin_recurrent_pass {
    /* Set by open, constant after: the arrays. */
    uint32_t *tokens;                  /* [max_request_tokens + branch rows] */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS + 1] */
    struct sc_store_mark *store_marks; /* the same */
    uint8_t *rows;                     /* [branch rows] of the layer that is being filled */

    /* The host thread that stores the pass. */
    struct sc_plugin_text text;
    uint64_t first; /* where the pass ends */
    struct sc_plugin_save *saves[SC_PLUGIN_RECURRENT_SAVES];
    uint64_t save_count;
    bool is_given_up;

    uint64_t piece_last; /* guarded by commit_lock: of the saves that were committed; 0: none */

    /* Guarded by saves.lock. */
    struct sc_plugin_recurrent_pass *next; /* free list */
    uint32_t refs;                     /* the open pass, and each save */
};

/* What passes with states need. Errors: INVALID (a branch is too large), NO_MEMORY. Open. */
spec_status sc_plugin_recurrent_saves_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_recurrent_saves_close(spec_connector *conn);

/* Behind the pass's own saves. Not OK: it has no branch, of which some saves may have begun, and
 * were given up. DROPPED: the write budget has no room for it, which is counted. */
spec_status sc_plugin_recurrent_begin(spec_connector *conn, struct sc_plugin_request *request,
                                      struct spec_error *reterr);
/* How many saves have begun. */
uint64_t sc_plugin_recurrent_saves(const struct sc_plugin_request *request);
/* The step's layer keeps a state: it is copied, and what is complete goes to its extents. */
void sc_plugin_recurrent_put(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_recurrent_give_up(spec_connector *conn, struct sc_plugin_request *request,
                                 spec_status why);
/* The host names the pass no more. */
void sc_plugin_recurrent_let_go(spec_connector *conn, struct sc_plugin_request *request);
/* A save of it has ended. Executor. save_pool.c */
void sc_plugin_recurrent_unref(spec_connector *conn, struct sc_plugin_recurrent_pass *pass);

#endif
