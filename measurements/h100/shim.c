/* Lets what is launched keep its L1: cuFuncSetCacheConfig does nothing. gcc -shared -fPIC -o shim.so shim.c -ldl */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static int calls;
static int nothing(void *f, int c) { if (calls++ < 3) fprintf(stderr, "shim: cuFuncSetCacheConfig(%p, %d) skipped\n", f, c); return 0; }
static void *(*real)(void *, const char *);
static void find(void) { if (!real) { real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34"); if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"); } }
typedef int (*get_t)(const char *, void **, int, unsigned long long, void *);
static get_t real_get;
static int get(const char *n, void **p, int v, unsigned long long f, void *s) { if (!strcmp(n, "cuFuncSetCacheConfig")) { *p = nothing; return 0; } return real_get(n, p, v, f, s); }
void *dlsym(void *h, const char *n) {
  find();
  if (!strcmp(n, "cuFuncSetCacheConfig")) return (void *)nothing;
  if (!strcmp(n, "cuGetProcAddress_v2")) { real_get = (get_t)real(h, n); return (void *)get; }
  return real(h, n);
}
