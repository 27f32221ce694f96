/* Several processes over the objects of a rank; see object_group.h. */
#include "tests/unit/plugin/object_group.h"

#define PAGE      ((uint64_t)SC_IO_PAGE_BYTES)
#define STEPS_MAX 20000u /* of one call: more is a hang */

/* ---- Numbers and values ---------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t draw(uint64_t *random, uint64_t below)
{
    *random = mix(*random);
    return *random % below;
}

static uint64_t value_bytes(uint32_t domain, uint32_t number, uint32_t life)
{
    static const uint64_t SIZES[] = {4, 4096, 5000, 40000, 12288, 65536, 200, 20000};
    return SIZES[(number + domain) % 8] + life; /* lives of a key differ in size */
}

static void value_make(uint32_t domain, uint32_t number, uint32_t life, uint8_t *dst)
{
    uint64_t seed = mix(domain * 100000000ull + number * 100000ull + life), word;
    uint64_t bytes = value_bytes(domain, number, life);
    for (uint64_t i = 0; i < bytes; i += 8) {
        word = mix(seed + i);
        memcpy(dst + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static void work_free(struct group *group, struct work *work)
{
    struct work **at = &group->works;
    while (*at != work)
        at = &(*at)->next;
    *at = work->next;
    free(work);
}

/* ---- Opening and closing --------------------------------------------------------------------- */

static void *host_alloc(uint64_t bytes, uint64_t align_bytes, void *user)
{
    struct group *group = user;
    void *block = sc_sim_memory_get(bytes, align_bytes);
    if (block != NULL)
        atomic_fetch_add(&group->live_blocks, 1);
    return block;
}

static void host_free(void *block, uint64_t bytes, void *user)
{
    struct group *group = user;
    sc_sim_memory_put(block, bytes);
    atomic_fetch_sub(&group->live_blocks, 1);
}

/* Log lines of members, with SC_GROUP_SAYS in the environment. */
static void on_line(int32_t level, const char *line, void *user)
{
    (void)user;
    if (getenv("SC_GROUP_SAYS") != NULL)
        fprintf(stderr, "%d %s\n", (int)level, line);
}

static const char *const NAMES[GROUP_DOMAINS] = {"domain a", "domain b"};

static void domain_open(struct group *group, uint32_t at, uint32_t domain)
{
    struct member *member = &group->members[at];
    const struct spec_domain_params params = {.struct_size = sizeof(params),
                                              .identity = {NAMES[domain], strlen(NAMES[domain])}};
    spec_status status =
        group->api->domain_open(member->store, &params, &member->domains[domain], &member->error);
    if (status != SPEC_OK)
        fail_msg("member %u: domain_open: %s", at, member->error.text);
}

spec_status member_try_open(struct group *group, uint32_t at)
{
    struct member *member = &group->members[at];
    char config[512];
    const struct spec_alloc alloc = {
        .struct_size = sizeof(alloc), .alloc = host_alloc, .free = host_free, .user = group};
    const struct spec_objects_params params = {.struct_size = sizeof(params),
                                               .config = config,
                                               .alloc = &alloc,
                                               .rank_count = 1,
                                               .log = on_line,
                                               .log_level_max = SPEC_LOG_DEBUG};
    (void)snprintf(config, sizeof(config),
                   "{\"path\": \"/sim/store\", \"segment_bytes\": \"1MiB\", \"staging_bytes\": "
                   "\"16MiB\", \"io\": {\"backend\": \"pread\", \"op_bytes\": \"64KiB\"}, "
                   "\"store\": {\"writers\": \"many\"}%s}",
                   group->extra);
    *member = (struct member){.error = {.struct_size = sizeof(member->error)}};
    spec_status status =
        sc_objects_open_on(&params, sc_io_sim_custom(group->disk), &member->store, &member->error);
    if (status != SPEC_OK) {
        member->store = NULL;
        return status;
    }
    member->events_from = member->store->events.next;
    for (uint32_t i = 0; i < GROUP_DOMAINS; i++)
        domain_open(group, at, i);
    return status;
}

void domain_reopen(struct group *group, uint32_t at, uint32_t domain)
{
    struct member *member = &group->members[at];
    for (const struct work *work = group->works; work != NULL; work = work->next)
        if (work->member == at && work->domain == domain)
            return;
    assert_int_equal(group->api->domain_close(member->store, member->domains[domain], NULL),
                     SPEC_OK);
    domain_open(group, at, domain);
}

void member_open(struct group *group, uint32_t at)
{
    if (member_try_open(group, at) != SPEC_OK)
        fail_msg("member %u: open: %s", at, group->members[at].error.text);
}

void member_close(struct group *group, uint32_t at)
{
    struct member *member = &group->members[at];
    if (member->store == NULL)
        return;
    assert_int_equal(atomic_load(&member->store->poison.broken), 0);
    group->api->close(member->store);
    member->store = NULL;
    puts_note(group);
    for (struct work *work = group->works, *next; work != NULL; work = next) {
        next = work->next;
        if (work->member == at)
            work_free(group, work);
    }
    sc_sim_memory_rest();
}

void member_kill(struct group *group, uint32_t at)
{
    struct sc_store *store = group->members[at].store->store;
    sc_store_seal_over(store, "it is killed"); /* what close would append is not */
    store->log.journal.synced_end = store->log.journal.end.offset;
    member_close(group, at);
}

static struct group *group_make(const char *extra, uint64_t seed)
{
    struct group *group = calloc(1, sizeof(*group));
    assert_non_null(group);
    group->api = spec_connector_objects_api(SPEC_OBJECTS_MAJOR);
    group->extra = extra;
    group->random = mix(seed);
    sc_sim_memory_alloc_init(&group->disk_alloc);
    return group;
}

struct group *group_new(const char *extra, uint64_t seed)
{
    struct group *group = group_make(extra, seed);
    const struct sc_io_sim_disk_params disk = {
        .alloc = &group->disk_alloc, .seed = seed, .journal = 1};
    assert_int_equal(sc_io_sim_disk_open(&disk, &group->disk, NULL), SPEC_OK);
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
        member_open(group, i);
    return group;
}

struct group *group_on(const struct group *group, struct sc_io_sim_disk *disk)
{
    struct group *other = group_make(group->extra, group->random);
    other->disk = disk;
    memcpy(other->twins, group->twins, sizeof(other->twins));
    return other;
}

void group_free(struct group *group)
{
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
        member_close(group, i);
    sc_io_sim_disk_close(group->disk);
    sc_sim_memory_rest();
    assert_int_equal(atomic_load(&group->live_blocks), 0);
    sc_alloc_done(&group->disk_alloc);
    free(group);
}

/* ---- Steps ----------------------------------------------------------------------------------- */

void follow(struct group *group, uint32_t at)
{
    struct member *member = &group->members[at];
    bool more = true;
    while (member->store != NULL && more)
        if (sc_store_follow(member->store->store, &more, &member->error) != SPEC_OK)
            fail_msg("member %u does not follow: %s", at, member->error.text);
}

void follow_all(struct group *group)
{
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++)
        follow(group, i);
}

void step(struct group *group, uint32_t at)
{
    if (group->members[at].store != NULL)
        (void)sc_exec_step_one(group->members[at].store->exec);
    puts_note(group);
}

bool is_pending(const struct work *work)
{
    return *(const volatile int32_t *)&work->status == SPEC_KEY_PENDING;
}

void puts_note(struct group *group)
{
    for (struct work *work = group->works; work != NULL; work = work->next) {
        if (!work->is_put || work->is_noted || is_pending(work))
            continue;
        work->is_noted = true;
        if (work->status == SPEC_KEY_DONE)
            group->twins[work->domain][work->number].life = work->life;
    }
}

/* ---- Puts and gets --------------------------------------------------------------------------- */

static struct work *work_make(struct group *group, uint32_t member, uint32_t domain,
                              uint32_t number, uint32_t life)
{
    struct work *work = calloc(1, sizeof(*work));
    assert_non_null(work);
    work->next = group->works;
    group->works = work;
    work->member = member;
    work->domain = domain;
    work->number = number;
    work->life = life;
    work->key = (uint8_t)number;
    work->address = (uint64_t)(uintptr_t)work->memory;
    work->size = value_bytes(domain, number, life);
    work->status = 99;
    work->keys = (struct spec_keys){
        .struct_size = sizeof(work->keys), .count = 1, .data = &work->key, .key_bytes = 1};
    work->pieces = (struct spec_pieces){.struct_size = sizeof(work->pieces),
                                        .pieces = 1,
                                        .addresses = &work->address,
                                        .sizes = &work->size};
    work->params = (struct spec_transfer_params){
        .struct_size = sizeof(work->params),
        .timeout_ns = group->is_damaged ? SPEC_TIMEOUT_CONFIGURED : SPEC_TIMEOUT_NONE,
        .ret_status = &work->status,
        .user = (uint64_t)(uintptr_t)work};
    return work;
}

static void work_submit(struct group *group, struct work *work)
{
    struct member *member = &group->members[work->member];
    spec_domain domain = member->domains[work->domain];
    spec_status status =
        work->is_put ? group->api->put_submit(member->store, domain, &work->keys, &work->pieces,
                                              &work->params, &work->operation, &member->error)
                     : group->api->get_submit(member->store, domain, &work->keys, &work->pieces,
                                              &work->params, &work->operation, &member->error);
    if (status != SPEC_OK)
        fail_msg("member %u: submit: %s", work->member, member->error.text);
    puts_note(group);
}

struct work *put_submit(struct group *group, uint32_t member, uint32_t domain, uint32_t number)
{
    struct twin *twin = &group->twins[domain][number];
    struct work *work = work_make(group, member, domain, number, ++twin->lives);
    assert_true(twin->lives < GROUP_LIVES);
    work->is_put = true;
    value_make(domain, number, work->life, work->memory);
    work_submit(group, work);
    return work;
}

struct work *get_submit(struct group *group, uint32_t member, uint32_t domain, uint32_t number)
{
    struct work *work =
        work_make(group, member, domain, number, found(group, member, domain, number));
    memset(work->memory, 0xa5, sizeof(work->memory));
    work_submit(group, work);
    return work;
}

static void delivered_check(const struct work *work)
{
    static uint8_t wanted[GROUP_ROOM];
    value_make(work->domain, work->number, work->life, wanted);
    if (memcmp(work->memory, wanted, work->size) != 0)
        fail_msg("member %u, key %u of domain %u: other bytes than were put", work->member,
                 work->number, work->domain);
    assert_int_equal(work->memory[work->size], 0xa5);
}

int32_t work_end(struct group *group, struct work *work)
{
    struct spec_completion completion;
    struct member *member = &group->members[work->member];
    uint64_t count = 0;
    for (uint32_t steps = 0; is_pending(work); steps++) {
        if (steps > STEPS_MAX)
            fail_msg("member %u: a %s does not end", work->member, work->is_put ? "put" : "get");
        step(group, (uint32_t)draw(&group->random, GROUP_MEMBERS));
    }
    int32_t status = work->status;
    while (!work->is_polled) { /* those before it ended, too */
        assert_int_equal(group->api->poll(member->store, member->domains[work->domain], &completion,
                                          1, 0, &count, &member->error),
                         SPEC_OK);
        assert_int_equal(count, 1);
        ((struct work *)(uintptr_t)completion.user)->is_polled = true;
    }
    if (!work->is_put && status == SPEC_KEY_DONE)
        delivered_check(work);
    work_free(group, work);
    return status;
}

void step_to_end(struct group *group, const struct work *work)
{
    for (uint32_t steps = 0; is_pending(work); steps++) {
        if (steps > STEPS_MAX)
            fail_msg("member %u: a %s does not end", work->member, work->is_put ? "put" : "get");
        step(group, work->member);
    }
}

void put_write(struct group *group, struct work *work)
{
    const spec_objects *store = group->members[work->member].store;
    for (uint32_t steps = 0; is_pending(work) && store->commits == NULL; steps++) {
        assert_true(steps < STEPS_MAX);
        step(group, work->member);
    }
}

int32_t put(struct group *group, uint32_t member, uint32_t domain, uint32_t number)
{
    return work_end(group, put_submit(group, member, domain, number));
}

int32_t get(struct group *group, uint32_t member, uint32_t domain, uint32_t number)
{
    return work_end(group, get_submit(group, member, domain, number));
}

void put_done(struct group *group, uint32_t member, uint32_t domain, uint32_t number)
{
    int32_t status = put(group, member, domain, number);
    if (status != SPEC_KEY_DONE)
        fail_msg("member %u, key %u of domain %u: %d", member, number, domain, (int)status);
}

/* ---- Other calls ----------------------------------------------------------------------------- */

int8_t remove_key(struct group *group, uint32_t at, uint32_t domain, uint32_t number)
{
    struct member *member = &group->members[at];
    struct twin *twin = &group->twins[domain][number];
    const uint8_t key = (uint8_t)number;
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 1, .data = &key, .key_bytes = 1};
    uint32_t life = found(group, at, domain, number);
    int8_t ret = 99;
    spec_status status =
        group->api->remove(member->store, member->domains[domain], &keys, 0, &ret, &member->error);
    if (status != SPEC_OK)
        fail_msg("member %u: remove: %s", at, member->error.text);
    if (ret == SPEC_KEY_DONE && twin->life == life)
        twin->life = 0;
    return ret;
}

void clear(struct group *group, uint32_t at, uint32_t domain)
{
    struct member *member = &group->members[at];
    spec_status status =
        group->api->clear(member->store, member->domains[domain], 0, &member->error);
    if (status != SPEC_OK)
        fail_msg("member %u: clear: %s", at, member->error.text);
    for (uint32_t i = 0; i < GROUP_KEYS; i++)
        group->twins[domain][i].life = 0;
}

void checkpoint(struct group *group, uint32_t at)
{
    struct member *member = &group->members[at];
    spec_status status = sc_objects_checkpoint(member->store, false, &member->error);
    if (status != SPEC_OK && status != SPEC_E_BUSY) /* another does it */
        fail_msg("member %u: checkpoint: %s", at, member->error.text);
    member->store->checkpoint_ns = 0;
}

uint32_t found(struct group *group, uint32_t at, uint32_t domain, uint32_t number)
{
    struct member *member = &group->members[at];
    const uint8_t key = (uint8_t)number;
    int8_t status = 99;
    uint64_t bytes = 0, leading = 0;
    const struct spec_keys keys = {
        .struct_size = sizeof(keys), .count = 1, .data = &key, .key_bytes = 1};
    const struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = &status, .ret_bytes = &bytes};
    assert_int_equal(group->api->exists(member->store, member->domains[domain], &keys, &params,
                                        &leading, &member->error),
                     SPEC_OK);
    if (status != SPEC_KEY_DONE)
        return 0;
    uint64_t life = bytes - value_bytes(domain, number, 0);
    if (life == 0 || life > group->twins[domain][number].lives)
        fail_msg("member %u, key %u of domain %u has %" PRIu64 " bytes, which were never put", at,
                 number, domain, bytes);
    return (uint32_t)life;
}

uint32_t entry_of(struct group *group, uint32_t at, uint32_t domain, uint32_t number)
{
    const struct member *member = &group->members[at];
    const uint8_t key = (uint8_t)number;
    uint32_t space = (uint32_t)(sc_objects_domain(member->store, member->domains[domain]) -
                                member->store->domains);
    return sc_key_table_find(&member->store->table, space, &key, 1);
}

static void event_note(struct group *group, const struct member *member,
                       const struct spec_object_event *event, const uint8_t *room)
{
    uint32_t domain = event->domain == member->domains[1] ? 1 : 0;
    if (event->kind != SPEC_EVENT_REMOVED)
        return;
    assert_int_not_equal(event->reason, SPEC_REMOVED_DAMAGED);
    uint32_t number = room[event->key_offset];
    struct twin *twin = &group->twins[domain][number];
    if (event->reason == SPEC_REMOVED_EVICTED &&
        event->bytes == value_bytes(domain, number, twin->life))
        twin->life = 0;
}

void events_read(struct group *group)
{
    for (uint32_t at = 0; at < GROUP_MEMBERS; at++) {
        struct member *member = &group->members[at];
        struct spec_object_event list[16];
        uint8_t room[SPEC_KEY_BYTES_MAX];
        struct spec_read_events events = {.struct_size = sizeof(events),
                                          .sequence = member->events_from,
                                          .ret_events = list,
                                          .capacity = 16,
                                          .key_room = room,
                                          .key_room_bytes = sizeof(room)};
        if (member->store == NULL)
            continue;
        do {
            assert_int_equal(group->api->events(member->store, &events, &member->error), SPEC_OK);
            assert_int_equal(events.ret_missed, 0);
            for (uint64_t i = 0; i < events.ret_count; i++)
                event_note(group, member, &list[i], room);
        } while (events.ret_count > 0);
        member->events_from = events.sequence;
    }
}

/* ---- The whole ------------------------------------------------------------------------------- */

/* Each page of the map has one object that is found, and the counts are theirs. */
static void pages_check(const spec_objects *objects)
{
    struct sc_store *store = objects->store;
    const struct sc_store_space *map = &store->disk.space;
    const uint64_t words = store->disk.segment_count * map->segment_words;
    uint64_t *mine = calloc(words + 1, 8), pages = 0;
    assert_non_null(mine);
    for (uint32_t id = 1; id < objects->table.entry_end; id++) {
        enum sc_key_state state = sc_key_entry_state(sc_key_table_entry(&objects->table, id));
        const struct sc_object *object = sc_object_of(objects, id);
        assert_true(state == SC_KEY_LIVE || state == SC_KEY_FREE);
        for (uint32_t p = 0; state == SC_KEY_LIVE && p < object->part_count; p++)
            for (uint32_t i = 0; i < object->parts[p].pages; i++, pages++) {
                uint64_t page = object->parts[p].page + i;
                uint64_t *word = &mine[object->parts[p].segment * map->segment_words + page / 64];
                assert_int_equal(*word >> page % 64 & 1, 0);
                *word |= UINT64_C(1) << page % 64;
            }
    }
    assert_int_equal(store->disk.extent_bytes, pages * PAGE);
    assert_int_equal(store->share.reserved, 0);
    for (uint64_t i = 0; i < store->disk.segment_count; i++) {
        assert_int_equal(store->disk.segments[i].users, 0);
        for (uint64_t page = 0; page < map->segments[i].page_count; page++) {
            uint64_t word = i * map->segment_words + page / 64;
            assert_int_equal(map->words[word] >> page % 64 & 1, mine[word] >> page % 64 & 1);
        }
    }
    free(mine);
    pages = 0;
    for (uint32_t i = 0; i < SPEC_DOMAINS_MAX; i++) {
        assert_int_equal(objects->domains[i].pages, objects->domains[i].live_pages);
        pages += objects->domains[i].pages;
    }
    assert_int_equal(store->disk.extent_bytes, pages * PAGE);
}

/* The segments' bytes are known to all alike. */
static void limits_check(const struct sc_store *first, struct sc_store *other)
{
    assert_int_equal(first->disk.segment_bytes, other->disk.segment_bytes);
    assert_int_equal(first->disk.bytes_max, other->disk.bytes_max);
    assert_int_equal(first->log.journal.end.offset, other->log.journal.end.offset);
    assert_int_equal(first->log.journal.end.chain, other->log.journal.end.chain);
    assert_int_equal(first->disk.extent_bytes, other->disk.extent_bytes);
}

static void member_agrees(struct group *group, uint32_t at)
{
    const spec_objects *objects = group->members[at].store;
    uint64_t count = 0;
    for (uint32_t domain = 0; domain < GROUP_DOMAINS; domain++)
        for (uint32_t i = 0; i < GROUP_KEYS; i++) {
            uint32_t life = found(group, at, domain, i);
            if (life != group->twins[domain][i].life)
                fail_msg("member %u finds life %u of key %u of domain %u, which has %u", at, life,
                         i, domain, group->twins[domain][i].life);
            count += life != 0;
        }
    struct spec_object_stats stats = {.struct_size = sizeof(stats)};
    assert_int_equal(group->api->stats(group->members[at].store, 0, &stats, NULL), SPEC_OK);
    assert_int_equal(stats.objects, count);
    assert_true(stats.disk_bytes_used <= stats.disk_bytes_max);
    assert_true(sc_store_stores(objects->store));
    pages_check(objects);
}

void all_agree(struct group *group)
{
    const struct sc_store *first = NULL;
    follow_all(group);
    events_read(group);
    for (uint32_t i = 0; i < GROUP_MEMBERS; i++) {
        if (group->members[i].store == NULL)
            continue;
        struct sc_store *store = group->members[i].store->store;
        member_agrees(group, i);
        first = first != NULL ? first : store;
        limits_check(first, store);
    }
}

void an_open_agrees(struct group *group)
{
    struct sc_io_sim_disk *disk = NULL;
    assert_int_equal(sc_io_sim_disk_copy(group->disk, &disk, NULL), SPEC_OK);
    struct group *copy = group_on(group, disk);
    member_open(copy, 0);
    member_agrees(copy, 0);
    for (uint32_t domain = 0; domain < GROUP_DOMAINS; domain++)
        for (uint32_t i = 0; i < GROUP_KEYS; i++)
            if (copy->twins[domain][i].life != 0)
                assert_int_equal(get(copy, 0, domain, i), SPEC_KEY_DONE);
    member_open(copy, 1);
    member_agrees(copy, 1);
    group_free(copy);
}
