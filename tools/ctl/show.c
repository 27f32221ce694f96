/* show: the commands ls, stat and dump.
 *
 * Tables have the facts of --json in fewer words. Token ids are shown only on request.
 * Threads: one. Tests: tests/unit/tools/test_ctl.py */
#include "tools/ctl/ctl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static struct json_object *u64(uint64_t value)
{
    return json_object_new_uint64(value);
}

static void add(struct json_object *object, const char *name, struct json_object *value)
{
    json_object_object_add(object, name, value);
}

static int print_json(struct json_object *object)
{
    printf("%s\n", json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY |
                                                              JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(object);
    return CTL_OK;
}

static struct json_object *store_head(const struct ctl_store *store)
{
    struct json_object *head = json_object_new_object();
    add(head, "path", json_object_new_string(store->path));
    add(head, "store_id", ctl_hex(store->identity.store_id));
    add(head, "format", u64(store->identity.version));
    add(head, "created_ns", u64(store->identity.created_ns));
    return head;
}

/* ---- ls ------------------------------------------------------------------------------------- */

static uint64_t space_bytes(const struct ctl_space *space)
{
    return space->rows * space->layer_count * ctl_row_bytes(space);
}

static struct json_object *space_json(const struct ctl_rank *rank, const struct ctl_space *space)
{
    struct json_object *object = json_object_new_object();
    add(object, "rank", u64(rank->rank));
    add(object, "rank_count", u64(rank->rank_count));
    add(object, "namespace", ctl_hex(space->digest));
    add(object, "family", ctl_hex(space->family));
    add(object, "epoch", u64(space->epoch));
    add(object, "layers", u64(space->layer_count));
    add(object, "row_bytes", u64(ctl_row_bytes(space)));
    add(object, "pieces", u64(space->pieces));
    add(object, "tokens", u64(space->rows));
    add(object, "bytes", u64(space_bytes(space)));
    struct json_object *model = json_tokener_parse(space->descriptor);
    add(object, "model", model != NULL ? model : json_object_new_string(space->descriptor));
    return object;
}

/* Prints a model by what the store knows of it: its revision, or else the digest of its weights;
 * then its shape. A descriptor is the log's: a member of another type reads as 0 or nothing. */
static void ls_model(const struct ctl_space *space)
{
    static const char *const dtypes[] = {"?",        "float32",  "float16", "bfloat16",
                                         "fp8 e4m3", "fp8 e5m2", "int8",    "bytes"};
    struct json_object *model = json_tokener_parse(space->descriptor);
    struct json_object *revision = json_object_object_get(model, "revision");
    const char *weights = json_object_get_string(json_object_object_get(model, "weights"));
    uint64_t dtype = json_object_get_uint64(json_object_object_get(model, "kv_dtype"));
    if (json_object_get_string_len(revision) > 0)
        printf("revision %s, ", json_object_to_json_string_ext(revision, JSON_C_TO_STRING_PLAIN));
    printf("weights %.*s, KV heads %" PRIu64 " x %" PRIu64 ", %s\n",
           weights != NULL ? (int)strspn(weights, "0123456789abcdef") : 1,
           weights != NULL ? weights : "?",
           json_object_get_uint64(json_object_object_get(model, "kv_heads")),
           json_object_get_uint64(json_object_object_get(model, "head_size")),
           dtypes[dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtype : 0]);
    json_object_put(model);
}

static void ls_line(const struct ctl_rank *rank, const struct ctl_space *space)
{
    char digest[33], family[33], bytes[32], of[32];
    ctl_hex_text(space->digest, digest);
    ctl_hex_text(space->family, family);
    (void)snprintf(of, sizeof(of), "%" PRIu32 "/%" PRIu32, rank->rank, rank->rank_count);
    printf("%-7s %.12s %.12s %6" PRIu64 " %7" PRIu32 " %9" PRIu64 " %9" PRIu64 " %10" PRIu64
           " %11s  ",
           of, digest, family, space->epoch, space->layer_count, ctl_row_bytes(space),
           space->pieces, space->rows, ctl_bytes_text(space_bytes(space), bytes));
    ls_model(space);
}

int ctl_ls(const struct ctl_options *options)
{
    struct ctl_store store;
    if (!ctl_store_open(options->path, options->rank, &store))
        return CTL_FAILED;
    struct json_object *list = json_object_new_array();
    int code = CTL_OK;
    if (!options->json)
        printf("%-7s %-12s %-12s %6s %7s %9s %9s %10s %11s  %s\n", "rank", "namespace", "family",
               "epoch", "layers", "row bytes", "pieces", "tokens", "bytes", "model");
    for (uint64_t i = 0; i < store.rank_count; i++) {
        struct ctl_rank *rank = &store.ranks[i];
        if (!ctl_rank_load(&store, rank))
            code = CTL_FAILED;
        for (uint64_t j = 0; j < rank->space_count; j++) {
            json_object_array_add(list, space_json(rank, &rank->spaces[j]));
            if (!options->json)
                ls_line(rank, &rank->spaces[j]);
        }
    }
    struct json_object *head = store_head(&store);
    add(head, "namespaces", list);
    if (options->json)
        print_json(head);
    else
        json_object_put(head);
    ctl_store_close(&store);
    return code;
}

/* ---- stat ----------------------------------------------------------------------------------- */

struct ctl_sum ctl_sum_of(const struct ctl_rank *rank)
{
    struct ctl_sum sum = {0};
    for (uint64_t i = 0; i < rank->piece_count; i++) {
        sum.live_pieces += rank->pieces[i].state == CTL_LIVE;
        sum.dropped_pieces += rank->pieces[i].state == CTL_DROPPED;
        sum.void_pieces += rank->pieces[i].state == CTL_VOID;
    }
    for (uint64_t i = 0; i < rank->space_count; i++) {
        sum.live_rows += rank->spaces[i].rows;
        sum.probe_rows += rank->spaces[i].probe_rows;
        sum.derived_rows += rank->spaces[i].derived_rows;
        sum.probe_bytes += rank->spaces[i].probe_bytes;
        sum.code_pieces += rank->spaces[i].code_pieces;
        sum.code_rows += rank->spaces[i].code_rows;
        sum.quantised_bytes += rank->spaces[i].quantised_bytes;
        sum.ordered_rows += rank->spaces[i].ordered_rows;
        sum.live_bytes += space_bytes(&rank->spaces[i]);
    }
    for (uint64_t i = 0; i < rank->extent_count; i++)
        sum.live_extents += rank->extents[i].live_rows > 0;
    return sum;
}

/* Live pieces by the bits of their codes, K's and V's. */
struct bits {
    uint64_t pieces[9][9];
};

static struct bits bits_of(const struct ctl_rank *rank)
{
    struct bits bits = {0};
    for (uint64_t i = 0; i < rank->piece_count; i++) {
        const struct ctl_extent *codes = rank->extents[rank->pieces[i].extent].codes;
        if (codes != NULL && rank->pieces[i].state == CTL_LIVE)
            bits.pieces[codes->codec_shape.bits_k][codes->codec_shape.bits_v]++;
    }
    return bits;
}

static struct json_object *bits_json(const struct ctl_rank *rank)
{
    struct json_object *list = json_object_new_array();
    struct bits bits = bits_of(rank);
    for (uint32_t k = 0; k <= 8; k++)
        for (uint32_t v = 0; v <= 8; v++) {
            if (bits.pieces[k][v] == 0)
                continue;
            struct json_object *object = json_object_new_object();
            add(object, "bits_k", u64(k));
            add(object, "bits_v", u64(v));
            add(object, "pieces", u64(bits.pieces[k][v]));
            json_object_array_add(list, object);
        }
    return list;
}

static void bits_line(const struct ctl_rank *rank, const struct ctl_sum *sum)
{
    char bytes[32];
    struct bits bits = bits_of(rank);
    printf("  codes     %s of %" PRIu64 " tokens, %" PRIu64 " pieces",
           ctl_bytes_text(sum->quantised_bytes, bytes), sum->code_rows, sum->code_pieces);
    for (uint32_t k = 0; k <= 8; k++)
        for (uint32_t v = 0; v <= 8; v++)
            if (bits.pieces[k][v] > 0)
                printf("; %" PRIu64 " of %" PRIu32 " bits K, %" PRIu32 " V", bits.pieces[k][v], k,
                       v);
    printf("\n");
    if (sum->ordered_rows > 0)
        printf("  order     %" PRIu64 " tokens stand by what they are worth\n", sum->ordered_rows);
}

static struct json_object *members_json(const struct ctl_rank *rank)
{
    struct json_object *members = json_object_new_array();
    for (uint32_t i = 0; i < rank->member_count; i++)
        (void)json_object_array_add(members, json_object_new_string(rank->members[i]));
    return members;
}

static void members_lines(const struct ctl_rank *rank)
{
    for (uint32_t i = 0; i < rank->member_count; i++)
        printf("  member    %s\n", rank->members[i]);
}

static struct json_object *rank_json(const struct ctl_rank *rank, const struct ctl_sum *sum)
{
    struct json_object *object = json_object_new_object();
    add(object, "rank", u64(rank->rank));
    add(object, "rank_count", u64(rank->rank_count));
    add(object, "segments", u64(rank->segment_count));
    add(object, "segment_bytes", u64(rank->segment_bytes));
    add(object, "segments_claimed", u64(rank->claimed_count));
    add(object, "log_bytes", u64(rank->log_bytes));
    add(object, "log_bytes_believed", u64(rank->log_bytes_believed));
    add(object, "records", u64(rank->record_count));
    add(object, "records_not_believed", u64(rank->lie_count));
    add(object, "records_damaged", u64(rank->damaged_count));
    add(object, "log_lost_ranges", u64(rank->gap_count));
    add(object, "log_lost_bytes", u64(rank->gap_bytes));
    add(object, "checkpoint", u64(rank->checkpoint));
    add(object, "namespaces", u64(rank->space_count));
    add(object, "live_extents", u64(sum->live_extents));
    add(object, "live_pieces", u64(sum->live_pieces));
    add(object, "live_tokens", u64(sum->live_rows));
    add(object, "live_bytes", u64(sum->live_bytes));
    add(object, "tokens_with_probe_keys", u64(sum->probe_rows));
    add(object, "tokens_with_built_keys", u64(sum->derived_rows));
    add(object, "probe_key_bytes", u64(sum->probe_bytes));
    add(object, "pieces_with_codes", u64(sum->code_pieces));
    add(object, "tokens_with_codes", u64(sum->code_rows));
    add(object, "quantised_bytes", u64(sum->quantised_bytes));
    add(object, "code_bits", bits_json(rank));
    add(object, "reordered_tokens", u64(sum->ordered_rows));
    add(object, "average_records", u64(rank->average_count));
    add(object, "dropped_pieces", u64(sum->dropped_pieces));
    add(object, "void_pieces", u64(sum->void_pieces));
    add(object, "writer", rank->holder[0] != '\0' ? json_object_new_string(rank->holder) : NULL);
    add(object, "is_followed", json_object_new_boolean(rank->is_followed));
    add(object, "members", members_json(rank));
    return object;
}

static void rank_lines(const struct ctl_rank *rank, const struct ctl_sum *sum)
{
    char live[32], held[32], log[32], selector[32], lost[32];
    printf("rank %" PRIu32 " of %" PRIu32 "\n", rank->rank, rank->rank_count);
    printf("  rows      %s live in %s of %" PRIu64 " segments; %" PRIu64 " tokens, %" PRIu64
           " pieces, %" PRIu64 " extents\n",
           ctl_bytes_text(sum->live_bytes, live), ctl_bytes_text(rank->segment_bytes, held),
           rank->segment_count, sum->live_rows, sum->live_pieces, sum->live_extents);
    printf("  selector keys  %s probe keys of %" PRIu64 " tokens, those of %" PRIu64
           " built later; averages: %" PRIu64 " records\n",
           ctl_bytes_text(sum->probe_bytes, selector), sum->probe_rows, sum->derived_rows,
           rank->average_count);
    bits_line(rank, sum);
    printf("  log       %s, %" PRIu64 " records since checkpoint %" PRIu64 "; %" PRIu64
           " pieces dropped, %" PRIu64 " void by a reset, %" PRIu64 " records not believed\n",
           ctl_bytes_text(rank->log_bytes, log), rank->record_count, rank->checkpoint,
           sum->dropped_pieces, sum->void_pieces, rank->lie_count);
    if (rank->damaged_count > 0 || rank->gap_count > 0)
        printf("  damage    %" PRIu64 " records were restored; %s of the log, in %" PRIu64
               " ranges, are lost\n",
               rank->damaged_count, ctl_bytes_text(rank->gap_bytes, lost), rank->gap_count);
    printf("  writer    %s; %" PRIu64 " segments are claimed; readers: %s\n",
           rank->holder[0] != '\0' ? rank->holder : "none", rank->claimed_count,
           rank->is_followed ? "yes" : "none");
    members_lines(rank);
}

/* Ranks that hold objects by key: as JSON, and as lines unless --json. Returns an exit code. */
static int stat_objects(const struct ctl_options *options, struct json_object *head)
{
    struct ctl_store store;
    struct json_object *list = json_object_new_array();
    int code = CTL_OK;
    add(head, "objects", list);
    if (!ctl_objects_open(options->path, -1, &store))
        return CTL_FAILED;
    for (uint64_t i = 0; i < store.rank_count; i++) {
        struct ctl_rank *rank = &store.ranks[i];
        struct ctl_object_sum sum;
        char bytes[32], segments[32], log[32];
        if (options->rank >= 0 && rank->rank != (uint64_t)options->rank)
            continue;
        if (!ctl_objects_sum(&store, rank, &sum)) {
            code = CTL_FAILED;
            continue;
        }
        struct json_object *object = json_object_new_object();
        add(object, "rank", u64(rank->rank));
        add(object, "rank_count", u64(rank->rank_count));
        add(object, "domains", u64(sum.domains));
        add(object, "objects", u64(sum.objects));
        add(object, "bytes", u64(sum.bytes));
        add(object, "page_bytes", u64(sum.page_bytes));
        add(object, "segment_bytes", u64(rank->segment_bytes));
        add(object, "log_bytes", u64(rank->log_bytes));
        add(object, "writer", json_object_new_string(rank->holder));
        add(object, "members", members_json(rank));
        json_object_array_add(list, object);
        if (options->json)
            continue;
        printf("rank %" PRIu32 " of %" PRIu32 ": %" PRIu64 " objects by key in %" PRIu64
               " domains, %s; segments %s, log %s; writer: %s\n",
               rank->rank, rank->rank_count, sum.objects, sum.domains,
               ctl_bytes_text(sum.bytes, bytes), ctl_bytes_text(rank->segment_bytes, segments),
               ctl_bytes_text(rank->log_bytes, log),
               rank->holder[0] != '\0' ? rank->holder : "none");
        members_lines(rank);
    }
    ctl_store_close(&store);
    return code;
}

int ctl_stat(const struct ctl_options *options)
{
    struct ctl_store store;
    if (!ctl_store_open(options->path, options->rank, &store))
        return CTL_FAILED;
    if (options->prometheus) {
        int printed = ctl_prometheus(&store);
        ctl_store_close(&store);
        return printed;
    }
    struct json_object *head = store_head(&store), *list = json_object_new_array();
    int code = CTL_OK;
    if (!options->json) {
        char id[33];
        ctl_hex_text(store.identity.store_id, id);
        printf("store %s, format %" PRIu64 ", %" PRIu64 " ranks\n", id, store.identity.version,
               store.rank_count);
    }
    for (uint64_t i = 0; i < store.rank_count; i++) {
        if (!ctl_rank_load(&store, &store.ranks[i])) {
            code = CTL_FAILED;
            continue;
        }
        struct ctl_sum sum = ctl_sum_of(&store.ranks[i]);
        json_object_array_add(list, rank_json(&store.ranks[i], &sum));
        if (!options->json)
            rank_lines(&store.ranks[i], &sum);
    }
    add(head, "ranks", list);
    if (stat_objects(options, head) != CTL_OK)
        code = CTL_FAILED;
    if (options->json)
        print_json(head);
    else
        json_object_put(head);
    ctl_store_close(&store);
    return code;
}

/* ---- dump ----------------------------------------------------------------------------------- */

struct dump {
    const struct ctl_rank *rank;
    bool tokens;
};

static void dump_space(struct json_object *line, const struct sc_store_record *record)
{
    const struct sc_store_namespace *space = &record->space.space;
    add(line, "digest", ctl_hex(space->digest));
    add(line, "family", ctl_hex(space->family));
    add(line, "layers", u64(space->layer_count));
    add(line, "layout",
        json_object_new_string(space->layout == SC_STORE_SPLIT ? "split" : "paired"));
    add(line, "k_row_bytes", u64(space->k_row_bytes));
    add(line, "descriptor",
        json_object_new_string_len(space->descriptor, (int)record->space.descriptor_bytes));
}

static struct json_object *dump_parts(const struct sc_store_record_extent *extent)
{
    struct json_object *parts = json_object_new_array();
    for (uint32_t i = 0; i < extent->part_count; i++) {
        struct json_object *part = json_object_new_object();
        add(part, "segment", u64(extent->parts[i].segment));
        add(part, "offset", u64(extent->parts[i].offset));
        add(part, "layer_first", u64(extent->parts[i].layer_first));
        add(part, "layers", u64(extent->parts[i].layer_count));
        json_object_array_add(parts, part);
    }
    return parts;
}

static void dump_extent(struct json_object *line, const struct sc_store_record *record)
{
    const struct sc_store_record_extent *extent = &record->extent;
    add(line, "namespace", u64(extent->space));
    add(line, "copy", u64(extent->copy));
    add(line, "rows", u64(extent->row_count));
    add(line, "row_offset", u64(extent->row_offset));
    add(line, "stride", u64(extent->stride));
    add(line, "tag_offset", u64(extent->tag_offset));
    add(line, "probe_row_bytes", u64(extent->probe_row_bytes));
    if (extent->probe_row_bytes > 0) {
        add(line, "probe_offset", u64(extent->probe_offset));
        add(line, "probe_tag_offset", u64(extent->probe_tag_offset));
    }
    add(line, "computed_on", u64(extent->provenance.computed_on));
    add(line, "parts", dump_parts(extent));
}

static void dump_piece(struct json_object *line, const struct sc_store_record *record, bool tokens)
{
    const struct sc_store_piece *piece = &record->piece;
    add(line, "extent", u64(piece->extent));
    add(line, "extent_row", u64(piece->extent_row));
    add(line, "rows", u64(piece->row_count));
    add(line, "skip", u64(piece->skip));
    add(line, "first_position", u64(piece->first_position));
    add(line, "chunk_first", u64(piece->chunk_first));
    add(line, "root", ctl_hex_root(piece->root));
    add(line, "chunk_hash", ctl_hex(piece->chunk_hash));
    add(line, "hash", ctl_hex(piece->hash));
    add(line, "extra_keys", u64(piece->mark_count));
    if (!tokens)
        return;
    struct json_object *ids = json_object_new_array();
    uint64_t count = piece->first_position + piece->row_count - piece->chunk_first;
    for (uint64_t i = 0; i < count; i++)
        json_object_array_add(ids, u64(piece->tokens[i]));
    add(line, "tokens", ids);
}

static void dump_section(struct json_object *line, const struct sc_store_record *record)
{
    const struct sc_store_record_extent *derived_section = &record->extent;
    const struct sc_store_codec_shape *codes = &derived_section->codec_shape;
    bool is_quant = codes->bits_k != 0;
    add(line, "kind",
        u64(derived_section->is_replaced  ? SC_STORE_SECTION_REPLACED
            : derived_section->is_order   ? SC_STORE_SECTION_PERMUTATION
            : derived_section->is_retired ? SC_STORE_SECTION_RETIRED
            : is_quant                    ? SC_STORE_SECTION_QUANT
                                          : SC_STORE_SECTION_PROBES));
    add(line, "copy", u64(derived_section->copy));
    if (derived_section->is_order) {
        add(line, "tag_offset", u64(derived_section->tag_offset));
        add(line, "row_offset", u64(derived_section->row_offset));
        add(line, "at_ns", u64(derived_section->permuted_at_ns));
    }
    if (is_quant) {
        add(line, "bits_k", u64(codes->bits_k));
        add(line, "bits_v", u64(codes->bits_v));
        add(line, "form", u64(codes->form));
        add(line, "scale_bytes", u64(codes->scale_bytes));
        add(line, "k_code_bytes", u64(codes->k_row_bytes));
        add(line, "v_code_bytes", u64(codes->v_row_bytes));
    } else if (!derived_section->is_retired) {
        add(line, "probe_row_bytes", u64(derived_section->probe_row_bytes));
        add(line, "probe_offset", u64(derived_section->probe_offset));
        add(line, "probe_tag_offset", u64(derived_section->probe_tag_offset));
    }
    add(line, "stride", u64(derived_section->stride));
    add(line, "parts", dump_parts(derived_section));
}

static void dump_record(const struct sc_store_record *record, void *user)
{
    const struct dump *dump = user;
    static const char *const names[] = {
        "?",   "namespace", "extent",  "piece",     "drop",        "epoch",
        "log", "average",   "section", "rows gone", "permutation", "?",
        "?",   "?",         "?",       "segment",   "limits",      "seal"};
    struct json_object *line = json_object_new_object();
    add(line, "rank", u64(dump->rank->rank));
    add(line, "record", u64(dump->rank->record_count + 1));
    add(line, "type", json_object_new_string(names[record->type]));
    add(line, "id", u64(record->id));
    switch (record->type) {
    case SC_STORE_RECORD_NAMESPACE:
        dump_space(line, record);
        break;
    case SC_STORE_RECORD_EXTENT:
        dump_extent(line, record);
        break;
    case SC_STORE_RECORD_PIECE:
        dump_piece(line, record, dump->tokens);
        break;
    case SC_STORE_RECORD_DROP:
        add(line, "at_ns", u64(record->drop.at_ns));
        break;
    case SC_STORE_RECORD_EPOCH:
        add(line, "epoch", u64(record->epoch.epoch));
        break;
    case SC_STORE_RECORD_AVERAGE:
        add(line, "requests", u64(record->average.requests));
        add(line, "codes", u64(record->average.quant_bytes / 2));
        break;
    case SC_STORE_RECORD_SECTION:
        dump_section(line, record);
        break;
    case SC_STORE_RECORD_PERMUTATION:
        add(line, "copy", u64(record->permutation.copy));
        add(line, "layer_first", u64(record->permutation.layer_first));
        add(line, "slots", u64(record->permutation.slots_bytes / 2));
        break;
    case SC_STORE_RECORD_SEGMENT:
        add(line, "bytes", u64(record->segment_bytes));
        break;
    case SC_STORE_RECORD_LIMITS:
        add(line, "disk_bytes", u64(record->disk_bytes));
        break;
    case SC_STORE_RECORD_SEAL:
        add(line, "checkpoint", u64(record->seal.head.number));
        add(line, "place", u64(record->seal.place));
        add(line, "log_bytes", u64(record->seal.bytes));
        break;
    default:
        add(line, "checkpoint", u64(record->head.number));
        add(line, "numbering", u64(record->head.numbering));
        break;
    }
    printf("%s\n", json_object_to_json_string_ext(line, JSON_C_TO_STRING_PLAIN |
                                                            JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(line);
}

int ctl_dump(const struct ctl_options *options)
{
    struct ctl_store store;
    if (!ctl_store_open(options->path, options->rank, &store))
        return CTL_FAILED;
    int code = CTL_OK;
    for (uint64_t i = 0; i < store.rank_count; i++) {
        struct dump dump = {&store.ranks[i], options->tokens};
        if (!ctl_log_walk(&store, &store.ranks[i], dump_record, &dump))
            code = CTL_FAILED;
        if (store.ranks[i].log_bytes_believed < store.ranks[i].log_bytes)
            fprintf(stderr, "spec-ctl: %s/log: believed up to byte %" PRIu64 " of %" PRIu64 "%s\n",
                    store.ranks[i].path, store.ranks[i].log_bytes_believed,
                    store.ranks[i].log_bytes,
                    store.ranks[i].holder[0] != '\0' ? " (its writer may be writing it)" : "");
    }
    ctl_store_close(&store);
    return code;
}
