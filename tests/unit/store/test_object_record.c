/* Records of objects at their limits, bent in every byte and cut at every length; tags.
 *
 * Holds: what decodes is in range by itself, whatever the bytes were.
 * Threads: none. */
#include "store/log/record_format.h"
#include "store/object/object_record.h"
#include "tests/unit/cases.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PAYLOAD_MAX (256u << 10)
#define PAGE        ((uint64_t)SC_IO_PAGE_BYTES)

static uint64_t word = 1;

static uint64_t mix(void)
{
    word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = (word ^ word >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ x >> 32;
}

struct made {
    struct sc_store_object objects[SC_STORE_OBJECT_BATCH];
    struct sc_store_object_part parts[SC_STORE_OBJECT_BATCH][SC_STORE_OBJECT_PARTS_MAX];
    uint8_t keys[SC_STORE_OBJECT_BATCH][SC_STORE_OBJECT_KEY_BYTES];
    uint32_t count;
    uint8_t payload[PAYLOAD_MAX];
    uint64_t bytes;
};

static struct made *made_new(void)
{
    struct made *made = calloc(1, sizeof(*made));
    assert_non_null(made);
    return made;
}

static struct sc_store_writer writer_of(struct made *made)
{
    return (struct sc_store_writer){.bytes = made->payload, .capacity = PAYLOAD_MAX};
}

/* An object of so many parts, each of `pages` pages. */
static void object_make(struct made *made, uint32_t i, uint32_t key_bytes, uint32_t part_count,
                        uint32_t pages)
{
    struct sc_store_object *object = &made->objects[i];
    uint64_t all = (uint64_t)part_count * pages * PAGE;
    *object = (struct sc_store_object){.copy = mix(),
                                       .tag = mix(),
                                       .bytes = all - mix() % PAGE,
                                       .key = made->keys[i],
                                       .key_bytes = key_bytes,
                                       .domain = SC_STORE_OBJECT_DOMAINS - 1,
                                       .part_count = part_count,
                                       .parts = made->parts[i]};
    for (uint32_t at = 0; at < key_bytes; at++)
        made->keys[i][at] = (uint8_t)mix();
    for (uint32_t p = 0; p < part_count; p++)
        made->parts[i][p] = (struct sc_store_object_part){
            (uint32_t)(mix() % SC_STORE_SEGMENT_NUMBERS), UINT32_MAX - pages, pages};
}

static void objects_put(struct made *made)
{
    struct sc_store_writer writer = writer_of(made);
    sc_store_record_encode_objects(&writer, made->objects, made->count);
    assert_false(writer.overflow);
    made->bytes = writer.used;
}

static void object_same(const struct sc_store_object *found, const struct sc_store_object *wanted)
{
    assert_int_equal(found->copy, wanted->copy);
    assert_int_equal(found->tag, wanted->tag);
    assert_int_equal(found->bytes, wanted->bytes);
    assert_int_equal(found->domain, wanted->domain);
    assert_int_equal(found->key_bytes, wanted->key_bytes);
    assert_memory_equal(found->key, wanted->key, wanted->key_bytes);
    assert_int_equal(found->part_count, wanted->part_count);
    assert_memory_equal(found->parts, wanted->parts, wanted->part_count * sizeof(wanted->parts[0]));
}

static void type_is(const struct made *made, uint64_t type, uint64_t id)
{
    struct sc_store_record record = {0};
    assert_true(sc_store_record_peek(made->payload, made->bytes, &record));
    assert_int_equal(record.version, SC_STORE_RECORD_VERSION);
    assert_int_equal(record.type, type);
    assert_int_equal(record.id, id);
}

/* ---- What was encoded ------------------------------------------------------------------------ */

static void objects_of_all_sizes_are_read_back(void **state)
{
    (void)state;
    static struct sc_store_object_batch batch;
    struct made *made = made_new();
    for (uint32_t n = 0; n < 300; n++) {
        made->count = 1 + (uint32_t)(mix() % SC_STORE_OBJECT_BATCH);
        for (uint32_t i = 0; i < made->count; i++) {
            object_make(made, i, 1 + (uint32_t)(mix() % 80), 1 + (uint32_t)(mix() % 16),
                        1 + (uint32_t)(mix() % 300));
            if (n % 3 == 0)
                made->objects[i].copy = i; /* small numbers */
        }
        objects_put(made);
        type_is(made, SC_STORE_RECORD_OBJECTS, SC_STORE_OBJECT_DOMAINS - 1);
        assert_true(sc_store_record_get_objects(made->payload, made->bytes, &batch));
        assert_int_equal(batch.count, made->count);
        for (uint32_t i = 0; i < made->count; i++)
            object_same(&batch.objects[i], &made->objects[i]);
    }
    free(made);
}

/* 64 objects with keys of 1,024 bytes and 16 parts, each of the most bytes. They take no more than
 * what is reserved for each of them, and no more than a record may. */
static void a_record_at_all_limits_fits_what_is_reserved(void **state)
{
    (void)state;
    static struct sc_store_object_batch batch;
    struct made *made = made_new();
    uint64_t reserved = 0;
    made->count = SC_STORE_OBJECT_BATCH;
    for (uint32_t i = 0; i < made->count; i++) {
        object_make(made, i, SC_STORE_OBJECT_KEY_BYTES, SC_STORE_OBJECT_PARTS_MAX,
                    SC_STORE_OBJECT_BYTES_MAX / PAGE / SC_STORE_OBJECT_PARTS_MAX);
        made->objects[i].bytes = SC_STORE_OBJECT_BYTES_MAX;
        reserved +=
            sc_store_object_record_bytes(SC_STORE_OBJECT_KEY_BYTES, SC_STORE_OBJECT_PARTS_MAX);
    }
    objects_put(made);
    assert_true(made->bytes <= SC_STORE_PAYLOAD_BYTES_MAX);
    assert_true(SC_STORE_FRAME_BYTES + made->bytes <= reserved);
    assert_true(sc_store_record_get_objects(made->payload, made->bytes, &batch));
    for (uint32_t i = 0; i < made->count; i++)
        object_same(&batch.objects[i], &made->objects[i]);
    made->count = 1;
    objects_put(made); /* alone, as the only one of its domain in a commit */
    assert_true(SC_STORE_FRAME_BYTES + made->bytes <=
                sc_store_object_record_bytes(SC_STORE_OBJECT_KEY_BYTES, SC_STORE_OBJECT_PARTS_MAX));
    object_make(made, 0, 1, 1, 1);
    made->objects[0].copy = made->objects[0].tag = UINT64_MAX;
    objects_put(made);
    assert_true(SC_STORE_FRAME_BYTES + made->bytes <= sc_store_object_record_bytes(1, 1));
    free(made);
}

static void domains_removals_and_clears_are_read_back(void **state)
{
    (void)state;
    static uint8_t identity[SC_STORE_DOMAIN_BYTES];
    static uint64_t copies[SC_STORE_REMOVAL_BATCH];
    struct made *made = made_new();
    const uint8_t *bytes;
    uint32_t count;
    for (uint32_t i = 0; i < sizeof(identity); i++)
        identity[i] = (uint8_t)mix();
    for (uint32_t i = 0; i < SC_STORE_REMOVAL_BATCH; i++)
        copies[i] = mix();
    for (uint32_t size = 1; size <= SC_STORE_DOMAIN_BYTES; size = size * 2 - size % 2) {
        struct sc_store_writer writer = writer_of(made);
        sc_store_record_encode_domain(&writer, size, identity, size);
        made->bytes = writer.used;
        assert_true(writer.used <= 64u + size); /* what is reserved for it */
        type_is(made, SC_STORE_RECORD_DOMAIN, size);
        assert_true(sc_store_record_get_domain(made->payload, made->bytes, &bytes, &count));
        assert_int_equal(count, size);
        assert_memory_equal(bytes, identity, size);
        size += size == 1;
    }
    for (uint32_t n = 1; n <= SC_STORE_REMOVAL_BATCH; n += n < 4 ? 1 : 60) {
        struct sc_store_writer writer = writer_of(made);
        sc_store_record_encode_removal(&writer, copies, n);
        made->bytes = writer.used;
        assert_true(writer.used <= 64u + 8 * n);
        type_is(made, SC_STORE_RECORD_REMOVAL, 0);
        assert_true(sc_store_record_get_removal(made->payload, made->bytes, &bytes, &count));
        assert_int_equal(count, n);
        assert_memory_equal(bytes, copies, 8ull * n); /* this machine is little-endian */
    }
    struct sc_store_writer writer = writer_of(made);
    sc_store_record_encode_clear(&writer, 77);
    made->bytes = writer.used;
    assert_true(writer.used <= 64);
    type_is(made, SC_STORE_RECORD_CLEAR, 77);
    free(made);
}

/* ---- What was not ---------------------------------------------------------------------------- */

/* Decodes bytes of exactly this size, so that ASan sees a read past their end. */
static bool decodes_in_range(const uint8_t *payload, uint64_t count)
{
    static struct sc_store_object_batch batch;
    uint8_t *bytes = malloc(count > 0 ? count : 1);
    const uint8_t *found = NULL;
    uint32_t found_count = 0;
    assert_non_null(bytes);
    memcpy(bytes, payload, count);
    bool is_any = false;
    if (sc_store_record_get_domain(bytes, count, &found, &found_count)) {
        is_any = true;
        assert_true(found_count > 0 && found_count <= SC_STORE_DOMAIN_BYTES);
        assert_true(found >= bytes && found + found_count <= bytes + count);
    }
    if (sc_store_record_get_removal(bytes, count, &found, &found_count)) {
        is_any = true;
        assert_true(found_count > 0 && found_count <= SC_STORE_REMOVAL_BATCH);
        assert_true(found >= bytes && found + 8ull * found_count <= bytes + count);
    }
    if (sc_store_record_get_objects(bytes, count, &batch)) {
        is_any = true;
        assert_true(batch.count > 0 && batch.count <= SC_STORE_OBJECT_BATCH);
        for (uint32_t i = 0; i < batch.count; i++) {
            const struct sc_store_object *object = &batch.objects[i];
            uint64_t pages = 0;
            assert_true(object->domain > 0 && object->domain < SC_STORE_OBJECT_DOMAINS);
            assert_true(object->key_bytes > 0 && object->key_bytes <= SC_STORE_OBJECT_KEY_BYTES);
            assert_true(object->key >= bytes && object->key + object->key_bytes <= bytes + count);
            assert_true(object->bytes > 0 && object->bytes <= SC_STORE_OBJECT_BYTES_MAX);
            assert_true(object->part_count > 0 && object->part_count <= SC_STORE_OBJECT_PARTS_MAX);
            for (uint32_t p = 0; p < object->part_count; p++) {
                assert_true(object->parts[p].segment < SC_STORE_SEGMENT_NUMBERS);
                assert_true(object->parts[p].pages > 0);
                assert_true(object->parts[p].page + object->parts[p].pages >
                            object->parts[p].page); /* no overflow */
                pages += object->parts[p].pages;
            }
            assert_int_equal(pages, (object->bytes + PAGE - 1) / PAGE);
        }
    }
    free(bytes);
    return is_any;
}

/* Each byte with each other value, and each shorter record. */
static void bend(const struct made *made)
{
    uint8_t *bytes = malloc(made->bytes + 8);
    assert_non_null(bytes);
    memcpy(bytes, made->payload, made->bytes);
    memset(bytes + made->bytes, 0, 8);
    assert_true(decodes_in_range(bytes, made->bytes));
    for (uint64_t at = 0; at < made->bytes; at++) {
        for (uint32_t bits = 1; bits < 256; bits++) {
            bytes[at] ^= (uint8_t)bits;
            (void)decodes_in_range(bytes, made->bytes);
            bytes[at] ^= (uint8_t)bits;
        }
        assert_false(decodes_in_range(bytes, at)); /* cut */
    }
    assert_false(decodes_in_range(bytes, made->bytes + 1)); /* or with more behind it */
    free(bytes);
}

static void bent_and_cut_records_are_refused_or_in_range(void **state)
{
    (void)state;
    struct made *made = made_new();
    static const uint64_t copies[3] = {1, UINT64_MAX, 300};
    made->count = 3;
    object_make(made, 0, 3, 2, 1);
    object_make(made, 1, 17, 1, 40);
    object_make(made, 2, 5, 3, 7);
    objects_put(made);
    bend(made);
    struct sc_store_writer writer = writer_of(made);
    sc_store_record_encode_domain(&writer, 1000, (const uint8_t *)"model and layout", 16);
    made->bytes = writer.used;
    bend(made);
    writer = writer_of(made);
    sc_store_record_encode_removal(&writer, copies, 3);
    made->bytes = writer.used;
    bend(made);
    free(made);
}

/* One member of an object at a time is out of its range. */
static void objects_out_of_range_are_refused(void **state)
{
    (void)state;
    static struct sc_store_object_batch batch;
    struct made *made = made_new();
    for (uint32_t n = 0; n < 13; n++) {
        made->count = 2;
        object_make(made, 0, 10, 2, 4);
        object_make(made, 1, 10, 2, 4);
        struct sc_store_object *object = &made->objects[n % 2];
        switch (n) {
        case 0: /* nothing is */
            break;
        case 1:
            made->objects[0].domain = 0;
            break;
        case 2:
            made->objects[0].domain = SC_STORE_OBJECT_DOMAINS;
            break;
        case 3:
            object->bytes = 8 * PAGE + 1; /* one page more than its parts have */
            break;
        case 4:
            object->bytes = 7 * PAGE;
            break;
        case 5:
            object->bytes = 0;
            break;
        case 6:
            object->parts[1].segment = SC_STORE_SEGMENT_NUMBERS;
            break;
        case 7:
            object->parts[0].pages = 0;
            break;
        case 8:
            object->parts[1].page = UINT32_MAX - object->parts[1].pages + 1;
            break;
        case 9:
            object->key_bytes = 0;
            break;
        case 10:
            object->parts[0].pages = 65537; /* more than an object may have */
            object->part_count = 1;
            object->bytes = 65537 * PAGE;
            object->parts[0].page = 0;
            break;
        case 11:
            object->part_count = 0;
            object->bytes = 1;
            break;
        default: /* the last page of the last segment */
            object->parts[0] =
                (struct sc_store_object_part){SC_STORE_SEGMENT_NUMBERS - 1, UINT32_MAX - 4, 4};
        }
        objects_put(made);
        assert_int_equal(sc_store_record_get_objects(made->payload, made->bytes, &batch),
                         n == 0 || n == 12);
    }
    free(made);
}

/* ---- Tags ------------------------------------------------------------------------------------ */

#define TAGGED_BYTES (2 * SC_STORE_OBJECT_UNIT + 5000)

struct tagged {
    uint8_t *bytes;
    struct sc_store_object_name name;
    uint8_t key[SC_STORE_OBJECT_KEY_BYTES];
};

static struct tagged *tagged_new(uint64_t bytes)
{
    struct tagged *tagged = calloc(1, sizeof(*tagged));
    assert_non_null(tagged);
    tagged->bytes = malloc(bytes);
    assert_non_null(tagged->bytes);
    for (uint64_t i = 0; i < bytes; i++)
        tagged->bytes[i] = (uint8_t)mix();
    for (uint32_t i = 0; i < sizeof(tagged->key); i++)
        tagged->key[i] = (uint8_t)mix();
    tagged->name = (struct sc_store_object_name){
        .copy = mix(), .bytes = bytes, .key = tagged->key, .key_bytes = 100};
    sc_store_domain_digest((const uint8_t *)"domain", 6, tagged->name.domain);
    return tagged;
}

static void tagged_free(struct tagged *tagged)
{
    free(tagged->bytes);
    free(tagged);
}

static uint64_t tag_of(const struct tagged *tagged)
{
    const uint8_t *piece = tagged->bytes;
    return sc_store_object_tag(&tagged->name, &piece, &tagged->name.bytes, 1);
}

static void each_byte_changes_the_tag(void **state)
{
    (void)state;
    static const uint64_t SIZES[] = {
        1, 7, 4096, SC_STORE_OBJECT_UNIT, SC_STORE_OBJECT_UNIT + 1, TAGGED_BYTES};
    for (uint32_t s = 0; s < sizeof(SIZES) / sizeof(SIZES[0]); s++) {
        struct tagged *tagged = tagged_new(SIZES[s]);
        uint64_t tag = tag_of(tagged), step = SIZES[s] < 10000 ? 1 : 40009;
        for (uint64_t at = 0; at < SIZES[s]; at += step) {
            tagged->bytes[at] ^= (uint8_t)(1u << at % 8);
            assert_int_not_equal(tag_of(tagged), tag);
            tagged->bytes[at] ^= (uint8_t)(1u << at % 8);
        }
        for (uint64_t back = 1; back <= 16 && back <= SIZES[s]; back++) { /* and the last ones */
            tagged->bytes[SIZES[s] - back] ^= 0x80;
            assert_int_not_equal(tag_of(tagged), tag);
            tagged->bytes[SIZES[s] - back] ^= 0x80;
        }
        assert_int_equal(tag_of(tagged), tag);
        tagged_free(tagged);
    }
}

static void units_that_change_places_change_the_tag(void **state)
{
    (void)state;
    struct tagged *tagged = tagged_new(TAGGED_BYTES);
    uint8_t *unit = malloc(SC_STORE_OBJECT_UNIT);
    assert_non_null(unit);
    uint64_t tag = tag_of(tagged);
    memcpy(unit, tagged->bytes, SC_STORE_OBJECT_UNIT);
    memcpy(tagged->bytes, tagged->bytes + SC_STORE_OBJECT_UNIT, SC_STORE_OBJECT_UNIT);
    memcpy(tagged->bytes + SC_STORE_OBJECT_UNIT, unit, SC_STORE_OBJECT_UNIT);
    assert_int_not_equal(tag_of(tagged), tag);
    free(unit);
    tagged_free(tagged);
}

/* The same bytes under another name. */
static void the_tag_is_bound_to_the_name(void **state)
{
    (void)state;
    struct tagged *tagged = tagged_new(9000);
    struct sc_store_object_name name = tagged->name;
    uint64_t tag = tag_of(tagged), tags[7];
    tagged->name.copy++;
    tags[0] = tag_of(tagged);
    tagged->name = name;
    tagged->name.copy ^= UINT64_C(1) << 63;
    tags[1] = tag_of(tagged);
    tagged->name = name;
    tagged->name.bytes--;
    tags[2] = tag_of(tagged);
    tagged->name = name;
    tagged->name.key_bytes--;
    tags[3] = tag_of(tagged);
    tagged->name = name;
    tagged->key[99] ^= 1;
    tags[4] = tag_of(tagged);
    tagged->key[99] ^= 1;
    sc_store_domain_digest((const uint8_t *)"domaim", 6, tagged->name.domain);
    tags[5] = tag_of(tagged);
    sc_store_domain_digest((const uint8_t *)"domain\0", 7, tagged->name.domain);
    tags[6] = tag_of(tagged);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_not_equal(tags[i], tag);
        for (uint32_t earlier = 0; earlier < i; earlier++)
            assert_int_not_equal(tags[i], tags[earlier]);
    }
    tagged->name = name;
    tagged->key[100] ^= 1; /* behind the key */
    assert_int_equal(tag_of(tagged), tag);
    tagged_free(tagged);
}

/* Pieces of any sizes, each in memory of its own. */
static void pieces_give_the_tag_of_the_whole(void **state)
{
    (void)state;
    struct tagged *tagged = tagged_new(TAGGED_BYTES);
    uint64_t tag = tag_of(tagged);
    for (uint32_t n = 0; n < 60; n++) {
        const uint8_t *pieces[16];
        uint8_t *memory[16];
        uint64_t bytes[16], left = TAGGED_BYTES, at = 0;
        uint32_t count = 1 + n % 16;
        for (uint32_t i = 0; i < count; i++, at += bytes[i - 1]) {
            bytes[i] = 1 + mix() % (left - (count - i - 1)) / (n % 3 == 0 ? 1 : count - i);
            if (n % 4 == 1 && i == 0 && count > 1)
                bytes[i] = SC_STORE_OBJECT_UNIT + n % 3 - 1; /* a unit, one byte less, or more */
            bytes[i] = i + 1 == count || bytes[i] > left - (count - i - 1) ? left - (count - i - 1)
                                                                           : bytes[i];
            left -= bytes[i];
            memory[i] = malloc(bytes[i]);
            assert_non_null(memory[i]);
            memcpy(memory[i], tagged->bytes + at, bytes[i]);
            pieces[i] = memory[i];
        }
        assert_int_equal(at, TAGGED_BYTES);
        assert_int_equal(sc_store_object_tag(&tagged->name, pieces, bytes, count), tag);
        for (uint32_t i = 0; i < count; i++)
            free(memory[i]);
    }
    tagged_free(tagged);
}

/* The seed of object_tag.c. */
static uint64_t seed_of(const struct sc_store_object_name *name)
{
    uint8_t bytes[2 * SC_STORE_HASH_BYTES + 16];
    XXH128_hash_t key = XXH3_128bits(name->key, name->key_bytes);
    memcpy(bytes, name->domain, SC_STORE_HASH_BYTES);
    sc_store_le_put(bytes + 16, key.low64, 8);
    sc_store_le_put(bytes + 24, key.high64, 8);
    sc_store_le_put(bytes + 32, name->copy, 8);
    sc_store_le_put(bytes + 40, name->bytes, 8);
    return XXH3_64bits(bytes, sizeof(bytes));
}

/* Leaves the stack below as if a hash of this seed had been there, whose secret was overwritten. */
static __attribute__((noinline)) void stack_fill(uint64_t seed)
{
    _Alignas(64) volatile uint64_t words[4096];
    for (uint32_t i = 0; i < 4096; i += 4) {
        words[i] = words[i + 2] = 7;
        words[i + 1] = seed; /* where XXH3_state_t has its seed, */
        words[i + 3] = 0;    /* and its extSecret */
    }
}

/* xxHash reads the seed that a state had before. */
static void a_tag_does_not_depend_on_the_stack(void **state)
{
    (void)state;
    struct tagged *tagged = tagged_new(5000);
    const uint8_t *pieces[2] = {tagged->bytes, tagged->bytes + 1000};
    const uint64_t bytes[2] = {1000, 4000};
    uint64_t tag = tag_of(tagged), seed = seed_of(&tagged->name);
    stack_fill(seed);
    assert_int_equal(sc_store_object_tag(&tagged->name, pieces, bytes, 2), tag);
    tagged_free(tagged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_of_all_sizes_are_read_back),
        cmocka_unit_test(a_record_at_all_limits_fits_what_is_reserved),
        cmocka_unit_test(domains_removals_and_clears_are_read_back),
        cmocka_unit_test(bent_and_cut_records_are_refused_or_in_range),
        cmocka_unit_test(objects_out_of_range_are_refused),
        cmocka_unit_test(each_byte_changes_the_tag),
        cmocka_unit_test(units_that_change_places_change_the_tag),
        cmocka_unit_test(the_tag_is_bound_to_the_name),
        cmocka_unit_test(pieces_give_the_tag_of_the_whole),
        cmocka_unit_test(a_tag_does_not_depend_on_the_stack),
    };
    return cmocka_run_group_tests_name("store object record", tests, NULL, NULL);
}
