/* rope: rotary positions. See rope.h. */
#include "conformance/engine/rope.h"

#include <math.h>

/* transformers' _compute_llama3_parameters, step by step in float32. */
static float rope_scale_llama3(const struct eng_rotary *rope, float inv_freq)
{
    float positions = (float)rope->original_positions;
    float low = (float)rope->low_freq_factor;
    float high = (float)rope->high_freq_factor;
    float factor = (float)rope->factor;
    float wavelength = (float)(2.0 * M_PI) / inv_freq;
    if (wavelength > (float)((double)rope->original_positions / rope->low_freq_factor))
        return inv_freq / factor;
    if (wavelength < (float)((double)rope->original_positions / rope->high_freq_factor))
        return inv_freq;
    float smooth = (positions / wavelength - low) / (high - low);
    return (1.0f - smooth) * inv_freq / factor + smooth * inv_freq;
}

void eng_rope_frequencies(const struct eng_rotary *rope, uint64_t head_dim, float *inv_freq)
{
    for (uint64_t i = 0; i < head_dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)head_dim;
        inv_freq[i] = 1.0f / (float)pow(rope->theta, (double)exponent);
        if (rope->llama3)
            inv_freq[i] = rope_scale_llama3(rope, inv_freq[i]);
    }
}

void eng_rope_angles(const float *inv_freq, uint64_t pairs, uint64_t position, float *cosine,
                     float *sine)
{
    for (uint64_t i = 0; i < pairs; i++) {
        float angle = (float)position * inv_freq[i];
        cosine[i] = (float)cos((double)angle);
        sine[i] = (float)sin((double)angle);
    }
}
