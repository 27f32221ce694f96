/* saves: passes being stored, from the host's call (request/store_call.c) over extents (save.c,
 * from a device by queue.h) to records and runs of the index (commit.c).
 * Threads: per member and call. Tests: tests/unit/plugin/test_save.c */
#ifndef SC_PLUGIN_SAVE_SAVES_H
#define SC_PLUGIN_SAVE_SAVES_H

#include "base/exec.h"
#include "base/log.h"
#include "hashing/chain.h"
#include "plugin/save/shared.h"
#include "store/store.h"

#define SC_PLUGIN_SAVE_TOKENS 4096u /* maximum rows of an extent; bounds a plan's pieces */
#define SC_PLUGIN_PASS_SAVES  SC_STORE_PASS_EXTENTS /* maximum extents of a pass */

struct sc_plugin_request;
struct sc_plugin_d2h_batch;
struct sc_plugin_recurrent_pass;

/* Tokens of a save's rows: its request's, or those of a branch of states. */
struct sc_plugin_text {
    const uint32_t *tokens;
    uint64_t token_count; /* up to the save's end; all of a branch */
    struct sc_marks marks;
    const struct sc_store_mark *store_marks; /* the same, in the store's format */
};

enum sc_plugin_save_state { SC_SAVE_WRITING, SC_SAVE_WRITTEN };

/* One extent of a pass, from the first layer to the end of its tickets' part. */
struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_store_extent *extent;
    struct sc_plugin_recurrent_pass *states; /* of a branch of states; NULL: of rows */
    uint64_t first, count;               /* tokens */
    struct sc_hash first_hash;           /* after its first piece */

    /* Guarded by saves.lock. */
    struct sc_plugin_save *next; /* free list, or queue of commits */
    uint32_t state;              /* enum sc_plugin_save_state */
    spec_status status;
    uint32_t refs; /* open passes, the tickets' part, the putter of a layer; 0: free */
    uint64_t life; /* incremented when resolved */
    bool waits;    /* for `ahead`, whose list has it */
    struct sc_plugin_save *ahead;       /* the unresolved save before it, while it waits */
    struct sc_plugin_save *behind;      /* first save that waits for this one */
    struct sc_plugin_save *behind_next; /* in the list of `ahead` */
    uint64_t queued;  /* layers in flight to the extent, incl. the one being put */
    uint64_t look;    /* queue.look when one of them was seen */
    bool is_putting;  /* the queue's task puts a layer now */
    bool gives_up;    /* is_putting's task must end the extent */
    bool has_ended;   /* the extent has no producer any more */
    bool is_open;     /* rows are written but the pass may be dropped: no commit */
    bool is_void;     /* the pass was dropped: no commit */
    spec_status lost; /* reason unknown to the store; SPEC_OK: the store has it */

    /* Sharing (shared.h): saves.lock; except sharers constant once the last layer is taken. */
    struct sc_plugin_request *request; /* held; its tokens are read */
    struct spec_provenance provenance; /* worst provenance of the packed layers */
    struct sc_plugin_sharer founder, *sharers;
    uint64_t producers;                 /* sharers that bring layers */
    uint32_t layers;                    /* packed or being packed */
    bool is_packing;                    /* a host's thread packs one of them */
    bool is_listed;                     /* others may join it */
    struct sc_plugin_save *bucket_next; /* list in the sharing table */
};

/* queue.h: layers in the order of calls. */
struct sc_plugin_queue {
    spec_connector *conn;
    struct sc_task task;   /* posted or running while is_active */
    uint64_t wait_ns;      /* the task's delay */
    _Atomic uint32_t word; /* incremented when a batch is freed */

    /* Guarded by saves.lock. */
    struct sc_plugin_d2h_batch *head, *tail;
    uint64_t look; /* number of scans */
    bool is_active;
};

struct sc_plugin_saves {
    struct sc_plugin_save *slots; /* [count] set by open, constant */
    uint64_t count;
    _Atomic uint32_t word; /* incremented when a save ends */
    _Atomic uint64_t live;
    struct sc_log_limit lost; /* log limit for lost saves */

    pthread_mutex_t lock; /* rank 20: saves, layers in flight, the committer */
    struct sc_plugin_save *free;
    struct sc_plugin_save *commit_head, *commit_tail;
    bool is_committing;
    struct sc_task commits; /* posted by a host that released the last save; counted in live */
    struct sc_plugin_queue queue;
    struct sc_plugin_sharers sharers;
};

/* Plans the pass with its layer 0: takes its ticket. Errors: BUSY (no ticket). */
spec_status sc_plugin_pass_plan(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr);
void sc_plugin_pass_unplan(spec_connector *conn, struct sc_plugin_request *request);
/* Begins the pass. Its tokens and those of all passes in the call are known (shared.h). */
void sc_plugin_pass_begin(spec_connector *conn, struct sc_plugin_request *request);
/* Abandons the pass if what it is computed on, known by now, may not be stored. Each layer. */
void sc_plugin_pass_judge(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_put(spec_connector *conn, struct sc_plugin_request *request);
/* Ends the pass after its last layer. */
void sc_plugin_pass_end(spec_connector *conn, struct sc_plugin_request *request);
/* Unpins what was stored in front of the pass and in its place. */
void sc_plugin_pass_unpin(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request);
/* Voids the open pass: it continues, and stores nothing. */
void sc_plugin_pass_void(spec_connector *conn, struct sc_plugin_request *request);

/* Returns the number of extents of at most `step` rows, cut on the grid, for these tokens. */
uint64_t sc_plugin_save_count(const spec_connector *conn, uint64_t first, uint64_t count,
                              uint64_t step);
uint64_t sc_plugin_save_rows_max(const spec_connector *conn);
/* Returns the rows per extent: fewer than the maximum if free space is in short runs, but enough
 * for at most saves_max extents. */
uint64_t sc_plugin_save_rows(const spec_connector *conn, uint64_t token_count, uint64_t saves_max);
/* Begins a save, of a branch (`states`) or of the request's tokens, after those the request has.
 * The chain is moved from `first` to the end. */
spec_status sc_plugin_save_begin(spec_connector *conn, struct sc_plugin_request *request,
                                 struct sc_plugin_recurrent_pass *states, struct sc_chain *chain,
                                 uint64_t first, uint64_t count, struct sc_plugin_save **ret_save,
                                 struct spec_error *reterr);

spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr);
/* Ends the pass's holds of these saves. keeps: they are committed once written; else dropped. */
void sc_plugin_saves_leave(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *const *saves, uint64_t count, bool keeps);
void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user);

/* Returns a save with one hold; NULL: all are in use. */
struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn);
/* Ends a hold; the last one frees the save. */
void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save);
/* Makes the save the request's last one, committed after the previous one. Host thread. */
void sc_plugin_save_follow(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *save);
struct sc_plugin_text sc_plugin_save_text(const struct sc_plugin_save *save);
/* Returns the chunks that tokens [first, end) touch. */
uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end);
/* Maps an internal status to one that tickets may report. */
spec_status sc_plugin_ticket_status(spec_status status);

#endif
