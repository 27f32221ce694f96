/* peers: other processes of the family: followed logs (peers.c), notifications (notify.c), resets
 * (reset.c), taking over from a writer that ended (take_over_tick.c).
 * Threads: per member and call.
 * Tests: tests/unit/plugin/test_peers.c, test_reset.c, tests/fault/test_processes.c */
#ifndef SC_PLUGIN_PEERS_PEERS_H
#define SC_PLUGIN_PEERS_PEERS_H

#include "hashing/radix.h"
#include "store/store.h"

#define SC_PLUGIN_NOTIFY_QUEUE 256u /* failed ranges to be posted to our rank's writer */

struct sc_plugin_ranks {
    _Atomic uint32_t role; /* SPEC_ROLE_WRITER or SPEC_ROLE_READER; an heir's changes once, a
                            * member's twice at most */
    /* Set by open, constant after. */
    uint32_t rank, count;
    bool is_member; /* stores beside other processes that do, and follows what they store */
    struct sc_plugin_peer *peers; /* [peer_count] the other ranks */
    uint64_t peer_count;

    _Atomic bool asks_checkpoint;     /* any thread: the host asked, whether one is due or not */
    _Atomic uint64_t lease_seed;      /* any thread; 0: there is no store yet */
    _Atomic uint64_t pieces_followed; /* any thread; a reader's indexed or void pieces */

    pthread_mutex_t follow_lock; /* rank 4: a reader's position in its writer's log */
    spec_status follow_status;   /* guarded by follow_lock: last status logged */

    /* The tick's (and open's). */
    bool takes_over;       /* opened as AUTO, or as a member: stores as soon as it may */
    uint64_t take_over_ns; /* executor's clock: tried again then */
    uint64_t orphans_ns;   /* executor's clock: a member looks for pieces without parents then */
    bool quantises;        /* it took over: what lacks quantised rows gets them when it stores */
};

struct sc_plugin_notify_queue { /* notifications between processes */
    pthread_mutex_t post_lock;  /* rank 6: posting */
    uint64_t epoch;             /* guarded by post_lock: to be posted */
    uint64_t *epoch_told;       /* [ranks.count] guarded by post_lock: posted */

    pthread_mutex_t lock; /* rank 20: failed ranges to be posted */
    struct sc_store_notify notify[SC_PLUGIN_NOTIFY_QUEUE];
    uint32_t first, count;

    /* The tick's (and open's). */
    uint64_t epoch_heard;   /* by notification */
    uint64_t weights_heard; /* weights' epoch (store.h) when last read */
    bool weights_failed;    /* it could not be read: tried at each tick */
    spec_status notify_status;
};

/* AUTO: a reader becomes the writer when no other process is. Tick; blocks on files. */
void sc_plugin_take_over_tick(spec_connector *conn);

/* Reader: queues a failed piece for its writer. Called before the piece is dropped. */
void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece);
/* Reader: posts the epoch to every rank's writer. Blocks on the file system. */
void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch);
/* Posts what is queued. Blocks on the file system. */
void sc_plugin_notify_post(spec_connector *conn);

spec_status sc_plugin_reset(spec_connector *conn, struct spec_error *reterr);
/* Reads the weights' epoch, and raises it to the log's. If it is unreadable, open fails. */
spec_status sc_plugin_epoch_open(spec_connector *conn, struct spec_error *reterr);
/* Takes notifications, moves to the highest known epoch, posts what is queued. Tick and open. */
void sc_plugin_notify_tick(spec_connector *conn);

spec_status sc_plugin_peers_open(spec_connector *conn, const struct sc_store_params *own,
                                 struct spec_error *reterr);
void sc_plugin_peers_close(spec_connector *conn);
void sc_plugin_peers_fork_close(spec_connector *conn);
/* Returns how many of the query's first `end` tokens every other rank has. Any thread. */
uint64_t sc_plugin_peers_match(spec_connector *conn, const struct sc_radix_query *query,
                               uint64_t end);
/* Sets *least, this rank's longest branch end up to branch->most, to the least of all ranks, 0 if
 * one has none. Returns true if all are equal. Adds provenances to `worst`. Any thread. */
bool sc_plugin_peers_branch(spec_connector *conn, const struct sc_radix_query *query,
                            const struct sc_radix_branch *branch, uint64_t *least,
                            struct spec_provenance *worst);
/* Adds the other ranks' worst provenance of the query's first `end` tokens. Any thread. */
void sc_plugin_peers_provenance(spec_connector *conn, const struct sc_radix_query *query,
                                uint64_t end, struct spec_provenance *worst);
/* Returns the wall clock until which a promise made now holds; 0: promise nothing; UINT64_MAX: no
 * lease, only this process. Any thread. */
uint64_t sc_plugin_promise_end(const spec_connector *conn);
/* Returns true if that rank's log was followed beyond the piece; asked before a search for it. */
bool sc_plugin_peer_has(const spec_connector *conn, uint32_t rank, uint64_t piece);
/* Returns tokens, marks and root of another rank's lease, from its log. Errors: STALE. */
struct sc_plugin_lease;
spec_status sc_plugin_peer_recall(spec_connector *conn, const struct sc_plugin_lease *lease,
                                  const struct sc_radix_room *room,
                                  struct sc_radix_attached *ret_attached);
uint64_t sc_plugin_follow_lag_ns(const spec_connector *conn);
/* Returns the highest epoch in the followed logs. */
uint64_t sc_plugin_epoch_known(const spec_connector *conn);
/* Reader: follows its writer's log. Returns true if there is more. */
bool sc_plugin_follow_own(spec_connector *conn);
/* Does the same for the other ranks' logs. Tick. */
bool sc_plugin_peers_follow(spec_connector *conn);
/* Sets lease_seed once there is a store. Open, or under follow_lock. */
void sc_plugin_lease_seed_find(spec_connector *conn);
void sc_plugin_on_drop(uint64_t piece, uint64_t mark, void *user);
void sc_plugin_on_epoch(uint64_t epoch, void *user);

#endif
