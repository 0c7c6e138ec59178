/* Memory: host memory whose address tells device, pinned and pageable apart; copies that copy. */
#include "hostcuda.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define DEVICE_BASE 0x600000000000ull
#define PINNED_BASE 0x500000000000ull
#define RANGE 0x010000000000ull
#define TOTAL (80ull << 30)
#define GRAIN 0x200000ull /* the caching allocator asks for multiples of 2 MiB */
#define HEADER 4096       /* a page in front of each block that holds its size */

static char *next_device = (char *)DEVICE_BASE, *next_pinned = (char *)PINNED_BASE;
static size_t device_bytes; /* allocated now */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int is_device(const void *p) { return (size_t)p - DEVICE_BASE < RANGE; }
static int is_pinned(const void *p) { return (size_t)p - PINNED_BASE < RANGE; }

static cudaError_t take(void **out, char **next, size_t bytes) {
  size_t room = (bytes + GRAIN - 1) & ~(GRAIN - 1);
  int device = next == &next_device;
  *out = NULL;
  pthread_mutex_lock(&mutex);
  int full = device && device_bytes + room > TOTAL;
  char *at = *next;
  if (!full) {
    *next += room + GRAIN;
    if (device) device_bytes += room;
  }
  pthread_mutex_unlock(&mutex);
  if (full) return cudaErrorMemoryAllocation;
  /* Pages come on first touch: kernels do nothing, so a tensor of any size costs almost no memory. */
  char *block = mmap(at, HEADER + room, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (block == MAP_FAILED) return cudaErrorMemoryAllocation;
  *(size_t *)block = room;
  *out = block + HEADER;
  return cudaSuccess;
}

static cudaError_t give_back(void *p) {
  if (!p) return cudaSuccess;
  size_t room = *(size_t *)((char *)p - HEADER);
  if (is_device(p)) {
    pthread_mutex_lock(&mutex);
    device_bytes -= room;
    pthread_mutex_unlock(&mutex);
  }
  munmap((char *)p - HEADER, HEADER + room);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t n) { COUNT; return take(p, &next_device, n); }
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { COUNT; return take(p, &next_device, n); }
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags) { COUNT; return take(p, &next_pinned, n); }
cudaError_t cudaFree(void *p) { COUNT; if (p) hostcuda_drain(); return give_back(p); }
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { COUNT; return give_back(p); }
cudaError_t cudaFreeHost(void *p) { COUNT; return give_back(p); }
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags) { COUNT; return cudaSuccess; }
cudaError_t cudaHostUnregister(void *p) { COUNT; return cudaSuccess; }

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
  COUNT;
  *total = TOTAL;
  *free = TOTAL - device_bytes;
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  COUNT;
  memset(a, 0, sizeof *a);
  a->type = is_device(p) ? cudaMemoryTypeDevice : is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  a->devicePointer = is_device(p) || is_pinned(p) ? (void *)p : NULL;
  a->hostPointer = is_device(p) ? NULL : (void *)p;
  return cudaSuccess;
}

/* ---- copies ---- */
#define LARGE (64ull << 20) /* nobody reads what is in so large a tensor, and its pages would be real memory */

static void move(void *dst, const void *src, size_t n) {
  if (n > LARGE && is_device(dst)) return;
  if (hostcuda_reads >= 0 && n <= 16 && is_device(src) && !is_device(dst)) {
    memset(dst, 0, n);
    *(char *)dst = (char)hostcuda_reads;
  } else {
    memmove(dst, src, n);
  }
}

/* What a copy does to the host and to the queue before the bytes move. */
static void await_copy(const void *dst, const void *src) {
  if (is_device(src) && is_device(dst)) hostcuda_launch(hostcuda_kernel_ns);
  /* The driver stages a copy to pageable memory and returns when it is done: the wait is in here, and the
   * synchronisation after it finds nothing to wait for. To pinned memory it is the other way round. */
  if (is_device(src) && !is_device(dst) && !is_pinned(dst)) hostcuda_wait_until(hostcuda_drained_at());
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind) {
  COUNT;
  cudaError_t refused = hostcuda_refuse_in_capture();
  if (refused) return refused;
  hostcuda_drain();
  move(dst, src, n);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
  COUNT;
  await_copy(dst, src);
  move(dst, src, n);
  return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t n, cudaStream_t s) {
  COUNT;
  await_copy(dst, src);
  move(dst, src, n);
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                              size_t height, enum cudaMemcpyKind kind, cudaStream_t s) {
  COUNT;
  await_copy(dst, src);
  for (size_t i = 0; i < height; i++) move((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width);
  return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t n) {
  COUNT;
  hostcuda_launch(hostcuda_kernel_ns);
  if (n <= LARGE) memset(p, value, n);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) {
  COUNT;
  hostcuda_launch(hostcuda_kernel_ns);
  if (n <= LARGE) memset(p, value, n);
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void **p, const void *symbol) { COUNT; return take(p, &next_device, 4096); }

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t n, size_t at, enum cudaMemcpyKind kind) {
  COUNT;
  return cudaSuccess;
}
