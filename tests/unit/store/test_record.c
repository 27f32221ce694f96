/* Decoding of piece records: the short way for what our own encoder wrote says what the general one
 * says, or nothing. */
#include "store/log/record.h"
#include "tests/unit/cases.h"

#define TOKENS_MAX    300u
#define PAYLOAD_BYTES 2048u

static uint64_t word = 1;

static uint64_t mix(void)
{
    word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t x = (word ^ word >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return x ^ x >> 32;
}

/* Of every width that an integer may take. */
static uint64_t mix_to(uint64_t max)
{
    return (mix() >> mix() % 64) % max;
}

static void hash_make(uint8_t hash[SC_STORE_HASH_BYTES])
{
    for (uint32_t i = 0; i < SC_STORE_HASH_BYTES; i++)
        hash[i] = (uint8_t)mix();
}

struct made {
    struct sc_store_piece piece;
    uint32_t tokens[TOKENS_MAX];
    uint8_t memory[PAYLOAD_BYTES + 8];
    uint8_t *payload;
    uint64_t bytes;
};

static void piece_make(struct made *made)
{
    uint64_t count = 1 + mix_to(TOKENS_MAX), rows = 1 + mix_to(count);
    uint64_t chunk_first = mix_to(UINT64_C(1) << 40);
    for (uint64_t i = 0; i < count; i++)
        made->tokens[i] = (uint32_t)mix();
    made->piece = (struct sc_store_piece){.id = mix_to(UINT64_MAX),
                                          .extent = 1 + mix_to(UINT64_MAX - 1),
                                          .first_position = chunk_first + count - rows,
                                          .chunk_first = chunk_first,
                                          .extent_row = (uint32_t)mix_to(SC_STORE_ROWS_MAX),
                                          .row_count = (uint32_t)rows,
                                          .skip = (uint32_t)mix_to(rows),
                                          .tokens = made->tokens};
    hash_make(made->piece.root);
    hash_make(made->piece.root + SC_STORE_HASH_BYTES);
    hash_make(made->piece.chunk_hash);
    hash_make(made->piece.hash);
    made->payload = made->memory + mix() % 8;
    struct sc_store_writer writer = {.bytes = made->payload, .capacity = PAYLOAD_BYTES};
    sc_store_record_encode_piece(&writer, &made->piece);
    assert_false(writer.overflow);
    made->bytes = writer.used;
}

static void pieces_equal(const struct sc_store_piece *a, const struct sc_store_piece *b)
{
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->extent, b->extent);
    assert_int_equal(a->first_position, b->first_position);
    assert_int_equal(a->chunk_first, b->chunk_first);
    assert_int_equal(a->extent_row, b->extent_row);
    assert_int_equal(a->row_count, b->row_count);
    assert_int_equal(a->skip, b->skip);
    assert_int_equal(a->mark_count, b->mark_count);
    assert_memory_equal(a->root, b->root, SC_STORE_SHA256_BYTES);
    assert_memory_equal(a->chunk_hash, b->chunk_hash, SC_STORE_HASH_BYTES);
    assert_memory_equal(a->hash, b->hash, SC_STORE_HASH_BYTES);
    assert_memory_equal(a->tokens, b->tokens,
                        4 * (a->first_position + a->row_count - a->chunk_first));
}

/* The payload, in memory of just its size, by both ways. True: the short one took it. */
static bool plain_agrees(const uint8_t *payload, uint64_t bytes)
{
    static uint32_t tokens[SC_STORE_ROWS_MAX];
    static struct sc_store_mark marks[SC_STORE_MARKS_MAX];
    struct sc_store_record record = {.tokens = tokens, .marks = marks};
    struct sc_store_piece piece;
    uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, payload, bytes);
    bool is_plain = sc_store_record_decode_plain(copy, bytes, &piece);
    if (is_plain) {
        assert_true(sc_store_record_peek(payload, bytes, &record));
        assert_int_equal(record.version, SC_STORE_RECORD_VERSION);
        assert_int_equal(record.type, SC_STORE_RECORD_PIECE);
        assert_true(sc_store_record_decode(payload, bytes, &record));
        assert_int_equal((uintptr_t)piece.tokens % sizeof(uint32_t), 0);
        pieces_equal(&piece, &record.piece);
        record.id = 0;
        assert_true(sc_store_record_peek(copy, bytes, &record)); /* the head is as it was */
        assert_int_equal(record.id, piece.id);
    } else {
        assert_memory_equal(copy, payload, bytes);
    }
    free(copy);
    return is_plain;
}

static void plain_pieces_are_taken_and_say_the_same(void **state)
{
    (void)state;
    static struct made made;
    uint32_t taken = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        struct sc_store_piece piece;
        piece_make(&made);
        bool is_plain = plain_agrees(made.payload, made.bytes);
        taken += is_plain;
        if (made.piece.first_position + made.piece.row_count - made.piece.chunk_first >= 32)
            assert_true(is_plain); /* short ones may go the general way */
        if (!is_plain)
            continue;
        assert_true(sc_store_record_decode_plain(made.payload, made.bytes, &piece));
        pieces_equal(&piece, &made.piece);
    }
    assert_true(taken > 1000);
}

/* Every byte changed, every end cut off: what is taken all the same is what the general way says.
 * The tokens' own bytes and the hashes' may be anything. */
static void plain_never_says_more_than_the_general_way(void **state)
{
    (void)state;
    static struct made made;
    static const uint8_t values[] = {0x00, 0x7F, 0x80, 0x8D, 0x8E, 0xA3, 0xC4, 0xC5, 0xC6,
                                     0xC7, 0xCC, 0xCD, 0xCE, 0xCF, 0xD0, 0xD9, 0xE0, 0xFF};
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 60; i++) {
        piece_make(&made);
        for (uint64_t at = 0; at < made.bytes; at++) {
            uint8_t was = made.payload[at];
            for (uint32_t v = 0; v < sizeof(values); v++) {
                made.payload[at] = v == 0 ? (uint8_t)(was ^ 1u << at % 8) : values[v];
                refused += !plain_agrees(made.payload, made.bytes);
            }
            made.payload[at] = was;
            assert_false(plain_agrees(made.payload, at));
        }
    }
    assert_true(refused > 10000);
}

/* Other keys, marks, another version or type: those have the general way. */
static void plain_leaves_other_records_alone(void **state)
{
    (void)state;
    static uint8_t payload[PAYLOAD_BYTES];
    static uint32_t tokens[64];
    struct sc_store_mark mark = {.token = 70};
    struct sc_store_piece piece = {.id = 3,
                                   .extent = 2,
                                   .first_position = 64,
                                   .chunk_first = 64,
                                   .row_count = 64,
                                   .tokens = tokens,
                                   .mark_count = 1,
                                   .marks = &mark};
    struct sc_store_writer writer = {.bytes = payload, .capacity = sizeof(payload)};
    sc_store_record_encode_piece(&writer, &piece);
    assert_false(plain_agrees(payload, writer.used));
    piece.mark_count = 0;
    writer.used = 0;
    sc_store_record_encode_piece(&writer, &piece);
    assert_true(plain_agrees(payload, writer.used));
    payload[3]++; /* "v" */
    assert_false(plain_agrees(payload, writer.used));
    payload[3]--;
    payload[6]++; /* "t" */
    assert_false(plain_agrees(payload, writer.used));
    payload[6]--;
    piece.skip = 64; /* more than its rows */
    writer.used = 0;
    sc_store_record_encode_piece(&writer, &piece);
    assert_false(plain_agrees(payload, writer.used));
}

/* Its second number was for extents without rows. */
static void an_extent_of_another_kind_is_not_believed(void **state)
{
    (void)state;
    static const uint8_t KEY[] = {0xA4, 'p', 'r', 'o', 'v', 0x97};
    uint8_t payload[512];
    struct sc_store_part parts[SC_LIMIT_LAYERS] = {{.layer_count = 1}};
    const struct sc_store_record_extent extent = {.space = 1,
                                                  .row_count = 1,
                                                  .row_offset = 64,
                                                  .stride = 128,
                                                  .part_count = 1,
                                                  .parts = parts};
    struct sc_store_writer writer = {.bytes = payload, .capacity = sizeof(payload)};
    struct sc_store_record record = {.extent.parts = parts};
    sc_store_record_encode_extent(&writer, 1, &extent);
    assert_true(sc_store_record_peek(payload, writer.used, &record));
    assert_true(sc_store_record_decode(payload, writer.used, &record));
    uint8_t *at = memmem(payload, writer.used, KEY, sizeof(KEY));
    assert_non_null(at);
    at[sizeof(KEY) + 1] = 1;
    assert_false(sc_store_record_decode(payload, writer.used, &record));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_pieces_are_taken_and_say_the_same),
        cmocka_unit_test(plain_never_says_more_than_the_general_way),
        cmocka_unit_test(plain_leaves_other_records_alone),
        cmocka_unit_test(an_extent_of_another_kind_is_not_believed),
    };
    return cmocka_run_group_tests_name("store record", tests, NULL, NULL);
}
