/* rope: tables of rotary angles for eng_rope (vecmath.h).
 *
 *   angle(position, i) = position x inv_freq(i), i < head_dim / 2
 *
 * Frequencies and angles are float32, as the models were trained (in double they differ by up to
 * 1e-4 at position 1,500). Sine and cosine of that angle are computed in double and rounded once,
 * so that libm's float precision does not matter.
 * Threads: any. Tests: tests/unit/engine/test_golden.c (llama3, both pair orders), test_model.c */
#ifndef CONFORMANCE_ENGINE_ROPE_H
#define CONFORMANCE_ENGINE_ROPE_H

#include <stdint.h>

#include "conformance/engine/config.h"

/* inv_freq [head_dim / 2], with llama3 scaling where the configuration asks for it. */
void eng_rope_frequencies(const struct eng_rotary *rope, uint64_t head_dim, float *inv_freq);

/* cosine, sine [pairs]: of one position's angles. */
void eng_rope_angles(const float *inv_freq, uint64_t pairs, uint64_t position, float *cosine,
                     float *sine);

#endif
