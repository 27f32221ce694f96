/* policy: heat and logarithms in 32.32 bits. */
#include "base/policy.h"

#define STEPS 96u /* quarters; beyond them the table is below 2^-24 */

/* log2(1 + 2^-x) in units of 2^-31, x = i / 4. */
static const uint32_t log2_one_more[STEPS + 1] = {
    2147483648u, 1890662751u, 1656898102u, 1445681252u, 1256197405u, 1087370247u, 937917339u,
    806410430u,  691335320u,  591146895u,  504316308u,  429368707u,  364911162u,  309651375u,
    262408363u,  222116583u,  187825021u,  158692659u,  133981535u,  113048390u,  95335645u,
    80362278u,   67714973u,   57039792u,   48034513u,   40441693u,   34042484u,   28651163u,
    24110347u,   20286834u,   17067999u,   14358701u,   12078627u,   10160022u,   8545753u,
    7187669u,    6045200u,    5084176u,    4275823u,    3595919u,    3024074u,    2543131u,
    2138649u,    1798481u,    1512406u,    1271826u,    1069509u,    899371u,     756295u,
    635978u,     534801u,     449718u,     378171u,     318006u,     267412u,     224867u,
    189091u,     159007u,     133709u,     112436u,     94547u,      79504u,      66855u,
    56218u,      47274u,      39752u,      33428u,      28109u,      23637u,      19876u,
    16714u,      14055u,      11819u,      9938u,       8357u,       7027u,       5909u,
    4969u,       4178u,       3514u,       2955u,       2485u,       2089u,       1757u,
    1477u,       1242u,       1045u,       878u,        739u,        621u,        522u,
    439u,        369u,        311u,        261u,        220u,        185u,
};

uint64_t sc_heat_sum(uint64_t a, uint64_t b)
{
    uint64_t high = a > b ? a : b, apart = high - (a > b ? b : a);
    uint64_t step = apart >> 30, part = apart & ((UINT64_C(1) << 30) - 1);
    if (step >= STEPS)
        return high;
    uint64_t from = log2_one_more[step], to = log2_one_more[step + 1];
    uint64_t sum = high + 2 * from - ((from - to) * part >> 29);
    return sum >= high ? sum : UINT64_MAX;
}

/* Interpolates between powers of two by m + m (1 - m) / 3 (about: 90 / 256), where x = 2^k (1 +
 * m). */
uint64_t sc_log2(uint64_t x)
{
    if (x <= 1)
        return 0;
    uint32_t power = 63u - (uint32_t)__builtin_clzll(x);
    uint64_t mantissa = (x << (63u - power)) << 1 >> 32;
    uint64_t curve = (mantissa * (UINT32_MAX - mantissa) >> 32) * 90 >> 8;
    return ((uint64_t)power << 32) + mantissa + curve;
}
