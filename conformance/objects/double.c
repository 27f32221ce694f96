/* A test double: the table of objects by key over memory, so that the suite itself can be tested.
 * It writes no file, so tests that damage files or kill a process fail with it.
 *
 *   store    made by the first open of a path and rank, and kept until the process ends
 *   queue    operations in the order of the calls; one thread works on the first
 *
 * Holds: one lock; every call but a wait is short.
 * Does not: verify, persist, or free what it stores.  Threads: one for each open store.
 * Tests: conformance/broken/test_broken_objects.py */
#include "abi/spec_objects.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS    65536u
#define EVENTS     65536u
#define PAGE_BYTES UINT64_C(4096)

struct object {
    struct object *next;
    uint64_t domain, bytes, used, hold_ns;
    uint32_t key_bytes;
    uint8_t *key, *value; /* NULL: the value was removed */
};

struct operation {
    struct operation *next;
    uint64_t number, domain, user, deadline_ns, copy_bytes;
    bool is_done, is_polled, is_blocking, is_cancelled;
    uint32_t count, pieces;
    uint8_t *keys;
    uint32_t *lengths;
    uint64_t *addresses, *sizes;
    int32_t *status;
};

struct domain {
    uint64_t bytes_min, bytes_max, identity_bytes, openers;
    uint8_t *identity;
    int fd;
    struct spec_object_stats stats;
};

struct spec_objects {
    struct spec_objects *next;
    char path[4096];
    uint32_t rank;
    pid_t pid;
    bool is_open, is_closing;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    uint64_t disk_bytes, pages, clock, operations, sequence, sequence_open, submitted_max;
    uint64_t timeout_ns, hold_ns, domain_count;
    struct object *buckets[BUCKETS];
    struct operation *first; /* of all operations that are not forgotten */
    struct domain domains[SPEC_DOMAINS_MAX + 1];
    struct spec_object_event events[EVENTS];
    uint8_t event_keys[EVENTS][64];
};

static struct spec_objects *stores;

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static spec_status fail(struct spec_error *reterr, spec_status code, const char *text)
{
    uint32_t bytes = reterr != NULL ? reterr->struct_size : 0;
    if (bytes >= 12) {
        reterr->code = code;
        reterr->sys_errno = 0;
        if (bytes > 12)
            (void)snprintf(reterr->text, bytes - 12 < 244 ? bytes - 12 : 244, "%s", text);
    }
    return code;
}
#define INVALID(text) fail(reterr, SPEC_E_INVALID, text)

/* The rules for struct_size: 0, or a status. */
static spec_status check_struct(const void *structure, uint32_t bytes)
{
    uint32_t size = 0;
    if (structure == NULL)
        return SPEC_E_INVALID;
    memcpy(&size, structure, sizeof(size));
    for (uint32_t i = bytes; i < size; i++)
        if (((const uint8_t *)structure)[i] != 0)
            return SPEC_E_UNSUPPORTED;
    return size < bytes || size % 4 != 0 ? SPEC_E_INVALID : SPEC_OK;
}

/* Takes the lock if the call may go on. */
static spec_status enter(struct spec_objects *store, spec_domain domain, bool zero_is_fine)
{
    if (store == NULL)
        return SPEC_E_INVALID;
    if (store->pid != getpid())
        return SPEC_E_FORKED;
    (void)pthread_mutex_lock(&store->lock);
    if ((domain == 0 && zero_is_fine) ||
        (domain >= 1 && domain <= store->domain_count && store->domains[domain].openers > 0))
        return SPEC_OK;
    (void)pthread_mutex_unlock(&store->lock);
    return SPEC_E_INVALID;
}

static spec_status leave(struct spec_objects *store, spec_status status)
{
    (void)pthread_cond_broadcast(&store->changed);
    (void)pthread_mutex_unlock(&store->lock);
    return status;
}

#define ENTER(domain, zero_is_fine)                                                                \
    do {                                                                                           \
        spec_status status_ = enter(store, domain, zero_is_fine);                                  \
        if (status_ != SPEC_OK)                                                                    \
            return fail(reterr, status_, "not this domain, store or process");                     \
    } while (0)
#define CHECK(structure)                                                                           \
    do {                                                                                           \
        spec_status status_ = check_struct(structure, sizeof(*(structure)));                       \
        if (status_ != SPEC_OK)                                                                    \
            return fail(reterr, status_, "struct_size of " #structure);                            \
    } while (0)

static spec_status check_keys(const struct spec_keys *keys, struct spec_error *reterr)
{
    CHECK(keys);
    if (keys->count == 0 || keys->count > SPEC_KEYS_MAX || keys->data == NULL ||
        keys->reserved != 0 || (keys->lengths == NULL) == (keys->key_bytes == 0) ||
        keys->key_bytes > SPEC_KEY_BYTES_MAX)
        return INVALID("keys");
    for (uint32_t i = 0; keys->lengths != NULL && i < keys->count; i++)
        if (keys->lengths[i] == 0 || keys->lengths[i] > SPEC_KEY_BYTES_MAX)
            return INVALID("a key's length");
    return SPEC_OK;
}
#define CHECK_KEYS(keys)                                                                           \
    do {                                                                                           \
        spec_status status_ = check_keys(keys, reterr);                                            \
        if (status_ != SPEC_OK)                                                                    \
            return status_;                                                                        \
    } while (0)

static uint32_t key_length(const struct spec_keys *keys, uint32_t i)
{
    return keys->lengths != NULL ? keys->lengths[i] : keys->key_bytes;
}

/* ---- The map ---- */

static struct object **bucket_of(struct spec_objects *store, const uint8_t *key, uint32_t bytes)
{
    uint64_t hash = UINT64_C(1469598103934665603);
    for (uint32_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * UINT64_C(1099511628211);
    return &store->buckets[(hash ^ (hash >> 32)) % BUCKETS];
}

static struct object *find(struct spec_objects *store, uint64_t domain, const uint8_t *key,
                           uint32_t bytes)
{
    for (struct object *o = *bucket_of(store, key, bytes); o != NULL; o = o->next)
        if (o->domain == domain && o->key_bytes == bytes && memcmp(o->key, key, bytes) == 0)
            return o;
    return NULL;
}

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

static void tell(struct spec_objects *store, uint64_t domain, const struct object *o, uint32_t kind,
                 uint32_t reason)
{
    uint64_t at = store->sequence % EVENTS;
    store->events[at] = (struct spec_object_event){.sequence = store->sequence++,
                                                   .domain = domain,
                                                   .bytes = o != NULL ? o->bytes : 0,
                                                   .kind = kind,
                                                   .reason = reason,
                                                   .key_bytes = o != NULL ? o->key_bytes : 0};
    if (o != NULL)
        memcpy(store->event_keys[at], o->key, o->key_bytes < 64 ? o->key_bytes : 64);
}

/* Adds to the counts of a domain and of the store. */
#define COUNT(store, domain, member, n)                                                            \
    ((store)->domains[domain].stats.member += (n), (store)->domains[0].stats.member += (n))

static void drop(struct spec_objects *store, struct object *o, uint32_t reason)
{
    struct object **at = bucket_of(store, o->key, o->key_bytes);
    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    store->pages -= pages_of(o->bytes);
    COUNT(store, o->domain, objects, -UINT64_C(1));
    COUNT(store, o->domain, bytes, -o->bytes);
    if (reason == SPEC_REMOVED_EVICTED) {
        COUNT(store, o->domain, evicted_objects, 1);
        COUNT(store, o->domain, evicted_bytes, o->bytes);
    } else {
        COUNT(store, o->domain, deleted_objects, 1);
    }
    if (reason != 0)
        tell(store, o->domain, o, SPEC_EVENT_REMOVED, reason);
    free(o->key);
    free(o->value);
    free(o);
}

/* Evicts the least recently used object that may be evicted. domain 0: of any. */
static bool evict_one(struct spec_objects *store, uint64_t domain, uint64_t for_domain)
{
    struct object *oldest = NULL;
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (struct object *o = store->buckets[i]; o != NULL; o = o->next) {
            const struct domain *of = &store->domains[o->domain];
            bool is_kept = o->domain != for_domain && of->bytes_min > 0 &&
                           of->stats.bytes < of->bytes_min + o->bytes;
            if (o->hold_ns > now || is_kept || (domain != 0 && o->domain != domain))
                continue;
            if (oldest == NULL || o->used < oldest->used)
                oldest = o;
        }
    if (oldest != NULL)
        drop(store, oldest, SPEC_REMOVED_EVICTED);
    return oldest != NULL;
}

/* Room for a value, by eviction. */
static bool make_room(struct spec_objects *store, uint64_t domain, uint64_t bytes)
{
    const struct domain *of = &store->domains[domain];
    uint64_t pages_max = store->disk_bytes / PAGE_BYTES * 98 / 100;
    while (of->bytes_max != 0 && of->stats.bytes + bytes > of->bytes_max)
        if (!evict_one(store, domain, domain))
            return false;
    while (store->pages + pages_of(bytes) > pages_max)
        if (!evict_one(store, 0, domain))
            return false;
    return true;
}

static void insert(struct spec_objects *store, const struct operation *op, uint32_t i,
                   const uint8_t *key, uint64_t bytes)
{
    struct object *o = calloc(1, sizeof(*o));
    struct object **bucket = bucket_of(store, key, op->lengths[i]);
    *o = (struct object){.next = *bucket,
                         .domain = op->domain,
                         .bytes = bytes,
                         .used = ++store->clock,
                         .key_bytes = op->lengths[i],
                         .key = malloc(op->lengths[i]),
                         .value = malloc(bytes)};
    memcpy(o->key, key, op->lengths[i]);
    uint8_t *dst = o->value;
    for (uint64_t p = (uint64_t)i * op->pieces; p < (uint64_t)(i + 1) * op->pieces; p++) {
        memcpy(dst, (const void *)(uintptr_t)op->addresses[p], op->sizes[p]);
        dst += op->sizes[p];
    }
    *bucket = o;
    store->pages += pages_of(bytes);
    COUNT(store, o->domain, objects, 1);
    COUNT(store, o->domain, bytes, bytes);
    COUNT(store, o->domain, put_stored, 1);
    COUNT(store, o->domain, put_bytes, bytes);
    tell(store, o->domain, o, SPEC_EVENT_STORED, 0);
}

/* ---- Operations ---- */

static uint64_t value_bytes(const struct operation *op, uint32_t i)
{
    uint64_t bytes = 0;
    for (uint64_t p = (uint64_t)i * op->pieces; p < (uint64_t)(i + 1) * op->pieces; p++)
        bytes += op->sizes[p];
    return bytes;
}

static void count_put(struct spec_objects *store, const struct operation *op, int32_t status)
{
    COUNT(store, op->domain, put_present, status == SPEC_KEY_STORED);
    COUNT(store, op->domain, put_no_space, status == SPEC_E_NO_SPACE);
    COUNT(store, op->domain, put_timeouts, status == SPEC_E_TIMEOUT);
}

/* The status of a key that is put now; PENDING: it has to wait for room. */
static int32_t put_key(struct spec_objects *store, const struct operation *op, uint32_t i,
                       const uint8_t *key)
{
    uint64_t bytes = value_bytes(op, i), most = store->domains[op->domain].bytes_max;
    if (find(store, op->domain, key, op->lengths[i]) != NULL)
        return SPEC_KEY_STORED;
    if (bytes > SPEC_OBJECT_BYTES_MAX || bytes > store->disk_bytes || (most != 0 && bytes > most))
        return SPEC_E_NO_SPACE;
    if (op->is_cancelled || store->is_closing)
        return SPEC_E_DROPPED;
    if (make_room(store, op->domain, bytes)) {
        insert(store, op, i, key, bytes);
        return SPEC_KEY_DONE;
    }
    return now_ns() >= op->deadline_ns ? SPEC_E_TIMEOUT : SPEC_KEY_PENDING;
}

/* A full counter does not block. */
static void fd_add(int32_t fd, uint64_t count)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (fd >= 0 && count > 0 && poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT)
        (void)!write(fd, &count, sizeof(count));
}

static void finish(struct spec_objects *store, struct operation *op)
{
    uint64_t one = 1;
    op->is_done = true;
    if (!op->is_blocking)
        fd_add(store->domains[op->domain].fd, one);
    (void)pthread_cond_broadcast(&store->changed);
}

static void wait_a_moment(struct spec_objects *store)
{
    uint64_t until = now_ns() + 1000000;
    struct timespec at = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    (void)pthread_cond_timedwait(&store->changed, &store->lock, &at);
}

static void run_put(struct spec_objects *store, struct operation *op)
{
    const uint8_t *key = op->keys;
    for (uint32_t i = 0; i < op->count; key += op->lengths[i++])
        while (op->status[i] == SPEC_KEY_PENDING) { /* else it was removed meanwhile */
            int32_t status = put_key(store, op, i, key);
            count_put(store, op, status);
            op->status[i] = status;
            if (status == SPEC_KEY_PENDING) {
                store->domains[0].stats.waiting_puts = 1;
                wait_a_moment(store);
                store->domains[0].stats.waiting_puts = 0;
            }
        }
    finish(store, op);
}

static void *work(void *user)
{
    struct spec_objects *store = user;
    (void)pthread_mutex_lock(&store->lock);
    for (;;) {
        struct operation *op = store->first;
        while (op != NULL && op->is_done)
            op = op->next;
        if (op != NULL)
            run_put(store, op);
        else if (store->is_closing)
            break;
        else
            (void)pthread_cond_wait(&store->changed, &store->lock);
    }
    (void)pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void run_get(struct spec_objects *store, struct operation *op)
{
    const uint8_t *key = op->keys;
    for (uint32_t i = 0; i < op->count; key += op->lengths[i++]) {
        struct object *o = find(store, op->domain, key, op->lengths[i]);
        COUNT(store, op->domain, get_keys, 1);
        op->status[i] = o == NULL                        ? SPEC_KEY_ABSENT
                        : o->bytes != value_bytes(op, i) ? SPEC_E_INVALID
                                                         : SPEC_KEY_DONE;
        if (op->status[i] != SPEC_KEY_DONE)
            continue;
        const uint8_t *src = o->value;
        for (uint64_t p = (uint64_t)i * op->pieces; p < (uint64_t)(i + 1) * op->pieces; p++) {
            memcpy((void *)(uintptr_t)op->addresses[p], src, op->sizes[p]);
            src += op->sizes[p];
        }
        o->used = ++store->clock;
        COUNT(store, op->domain, get_hits, 1);
        COUNT(store, op->domain, get_bytes, o->bytes);
    }
    finish(store, op);
}

static void operation_free(struct spec_objects *store, struct operation *op)
{
    struct operation **at = &store->first;
    while (*at != NULL && *at != op)
        at = &(*at)->next;
    if (*at != NULL)
        *at = op->next;
    free(op->keys);
    free(op->lengths);
    free(op->addresses);
    free(op->sizes);
    free(op);
}

static struct operation *operation_make(const struct spec_keys *keys,
                                        const struct spec_pieces *pieces)
{
    struct operation *op = calloc(1, sizeof(*op));
    uint64_t key_bytes = 0, count = (uint64_t)keys->count * pieces->pieces;
    op->lengths = calloc(keys->count, sizeof(*op->lengths));
    for (uint32_t i = 0; i < keys->count; i++)
        key_bytes += op->lengths[i] = key_length(keys, i);
    op->keys = malloc(key_bytes);
    op->addresses = malloc(count * sizeof(uint64_t));
    op->sizes = malloc(count * sizeof(uint64_t));
    memcpy(op->keys, keys->data, key_bytes);
    memcpy(op->addresses, pieces->addresses, count * sizeof(uint64_t));
    for (uint64_t i = 0; i < count; i++)
        op->sizes[i] = pieces->sizes != NULL ? pieces->sizes[i] : pieces->piece_bytes;
    op->count = keys->count;
    op->pieces = pieces->pieces;
    return op;
}

static spec_status check_pieces(const struct spec_keys *keys, const struct spec_pieces *pieces,
                                struct spec_error *reterr)
{
    CHECK(pieces);
    if (pieces->pieces == 0 || pieces->pieces > SPEC_PIECES_MAX || pieces->addresses == NULL ||
        (pieces->sizes == NULL) == (pieces->piece_bytes == 0))
        return INVALID("pieces");
    for (uint64_t i = 0; i < (uint64_t)keys->count * pieces->pieces; i++)
        if (pieces->addresses[i] == 0 || (pieces->sizes != NULL && pieces->sizes[i] == 0))
            return INVALID("a piece");
    return pieces->piece_bytes > SPEC_OBJECT_BYTES_MAX ? INVALID("piece_bytes") : SPEC_OK;
}

/* What all four transfers do. ret_operation NULL: the call waits. */
static spec_status transfer(struct spec_objects *store, spec_domain domain,
                            const struct spec_keys *keys, const struct spec_pieces *pieces,
                            const struct spec_transfer_params *params, bool is_put,
                            bool is_blocking, spec_operation *ret_operation,
                            struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK_KEYS(keys);
    spec_status status = check_pieces(keys, pieces, reterr);
    if (status != SPEC_OK)
        return status;
    CHECK(params);
    if (params->reserved != 0 || params->ret_status == NULL ||
        (!is_blocking && ret_operation == NULL))
        return INVALID("params");
    ENTER(domain, false);
    uint64_t submitted = 0, timeout = params->timeout_ns;
    for (const struct operation *other = store->first; other != NULL; other = other->next)
        submitted += !other->is_blocking;
    if (!is_blocking && submitted >= store->submitted_max)
        return leave(store, fail(reterr, SPEC_E_BUSY, "operations"));
    struct operation *op = operation_make(keys, pieces), **end = &store->first;
    op->domain = domain;
    op->user = params->user;
    op->number = ++store->operations;
    op->is_blocking = is_blocking;
    op->status = params->ret_status;
    timeout = timeout == SPEC_TIMEOUT_CONFIGURED ? store->timeout_ns : timeout;
    op->deadline_ns = timeout == SPEC_TIMEOUT_NONE ? UINT64_MAX : now_ns() + timeout;
    for (uint32_t i = 0; i < op->count; i++)
        op->status[i] = SPEC_KEY_PENDING;
    while (*end != NULL)
        end = &(*end)->next;
    *end = op;
    if (!is_blocking)
        *ret_operation = op->number;
    if (is_put)
        COUNT(store, domain, put_keys, op->count);
    else
        run_get(store, op);
    (void)pthread_cond_broadcast(&store->changed);
    while (is_blocking && !op->is_done)
        (void)pthread_cond_wait(&store->changed, &store->lock);
    if (is_blocking)
        operation_free(store, op);
    return leave(store, SPEC_OK);
}

static spec_status double_get(spec_objects *store, spec_domain domain, const struct spec_keys *keys,
                              const struct spec_pieces *pieces,
                              const struct spec_transfer_params *params, struct spec_error *reterr)
{
    return transfer(store, domain, keys, pieces, params, false, true, NULL, reterr);
}

static spec_status double_put(spec_objects *store, spec_domain domain, const struct spec_keys *keys,
                              const struct spec_pieces *pieces,
                              const struct spec_transfer_params *params, struct spec_error *reterr)
{
    return transfer(store, domain, keys, pieces, params, true, true, NULL, reterr);
}

static spec_status double_get_submit(spec_objects *store, spec_domain domain,
                                     const struct spec_keys *keys, const struct spec_pieces *pieces,
                                     const struct spec_transfer_params *params,
                                     spec_operation *ret_operation, struct spec_error *reterr)
{
    return transfer(store, domain, keys, pieces, params, false, false, ret_operation, reterr);
}

static spec_status double_put_submit(spec_objects *store, spec_domain domain,
                                     const struct spec_keys *keys, const struct spec_pieces *pieces,
                                     const struct spec_transfer_params *params,
                                     spec_operation *ret_operation, struct spec_error *reterr)
{
    return transfer(store, domain, keys, pieces, params, true, false, ret_operation, reterr);
}

/* ---- Opening ---- */

static uint64_t number_behind(const char *config, const char *name, uint64_t fallback)
{
    const char *at = strstr(config, name);
    return at == NULL ? fallback
                      : strtoull(at + strlen(name) + strspn(at + strlen(name), "\": "), NULL, 10);
}

static struct spec_objects *store_of(const char *config, uint32_t rank)
{
    const char *path = strstr(config, "\"path\": \"") + strlen("\"path\": \"");
    size_t bytes = strcspn(path, "\"");
    for (struct spec_objects *store = stores; store != NULL; store = store->next)
        if (strncmp(store->path, path, bytes) == 0 && store->rank == rank)
            return store;
    struct spec_objects *store = calloc(1, sizeof(*store));
    store->next = stores;
    store->rank = rank;
    memcpy(store->path, path, bytes);
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->changed, NULL);
    (void)mkdir(store->path, 0700);
    return stores = store;
}

static spec_status double_open(const struct spec_objects_params *params, spec_objects **ret_objects,
                               struct spec_error *reterr)
{
    CHECK(params);
    if (params->config == NULL || (params->alloc != NULL && params->alloc->struct_size == 0))
        return INVALID("params");
    struct spec_objects *store = store_of(params->config, params->rank);
    if (store->is_open)
        return fail(reterr, SPEC_E_LOCKED, "open");
    uint64_t unit = strstr(params->config, "GiB") != NULL ? 30 : 20;
    store->disk_bytes = number_behind(params->config, "disk_bytes", 256) << unit;
    store->submitted_max = number_behind(params->config, "submitted_max", 1024);
    store->timeout_ns = number_behind(params->config, "timeout_ms", 30000) * 1000000;
    store->is_open = true;
    store->is_closing = false;
    store->pid = getpid();
    store->sequence_open = store->sequence =
        now_ns() > store->sequence + EVENTS ? now_ns() : store->sequence + EVENTS;
    for (uint32_t i = 0; i <= SPEC_DOMAINS_MAX; i++) {
        struct spec_object_stats *stats = &store->domains[i].stats;
        *stats = (struct spec_object_stats){.objects = stats->objects, .bytes = stats->bytes};
        store->domains[i].openers = 0;
        store->domains[i].fd = -1;
    }
    (void)pthread_create(&store->thread, NULL, work, store);
    *ret_objects = store;
    return SPEC_OK;
}

static void double_close(spec_objects *store)
{
    if (store == NULL || store->pid != getpid())
        return;
    (void)pthread_mutex_lock(&store->lock);
    store->is_closing = true;
    (void)leave(store, SPEC_OK);
    (void)pthread_join(store->thread, NULL);
    while (store->first != NULL)
        operation_free(store, store->first);
    store->is_open = false;
}

static spec_status double_domain_open(spec_objects *store, const struct spec_domain_params *params,
                                      spec_domain *ret_domain, struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK(params);
    const struct spec_bytes *identity = &params->identity;
    if (params->reserved != 0 || identity->data == NULL || identity->byte_count == 0 ||
        identity->byte_count > SPEC_DOMAIN_BYTES_MAX)
        return INVALID("identity");
    ENTER(0, true);
    uint64_t i = 1;
    while (i <= store->domain_count &&
           (store->domains[i].identity_bytes != identity->byte_count ||
            memcmp(store->domains[i].identity, identity->data, identity->byte_count) != 0))
        i++;
    bool is_new = i > store->domain_count;
    if (i > SPEC_DOMAINS_MAX) /* one that is closed and has nothing goes */
        for (i = 1; i <= SPEC_DOMAINS_MAX &&
                    (store->domains[i].openers > 0 || store->domains[i].stats.objects > 0);)
            i++;
    if (i > SPEC_DOMAINS_MAX)
        return leave(store, fail(reterr, SPEC_E_NO_SPACE, "domains"));
    struct domain *domain = &store->domains[i];
    if (is_new) {
        store->domain_count = i > store->domain_count ? i : store->domain_count;
        free(domain->identity);
        domain->identity = malloc(identity->byte_count);
        domain->identity_bytes = identity->byte_count;
        memcpy(domain->identity, identity->data, identity->byte_count);
    }
    domain->openers++;
    domain->bytes_min = params->bytes_min;
    domain->bytes_max = params->bytes_max;
    *ret_domain = i;
    return leave(store, SPEC_OK);
}

static spec_status double_domain_close(spec_objects *store, spec_domain domain,
                                       struct spec_error *reterr)
{
    ENTER(domain, false);
    bool is_last = store->domains[domain].openers == 1;
    for (struct operation *op = store->first; op != NULL && is_last;) {
        struct operation *next = op->next;
        if (op->domain == domain && !op->is_done) {
            op->is_cancelled = true;
            (void)pthread_cond_broadcast(&store->changed);
            (void)pthread_cond_wait(&store->changed, &store->lock);
            next = store->first;
        } else if (op->domain == domain) {
            operation_free(store, op);
        }
        op = next;
    }
    store->domains[domain].openers--;
    return leave(store, SPEC_OK);
}

/* ---- Keys ---- */

static bool is_pending(const struct spec_objects *store, uint64_t domain, const uint8_t *key,
                       uint32_t bytes, bool drop_it)
{
    bool found = false;
    for (struct operation *op = store->first; op != NULL; op = op->next) {
        const uint8_t *at = op->keys;
        for (uint32_t i = 0; i < op->count && !op->is_done && op->domain == domain;
             at += op->lengths[i++]) {
            if (op->lengths[i] != bytes || op->status[i] != SPEC_KEY_PENDING ||
                memcmp(at, key, bytes) != 0)
                continue;
            found = true;
            if (drop_it)
                op->status[i] = SPEC_E_DROPPED;
        }
    }
    return found;
}

static spec_status double_exists(spec_objects *store, spec_domain domain,
                                 const struct spec_keys *keys,
                                 const struct spec_exists_params *params, uint64_t *ret_leading,
                                 struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK_KEYS(keys);
    CHECK(params);
    if (params->flags > 3 || params->hold_ns > SPEC_HOLD_NS_MAX)
        return INVALID("flags");
    ENTER(domain, false);
    const uint8_t *key = keys->data;
    uint64_t leading = 0, until = now_ns() + params->hold_ns;
    bool is_ended = false;
    for (uint32_t i = 0; i < keys->count; key += key_length(keys, i++)) {
        struct object *o = find(store, domain, key, key_length(keys, i));
        int8_t status = o != NULL ? SPEC_KEY_DONE : SPEC_KEY_ABSENT;
        if (o == NULL && is_pending(store, domain, key, key_length(keys, i), false))
            status = SPEC_KEY_PENDING;
        is_ended |= status != SPEC_KEY_DONE;
        if (is_ended && (params->flags & SPEC_EXISTS_PREFIX) != 0)
            status = SPEC_KEY_ABSENT;
        leading += !is_ended;
        if (status == SPEC_KEY_DONE && (params->flags & SPEC_EXISTS_HOLD) != 0)
            o->hold_ns = o->hold_ns > until ? o->hold_ns : until;
        COUNT(store, domain, exists_hits, status == SPEC_KEY_DONE);
        COUNT(store, domain, exists_keys, 1);
        if (params->ret_status != NULL)
            params->ret_status[i] = status;
        if (params->ret_bytes != NULL)
            params->ret_bytes[i] = status == SPEC_KEY_DONE ? o->bytes : 0;
    }
    if (ret_leading != NULL)
        *ret_leading = leading;
    return leave(store, SPEC_OK);
}

static spec_status double_remove(spec_objects *store, spec_domain domain,
                                 const struct spec_keys *keys, uint32_t flags, int8_t *ret_status,
                                 struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK_KEYS(keys);
    if (flags > 1)
        return INVALID("flags");
    ENTER(domain, false);
    const uint8_t *key = keys->data;
    for (uint32_t i = 0; i < keys->count; key += key_length(keys, i++)) {
        struct object *o = find(store, domain, key, key_length(keys, i));
        (void)is_pending(store, domain, key, key_length(keys, i), true);
        if (ret_status != NULL)
            ret_status[i] = o != NULL ? SPEC_KEY_DONE : SPEC_KEY_ABSENT;
        if (o != NULL)
            drop(store, o, SPEC_REMOVED_DELETED);
    }
    return leave(store, SPEC_OK);
}

static spec_status double_clear(spec_objects *store, spec_domain domain, uint32_t flags,
                                struct spec_error *reterr)
{
    if (flags > 1)
        return INVALID("flags");
    ENTER(domain, false);
    for (uint32_t i = 0; i < BUCKETS; i++)
        for (struct object *o = store->buckets[i], *next; o != NULL; o = next) {
            next = o->next;
            if (o->domain == domain)
                drop(store, o, 0);
        }
    for (struct operation *op = store->first; op != NULL; op = op->next)
        for (uint32_t i = 0; i < op->count && !op->is_done && op->domain == domain; i++)
            op->status[i] = op->status[i] == SPEC_KEY_PENDING ? SPEC_E_DROPPED : op->status[i];
    tell(store, domain, NULL, SPEC_EVENT_CLEARED, 0);
    return leave(store, SPEC_OK);
}

static spec_status double_touch(spec_objects *store, spec_domain domain,
                                const struct spec_keys *keys, struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK_KEYS(keys);
    ENTER(domain, false);
    const uint8_t *key = keys->data;
    for (uint32_t i = 0; i < keys->count; key += key_length(keys, i++)) {
        struct object *o = find(store, domain, key, key_length(keys, i));
        if (o != NULL)
            o->used = ++store->clock;
    }
    return leave(store, SPEC_OK);
}

/* ---- Completions ---- */

static spec_status double_poll(spec_objects *store, spec_domain domain,
                               struct spec_completion *ret_completions, uint64_t capacity,
                               uint64_t timeout_ns, uint64_t *ret_count, struct spec_error *reterr)
{
    if (ret_completions == NULL || capacity == 0 || ret_count == NULL)
        return store != NULL && store->pid != getpid() ? SPEC_E_FORKED : INVALID("capacity");
    ENTER(domain, false);
    uint64_t until = now_ns() + timeout_ns, count = 0;
    for (;;) {
        for (struct operation *op = store->first, *next; op != NULL && count < capacity;
             op = next) {
            struct spec_completion done = {op->number, op->user, 0, SPEC_OK};
            next = op->next;
            if (op->domain != domain || !op->is_done || op->is_blocking)
                continue;
            for (uint32_t i = 0; i < op->count; i++) {
                done.done_count += op->status[i] > 0;
                if (op->status[i] < 0 && done.status >= 0)
                    done.status = op->status[i];
                else if (op->status[i] == SPEC_KEY_ABSENT && done.status == SPEC_OK)
                    done.status = SPEC_PENDING;
            }
            ret_completions[count++] = done;
            operation_free(store, op);
        }
        if (count > 0 || now_ns() >= until)
            break;
        wait_a_moment(store);
    }
    *ret_count = count;
    return leave(store, SPEC_OK);
}

static spec_status double_event_fd_set(spec_objects *store, spec_domain domain, int32_t fd,
                                       struct spec_error *reterr)
{
    ENTER(domain, false);
    uint64_t waiting = 0;
    for (const struct operation *op = store->first; op != NULL; op = op->next)
        waiting += op->domain == domain && op->is_done && !op->is_blocking;
    store->domains[domain].fd = fd;
    fd_add(fd, waiting);
    return leave(store, SPEC_OK);
}

static spec_status double_cancel(spec_objects *store, spec_operation operation,
                                 struct spec_error *reterr)
{
    ENTER(0, true);
    for (struct operation *op = store->first; op != NULL; op = op->next)
        if (op->number == operation && !op->is_blocking) {
            op->is_cancelled = true;
            return leave(store, SPEC_OK);
        }
    return leave(store, fail(reterr, SPEC_E_STALE, "operation"));
}

/* ---- Reports ---- */

static spec_status double_list(spec_objects *store, struct spec_list *list,
                               struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK(list);
    if (list->reserved != 0 || list->ret_events == NULL || list->capacity == 0 ||
        list->key_room == NULL ||
        list->key_room_bytes < (list->domain == 0 ? SPEC_DOMAIN_BYTES_MAX : SPEC_KEY_BYTES_MAX))
        return INVALID("list");
    ENTER(list->domain, true);
    /* The cursor counts what was listed; what is removed meanwhile leaves later ones out, so the
     * buckets are walked with chains in whole: a cursor is a bucket and a place in its chain. */
    uint64_t bucket = list->cursor >> 32, place = list->cursor & UINT32_MAX, room = 0, count = 0;
    bool is_full = false;
    if (list->cursor == 0)
        list->sequence = store->sequence;
    for (; bucket < (list->domain == 0 ? store->domain_count : BUCKETS) && !is_full;) {
        const struct object *o = list->domain != 0 ? store->buckets[bucket] : NULL;
        const struct domain *d = list->domain == 0 ? &store->domains[bucket + 1] : NULL;
        for (uint64_t i = 0; i < place && o != NULL; i++)
            o = o->next;
        if (o == NULL && d == NULL) {
            bucket++;
            place = 0;
            continue;
        }
        const void *key = d != NULL ? d->identity : o->key;
        uint64_t bytes = d != NULL ? d->identity_bytes : o->key_bytes;
        bool is_wanted = d != NULL || o->domain == list->domain;
        is_full = is_wanted && (count == list->capacity || room + bytes > list->key_room_bytes);
        if (is_wanted && !is_full) {
            memcpy((uint8_t *)list->key_room + room, key, bytes);
            list->ret_events[count++] =
                (struct spec_object_event){.domain = d != NULL ? bucket + 1 : o->domain,
                                           .bytes = d != NULL ? d->stats.bytes : o->bytes,
                                           .kind = SPEC_EVENT_STORED,
                                           .key_offset = (uint32_t)room,
                                           .key_bytes = (uint32_t)bytes};
            room += bytes;
        }
        if (!is_full && d != NULL)
            bucket++;
        else if (!is_full)
            place++;
    }
    list->cursor = is_full ? bucket << 32 | place : 0;
    list->ret_count = count;
    return leave(store, SPEC_OK);
}

static spec_status double_events(spec_objects *store, struct spec_read_events *in,
                                 struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    CHECK(in);
    if (in->reserved != 0 || in->ret_events == NULL || in->capacity == 0 || in->key_room == NULL ||
        in->key_room_bytes < SPEC_KEY_BYTES_MAX)
        return INVALID("events");
    ENTER(in->domain, true);
    uint64_t first = store->sequence - store->sequence_open > EVENTS ? store->sequence - EVENTS
                                                                     : store->sequence_open;
    uint64_t at = in->sequence > first ? in->sequence : first, room = 0;
    in->ret_missed = in->sequence < first ? first - in->sequence : 0;
    in->ret_count = 0;
    for (; at < store->sequence && in->ret_count < in->capacity; at++) {
        struct spec_object_event event = store->events[at % EVENTS];
        if (in->domain != 0 && event.domain != in->domain)
            continue;
        if (room + event.key_bytes > in->key_room_bytes)
            break;
        memcpy((uint8_t *)in->key_room + room, store->event_keys[at % EVENTS],
               event.key_bytes < 64 ? event.key_bytes : 64);
        event.key_offset = (uint32_t)room;
        room += event.key_bytes;
        in->ret_events[in->ret_count++] = event;
    }
    in->sequence = at;
    return leave(store, SPEC_OK);
}

static spec_status double_stats(spec_objects *store, spec_domain domain,
                                struct spec_object_stats *ret_stats, struct spec_error *reterr)
{
    if (store != NULL && store->pid != getpid())
        return fail(reterr, SPEC_E_FORKED, "forked");
    uint32_t bytes = ret_stats != NULL ? ret_stats->struct_size : 0;
    if (bytes < sizeof(*ret_stats))
        return INVALID("stats");
    ENTER(domain, true);
    struct spec_object_stats stats = store->domains[domain].stats;
    stats.struct_size = bytes;
    stats.disk_bytes_used = store->pages * PAGE_BYTES;
    stats.disk_bytes_max = store->disk_bytes;
    stats.index_bytes = sizeof(store->buckets);
    stats.waiting_puts = store->domains[0].stats.waiting_puts;
    *ret_stats = stats;
    return leave(store, SPEC_OK);
}

static const struct spec_objects_api TABLE = {.struct_size = sizeof(TABLE),
                                              .major = SPEC_OBJECTS_MAJOR,
                                              .minor = SPEC_OBJECTS_MINOR,
                                              .open = double_open,
                                              .close = double_close,
                                              .domain_open = double_domain_open,
                                              .domain_close = double_domain_close,
                                              .exists = double_exists,
                                              .get = double_get,
                                              .put = double_put,
                                              .get_submit = double_get_submit,
                                              .put_submit = double_put_submit,
                                              .poll = double_poll,
                                              .event_fd_set = double_event_fd_set,
                                              .cancel = double_cancel,
                                              .remove = double_remove,
                                              .clear = double_clear,
                                              .touch = double_touch,
                                              .list = double_list,
                                              .events = double_events,
                                              .stats = double_stats};

const struct spec_objects_api *spec_connector_objects_api(uint32_t major)
{
    return major == SPEC_OBJECTS_MAJOR ? &TABLE : NULL;
}
