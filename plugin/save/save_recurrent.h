/* save_recurrent: stores branches of recurrent states (plugin/args/recurrent.h) at a pass's end.
 * Threads: the request's host thread; unref any.
 * Tests: conformance (abi_212_*), tests/unit/plugin/test_recurrent*.c */
#ifndef SC_PLUGIN_SAVE_SAVE_RECURRENT_H
#define SC_PLUGIN_SAVE_SAVE_RECURRENT_H

#include "plugin/save/saves.h"

#define SC_PLUGIN_RECURRENT_SAVES   64u  /* extents of a branch, maximum */
#define SC_PLUGIN_RECURRENT_EXTENTS 128u /* of all branches being written, beside those of rows */

struct sc_plugin_request;

/* The states of an open pass, and the tokens of their branch until its saves have ended. */
struct sc_plugin_recurrent_pass {
    /* Arrays, set by open, constant after. */
    uint32_t *tokens;                  /* [max_request_tokens + branch rows] */
    struct sc_mark *marks;             /* [SC_PLUGIN_MARKS + 1] */
    struct sc_store_mark *store_marks; /* the same, in the store's format */
    uint8_t *rows;                     /* [branch rows] of the layer being filled */

    /* The host thread that stores the pass. */
    struct sc_plugin_text text;
    uint64_t first; /* the pass's end */
    struct sc_plugin_save *saves[SC_PLUGIN_RECURRENT_SAVES];
    uint64_t save_count;
    bool is_given_up;

    uint64_t piece_last; /* guarded by commit_lock: last committed piece; 0: none */

    /* Guarded by saves.lock. */
    struct sc_plugin_recurrent_pass *next; /* free list */
    uint32_t refs;                     /* the open pass, and each save */
};

/* Allocates passes with states. Errors: INVALID (a branch is too large), NO_MEMORY. Open. */
spec_status sc_plugin_recurrent_saves_open(spec_connector *conn, struct spec_error *reterr);
void sc_plugin_recurrent_saves_close(spec_connector *conn);

/* Begins the branch after the pass's own saves. On errors the pass has no branch; saves begun are
 * abandoned. DROPPED: the write budget is exhausted, which is counted. */
spec_status sc_plugin_recurrent_begin(spec_connector *conn, struct sc_plugin_request *request,
                                      struct spec_error *reterr);
uint64_t sc_plugin_recurrent_saves(const struct sc_plugin_request *request);
/* Copies the step's recurrent state; puts layers of the store that are complete. */
void sc_plugin_recurrent_put(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_recurrent_give_up(spec_connector *conn, struct sc_plugin_request *request,
                                 spec_status why);
void sc_plugin_recurrent_let_go(spec_connector *conn, struct sc_plugin_request *request);
/* Ends a save's hold. Executor. save_pool.c */
void sc_plugin_recurrent_unref(spec_connector *conn, struct sc_plugin_recurrent_pass *pass);

#endif
