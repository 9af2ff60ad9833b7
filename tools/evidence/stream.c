/* Memory bandwidth as STREAM counts it: copy, scale, add, triad over arrays of doubles; and, on
 * x86, a copy by non-temporal stores, which don't fetch the line that they overwrite.
 *
 *     cc -O3 -march=native -fopenmp -o stream stream.c && ./stream BYTES_PER_ARRAY REPEATS
 *
 * Prints one line a kernel: its name, the bytes of one turn, and the seconds of each turn.
 * Written for this project; the kernels and the way of counting are those of J. D. McCalpin,
 * "Memory bandwidth and machine balance in current high performance computers" (1995). */
#if defined(__SSE2__)
#include <emmintrin.h>
#define KERNELS 5
#else
#define KERNELS 4
#endif
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    static const char *names[] = {"copy", "scale", "add", "triad", "copy_past_cache"};
    static const int tensors[] = {2, 2, 3, 3, 2};
    if (argc != 3 || atoll(argv[1]) < 8 || atoi(argv[2]) < 1) {
        fprintf(stderr, "usage: stream BYTES_PER_ARRAY REPEATS\n");
        return 2;
    }
    const long n = atoll(argv[1]) / (long)sizeof(double);
    const int repeats = atoi(argv[2]);
    double *restrict a = aligned_alloc(64, (size_t)(n + 8) / 8 * 64);
    double *restrict b = aligned_alloc(64, (size_t)(n + 8) / 8 * 64);
    double *restrict c = aligned_alloc(64, (size_t)(n + 8) / 8 * 64);
    if (!a || !b || !c) {
        fprintf(stderr, "not enough memory for three arrays of %s bytes\n", argv[1]);
        return 1;
    }
    /* touched by the threads that will use them, so that pages lie near them */
#pragma omp parallel for schedule(static)
    for (long i = 0; i < n; i++) { a[i] = 1.0; b[i] = 2.0; c[i] = 0.0; }
    for (int kernel = 0; kernel < KERNELS; kernel++) {
        printf("%s %ld", names[kernel], (long)sizeof(double) * n * tensors[kernel]);
        for (int turn = 0; turn <= repeats; turn++) {
            const double begun = now();
            switch (kernel) {
            case 0:
#pragma omp parallel for schedule(static)
                for (long i = 0; i < n; i++) c[i] = a[i];
                break;
            case 1:
#pragma omp parallel for schedule(static)
                for (long i = 0; i < n; i++) b[i] = 0.5 * c[i];
                break;
            case 2:
#pragma omp parallel for schedule(static)
                for (long i = 0; i < n; i++) c[i] = a[i] + b[i];
                break;
            case 3:
#pragma omp parallel for schedule(static)
                for (long i = 0; i < n; i++) a[i] = b[i] + 0.5 * c[i];
                break;
            default:
#if defined(__SSE2__)
#pragma omp parallel for schedule(static)
                for (long i = 0; i < n - 1; i += 2) _mm_stream_pd(c + i, _mm_load_pd(a + i));
#endif
                break;
            }
            if (turn) printf(" %.9f", now() - begun); /* the first turn warms up */
        }
        printf("\n");
    }
    fprintf(stderr, "checksum %.3f\n", a[n / 2] + b[n / 3] + c[n / 5]); /* the work is used */
    return 0;
}
