/* The CUDA runtime but for memory: one device, its streams, events, graphs and kernels. */
#include "hostcuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device: an H100's figures, since PyTorch sizes its launches by them ---- */
static __thread int device;

cudaError_t cudaGetDeviceCount(int *n) { COUNT; *n = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *d) { COUNT; *d = device; return cudaSuccess; }
cudaError_t cudaSetDevice(int d) { COUNT; device = d; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { COUNT; *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *v) { COUNT; *v = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaGetLastError(void) { COUNT; return cudaSuccess; }
cudaError_t cudaPeekAtLastError(void) { COUNT; return cudaSuccess; }

const char *cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorMemoryAllocation: return "out of memory";
    default: return "hostcuda error";
  }
}

const char *cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    default: return "hostcudaError";
  }
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) {
  COUNT;
  memset(p, 0, sizeof *p);
  strcpy(p->name, "hostcuda (no GPU)");
  p->totalGlobalMem = 80ull << 30;
  p->major = 9;
  p->minor = 0;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = 50 << 20;
  p->unifiedAddressing = p->concurrentKernels = 1;
  p->asyncEngineCount = 3;
  p->textureAlignment = 512;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int d) {
  COUNT;
  switch (a) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX: *v = 1024; break;
    case cudaDevAttrMultiProcessorCount: *v = 132; break;
    case cudaDevAttrMaxGridDimX: *v = 2147483647; break;
    case cudaDevAttrMaxGridDimY: *v = 65535; break;
    case cudaDevAttrComputeCapabilityMajor: *v = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *v = 0; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = 232448; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = 233472; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *v = 2048; break;
    case cudaDevAttrMaxRegistersPerBlock: *v = 65536; break;
    case cudaDevAttrL2CacheSize: *v = 50 << 20; break;
    default: *v = 0;
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *s, int n, int d) { COUNT; snprintf(s, n, "0000:00:00.0"); return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high) { COUNT; *low = 0; *high = -5; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b) { COUNT; *can = 0; return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int d, unsigned flags) { COUNT; return cudaSuccess; }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int d) { COUNT; NEW_HANDLE(p); return cudaSuccess; }

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t p, enum cudaMemPoolAttr a, void *v) {
  COUNT;
  *(unsigned long long *)v = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetGraphMemAttribute(int d, enum cudaGraphMemAttributeType a, void *v) {
  COUNT;
  *(unsigned long long *)v = 0;
  return cudaSuccess;
}

/* ---- graphs: enough to say whether a region can be captured ----
 * One capture at a time, and while it lasts every stream counts as captured, from every thread: a backward pass runs on
 * autograd's threads. A thread may ask to be left alone: in relaxed mode altogether (the caching allocator), in
 * thread-local mode by captures of others (the NCCL watchdog). */
static _Atomic enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
static atomic_ullong captures; /* so far; the number of the last is its id */
static pthread_t capturer;
static __thread enum cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;

int hostcuda_capturing(void) { return capture != cudaStreamCaptureStatusNone; }

cudaError_t hostcuda_refuse_in_capture(void) {
  if (!hostcuda_capturing() || mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  if (mode == cudaStreamCaptureModeThreadLocal && !pthread_equal(pthread_self(), capturer)) return cudaSuccess;
  capture = cudaStreamCaptureStatusInvalidated;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode m) {
  COUNT;
  captures++;
  capturer = pthread_self();
  capture = cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
  COUNT;
  enum cudaStreamCaptureStatus was = atomic_exchange(&capture, cudaStreamCaptureStatusNone);
  *g = NULL;
  if (was == cudaStreamCaptureStatusInvalidated) return cudaErrorStreamCaptureInvalidated;
  NEW_HANDLE(g);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *status) {
  COUNT;
  *status = capture;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *g, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
                                     size_t *n) {
  COUNT;
  *status = capture;
  if (id) *id = captures;
  if (g) *g = (cudaGraph_t)1;
  if (deps) *deps = NULL;
  if (edges) *edges = NULL;
  if (n) *n = 0;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *m) {
  COUNT;
  enum cudaStreamCaptureMode was = mode;
  mode = *m;
  *m = was;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long flags) {
  COUNT;
  NEW_HANDLE(x);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *n) { COUNT; *n = 1; return cudaSuccess; }

/* ---- streams, events, waiting: all streams share the one queue, so waiting for one is waiting for all ---- */
cudaError_t cudaStreamCreate(cudaStream_t *s) { COUNT; NEW_HANDLE(s); return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { COUNT; NEW_HANDLE(s); return cudaSuccess; }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
  COUNT;
  NEW_HANDLE(s);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) { COUNT; return cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t s, int *p) { COUNT; *p = 0; return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { COUNT; return cudaSuccess; }

static cudaError_t ready(long at) { return hostcuda_now() < at ? cudaErrorNotReady : cudaSuccess; }

cudaError_t cudaStreamQuery(cudaStream_t s) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  return refused ? refused : ready(hostcuda_drained_at());
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  if (!refused) hostcuda_drain();
  return refused;
}

cudaError_t cudaDeviceSynchronize(void) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  if (!refused) hostcuda_drain();
  return refused;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *arg) { COUNT; f(arg); return cudaSuccess; }

cudaError_t cudaStreamAddCallback(cudaStream_t s, cudaStreamCallback_t f, void *arg, unsigned flags) {
  COUNT;
  f(s, cudaSuccess, arg);
  return cudaSuccess;
}

struct event {
  long at; /* when the device reaches it */
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  COUNT;
  *e = calloc(1, sizeof(struct event));
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { COUNT; free(e); return cudaSuccess; }

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
  COUNT;
  long now = hostcuda_now(), drained = hostcuda_drained_at();
  ((struct event *)e)->at = drained > now ? drained : now;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecordWithFlags(e, s, 0); }

cudaError_t cudaEventQuery(cudaEvent_t e) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  return refused ? refused : ready(((struct event *)e)->at);
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  if (refused) return refused;
  hostcuda_wait_until(((struct event *)e)->at);
  if (hostcuda_sync_ns) hostcuda_wait_until(hostcuda_now() + hostcuda_sync_ns);
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
  COUNT;
  *ms = (((struct event *)to)->at - ((struct event *)from)->at) * 1e-6f;
  return ready(((struct event *)to)->at);
}

cudaError_t cudaProfilerStart(void) { COUNT; return cudaSuccess; }
cudaError_t cudaProfilerStop(void) { COUNT; return cudaSuccess; }

/* ---- kernels: none does anything; PyTorch's spin kernel (torch.cuda._sleep) takes as long as it was told ---- */
static const void *spin_kernel; /* its host stub, known once its library has registered it */

static cudaError_t launch_kernel(const void *f, void **args) {
  int spins = spin_kernel && f == spin_kernel;
  hostcuda_launch(spins ? *(long *)args[0] : hostcuda_kernel_ns); /* one cycle is one nanosecond */
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t smem, cudaStream_t s) {
  COUNT;
  return launch_kernel(f, args);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **args) {
  COUNT;
  return launch_kernel(f, args);
}

/* What the code that nvcc generates for <<<...>>> calls from CUDA 13 on. */
cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **args, size_t smem, cudaStream_t s) {
  COUNT;
  return launch_kernel(k, args);
}

cudaError_t __cudaGetKernel(cudaKernel_t *k, const void *f) { *k = (cudaKernel_t)f; return cudaSuccess; }

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  COUNT;
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = 90;
  a->maxDynamicSharedSizeBytes = 232448;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v) { COUNT; return cudaSuccess; }

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int block, size_t smem,
                                                                   unsigned flags) {
  COUNT;
  *n = block > 0 && block <= 2048 ? 2048 / block : 1;
  return cudaSuccess;
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *l, const void *code, enum cudaJitOption *jo, void **jv, unsigned nj,
                                enum cudaLibraryOption *lo, void **lv, unsigned nl) {
  COUNT;
  NEW_HANDLE(l);
  return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t l, const char *n) {
  COUNT;
  NEW_HANDLE(k);
  return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t l) { COUNT; return cudaSuccess; }

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute a, int v, int d) {
  COUNT;
  return cudaSuccess;
}

/* Launch configuration and registration, as nvcc's generated code calls them. */
static __thread struct {
  dim3 grid, block;
  size_t smem;
  void *stream;
} pending;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t smem, void *stream) {
  pending.grid = grid;
  pending.block = block;
  pending.smem = smem;
  pending.stream = stream;
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *smem, void *stream) {
  *grid = pending.grid;
  *block = pending.block;
  *smem = pending.smem;
  *(void **)stream = pending.stream;
  return cudaSuccess;
}

void __cudaRegisterFunction(void **h, const char *host_stub, char *device_stub, const char *name, int limit, void *t,
                            void *b, void *bd, void *gd, int *w) {
  if (strstr(name, "spin_kernel")) spin_kernel = host_stub;
}

void **__cudaRegisterFatBinary(void *f) { static void *h[8]; return h; }
void __cudaRegisterFatBinaryEnd(void **h) {}
void __cudaUnregisterFatBinary(void **h) {}
void __cudaRegisterVar(void **h, char *a, char *b, const char *n, int x, size_t s, int k, int g) {}
char __cudaInitModule(void **h) { return 1; }
