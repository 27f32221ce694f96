/* objects: lists domains and objects by key from a store's log, and verifies their bytes.
 *
 *   log -> domain: entry; objects: entries, the later one of a key counts; removal, clear: dead
 *
 * With --verify a bad object is reported only if it is still in the log afterwards, because a store
 * in use may have removed it.
 * Threads: one. Tests: tests/unit/tools/test_ctl_objects.py */
#include "store/log/record_format.h"
#include "store/object/object_record.h"
#include "tools/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE ((uint64_t)SC_IO_PAGE_BYTES)

struct object {
    uint64_t copy, bytes, tag;
    uint32_t domain; /* its id in the log */
    uint32_t key_bytes, part_count;
    bool is_dead, is_bad;
    uint8_t *key;
    struct sc_store_object_part parts[SC_STORE_OBJECT_PARTS_MAX]; /* segment: the file's number */
};

struct domain {
    uint32_t id, identity_bytes; /* id 0: it is forgotten */
    uint8_t *identity;
    uint64_t objects, bytes, page_bytes, bad;
};

struct content {             /* of a rank */
    struct object **objects; /* in the order of the log */
    struct domain *domains;
    uint64_t object_count, object_room, domain_count, domain_room;
    void *by_copy, *by_key; /* trees of libc's */
};

/* ---- The log -------------------------------------------------------------------------------- */

static int copy_compare(const void *left, const void *right)
{
    const struct object *a = left, *b = right;
    return a->copy < b->copy ? -1 : a->copy > b->copy;
}

static int key_compare(const void *left, const void *right)
{
    const struct object *a = left, *b = right;
    if (a->domain != b->domain)
        return a->domain < b->domain ? -1 : 1;
    uint32_t bytes = a->key_bytes < b->key_bytes ? a->key_bytes : b->key_bytes;
    int differs = memcmp(a->key, b->key, bytes);
    if (differs != 0)
        return differs;
    return a->key_bytes < b->key_bytes ? -1 : a->key_bytes > b->key_bytes;
}

static uint8_t *bytes_copy(const uint8_t *bytes, uint64_t count)
{
    uint8_t *copy = ctl_alloc(count);
    memcpy(copy, bytes, count);
    return copy;
}

static struct domain *domain_find(const struct content *content, uint32_t id)
{
    for (uint64_t i = 0; i < content->domain_count; i++)
        if (content->domains[i].id == id)
            return &content->domains[i];
    return NULL;
}

static void add_domain(struct content *content, uint32_t id, const uint8_t *identity,
                       uint32_t bytes)
{
    if (domain_find(content, id) != NULL)
        return;
    content->domains = ctl_grow(content->domains, content->domain_count, &content->domain_room,
                                sizeof(*content->domains));
    content->domains[content->domain_count++] =
        (struct domain){.id = id, .identity_bytes = bytes, .identity = bytes_copy(identity, bytes)};
}

static void object_die(struct content *content, struct object *object)
{
    if (object->is_dead)
        return;
    object->is_dead = true;
    (void)tdelete(object, &content->by_key, key_compare);
}

static void add_object(struct content *content, const struct sc_store_object *found)
{
    struct object *object = ctl_alloc(sizeof(*object));
    *object = (struct object){.copy = found->copy,
                              .bytes = found->bytes,
                              .tag = found->tag,
                              .domain = found->domain,
                              .key_bytes = found->key_bytes,
                              .part_count = found->part_count,
                              .key = bytes_copy(found->key, found->key_bytes)};
    memcpy(object->parts, found->parts, found->part_count * sizeof(*found->parts));
    struct object **known = tsearch(object, &content->by_copy, copy_compare);
    if (known == NULL || *known != object || domain_find(content, object->domain) == NULL) {
        if (known != NULL && *known == object)
            (void)tdelete(object, &content->by_copy, copy_compare);
        free(object->key); /* it is there already, or has no domain */
        free(object);
        return;
    }
    struct object **same = tfind(object, &content->by_key, key_compare);
    if (same != NULL)
        object_die(content, *same);
    (void)tsearch(object, &content->by_key, key_compare);
    content->objects = ctl_grow(content->objects, content->object_count, &content->object_room,
                                sizeof(*content->objects));
    content->objects[content->object_count++] = object;
}

static void remove_copies(struct content *content, const uint8_t *copies, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct object wanted = {.copy = sc_store_le_get(copies + 8ull * i, 8)};
        struct object **found = tfind(&wanted, &content->by_copy, copy_compare);
        if (found != NULL)
            object_die(content, *found);
    }
}

static void clear_domain(struct content *content, uint64_t id)
{
    for (uint64_t i = 0; i < content->object_count; i++)
        if (content->objects[i]->domain == id)
            object_die(content, content->objects[i]);
}

static void forget_domain(struct content *content, uint32_t id)
{
    struct domain *domain = domain_find(content, id);
    clear_domain(content, id); /* if records of removals were lost */
    if (domain != NULL)
        domain->id = 0;
}

static bool payload_add(struct ctl_rank *rank, const uint8_t *payload, uint64_t bytes, void *user)
{
    static struct sc_store_object_batch batch;
    struct content *content = user;
    struct sc_store_record record = {0};
    const uint8_t *data;
    uint32_t count;
    bool is_true = sc_store_record_peek(payload, bytes, &record);
    for (uint64_t i = 0; rank->resets_lost && i < content->object_count; i++)
        object_die(content, content->objects[i]);
    if (is_true && record.type == SC_STORE_RECORD_DOMAIN) {
        is_true = sc_store_record_get_domain(payload, bytes, &data, &count) && record.id > 0 &&
                  record.id < SC_STORE_OBJECT_DOMAINS;
        if (is_true && count == 0)
            forget_domain(content, (uint32_t)record.id);
        else if (is_true)
            add_domain(content, (uint32_t)record.id, data, count);
    } else if (is_true && record.type == SC_STORE_RECORD_OBJECTS) {
        is_true = sc_store_record_get_objects(payload, bytes, &batch);
        for (uint32_t i = 0; is_true && i < batch.count; i++)
            add_object(content, &batch.objects[i]);
    } else if (is_true && record.type == SC_STORE_RECORD_REMOVAL) {
        is_true = sc_store_record_get_removal(payload, bytes, &data, &count);
        if (is_true)
            remove_copies(content, data, count);
    } else if (is_true && record.type == SC_STORE_RECORD_CLEAR) {
        clear_domain(content, record.id);
    } else if (is_true && record.type != SC_STORE_RECORD_HEAD &&
               (record.type < SC_STORE_RECORD_SEGMENT || record.type > SC_STORE_RECORD_SEAL)) {
        fprintf(stderr,
                "spec-ctl: %s/log: record %" PRIu64 " has type %" PRIu64
                ", this program does not know it\n",
                rank->path, rank->record_count + 1, record.type);
        return false;
    }
    rank->lie_count += !is_true;
    return true;
}

static void no_node(void *node)
{
    (void)node;
}

static void content_free(struct content *content)
{
    tdestroy(content->by_copy, no_node);
    tdestroy(content->by_key, no_node);
    for (uint64_t i = 0; i < content->object_count; i++) {
        free(content->objects[i]->key);
        free(content->objects[i]);
    }
    for (uint64_t i = 0; i < content->domain_count; i++)
        free(content->domains[i].identity);
    free(content->objects);
    free(content->domains);
    *content = (struct content){0};
}

/* What the log says now. */
static bool content_load(const struct ctl_store *store, struct ctl_rank *rank,
                         struct content *content)
{
    *content = (struct content){0};
    if (!ctl_payloads_walk(store, rank, payload_add, content)) {
        content_free(content);
        return false;
    }
    for (uint64_t i = 0; rank->resets_lost && i < content->object_count; i++)
        object_die(content, content->objects[i]); /* at the log's end */
    for (uint64_t i = 0; i < content->object_count; i++) {
        const struct object *object = content->objects[i];
        if (object->is_dead)
            continue;
        struct domain *domain = domain_find(content, object->domain);
        domain->objects++;
        domain->bytes += object->bytes;
        domain->page_bytes += (object->bytes + PAGE - 1) / PAGE * PAGE;
    }
    return true;
}

bool ctl_objects_refuse(const char *path, const char *instead)
{
    struct ctl_store store;
    if (!ctl_objects_open(path, -1, &store))
        return true;
    bool has_some = store.rank_count > 0;
    if (has_some)
        fprintf(stderr, "spec-ctl: %s holds objects by key: %s\n", path, instead);
    ctl_store_close(&store);
    return has_some;
}

bool ctl_objects_sum(const struct ctl_store *store, struct ctl_rank *rank,
                     struct ctl_object_sum *ret_sum)
{
    struct content content;
    *ret_sum = (struct ctl_object_sum){0};
    if (!content_load(store, rank, &content))
        return false;
    for (uint64_t i = 0; i < content.domain_count; i++) {
        ret_sum->domains += content.domains[i].objects > 0;
        ret_sum->objects += content.domains[i].objects;
        ret_sum->bytes += content.domains[i].bytes;
        ret_sum->page_bytes += content.domains[i].page_bytes;
    }
    content_free(&content);
    return true;
}

/* ---- Verifying ------------------------------------------------------------------------------ */

/* Reads the pages of a part; what is not there reads as failed. */
static bool part_read(const struct ctl_rank *rank, const struct sc_store_object_part *part,
                      uint8_t *buffer)
{
    char path[4096];
    uint64_t bytes = part->pages * PAGE, done = 0;
    (void)snprintf(path, sizeof(path), "%s/seg-%08" PRIx32, rank->path, part->segment);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && done < bytes) {
        ssize_t some = pread(fd, buffer + done, bytes - done, (off_t)(part->page * PAGE + done));
        if (some <= 0)
            break;
        done += (uint64_t)some;
    }
    if (fd >= 0)
        close(fd);
    return done == bytes;
}

static bool object_is_right(const struct ctl_rank *rank, const struct domain *domain,
                            const struct object *object)
{
    uint64_t at = 0;
    uint8_t *buffer = ctl_alloc((object->bytes + PAGE - 1) / PAGE * PAGE);
    bool is_right = true;
    for (uint32_t i = 0; i < object->part_count && is_right; i++) {
        is_right = part_read(rank, &object->parts[i], buffer + at);
        at += object->parts[i].pages * PAGE;
    }
    struct sc_store_object_name name = {.copy = object->copy,
                                        .bytes = object->bytes,
                                        .key = object->key,
                                        .key_bytes = object->key_bytes};
    sc_store_domain_digest(domain->identity, domain->identity_bytes, name.domain);
    const uint8_t *piece = buffer;
    is_right = is_right && sc_store_object_tag(&name, &piece, &object->bytes, 1) == object->tag;
    free(buffer);
    return is_right;
}

/* Objects that are bad, and are still in the log afterwards. */
static uint64_t content_verify(const struct ctl_store *store, struct ctl_rank *rank,
                               struct content *content)
{
    struct content now;
    uint64_t suspects = 0, bad = 0;
    for (uint64_t i = 0; i < content->object_count; i++) {
        struct object *object = content->objects[i];
        if (object->is_dead)
            continue;
        object->is_bad = !object_is_right(rank, domain_find(content, object->domain), object);
        suspects += object->is_bad;
    }
    if (suspects == 0 || !content_load(store, rank, &now))
        return suspects;
    for (uint64_t i = 0; i < content->object_count; i++) {
        struct object *object = content->objects[i];
        struct object **found = tfind(object, &now.by_copy, copy_compare);
        object->is_bad = object->is_bad && found != NULL && !(*found)->is_dead;
        bad += object->is_bad;
        if (object->is_bad)
            domain_find(content, object->domain)->bad++;
    }
    content_free(&now);
    return bad;
}

/* ---- Output --------------------------------------------------------------------------------- */

/* Printable bytes as text, else hex digits behind 0x. */
static const char *name_text(const uint8_t *bytes, uint64_t count, char *text, uint64_t room)
{
    bool is_text = true;
    for (uint64_t i = 0; i < count; i++)
        is_text = is_text && bytes[i] >= 0x20 && bytes[i] < 0x7f;
    if (is_text) {
        (void)snprintf(text, room, "%.*s", (int)count, (const char *)bytes);
        return text;
    }
    uint64_t used = (uint64_t)snprintf(text, room, "0x");
    for (uint64_t i = 0; i < count && used + 3 < room; i++)
        used += (uint64_t)snprintf(text + used, room - used, "%02x", bytes[i]);
    return text;
}

static void add(struct json_object *object, const char *name, struct json_object *value)
{
    json_object_object_add(object, name, value);
}

static struct json_object *object_json(const struct object *object)
{
    char text[2 * SC_STORE_OBJECT_KEY_BYTES + 8];
    struct json_object *json = json_object_new_object();
    add(json, "key",
        json_object_new_string(name_text(object->key, object->key_bytes, text, sizeof(text))));
    add(json, "bytes", json_object_new_uint64(object->bytes));
    add(json, "parts", json_object_new_uint64(object->part_count));
    if (object->is_bad)
        add(json, "is_damaged", json_object_new_boolean(true));
    return json;
}

static struct json_object *domain_json(const struct content *content, const struct domain *domain,
                                       const struct ctl_rank *rank,
                                       const struct ctl_options *options)
{
    char text[2 * SC_STORE_DOMAIN_BYTES + 8];
    struct json_object *json = json_object_new_object();
    add(json, "rank", json_object_new_uint64(rank->rank));
    add(json, "domain",
        json_object_new_string(
            name_text(domain->identity, domain->identity_bytes, text, sizeof(text))));
    add(json, "objects", json_object_new_uint64(domain->objects));
    add(json, "bytes", json_object_new_uint64(domain->bytes));
    add(json, "page_bytes", json_object_new_uint64(domain->page_bytes));
    if (options->verifies)
        add(json, "damaged", json_object_new_uint64(domain->bad));
    if (!options->lists)
        return json;
    struct json_object *list = json_object_new_array();
    for (uint64_t i = 0; i < content->object_count; i++)
        if (!content->objects[i]->is_dead && content->objects[i]->domain == domain->id)
            json_object_array_add(list, object_json(content->objects[i]));
    add(json, "list", list);
    return json;
}

static void domain_print(const struct content *content, const struct domain *domain,
                         const struct ctl_rank *rank, const struct ctl_options *options)
{
    char text[2 * SC_STORE_DOMAIN_BYTES + 8], size[32];
    printf("rank %" PRIu32 ": %" PRIu64 " objects, %s", rank->rank, domain->objects,
           ctl_bytes_text(domain->bytes, size));
    if (options->verifies)
        printf(", %" PRIu64 " damaged", domain->bad);
    printf(": %s\n", name_text(domain->identity, domain->identity_bytes, text, sizeof(text)));
    for (uint64_t i = 0; i < content->object_count; i++) {
        const struct object *object = content->objects[i];
        if (object->is_dead || object->domain != domain->id || !(options->lists || object->is_bad))
            continue;
        printf("  %12" PRIu64 "  %s%s\n", object->bytes,
               name_text(object->key, object->key_bytes, text, sizeof(text)),
               object->is_bad ? "  DAMAGED" : "");
    }
}

int ctl_objects(const struct ctl_options *options)
{
    struct ctl_store store;
    int code = CTL_OK;
    if (!ctl_objects_open(options->path, options->rank, &store))
        return CTL_FAILED;
    struct json_object *all = json_object_new_array();
    for (uint64_t i = 0; i < store.rank_count; i++) {
        struct content content;
        if (!content_load(&store, &store.ranks[i], &content)) {
            code = CTL_FAILED;
            continue;
        }
        if (options->verifies && content_verify(&store, &store.ranks[i], &content) > 0 &&
            code == CTL_OK)
            code = CTL_FOUND;
        for (uint64_t d = 0; d < content.domain_count; d++) {
            const struct domain *domain = &content.domains[d];
            if (domain->id == 0)
                continue;
            if (options->json)
                json_object_array_add(all, domain_json(&content, domain, &store.ranks[i], options));
            else
                domain_print(&content, domain, &store.ranks[i], options);
        }
        content_free(&content);
    }
    if (options->json)
        printf("%s\n", json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY |
                                                               JSON_C_TO_STRING_NOSLASHESCAPE));
    else if (store.rank_count == 0)
        printf("%s holds no objects by key\n", store.path);
    json_object_put(all);
    ctl_store_close(&store);
    return code;
}
