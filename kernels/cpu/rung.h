/* rung: a rung's table of kernels. avx2.c and avx512.c define RUNG, the table's name, and include
 * v8.h or v16.h first.
 * Tests: tests/unit/kernels/ */
#ifndef SC_KERNELS_CPU_RUNG_H
#define SC_KERNELS_CPU_RUNG_H

#include "kernels/cpu/codec_rung.h"
#include "kernels/cpu/order_rung.h"
#include "kernels/cpu/bitplanes_rung.h"
#include "kernels/cpu/bitplanes_score_rung.h"
#include "kernels/cpu/score_rung.h"
#include "kernels/cpu/transpose_rung.h"
#include "kernels/cpu/widen_rung.h"

const struct sc_kernels RUNG = SC_KERNELS_TABLE(rung, LANES, 3 * LANES);

#endif
