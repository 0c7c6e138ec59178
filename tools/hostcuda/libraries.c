/* The driver interface as far as PyTorch asks it, and cuBLAS, cuSOLVER, cuSPARSE, cuDNN and NCCL as far as handles and
 * durations go. What is not here is a stub that returns 0 (build.py writes them). */
#include "hostcuda.h"

#include <dlfcn.h>
#include <string.h>

/* ---- driver ---- */
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **p, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
  COUNT;
  *p = dlsym(RTLD_DEFAULT, name);
  if (result) *result = *p ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *v) { *v = CUDART_VERSION; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "hostcuda"; return 0; }
int cuGetErrorName(int e, const char **s) { *s = "hostcuda"; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { return cudaDeviceGetAttribute(v, (enum cudaDeviceAttr)a, d); }
int cuCtxGetCurrent(void **c) { *c = (void *)0x42; return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { *flags = 0; *active = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x42; return 0; }
int cuMemGetAllocationGranularity(size_t *g, const void *p, int o) { *g = 2 << 20; return 0; }

/* ---- handles ---- */
#define MAKES_HANDLE(fn) \
  int fn(void **h) { COUNT; NEW_HANDLE(h); return 0; }
MAKES_HANDLE(cublasCreate_v2)
MAKES_HANDLE(cublasLtMatmulPreferenceCreate)
MAKES_HANDLE(cusolverDnCreate)
MAKES_HANDLE(cusparseCreate)
MAKES_HANDLE(cudnnCreate)
int cublasLtMatmulDescCreate(void **h, int a, int b) { NEW_HANDLE(h); return 0; }
int cublasLtMatrixLayoutCreate(void **h, int t, unsigned long r, unsigned long c, long ld) { NEW_HANDLE(h); return 0; }

int cublasLtMatmulAlgoGetHeuristic(void *lt, void *op, void *a, void *b, void *c, void *d, void *pref, int n,
                                   void *result, int *found) {
  memset(result, 0, 64);
  *found = 1;
  return 0;
}

int cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }

#define MULTIPLIES(fn) \
  int fn(void) { COUNT; hostcuda_launch(hostcuda_gemm_ns); return 0; }
MULTIPLIES(cublasSgemm_v2)
MULTIPLIES(cublasDgemm_v2)
MULTIPLIES(cublasSgemmEx)
MULTIPLIES(cublasGemmEx)
MULTIPLIES(cublasLtMatmul)
MULTIPLIES(cublasSgemmStridedBatched)
MULTIPLIES(cublasDgemmStridedBatched)
MULTIPLIES(cublasGemmStridedBatchedEx)
MULTIPLIES(cublasSgemmBatched)
MULTIPLIES(cublasSgemv_v2)
MULTIPLIES(cublasDgemv_v2)

/* ---- NCCL: a communicator of one rank, whose collectives are copies ---- */
typedef struct {
  char internal[128];
} unique_id;

int ncclGetVersion(int *v) { *v = 22800; return 0; }
int ncclGetUniqueId(unique_id *u) { memset(u, 0, sizeof *u); return 0; }
int ncclCommInitRank(void **c, int n, unique_id u, int r) { COUNT; NEW_HANDLE(c); return 0; }
int ncclCommInitRankConfig(void **c, int n, unique_id u, int r, void *config) { COUNT; NEW_HANDLE(c); return 0; }
int ncclCommInitRankScalable(void **c, int n, int r, int k, unique_id *u, void *g) { COUNT; NEW_HANDLE(c); return 0; }
int ncclCommSplit(void *c, int color, int key, void **out, void *config) { COUNT; NEW_HANDLE(out); return 0; }
int ncclCommCount(void *c, int *n) { *n = 1; return 0; }
int ncclCommUserRank(void *c, int *r) { *r = 0; return 0; }
int ncclCommGetAsyncError(void *c, int *e) { *e = 0; return 0; }
const char *ncclGetErrorString(int e) { return "hostcuda"; }
const char *ncclGetLastError(void *c) { return "hostcuda"; }

static int collective(const void *src, void *dst, size_t elements, int type) {
  /* ncclDataType_t: int8, uint8, int32, uint32, int64, uint64, float16, float32, float64, bfloat16, float8 twice */
  static const char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  hostcuda_launch(hostcuda_kernel_ns);
  if (src != dst) memmove(dst, src, elements * bytes[type]);
  return 0;
}

int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *c, void *stream) {
  COUNT;
  return collective(s, r, n, type);
}

int ncclReduceScatter(const void *s, void *r, size_t n, int type, int op, void *c, void *stream) {
  COUNT;
  return collective(s, r, n, type);
}

int ncclAllGather(const void *s, void *r, size_t n, int type, void *c, void *stream) {
  COUNT;
  return collective(s, r, n, type);
}

int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, void *c, void *stream) {
  COUNT;
  return collective(s, r, n, type);
}

int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, void *c, void *stream) {
  COUNT;
  return collective(s, r, n, type);
}
