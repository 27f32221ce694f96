/* averages: the place of each piece's newest record of average importance in the log.
 * Threads: the log lock; replay.
 * Tests: tests/unit/store/test_averages.c, test_checkpoint.c, test_follow.c */
#ifndef SC_STORE_REPLAY_AVERAGES_H
#define SC_STORE_REPLAY_AVERAGES_H

#include "base/alloc.h"

struct sc_store_averages {
    struct sc_store_average_place {
        uint32_t piece; /* 0: free */
        uint32_t bytes; /* of the frame */
        uint64_t offset;
    } * places;          /* [room], open addressing */
    uint64_t room;       /* a power of two, or 0 */
    uint64_t count;      /* <= room / 2 */
    uint64_t all_bytes;  /* of all average records in the log */
    uint64_t last_bytes; /* of the newest ones */
};

/* Reserves places for `more` pieces. Returns false without memory. */
bool sc_store_averages_reserve(struct sc_store_averages *averages, uint64_t more,
                               struct sc_alloc *alloc);
/* Records the piece's newest record; a place was reserved. */
void sc_store_averages_note(struct sc_store_averages *averages, uint64_t piece, uint64_t offset,
                            uint64_t bytes);
/* Returns true if the piece's newest record is at `offset`. */
bool sc_store_averages_is_last(const struct sc_store_averages *averages, uint64_t piece,
                               uint64_t offset);
struct sc_store_shape;
struct sc_store_spaces;
struct sc_store_noted;
struct sc_store_record_average;
/* Returns the namespace of a note (record 7 of no piece); 0: the record is invalid. */
uint64_t sc_store_note_space(const struct sc_store_record_average *record);
/* Returns the namespace's newest note of the record's kind; NULL: an unknown kind. */
struct sc_store_noted *sc_store_noted_of(struct sc_store_shape *shape,
                                         const struct sc_store_record_average *record);
/* Returns true if the note in the payload is the newest of its kind in its namespace. */
bool sc_store_note_is_last(const struct sc_store_spaces *spaces, const uint8_t *payload,
                           uint64_t bytes);
/* Makes the note the newest of its kind; NULL: an unknown kind. */
void sc_store_note_add(struct sc_store_averages *averages, struct sc_store_noted *noted,
                       uint64_t serial, uint64_t bytes);

void sc_store_averages_done(struct sc_store_averages *averages, struct sc_alloc *alloc);

#endif
