/* A table that the compiler works out: whether n has a small factor. That is why this file
 * takes its time to compile. */
#include "tally.h"

#define SMALL(n) ((n) < 2 || ((n) != 2 && (n) % 2 == 0) || ((n) != 3 && (n) % 3 == 0) || ((n) != 5 && (n) % 5 == 0) || \
                  ((n) != 7 && (n) % 7 == 0) || ((n) != 11 && (n) % 11 == 0) || ((n) != 13 && (n) % 13 == 0))
#define T4(n) SMALL(n), SMALL(n + 1), SMALL(n + 2), SMALL(n + 3)
#define T16(n) T4(n), T4(n + 4), T4(n + 8), T4(n + 12)
#define T64(n) T16(n), T16(n + 16), T16(n + 32), T16(n + 48)
#define T256(n) T64(n), T64(n + 64), T64(n + 128), T64(n + 192)
#define T1K(n) T256(n), T256(n + 256), T256(n + 512), T256(n + 768)
#define T4K(n) T1K(n), T1K(n + 1024), T1K(n + 2048), T1K(n + 3072)
#define T16K(n) T4K(n), T4K(n + 4096), T4K(n + 8192), T4K(n + 12288)

static const char small_factor[] = { T16K(0), T16K(16384), T16K(32768) };

static int is_prime(unsigned n)
{
    if (small_factor[n])
        return 0;
    for (unsigned factor = 17; factor * factor <= n; factor += 2)
        if (n % factor == 0)
            return 0;
    return 1;
}

unsigned next_prime(unsigned n)
{
    for (n++; n < sizeof small_factor; n++)
        if (is_prime(n))
            return n;
    return 0;
}
