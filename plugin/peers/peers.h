/* Other processes of the family: their logs, followed (peers.c), what is told to them (notify.c),
 * and resets, which all of them obey (reset.c).
 *
 * Threads: per member and call, below.
 * Tests: tests/unit/plugin/test_peers.c, test_reset.c, tests/fault/test_processes.c */
#ifndef SC_PLUGIN_PEERS_PEERS_H
#define SC_PLUGIN_PEERS_PEERS_H

#include "hashing/radix.h"
#include "store/store.h"

#define SC_PLUGIN_NOTIFY_QUEUE 256u /* failed ranges that wait to be told to our rank's writer */

struct sc_plugin_ranks {
    /* Set by open, constant after. */
    uint32_t role; /* SPEC_ROLE_WRITER or SPEC_ROLE_READER */
    uint32_t rank, count;
    struct sc_plugin_peer *peers; /* [peer_count] the other ranks */
    uint64_t peer_count;

    /* Any thread. */
    _Atomic uint64_t lease_seed;      /* 0: there is no store yet */
    _Atomic uint64_t pieces_followed; /* reader: pieces with lower ids are in the index, or void */

    pthread_mutex_t follow_lock; /* rank 4: a reader's place in its writer's log */
    spec_status follow_status;   /* guarded by follow_lock: what was said last */
};

struct sc_plugin_notify_queue { /* what other processes are told, and tell */
    pthread_mutex_t post_lock;  /* rank 6: notification that is being posted */
    uint64_t epoch;            /* guarded by post_lock: to be told */
    uint64_t *epoch_told;      /* [ranks.count] guarded by post_lock */

    pthread_mutex_t lock; /* rank 20: failed ranges, to be posted */
    struct sc_store_notify notify[SC_PLUGIN_NOTIFY_QUEUE];
    uint32_t first, count;

    /* The turn's (and open's). */
    uint64_t epoch_heard;   /* by notification */
    uint64_t weights_heard; /* of the weights' epoch (store.h), when it was read last */
    spec_status notify_status;
};

/* notify.c */
/* Reader: the piece failed here; its writer shall know. Before it is dropped. */
void sc_plugin_failed_tell(spec_connector *conn, uint64_t piece);
/* Reader: every rank's writer shall know of the epoch. Blocks on the file system. */
void sc_plugin_epoch_tell(spec_connector *conn, uint64_t epoch);
/* Posts what waits. Blocks on the file system. */
void sc_plugin_notify_post(spec_connector *conn);

/* reset.c */
spec_status sc_plugin_reset(spec_connector *conn, struct spec_error *reterr);
/* Reads the weights' epoch, and puts the log's if that is ahead. If it cannot be read, open fails:
 * old rows could be promised. */
spec_status sc_plugin_epoch_open(spec_connector *conn, struct spec_error *reterr);
/* Takes notification, moves to the highest epoch that is known, posts what waits. The turn's, and
 * open's.
 */
void sc_plugin_notify_tick(spec_connector *conn);

/* peers.c */
spec_status sc_plugin_peers_open(spec_connector *conn, const struct sc_store_params *own,
                                 struct spec_error *reterr);
void sc_plugin_peers_close(spec_connector *conn);
void sc_plugin_peers_fork_close(spec_connector *conn);
/* How many of the query's first `end` tokens every other rank has. Any thread. */
uint64_t sc_plugin_peers_match(spec_connector *conn, const struct sc_radix_query *query,
                               uint64_t end);
/* Whether *least, the longest end up to branch->most at which this rank has its branch, is that of
 * every other rank, however long theirs are; it becomes the least of all, 0 where one has none.
 * What was found is added to `worst`. Any thread. */
bool sc_plugin_peers_branch(spec_connector *conn, const struct sc_radix_query *query,
                            const struct sc_radix_branch *branch, uint64_t *least,
                            struct spec_provenance *worst);
/* The worst that other ranks have of the query's first `end` tokens is added. Any thread. */
void sc_plugin_peers_provenance(spec_connector *conn, const struct sc_radix_query *query,
                                uint64_t end, struct spec_provenance *worst);
/* Wall clock until which a promise made now is kept; 0: nothing may be promised; UINT64_MAX: in
 * this process only, so no lease. Any thread. */
uint64_t sc_plugin_promise_end(const spec_connector *conn);
/* Whether that rank's log was followed behind the piece; asked before it is looked for. */
bool sc_plugin_peer_has(const spec_connector *conn, uint32_t rank, uint64_t piece);
/* The tokens, marks and root of a lease that another rank gave, from its log. Errors: STALE. */
struct sc_plugin_lease;
spec_status sc_plugin_peer_recall(spec_connector *conn, const struct sc_plugin_lease *lease,
                                  const struct sc_radix_room *room,
                                  struct sc_radix_attached *ret_attached);
uint64_t sc_plugin_follow_lag_ns(const spec_connector *conn);
/* The highest epoch that a log says. */
uint64_t sc_plugin_epoch_known(const spec_connector *conn);
/* A reader reads its writer's log on; true: there is more. */
bool sc_plugin_follow_own(spec_connector *conn);
/* The same for the other ranks' logs. The turn's. */
bool sc_plugin_peers_follow(spec_connector *conn);
/* Makes lease_seed known once there is a store. Open, or under follow_lock. */
void sc_plugin_lease_seed_find(spec_connector *conn);
void sc_plugin_on_drop(uint64_t piece, uint64_t mark, void *user);
void sc_plugin_on_epoch(uint64_t epoch, void *user);

#endif
