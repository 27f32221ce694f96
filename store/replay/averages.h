/* Where the newest record of average importance of each piece lies in the log (averages.c).
 *
 * Threads: the log lock; replay.
 * Tests: tests/unit/store/test_averages.c */
#ifndef SC_STORE_REPLAY_AVERAGES_H
#define SC_STORE_REPLAY_AVERAGES_H

#include "base/alloc.h"

/* Where the newest average record of each piece lies in the log. Log lock; replay. */
struct sc_store_averages {
    struct sc_store_average_place {
        uint32_t piece; /* 0: nothing here */
        uint32_t bytes; /* of the frame */
        uint64_t offset;
    } * places;          /* [room], open addressing */
    uint64_t room;       /* a power of two, or 0 */
    uint64_t count;      /* <= room / 2 */
    uint64_t all_bytes;  /* of average records in the log */
    uint64_t last_bytes; /* of them, those that places tell of */
};

/* Makes room for so many pieces more. false: no memory. */
bool sc_store_averages_reserve(struct sc_store_averages *averages, uint64_t more,
                               struct sc_alloc *alloc);
/* A record of the piece is in the log; there was room. */
void sc_store_averages_note(struct sc_store_averages *averages, uint64_t piece, uint64_t offset,
                            uint64_t bytes);
/* Whether the piece's newest record lies there. */
bool sc_store_averages_is_last(const struct sc_store_averages *averages, uint64_t piece,
                               uint64_t offset);
struct sc_store_shape;
struct sc_store_spaces;
struct sc_store_noted;
struct sc_store_record_average;
/* Record 7 of no piece: the namespace that it is of. 0: of none, it lies. */
uint64_t sc_store_note_space(const struct sc_store_record_average *record);
/* Where the namespace has the newest of the record's kind. NULL: the kind is another version's. */
struct sc_store_noted *sc_store_noted_of(struct sc_store_shape *shape,
                                         const struct sc_store_record_average *record);
/* Such a record's payload: whether it is the newest of its kind in its namespace. */
bool sc_store_note_is_last(const struct sc_store_spaces *spaces, const uint8_t *payload,
                           uint64_t bytes);
/* It is the newest of its kind from now on; NULL: it is of none that is known. */
void sc_store_note_add(struct sc_store_averages *averages, struct sc_store_noted *noted,
                       uint64_t serial, uint64_t bytes);

void sc_store_averages_done(struct sc_store_averages *averages, struct sc_alloc *alloc);

#endif
