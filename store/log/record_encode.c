/* record_encode: encoding of records: one msgpack map each, into the caller's buffer.
 *
 *   [v][t][id] and the type's keys, in the order that the decoder finds without a search
 *
 * Invariants, Threads: store/log/record.h.
 * Tests: tests/unit/store/test_record.c, test_log.c */
#include "store/log/record_format.h"
#include "store/rows/row_permutation.h"

#include <msgpack.h>

static void pack_key(msgpack_packer *packer, const char *key)
{
    msgpack_pack_str_with_body(packer, key, strlen(key));
}

static void pack_uint(msgpack_packer *packer, const char *key, uint64_t value)
{
    pack_key(packer, key);
    msgpack_pack_uint64(packer, value);
}

static void pack_bin(msgpack_packer *packer, const char *key, const void *bytes, uint64_t count)
{
    pack_key(packer, key);
    msgpack_pack_bin_with_body(packer, bytes, count);
}

static msgpack_packer pack_begin(struct sc_store_writer *writer, uint64_t keys, uint64_t type,
                                 uint64_t id)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, sc_store_writer_put);
    msgpack_pack_map(&packer, keys + 3);
    pack_uint(&packer, "v", SC_STORE_RECORD_VERSION);
    pack_uint(&packer, "t", type);
    pack_uint(&packer, "id", id);
    return packer;
}

void sc_store_record_encode_space(struct sc_store_writer *writer, uint64_t id,
                                  const struct sc_store_namespace *space)
{
    msgpack_packer packer = pack_begin(writer, 6, SC_STORE_RECORD_NAMESPACE, id);
    pack_bin(&packer, "digest", space->digest, SC_STORE_HASH_BYTES);
    pack_bin(&packer, "family", space->family, SC_STORE_HASH_BYTES);
    pack_uint(&packer, "layers", space->layer_count);
    pack_uint(&packer, "layout", space->layout);
    pack_uint(&packer, "krow", space->k_row_bytes);
    pack_key(&packer, "text");
    msgpack_pack_str_with_body(&packer, space->descriptor, strlen(space->descriptor));
}

static void pack_provenance(msgpack_packer *packer, const struct sc_store_provenance *prov)
{
    const uint32_t values[7] = {prov->computed_on, 0 /* as read: record.c */, prov->bits_k,
                                prov->bits_v,      prov->exact_ppm,           prov->retain_ppm,
                                prov->metric};
    pack_key(packer, "prov");
    msgpack_pack_array(packer, 7);
    for (uint32_t i = 0; i < 7; i++)
        msgpack_pack_uint32(packer, values[i]);
}

static void pack_parts(msgpack_packer *packer, const struct sc_store_part *parts, uint32_t count)
{
    pack_key(packer, "parts");
    msgpack_pack_array(packer, count);
    for (uint32_t i = 0; i < count; i++) {
        msgpack_pack_array(packer, 4);
        msgpack_pack_uint32(packer, parts[i].segment);
        msgpack_pack_uint64(packer, parts[i].offset);
        msgpack_pack_uint32(packer, parts[i].layer_first);
        msgpack_pack_uint32(packer, parts[i].layer_count);
    }
}

void sc_store_record_encode_extent(struct sc_store_writer *writer, uint64_t id,
                                   const struct sc_store_record_extent *extent)
{
    bool has_probes = extent->probe_row_bytes > 0;
    bool has_salt = extent->salt.state != SC_STORE_SALT_UNKNOWN;
    uint32_t keys = (has_probes ? 11 : 7) + (extent->leaves_ids ? 1 : 0) + (has_salt ? 1 : 0);
    msgpack_packer packer = pack_begin(writer, keys, SC_STORE_RECORD_EXTENT, id);
    pack_uint(&packer, "ns", extent->space);
    pack_uint(&packer, "copy", extent->copy);
    pack_uint(&packer, "rows", extent->row_count);
    pack_uint(&packer, "off", extent->row_offset);
    pack_uint(&packer, "stride", extent->stride);
    if (has_probes) {
        pack_uint(&packer, "prow", extent->probe_row_bytes);
        pack_uint(&packer, "probe", extent->probe_offset);
        pack_uint(&packer, "ptags", extent->probe_tag_offset);
        pack_uint(&packer, "tags", extent->tag_offset);
    }
    if (extent->leaves_ids)
        pack_uint(&packer, "gap", 1);
    if (has_salt)
        pack_bin(&packer, "salt", extent->salt.digest,
                 extent->salt.state == SC_STORE_SALT_KNOWN ? SC_STORE_HASH_BYTES : 0);
    pack_provenance(&packer, &extent->provenance);
    pack_parts(&packer, extent->parts, extent->part_count);
}

void sc_store_record_encode_section(struct sc_store_writer *writer, uint64_t extent_id,
                                    const struct sc_store_record_extent *derived)
{
    const struct sc_store_codec_shape *codes = &derived->codec_shape;
    bool has_quant = codes->bits_k != 0, has_probes = derived->probe_row_bytes > 0;
    msgpack_packer packer = pack_begin(writer,
                                       derived->is_order ? (has_probes ? 10 : 7)
                                       : has_quant       ? 10
                                                         : 7,
                                       SC_STORE_RECORD_SECTION, extent_id);
    pack_uint(&packer, "kind",
              derived->is_replaced ? SC_STORE_SECTION_REPLACED
              : derived->is_order  ? SC_STORE_SECTION_PERMUTATION
              : has_quant          ? SC_STORE_SECTION_QUANT
                                   : SC_STORE_SECTION_PROBES);
    pack_uint(&packer, "copy", derived->copy);
    if (derived->is_order) {
        pack_uint(&packer, "tags", derived->tag_offset);
        pack_uint(&packer, "off", derived->row_offset);
        pack_uint(&packer, "at", derived->permuted_at_ns);
    }
    if (has_quant) {
        pack_uint(&packer, "bitsk", codes->bits_k);
        pack_uint(&packer, "bitsv", codes->bits_v);
        pack_uint(&packer, "group", codes->form);
        pack_uint(&packer, "scale", codes->scale_bytes);
        pack_uint(&packer, "kcode", codes->k_row_bytes);
        pack_uint(&packer, "vcode", codes->v_row_bytes);
    } else if (has_probes) {
        pack_uint(&packer, "prow", derived->probe_row_bytes);
        pack_uint(&packer, "probe", derived->probe_offset);
        pack_uint(&packer, "ptags", derived->probe_tag_offset);
    }
    pack_uint(&packer, "stride", derived->stride);
    pack_parts(&packer, derived->parts, derived->part_count);
}

static void pack_tokens(msgpack_packer *packer, const uint32_t *tokens, uint64_t count)
{
    pack_key(packer, "tokens");
    msgpack_pack_bin(packer, count * 4);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t le[4];
        sc_store_le_put(le, tokens[i], 4);
        msgpack_pack_bin_body(packer, le, 4);
    }
}

static void pack_marks(msgpack_packer *packer, const struct sc_store_mark *marks, uint64_t count)
{
    pack_key(packer, "marks");
    msgpack_pack_bin(packer, count * SC_STORE_MARK_BYTES);
    for (uint64_t i = 0; i < count; i++) {
        uint8_t le[SC_STORE_MARK_BYTES];
        sc_store_le_put(le, marks[i].token, 8);
        memcpy(le + 8, marks[i].digest, SC_STORE_SHA256_BYTES);
        msgpack_pack_bin_body(packer, le, SC_STORE_MARK_BYTES);
    }
}

void sc_store_record_encode_piece(struct sc_store_writer *writer,
                                  const struct sc_store_piece *piece)
{
    uint64_t keys = piece->mark_count > 0 ? 11 : 10;
    msgpack_packer packer = pack_begin(writer, keys, SC_STORE_RECORD_PIECE, piece->id);
    pack_uint(&packer, "ext", piece->extent);
    pack_uint(&packer, "row", piece->extent_row);
    pack_uint(&packer, "rows", piece->row_count);
    pack_uint(&packer, "skip", piece->skip);
    pack_uint(&packer, "pos", piece->first_position);
    pack_uint(&packer, "chunk", piece->chunk_first);
    pack_bin(&packer, "root", piece->root, SC_STORE_SHA256_BYTES);
    pack_bin(&packer, "chash", piece->chunk_hash, SC_STORE_HASH_BYTES);
    pack_bin(&packer, "hash", piece->hash, SC_STORE_HASH_BYTES);
    pack_tokens(&packer, piece->tokens, sc_store_piece_token_count(piece));
    if (piece->mark_count > 0)
        pack_marks(&packer, piece->marks, piece->mark_count);
}

void sc_store_record_encode_drop(struct sc_store_writer *writer, uint64_t piece, uint64_t at_ns)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_DROP, piece);
    pack_uint(&packer, "at", at_ns);
}

void sc_store_record_encode_permutation(struct sc_store_writer *writer, uint64_t extent,
                                        uint64_t copy, uint32_t layer_first, const uint16_t *slots,
                                        uint64_t row_count, uint32_t layer_count)
{
    msgpack_packer packer = pack_begin(writer, 3, SC_STORE_RECORD_PERMUTATION, extent);
    pack_uint(&packer, "copy", copy);
    pack_uint(&packer, "layer", layer_first);
    pack_key(&packer, "slots");
    msgpack_pack_bin(&packer, layer_count * row_count * 2);
    for (uint64_t i = 0; i < layer_count * row_count; i++) {
        uint8_t le[2];
        sc_store_le_put(
            le,
            slots[(layer_first + i / row_count) * sc_store_permutation_words(row_count) * 4 +
                  i % row_count],
            2);
        msgpack_pack_bin_body(&packer, le, 2);
    }
}

void sc_store_record_encode_epoch(struct sc_store_writer *writer, uint64_t space, uint64_t epoch,
                                  uint64_t at_ns)
{
    msgpack_packer packer = pack_begin(writer, 2, SC_STORE_RECORD_EPOCH, space);
    pack_uint(&packer, "epoch", epoch);
    pack_uint(&packer, "at", at_ns);
}

void sc_store_record_encode_head(struct sc_store_writer *writer,
                                 const struct sc_store_record_head *head)
{
    uint32_t more = head->space_next > 0 ? 1 : 0;
    msgpack_packer packer = pack_begin(writer, 4 + more, SC_STORE_RECORD_HEAD, 0);
    pack_uint(&packer, "n", head->number);
    pack_uint(&packer, "numbering", head->numbering);
    pack_uint(&packer, "piece", head->piece_next);
    pack_uint(&packer, "extent", head->extent_next);
    if (more > 0)
        pack_uint(&packer, "space", head->space_next);
}

void sc_store_record_encode_segment(struct sc_store_writer *writer, uint32_t number, uint64_t bytes)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_SEGMENT, number);
    pack_uint(&packer, "bytes", bytes);
}

void sc_store_record_encode_limits(struct sc_store_writer *writer, uint64_t disk_bytes)
{
    msgpack_packer packer = pack_begin(writer, 1, SC_STORE_RECORD_LIMITS, 0);
    pack_uint(&packer, "disk", disk_bytes);
}

void sc_store_record_encode_seal(struct sc_store_writer *writer,
                                 const struct sc_store_record_seal *seal)
{
    msgpack_packer packer = pack_begin(writer, 12, SC_STORE_RECORD_SEAL, 0);
    pack_uint(&packer, "place", seal->place);
    pack_uint(&packer, "first", seal->first);
    pack_uint(&packer, "bytes", seal->bytes);
    pack_uint(&packer, "seq", seal->sequence);
    pack_uint(&packer, "chain", seal->chain);
    pack_uint(&packer, "resets", seal->resets);
    pack_uint(&packer, "pieces", seal->pieces);
    pack_uint(&packer, "n", seal->head.number);
    pack_uint(&packer, "numbering", seal->head.numbering);
    pack_uint(&packer, "piece", seal->head.piece_next);
    pack_uint(&packer, "extent", seal->head.extent_next);
    pack_uint(&packer, "space", seal->head.space_next);
}

void sc_store_record_encode_average(struct sc_store_writer *writer, uint64_t piece,
                                    uint64_t requests, const uint16_t *codes, uint64_t code_count)
{
    msgpack_packer packer = pack_begin(writer, 2, SC_STORE_RECORD_AVERAGE, piece);
    pack_uint(&packer, "n", requests);
    pack_key(&packer, "codes");
    msgpack_pack_bin(&packer, code_count * 2);
    for (uint64_t i = 0; i < code_count; i++) {
        uint8_t le[2];
        sc_store_le_put(le, codes[i], 2);
        msgpack_pack_bin_body(&packer, le, 2);
    }
}

void sc_store_record_encode_identity(struct sc_store_writer *writer,
                                     const struct sc_store_identity *identity)
{
    msgpack_packer packer;
    msgpack_packer_init(&packer, writer, sc_store_writer_put);
    msgpack_pack_map(&packer, 5);
    pack_key(&packer, "magic");
    msgpack_pack_str_with_body(&packer, SC_STORE_IDENTITY_MAGIC, strlen(SC_STORE_IDENTITY_MAGIC));
    pack_uint(&packer, "version", identity->version);
    pack_bin(&packer, "store_id", identity->store_id, sizeof(identity->store_id));
    pack_uint(&packer, "created_ns", identity->created_ns);
    pack_bin(&packer, "secret", identity->secret, sizeof(identity->secret));
}
