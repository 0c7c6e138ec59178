/* Counting of calls, and the imagined device's time.
 *
 * The device is one queue in wall-clock time. By default its work takes no time. With the durations set, a launch
 * appends its duration and a wait lasts until the queue is empty: the host is the real one and the device a model with
 * one number a kind of work, so that what a wait does to the host's lead can be measured. */
#include "hostcuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- counting ---- */
#define MAX_NAMES 512
static struct {
  const char *name;
  atomic_long calls;
} table[MAX_NAMES];
static atomic_int names;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

atomic_long *hostcuda_counter(const char *name) {
  pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < names && strcmp(table[i].name, name)) i++;
  if (i == names && names < MAX_NAMES - 1) table[names++].name = name;
  pthread_mutex_unlock(&mutex);
  return &table[i].calls;
}

void hostcuda_reset(void) {
  for (int i = 0; i < names; i++) table[i].calls = 0;
}

/* The i-th function seen so far; 0 past the last. */
int hostcuda_name(int i, const char **name, long *calls) {
  if (i >= names) return 0;
  *name = table[i].name;
  *calls = table[i].calls;
  return 1;
}

void *hostcuda_new_handle(void) {
  static atomic_long next = 0x1000;
  return (void *)atomic_fetch_add(&next, 16);
}

/* ---- what a test may set, by hostcuda.py or by the environment ---- */
long hostcuda_kernel_ns; /* a kernel, a copy within the device, a collective */
long hostcuda_gemm_ns;   /* a cuBLAS call */
long hostcuda_launch_ns; /* what a launch costs the host beyond PyTorch's own code: the driver's part */
long hostcuda_sync_ns;   /* what a wait costs beyond waiting */

/* What a device-to-host read of at most 16 bytes yields: -1, whatever the memory holds (kernels wrote nothing to it);
 * 0, zero; 1, the integer one. So `if count > 0` can be sent down either branch. */
int hostcuda_reads = -1;

static void from_environment(const char *name, long *value) {
  const char *text = getenv(name);
  if (text && *text) *value = strtol(text, NULL, 10);
}

__attribute__((constructor)) static void read_environment(void) {
  long reads = hostcuda_reads;
  from_environment("HOSTCUDA_KERNEL_NS", &hostcuda_kernel_ns);
  from_environment("HOSTCUDA_GEMM_NS", &hostcuda_gemm_ns);
  from_environment("HOSTCUDA_LAUNCH_NS", &hostcuda_launch_ns);
  from_environment("HOSTCUDA_SYNC_NS", &hostcuda_sync_ns);
  from_environment("HOSTCUDA_READS", &reads);
  hostcuda_reads = (int)reads;
}

/* ---- time ---- */
static atomic_long drained;

long hostcuda_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

long hostcuda_drained_at(void) { return drained; }

void hostcuda_wait_until(long at) {
  /* Sleep through most of a long wait, so that a test leaves the processor to others; spin at the end, since a sleep
   * wakes up to 100 us late. */
  long left = at - hostcuda_now();
  if (left > 500000) {
    struct timespec nap = {(left - 200000) / 1000000000L, (left - 200000) % 1000000000L};
    nanosleep(&nap, NULL);
  }
  while (hostcuda_now() < at) {
  }
}

void hostcuda_enqueue(long ns) {
  if (!ns || hostcuda_capturing()) return; /* captured work is recorded, not run */
  long at = hostcuda_now(), was = drained, next;
  do next = (was > at ? was : at) + ns;
  while (!atomic_compare_exchange_weak(&drained, &was, next));
}

void hostcuda_launch(long ns) {
  if (hostcuda_launch_ns) hostcuda_wait_until(hostcuda_now() + hostcuda_launch_ns);
  hostcuda_enqueue(ns);
}

void hostcuda_drain(void) {
  hostcuda_wait_until(drained);
  if (hostcuda_sync_ns) hostcuda_wait_until(hostcuda_now() + hostcuda_sync_ns);
}
