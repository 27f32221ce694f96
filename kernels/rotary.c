/* rotary.h: cos and sin of positions.
 *
 *   angle - n * pi / 2 = ((angle - n * P1) - n * P2) - n * P3      n = nearest, at most 24 bits
 *
 * P1 and P2 have 29 bits each, so n * P1, n * P2 and the first difference are exact. The error of
 * the remainder is below 2^-80 of pi / 2. The series end where a term is below 2^-46. */
#include "kernels/rotary.h"

#define TWO_OVER_PI 0x1.45f306dc9c883p-1
#define P1          0x1.921fb54p+0
#define P2          0x1.10b4611p-30
#define P3          0x1.4c4c6628b80dcp-59

/* Requires |x| <= pi / 4. */
static double sin_near(double x)
{
    double y = x * x, sum = 1.0 / 6227020800;
    sum = sum * y - 1.0 / 39916800;
    sum = sum * y + 1.0 / 362880;
    sum = sum * y - 1.0 / 5040;
    sum = sum * y + 1.0 / 120;
    sum = sum * y - 1.0 / 6;
    return x + x * (y * sum);
}

static double cos_near(double x)
{
    double y = x * x, sum = -1.0 / 87178291200;
    sum = sum * y + 1.0 / 479001600;
    sum = sum * y - 1.0 / 3628800;
    sum = sum * y + 1.0 / 40320;
    sum = sum * y - 1.0 / 720;
    sum = sum * y + 1.0 / 24;
    sum = sum * y - 0.5;
    return 1 + y * sum;
}

void sc_kernels_rope_row(uint64_t position, const double *frequencies, uint64_t turned,
                         float *ret_rope)
{
    for (uint64_t i = 0; i < turned / 2; i++) {
        double angle = (double)position * frequencies[i];
        uint64_t quarter = (uint64_t)(angle * TWO_OVER_PI + 0.5);
        double n = (double)quarter, rest = ((angle - n * P1) - n * P2) - n * P3;
        double across = cos_near(rest), up = sin_near(rest);
        double turned_by[4] = {across, -up, -across, up}; /* cos; sin lags by a quarter turn */
        ret_rope[i] = (float)turned_by[quarter % 4];
        ret_rope[turned / 2 + i] = (float)turned_by[(quarter + 3) % 4];
    }
}
