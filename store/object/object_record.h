/* object_record: encoding and strict decoding of records of objects (layout: object_record.c).
 * Threads: any.
 * Tests: tests/unit/store/test_object_record.c, tests/fuzz/fuzz_objects.c */
#ifndef SC_STORE_OBJECT_OBJECT_RECORD_H
#define SC_STORE_OBJECT_OBJECT_RECORD_H

#include "store/log/record.h"
#include "store/object/object.h"

enum sc_store_object_record_type { /* records 1 to 10: store/log/record.h; 6, the head, is shared */
                                   SC_STORE_RECORD_DOMAIN = 11,
                                   SC_STORE_RECORD_OBJECTS = 12,
                                   SC_STORE_RECORD_REMOVAL = 13,
                                   SC_STORE_RECORD_CLEAR = 14
};

/* A decoded record of objects. */
struct sc_store_object_batch {
    uint32_t count;
    struct sc_store_object objects[SC_STORE_OBJECT_BATCH]; /* keys: in the payload */
    struct sc_store_object_part parts[SC_STORE_OBJECT_BATCH][SC_STORE_OBJECT_PARTS_MAX];
};

void sc_store_record_encode_domain(struct sc_store_writer *writer, uint32_t id,
                                   const uint8_t *identity, uint32_t bytes);
/* Encodes objects of one domain, count <= SC_STORE_OBJECT_BATCH. Parts have file numbers. */
void sc_store_record_encode_objects(struct sc_store_writer *writer,
                                    const struct sc_store_object *objects, uint32_t count);
void sc_store_record_encode_removal(struct sc_store_writer *writer, const uint64_t *copies,
                                    uint32_t count);
void sc_store_record_encode_clear(struct sc_store_writer *writer, uint32_t domain);
/* Return false if the record is invalid. */
bool sc_store_record_get_domain(const uint8_t *payload, uint64_t bytes,
                                const uint8_t **ret_identity, uint32_t *ret_bytes);
bool sc_store_record_get_objects(const uint8_t *payload, uint64_t bytes,
                                 struct sc_store_object_batch *ret_batch);
bool sc_store_record_get_removal(const uint8_t *payload, uint64_t bytes, const uint8_t **ret_copies,
                                 uint32_t *ret_count);

/* Turns indices of segments into file numbers, as records have them (object_log.c). */
void sc_store_object_parts_number(struct sc_store *store, struct sc_store_object *objects,
                                  uint32_t count);

#endif
