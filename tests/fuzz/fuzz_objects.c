/* Fuzzes the replay of the log of objects: the input is payloads, [bytes u16][payload] ..., which
 * are framed with honest checksums. The disk has an identity and one empty segment of 1 MiB.
 *
 * Holds: open succeeds, or refuses an unknown version; what it lists is in range and exists; a
 * second open, of the checkpoint that the first one wrote, lists the same; a get of what was listed
 * fails (nothing was ever written), and it is absent then. The store goes on: it stores objects,
 * also under keys of the log, delivers them right, also after a reopen; and when all is cleared
 * every page is free. With any one byte of the log wrong it lists the same objects.
 * Accepted: an object was listed.
 * Threads: one (the seeded loop). */
#include "plugin/objects/objects.h"
#include "store/object/object_record.h"
#include "tests/fuzz/fuzz_store.h"
#include "tests/fuzz/mutate.h"

#define OBJECTS_DIR "/sim/store/objects-0000-of-0001"
#define OBJECTS_LOG OBJECTS_DIR "/log"
#define DOMAINS     8u
#define LISTED_MAX  512u
#define STORED_MAX  8u
#define VALUE_MAX   (256u << 10) /* values that are longer are not got */

int fuzz_was_accepted;

static struct fuzz_world world;
static const struct spec_objects_api *api;

struct listed {
    uint32_t domain, key_bytes;
    uint64_t bytes;
    uint8_t key[SPEC_KEY_BYTES_MAX];
};
static struct listed listed[LISTED_MAX];
static uint32_t listed_count;
static uint64_t listed_hash; /* of all, in any order */

/* ---- The store ------------------------------------------------------------------------------- */

static spec_status objects_open(spec_objects **ret_objects)
{
    static const char config[] =
        "{\"path\": \"/sim/store\", \"disk_bytes\": \"4MiB\", \"segment_bytes\": \"1MiB\", "
        "\"staging_bytes\": \"16MiB\", \"io\": {\"backend\": \"pread\", \"op_bytes\": \"64KiB\"}}";
    const struct spec_objects_params params = {
        .struct_size = sizeof(params), .config = config, .rank_count = 1};
    return sc_objects_open_on(&params, world.params.custom, ret_objects, NULL);
}

static void world_make(void)
{
    struct sc_io_sim_disk_params disk = {.alloc = &world.alloc};
    struct sc_exec_params exec = {.alloc = &world.alloc, .poison = &world.poison};
    spec_objects *objects;
    api = spec_connector_objects_api(SPEC_OBJECTS_MAJOR);
    sc_sim_memory_alloc_init(&world.alloc);
    sc_log_init(&world.log, fuzz_on_line, NULL, 0);
    FUZZ_CHECK(sc_exec_open(&exec, &world.exec, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_open(&disk, &world.empty, NULL) == SPEC_OK);
    world.params.custom = sc_io_sim_custom(world.empty);
    FUZZ_CHECK(objects_open(&objects) == SPEC_OK);
    sc_store_log_begin(&world.start, objects->store->store_id, 0, 1);
    sc_objects_close(objects);
    struct sc_io *io = fuzz_io(&world, world.empty);
    fuzz_file_make(io, OBJECTS_DIR "/seg-00000000", 1u << 20);
    sc_io_close(io);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *random, uint64_t bound)
{
    uint64_t x = (*random += UINT64_C(0x9e3779b97f4a7c15));
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) % bound;
}

static void make_objects(struct sc_store_writer *writer, uint64_t *random, uint64_t *copy,
                         uint32_t *page)
{
    struct sc_store_object objects[4];
    struct sc_store_object_part parts[4][2];
    uint8_t keys[4][40];
    uint32_t count = 1 + (uint32_t)next(random, 4), domain = 1 + (uint32_t)next(random, 3);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t part_count = 1 + (uint32_t)next(random, 2), pages = 0;
        for (uint32_t p = 0; p < part_count; p++) {
            parts[i][p] = (struct sc_store_object_part){0, *page, 1 + (uint32_t)next(random, 5)};
            *page = (*page + parts[i][p].pages + (uint32_t)next(random, 2)) % 250;
            pages += parts[i][p].pages;
        }
        memset(keys[i], (int)next(random, 20), sizeof(keys[i]));
        objects[i] = (struct sc_store_object){.copy = next(random, 8) > 0 ? ++*copy
                                                                          : next(random, *copy + 1),
                                              .bytes = pages * 4096ull - next(random, 4096),
                                              .tag = next(random, UINT64_MAX),
                                              .key = keys[i],
                                              .key_bytes = 1 + (uint32_t)next(random, 40),
                                              .domain = domain,
                                              .part_count = part_count,
                                              .parts = parts[i]};
    }
    sc_store_record_encode_objects(writer, objects, count);
}

/* Domains, objects, removals and clears, as a writer leaves them, and now and then as none does. */
static size_t make(uint64_t seed, uint8_t *bytes, size_t room)
{
    uint64_t random = seed, copy = 0, units = 4 + next(&random, 30), copies[3];
    uint32_t page = 0, domain = 0;
    size_t used = 0;
    for (uint64_t n = 0; n < units; n++) {
        static uint8_t payload[8192];
        struct sc_store_writer writer = {.bytes = payload, .capacity = sizeof(payload)};
        const struct sc_store_record_head head = {
            .numbering = 5, .piece_next = 1, .extent_next = 1};
        uint64_t what = n == 0 ? 20 : n < 3 ? 0 : next(&random, 12);
        domain += what == 0;
        for (uint32_t i = 0; i < 3; i++)
            copies[i] = next(&random, copy + 1);
        if (what == 20)
            sc_store_record_encode_head(&writer, &head);
        else if (what == 0)
            sc_store_record_encode_domain(&writer, domain, (const uint8_t *)"domain" + domain % 5,
                                          1);
        else if (what < 8)
            make_objects(&writer, &random, &copy, &page);
        else if (what < 11)
            sc_store_record_encode_removal(&writer, copies, 1 + (uint32_t)next(&random, 3));
        else
            sc_store_record_encode_clear(&writer, 1 + (uint32_t)next(&random, 3));
        if (writer.overflow || used + 2 + writer.used > room)
            break;
        bytes[used] = (uint8_t)writer.used;
        bytes[used + 1] = (uint8_t)(writer.used >> 8);
        memcpy(bytes + used + 2, payload, writer.used);
        used += 2 + writer.used;
    }
    return used;
}

const struct fuzz_form *fuzz_form(void)
{
    static struct fuzz_form form = {.head_bytes = 2, .make = make};
    if (world.empty == NULL)
        world_make();
    return &form;
}

/* ---- Looking --------------------------------------------------------------------------------- */

static struct spec_list list_begin(spec_domain domain, struct spec_object_event *events,
                                   uint64_t capacity, uint8_t *room, uint64_t room_bytes)
{
    return (struct spec_list){.struct_size = sizeof(struct spec_list),
                              .domain = domain,
                              .ret_events = events,
                              .capacity = capacity,
                              .key_room = room,
                              .key_room_bytes = room_bytes};
}

/* Opens the domains that are listed, the first so many. */
static uint32_t domains_open(spec_objects *objects, spec_domain domains[DOMAINS])
{
    static uint8_t room[DOMAINS * SPEC_DOMAIN_BYTES_MAX];
    struct spec_object_event events[DOMAINS];
    struct spec_list list = list_begin(0, events, DOMAINS, room, sizeof(room));
    FUZZ_CHECK(api->list(objects, &list, NULL) == SPEC_OK);
    for (uint64_t i = 0; i < list.ret_count; i++) {
        const struct spec_domain_params params = {
            .struct_size = sizeof(params),
            .identity = {room + events[i].key_offset, events[i].key_bytes}};
        FUZZ_CHECK(events[i].key_bytes > 0 && events[i].key_bytes <= SPEC_DOMAIN_BYTES_MAX);
        FUZZ_CHECK(api->domain_open(objects, &params, &domains[i], NULL) == SPEC_OK);
    }
    return (uint32_t)list.ret_count;
}

static int8_t exists(spec_objects *objects, spec_domain domain, const struct listed *object,
                     uint64_t *ret_bytes)
{
    int8_t status = -1;
    const struct spec_keys keys = {.struct_size = sizeof(keys),
                                   .count = 1,
                                   .data = object->key,
                                   .key_bytes = object->key_bytes};
    const struct spec_exists_params params = {
        .struct_size = sizeof(params), .ret_status = &status, .ret_bytes = ret_bytes};
    FUZZ_CHECK(api->exists(objects, domain, &keys, &params, NULL, NULL) == SPEC_OK);
    return status;
}

static void note(spec_objects *objects, spec_domain domain, uint32_t domain_index,
                 const struct spec_object_event *event, const uint8_t *key)
{
    static struct listed object;
    uint64_t bytes = 0, hash = domain_index;
    FUZZ_CHECK(event->key_bytes > 0 && event->key_bytes <= SPEC_KEY_BYTES_MAX);
    FUZZ_CHECK(event->bytes > 0 && event->bytes <= 1u << 20);
    object = (struct listed){
        .domain = domain_index, .key_bytes = event->key_bytes, .bytes = event->bytes};
    memcpy(object.key, key, event->key_bytes);
    FUZZ_CHECK(exists(objects, domain, &object, &bytes) == SPEC_KEY_DONE && bytes == event->bytes);
    for (uint32_t i = 0; i < object.key_bytes; i++)
        hash = (hash ^ object.key[i]) * UINT64_C(0x100000001b3);
    listed_hash += (hash ^ event->bytes) * UINT64_C(0x9e3779b97f4a7c15);
    if (listed_count < LISTED_MAX)
        listed[listed_count] = object;
    listed_count++;
}

/* Lists all objects of the domains. */
static void objects_list(spec_objects *objects, const spec_domain *domains, uint32_t count)
{
    static uint8_t room[16 * SPEC_KEY_BYTES_MAX];
    struct spec_object_event events[16];
    listed_count = 0;
    listed_hash = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct spec_list list = list_begin(domains[i], events, 16, room, sizeof(room));
        do {
            FUZZ_CHECK(api->list(objects, &list, NULL) == SPEC_OK);
            for (uint64_t e = 0; e < list.ret_count; e++)
                note(objects, domains[i], i, &events[e], room + events[e].key_offset);
        } while (list.cursor != 0);
    }
}

/* ---- Getting and putting --------------------------------------------------------------------- */

static _Alignas(4096) uint8_t value[VALUE_MAX];

static int32_t transfer(spec_objects *objects, spec_domain domain, const struct listed *object,
                        bool is_put)
{
    int32_t status = 99;
    const uint64_t address = (uint64_t)(uintptr_t)value;
    const struct spec_keys keys = {.struct_size = sizeof(keys),
                                   .count = 1,
                                   .data = object->key,
                                   .key_bytes = object->key_bytes};
    const struct spec_pieces pieces = {.struct_size = sizeof(pieces),
                                       .pieces = 1,
                                       .addresses = &address,
                                       .piece_bytes = object->bytes};
    const struct spec_transfer_params params = {.struct_size = sizeof(params),
                                                .ret_status = &status};
    spec_status called = is_put ? api->put(objects, domain, &keys, &pieces, &params, NULL)
                                : api->get(objects, domain, &keys, &pieces, &params, NULL);
    FUZZ_CHECK(called == SPEC_OK);
    return status;
}

static void value_make(const struct listed *object)
{
    for (uint64_t i = 0; i < object->bytes; i++)
        value[i] = (uint8_t)(object->key[0] + i * 7 + i / 256);
}

static void value_check(const struct listed *object)
{
    for (uint64_t i = 0; i < object->bytes; i++)
        FUZZ_CHECK(value[i] == (uint8_t)(object->key[0] + i * 7 + i / 256));
}

/* What the log tells of has no bytes: it fails, and is absent then. Some are stored anew. Returns
 * how many, the first ones of what is listed. */
static uint32_t store_anew(spec_objects *objects, const spec_domain *domains)
{
    uint32_t count = listed_count < LISTED_MAX ? listed_count : LISTED_MAX, stored = 0;
    uint64_t bytes;
    for (uint32_t i = 0; i < count; i++) {
        const struct listed object = listed[i];
        if (object.bytes > VALUE_MAX)
            continue;
        FUZZ_CHECK(transfer(objects, domains[object.domain], &object, false) == SPEC_E_CORRUPT);
        FUZZ_CHECK(exists(objects, domains[object.domain], &object, &bytes) == SPEC_KEY_ABSENT);
        if (stored == STORED_MAX)
            continue;
        value_make(&object);
        FUZZ_CHECK(transfer(objects, domains[object.domain], &object, true) == SPEC_KEY_DONE);
        listed[stored++] = object;
    }
    return stored;
}

static void get_stored(spec_objects *objects, const spec_domain *domains, uint32_t stored)
{
    for (uint32_t i = 0; i < stored; i++) {
        memset(value, 0, listed[i].bytes);
        FUZZ_CHECK(transfer(objects, domains[listed[i].domain], &listed[i], false) ==
                   SPEC_KEY_DONE);
        value_check(&listed[i]);
    }
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Frames the payloads; returns the log's bytes. */
static uint64_t log_make(const uint8_t *data, size_t size, uint8_t *bytes)
{
    struct sc_store_log_end end = world.start;
    uint64_t whole = 0;
    for (size_t at = 0; at + 2 <= size;) {
        uint64_t count = data[at] | (uint64_t)data[at + 1] << 8;
        at += 2;
        count = count < size - at ? count : size - at;
        if (!fuzz_frame_put(bytes, &whole, data + at, count, &end))
            break;
        at += count;
    }
    return whole;
}

static struct sc_io_sim_disk *disk_with(const uint8_t *bytes, uint64_t count)
{
    struct sc_io_sim_disk *disk;
    FUZZ_CHECK(sc_io_sim_disk_copy(world.empty, &disk, NULL) == SPEC_OK);
    FUZZ_CHECK(sc_io_sim_disk_resize(disk, OBJECTS_LOG, count));
    FUZZ_CHECK(count == 0 || sc_io_sim_disk_poke(disk, OBJECTS_LOG, 0, bytes, count));
    world.params.custom = sc_io_sim_custom(disk);
    return disk;
}

static void disk_end(struct sc_io_sim_disk *disk)
{
    world.params.custom = sc_io_sim_custom(world.empty);
    sc_io_sim_disk_close(disk);
}

/* Opens, and lists. false: refused. */
static bool look(spec_objects **ret_objects, spec_domain domains[DOMAINS], uint32_t *ret_count)
{
    spec_status status = objects_open(ret_objects);
    FUZZ_CHECK(status == SPEC_OK || status == SPEC_E_VERSION);
    if (status != SPEC_OK)
        return false;
    FUZZ_CHECK((*ret_objects)->store->disk.extent_bytes <= 1u << 20);
    *ret_count = domains_open(*ret_objects, domains);
    objects_list(*ret_objects, domains, *ret_count);
    return true;
}

/* The log, opened again and again; false: refused. What it lists first is left in listed_hash. */
static bool run(const uint8_t *bytes, uint64_t count, bool goes_on)
{
    struct sc_io_sim_disk *disk = disk_with(bytes, count);
    spec_objects *objects;
    spec_domain domains[DOMAINS];
    static struct listed kept[STORED_MAX];
    uint32_t domain_count, stored = 0;
    bool opens = look(&objects, domains, &domain_count);
    uint64_t first_hash = listed_hash, first_count = listed_count;
    if (opens && goes_on) { /* the checkpoint of close, then what is stored anew, and its reopen */
        sc_objects_close(objects);
        FUZZ_CHECK(look(&objects, domains, &domain_count));
        FUZZ_CHECK(listed_hash == first_hash && listed_count == first_count);
        stored = store_anew(objects, domains);
        get_stored(objects, domains, stored);
        memcpy(kept, listed, stored * sizeof(listed[0]));
        sc_objects_close(objects);
        FUZZ_CHECK(look(&objects, domains, &domain_count));
        memcpy(listed, kept, stored * sizeof(listed[0]));
        get_stored(objects, domains, stored);
    }
    for (uint32_t i = 0; opens && goes_on && i < domain_count; i++)
        FUZZ_CHECK(api->clear(objects, domains[i], 0, NULL) == SPEC_OK);
    if (opens) {
        FUZZ_CHECK(!goes_on || domain_count == DOMAINS || objects->store->disk.extent_bytes == 0);
        FUZZ_CHECK(atomic_load(&objects->poison.broken) == 0);
        sc_objects_close(objects);
        sc_sim_memory_rest();
    }
    disk_end(disk);
    listed_hash = first_hash;
    listed_count = (uint32_t)first_count;
    return opens;
}

/* Makes one byte of the log wrong; false: of a long frame, which takes a while to restore. */
static bool byte_flip(uint8_t *bytes, uint64_t count, uint64_t seed)
{
    uint64_t at = seed * 0x9E3779B97F4A7C15ull % count, frame = 0;
    while (frame + sc_store_frame_bytes(bytes + frame) <= at)
        frame += sc_store_frame_bytes(bytes + frame);
    if (sc_store_frame_bytes(bytes + frame) > 600)
        return false;
    bytes[at] ^= (uint8_t)(1 + seed % 255);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[LOG_BYTES];
    if (world.empty == NULL)
        world_make();
    uint64_t count = log_make(data, size, bytes);
    fuzz_was_accepted = 0;
    if (!run(bytes, count, true))
        return 0;
    uint64_t first_hash = listed_hash;
    fuzz_was_accepted = listed_count > 0;
    if (count > 0 && byte_flip(bytes, count, size + data[size / 2] * 7919u)) {
        FUZZ_CHECK(run(bytes, count, false));
        FUZZ_CHECK(listed_hash == first_hash);
    }
    return 0;
}
