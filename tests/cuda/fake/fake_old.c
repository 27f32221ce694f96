/* A driver of before CUDA 12: it knows its version, and no cuGetProcAddress_v2. */
__attribute__((visibility("default"))) int cuDriverGetVersion(int *version);

int cuDriverGetVersion(int *version)
{
    *version = 11040;
    return 0;
}
