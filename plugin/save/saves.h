/* Passes that are being stored: from the host's call (request/store_call.c), to extents (save.c;
 * what comes from a device by a queue, queue.h), to records and runs of the index (commit.c).
 *
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_save.c */
#ifndef SC_PLUGIN_SAVE_SAVES_H
#define SC_PLUGIN_SAVE_SAVES_H

#include "base/exec.h"
#include "base/log.h"
#include "hashing/chain.h"
#include "plugin/save/shared.h"
#include "store/store.h"

#define SC_PLUGIN_SAVE_TOKENS 4096u /* rows of one extent at most: bounds the pieces of a plan */
#define SC_PLUGIN_PASS_SAVES  SC_STORE_PASS_EXTENTS /* extents of one pass at most */

struct sc_plugin_request;
struct sc_plugin_d2h_batch;
struct sc_plugin_recurrent_pass;

/* What a save's rows are of: its request's tokens, or those of a branch of states. */
struct sc_plugin_text {
    const uint32_t *tokens;
    uint64_t token_count; /* up to the save's end; of a branch, all */
    struct sc_marks marks;
    const struct sc_store_mark *store_marks; /* the same, as the store writes them */
};

enum sc_plugin_save_state { SC_SAVE_WRITING, SC_SAVE_WRITTEN };

/* One extent of a pass, from the first layer until its tickets' part ended. */
struct sc_plugin_save {
    /* Set when taken, constant until resolved. */
    spec_connector *conn;
    struct sc_store_extent *extent;
    struct sc_plugin_recurrent_pass *states; /* it is of a branch of states; NULL: of rows */
    uint64_t first, count;               /* tokens */
    struct sc_hash first_hash;           /* after its first piece */

    /* Guarded by saves.lock. */
    struct sc_plugin_save *next; /* free list, or the queue of commits */
    uint32_t state;              /* enum sc_plugin_save_state */
    spec_status status;
    uint32_t refs; /* open passes, the tickets' part, who puts a layer; 0: it is free */
    uint64_t life; /* moves on when it is resolved */
    bool waits;    /* it hangs on a save that is not resolved yet, in whose list it stands: */
    struct sc_plugin_save *ahead;       /* that one, while it waits */
    struct sc_plugin_save *behind;      /* the first of those that hang on this one */
    struct sc_plugin_save *behind_next; /* of the list that this one stands in */
    uint64_t queued;  /* layers on their way to the extent, with the one that is put now */
    uint64_t look;    /* queue.look, when one of them was seen */
    bool is_putting;  /* the queue's task: it ends the extent if */
    bool gives_up;    /* this says so */
    bool has_ended;   /* the extent has no producer any more */
    bool is_open;     /* the pass may still be dropped, though its rows are written: no commit */
    bool is_void;     /* it was: nothing is committed */
    spec_status lost; /* why, where the store does not know; OK: it does */

    /* For sharing (shared.h): guarded by saves.lock, and constant once the last layer is taken,
     * but for sharers. */
    struct sc_plugin_request *request; /* whose tokens it reads, and which it holds */
    struct spec_provenance provenance; /* the worst that its packed layers are computed on */
    struct sc_plugin_sharer founder, *sharers;
    uint64_t producers;                 /* sharers that bring layers */
    uint32_t layers;                    /* that were packed, or are being packed */
    bool is_packing;                    /* a host's thread packs one of them */
    bool is_listed;                     /* others may join it: */
    struct sc_plugin_save *bucket_next; /* in its list of the table */
};

/* queue.h: of layers, in the order of calls. */
struct sc_plugin_queue {
    spec_connector *conn;  /* set by open, constant */
    struct sc_task task;   /* posted, or runs, while is_active */
    uint64_t wait_ns;      /* the task's: until it looks again */
    _Atomic uint32_t word; /* moves when a batch is free again */

    /* Guarded by saves.lock. */
    struct sc_plugin_d2h_batch *head, *tail;
    uint64_t look; /* how often it was looked through */
    bool is_active;
};

struct sc_plugin_saves {
    struct sc_plugin_save *slots; /* [count] set by open, constant */
    uint64_t count;
    _Atomic uint32_t word; /* moves when a save ends */
    _Atomic uint64_t live;
    struct sc_log_limit lost; /* lines of those that were */

    pthread_mutex_t lock; /* rank 20: saves, layers on their way, who commits */
    struct sc_plugin_save *free;
    struct sc_plugin_save *commit_head, *commit_tail;
    bool is_committing;
    struct sc_task commits; /* posted by a host that let the last of them go; counts in live */
    struct sc_plugin_queue queue;     /* its own groups */
    struct sc_plugin_sharers sharers; /* likewise */
};

/* save.c: of the request's step, which was checked */
/* With layer 0: what the pass shall become, and its ticket. BUSY: there is none. */
spec_status sc_plugin_pass_plan(spec_connector *conn, struct sc_plugin_request *request,
                                struct spec_error *reterr);
void sc_plugin_pass_unplan(spec_connector *conn, struct sc_plugin_request *request);
/* The pass's tokens are known, and those of the others in the call: shared.h. */
void sc_plugin_pass_begin(spec_connector *conn, struct sc_plugin_request *request);
/* With each layer: the pass is given up when what it is computed on, as told by now, may not be
 * stored. */
void sc_plugin_pass_judge(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_put(spec_connector *conn, struct sc_plugin_request *request);
/* It has its last layer. */
void sc_plugin_pass_end(spec_connector *conn, struct sc_plugin_request *request);
/* What stood in front of the pass's rows, and in their places, may go. */
void sc_plugin_pass_unpin(spec_connector *conn, struct sc_plugin_request *request);
void sc_plugin_pass_abort(spec_connector *conn, struct sc_plugin_request *request);
/* What the open pass is computed on is void: it goes on, and stores nothing. */
void sc_plugin_pass_void(spec_connector *conn, struct sc_plugin_request *request);

/* save_extent.c */
/* Extents of at most `step` rows, parted on the chunk grid, that [first, first + count) takes; and
 * the rows of one. */
uint64_t sc_plugin_save_count(const spec_connector *conn, uint64_t first, uint64_t count,
                              uint64_t step);
uint64_t sc_plugin_save_rows_max(const spec_connector *conn);
/* Rows of one extent of so many that are to be stored: fewer than the most, when what is free lies
 * in short runs, but not so few that they would need more than saves_max extents. */
uint64_t sc_plugin_save_rows(const spec_connector *conn, uint64_t token_count, uint64_t saves_max);
/* Begins one of them, of a branch (states) or of the request's tokens; it is queued behind those
 * that the request has. Its chain stands at `first`, and goes on. */
spec_status sc_plugin_save_begin(spec_connector *conn, struct sc_plugin_request *request,
                                 struct sc_plugin_recurrent_pass *states, struct sc_chain *chain,
                                 uint64_t first, uint64_t count, struct sc_plugin_save **ret_save,
                                 struct spec_error *reterr);

/* commit.c */
spec_status sc_plugin_saves_open(spec_connector *conn, struct spec_error *reterr);
/* The request's pass lets these saves of it go: their holds end. keeps: they are committed when
 * they are written, if they were not given up; else those that nobody has committed are dropped. */
void sc_plugin_saves_leave(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *const *saves, uint64_t count, bool keeps);
void sc_plugin_on_written(struct sc_store_extent *extent, spec_status status, void *extent_user,
                          void *user);

/* save_pool.c */
/* With one hold; NULL: all are in flight. */
struct sc_plugin_save *sc_plugin_save_take(spec_connector *conn);
/* A hold ends, and with the last one the save. */
void sc_plugin_save_put(spec_connector *conn, struct sc_plugin_save *save);
/* A new save hangs on the request's last one, if that is not resolved yet, and is committed after
 * it. Then it is the last one. Host thread. */
void sc_plugin_save_follow(spec_connector *conn, struct sc_plugin_request *request,
                           struct sc_plugin_save *save);
/* Where the tokens that its rows are of stand. */
struct sc_plugin_text sc_plugin_save_text(const struct sc_plugin_save *save);
/* Chunks that tokens [first, end) touch. */
uint64_t sc_plugin_chunk_count(const spec_connector *conn, uint64_t first, uint64_t end);
/* What a ticket says (the ABI lists the statuses) for what went wrong inside. */
spec_status sc_plugin_ticket_status(spec_status status);

#endif
